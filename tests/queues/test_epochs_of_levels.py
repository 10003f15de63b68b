"""The levels of a priority queue are in one epoch, each with a first seq id of its own."""

from tests.support.brokers.memory_node import NO_EXPIRATION, MemoryDisk, MemoryNode
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.store.model.message import Message


def test_each_level_begins_the_epoch_and_a_new_one_joins_it() -> None:
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"p", settings=QueueSettings(traits=QueueTraits(max_priority=3)))
    now_ms = node.clock.now_ms()

    def publish(priority: int) -> None:
        message = Message(b"\x00\x01p", b"\x00\x00", b"x", True, now_ms)
        queue.publish(message, NO_EXPIRATION, now_ms, priority=priority)

    publish(0)
    publish(0)
    publish(1)
    assert queue.begin_epoch(3) and queue.epoch == 3
    assert not queue.begin_epoch(3) and not queue.begin_epoch(2)
    publish(2)
    assert queue.begin_epoch(4)
    epochs = [level.ledger.epochs for level in reversed(queue.backings())]
    assert epochs == [[(4, 3)], [(4, 2)], [(3, 1), (4, 2)]]
