"""Turns record batches with the columns of the source "warren" into messages for a new store.

`offline/part_writer.py` writes these messages. The column `body` is required. The property block is
`properties_raw`; where that is null or missing, it is made of the columns of single properties and
of `headers_raw`. A block made of columns has delivery-mode 2 or none, and no cluster-id, because no
column has other values. Names may be binary or strings; names that are not UTF-8 are in
`exchange_raw` and `routing_key_raw`.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from warrenmq.offline.part_writer import MessageColumns, address_of
from warrenmq.wire.properties import DELIVERY_MODE_PERSISTENT, Properties

# Most bytes of a name in AMQP.
_SHORT_BYTES_MAX: Final = 255

_TEXTS: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "type",
    "user_id",
    "app_id",
)


def columns_of(batch: Any) -> MessageColumns:
    """The messages of `batch`, a pyarrow RecordBatch, in order; ValueError for unusable columns."""
    count = batch.num_rows
    persistent = _booleans(batch, "persistent", True)
    return MessageColumns(
        _integers(batch, "seq", count),
        _addresses(batch),
        _properties(batch, persistent),
        _required(batch, "body"),
        _milliseconds(batch, "enqueued_at", count),
        _milliseconds(batch, "expires_at", count),
        _booleans(batch, "redelivered", False),
        persistent,
    )


def checksums_of(batch: Any) -> list[int]:
    """The checksum of each message, as in the column `checksum` of a store."""
    found: list[int] = []
    blocks = _properties(batch, _booleans(batch, "persistent", True))
    for address, block, body in zip(
        _addresses(batch), blocks, _required(batch, "body"), strict=True
    ):
        head = b"%b%b%b%b" % (
            address,
            len(block).to_bytes(4, "big"),
            block,
            len(body).to_bytes(4, "big"),
        )
        found.append(crc32c(body, crc32c(head)))
    return found


def _column(batch: Any, name: str) -> Any:
    """The array `name`, or None."""
    return batch.column(name) if name in batch.schema.names else None


def _strings(array: Any) -> list[bytes | None]:
    """Binary or string values as bytes, without an Arrow scalar for each."""
    if array.null_count:
        values: list[bytes | None] = array.cast(pa.binary()).to_pylist()
        return values
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not (wide or pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.binary())
    if len(array) == 0:
        return []
    _, offset_buffer, data_buffer = array.buffers()
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(offset_buffer, kind)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if first == last:
        return [b""] * len(array)
    data = memoryview(data_buffer)[first:last].tobytes()
    ends = (offsets - first).tolist()
    found: list[bytes | None] = []
    start = 0
    for end in ends[1:]:
        found.append(data[start:end])
        start = end
    return found


def _required(batch: Any, name: str) -> list[bytes]:
    array = _column(batch, name)
    if array is None or array.null_count:
        raise ValueError(f"column '{name}' is missing or has nulls")
    values: list[Any] = _strings(array)
    return values


def _names(batch: Any, name: str) -> list[bytes]:
    """The names in the column `name`; a value of `<name>_raw` that is not null replaces one."""
    names = _required(batch, name)
    raw = _column(batch, f"{name}_raw")
    if raw is None or raw.null_count == len(raw):
        return names
    return [
        text if exact is None else exact for text, exact in zip(names, _strings(raw), strict=True)
    ]


def _integers(batch: Any, name: str, count: int) -> list[int]:
    """The integers of the column `name`; 0 for null or without the column."""
    array = _column(batch, name)
    if array is None:
        return [0] * count
    values: list[int] = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).tolist()
    return values


def _milliseconds(batch: Any, name: str, count: int) -> list[int]:
    """The times of the column `name` in ms since 1970; 0 for null or without the column."""
    array = _column(batch, name)
    if array is None:
        return [0] * count
    ms = array.cast(pa.timestamp("ms", tz=array.type.tz), safe=False).cast(pa.int64()).fill_null(0)
    values: list[int] = ms.to_numpy(zero_copy_only=False).tolist()
    return values


def _booleans(batch: Any, name: str, default: bool) -> list[bool]:
    array = _column(batch, name)
    if array is None:
        return [default] * batch.num_rows
    values: list[bool] = array.fill_null(default).to_numpy(zero_copy_only=False).tolist()
    return values


def _addresses(batch: Any) -> list[bytes]:
    known: dict[tuple[bytes, bytes], bytes] = {}
    found: list[bytes] = []
    for names in zip(_names(batch, "exchange"), _names(batch, "routing_key"), strict=True):
        address = known.get(names)
        if address is None:
            for column, name in zip(("exchange", "routing_key"), names, strict=True):
                if len(name) > _SHORT_BYTES_MAX:
                    raise ValueError(
                        f"column '{column}': {len(name)} bytes are more than {_SHORT_BYTES_MAX}"
                    )
            address = known[names] = address_of(*names)
        found.append(address)
    return found


def _properties(batch: Any, persistent: list[bool]) -> list[bytes]:
    array = _column(batch, "properties_raw")
    raw: list[bytes | None] = _strings(array) if array is not None else [None] * batch.num_rows
    lacking = [place for place, block in enumerate(raw) if block is None]
    if not lacking:
        return [block for block in raw if block is not None]
    made = _made_blocks(batch, persistent, lacking)
    return [made[place] if block is None else block for place, block in enumerate(raw)]


def _made_blocks(batch: Any, persistent: list[bool], places: list[int]) -> dict[int, bytes]:
    """Property blocks made of the columns of single properties, for the rows at `places`."""
    nothing: list[bytes | None] = [None] * batch.num_rows
    texts = [
        nothing if (array := _column(batch, name)) is None else _strings(array)
        for name in (*_TEXTS, "headers_raw")
    ]
    numbers: list[list[int | None]] = []
    for name, unit in (("priority", pa.int64()), ("timestamp", pa.timestamp("s", tz="UTC"))):
        array = _column(batch, name)
        if array is None:
            numbers.append([None] * batch.num_rows)
        else:
            numbers.append(array.cast(unit, safe=False).cast(pa.int64()).to_pylist())
    known: dict[tuple[object, ...], bytes] = {}
    made: dict[int, bytes] = {}
    for place in places:
        values = tuple(column[place] for column in texts)
        priority, timestamp = numbers[0][place], numbers[1][place]
        key = (persistent[place], priority, timestamp, *values)
        block = known.get(key)
        if block is None:
            properties = Properties(
                headers=values[-1],
                delivery_mode=DELIVERY_MODE_PERSISTENT if persistent[place] else None,
                priority=priority,
                timestamp=timestamp,
            )
            for name, value in zip(_TEXTS, values, strict=False):
                setattr(properties, name, value)
            block = known[key] = properties.encode()
        made[place] = block
    return made
