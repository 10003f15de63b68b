"""Segments that are written anew without what is settled in them (W24, G8).

Which ones: those of which at most a quarter is alive, when they are large (`QueueIndex.is_worth_rewriting`); and while the
store is in debt, all of which less than half is alive, those with most garbage first. They are looked for behind each
checkpoint and rewritten one after the other, so that appends and checkpoints have their turns in between.

What was settled is left out only when that is durable: a start would else miss what it takes to be alive, and with it
what it refers to. A durable queue's segment may be rewritten when the last checkpoint but one had seen the end of it:
what lies in it is never appended again after a crash. A segment that is still appended to has its turn later; in debt a
queue leaves it (`leave_tail`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.backup_pins import BackupPins
from warrenmq.store.debt import Debt
from warrenmq.store.jobs import RewriteSegment
from warrenmq.store.journal import Journal
from warrenmq.store.message import QueueLedger
from warrenmq.store.queue_access import QueueAccess
from warrenmq.store.queue_index import QueueIndex, Segment
from warrenmq.store.queue_store import QueueStore
from warrenmq.store.runs import Runs, overlapping
from warrenmq.store.segment_files import SegmentFiles

# Positions that one checkpoint moves to segments that are to be left.
_TAIL_POSITIONS: Final = 1024
# After one that failed.
_RETRY_MS: Final = 5000


class _Rewrite(RewriteSegment):
    def __init__(
        self,
        rewriter: SegmentRewriter,
        ledger: QueueLedger,
        segment: Segment,
        path: str,
        settled: Runs,
        settled_transient: Runs,
    ) -> None:
        super().__init__(path, segment.size_bytes, settled, settled_transient)
        self.rewriter: SegmentRewriter = rewriter
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment
        # Entries that it leaves, and the batch that says that the others are settled.
        self.live: i64 = segment.live
        self.is_whole: bool = False
        self.batch_number: i64 = 0

    def finished(self) -> None:
        self.rewriter.on_rewritten(self)


class SegmentRewriter:
    """What is to be rewritten in one vhost's store."""

    def __init__(
        self,
        files: SegmentFiles,
        journal: Journal,
        queues: dict[int, QueueStore],
        transient_queues: dict[int, QueueStore],
        backup: BackupPins,
        debt: Debt,
    ) -> None:
        self._files: SegmentFiles = files
        self._journal: Journal = journal
        self._queues: dict[int, QueueStore] = queues
        self._transient_queues: dict[int, QueueStore] = transient_queues
        self._backup: BackupPins = backup
        self._debt: Debt = debt
        self.queue_access: QueueAccess | None = None
        self.rewrite_count: i64 = 0
        # Found behind the last checkpoint, the one with most garbage last.
        self._found: list[tuple[QueueLedger, Segment]] = []
        # The one under way, and whether it was handed out.
        self._current: _Rewrite | None = None
        self._is_deferred: bool = False
        self._retry_at_ms: i64 = 0
        # Of _TAIL_POSITIONS, since the last checkpoint.
        self._tail_left: i64 = _TAIL_POSITIONS

    def find_segments(self) -> bool:
        """Behind a checkpoint: find what is to be rewritten. Returns whether there is, or will be, something."""
        is_in_debt = self._debt.payable_bytes > 0
        found: list[tuple[i64, i64, QueueLedger, Segment]] = []
        refused: list[Segment] = []
        is_more = False
        self._tail_left = _TAIL_POSITIONS
        for queues in (self._queues, self._transient_queues):
            for queue in queues.values():
                index = queue.ledger.index
                if index is None:
                    continue
                if queue.is_durable:
                    index.on_checkpoint()
                else:
                    self.leave_tail(queue, index)
                is_more = is_more or index.has_stragglers
                upto = index.previous_upto if queue.is_durable else queue.ledger.indexed_upto
                for segment in index.segments:
                    if index.is_worth_rewriting(segment, is_in_debt) and index.may_rewrite(
                        segment, upto
                    ):
                        if segment.was_refused:
                            refused.append(segment)
                        else:
                            found.append((segment.garbage_bytes, len(found), queue.ledger, segment))
        if len(found) == 0:
            # They have another try, next time.
            for segment in refused:
                segment.was_refused = False
        found.sort()
        self._found = [(entry[2], entry[3]) for entry in found]
        return is_more

    def advance(self) -> None:
        """Begin the next one, if none is under way; called once a turn and behind a commit."""
        jobs = self._files.jobs
        current = self._current
        if current is None:
            if len(self._found) == 0 or self._backup.is_on or jobs.now_ms < self._retry_at_ms:
                return
            ledger, segment = self._found.pop()
            current = self._rewrite_of(ledger, segment)
            if current is None:
                return
            segment.is_rewriting = True
            self._current = current
            self._is_deferred = True
        if self._is_deferred and current.batch_number <= self._journal.last_finished():
            self._is_deferred = False
            jobs.lane.push(current)

    def rewrite_whole(self, ledger: QueueLedger, segment: Segment, path: str) -> None:
        """Write all bytes of a segment again: a sync that failed may have lost some (W27)."""
        segment.is_rewriting = True
        none: Runs = []
        job = _Rewrite(self, ledger, segment, path, none, none)
        job.is_whole = True
        self._files.jobs.lane.push(job)

    def on_rewritten(self, job: _Rewrite) -> None:
        """A segment was written anew, or could not be."""
        files = self._files
        files.jobs.lane.on_other()
        segment = job.segment
        segment.is_rewriting = False
        if not job.is_whole:
            self._current = None
        index = job.ledger.index
        if job.error is not None:
            segment.was_refused = True
            self._retry_at_ms = files.jobs.now_ms + _RETRY_MS
        elif index is not None:
            # What was appended meanwhile waits behind this job in the lane.
            segment.size_bytes = job.new_size
            for append in files.jobs.lane.appends_of(job.path):
                segment.size_bytes += append.size_bytes
            segment.written_bytes = job.new_size
            segment.rewrites += 1
            if not job.is_whole:
                segment.entries = job.live
                self.rewrite_count += 1
            index.forget_cursor()
            index.version += 1
            index.drop_dead_segments(job.ledger.indexed_upto)
            files.needs.take_dead_segments(index)
        files.resume_loads()

    def leave_tail(self, queue: QueueStore, index: QueueIndex) -> None:
        """Let the queue append to a new segment, if little or nothing is alive in the one it appends to.

        An empty queue does so when nothing is; in debt any queue does, when less than half is. Its next message is the
        first of the next segment, and the old one can go or be rewritten, as soon as it has those that were in the
        journal only.
        """
        queue_access = self.queue_access
        if queue_access is None or not index.has_wasteful_tail(
            self._files.settings.dead_tail_bytes
        ):
            return
        tail = index.segments[-1]
        ledger = queue.ledger
        is_empty = queue_access.is_empty(ledger.queue_id)
        if self._debt.payable_bytes == 0 and (tail.live > 0 or not is_empty):
            return
        is_all_indexed = ledger.indexed_upto == ledger.next_seq
        end = (tail.number + 1) * index.segment_entries
        ledger.next_seq = max(ledger.next_seq, end)
        if is_all_indexed or is_empty:
            queue.index_range_done(ledger.next_seq)
        elif ledger.indexed_upto < end and self._tail_left > 0:
            before = tail.entries
            queue_access.index(ledger.queue_id, end, self._tail_left)
            self._tail_left -= 1 + tail.entries - before

    def _rewrite_of(self, ledger: QueueLedger, segment: Segment) -> _Rewrite | None:
        index = ledger.index
        upto = ledger.indexed_upto
        # It may have died meanwhile, or its queue.
        if (
            index is None
            or index.find(segment.number) is not segment
            or not index.may_rewrite(segment, upto)
        ):
            return None
        first: i64 = segment.number * index.segment_entries
        last = first + index.segment_entries - 1
        transient = overlapping(index.settled_transient, first, last)
        if first < ledger.transient_floor:
            transient.insert(0, (first, ledger.transient_floor - 1))
        settled = overlapping(index.settled, first, last)
        job = _Rewrite(self, ledger, segment, index.path_of(segment), settled, transient)
        job.batch_number = self._journal.last_sealed()
        return job
