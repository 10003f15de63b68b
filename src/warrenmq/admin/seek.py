"""Where in a queue a time lies: a search by halves over what is ready, which reads one message a step."""

from collections.abc import Callable

from warrenmq.queues.entry import Entry
from warrenmq.queues.loading import peek_anywhere
from warrenmq.queues.queue import Queue


def seek_time(queue: Queue, ms: int, done: Callable[[int], None]) -> None:
    """Call `done`, at once or later, with the seq id of the first ready message that arrived at `ms` since 1970 or later.

    It is the queue's next one when there is none. Messages are taken to have arrived in their order; where the machine's
    clock was set back meanwhile, the search ends at one of the places that fit.
    """
    _Search(queue, ms, done).step()


class _Search:
    """Everything below `low` arrived before the time; the message at or behind `high`, if there is one, did not."""

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
        """Look until an answer is not there at once, or nothing is left to look at."""
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
