"""The order in which waiting consumers are served."""

from __future__ import annotations

from collections import deque

from mypy_extensions import i64

from warrenmq.queues.entry import Consumer, WaitingPlace


class WaitingConsumers(WaitingPlace):
    """Waiting consumers: highest priority first, first come first served within one (protocol 9.1).

    A consumer waits in at most one such place, its `waits_in`.
    """

    def __init__(self) -> None:
        self._levels: list[tuple[i64, deque[Consumer]]] = []

    def is_empty(self) -> bool:
        """Whether no consumer waits."""
        for level in self._levels:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if len(level[1]) > 0:
                return False
        return True

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait, last among those of its priority."""
        consumer.waits_in = self
        for level in self._levels:
            if level[0] == consumer.priority:
                level[1].append(consumer)
                return
        self._add_level(consumer)

    def remove(self, consumer: Consumer) -> None:
        consumer.waits_in = None
        for priority, waiting in self._levels:
            if priority == consumer.priority:
                waiting.remove(consumer)

    def take(self) -> Consumer | None:
        """Remove and return the first consumer; None when no consumer waits."""
        for level in self._levels:
            waiting = level[1]
            if len(waiting) > 0:
                consumer = waiting.popleft()
                consumer.waits_in = None
                return consumer
        return None

    def _add_level(self, consumer: Consumer) -> None:
        # Drop empty levels: clients choose priorities, and levels must not pile up.
        self._levels = [level for level in self._levels if len(level[1]) > 0]
        place = 0
        for level in self._levels:
            if level[0] < consumer.priority:
                break
            place += 1
        self._levels.insert(place, (consumer.priority, deque([consumer])))


class ConsumerCircle(WaitingConsumers):
    """Consumers of one queue that wait for messages, round robin within a priority.

    A consumer that cannot take more leaves the circle and comes back at the end.
    """

    def next_ready(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end of its circle; None: no one has room."""
        for level in self._levels:
            waiting = level[1]
            while len(waiting) > 0:
                consumer = waiting[0]
                if consumer.can_take():
                    if len(waiting) > 1:
                        waiting.rotate(-1)
                    return consumer
                _send_away(waiting)
        return None

    def has_ready(self) -> bool:
        """Whether any consumer can take a message.

        No consumer loses its turn by this, but a consumer that cannot take a message leaves the
        circle.
        """
        for level in self._levels:
            waiting = level[1]
            while len(waiting) > 0:
                if waiting[0].can_take():
                    return True
                _send_away(waiting)
        return False


def _send_away(waiting: deque[Consumer]) -> None:
    """Remove the first consumer, which cannot take a message, and let it wait for room."""
    consumer = waiting.popleft()
    consumer.waits_in = None
    consumer.wait_for_room()
