"""Messages as clients of a sink stage them, and helpers for the node that publishes them."""

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from warrenmq.admin.protocol.sinks import (
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
    """One message of a `StageMessages` block."""
    address = bytes([len(exchange)]) + exchange + bytes([len(routing_key)]) + routing_key
    record = bytes(4 + 8 + 1) + address + len(properties).to_bytes(4, "big") + properties
    record += len(body).to_bytes(4, "big") + body
    return len(record).to_bytes(4, "big") + record


def stage(
    client: MemoryClient, sink: str, batch: int, messages: list[bytes], queue: bytes = b""
) -> int:
    """Stage `messages` (of `staged_message`) and finish the log; returns its id.

    A `queue` that is not empty gets all of the messages.
    """
    opened = client.must(OpenStage(sink, batch, queue))
    assert isinstance(opened, StageOpened)
    if messages:
        client.must(StageMessages(opened.stage, memoryview(b"".join(messages))))
    finished = client.must(FinishStage(opened.stage, len(messages)))
    assert isinstance(finished, StageFinished)
    return opened.stage


def started() -> tuple[MemoryNode, MemoryClient]:
    """A node with the durable queue q, and a client."""
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return node, MemoryClient(node)


def bodies(node: MemoryNode, queue: bytes = b"q") -> list[bytes]:
    """Bodies of all messages in the queue, taken out in memory only."""
    target = node.vhost.queues[queue]
    found = []
    while True:
        entry = target.get(False, node.clock.now_ms())
        if entry is not None:
            found.append(entry.message.body)
        elif target.ready_count == 0:
            return found
        else:
            target.when_head(lambda _now_ms: None)
            node.work()


def settle(node: MemoryNode) -> None:
    """Run the node until all its work is done."""
    for _ in range(20):
        node.work()
        node.commit()
