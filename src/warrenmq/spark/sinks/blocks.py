"""Turns record batches into blocks of messages for staging (`StageMessages` of the admin protocol).

Everything goes from Arrow's buffers into the block, without a Python object for a row.
"""

from collections.abc import Iterator
from typing import Any, Final

from warrenmq.admin.protocol.requests import STAGE_BYTES
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.columns import SINK_COLUMNS, MessageMaker

# Bytes of bodies that are made into blocks at a time.
_PIECE_BYTES: Final = 64 * 1024 * 1024
# No positions, no timestamp, no flags: the node fills them in.
_HEAD: Final = bytes(4 + 8 + 1)


class BlockMaker:
    """Makes blocks for one sink; `exchange` and `routing_key` are None where the columns decide."""

    def __init__(self, exchange: str | None, routing_key: str | None, is_persistent: bool) -> None:
        self._maker = MessageMaker(exchange, routing_key)
        self._is_persistent = is_persistent
        # True: the options give every message the same exchange and routing key.
        self._is_fixed = exchange is not None and routing_key is not None

    def blocks(self, batch: Any) -> Iterator[tuple[int, memoryview]]:
        """The messages of `batch`, a pyarrow RecordBatch, as (message count, block) pairs in order.

        Raises SourceError when a row cannot become a message.
        """
        if batch.num_rows == 0:
            return
        if batch.num_rows > 1 and batch.column("body").nbytes > _PIECE_BYTES:
            half = batch.num_rows // 2
            yield from self.blocks(batch.slice(0, half))
            yield from self.blocks(batch.slice(half))
            return
        yield from _cut(self._messages(batch))

    def _messages(self, batch: Any) -> Any:
        """A binary array of the messages, each encoded as in a block."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from warrenmq.tables.property_blocks import big_endian

        body = batch.column("body")
        if body.null_count:
            raise SourceError("a row cannot be written as a message: column 'body' has nulls")
        body = body.cast(pa.binary())
        count = batch.num_rows
        names = [name for name in batch.schema.names if name in SINK_COLUMNS and name != "body"]
        is_same = self._is_fixed and not [
            name for name in names if name not in ("exchange", "routing_key")
        ]
        # When all rows have the same addresses and properties, those are made for one row.
        rows = 1 if is_same else count
        rest = {name: batch.column(name).slice(0, rows) for name in names}
        persistent = pa.repeat(pa.scalar(self._is_persistent), rows)
        if "persistent" in rest:
            persistent = pc.coalesce(rest["persistent"], persistent)
        rest["persistent"] = persistent
        addresses, properties = self._maker.heads(pa.RecordBatch.from_pydict(rest))
        if is_same:
            addresses = pa.repeat(addresses[0], count)
            properties = pa.repeat(properties[0], count)
        property_bytes = pc.binary_length(properties).to_numpy(zero_copy_only=False)
        body_bytes = pc.binary_length(body).to_numpy(zero_copy_only=False)
        sizes = len(_HEAD) + 8 + property_bytes + body_bytes
        sizes = sizes + pc.binary_length(addresses).to_numpy(zero_copy_only=False)
        return pc.binary_join_element_wise(
            big_endian(sizes, ">u4"),
            pa.scalar(_HEAD, pa.binary()),
            addresses,
            big_endian(property_bytes, ">u4"),
            properties,
            big_endian(body_bytes, ">u4"),
            body,
            pa.scalar(b"", pa.binary()),
        )


def _cut(messages: Any) -> Iterator[tuple[int, memoryview]]:
    """Cut the messages into blocks of at most STAGE_BYTES; a larger message has its own block."""
    import numpy as np

    _, offset_buffer, data_buffer = messages.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[
        messages.offset : messages.offset + len(messages) + 1
    ]
    data = memoryview(data_buffer)
    first = 0
    while first < len(messages):
        limit = int(offsets[first]) + STAGE_BYTES
        last = max(int(np.searchsorted(offsets, limit, side="right")) - 1, first + 1)
        yield last - first, data[int(offsets[first]) : int(offsets[last])]
        first = last
