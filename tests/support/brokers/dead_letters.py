"""Declares queues on an in-memory node that dead-letter what is rejected to the queue `dead`."""

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.memory_node import MemoryNode
from warrenmq.queues.settings import DeadLetterRule, QueueSettings

TO_DEAD = QueueSettings(dead_letters=DeadLetterRule(b"", b"dead"))


def declare_with_dead_letters(node: MemoryNode, name: bytes) -> None:
    """Declare the queue, and `dead` for its dead letters."""
    node.declare(b"dead")
    arguments = table(**{"x-dead-letter-exchange": b"", "x-dead-letter-routing-key": b"dead"})
    node.declare(name, settings=TO_DEAD, arguments=arguments)


def take_dead_letters(node: MemoryNode) -> list[tuple[bytes, bool]]:
    """The body of each dead letter, and whether it died because it was rejected."""
    queue = node.vhost.queues[b"dead"]
    found = []
    while (entry := queue.get(True, node.clock.now_ms())) is not None:
        found.append((entry.message.body, b"rejected" in entry.message.properties))
    return found
