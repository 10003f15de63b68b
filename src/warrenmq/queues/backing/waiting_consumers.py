"""The order in which waiting consumers are served."""

from __future__ import annotations

from collections import deque

from mypy_extensions import i64

from warrenmq.queues.entry import Consumer, WaitingPlace


class _Level:
    """The consumers of one priority that wait for a message; `first` is served before `others`."""

    def __init__(self, first: Consumer) -> None:
        self.priority: i64 = first.priority
        # None: nobody waits. A message asks for the first consumer only: compiled, an attribute
        # costs far less than the end of a deque.
        self.first: Consumer | None = first
        self.others: deque[Consumer] = deque()
        self.has_others: bool = False

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait as the last one."""
        if self.first is None:
            self.first = consumer
        else:
            self.others.append(consumer)
            self.has_others = True

    def drop_first(self) -> None:
        """Make the second consumer the first."""
        self.first = self.others.popleft() if self.has_others else None
        self.has_others = len(self.others) > 0

    def remove(self, consumer: Consumer) -> None:
        """Remove `consumer`, which waits here."""
        if consumer is self.first:
            self.drop_first()
        else:
            self.others.remove(consumer)
            self.has_others = len(self.others) > 0

    def rotate(self) -> None:
        """Let the first consumer, which is there, wait behind the others."""
        first = self.first
        assert first is not None
        self.others.append(first)
        self.first = self.others.popleft()


class WaitingConsumers(WaitingPlace):
    """Waiting consumers: highest priority first, first come first served within one (protocol 9.1).

    A consumer waits in at most one such place, its `waits_in`.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []

    def is_empty(self) -> bool:
        """Whether no consumer waits."""
        for level in self._levels:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if level.first is not None:
                return False
        return True

    def add(self, consumer: Consumer) -> None:
        """Let `consumer` wait, last among those of its priority."""
        consumer.waits_in = self
        for level in self._levels:
            if level.priority == consumer.priority:
                level.add(consumer)
                return
        self._add_level(consumer)

    def remove(self, consumer: Consumer) -> None:
        consumer.waits_in = None
        for level in self._levels:
            if level.priority == consumer.priority:
                level.remove(consumer)

    def take(self) -> Consumer | None:
        """Remove and return the first consumer; None when no consumer waits."""
        for level in self._levels:
            consumer = level.first
            if consumer is not None:
                level.drop_first()
                consumer.waits_in = None
                return consumer
        return None

    def _add_level(self, consumer: Consumer) -> None:
        # Drop empty levels: clients choose priorities, and levels must not pile up.
        self._levels = [level for level in self._levels if level.first is not None]
        place = 0
        for level in self._levels:
            if level.priority < consumer.priority:
                break
            place += 1
        self._levels.insert(place, _Level(consumer))


class ConsumerCircle(WaitingConsumers):
    """Consumers of one queue that wait for messages, round robin within a priority.

    A consumer that cannot take more leaves the circle and comes back at the end.
    """

    def next_ready(self) -> Consumer | None:
        """The consumer whose turn it is, moved to the end of its circle; None: no one has room."""
        for level in self._levels:
            consumer = _ready_first(level)
            if consumer is not None:
                if level.has_others:
                    level.rotate()
                return consumer
        return None

    def has_ready(self) -> bool:
        """Whether any consumer can take a message.

        No consumer loses its turn by this, but a consumer that cannot take a message leaves the
        circle.
        """
        for level in self._levels:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if _ready_first(level) is not None:
                return True
        return False


def _ready_first(level: _Level) -> Consumer | None:
    """The first consumer of a level that can take a message; those before it wait for room."""
    consumer = level.first
    while consumer is not None and not consumer.can_take():
        level.drop_first()
        consumer.waits_in = None
        consumer.wait_for_room()
        consumer = level.first
    return consumer
