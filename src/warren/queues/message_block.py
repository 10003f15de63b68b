"""A block: messages in columns, the form in which they travel in bulk.

A reader that wants a million messages must not pay for a million objects. Here each property of the messages lies
together, so that numpy and Arrow take it as it is; bodies lie end to end with an array of offsets, which is Arrow's own
layout for binary columns. Decoded by spark/arrow_batches.py. All integers are little-endian.

    offset  size        content
    0       4           magic "WMB1" (a changed layout gets a new one)
    4       u32         bit 0: bodies are present
    8       u32         count of messages
    12      u32 x 3     bytes of the exchange, routing key and properties heaps
    24      u64         bytes of the body heap
    32      i64 x count seq ids
            i64 x count times of arrival, milliseconds since 1970
            i64 x count times of expiry, milliseconds since 1970, 0 = never
            i32 x count body sizes (also when bodies are absent)
            i32 x (count + 1)  for each heap: where each message's part begins; bodies only when present
            u8 x count  bit 0: redelivered, bit 1: persistent
            the heaps: exchange names, routing keys, properties (raw, from the flag word on), bodies
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from warren.queues.entry import Entry

MAGIC: Final = b"WMB1"
HEADER_BYTES: Final = 32
HAS_BODIES: Final = 1
IS_REDELIVERED: Final = 1
IS_PERSISTENT: Final = 2


def encode_block(entries: list[Entry], with_bodies: bool) -> bytes:
    """`entries` as a block. Their content together must stay below 2 GiB (offsets are 32 bit)."""
    exchanges = [entry.message.exchange() for entry in entries]
    routing_keys = [entry.message.routing_key() for entry in entries]
    properties = [entry.message.properties for entry in entries]
    bodies = [entry.message.body for entry in entries]
    columns = BytesWriter()
    for entry in entries:
        write_i64_le(columns, entry.seq)
    for entry in entries:
        write_i64_le(columns, entry.message.timestamp_ms)
    for entry in entries:
        write_i64_le(columns, entry.expiry_ms)
    for body in bodies:
        write_i32_le(columns, i32(len(body)))
    exchange_bytes = _write_offsets(columns, exchanges)
    routing_key_bytes = _write_offsets(columns, routing_keys)
    properties_bytes = _write_offsets(columns, properties)
    body_bytes: i64 = 0
    if with_bodies:
        body_bytes = _write_offsets(columns, bodies)
    else:
        bodies = []
    for entry in entries:
        flags: i64 = IS_REDELIVERED if entry.redelivered else 0
        if entry.message.persistent:
            flags |= IS_PERSISTENT
        columns.append(flags)
    header = BytesWriter()
    header.write(MAGIC)
    write_i32_le(header, HAS_BODIES if with_bodies else 0)
    write_i32_le(header, i32(len(entries)))
    write_i32_le(header, i32(exchange_bytes))
    write_i32_le(header, i32(routing_key_bytes))
    write_i32_le(header, i32(properties_bytes))
    write_i64_le(header, body_bytes)
    parts = [header.getvalue(), columns.getvalue()]
    parts.extend(exchanges)
    parts.extend(routing_keys)
    parts.extend(properties)
    parts.extend(bodies)
    return b"".join(parts)


def _write_offsets(columns: BytesWriter, parts: list[bytes]) -> i64:
    """Where each part begins in its heap, and behind the last one its end, which is returned."""
    offset: i64 = 0
    write_i32_le(columns, 0)
    for part in parts:
        offset += len(part)
        write_i32_le(columns, i32(offset))
    return offset
