"""A node's copy of a mirrored queue: a hidden queue, and what applies its master's operations."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.durable_marks import DurableMarks
from warrenmq.queues.mirror.ring_feed import next_start
from warrenmq.queues.queue import Queue
from warrenmq.store.journal.journal import Journal


class MirrorCopy:
    """The copy `queue` of this node, in a vhost with `journal`.

    `applier` changes it while it is hidden, once `is_ready`.
    """

    def __init__(self, queue: Queue, journal: Journal) -> None:
        self.queue: Queue = queue
        self.journal: Journal = journal
        self.applier: MirrorApplier = MirrorApplier(queue)
        # The marks of the last mirror with this copy know the journal batches that are not on disk.
        self.marks: DurableMarks | None = None
        # What the copy has is known; before, no operation may be applied.
        self.is_ready: bool = False
        self._is_opening: bool = False
        # Called once, when it is ready.
        self._waiting: list[Callable[[], None]] = []

    @property
    def epoch(self) -> int:
        """The highest epoch that the copy has seen; lower ones are refused (I5)."""
        return int(self.queue.epoch)

    def when_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` once operations may be applied, now or later; nothing may be unacked."""
        if self.is_ready:
            callback()
            return
        self._waiting.append(callback)
        if not self._is_opening:
            self._is_opening = True
            self.applier.reopen(self._on_reopened)

    def reopen(self) -> None:
        """Find out anew what the copy has: it has served, or has missed operations."""
        self.applier = MirrorApplier(self.queue)
        self.is_ready = False
        self._is_opening = False

    def next_start(self, highest_start: int) -> int:
        """The first seq id if this copy begins the next epoch; see `ring_feed.next_start`."""
        return int(next_start(self.queue, highest_start))

    def when_durable(self, first_batch: int, done: Callable[[bool], None]) -> None:
        """Call `done(ok)` once everything since batch `first_batch` is on disk, or a batch failed.

        A transient queue does not wait for the disk.
        """
        if self.queue.durable:
            self.journal.when_durable(lambda ok, _now_ms: done(ok and self._has_all(first_batch)))
        else:
            done(True)

    def _has_all(self, first_batch: int) -> bool:
        return self.journal.last_failed < first_batch

    def _on_reopened(self) -> None:
        self._is_opening = False
        self.is_ready = True
        waiting = self._waiting
        self._waiting = []
        for callback in waiting:
            callback()
