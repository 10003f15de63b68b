"""T56: thousands of messages expire together, in memory and on disk, and restarts find the rest."""

import pytest

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

COUNT = 5_000
NEVER = -1


def publish(node: MemoryNode, count: int, expiration_ms: int) -> None:
    queue = node.vhost.queues[b"q"]
    now_ms = node.clock.now_ms()
    for _ in range(count):
        body = b"%d" % queue.next_seq
        queue.publish(Message(b"\x00\x01q", b"\x00\x00", body, True, now_ms), expiration_ms, now_ms)


def settled(node: MemoryNode) -> Queue:
    """The queue after enough turns to do all due work, a slice a turn."""
    for _ in range(50):
        node.broker.tick(node.clock.now_ms())
        node.work()
    node.commit()
    return node.vhost.queues[b"q"]


def stopped(node: MemoryNode) -> None:
    """Stop in an orderly way: the last record of the journal is the mark of a clean stop."""
    node.vhost.journal.request_clean_stop()
    assert node.driver.flush(node.vhost.journal.seal(), node.clock.now_ms()) is None


@pytest.mark.parametrize("is_paged", [False, True])
def test_what_has_expired_is_gone_and_the_rest_is_counted(is_paged: bool) -> None:
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    publish(node, COUNT, 1_000)
    publish(node, COUNT, 60_000)
    publish(node, 10, NEVER)
    node.commit()
    if is_paged:
        queue.backing.memory.set_mode(True)
        assert settled(node).backing.memory.ram_count == 0
    assert settled(node).ready_count == 2 * COUNT + 10
    node.clock.time_ms += 1_001
    assert settled(node).ready_count == COUNT + 10

    stopped(node)
    node = MemoryNode(node.disk, node.clock)
    assert settled(node).ready_count == COUNT + 10
    node = node.crash()
    assert settled(node).ready_count == COUNT + 10

    # The second COUNT messages expire while the node is down.
    node.clock.time_ms += 60_000
    node = node.crash()
    assert settled(node).ready_count == 10
    node = node.crash()
    queue = settled(node)
    assert queue.ready_count == 10
    first = queue.get(True, node.clock.now_ms())
    assert first is not None
    assert first.message.body == b"%d" % (2 * COUNT + 1)
