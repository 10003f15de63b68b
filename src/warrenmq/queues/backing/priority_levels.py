"""The levels of a priority queue: one for each priority that messages came with.

Each level is a queue of its own to the store and to the memory monitor. A level begins with its
first message, so a priority queue whose messages all have the same priority costs what any other
queue costs.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.store.model.message import QueueLedger


class PriorityLevels:
    """The levels of one queue: `base`, that of priority 0, and others up to `highest`."""

    def __init__(self, base: PagedQueue, highest: i64) -> None:
        self.highest: i64 = highest
        # The levels that have begun, the highest first.
        self.levels: list[PagedQueue] = [base]
        self._priorities: list[i64] = [0]
        self._by_priority: list[PagedQueue | None] = [None] * (highest + 1)
        self._by_priority[0] = base
        self._by_ledger: dict[int, PagedQueue] = {base.ledger.queue_id: base}

    @property
    def ready_count(self) -> i64:
        """Ready messages of all levels."""
        count: i64 = 0
        for level in self.levels:
            count += level.ready.count
        return count

    @property
    def body_bytes(self) -> i64:
        """Bytes of the bodies of all ready messages."""
        size: i64 = 0
        for level in self.levels:
            size += level.ready.body_bytes
        return size

    def find(self, priority: i64) -> PagedQueue | None:
        """The level of `priority`, at most `highest`; None if it has not begun."""
        return self._by_priority[priority]

    def add(self, priority: i64, level: PagedQueue) -> None:
        """Begin the level of `priority`."""
        place: i64 = 0
        while self._priorities[place] > priority:
            place += 1
        self.levels.insert(place, level)
        self._priorities.insert(place, priority)
        self._by_priority[priority] = level
        self._by_ledger[level.ledger.queue_id] = level

    def of_ledger(self, ledger: QueueLedger) -> PagedQueue:
        """The level whose messages `ledger` numbers."""
        return self._by_ledger[ledger.queue_id]

    def priority_of(self, ledger: QueueLedger) -> i64:
        """The priority of the level whose messages `ledger` numbers."""
        return self._priorities[self.levels.index(self._by_ledger[ledger.queue_id])]

    def head_level(self, lowest: PagedQueue) -> PagedQueue:
        """The highest level with a ready message, down to `lowest`; that one if there is none."""
        for level in self.levels:
            if level.ready.count > 0 or level is lowest:
                return level
        return lowest
