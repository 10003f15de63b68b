"""Blocks to Arrow: the columns of a record batch from the columns of a block (queues/message_block.py).

Fixed columns and bodies are taken over as arrays, without a Python object per message; a body column refers to the
bytes that came from the socket; properties are the business of tables/columns.py. Knows nothing of Spark: bytes and an Arrow schema in, record batches out.
"""

import struct
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warren.queues.message_block import (
    HAS_BODIES,
    HEADER_BYTES,
    IS_PERSISTENT,
    IS_REDELIVERED,
    MAGIC,
)
from warren.tables.columns import as_strings, property_columns, timestamps

_HEADER: Final = struct.Struct("<4sIIIIIQ")


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
        return as_strings(self.as_binary())


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
        from_properties = property_columns(block.properties.as_binary(), self._schema)
        arrays = []
        for column in self._schema:
            if column.name in from_properties:
                arrays.append(from_properties[column.name])
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
                return timestamps(block.enqueued_ms)
            case "expires_at":
                return timestamps(block.expires_ms, block.expires_ms == 0)
            case "redelivered":
                return pa.array((block.flags & IS_REDELIVERED) != 0)
            case "persistent":
                return pa.array((block.flags & IS_PERSISTENT) != 0)
            case "size":
                return pa.array(block.sizes)
            case "body" if block.bodies is not None:
                return block.bodies.as_binary()
        raise ValueError(f"no column '{name}' in a block")
