"""Takes the checkpoints of a vhost's store: when, with which rows, and what follows on disk.

A checkpoint is taken between two turns, right after a seal: every settled position is then in the
accounts and in the journal alike. The checkpoint job enters the write lane when the sealed batch is
durable, since the checkpoint counts contents of that batch. The appends that the checkpoint counts
are before it in the lane.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.index.segment_loss import SegmentLoss
from warrenmq.store.jobs.job import LeavingFile, WriteCheckpoint
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.content_log import ContentLog
from warrenmq.store.model.message import JournalFile, QueueLedger
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.checkpoint import CheckpointEncoder, CheckpointHead, encode_queue
from warrenmq.store.upkeep.backup_pins import BackupPins
from warrenmq.store.upkeep.segment_rewrite import SegmentRewriter
from warrenmq.store.upkeep.write_figures import write_figures_of

# Rows encoded in one step; a step takes less than a millisecond.
_ENCODED_ROWS: Final = 1024
# Pause after a failed checkpoint.
_RETRY_MS: Final = 250


class _Checkpoint(WriteCheckpoint):
    def __init__(self, checkpoints: Checkpoints, head: CheckpointHead) -> None:
        super().__init__([], [], [], [])
        self.checkpoints: Checkpoints = checkpoints
        self.head: CheckpointHead = head
        # The journal batch that must be durable first.
        self.batch_number: i64 = 0
        # Bytes of the files that the checkpoint deletes.
        self.delete_bytes: i64 = 0
        # Segments that the checkpoint syncs.
        self.dirty: list[tuple[QueueLedger, Segment]] = []
        # The queues of which the checkpoint has segments or a new `indexed_upto`.
        self.counted: list[QueueStore] = []
        self.encoder: CheckpointEncoder | None = None

    def encode(self) -> bool:
        encoder = self.encoder
        assert encoder is not None
        if encoder.step(_ENCODED_ROWS):
            return True
        self.parts = encoder.parts()
        self.encoder = None
        return False

    def finished(self) -> None:
        self.checkpoints.on_written(self)


class Checkpoints:
    """The checkpoints of one vhost, one at a time. Times in ms."""

    def __init__(
        self,
        files: SegmentFiles,
        loss: SegmentLoss,
        journal: Journal,
        queues: dict[int, QueueStore],
        backup: BackupPins,
        rewriter: SegmentRewriter,
    ) -> None:
        self._files: SegmentFiles = files
        self._loss: SegmentLoss = loss
        self._journal: Journal = journal
        # The durable queues.
        self._queues: dict[int, QueueStore] = queues
        self._backup: BackupPins = backup
        self._rewriter: SegmentRewriter = rewriter
        # Generation of the last checkpoint on disk.
        self.generation: i64 = 0
        # The oldest journal file that the last checkpoint on disk needs.
        self.first_journal_file: i64 = 0
        # Stretches of the journal that the start could not read: (file, start, end) in bytes.
        self.journal_damage: list[tuple[int, int, int]] = []
        # Bytes published and written in earlier runs, as the checkpoint of the start counts them.
        self.earlier_published_bytes: i64 = 0
        self.earlier_written_bytes: i64 = 0
        # Checkpoints written since the start; a figure for operators.
        self.count: i64 = 0
        # Failed checkpoints since the start; a figure for operators.
        self.failures: i64 = 0
        # The checkpoint that is being made.
        self._current: _Checkpoint | None = None
        # `_current` waits for its batch to become durable and is not in the write lane yet.
        self._is_deferred: bool = False
        self._retry_at_ms: i64 = 0
        # Files that have left the journal's tables, but not yet its directory; oldest first.
        self._leaving: list[LeavingFile] = []

    def want(self) -> None:
        """Ask for a checkpoint soon, whether one is due or not."""
        self._files.needs.is_wanted = True

    @property
    def is_pending(self) -> bool:
        """Whether a checkpoint is asked for or being made."""
        return self._files.needs.is_wanted or self._current is not None

    @property
    def deletable_bytes(self) -> i64:
        """Bytes of the files that nothing needs; the next checkpoints delete them."""
        current = self._current
        size: i64 = current.delete_bytes if current is not None else 0
        contents = self._files.contents
        dead = contents.persistent.dead_bytes + contents.transient.dead_bytes
        return size + dead + self._files.needs.waiting_bytes

    def has_dead_files(self) -> bool:
        """Whether checkpoints have dead files to delete; journal files do not count."""
        return self._files.needs.has_dead_files(self._files.contents.persistent.dead_bytes)

    def may_take(self, now_ms: i64) -> bool:
        """Whether a checkpoint may be taken now: one at a time, and a pause after a failure.

        None is taken between a failed batch with MOVEs and the batch that writes them again.
        """
        return (
            self._current is None
            and now_ms >= self._retry_at_ms
            and not self._journal.moves.has_unwritten()
        )

    def is_due(self, now_ms: i64) -> bool:
        """Whether a checkpoint is asked for, or due because dead space waits."""
        needs = self._files.needs
        # Call `is_space_due` in any case: the first call starts the wait of dead space.
        is_space_due = needs.is_space_due(self._files.contents.persistent.dead_bytes, now_ms)
        return is_space_due or needs.is_wanted

    def pinned_files(self) -> i64:
        """Files that only wait for the end of a backup to go; 0 while there is none."""
        if not self._backup.is_on:
            return 0
        count = self._backup.pinned_files
        for file in self._leaving:
            if not file.is_needed:
                count += 1
        return count

    def take(self) -> None:
        """Take a checkpoint; called right after a seal, when nothing was settled since."""
        files = self._files
        needs = files.needs
        needs.is_wanted = False
        contents = files.contents.persistent
        transient = files.contents.transient
        journal = self._journal
        journal_file, journal_offset = journal.end()
        head = CheckpointHead(
            self.generation + 1,
            journal.first_needed_file(),
            contents.next_id,
            journal.release_serial,
            contents.next_file_number,
            journal_file,
            journal_offset,
        )
        writes = write_figures_of(journal, files)
        head.published_bytes = self.earlier_published_bytes + writes.published_bytes
        head.written_bytes = self.earlier_written_bytes + writes.total_bytes
        for damage in self.journal_damage:
            if damage[0] >= head.first_journal_file:
                head.damage.append(damage)
        job = _Checkpoint(self, head)
        rows: list[bytes] = []
        for queue in self._queues.values():
            rows.append(self._row_of(queue, job))
        job.encoder = CheckpointEncoder(files.store_id, head, rows, contents.checkpoint_rows())
        job.batch_number = journal.last_sealed()
        # A start never reads the transient content store, so its dead files need not wait for a
        # second checkpoint.
        transient_bytes = transient.dead_bytes
        contents_bytes = contents.dead_bytes
        paths, size = needs.take_deletable(contents.take_dead_paths(), contents_bytes)
        job.delete_paths = paths + transient.take_dead_paths()
        self._name_logs(head.generation)
        # Journal files leave one generation later than they could.
        job.delete_bytes = size + transient_bytes
        for file in journal.forget_files(self.first_journal_file):
            leaving = self._leave(file)
            self._leaving.append(leaving)
            if not leaving.is_needed:
                job.delete_bytes += file.size_bytes
        job.delete_paths = self._backup.delete_paths(job.delete_paths)
        if not self._backup.is_on:
            job.leaving = self._leaving
            self._leaving = []
        self._backup.on_taken(head.first_journal_file)
        self._current = job
        self._is_deferred = job.batch_number > journal.last_finished()
        if not self._is_deferred:
            files.jobs.lane.push(job)

    def move_later(self, log: ContentLog) -> None:
        """Have the next checkpoint move a file that the last run has left in the journal."""
        self._leaving.append(LeavingFile(log.number, log.journal_path, log.moved_path, True))

    def _name_logs(self, generation: i64) -> None:
        """Note which files of contents the checkpoint names."""
        for file in self._journal.files:
            if file.log.stretches > 0:
                file.log.named_in = generation
        for log in self._files.logs.retained.values():
            if log.stretches > 0:
                log.named_in = generation

    def _leave(self, file: JournalFile) -> LeavingFile:
        """Let a file leave the journal: it stays while a checkpoint on disk names its contents."""
        log = file.log
        is_needed = log.stretches > 0 or log.named_in >= self.generation > 0
        if is_needed:
            self._files.logs.retain(log, file.size_bytes)
            self._files.needs.take_dead_log(log)
        return LeavingFile(log.number, log.journal_path, log.moved_path, is_needed)

    def on_batch_done(self, number: i64, ok: bool) -> None:
        """Push or abandon the checkpoint that waits for batch `number`, which is done."""
        current = self._current
        if current is not None and self._is_deferred:
            if not ok and current.batch_number == number:
                # The checkpoint counts contents of the failed batch: take another one.
                self._abandon(current)
            elif current.batch_number <= number:
                self._is_deferred = False
                self._files.jobs.lane.push(current)

    def on_written(self, job: _Checkpoint) -> None:
        """Account for a checkpoint that is on disk or has failed."""
        files = self._files
        files.jobs.lane.on_other()
        if len(job.gone) > 0:
            self._loss.replace_gone(job.dirty, job.gone)
        if job.error is not None:
            self.failures += 1
            for ledger, segment in job.dirty:
                index = ledger.index
                if index is not None and index.path_of(segment) in job.unsynced:
                    # A second sync would not report the bytes that this one may have lost.
                    self._rewriter.rewrite_whole(ledger, segment, index.path_of(segment))
            self._abandon(job)
            self._retry_at_ms = files.jobs.now_ms + _RETRY_MS
            return
        for _log, segment in job.dirty:
            segment.is_new = False
        self._leaving = job.unmoved + self._leaving
        for log in files.logs.retained.values():
            log.is_moved = log.is_moved or log.number < self._first_leaving()
        self._current = None
        self.count += 1
        for part in job.parts:
            files.jobs.lane.checkpoint_bytes += len(part)
        self.generation = job.head.generation
        self.first_journal_file = job.head.first_journal_file
        files.needs.give_back(job.undeleted, 0)
        files.needs.has_stragglers = self._rewriter.find_segments(job.counted)
        self._backup.on_checkpoint(job.parts)
        files.resume_loads()

    def _row_of(self, queue: QueueStore, job: _Checkpoint) -> bytes:
        ledger = queue.ledger
        index = ledger.index
        version: i64 = 0
        if index is not None:
            self._rewriter.leave_tail(queue, index)
            queue.end_left_segment(index)
            version = index.version
            index.snapshot_upto = ledger.indexed_upto
            if len(index.segments) > 0 or index.checkpointed_upto < ledger.indexed_upto:
                job.counted.append(queue)
            if index.has_dirty:
                index.has_dirty = False
                for segment in index.segments:
                    if segment.is_dirty:
                        path = index.path_of(segment)
                        job.sync_paths.append(path)
                        if segment.is_new:
                            job.new_paths.append(path)
                        segment.is_dirty = False
                        job.dirty.append((ledger, segment))
        version += ledger.next_seq + ledger.delivered_upto + ledger.indexed_upto
        if version != queue.row_version:
            queue.row = encode_queue(ledger, queue.is_deleted)
            queue.row_version = version
        return queue.row

    def _first_leaving(self) -> i64:
        """Number of the oldest file in the journal's directory."""
        if len(self._leaving) > 0:
            return self._leaving[0].number
        return self._journal.files[0].number if len(self._journal.files) > 0 else 1 << 62

    def _abandon(self, job: _Checkpoint) -> None:
        self._current = None
        self._leaving = job.leaving + self._leaving
        self._backup.on_checkpoint(None)
        needs = self._files.needs
        needs.give_back(job.delete_paths, job.delete_bytes)
        for ledger, segment in job.dirty:
            segment.is_dirty = True
            if ledger.index is not None:
                ledger.index.has_dirty = True
        needs.is_wanted = True
