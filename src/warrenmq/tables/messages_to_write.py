"""Turns record batches with the columns of the source "warren" into messages for a new store.

`offline/part_writer.py` writes these messages. The column `body` is required. The property block is
`properties_raw`; where that is null or missing, it is made of the columns of single properties and
of `headers_raw`. A block made of columns has delivery-mode 2 or none, and no cluster-id, because no
column has other values. Names may be binary or strings; names that are not UTF-8 are in
`exchange_raw` and `routing_key_raw`.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from warrenmq.offline.part_writer import MessageColumns
from warrenmq.tables.property_blocks import addresses, property_blocks


def columns_of(batch: Any) -> MessageColumns:
    """The messages of `batch`, a pyarrow RecordBatch, in order; ValueError for unusable columns."""
    count = batch.num_rows
    persistent = _booleans(batch, "persistent", True)
    addresses, properties = heads_of(batch)
    return MessageColumns(
        _integers(batch, "seq", count),
        _strings(addresses),
        _strings(properties),
        _strings(_required(batch, "body")),
        _milliseconds(batch, "enqueued_at", count),
        _milliseconds(batch, "expires_at", count),
        _booleans(batch, "redelivered", False).tolist(),
        persistent.tolist(),
    )


def heads_of(batch: Any) -> tuple[Any, Any]:
    """The addresses and the property blocks of the messages of `batch`, as two binary arrays.

    `batch` needs no column `body` for them. ValueError for unusable columns.
    """
    return (
        addresses(_names(batch, "exchange"), _names(batch, "routing_key")),
        _properties(batch, _booleans(batch, "persistent", True)),
    )


def checksums_of(batch: Any) -> list[int]:
    """The checksum of each message, as in the column `checksum` of a store."""
    found: list[int] = []
    columns = (*heads_of(batch), _required(batch, "body"))
    for address, block, body in zip(*map(_strings, columns), strict=True):
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


def _strings(array: Any) -> list[bytes]:
    """The values of a binary array without nulls, without an Arrow scalar for each."""
    wide = pa.types.is_large_binary(array.type)
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
    found: list[bytes] = []
    start = 0
    for end in ends[1:]:
        found.append(data[start:end])
        start = end
    return found


def _binary(array: Any) -> Any:
    """Binary or string values as a binary array, a large one if `array` is."""
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    return array.cast(pa.large_binary() if wide else pa.binary())


def _required(batch: Any, name: str) -> Any:
    """The column `name` as a binary array; ValueError when it is missing or has nulls."""
    array = _column(batch, name)
    if array is None or array.null_count:
        raise ValueError(f"column '{name}' is missing or has nulls")
    return _binary(array)


def _names(batch: Any, name: str) -> Any:
    """The names in the column `name`; a value of `<name>_raw` that is not null replaces one."""
    names = _required(batch, name).cast(pa.binary())
    raw = _column(batch, f"{name}_raw")
    return names if raw is None else pc.coalesce(raw.cast(pa.binary()), names)


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


def _booleans(batch: Any, name: str, default: bool) -> Any:
    """The values of the column `name` in numpy; `default` for null or without the column."""
    array = _column(batch, name)
    if array is None:
        return np.full(batch.num_rows, default)
    return array.fill_null(default).to_numpy(zero_copy_only=False)


def _properties(batch: Any, persistent: Any) -> Any:
    raw = _column(batch, "properties_raw")
    if raw is not None and raw.null_count == 0:
        return _binary(raw)
    made = property_blocks(batch, persistent)
    return made if raw is None else pc.coalesce(raw.cast(pa.binary()), made)
