"""The store of one vhost: journal, queue indexes, content stores and the checkpoints over them.

The shell drives the store: it calls `advance` after each seal of the journal, gives the jobs of
`take_jobs` to its threads, and calls each job's `finished` when it is done. This module decides
when journal files retire: when the journal outgrows its window, `StoreHost.retire` moves the live
positions of the oldest files to the queues' indexes; then a checkpoint is taken and the files are
deleted. They are deleted one generation later than they could be, so that the checkpoint before the
last one stays usable.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.contents.store import ContentStore
from warrenmq.store.contents.stored_contents import StoredContents
from warrenmq.store.index.losses import LossReport
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.index.segment_loss import SegmentLoss
from warrenmq.store.jobs.job import StoreJob
from warrenmq.store.jobs.job_queue import JobQueue
from warrenmq.store.journal.batch import Batch
from warrenmq.store.journal.journal import Journal
from warrenmq.store.journal.window import DeadFiles, files_to_retire
from warrenmq.store.model.layout import PERSISTENT_NAME, TRANSIENT_NAME
from warrenmq.store.model.message import Position, QueueLedger
from warrenmq.store.model.store_host import StoreHost
from warrenmq.store.records.checkpoint import Checkpoint
from warrenmq.store.recovery import JournalReplay, RecoveredQueue
from warrenmq.store.settings import StoreSettings
from warrenmq.store.upkeep.backup_pins import BackupPins
from warrenmq.store.upkeep.checkpoints import Checkpoints
from warrenmq.store.upkeep.compaction import Compaction
from warrenmq.store.upkeep.compaction_log import CompactionLog
from warrenmq.store.upkeep.debt import Debt
from warrenmq.store.upkeep.segment_rewrite import SegmentRewriter


class VhostStore:
    """Everything one vhost stores. Times in ms."""

    def __init__(self, store_id: bytes, settings: StoreSettings) -> None:
        self.store_id: bytes = store_id
        self.settings: StoreSettings = settings
        size_limit = settings.content_file_size_limit
        self.contents: StoredContents = StoredContents(
            ContentStore(store_id, PERSISTENT_NAME, False, size_limit),
            ContentStore(store_id, TRANSIENT_NAME, True, size_limit),
        )
        self.journal: Journal = Journal(
            store_id,
            settings.journal_file_size_limit,
            settings.embed_below,
            self.contents.persistent,
            settings.buffer_bytes,
        )
        self.jobs: JobQueue = JobQueue(settings.group_bytes, settings.hold_bytes)
        self.files: SegmentFiles = SegmentFiles(store_id, settings, self.jobs, self.contents)
        self._loss: SegmentLoss = SegmentLoss(self.files)
        self.files.replace_gone = self._loss.replace
        # Durable queues, by queue id.
        self.queues: dict[int, QueueStore] = {}
        # Queues that are not durable, by queue id.
        self.transient_queues: dict[int, QueueStore] = {}
        self.debt: Debt = Debt()
        self.dead_files: DeadFiles = DeadFiles()
        self.backup: BackupPins = BackupPins(
            self.journal, self.contents.persistent, self.queues, self.files.needs, self.files.logs
        )
        self.rewriter: SegmentRewriter = SegmentRewriter(
            self.files, self.journal, self.queues, self.transient_queues, self.backup, self.debt
        )
        self.checkpoints: Checkpoints = Checkpoints(
            self.files, self._loss, self.journal, self.queues, self.backup, self.rewriter
        )
        self._compaction: Compaction = Compaction(
            self.contents,
            self.jobs,
            self.files.losses,
            self.backup,
            self.debt,
            self.files.needs,
        )
        self.compaction_log: CompactionLog = CompactionLog()
        self._queue_access: StoreHost | None = None
        # `advance` has more to do in the next turn, even if nothing happens before.
        self.has_more: bool = False

    def check(self) -> None:
        """Assert the invariants that hold between operations; for tests and the simulator."""
        self.journal.check()
        self.contents.persistent.check()
        self.contents.transient.check()
        for queues in (self.queues, self.transient_queues):
            for queue in queues.values():
                index = queue.ledger.index
                if index is not None:
                    index.check(queue.ledger.indexed_upto)

    def set_host(self, store_host: StoreHost, report: LossReport) -> None:
        """Set the access to the queues, and the receiver of loss reports."""
        self._queue_access = store_host
        self._loss.store_host = store_host
        self.rewriter.store_host = store_host
        self.files.losses.report = report

    # -- queues ------------------------------------------------------------------------------------

    def add_queue(self, ledger: QueueLedger, is_durable: bool) -> QueueStore:
        """Add a queue and return its store."""
        siblings = self.queues if is_durable else self.transient_queues
        queue = QueueStore(self.files, self._loss, self.journal, siblings, ledger, is_durable)
        ledger.is_durable = is_durable
        siblings[ledger.queue_id] = queue
        if is_durable:
            self.journal.ledgers[ledger.queue_id] = ledger
        return queue

    def restore(self, checkpoint: Checkpoint | None, replay: JournalReplay) -> None:
        """Take over the recovered journal and checkpoint; `adopt` does so for each queue.

        The persistent content store must be filled already (`contents/recovery.py`).
        """
        journal = self.journal
        journal.adopt(replay.files, replay.next_file_number)
        journal.release_serial = replay.release_serial
        in_journal = {file.number for file in replay.files}
        for log in replay.logs.values():
            if log.number not in in_journal:
                self.files.logs.retain(log, log.size_bytes)
                self.files.needs.take_dead_log(log)
        self.checkpoints.journal_damage = replay.losses()
        if checkpoint is not None:
            self.checkpoints.generation = checkpoint.head.generation
            self.checkpoints.first_journal_file = checkpoint.head.first_journal_file
            self.checkpoints.earlier_published_bytes = checkpoint.head.published_bytes
            self.checkpoints.earlier_written_bytes = checkpoint.head.written_bytes
        self.contents.written_upto = self.contents.persistent.next_id
        for position in replay.return_moves(self._is_lacking):
            ledger = position.ledger
            ledger.is_durable = True
            position.message.content_ref = None
            journal.settle_forgotten(ledger, position, self.jobs.now_ms)

    def adopt(self, queue: QueueStore, recovered: RecoveredQueue) -> None:
        """Give a recovered queue its numbering and its index; drops positions without content."""
        ledger = queue.ledger
        found = recovered.ledger
        found.is_durable = True
        self._drop_lacking(recovered)
        ledger.next_seq = found.next_seq
        ledger.delivered_upto = found.delivered_upto
        ledger.delivered = found.delivered
        ledger.epochs = found.epochs
        ledger.indexed_upto = found.indexed_upto
        ledger.transient_floor = found.next_seq
        ledger.index = found.index
        index = found.index
        if index is not None:
            index.rewrite_min_bytes = self.settings.rewrite_min_bytes
            index.snapshot_upto = index.checkpointed_upto = found.indexed_upto
            index.note_open_segment(found.indexed_upto)
            index.drop_dead_segments(ledger.indexed_upto)
            self.files.needs.take_dead_segments(index)

    def _drop_lacking(self, recovered: RecoveredQueue) -> None:
        # A batch that failed or was never finished may leave a reference whose content is missing.
        for seq, position in list(recovered.positions.items()):
            if self._is_lacking(position):
                del recovered.positions[seq]
                position.message.content_ref = None
                self.journal.settle_forgotten(recovered.ledger, position, self.jobs.now_ms)
                self.files.losses.add_messages(
                    recovered.ledger.queue_id, 1, seq, seq, "their contents are not there"
                )

    def _is_lacking(self, position: Position) -> bool:
        content = position.content_ref
        return content is not None and self.contents.persistent.locate(content.id) is None

    def adopt_deleted(self, recovered: RecoveredQueue, now_ms: i64) -> None:
        """Release the references that a deleted queue left behind, then drop its index."""
        self.forget_positions(recovered, now_ms)
        recovered.positions = {}
        queue = self.add_queue(QueueLedger(recovered.ledger.queue_id), True)
        self.adopt(queue, recovered)
        queue.delete()

    def forget_queue(self, recovered: RecoveredQueue, now_ms: i64) -> None:
        """Settle and drop a recovered queue without a usable definition; its segments stay.

        The next checkpoint does not know the queue.
        """
        self.forget_positions(recovered, now_ms)
        index = recovered.ledger.index
        if index is not None:
            index.stretches.clear()
            self.files.needs.take_dead_segments(index)

    def forget_positions(self, recovered: RecoveredQueue, now_ms: i64) -> None:
        """Settle the journal positions of a recovered queue that nothing needs any more."""
        ledger = recovered.ledger
        ledger.is_durable = True
        for position in recovered.positions.values():
            if self._is_lacking(position):
                position.message.content_ref = None
            self.journal.settle_forgotten(ledger, position, now_ms)

    # -- turns -------------------------------------------------------------------------------------

    def take_jobs(self, now_ms: i64) -> list[StoreJob]:
        """The jobs to run now."""
        return self.jobs.take(now_ms)

    def on_batch_done(self, batch: Batch, ok: bool, now_ms: i64) -> None:
        """Release what waited for `batch`, the oldest one at the flusher; `ok`: it is durable."""
        self.journal.on_done(batch, ok, now_ms)
        if ok:
            self.contents.written_upto = batch.content_upto
        self.checkpoints.on_batch_done(batch.number, ok)
        self.rewriter.advance()
        self.files.resume_loads()

    def advance(self, now_ms: i64) -> None:
        """Do a slice of the due work: retire files, rewrite, compact, take a checkpoint.

        Called after each seal of the journal.
        """
        jobs = self.jobs
        loads = self.files.loads
        needs = self.files.needs
        checkpoints = self.checkpoints
        jobs.now_ms = now_ms
        self.has_more = jobs.lane.is_retrying()
        for index in self.journal.take_dead_indexes():
            needs.take_dead_segments(index)
        loads.retry_due(now_ms)
        damaged = self.files.damaged
        if damaged.is_retrying():
            damaged.recount()
        self.has_more = self.has_more or loads.is_retrying() or damaged.is_retrying()
        self._compaction.submit_jobs(now_ms)
        self.rewriter.advance()
        if not checkpoints.may_take(now_ms):
            return
        is_due = checkpoints.is_due(now_ms)
        first_file = checkpoints.first_journal_file
        for file in files_to_retire(self.journal, first_file, self.dead_files.is_disk_low):
            store_host = self._queue_access
            if file.live_bytes > 0 and store_host is not None and not store_host.retire(file):
                # The next turn moves more of this file. A requested checkpoint, as at a start, does
                # not wait for that: it covers the journal as it is, however long.
                self.has_more = True
                if not needs.is_wanted:
                    return
                break
            if file.live_bytes == 0 and self.journal.first_needed_file() > first_file:
                is_due = True
        if self.dead_files.is_due(self.journal, now_ms):
            if self.dead_files.ends_file(self.journal):
                # The next seal begins a file; then the checkpoint is due.
                self.journal.request_file()
                self.journal.is_wanted = True
            else:
                is_due = True
        if not is_due:
            return
        if self.journal.has_settled():
            # Positions were settled after the seal, and the accounts do not know them yet: seal
            # again.
            self.journal.is_wanted = True
            self.has_more = True
            return
        checkpoints.take()
        self.dead_files.on_checkpoint()
