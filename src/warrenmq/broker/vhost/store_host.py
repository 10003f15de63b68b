"""The callbacks of a vhost's store: questions about its queues, and reports of losses."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.vhost.loss_log import LossLog
from warrenmq.broker.vhost.queue_host import VhostQueueHost
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.turn import WRITE_STEPS
from warrenmq.store.index.losses import LossReport
from warrenmq.store.model.message import INDEXED, JournalFile, Position
from warrenmq.store.model.store_host import StoreHost

# One turn moves at least this many positions to indexes, for all queues together, even if the
# queues have used up the steps of the turn.
RETIRE_MIN: Final = 64


class VhostStoreHost(StoreHost):
    """Gives the store of a vhost access to the queues of `host`."""

    def __init__(self, host: VhostQueueHost) -> None:
        self._host: VhostQueueHost = host
        # The journal file that is being retired.
        self._file: JournalFile | None = None
        # Queues that still have positions in that file, each with the seq id up to which to index
        # it (exclusive).
        self._left: list[tuple[PagedQueue, i64]] = []

    def retire(self, file: JournalFile) -> bool:
        """Move a slice of the journal file's positions to the indexes; True when none is left."""
        if self._file is not file:
            self._file = file
            self._left = []
            for place in range(len(file.ledgers)):
                backing = self._host.backing(file.ledgers[place].queue_id)
                if backing is not None:
                    self._left.append((backing, file.ends[place]))
        limit: i64 = max(self._host.steps_left // WRITE_STEPS, i64(RETIRE_MIN))
        while len(self._left) > 0:
            backing, upto = self._left[-1]
            if not backing.is_deleted:
                before = backing.ledger.indexed_upto
                if not backing.index_upto(upto, limit):
                    return False
                limit -= backing.ledger.indexed_upto - before + 1
            self._left.pop()
            if limit <= 0 and len(self._left) > 0:
                return False
        self._file = None
        return True

    def index(self, queue_id: i64, upto: i64, limit: i64) -> None:
        """Move at most `limit` live positions of a queue below seq id `upto` to its index."""
        backing = self._host.backing(queue_id)
        if backing is not None:
            backing.index_upto(upto, limit)

    def is_empty(self, queue_id: i64) -> bool:
        """True if the queue exists and has no message, ready or unacked."""
        backing = self._host.backing(queue_id)
        return backing is not None and backing.ready.count == 0 and backing.unacked.count == 0

    def indexed_in_memory(self, queue_id: i64, first: i64, end: i64) -> list[Position]:
        """See StoreHost."""
        found: list[Position] = []
        backing = self._host.backing(queue_id)
        if backing is not None:
            entries = backing.ready.unindexed(first, end, backing.ready.entry_count)
            entries.extend(backing.find_unacked(first, end))
            entries.sort()
            for entry in entries:
                if entry.journal_state == INDEXED:
                    found.append(entry)
        return found


class VhostLossReport(LossReport):
    """Passes the losses of the store of `host` to `log`."""

    def __init__(self, host: VhostQueueHost, log: LossLog) -> None:
        self._host: VhostQueueHost = host
        self._log: LossLog = log

    def on_damage(self, queue_id: i64, path: str, offset: i64, size: i64) -> None:
        """See LossReport."""
        self._log.add_damage(self._text(queue_id), path, offset, size)

    def on_lost(self, queue_id: i64, count: i64, first_seq: i64, last_seq: i64, cause: str) -> None:
        """See LossReport."""
        self._log.add_messages(self._text(queue_id), count, first_seq, last_seq, cause)

    def on_content_lost(self, directory: str, content_id: i64) -> None:
        """See LossReport."""
        self._log.add_content(directory, content_id)

    def _text(self, queue_id: i64) -> str:
        ledger = self._host.ledgers.get(queue_id)
        queue = ledger.queue if ledger is not None else None
        return (
            f"queue '{queue.name.decode('utf-8', 'replace')}'"
            if queue is not None
            else f"queue id {queue_id}"
        )
