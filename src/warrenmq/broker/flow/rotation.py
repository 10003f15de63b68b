"""The order in which consumers are served that wait for shared room.

Shared room is a channel's prefetch or a connection's output. Queues take turns, because consumers
of different queues must not depend on the order in which they were started. Among the consumers of
one queue the highest priority comes first, then the longest wait (protocol 9.1). A turn costs the
same whatever the number of consumers.
"""

from collections import OrderedDict

from mypy_extensions import i64

from warrenmq.queues.backing.waiting_consumers import WaitingConsumers
from warrenmq.queues.entry import Consumer, QueueEnd


class Rotation:
    """Waiting consumers; `count` is their number. A served consumer that waits again is last."""

    def __init__(self) -> None:
        self.count: i64 = 0
        # Waiting consumers by queue, in order of service; a queue is a key while a consumer of it
        # waits. None before the first one: each connection and each channel has a rotation.
        self._by_queue: OrderedDict[QueueEnd, _QueueConsumers] | None = None

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait; its queue comes last if no other consumer of the queue waits."""
        by_queue = self._by_queue
        if by_queue is None:
            by_queue = OrderedDict()
            self._by_queue = by_queue
        waiting = by_queue.get(consumer.queue)
        if waiting is None:
            waiting = _QueueConsumers(self)
            by_queue[consumer.queue] = waiting
        waiting.add(consumer)
        self.count += 1

    def take(self) -> Consumer | None:
        """Remove and return the next consumer, and move its queue last; None if none waits."""
        by_queue = self._by_queue
        if by_queue is None or len(by_queue) == 0:
            return None
        queue, waiting = by_queue.popitem(last=False)
        consumer = waiting.take()
        if not waiting.is_empty():
            by_queue[queue] = waiting
        self.count -= 1
        return consumer

    def take_fair(self, room: i64) -> Consumer | None:
        """Take a consumer; one with more than its even share of `room` lets one pass.

        The consumer's share is `room` divided by the number of waiting consumers, itself included.
        """
        consumer = self.take()
        if (
            consumer is not None
            and self.count > 0
            and consumer.unacked_count * (self.count + 1) > room
        ):
            self.add(consumer)
            consumer = self.take()
        return consumer

    def on_removed(self, consumer: Consumer, is_last: bool) -> None:
        """Forget the cancelled `consumer`; `is_last`: no other consumer of its queue waits here."""
        self.count -= 1
        if is_last and self._by_queue is not None:
            self._by_queue.pop(consumer.queue, None)


class _QueueConsumers(WaitingConsumers):
    """The consumers of one queue in a rotation."""

    def __init__(self, rotation: Rotation) -> None:
        super().__init__()
        self._rotation: Rotation = rotation

    def remove(self, consumer: Consumer) -> None:
        """See `WaitingConsumers`.

        A cancelled consumer must not keep its queue in the rotation, and so in memory.
        """
        super().remove(consumer)
        self._rotation.on_removed(consumer, self.is_empty())
