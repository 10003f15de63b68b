"""A queue that is gone in memory is gone after a restart too, also if the disk fails meanwhile."""

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.store.journal.change_sets import RETRY_MS


def test_a_deletion_that_nobody_waits_for_is_retried_until_it_is_stored() -> None:
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    node.vhost.delete_queue(queue, node.clock.now_ms())
    node.commit(ok=False)
    assert list(node.disk.queues) == [queue.id]
    node.clock.advance(RETRY_MS)
    node.commit()
    assert node.disk.queues == {}
    assert node.crash().vhost.queues == {}
