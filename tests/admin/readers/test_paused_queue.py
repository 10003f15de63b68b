"""A reader group waits at a paused queue for new messages; what it has reserved is its own."""

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from warrenmq.admin.protocol.requests import GroupOpened, OpenGroup, Reply, Reserve, Reserved


def end(reply: Reply) -> int:
    """The end of the reserved range."""
    assert isinstance(reply, Reserved)
    (member,) = reply.members
    return member.end


def test_a_reserve_waits_until_the_queue_is_resumed() -> None:
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    client = MemoryClient(node)
    first = node.publish(b"q", b"0")
    opened = client.must(OpenGroup("g", [b"q"]))
    assert isinstance(opened, GroupOpened)
    request = Reserve("g", opened.epoch, {}, 10, 1 << 20, wait_ms=10_000)
    assert end(client.must(request)) == first + 1
    queue.set_paused(True)
    node.publish(b"q", b"1")
    # The answer to an earlier reserve may have been lost, so its messages come again.
    assert end(client.must(request)) == first + 1
    client.send(Reserve("g", opened.epoch, {queue.id: first + 1}, 10, 1 << 20, wait_ms=10_000))
    for _ in range(100):
        node.commit()
        node.clock.advance(10)
    assert client.replies() == []
    queue.set_paused(False)
    node.work()
    while not client.output:
        node.clock.advance(0)
        node.commit()
    (reply,) = client.replies()
    assert end(reply) == first + 2
