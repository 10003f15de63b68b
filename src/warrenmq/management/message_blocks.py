"""The messages in a block (queues/readers/record_block.py), as objects of the HTTP API."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FLAG_REDELIVERED,
    RECORD_HEADER_BYTES,
    crc_seed,
    file_header_number,
    read_u64,
    record_length,
)
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.field_table import decode_table, to_python
from warrenmq.wire.properties import decode_properties

_NAMES = (
    "content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
_STORE_ID = slice(12, 28)
# Offsets in the body of a record with one position: behind the count and the id of the queue, and
# behind the seq id and the expiry.
_SEQ_OFFSET = 8
_FLAGS_OFFSET = 24


@dataclass(frozen=True)
class PeekedMessage:
    """A message where it waits: `seq` is its position, `enqueued_ms` counts from 1970."""

    seq: int
    is_redelivered: bool
    enqueued_ms: int
    exchange: str
    routing_key: str
    properties: dict[str, Any]
    body: bytes


def messages_of(block: bytes) -> Iterator[PeekedMessage]:
    """The messages of a block that a node has just made."""
    seed = crc_seed(block[_STORE_ID], file_header_number(block))
    start = FILE_HEADER_BYTES
    while start < len(block):
        length = record_length(block, start, seed)
        assert length > 0
        yield _message(block, start + RECORD_HEADER_BYTES, start + length)
        start += length


def _message(block: bytes, start: int, end: int) -> PeekedMessage:
    message = decode_message(block, start, end)
    assert message is not None
    address = message.address
    key_at = 1 + address[0]
    return PeekedMessage(
        read_u64(block, start + _SEQ_OFFSET),
        bool(block[start + _FLAGS_OFFSET] & FLAG_REDELIVERED),
        message.timestamp_ms,
        name_text(address[1:key_at]),
        name_text(address[key_at + 1 :]),
        _properties(message.properties),
        message.body,
    )


def _properties(raw: bytes) -> dict[str, Any]:
    decoded = decode_properties(raw)
    # The compiled class has no `__dict__`.
    every = {name: getattr(decoded, name) for name in _NAMES}
    values: dict[str, Any] = {name: value for name, value in every.items() if value is not None}
    if decoded.headers is not None:
        values["headers"] = to_python(decode_table(decoded.headers))
    return values
