"""Columns of the data source "warren": names and types, which of them a read has.

A user-given schema is the projection: Spark 4.3 passes no pruning to a Python source, so
`spark.read.format("warren").schema("seq bigint, body binary")` is how to leave work undone.
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
# The others are null where a property is not set.
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
        "body",
    )
)


def default_schema(include_body: bool, include_headers: bool) -> StructType:
    """All columns, without those the options leave out."""
    left_out = _left_out(include_body, include_headers)
    return StructType(
        [StructField(name, kind) for name, kind in COLUMNS.items() if name not in left_out]
    )


def check_schema(schema: StructType, include_body: bool, include_headers: bool) -> None:
    """OptionError when a user-given schema has a column that is not there, or is left out, or one with another type."""
    check_columns(schema, COLUMNS, 'format "warren" has')
    left_out = _left_out(include_body, include_headers)
    for column in schema.fields:
        if column.name in left_out:
            raise OptionError(
                f"the schema has column '{column.name}', and option '{left_out[column.name]}' leaves it out"
            )
        if not column.nullable and column.name not in _NEVER_NULL:
            raise OptionError(f"column '{column.name}' may be null: the schema cannot say NOT NULL")


def _left_out(include_body: bool, include_headers: bool) -> dict[str, str]:
    """Columns that the options leave out, and which option each."""
    left_out = {} if include_body else {"body": "includeBody"}
    if not include_headers:
        left_out |= {"headers": "includeHeaders", "headers_raw": "includeHeaders"}
    return left_out


def check_columns(schema: StructType, known: dict[str, DataType], owner_has: str) -> None:
    """OptionError when `schema` has a column that is not among `known`, or with another type; `owner_has` says whose.

    Nor may it have none at all: Spark takes record batches without columns for empty ones.
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
