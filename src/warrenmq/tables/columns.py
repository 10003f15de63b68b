"""The columns of a message: names and Arrow types, and the columns that come from its properties.

Properties are decoded only when a column needs one, and once for each distinct block: a table of
messages with equal properties costs one decode.
"""

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import DATETIME_SECONDS_MAX, decode_table, to_python
from warrenmq.wire.properties import Properties, decode_properties

_json: Final = msgspec.json.Encoder()
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

MESSAGE_COLUMNS: Final[dict[str, Any]] = {
    "vhost": pa.string(),
    "queue": pa.string(),
    "seq": pa.int64(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "enqueued_at": TIMESTAMP,
    "expires_at": TIMESTAMP,
    "redelivered": pa.bool_(),
    "persistent": pa.bool_(),
    "priority": pa.int32(),
    "size": pa.int32(),
    "message_id": pa.string(),
    "correlation_id": pa.string(),
    "reply_to": pa.string(),
    "type": pa.string(),
    "user_id": pa.string(),
    "app_id": pa.string(),
    "content_type": pa.string(),
    "content_encoding": pa.string(),
    "timestamp": TIMESTAMP,
    "headers": pa.map_(pa.string(), pa.string()),
    "headers_raw": pa.binary(),
    "body": pa.binary(),
}


def as_strings(binary: Any) -> Any:
    """A binary array as strings; bytes that are not UTF-8 are replaced.

    The broker does not check the encoding of names when they arrive.
    """
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(
            [
                None if value is None else value.decode("utf-8", "replace")
                for value in binary.to_pylist()
            ],
            pa.string(),
        )


def what_is_not_text(binary: Any) -> Any:
    """The values of a binary array that are not UTF-8, with null in place of all others."""
    try:
        binary.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_unless_text(value) for value in binary.to_pylist()], pa.binary())
    return pa.nulls(len(binary), pa.binary())


def _unless_text(value: bytes) -> bytes | None:
    try:
        value.decode()
    except UnicodeDecodeError:
        return value
    return None


def timestamps(ms: np.ndarray[Any, Any], nulls: np.ndarray[Any, Any] | None = None) -> Any:
    """Milliseconds since 1970 as timestamps; null where `nulls` is set."""
    return pa.array(ms * 1000, mask=nulls).view(TIMESTAMP)


def property_columns(blocks: Any, schema: Any) -> dict[str, Any]:
    """The columns of `schema` that come from the properties, by name.

    `blocks` is a binary array of property blocks. A block that does not decode gives nulls.
    """
    wanted = [column for column in schema if column.name in FROM_PROPERTIES]
    if not wanted:
        return {}
    distinct = blocks.dictionary_encode()
    decoded = [_decode(raw) for raw in distinct.dictionary.to_pylist()]
    columns = {}
    for column in wanted:
        read = FROM_PROPERTIES[column.name]
        values = [None if properties is None else read(properties) for properties in decoded]
        columns[column.name] = pa.array(values, column.type).take(distinct.indices)
    return columns


def _decode(block: bytes) -> Properties | None:
    try:
        return decode_properties(block)
    except AmqpError:
        return None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _timestamp_us(properties: Properties) -> int | None:
    """Microseconds since 1970; None for seconds past the year 9999, which Spark cannot show."""
    seconds = properties.timestamp
    return None if seconds is None or seconds > DATETIME_SECONDS_MAX else seconds * 1_000_000


def headers_as_json(properties: Properties) -> list[tuple[str, str]] | None:
    """Header names with their values as JSON text, for queries; None without headers.

    The column `headers_raw` has the exact table.
    """
    raw = properties.headers
    if raw is None:
        return None
    table = to_python(decode_table(raw))
    return [
        (_clean(name), _json.encode(_json_value(value)).decode()) for name, value in table.items()
    ]


def table_as_json(raw: bytes) -> object:
    """A field table as a value that JSON can express."""
    return _json_value(to_python(decode_table(raw)))


def _json_value(value: object) -> object:
    if isinstance(value, dict):
        return {_clean(str(name)): _json_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_json_value(part) for part in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        # JSON cannot express NaN and infinity.
        return str(value)
    return value


def _clean(name: str) -> str:
    """`name` without surrogates, which stand for bytes that are not UTF-8: Arrow refuses them."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


FROM_PROPERTIES: Final[dict[str, Callable[[Properties], object]]] = {
    "priority": lambda properties: properties.priority,
    "message_id": lambda properties: _text(properties.message_id),
    "correlation_id": lambda properties: _text(properties.correlation_id),
    "reply_to": lambda properties: _text(properties.reply_to),
    "type": lambda properties: _text(properties.type),
    "user_id": lambda properties: _text(properties.user_id),
    "app_id": lambda properties: _text(properties.app_id),
    "content_type": lambda properties: _text(properties.content_type),
    "content_encoding": lambda properties: _text(properties.content_encoding),
    "timestamp": _timestamp_us,
    "headers": headers_as_json,
    "headers_raw": lambda properties: properties.headers,
}
