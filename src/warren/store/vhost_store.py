"""The store of one vhost: journal, queue indexes, content stores, and the checkpoints that tie them together.

The shell drives it: after each seal of the journal `advance`, then `take_jobs` for its threads, and each job's
`finished` when it is done. What is decided here:

* Retirement. When the journal outgrows its window, its owner is asked to move what the oldest files hold to the
  queues' indexes; then a checkpoint is taken and the files go, one generation later than they could, so that the
  checkpoint before the last one is good as well.
* A checkpoint is taken between two turns, right behind a seal: what is settled is then in the accounts and in the
  journal alike. It is handed out when that batch is durable, since it counts contents of that batch; the appends it
  speaks of are before it in the lane.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warren.store.backup_hold import BackupHold
from warren.store.checkpoint import Checkpoint, CheckpointEncoder, CheckpointHead, encode_queue
from warren.store.content_store import ContentStore
from warren.store.figures import Debt, StoreFigures
from warren.store.index_load import ContentLoad, IndexLoad
from warren.store.index_repair import recount_segments
from warren.store.jobs import AppendFile, StoreJob, WriteCheckpoint
from warren.store.journal import Batch, Journal
from warren.store.message import ContentRef, Position, QueueLog
from warren.store.queue_index import QueueIndex, Segment
from warren.store.queue_store import QueueStore
from warren.store.record import RecordWriter
from warren.store.recovery import JournalReplay, RecoveredQueue
from warren.store.reference_release import ReferenceRelease
from warren.store.segment_loss import give_up_gone, replace_gone
from warren.store.segment_rewrite import SegmentRewriter
from warren.store.store_owner import StoreOwner
from warren.store.store_settings import StoreSettings
from warren.store.write_lane import WriteLane

PERSISTENT_NAME: Final = "msg_store_persistent"
TRANSIENT_NAME: Final = "msg_store_transient"
QUEUES_NAME: Final = "queues"
# A checkpoint is taken after this time for the sake of less space than `StoreSettings.dead_bytes`.
_DEAD_PATIENCE_MS: Final = 2000
# Rows of a checkpoint that are encoded in one go, less than a millisecond's worth.
_ENCODED_ROWS: Final = 1024
# After a failed checkpoint or compaction.
_CHECKPOINT_RETRY_MS: Final = 250
_LOAD_RETRY_MS: Final = 100
_LOAD_RETRY_MAX_MS: Final = 1000
_COMPACTION_RETRY_MS: Final = 5000


class _Append(AppendFile):
    def __init__(self, store: VhostStore, path: str, offset: i64, parts: list[bytes], is_new: bool) -> None:
        super().__init__(path, offset, parts, is_new)
        self.store: VhostStore = store
        self.segment: Segment | None = None
        # Of the transient content store: up to which content id all is written then.
        self.content_upto: i64 = 0

    def finished(self) -> None:
        self.store.on_append(self)


class _Checkpoint(WriteCheckpoint):
    def __init__(self, store: VhostStore, head: CheckpointHead) -> None:
        super().__init__(b"", [], [], [])
        self.store: VhostStore = store
        self.head: CheckpointHead = head
        # The batch it must not be ahead of.
        self.batch_number: i64 = 0
        # Of the files that it deletes.
        self.delete_bytes: i64 = 0
        self.dirty: list[tuple[QueueStore, Segment]] = []
        self.encoder: CheckpointEncoder | None = None

    def encode(self) -> bool:
        encoder = self.encoder
        assert encoder is not None
        if encoder.step(_ENCODED_ROWS):
            return True
        self.content = encoder.content()
        self.encoder = None
        return False

    def finished(self) -> None:
        self.store.on_checkpoint(self)


class VhostStore:
    """Everything one vhost stores. Times in ms."""

    def __init__(self, store_id: bytes, settings: StoreSettings) -> None:
        self.store_id: bytes = store_id
        self.settings: StoreSettings = settings
        self.contents: ContentStore = ContentStore(
            store_id, PERSISTENT_NAME, False, settings.content_file_size_limit
        )
        self.transient_contents: ContentStore = ContentStore(
            store_id, TRANSIENT_NAME, True, settings.content_file_size_limit
        )
        self.journal: Journal = Journal(
            store_id,
            settings.journal_file_size_limit,
            settings.embed_below,
            self.contents,
            settings.buffer_bytes,
        )
        self.index_writer: RecordWriter = RecordWriter(store_id)
        # Those that are durable, and the others.
        self.queues: dict[int, QueueStore] = {}
        self.transient_queues: dict[int, QueueStore] = {}
        self.owner: StoreOwner | None = None
        # Of the last checkpoint on disk.
        self.generation: i64 = 0
        self.first_journal_file: i64 = 0
        # What the start could not read of the journal: (file, start, end) in bytes.
        self.journal_damage: list[tuple[int, int, int]] = []
        # Figures for operators.
        self.checkpoint_count: i64 = 0
        self.checkpoint_failures: i64 = 0
        self.lost_count: i64 = 0
        self.damaged_count: i64 = 0
        # Somebody wants one, whether it is due or not.
        self.is_checkpoint_wanted: bool = False
        # Does `advance` have more to do, without anything happening before?
        self.has_more: bool = False
        self.lane: WriteLane = WriteLane(settings.group_bytes)
        self.backup: BackupHold = BackupHold()
        self.debt: Debt = Debt()
        self.rewriter: SegmentRewriter = SegmentRewriter(self)
        # The one that is being made; held back until the batch it must not be ahead of is durable.
        self._checkpoint: _Checkpoint | None = None
        self._is_held: bool = False
        # Number of the last batch that the flusher is done with.
        self.finished_batch: i64 = 0
        self._checkpoint_at_ms: i64 = 0
        self._jobs: list[StoreJob] = []
        self.now_ms: i64 = 0
        self._loads: list[IndexLoad | ContentLoad] = []
        # Those that are tried again, and when.
        self._failed_loads: list[tuple[i64, IndexLoad | ContentLoad]] = []
        # Appends whose file somebody has deleted.
        self._gone_appends: list[_Append] = []
        # Their live entries are to be counted anew.
        self.damaged_segments: list[tuple[QueueStore, Segment]] = []
        # To be deleted with the next checkpoint, and with the one after it: the one before the last must be good, too.
        self._deletable_paths: list[str] = []
        self._next_delete_bytes: i64 = 0
        # Is there a segment that should be rewritten?
        self._has_stragglers: bool = False
        self._dead_paths: list[str] = []
        self._dead_bytes: i64 = 0
        self._dead_since_ms: i64 = 0
        self._failed_compactions: i64 = 0
        self._compact_at_ms: i64 = 0
        # Contents below these ids may be read.
        self._written_upto: i64 = 1
        self._transient_written_upto: i64 = 1

    # -- queues ----------------------------------------------------------------------------------------------

    def add_queue(self, log: QueueLog, is_durable: bool) -> QueueStore:
        """The store of a queue that is there from now on."""
        queue = QueueStore(self, log, is_durable)
        log.is_durable = is_durable
        if is_durable:
            self.queues[log.queue_id] = queue
            self.journal.logs[log.queue_id] = log
        else:
            self.transient_queues[log.queue_id] = queue
        return queue

    def queue_of(self, path: str) -> QueueStore | None:
        """The queue whose segment has this path, if it is still there."""
        queue_id = int(path.split("/")[-2])
        queues = self.queues if path.startswith(QUEUES_NAME) else self.transient_queues
        return queues.get(queue_id)

    def new_index(self, queue_id: i64, is_durable: bool) -> QueueIndex:
        """An index without segments."""
        path = f"{QUEUES_NAME}/{queue_id}" if is_durable else f"{TRANSIENT_NAME}/{QUEUES_NAME}/{queue_id}"
        return QueueIndex(queue_id, path, self.settings.segment_entries, self.settings.rewrite_min_bytes)

    def on_queue_deleted(self, queue: QueueStore) -> None:
        """Its segments may go; not before the references in them are given up. See `QueueStore.delete`."""
        index = queue.log.index
        if index is not None and index.has_references(0, queue.log.indexed_upto):
            ReferenceRelease(queue).go_on(0)
        else:
            self.drop_queue(queue)

    def drop_queue(self, queue: QueueStore) -> None:
        """Nothing of the queue is needed any more."""
        log = queue.log
        self.queues.pop(log.queue_id, None)
        self.transient_queues.pop(log.queue_id, None)
        self.journal.logs.pop(log.queue_id, None)
        index = log.index
        if index is not None:
            for segment in index.segments:
                index.dead_paths.append(index.path_of(segment))
                index.dead_bytes += segment.size_bytes
            index.segments = []
            self.take_dead_segments(index)

    def restore(self, checkpoint: Checkpoint | None, replay: JournalReplay) -> None:
        """Take over what a start has found; queues take over theirs one by one (`adopt`).

        The persistent content store has been filled already (`content_recovery.py`).
        """
        journal = self.journal
        journal.adopt(replay.files, replay.next_file_number)
        journal.release_serial = replay.release_serial
        self.journal_damage = replay.losses()
        if checkpoint is not None:
            self.generation = checkpoint.head.generation
            self.first_journal_file = checkpoint.head.first_journal_file
        self._written_upto = self.contents.next_id
        for position in replay.return_moves(self._is_lacking):
            log = position.log
            log.is_durable = True
            position.message.content = None
            journal.settle_forgotten(log, position, self.now_ms)

    def adopt(self, queue: QueueStore, recovered: RecoveredQueue) -> None:
        """Give a queue its numbering and its index back."""
        log = queue.log
        found = recovered.log
        found.is_durable = True
        self._drop_lacking(recovered)
        log.next_seq = found.next_seq
        log.delivered_upto = found.delivered_upto
        log.indexed_upto = found.indexed_upto
        log.transient_floor = found.next_seq
        log.index = found.index
        index = found.index
        if index is not None:
            index.rewrite_min_bytes = self.settings.rewrite_min_bytes
            index.snapshot_upto = index.checkpointed_upto = found.indexed_upto
            index.drop_dead_segments(log.indexed_upto)
            self.take_dead_segments(index)

    def _drop_lacking(self, recovered: RecoveredQueue) -> None:
        # The content of a batch that failed, or never came to an end, may be missing while the reference is there.
        for seq, position in list(recovered.positions.items()):
            if self._is_lacking(position):
                del recovered.positions[seq]
                position.message.content = None
                self.journal.settle_forgotten(recovered.log, position, self.now_ms)
                self.lost_count += 1
                if self.owner is not None:
                    self.owner.on_lost(recovered.log.queue_id, 1, seq, seq, "their contents are not there")

    def _is_lacking(self, position: Position) -> bool:
        content = position.content
        return content is not None and self.contents.locate(content.id) is None

    def adopt_deleted(self, recovered: RecoveredQueue, now_ms: i64) -> None:
        """A queue that is gone left this behind: give up what it refers to, then its index."""
        self.forget_positions(recovered, now_ms)
        recovered.positions = {}
        queue = self.add_queue(QueueLog(recovered.log.queue_id), True)
        self.adopt(queue, recovered)
        queue.delete()

    def forget_positions(self, recovered: RecoveredQueue, now_ms: i64) -> None:
        """Nobody needs these positions of the journal."""
        log = recovered.log
        log.is_durable = True
        for position in recovered.positions.values():
            if self._is_lacking(position):
                position.message.content = None
            self.journal.settle_forgotten(log, position, now_ms)

    def delete_later(self, path: str) -> None:
        """A file that nothing needs; it goes with the next checkpoint."""
        self._deletable_paths.append(path)

    def contents_of(self, content: ContentRef) -> ContentStore:
        """The store that holds it."""
        return self.transient_contents if content.transient else self.contents

    def is_content_written(self, content: ContentRef) -> bool:
        """May it be read?"""
        if content.transient:
            return content.id < self._transient_written_upto
        return content.id < self._written_upto

    @property
    def is_checkpointing(self) -> bool:
        """Is a checkpoint under way?"""
        return self._checkpoint is not None

    @property
    def is_behind(self) -> bool:
        """Is more waiting to be written than the disk can be expected to take soon?"""
        return self.lane.waiting_bytes > self.settings.behind_bytes

    @property
    def deletable_bytes(self) -> i64:
        """Bytes of files that nothing needs and that the next checkpoints delete."""
        checkpoint = self._checkpoint
        size: i64 = checkpoint.delete_bytes if checkpoint is not None else 0
        dead = self._dead_bytes + self.contents.dead_bytes + self.transient_contents.dead_bytes
        return size + dead + self._next_delete_bytes

    def figures(self) -> StoreFigures:
        """What is in the store; takes time in proportion to the queues and segments."""
        return StoreFigures(self)

    # -- writing ---------------------------------------------------------------------------------------------

    def append_index(self, path: str, segment: Segment, parts: list[bytes], is_new: bool) -> None:
        """Append to a segment, behind all that was appended before."""
        job = _Append(self, path, segment.size_bytes, parts, is_new)
        job.segment = segment
        self.lane.push(job)

    def write_transient(self) -> None:
        """Write what has gathered in the transient content store."""
        for write in self.transient_contents.take_writes():
            job = _Append(self, write.path, write.offset, write.parts, write.is_new)
            job.content_upto = self.transient_contents.next_id
            self.lane.push(job)

    def submit(self, job: StoreJob) -> None:
        """Hand out a job that waits for no other."""
        self._jobs.append(job)

    def take_jobs(self, now_ms: i64) -> list[StoreJob]:
        """The jobs that are to be run now."""
        self.now_ms = now_ms
        jobs = self._jobs
        self._jobs = []
        jobs.extend(self.lane.start(now_ms))
        return jobs

    def on_append(self, job: _Append) -> None:
        """An append is done, or has failed."""
        if job.is_gone:
            self._gone_appends.append(job)
        for done in self.lane.on_append(job, self.now_ms):
            if isinstance(done, _Append):
                segment = done.segment
                if segment is not None:
                    segment.written_bytes += done.size_bytes
                else:
                    self._transient_written_upto = done.content_upto
        if len(self._gone_appends) > 0 and self.lane.is_at_rest():
            gone = self._gone_appends
            self._gone_appends = []
            for append in gone:
                replace_gone(self, append, append.segment)
        self.resume_loads()

    # -- loads -----------------------------------------------------------------------------------------------

    def wait_for_append(self, load: IndexLoad | ContentLoad) -> None:
        """`load` goes on when more has been written."""
        self._loads.append(load)

    def retry_load(self, load: IndexLoad | ContentLoad, failures: i64) -> None:
        """`load` could not be done just now and is tried again after a pause, the longer the more `failures` came before."""
        pause: i64 = _LOAD_RETRY_MS
        while failures > 0 and pause < _LOAD_RETRY_MAX_MS:
            pause *= 2
            failures -= 1
        self._failed_loads.append((self.now_ms + min(pause, i64(_LOAD_RETRY_MAX_MS)), load))

    def _retry_loads(self) -> None:
        waiting = self._failed_loads
        self._failed_loads = []
        for entry in waiting:
            if self.now_ms >= entry[0]:
                entry[1].read_on()
            else:
                self._failed_loads.append(entry)

    def resume_loads(self) -> None:
        """What loads wait for may have come."""
        if len(self.damaged_segments) > 0:
            recount_segments(self)
        loads = self._loads
        self._loads = []
        for load in loads:
            load.read_on()

    # -- after a commit --------------------------------------------------------------------------------------

    def on_batch_done(self, batch: Batch, ok: bool, now_ms: i64) -> None:
        """The flusher has finished `batch`, the oldest under way, by now (ms)."""
        number = batch.number
        self.journal.on_done(batch, ok, now_ms)
        self.finished_batch = number
        if ok:
            self._written_upto = batch.content_upto
        checkpoint = self._checkpoint
        if checkpoint is not None and self._is_held:
            if not ok and checkpoint.batch_number == number:
                # It counts contents that are not there: another one is taken.
                self._give_up(checkpoint)
            elif checkpoint.batch_number <= number:
                self._is_held = False
                self.lane.push(checkpoint)
        self.rewriter.work()
        self.resume_loads()

    def advance(self, now_ms: i64) -> None:
        """Retire journal files, rewrite, compact, take checkpoints: a slice of what is due. Called behind a seal."""
        self.now_ms = now_ms
        self.has_more = self.lane.is_retrying()
        for index in self.journal.take_dead_indexes():
            self.take_dead_segments(index)
        self._retry_loads()
        self.has_more = self.has_more or len(self._failed_loads) > 0
        self._compact()
        self.rewriter.work()
        if self._checkpoint is not None or now_ms < self._checkpoint_at_ms:
            return
        is_due = self._is_space_due() or self.is_checkpoint_wanted
        for file in self.journal.files_to_retire(self.first_journal_file):
            owner = self.owner
            if file.live_bytes > 0 and owner is not None and not owner.retire(file):
                # More of it in the next turn. A checkpoint that somebody waits for, as a start does, covers the journal
                # as it is, however long that has become.
                self.has_more = True
                if not self.is_checkpoint_wanted:
                    return
                break
            if file.live_bytes == 0 and self.journal.first_needed_file() > self.first_journal_file:
                is_due = True
        if not is_due:
            return
        if self.journal.has_settled():
            # Settled since the seal: the accounts do not know yet.
            self.journal.is_wanted = True
            self.has_more = True
            return
        self._take_checkpoint()

    def has_dead_files(self) -> bool:
        """Are there files that nobody needs any more, for checkpoints to delete? Those of the journal do not count."""
        return len(self._dead_paths) + len(self._deletable_paths) > 0 or self.contents.dead_bytes > 0

    def _is_space_due(self) -> bool:
        dead = self._dead_bytes + self.contents.dead_bytes
        if not self.has_dead_files() and not self._has_stragglers:
            self._dead_since_ms = 0
            return False
        if self._dead_since_ms == 0:
            self._dead_since_ms = self.now_ms
        return dead >= self.settings.dead_bytes or self.now_ms - self._dead_since_ms >= _DEAD_PATIENCE_MS

    def take_dead_segments(self, index: QueueIndex) -> None:
        """Segments without a live entry are deleted with the next checkpoints, those with few are rewritten then."""
        self._has_stragglers = self._has_stragglers or index.has_stragglers
        if len(index.dead_paths) > 0:
            self._dead_paths.extend(index.dead_paths)
            self._dead_bytes += index.dead_bytes
            index.dead_paths = []
            index.dead_bytes = 0

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _take_checkpoint(self) -> None:
        self.is_checkpoint_wanted = False
        contents = self.contents
        journal_file, journal_offset = self.journal.end()
        head = CheckpointHead(
            self.generation + 1,
            self.journal.first_needed_file(),
            contents.next_id,
            self.journal.release_serial,
            contents.next_file_number,
            journal_file,
            journal_offset,
        )
        for damage in self.journal_damage:
            if damage[0] >= head.first_journal_file:
                head.damage.append(damage)
        job = _Checkpoint(self, head)
        rows: list[bytes] = []
        for queue in self.queues.values():
            rows.append(self._row_of(queue, job))
        job.encoder = CheckpointEncoder(self.store_id, head, rows, contents.checkpoint_rows())
        job.batch_number = self.journal.last_sealed()
        journal_bytes = self.journal.total_bytes()
        job.delete_bytes = self._next_delete_bytes + self.transient_contents.dead_bytes
        self._next_delete_bytes = self._dead_bytes + contents.dead_bytes
        job.delete_paths = self._deletable_paths + self.transient_contents.take_dead_paths()
        self._deletable_paths = self._dead_paths + contents.take_dead_paths()
        self._dead_paths = []
        self._dead_bytes = 0
        self._dead_since_ms = 0
        # One generation later than they could.
        for number in self.journal.forget_files(self.first_journal_file):
            job.delete_paths.append(f"journal/{number}.wal")
        job.delete_bytes += journal_bytes - self.journal.total_bytes()
        job.delete_paths = self.backup.delete_paths(job.delete_paths)
        self.backup.on_taken(self, head.first_journal_file)
        self._checkpoint = job
        self._is_held = job.batch_number > self.finished_batch
        if not self._is_held:
            self.lane.push(job)

    def _row_of(self, queue: QueueStore, job: _Checkpoint) -> bytes:
        log = queue.log
        index = log.index
        version: i64 = 0
        if index is not None:
            self.rewriter.leave_tail(queue, index)
            version = index.version
            index.snapshot_upto = log.indexed_upto
            if index.has_dirty:
                index.has_dirty = False
                for segment in index.segments:
                    if segment.is_dirty:
                        path = index.path_of(segment)
                        job.sync_paths.append(path)
                        if segment.is_new:
                            job.new_paths.append(path)
                        segment.is_dirty = False
                        job.dirty.append((queue, segment))
        version += log.next_seq + log.delivered_upto + log.indexed_upto
        if version != queue.row_version:
            queue.row = encode_queue(log, queue.is_deleted)
            queue.row_version = version
        return queue.row

    def on_checkpoint(self, job: _Checkpoint) -> None:
        """A checkpoint is on disk, or has failed."""
        self.lane.on_other()
        if len(job.gone) > 0:
            give_up_gone(job.dirty, job.gone)
        if job.error is not None:
            self.checkpoint_failures += 1
            for queue, segment in job.dirty:
                index = queue.log.index
                if index is not None and index.path_of(segment) in job.unsynced:
                    # The next sync would not say what this one may have lost.
                    self.rewriter.rewrite_whole(queue, segment, index.path_of(segment))
            self._give_up(job)
            self._checkpoint_at_ms = self.now_ms + _CHECKPOINT_RETRY_MS
            return
        for _queue, segment in job.dirty:
            segment.is_new = False
        self._checkpoint = None
        self.checkpoint_count += 1
        self.generation = job.head.generation
        self.first_journal_file = job.head.first_journal_file
        self._deletable_paths.extend(job.undeleted)
        self._has_stragglers = self.rewriter.look()
        self.backup.on_checkpoint(self, job.content)
        self.resume_loads()

    def _give_up(self, job: _Checkpoint) -> None:
        self._checkpoint = None
        self.backup.on_checkpoint(self, None)
        self._deletable_paths.extend(job.delete_paths)
        self._next_delete_bytes += job.delete_bytes
        for queue, segment in job.dirty:
            segment.is_dirty = True
            if queue.log.index is not None:
                queue.log.index.has_dirty = True
        self.is_checkpoint_wanted = True
        self.has_more = True

    # -- compaction ------------------------------------------------------------------------------------------

    def _compact(self) -> None:
        for contents in (self.contents, self.transient_contents):
            for content_id in contents.take_damaged():
                self.lost_count += 1
                if self.owner is not None:
                    self.owner.on_content_lost(contents.directory_name, content_id)
            if contents.failed_compactions > self._failed_compactions:
                self._compact_at_ms = self.now_ms + _COMPACTION_RETRY_MS
        self._failed_compactions = max(
            self.contents.failed_compactions, self.transient_contents.failed_compactions
        )
        # For a start on a backup, a content is where it was at the checkpoint or where the journal behind it says.
        if self.now_ms < self._compact_at_ms or self.backup.is_on:
            return
        for contents in (self.contents, self.transient_contents):
            job = contents.pick_compaction()
            if job is not None:
                job.is_urgent = self.debt.payable_bytes > 0
                self._jobs.append(job)
