"""Queues of nodes that have died, at a node that goes on."""

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.cluster.queue_ends import QueueEnds
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.settings import QueueSettings


def test_transient_queues_that_come_after_the_death_of_their_node_go() -> None:
    """A durable queue waits for its node, and one of a running node stays."""
    node = MemoryNode(MemoryDisk())
    ends = QueueEnds("n1", node.broker, node.clock.now_ms)

    def add(name: bytes, home: bytes, durable: bool = False) -> None:
        definition = QueueDefinition(name, 0, durable, False, None, b"", QueueSettings())
        ends.add(node.vhost, definition, home)

    def swept() -> set[bytes]:
        ends.sweep({"n1", "n2"})
        return set(node.vhost.remote_queues)

    assert swept() == set()
    add(b"lost", b"n3")
    add(b"kept", b"n3", durable=True)
    add(b"used", b"n2")
    # It looks every two seconds.
    assert swept() == {b"lost", b"kept", b"used"}
    node.clock.advance(2000)
    assert swept() == {b"kept", b"used"}
