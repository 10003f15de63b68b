"""Messages as clients of a sink stage them."""

from tests.support.memory_node import MemoryClient
from warren.admin.sink_protocol import (
    FinishStage,
    OpenStage,
    StageFinished,
    StageMessages,
    StageOpened,
)

PERSISTENT = b"\x10\x00\x02"
TRANSIENT = b"\x10\x00\x01"


def staged_message(
    body: bytes, routing_key: bytes = b"q", exchange: bytes = b"", properties: bytes = PERSISTENT
) -> bytes:
    """One message of a block."""
    address = bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
    record = bytes(4 + 8 + 1) + address + len(properties).to_bytes(4, "big") + properties
    record += len(body).to_bytes(4, "big") + body
    return len(record).to_bytes(4, "big") + record


def stage(client: MemoryClient, sink: str, batch: int, messages: list[bytes], queue: bytes = b"") -> int:
    """A finished staging log with `messages` (of `staged_message`), all for `queue` if that is not empty; its id."""
    opened = client.must(OpenStage(sink, batch, queue))
    assert isinstance(opened, StageOpened)
    if messages:
        client.must(StageMessages(opened.stage, memoryview(b"".join(messages))))
    finished = client.must(FinishStage(opened.stage, len(messages)))
    assert isinstance(finished, StageFinished)
    return opened.stage
