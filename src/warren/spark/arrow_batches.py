"""Blocks to Arrow: the columns of a record batch from the columns of a block (queues/message_block.py).

Fixed columns and bodies are taken over as arrays, without a Python object per message; a body column refers to the
bytes that came from the socket. Properties need a look at each message, so they are decoded only when a column asks for
one, once per distinct property block. Knows nothing of Spark: bytes and an Arrow schema in, record batches out.
"""

import struct
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from warren.queues.message_block import (
    HAS_BODIES,
    HEADER_BYTES,
    IS_PERSISTENT,
    IS_REDELIVERED,
    MAGIC,
)
from warren.wire.errors import AmqpError
from warren.wire.field_table import DATETIME_SECONDS_MAX, decode_table, to_python
from warren.wire.properties import Properties, decode_properties

_HEADER: Final = struct.Struct("<4sIIIIIQ")
_json: Final = msgspec.json.Encoder()


class Heap:
    """Byte strings of varying size, end to end; `offsets` has one more entry than there are strings."""

    def __init__(self, offsets: np.ndarray[Any, np.dtype[np.int32]], data: memoryview) -> None:
        self.offsets = offsets
        self.data = data

    def as_binary(self) -> Any:
        """An Arrow binary array over the same bytes."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), len(self.offsets) - 1, buffers)

    def as_string(self) -> Any:
        """An Arrow string array; what is not UTF-8 in it is replaced, as a name is not checked when it arrives."""
        binary = self.as_binary()
        try:
            return binary.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([value.as_py().decode("utf-8", "replace") for value in binary], pa.string())

    def parts(self) -> list[bytes]:
        """The strings as Python objects."""
        offsets = self.offsets.tolist()
        data = bytes(self.data)
        return [data[offsets[i] : offsets[i + 1]] for i in range(len(offsets) - 1)]


class Block:
    """The columns of one block. ValueError when `data` is not one."""

    def __init__(self, data: memoryview) -> None:
        if len(data) < HEADER_BYTES:
            raise ValueError("a block of messages is cut short")
        magic, flags, count, exchange_bytes, routing_key_bytes, properties_bytes, body_bytes = (
            _HEADER.unpack_from(data)
        )
        if magic != MAGIC:
            raise ValueError("a block of messages in a format of another version of warren")
        self.count: int = count
        self.has_bodies = bool(flags & HAS_BODIES)
        heap_count = 4 if self.has_bodies else 3
        heaps_start = HEADER_BYTES + 28 * count + 4 * heap_count * (count + 1) + count
        if len(data) != heaps_start + exchange_bytes + routing_key_bytes + properties_bytes + body_bytes:
            raise ValueError("a block of messages has the wrong size")
        self._data = data
        self._at = HEADER_BYTES
        self.seqs = self._take("<i8", count)
        self.enqueued_ms = self._take("<i8", count)
        self.expires_ms = self._take("<i8", count)
        self.sizes = self._take("<i4", count)
        offsets = [self._take("<i4", count + 1) for _ in range(heap_count)]
        self.flags = self._take("u1", count)
        heaps = []
        at = heaps_start
        for part_offsets in offsets:
            end = at + int(part_offsets[-1])
            heaps.append(Heap(part_offsets, data[at:end]))
            at = end
        self.exchanges, self.routing_keys, self.properties = heaps[:3]
        self.bodies = heaps[3] if self.has_bodies else None

    def _take(self, kind: str, count: int) -> np.ndarray[Any, Any]:
        values = np.frombuffer(self._data, kind, count, self._at)
        self._at += values.nbytes
        # Arrow wants aligned buffers and the socket's bytes are not; these columns are small.
        return values.copy()


class BatchBuilder:
    """Record batches of one schema, for one queue's blocks."""

    def __init__(self, schema: Any, vhost: str, queue: str) -> None:
        self._schema = schema
        self._vhost = vhost
        self._queue = queue

    @property
    def needs_bodies(self) -> bool:
        """Must blocks bring the bodies along?"""
        return "body" in self._schema.names

    def build(self, data: memoryview) -> Any:
        """The block in `data` as a record batch."""
        block = Block(data)
        decoded: list[Properties | None] | None = None
        arrays = []
        for column in self._schema:
            if column.name in _FROM_PROPERTIES:
                if decoded is None:
                    decoded = _decode_all(block.properties.parts())
                read = _FROM_PROPERTIES[column.name]
                values = [None if properties is None else read(properties) for properties in decoded]
                arrays.append(pa.array(values, column.type))
            else:
                arrays.append(self._fixed_column(column.name, block))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fixed_column(self, name: str, block: Block) -> Any:
        match name:
            case "vhost":
                return pa.repeat(pa.scalar(self._vhost), block.count)
            case "queue":
                return pa.repeat(pa.scalar(self._queue), block.count)
            case "seq":
                return pa.array(block.seqs)
            case "exchange":
                return block.exchanges.as_string()
            case "routing_key":
                return block.routing_keys.as_string()
            case "enqueued_at":
                return _timestamps(block.enqueued_ms)
            case "expires_at":
                return _timestamps(block.expires_ms, block.expires_ms == 0)
            case "redelivered":
                return pa.array((block.flags & IS_REDELIVERED) != 0)
            case "persistent":
                return pa.array((block.flags & IS_PERSISTENT) != 0)
            case "size":
                return pa.array(block.sizes)
            case "body" if block.bodies is not None:
                return block.bodies.as_binary()
        raise ValueError(f"no column '{name}' in a block")


def _timestamps(ms: np.ndarray[Any, Any], nulls: np.ndarray[Any, Any] | None = None) -> Any:
    return pa.array(ms * 1000, mask=nulls).view(pa.timestamp("us", tz="UTC"))


# -- properties --------------------------------------------------------------------------------------------------


def _decode_all(blocks: list[bytes]) -> list[Properties | None]:
    """The properties of each message, None where they do not decode; equal blocks share one object."""
    known: dict[bytes, Properties | None] = {}
    decoded = []
    for raw in blocks:
        if raw not in known:
            try:
                known[raw] = decode_properties(raw)
            except AmqpError:
                known[raw] = None
        decoded.append(known[raw])
    return decoded


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def _timestamp_us(properties: Properties) -> int | None:
    """Microseconds since 1970; None for seconds past the year 9999, which Spark cannot show."""
    seconds = properties.timestamp
    return None if seconds is None or seconds > DATETIME_SECONDS_MAX else seconds * 1_000_000


def headers_as_json(properties: Properties) -> list[tuple[str, str]] | None:
    """Names and values as JSON text; None without headers. For querying: the exact table is `headers_raw`."""
    raw = properties.headers
    if raw is None:
        return None
    table = to_python(decode_table(raw))
    return [(_clean(name), _json.encode(_json_value(value)).decode()) for name, value in table.items()]


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
        # JSON has no word for these.
        return str(value)
    return value


def _clean(name: str) -> str:
    """Names come with surrogates for what is not UTF-8; Arrow takes none."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


_FROM_PROPERTIES: Final[dict[str, Callable[[Properties], object]]] = {
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
