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

from warren.spark.options import OptionError

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


def default_schema(include_body: bool, include_headers: bool) -> StructType:
    """All columns, without those the options leave out."""
    left_out = set() if include_body else {"body"}
    if not include_headers:
        left_out |= {"headers", "headers_raw"}
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if name not in left_out])


def check_schema(schema: StructType) -> None:
    """OptionError when a user-given schema has a column that is not there, or one with another type."""
    check_columns(schema, COLUMNS, 'format "warren" has')


def check_columns(schema: StructType, known: dict[str, DataType], owner_has: str) -> None:
    """OptionError when `schema` has a column that is not among `known`, or with another type; `owner_has` says whose."""
    for column in schema.fields:
        kind = known.get(column.name)
        if kind is None:
            raise OptionError(f"unknown column '{column.name}'; {owner_has}: {', '.join(known)}")
        if column.dataType != kind:
            raise OptionError(
                f"column '{column.name}' is {kind.simpleString()}, not {column.dataType.simpleString()}"
            )
