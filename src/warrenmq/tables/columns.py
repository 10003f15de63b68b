"""The columns of a message: names and Arrow types, and how bytes become values of a column."""

from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warrenmq.wire.field_table import decode_table, to_python

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


def slices(data: Any, starts: Any, ends: Any) -> Any:
    """The bytes data[start:end] for each pair of `starts` and `ends`, as a binary array.

    Equal slices may repeat; others must not overlap. `data` must be smaller than 2 GiB. The
    elements of an array over all of `data` are, in turn, a slice and the bytes between it and the
    next slice; every second element is taken.
    """
    count = len(starts)
    if count == 0:
        return pa.array([], pa.binary())
    if np.all(starts[1:] > starts[:-1]):
        wanted = np.arange(0, 2 * count, 2)
    else:
        starts, first, inverse = np.unique(starts, return_index=True, return_inverse=True)
        ends = ends[first]
        wanted = 2 * inverse
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers).take(pa.array(wanted))


def table_as_json(raw: bytes) -> object:
    """A field table as a value that JSON can express."""
    return json_value(to_python(decode_table(raw)))


def json_value(value: object) -> object:
    """A value of a field table (`field_to_python`) as one that JSON can express."""
    if isinstance(value, dict):
        return {_clean(str(name)): json_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [json_value(part) for part in value]
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
