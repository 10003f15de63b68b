"""Finds the position of a time in a queue: a binary search that reads one ready message a step."""

from collections.abc import Callable

from warrenmq.queues.backing.loading import peek_anywhere
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue


def seek_time(queue: Queue, ms: int, done: Callable[[int], None]) -> None:
    """Call `done` with the seq id of the first ready message that arrived at `ms` or later.

    `ms` is since 1970. `done` may be called at once or later; it gets the queue's next seq id when
    there is no such message. The search takes messages to have arrived in their order; after the
    machine's clock was set back, it ends at one of the places that fit.
    """
    _Search(queue, ms, done).step()


class _Search:
    """One search. All messages below `low` arrived before the time, and none from `high` on did."""

    def __init__(self, queue: Queue, ms: int, done: Callable[[int], None]) -> None:
        self._queue = queue
        self._ms = ms
        self._done = done
        self._low = queue.backing.first_ready_seq
        self._high = queue.next_seq
        self._middle = 0
        self._is_asking = False
        self._is_answered = False

    def step(self) -> None:
        """Halve the range until a read has to wait for the disk or the range is empty."""
        while self._low < self._high:
            self._is_answered = False
            self._is_asking = True
            middle = (self._low + self._high) // 2
            self._middle = middle
            peek_anywhere(self._queue.backing, middle, self._high, 1, 1, self._on_entries)
            self._is_asking = False
            if not self._is_answered:
                return
        self._done(self._low)

    def _on_entries(self, entries: list[Entry]) -> None:
        if entries and entries[0].seq < self._high and entries[0].message.timestamp_ms < self._ms:
            self._low = entries[0].seq + 1
        else:
            self._high = self._middle
        self._is_answered = True
        if not self._is_asking:
            self.step()
