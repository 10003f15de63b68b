"""A second reader of the block format, from its description alone: the check on the one that numpy does."""

import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class BlockMessage:
    """One message of a block."""

    seq: int
    enqueued_ms: int
    expires_ms: int
    size: int
    redelivered: bool
    persistent: bool
    exchange: bytes
    routing_key: bytes
    properties: bytes
    body: bytes | None


def read_block(block: bytes | memoryview) -> list[BlockMessage]:
    """The messages of `block`."""
    data = bytes(block)
    magic, flags, count, *heap_bytes = struct.unpack_from("<4sIIIIIQ", data)
    assert magic == b"WMB1"
    at = 32

    def take(code: str, number: int) -> tuple[int, ...]:
        nonlocal at
        values = struct.unpack_from(f"<{number}{code}", data, at)
        at += struct.calcsize(f"<{number}{code}")
        return values

    seqs, enqueued, expires, sizes = take("q", count), take("q", count), take("q", count), take("i", count)
    has_bodies = flags & 1
    offsets = [take("i", count + 1) for _ in range(4 if has_bodies else 3)]
    marks = take("B", count)
    heaps: list[list[bytes]] = []
    for ends, size in zip(offsets, heap_bytes, strict=False):
        assert ends[-1] == size
        heaps.append([data[at + ends[i] : at + ends[i + 1]] for i in range(count)])
        at += size
    assert at == len(data)
    bodies: list[bytes] | list[None] = heaps[3] if has_bodies else [None] * count
    return [
        BlockMessage(
            seqs[i],
            enqueued[i],
            expires[i],
            sizes[i],
            bool(marks[i] & 1),
            bool(marks[i] & 2),
            heaps[0][i],
            heaps[1][i],
            heaps[2][i],
            bodies[i],
        )
        for i in range(count)
    ]
