"""A consumer, as its queue sees it, and the order in which consumers are served."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64, mypyc_attr

from warren.queues.entry import Entry

if TYPE_CHECKING:
    from warren.queues.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer:
    """One basic.consume. `prefetch_count` 0 = no limit; the channel's own limits are in `can_take`."""

    def __init__(
        self, queue: Queue, tag: bytes, no_ack: bool, exclusive: bool, priority: i64, prefetch_count: i64
    ) -> None:
        self.queue: Queue = queue
        self.tag: bytes = tag
        self.no_ack: bool = no_ack
        self.exclusive: bool = exclusive
        self.priority: i64 = priority
        self.prefetch_count: i64 = prefetch_count
        self.unacked_count: i64 = 0
        # Is it in its queue's circle, or has it left because it could not take more?
        self.is_waiting: bool = False
        self.is_cancelled: bool = False

    def can_take(self) -> bool:
        """May it be given one more message now?"""
        raise RuntimeError("abstract")

    def deliver(self, entry: Entry) -> None:
        """Send it `entry`. The queue has counted the entry as unacked (or settled it, for no-ack) already."""
        raise RuntimeError("abstract")

    def on_queue_deleted(self) -> None:
        """The queue is gone: tell the client (consumer cancel notification)."""
        raise RuntimeError("abstract")


class ConsumerCircle:
    """Consumers of one queue that wait for messages: highest priority first, round robin among equals (9.1).

    A consumer that cannot take more leaves the circle and comes back at the end.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[i64, deque[Consumer]]] = []

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait at the end of its priority."""
        consumer.is_waiting = True
        place = 0
        for priority, waiting in self._levels:
            if priority == consumer.priority:
                waiting.append(consumer)
                return
            if priority < consumer.priority:
                break
            place += 1
        self._levels.insert(place, (consumer.priority, deque([consumer])))

    def remove(self, consumer: Consumer) -> None:
        """The consumer is cancelled."""
        if consumer.is_waiting:
            consumer.is_waiting = False
            for priority, waiting in self._levels:
                if priority == consumer.priority:
                    waiting.remove(consumer)
        # Clients choose priorities: levels nobody waits in must not pile up.
        self._levels = [level for level in self._levels if len(level[1]) > 0]

    def next_ready(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end of its circle; None when nobody can take a message."""
        for level in self._levels:
            waiting = level[1]
            while len(waiting) > 0:
                consumer = waiting[0]
                if consumer.can_take():
                    if len(waiting) > 1:
                        waiting.rotate(-1)
                    return consumer
                waiting.popleft()
                consumer.is_waiting = False
        return None

    def has_ready(self) -> bool:
        """Can any of those that wait take a message? Nobody's turn passes by that."""
        for level in self._levels:
            for consumer in level[1]:
                if consumer.can_take():
                    return True
        return False
