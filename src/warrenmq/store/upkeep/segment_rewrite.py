"""Rewrites segments without their settled records (W24, G8).

A segment is rewritten when it is large and at most a quarter of its entries is alive
(`QueueIndex.is_worth_rewriting`). While the store is in debt, every segment of which less than half
is alive is rewritten, the one with most garbage first. The rewriter searches for segments after
each checkpoint and rewrites one at a time, so that appends and checkpoints get their turns between.

A settled record is left out only when the batch that settles it is durable. Otherwise a start would
take the message for alive and miss its record, and with it the content that the record refers to. A
durable queue's segment may be rewritten when the last checkpoint but one covers its end: no start
appends to it again after a crash. A segment that is still appended to has to wait; while the store
is in debt its queue moves on to the next segment (`leave_tail`).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.jobs.job import RewriteSegment
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.content_log import ContentLog
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.model.runs import Runs, overlapping, subtract
from warrenmq.store.model.store_host import StoreHost
from warrenmq.store.upkeep.backup_pins import BackupPins
from warrenmq.store.upkeep.debt import Debt

# Positions that one checkpoint may move from the journal to tail segments, for queues to leave
# them.
_TAIL_POSITIONS: Final = 1024
# Pause after a failed rewrite.
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
        # Entries that the new file keeps.
        self.live: i64 = segment.live
        # The files whose contents are copied into the segment.
        self.logs: list[ContentLog] = []
        # Copy every record, settled ones too (`rewrite_whole`).
        self.is_whole: bool = False
        # The batch that must be durable first: its acks settle the entries that are left out.
        self.batch_number: i64 = 0
        # Number of batches that had failed when `batch_number` was set.
        self.failed_count: i64 = 0

    def finished(self) -> None:
        self.rewriter.on_rewritten(self)


class SegmentRewriter:
    """Finds and rewrites the wasteful segments of one vhost's store, one at a time. Times in ms."""

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
        self.store_host: StoreHost | None = None
        self.rewrite_count: i64 = 0
        # Segments to rewrite, found after the last checkpoint; the one with most garbage is last.
        self._found: list[tuple[QueueLedger, Segment]] = []
        # The rewrite under way.
        self._current: _Rewrite | None = None
        # `_current` waits for its batch to become durable and is not in the write lane yet.
        self._is_deferred: bool = False
        self._retry_at_ms: i64 = 0
        # Positions of _TAIL_POSITIONS that are left until the next checkpoint.
        self._tail_left: i64 = _TAIL_POSITIONS

    def find_segments(self, counted: list[QueueStore]) -> bool:
        """Find the segments to rewrite; called when a checkpoint is on disk.

        `counted` are the durable queues of which the checkpoint has segments or a new
        `indexed_upto`: most of a hundred thousand queues have neither. Returns whether any queue
        has a straggler: a segment to rewrite at once or when it may be.
        """
        is_in_debt = self._debt.payable_bytes > 0
        settings = self._files.settings
        is_emptying = self._files.logs.choose_emptied(
            settings.empty_files_min, settings.empty_garbage_percent, is_in_debt
        )
        found: list[tuple[i64, i64, QueueLedger, Segment]] = []
        refused: list[Segment] = []
        is_more = is_emptying
        self._tail_left = _TAIL_POSITIONS
        for queue in counted + list(self._transient_queues.values()):
            index = queue.ledger.index
            if index is None:
                continue
            if queue.is_durable:
                if queue.ledger.queue_id not in self._queues:
                    # Deleted since the checkpoint was taken.
                    continue
                index.on_checkpoint()
            else:
                self.leave_tail(queue, index)
            is_more = is_more or index.has_stragglers
            _leave_logs(index)
            self._files.needs.take_dead_segments(index)
            upto = index.previous_upto if queue.is_durable else queue.ledger.indexed_upto
            for segment in index.segments:
                is_worth = index.is_worth_rewriting(segment, is_in_debt) or (
                    is_emptying and len(_emptied(index, segment)) > 0
                )
                if is_worth and index.may_rewrite(segment, upto):
                    if segment.was_refused:
                        refused.append(segment)
                    else:
                        found.append((segment.garbage_bytes, len(found), queue.ledger, segment))
        if len(found) == 0:
            # Segments whose rewrite failed get another try after the next checkpoint.
            for segment in refused:
                segment.was_refused = False
        found.sort()
        self._found = [(entry[2], entry[3]) for entry in found]
        return is_more

    def advance(self) -> None:
        """Start the next rewrite if none is under way; called once a turn and after a commit."""
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
            if current.failed_count < self._journal.failed_count:
                # The batch may be one of those that failed: another one writes their acks again.
                self._await_acks(current)
            else:
                self._is_deferred = False
                jobs.lane.push(current)

    def rewrite_whole(self, ledger: QueueLedger, segment: Segment, path: str) -> None:
        """Write all bytes of a segment again, since a failed sync may have lost some (W27)."""
        segment.is_rewriting = True
        none: Runs = []
        job = _Rewrite(self, ledger, segment, path, none, none)
        job.is_whole = True
        self._files.jobs.lane.push(job)

    def on_rewritten(self, job: _Rewrite) -> None:
        """Account for a rewrite that is done or has failed."""
        files = self._files
        files.jobs.lane.on_other()
        segment = job.segment
        segment.is_rewriting = False
        if not job.is_whole:
            self._current = None
        index = job.ledger.index
        if job.error is not None:
            segment.was_refused = True
            files.logs.refuse(job.logs)
            self._retry_at_ms = files.jobs.now_ms + _RETRY_MS
        elif index is not None:
            # Appends pushed during the rewrite wait behind this job in the lane.
            segment.size_bytes = job.new_size
            files.jobs.lane.rewritten_bytes += job.new_size
            for append in files.jobs.lane.appends_of(job.path):
                segment.size_bytes += append.size_bytes
            segment.written_bytes = job.new_size
            segment.rewrites += 1
            segment.referred_bytes = job.referred_bytes
            is_to_count = len(job.missing) > 0 or job.was_shorter
            if is_to_count:
                files.damaged.add(job.ledger, segment)
            # The index needs the emptied files no more, unless entries of them are in damaged
            # bytes: a repair finds these entries again in the files.
            if len(job.missing) == 0 and len(job.logs) > 0:
                first: i64 = segment.number * index.segment_entries
                last = first + index.segment_entries - 1
                index.stretches.cut(first, last, job.logs, index.settled)
            if not job.is_whole:
                segment.entries = job.live
                self.rewrite_count += 1
            index.cursor.forget()
            index.version += 1
            index.drop_dead_segments(job.ledger.indexed_upto)
            files.needs.take_dead_segments(index)
            if is_to_count:
                files.damaged.recount()
        files.resume_loads()

    def leave_tail(self, queue: QueueStore, index: QueueIndex) -> None:
        """Move the queue on to a new segment if little or nothing is alive in its last one.

        An empty queue leaves its last segment when nothing in it is alive; while the store is in
        debt, any queue leaves it when less than half is alive. It also leaves a segment whose
        contents are in a file that is to be emptied. The next message of the queue is
        then the first of the next segment. The old segment can be deleted or rewritten as soon as
        it holds the messages of its range that were in the journal only.

        A copy of a mirrored queue leaves its segment when its master has.
        """
        store_host = self.store_host
        ledger = queue.ledger
        is_emptying = self._files.logs.has_emptied and _is_tail_emptied(index)
        if (
            store_host is None
            or queue.is_copy
            or not (is_emptying or index.has_wasteful_tail(self._files.settings.dead_tail_bytes))
        ):
            return
        tail = index.segments[-1]
        is_empty = store_host.is_empty(ledger.queue_id)
        is_urgent = is_emptying or self._debt.payable_bytes > 0
        if not is_urgent and (tail.live > 0 or not is_empty):
            return
        is_all_indexed = ledger.indexed_upto == ledger.next_seq
        end = (tail.number + 1) * index.segment_entries
        ledger.next_seq = max(ledger.next_seq, end)
        if is_all_indexed or is_empty:
            queue.index_range_done(ledger.next_seq)
        elif ledger.indexed_upto < end and self._tail_left > 0:
            before = tail.entries
            store_host.index(ledger.queue_id, end, self._tail_left)
            self._tail_left -= 1 + tail.entries - before

    def _rewrite_of(self, ledger: QueueLedger, segment: Segment) -> _Rewrite | None:
        index = ledger.index
        upto = ledger.indexed_upto
        # The segment or its queue may have died since the search.
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
        job.logs = _emptied(index, segment)
        for log in job.logs:
            job.emptied.append((log.number, log.path))
        for log, part_first, part_last in index.stretches.parts_of(first, last):
            if log in job.logs:
                job.wanted.extend(subtract(part_first, part_last, settled))
        self._await_acks(job)
        return job

    def _await_acks(self, job: _Rewrite) -> None:
        """Have `job` wait until the acks of the entries that it leaves out are durable."""
        job.batch_number = self._journal.last_acking()
        job.failed_count = self._journal.failed_count


def _emptied(index: QueueIndex, segment: Segment) -> list[ContentLog]:
    """The files to be emptied that hold contents of a segment."""
    if not segment.has_places:
        return []
    first: i64 = segment.number * index.segment_entries
    return index.stretches.emptied(first, first + index.segment_entries - 1)


def _leave_logs(index: QueueIndex) -> None:
    """Need no retained file for segments that have no content in a journal file.

    A stretch also reaches over positions with contents elsewhere, perhaps over whole segments.
    """
    if len(index.stretches.all) == 0:
        return
    for segment in index.segments:
        if not segment.has_places:
            first: i64 = segment.number * index.segment_entries
            last = first + index.segment_entries - 1
            logs = [log for log in index.stretches.logs_of(first, last) if log.is_retained]
            if len(logs) > 0:
                index.stretches.cut(first, last, logs, index.settled)
                # The next checkpoint encodes the queue anew.
                index.version += 1


def _is_tail_emptied(index: QueueIndex) -> bool:
    """Whether contents of the last segment are in files that are to be emptied."""
    if len(index.segments) == 0 or index.segments[-1].is_rewriting:
        return False
    return len(_emptied(index, index.segments[-1])) > 0
