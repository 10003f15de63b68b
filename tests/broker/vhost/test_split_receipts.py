"""A queue becomes mirrored while a batch of a sink comes in: its book begins with the node's."""

from __future__ import annotations

import pytest

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.remote.slice_carrier import Delivery
from warrenmq.broker.vhost.sinks.receipt_waits import TakeWaiter
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.store.model.message import Message

SINK = b"sink/1"
COUNT = 3


class _Unheard(TakeWaiter):
    """Nobody hears that messages were taken."""

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        assert failure == ""


def take(node: MemoryNode, *queues: bytes) -> None:
    """Take all messages of the sink for `queues`."""
    now_ms = node.clock.now_ms()
    takers = [node.vhost.queues[queue] for queue in queues]
    deliveries = [
        Delivery(
            position,
            Message(b"\x00\x01q", b"\x00\x00", b"%d" % position, True, now_ms),
            list(takers),
            False,
        )
        for position in range(COUNT)
    ]
    node.vhost.receipts.take(SINK, deliveries, _Unheard(), "", now_ms)


def commit_once(node: MemoryNode) -> None:
    """Make durable what has gathered, and nothing that comes of it."""
    batch = node.vhost.journal.seal()
    node.disk.store(batch.change_sets)
    node.driver.flush(batch, node.clock.now_ms())


def mirrored() -> tuple[MemoryNode, PutQueue]:
    """A node with the queues q and other, and the definition that makes q mirrored."""
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    node.declare(b"other")
    return node, PutQueue(b"/", queue.id, b"q", True, False, b"", group=b"{}")


def hide(node: MemoryNode) -> None:
    """Let q become mirrored: it is a hidden copy until its node leads."""
    queue = node.vhost.queues[b"q"]
    remote = node.vhost.new_remote_queue(queue.definition, b"other@host", 1)
    node.vhost.replace_taker(queue, remote, node.clock.now_ms())


def lead(node: MemoryNode) -> None:
    vhost, now_ms = node.vhost, node.clock.now_ms()
    queue = next(each for each in vhost.queues_by_id.values() if each.name == b"q")
    remote = vhost.remote_queues.get(b"q")
    if remote is None:
        remote = vhost.add_remote_queue(queue.definition, b"other@host", 1)
    RingFeed(queue, lambda: None).begin(1, next_start(queue, 0))
    vhost.replace_taker(remote, queue, now_ms)
    node.commit()


def bodies(node: MemoryNode, queue: bytes) -> list[bytes]:
    entries = node.vhost.queues[queue].backing.peek(0, 100, 1 << 20)
    return [entry.message.body for entry in entries]


ALL = [b"%d" % position for position in range(COUNT)]


def test_messages_that_were_on_their_way_to_the_disk_come_once() -> None:
    """The node dies when they are durable, and what comes of that is not."""
    node, row = mirrored()
    node.vhost.store_changes([row], True)
    take(node, b"q")
    hide(node)
    commit_once(node)
    node = node.crash()
    lead(node)
    take(node, b"q")
    node.commit()
    assert bodies(node, b"q") == ALL


def test_messages_that_were_on_the_disk_come_once() -> None:
    """The node dies before the queue's own book is stored."""
    node, row = mirrored()
    node.vhost.store_changes([row], True)
    take(node, b"q")
    node.commit()
    hide(node)
    node = node.crash()
    lead(node)
    take(node, b"q")
    node.commit()
    assert bodies(node, b"q") == ALL


@pytest.mark.parametrize("is_torn", [False, True])
def test_messages_that_were_lost_on_their_way_come_again(is_torn: bool) -> None:
    node, row = mirrored()
    node.vhost.store_changes([row], True)
    node.commit()
    take(node, b"q")
    hide(node)
    node.commit(ok=False, is_torn=is_torn)
    node = node.crash()
    lead(node)
    take(node, b"q")
    node.commit()
    assert bodies(node, b"q") == ALL


def test_what_only_other_queues_have_got_since_comes() -> None:
    node, row = mirrored()
    node.vhost.store_changes([row], True)
    hide(node)
    lead(node)
    take(node, b"other")
    node.commit()
    node = node.crash()
    lead(node)
    take(node, b"q", b"other")
    node.commit()
    assert (bodies(node, b"q"), bodies(node, b"other")) == (ALL, ALL)
