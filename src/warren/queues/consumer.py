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
        # Where it waits: for a message in its queue's circle, for room it shares in a rotation. None: its own prefetch is full.
        self.waits_in: WaitingConsumers | None = None
        self.is_cancelled: bool = False

    def can_take(self) -> bool:
        """May it be given one more message now?"""
        raise RuntimeError("abstract")

    def wait_for_room(self) -> None:
        """Wait elsewhere for room: called when the consumer has left the circle because it cannot take more."""

    def stop_waiting(self) -> None:
        """Leave the circle or rotation, on a cancel."""
        place = self.waits_in
        if place is not None:
            place.remove(self)

    def deliver(self, entry: Entry) -> None:
        """Send it `entry`. The queue has counted the entry as unacked (or settled it, for no-ack) already."""
        raise RuntimeError("abstract")

    def on_queue_deleted(self) -> None:
        """The queue is gone: tell the client (consumer cancel notification)."""
        raise RuntimeError("abstract")


class WaitingConsumers:
    """Consumers that wait: highest priority first, first come first served among equals (9.1).

    A consumer waits in one such place at a time, its `waits_in`.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[i64, deque[Consumer]]] = []

    def is_empty(self) -> bool:
        """Does nobody wait?"""
        for level in self._levels:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if len(level[1]) > 0:
                return False
        return True

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait at the end of its priority."""
        consumer.waits_in = self
        for level in self._levels:
            if level[0] == consumer.priority:
                level[1].append(consumer)
                return
        self._add_level(consumer)

    def remove(self, consumer: Consumer) -> None:
        """`consumer`, which waits here, waits no longer."""
        consumer.waits_in = None
        for priority, waiting in self._levels:
            if priority == consumer.priority:
                waiting.remove(consumer)

    def take(self) -> Consumer | None:
        """Remove and return the consumer that is first; None when nobody waits."""
        for level in self._levels:
            waiting = level[1]
            if len(waiting) > 0:
                consumer = waiting.popleft()
                consumer.waits_in = None
                return consumer
        return None

    def _add_level(self, consumer: Consumer) -> None:
        # Clients choose priorities: levels nobody waits in must not pile up.
        self._levels = [level for level in self._levels if len(level[1]) > 0]
        place = 0
        for level in self._levels:
            if level[0] < consumer.priority:
                break
            place += 1
        self._levels.insert(place, (consumer.priority, deque([consumer])))


class ConsumerCircle(WaitingConsumers):
    """Consumers of one queue that wait for messages, round robin among those of the same priority.

    A consumer that cannot take more leaves the circle and comes back at the end.
    """

    def next_ready(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end of its circle; None when nobody can take a message."""
        for level in self._levels:
            waiting = level[1]
            consumer = _first_taker(waiting)
            if consumer is not None:
                if len(waiting) > 1:
                    waiting.rotate(-1)
                return consumer
        return None

    def has_ready(self) -> bool:
        """Can any consumer take a message? Nobody's turn passes by that, but whoever cannot leaves the circle."""
        for level in self._levels:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if _first_taker(level[1]) is not None:
                return True
        return False


def _first_taker(waiting: deque[Consumer]) -> Consumer | None:
    """The first consumer that can take a message; those before it leave, and wait for room instead."""
    while len(waiting) > 0:
        consumer = waiting[0]
        if consumer.can_take():
            return consumer
        waiting.popleft()
        consumer.waits_in = None
        consumer.wait_for_room()
    return None
