"""Messages as clients of a sink stage them, and what a node makes of them."""

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from warrenmq.admin.sink_protocol import (
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


def stage(
    client: MemoryClient, sink: str, batch: int, messages: list[bytes], queue: bytes = b""
) -> int:
    """A finished staging log with `messages` (of `staged_message`), all for `queue` if that is not empty; its id."""
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
    """Everything in the queue, which is emptied in memory only."""
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
    """Let everything come to rest that is under way."""
    for _ in range(20):
        node.work()
        node.commit()
