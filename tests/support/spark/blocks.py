"""A second reader of blocks, from the description of the format, to check the numpy reader."""

import struct
from dataclasses import dataclass

from crc32c import crc32c

PUBLISH = 1
PUBLISH_HEAD = 16


@dataclass(frozen=True)
class BlockMessage:
    """One message of a block."""

    queue_id: int
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
    """Decode all messages of `block`; AssertionError on a wrong checksum."""
    data = bytes(block)
    magic, version, store_id, number, crc = struct.unpack_from(">8sI16sQI", data)
    assert (magic, version) == (b"WARRENIX", 3)
    assert crc == crc32c(data[:36])
    seed = crc32c(number.to_bytes(8, "big"), crc32c(store_id))
    at = 40
    found = []
    while at < len(data):
        mark, kind, record_version, length, head_crc, body_crc = struct.unpack_from(
            ">HBBIII", data, at
        )
        assert (mark, record_version) == (0x5752, 1)
        assert head_crc == crc32c(data[at : at + 8], seed)
        body = data[at + 16 : at + 16 + length]
        assert len(body) == length and body_crc == crc32c(body, head_crc)
        found.append(_message(kind, body))
        at += 16 + length
    return found


def _message(kind: int, data: bytes) -> BlockMessage:
    count, queue_id, seq, expiry_ms, marks = struct.unpack_from(">IIQQB", data)
    assert count == 1
    arrived_ms, flags = struct.unpack_from(">QB", data, 25)
    at = 34
    texts = []
    for _ in range(2):
        texts.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    (size,) = struct.unpack_from(">I", data, at)
    properties = data[at + 4 : at + 4 + size]
    at += 4 + size
    (size,) = struct.unpack_from(">I", data, at)
    at += 4
    assert len(data) == (at + size if kind == PUBLISH else at) and kind in (PUBLISH, PUBLISH_HEAD)
    return BlockMessage(
        queue_id,
        seq,
        arrived_ms,
        expiry_ms,
        size,
        bool(marks & 1),
        bool(flags & 1),
        texts[0],
        texts[1],
        properties,
        data[at:] if kind == PUBLISH else None,
    )
