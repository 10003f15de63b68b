"""Columns of the data source "warren": their names and types, and which of them a read has.

A user-given schema is the projection, because Spark 4.3 passes no column pruning to a Python
source. `spark.read.format("warren").schema("seq bigint, body binary")` saves the work for the rest.
"""

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warrenmq.spark.large_bodies import NULL
from warrenmq.spark.options import OptionError

COLUMNS: Final[dict[str, DataType]] = {
    "vhost": StringType(),
    "queue": StringType(),
    "seq": LongType(),
    "exchange": StringType(),
    "routing_key": StringType(),
    "enqueued_at": TimestampType(),
    "expires_at": TimestampType(),
    "redelivered": BooleanType(),
    "persistent": BooleanType(),
    "priority": IntegerType(),
    "size": IntegerType(),
    "message_id": StringType(),
    "correlation_id": StringType(),
    "reply_to": StringType(),
    "type": StringType(),
    "user_id": StringType(),
    "app_id": StringType(),
    "content_type": StringType(),
    "content_encoding": StringType(),
    "timestamp": TimestampType(),
    "headers": MapType(StringType(), StringType()),
    "headers_raw": BinaryType(),
    "body": BinaryType(),
}
# Columns that have a value in every row. Other columns are null where a property is not set, and
# `body` where the option `largeBodies` says so.
_NEVER_NULL: Final = frozenset(
    (
        "vhost",
        "queue",
        "seq",
        "exchange",
        "routing_key",
        "enqueued_at",
        "redelivered",
        "persistent",
        "size",
    )
)


def default_schema(include_body: bool, include_headers: bool) -> StructType:
    """All columns except those that the options leave out."""
    left_out = _left_out(include_body, include_headers)
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if name not in left_out]
    )


def check_schema(
    schema: StructType, include_body: bool, include_headers: bool, large_bodies: str
) -> None:
    """Raise OptionError unless a read can fill every column of a user-given schema.

    A column is refused when it is unknown, has another type, is left out by an option, or is NOT
    NULL where rows may have nulls.
    """
    check_columns(schema, COLUMNS, 'format "warren" has')
    left_out = _left_out(include_body, include_headers)
    for column in schema.fields:
        if column.name in left_out:
            raise OptionError(
                f"the schema has column '{column.name}', and option '{left_out[column.name]}' leaves it out"
            )
        may_be_null = column.name not in _NEVER_NULL
        if column.name == "body":
            may_be_null = large_bodies == NULL
        if not column.nullable and may_be_null:
            raise OptionError(f"column '{column.name}' may be null: the schema cannot say NOT NULL")


def _left_out(include_body: bool, include_headers: bool) -> dict[str, str]:
    """Columns that the options leave out, each with the name of its option."""
    left_out = {} if include_body else {"body": "includeBody"}
    if not include_headers:
        left_out |= {"headers": "includeHeaders", "headers_raw": "includeHeaders"}
    return left_out


def check_columns(schema: StructType, known: dict[str, DataType], owner_has: str) -> None:
    """Raise OptionError unless `known` has each column of `schema`, with the same type.

    A schema without columns is refused too, because Spark takes record batches without columns for
    empty ones. `owner_has` begins the list of known columns in the error text.
    """
    if not schema.fields:
        raise OptionError(f"the schema has no columns; {owner_has}: {', '.join(known)}")
    for column in schema.fields:
        kind = known.get(column.name)
        if kind is None:
            raise OptionError(f"unknown column '{column.name}'; {owner_has}: {', '.join(known)}")
        if schema.fieldNames().count(column.name) > 1:
            raise OptionError(f"column '{column.name}' is named twice")
        if column.dataType != kind:
            raise OptionError(
                f"column '{column.name}' is {kind.simpleString()}, not {column.dataType.simpleString()}"
            )
