"""Columns of the data source "warren_events", and how messages of an event queue become rows.

A message of the exchange `amq.rabbitmq.event` is an event: its routing key is the name, its headers
are the fields. One of the firehose's exchange is a message that a client has published or got.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

EVENT_COLUMNS: Final[dict[str, DataType]] = {
    "seq": LongType(),
    "time": TimestampType(),
    "event": StringType(),
    "node": StringType(),
    "vhost": StringType(),
    "user": StringType(),
    "name": StringType(),
    "fields": MapType(StringType(), StringType()),
    "body": BinaryType(),
}
# The names of a message that a client has published, or got from a queue, by the first word of the
# firehose's routing key.
MESSAGE_EVENTS: Final = {"publish": "message.published", "deliver": "message.delivered"}
_FIREHOSE: Final = "amq.rabbitmq.trace"
_AUTHENTICATION: Final = "user.authentication."
_STAMP: Final = "timestamp_in_ms"
_NEVER_NULL: Final = frozenset(("seq", "time", "event"))


def event_schema() -> StructType:
    """The schema of a read for which the user gives none: all columns."""
    return StructType([StructField(name, kind) for name, kind in EVENT_COLUMNS.items()])


def message_schema(names: list[str]) -> StructType:
    """The columns of messages from which the columns `names` of events are made."""
    columns = [
        StructField("seq", LongType()),
        StructField("exchange", StringType()),
        StructField("routing_key", StringType()),
        StructField("enqueued_at", TimestampType()),
        StructField("headers", MapType(StringType(), StringType())),
    ]
    if "body" in names:
        columns.append(StructField("body", BinaryType()))
    return StructType(columns)


class _Event:
    """A message of an event queue, and what its fields say."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row
        self.fields: dict[str, str] = dict(row["headers"] or ())
        self.is_message = str(row["exchange"]) == _FIREHOSE
        # Of a routing key of the firehose: what was done, and the exchange or the queue.
        self._deed, _, self._where = row["routing_key"].partition(".")

    @property
    def event(self) -> str:
        if self.is_message:
            return MESSAGE_EVENTS.get(self._deed, str(self._deed))
        return str(self.row["routing_key"])

    @property
    def time_us(self) -> int:
        """Microseconds since 1970."""
        stamp = self.fields.get(_STAMP)
        return int(self.row["enqueued_at"]) if stamp is None else int(stamp) * 1000

    @property
    def name(self) -> str | None:
        return self._where if self.is_message else self.text("name")

    @property
    def user(self) -> str | None:
        if self.event.startswith(_AUTHENTICATION):
            return self.text("name")
        return self.text("user_who_performed_action") or self.text("user")

    def text(self, name: str) -> str | None:
        """The text in a field; None without one."""
        found = None if name not in self.fields else json.loads(self.fields[name])
        return found if isinstance(found, str) else None


_VALUES: Final[dict[str, Callable[[_Event], Any]]] = {
    "seq": lambda event: event.row["seq"],
    "time": lambda event: event.time_us,
    "event": lambda event: event.event,
    "node": lambda event: event.text("node"),
    "vhost": lambda event: event.text("vhost"),
    "user": lambda event: event.user,
    "name": lambda event: event.name,
    "fields": lambda event: list(event.fields.items()),
    "body": lambda event: event.row["body"] if event.is_message else None,
}


def event_batch(messages: Any, schema: Any) -> Any:
    """The record batch of the Arrow `schema` for a batch of messages (`message_schema`)."""
    import pyarrow as pa

    place = messages.schema.get_field_index("enqueued_at")
    as_numbers = messages.column("enqueued_at").cast(pa.int64())
    rows = messages.set_column(place, "enqueued_at", as_numbers).to_pylist()
    events = [_Event(row) for row in rows]
    arrays = [
        pa.array([_VALUES[column.name](event) for event in events], column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def may_be_null(name: str) -> bool:
    """Whether rows may have no value in the column `name`."""
    return name not in _NEVER_NULL
