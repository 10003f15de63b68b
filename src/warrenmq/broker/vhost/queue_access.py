"""What the store of a vhost asks about its queues, and what it tells of damage."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.vhost.loss_log import LossLog
from warrenmq.broker.vhost.vhost_queue_host import VhostQueueHost
from warrenmq.queues.queue import Queue
from warrenmq.queues.turn import WRITE_STEPS
from warrenmq.store.losses import LossReport
from warrenmq.store.message import INDEXED, JournalFile, Position
from warrenmq.store.queue_access import QueueAccess

# Positions that are moved in one turn at least, for all queues together, however many steps the queues took.
RETIRE_MIN: Final = 64


class VhostQueueAccess(QueueAccess):
    """Answers for the queues of `host`."""

    def __init__(self, host: VhostQueueHost) -> None:
        self._host: VhostQueueHost = host
        # What is left of the file that is being retired: queues and the seq ids up to which they are to be indexed.
        self._file: JournalFile | None = None
        self._left: list[tuple[Queue, i64]] = []

    def retire(self, file: JournalFile) -> bool:
        """Move what the journal file holds to the indexes, a slice at a time; True when nothing is left to move."""
        if self._file is not file:
            self._file = file
            self._left = []
            for place in range(len(file.ledgers)):
                queue = self._host.queues_by_id.get(file.ledgers[place].queue_id)
                if queue is not None:
                    self._left.append((queue, file.ends[place]))
        limit: i64 = max(self._host.steps_left // WRITE_STEPS, i64(RETIRE_MIN))
        while len(self._left) > 0:
            queue, upto = self._left[-1]
            if not queue.is_deleted:
                before = queue.ledger.indexed_upto
                if not queue.backing.index_upto(upto, limit):
                    return False
                limit -= queue.ledger.indexed_upto - before + 1
            self._left.pop()
            if limit <= 0 and len(self._left) > 0:
                return False
        self._file = None
        return True

    def index(self, queue_id: i64, upto: i64, limit: i64) -> None:
        """Move live positions of a queue below seq id `upto` to its index, at most `limit`."""
        queue = self._host.queues_by_id.get(queue_id)
        if queue is not None:
            queue.backing.index_upto(upto, limit)

    def is_empty(self, queue_id: i64) -> bool:
        """Has the queue no message at all, ready or unacked?"""
        queue = self._host.queues_by_id.get(queue_id)
        return queue is not None and queue.ready_count == 0 and queue.unacked_count == 0

    def indexed_in_memory(self, queue_id: i64, first: i64, end: i64) -> list[Position]:
        """The positions of [first, end) that a queue has in memory, ready or unacked, and that are in its index; ascending."""
        found: list[Position] = []
        queue = self._host.queues_by_id.get(queue_id)
        if queue is not None:
            backing = queue.backing
            entries = backing.ready.unindexed(first, end, backing.ready.entry_count)
            entries.extend(backing.find_out(first, end))
            entries.sort()
            for entry in entries:
                if entry.journal_state == INDEXED:
                    found.append(entry)
        return found


class VhostLossReport(LossReport):
    """Tells `log` what the store of `host` has lost."""

    def __init__(self, host: VhostQueueHost, log: LossLog) -> None:
        self._host: VhostQueueHost = host
        self._log: LossLog = log

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """Bytes of a file could not be used; a copy is in lost+found."""
        self._log.add_damage(self._text(queue_id), path, offset, size)

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """Messages of a queue cannot be had any more."""
        self._log.add_messages(self._text(queue_id), count, first_seq, last_seq, cause)

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """A content cannot be had any more."""
        self._log.add_content(directory, content_id)

    def _text(self, queue_id: i64) -> str:
        queue = self._host.queues_by_id.get(queue_id)
        return (
            f"queue '{queue.name.decode('utf-8', 'replace')}'"
            if queue is not None
            else f"queue id {queue_id}"
        )
