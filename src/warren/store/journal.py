"""The journal of one vhost: group commit, and when a journal file may go.

Engine side, without I/O. Publishes and acks of all queues gather in one batch; `seal` encodes the batch, the flusher
writes and syncs it, and `on_done` releases everything that waited: confirms, transactions, metadata changes. While
one batch is being synced the next one gathers, so the slower the disk, the larger the batch (S17-S19, W8).

What is settled before its batch is sealed is never written: a queue that keeps up costs no content writes. A confirm
leaves only when its batch is durable, or when nothing of the message is left to lose (G1, section 6 "Confirms").

Files. The journal is a sequence of `<n>.wal` files, the newest open for writing. They are deleted from the oldest end
only: an ack record is needed exactly as long as the file with its publish exists, and deleting in order keeps that
true without bookkeeping. When less than half of the bytes on disk are live, the live messages of the oldest file are
appended again at the young end and the file goes (G8: at most 2 x live + a constant). Each file begins with the state
of every durable queue, so numbering never depends on a deleted file.

Failure. A batch whose write or sync failed is lost: its publishes are nacked, never confirmed later (W27), its acks go
into the next batch, and the next batch starts a new file, because what the old one holds behind the failure is unknown.
Part of it may well be on disk, so the next batch also acks what the failed one published: it lives on in memory only,
and does not come back after a restart when a consumer has taken it meanwhile (G2). In a batch acks stand before
publishes, so that a position that is journaled again after such an ack is not hit by it.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64, mypyc_attr

from warren.store.content_store import ContentWrite
from warren.store.message import (
    NOT_JOURNALED,
    PENDING,
    SETTLED,
    WRITTEN,
    JournalFile,
    Message,
    Position,
    QueueLog,
)
from warren.store.record import RecordWriter

# Seal without waiting for the tick when this much has gathered (S17).
BUFFER_BYTES: Final = 1048576
# Oldest age of a gathered entry that nobody waits for (S18).
FLUSH_INTERVAL_MS: Final = 25
# Above 2 x live, this many whole files of garbage are tolerated before relocation begins.
SPARE_FILES: Final = 4
# Relocated positions per step; bounds the pause of everything else on the loop (W19).
RELOCATE_SLICE: Final = 2048


@mypyc_attr(allow_interpreted_subclasses=True)
class ConfirmWaiter:
    """Someone whose publishes are confirmed in order of `publish_seq`: a channel in confirm mode."""

    def __init__(self) -> None:
        self.publish_seq: i64 = 0
        self.batches_in_flight: i64 = 0
        self.batch_number: i64 = -1

    def on_durable(self, upto: i64, ok: bool) -> None:
        """Everything up to publish sequence `upto` is decided: durable, or lost when not `ok`."""
        raise RuntimeError("abstract")


class Batch:
    """What one group commit makes durable, and who waits for it."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.positions: list[Position] = []
        self.waiters: list[ConfirmWaiter] = []
        self.waiters_upto: list[i64] = []
        self.callbacks: list[Callable[[bool], None]] = []
        # Metadata changes that ride along; made durable before the journal bytes.
        self.changes: list[object] = []
        self.acks: list[tuple[QueueLog, list[tuple[i64, i64]]]] = []
        # (positions, the file they left) of relocated messages.
        self.relocated: list[tuple[Message, JournalFile, i64]] = []
        # For the flusher: large contents, made durable before the journal bytes that refer to them.
        self.content_writes: list[ContentWrite] = []
        # For the flusher: what to write where, and which files to delete afterwards.
        self.parts: list[bytes] = []
        self.file_number: i64 = 0
        self.starts_file: bool = False
        self.delete_files: list[int] = []
        # Set by the flusher: is the file made, and those of `delete_files` that are still there.
        self.created_file: bool = False
        self.undeleted: list[int] = []

    def has_work(self) -> bool:
        """Must the flusher run, or is there nothing to make durable?"""
        return len(self.parts) > 0 or len(self.changes) > 0 or len(self.delete_files) > 0


class Journal:
    """Group commit over the journal files of one vhost. Sizes in bytes, times in ms."""

    def __init__(self, store_id: bytes, file_size_limit: i64) -> None:
        self.store_id: bytes = store_id
        self.file_size_limit: i64 = file_size_limit
        self.files: list[JournalFile] = []
        self.batch: Batch = Batch(1)
        self.pending_bytes: i64 = 0
        self.oldest_pending_ms: i64 = 0
        self.in_flight: list[Batch] = []
        self.dirty_logs: list[QueueLog] = []
        # Every durable queue's log, for the states at the head of each file.
        self.logs: dict[int, QueueLog] = {}
        self.failed_count: i64 = 0
        self._writer: RecordWriter = RecordWriter(store_id)
        self._relocating: JournalFile | None = None
        self._relocate_list: list[Position] = []
        self._relocate_next: i64 = 0
        self._needs_new_file: bool = True
        self._next_file_number: i64 = 1
        self._clean_stop: bool = False
        self._wants_file: bool = False
        # Files whose deletion failed, or was lost with a failed batch.
        self._undeleted: list[int] = []

    # -- what the queues say ---------------------------------------------------------------------------------

    def publish(self, position: Position, now_ms: i64) -> None:
        """Gather a position. Positions of one message must follow each other to share one record."""
        position.journal_state = PENDING
        batch = self.batch
        if len(batch.positions) == 0:
            self.oldest_pending_ms = now_ms
        batch.positions.append(position)
        message = position.message
        self.pending_bytes += 64 + len(message.body) + len(message.properties)

    def settle(self, position: Position, now_ms: i64) -> None:
        """The position is acked, dropped or expired. Costs nothing when it was not written yet."""
        state = position.journal_state
        if state == WRITTEN:
            message = position.message
            message.journal_refs -= 1
            if message.journal_refs == 0:
                file = message.file
                if file is not None:
                    file.live_bytes -= message.stored_bytes
                    message.file = None
            self._log_ack(position, now_ms)
            position.journal_state = NOT_JOURNALED
        elif state == PENDING:
            position.journal_state = SETTLED
            self.pending_bytes -= 64 + len(position.message.body) + len(position.message.properties)
            if position.message.file is not None:
                # Under relocation: its old record is still on disk and must not come back.
                self._log_ack(position, now_ms)

    def confirm_with_batch(self, waiter: ConfirmWaiter) -> None:
        """Tell `waiter` when everything gathered so far is durable."""
        batch = self.batch
        if waiter.batch_number != batch.number:
            waiter.batch_number = batch.number
            waiter.batches_in_flight += 1
            batch.waiters.append(waiter)

    def when_durable(self, changes: list[object], done: Callable[[bool], None]) -> None:
        """Call `done(ok)` when everything gathered so far, and `changes` of the metadata, are durable."""
        self.batch.changes.extend(changes)
        self.batch.callbacks.append(done)

    def add_changes(self, changes: list[object]) -> None:
        """Metadata changes nobody waits for; they ride with the next batch."""
        self.batch.changes.extend(changes)

    def has_changes_under_way(self) -> bool:
        """Are there metadata changes that are not durable yet, or whose commit failed and is tried again?"""
        if len(self.batch.changes) > 0:
            return True
        for batch in self.in_flight:  # noqa: SIM110  # compiled, a generator costs more than the loop
            if len(batch.changes) > 0:
                return True
        return False

    def forget_queue(self, log: QueueLog) -> None:
        """The queue is deleted: it has no state to write any more."""
        self.logs.pop(log.queue_id, None)

    # -- when to commit --------------------------------------------------------------------------------------

    def is_due(self, now_ms: i64) -> bool:
        """Should a batch be sealed now, given that the flusher is free?"""
        batch = self.batch
        if len(batch.waiters) > 0 or len(batch.callbacks) > 0 or len(batch.changes) > 0:
            return True
        if self.pending_bytes >= BUFFER_BYTES:
            return True
        if len(batch.positions) > 0 or len(self.dirty_logs) > 0:
            return now_ms - self.oldest_pending_ms >= FLUSH_INTERVAL_MS
        return self._clean_stop

    def has_pending(self) -> bool:
        """Is anything gathered that a later commit must carry?"""
        batch = self.batch
        return (
            len(batch.positions) > 0
            or len(self.dirty_logs) > 0
            or len(batch.waiters) > 0
            or len(batch.callbacks) > 0
            or len(batch.changes) > 0
        )

    def seal(self) -> Batch:
        """Encode what has gathered and start the next batch. The caller hands the batch to the flusher, in order."""
        batch = self.batch
        self.batch = Batch(batch.number + 1)
        self.pending_bytes = 0
        for waiter in batch.waiters:
            batch.waiters_upto.append(waiter.publish_seq)
        writer = self._writer
        batch.starts_file = self._open_file_if_due(batch)
        current = self.files[-1] if len(self.files) > 0 else None
        for log in self.dirty_logs:
            runs = log.take_runs()
            if len(runs) > 0 and log.queue_id in self.logs:
                writer.ack(log.queue_id, runs)
                batch.acks.append((log, runs))
        self.dirty_logs = []
        if current is not None:
            self._write_positions(batch, current)
        if self._clean_stop:
            for log in self.logs.values():
                writer.queue_state(log)
            writer.clean_stop()
            self._clean_stop = False
        if current is not None:
            batch.file_number = current.number
            current.size_bytes += writer.size_bytes
        batch.parts = writer.take()
        batch.delete_files = self._dead_files()
        self.in_flight.append(batch)
        return batch

    def adopt(self, files: list[JournalFile]) -> None:
        """Take over the files that recovery found; writing goes on in a new one."""
        self.files = files
        if len(files) > 0:
            self._next_file_number = files[-1].number + 1

    def request_file(self) -> None:
        """The next sealed batch starts a file in any case: from then on, a clean stop before it does not count."""
        self._wants_file = True

    def request_clean_stop(self) -> None:
        """The next sealed batch ends with the states of all queues and the mark of an orderly stop."""
        self._clean_stop = True

    def on_done(self, batch: Batch, ok: bool) -> None:
        """The flusher finished `batch`, the oldest in flight: release what waited."""
        self.in_flight.pop(0)
        if ok:
            self._undeleted.extend(batch.undeleted)
            for _message, left_file, stored_bytes in batch.relocated:
                left_file.live_bytes -= stored_bytes
        else:
            self._on_failed(batch)
        for index in range(len(batch.waiters)):
            waiter = batch.waiters[index]
            waiter.batches_in_flight -= 1
            waiter.on_durable(batch.waiters_upto[index], ok)
        for callback in batch.callbacks:
            callback(ok)

    # -- relocation ------------------------------------------------------------------------------------------

    def total_bytes(self) -> i64:
        """Bytes of all journal files."""
        total: i64 = 0
        for file in self.files:
            total += file.size_bytes
        return total

    def live_bytes(self) -> i64:
        """Bytes of records that some queue still needs."""
        total: i64 = 0
        for file in self.files:
            total += file.live_bytes
        return total

    def file_to_relocate(self) -> JournalFile | None:
        """The oldest file, when more than half of the disk is garbage and no relocation is under way."""
        if self._relocating is not None or len(self.files) < 2:
            return None
        if self.total_bytes() <= 2 * self.live_bytes() + SPARE_FILES * self.file_size_limit:
            return None
        return self.files[0]

    def start_relocation(self, file: JournalFile, positions: list[Position]) -> None:
        """Begin to move the live `positions` (all that `file` holds, one message's next to each other)."""
        self._relocating = file
        self._relocate_list = positions
        self._relocate_next = 0

    def relocate_slice(self, now_ms: i64) -> bool:
        """Append the next positions again; False when no relocation is under way."""
        file = self._relocating
        if file is None:
            return False
        positions = self._relocate_list
        index = self._relocate_next
        end = index + RELOCATE_SLICE
        count: i64 = len(positions)
        while index < count and (index < end or positions[index].message is positions[index - 1].message):
            position = positions[index]
            message = position.message
            if message.file is file and position.journal_state == WRITTEN:
                self.publish(position, now_ms)
            index += 1
        self._relocate_next = index
        if index >= count:
            self._relocating = None
            self._relocate_list = []
        return True

    # -- inside ----------------------------------------------------------------------------------------------

    def _log_ack(self, position: Position, now_ms: i64) -> None:
        if len(self.dirty_logs) == 0 and len(self.batch.positions) == 0:
            self.oldest_pending_ms = now_ms
        position.log.add_ack(position.seq)
        self._mark_dirty(position.log)

    def _mark_dirty(self, log: QueueLog) -> None:
        if not log.is_dirty:
            log.is_dirty = True
            self.dirty_logs.append(log)

    def _open_file_if_due(self, batch: Batch) -> bool:
        has_bytes = len(batch.positions) > 0 or len(self.dirty_logs) > 0 or self._clean_stop
        if not has_bytes and not self._wants_file:
            return False
        self._wants_file = False
        if not self._needs_new_file and self.files[-1].size_bytes < self.file_size_limit:
            return False
        self._needs_new_file = False
        file = JournalFile(self._next_file_number)
        self._next_file_number += 1
        self.files.append(file)
        self._writer.file_header(self.store_id, file.number)
        for log in self.logs.values():
            self._writer.queue_state(log)
        return True

    def _write_positions(self, batch: Batch, current: JournalFile) -> None:
        positions = batch.positions
        writer = self._writer
        kept: list[Position] = []
        index: i64 = 0
        count: i64 = len(positions)
        while index < count:
            message = positions[index].message
            first: i64 = len(kept)
            while index < count and positions[index].message is message:
                if positions[index].journal_state == PENDING:
                    kept.append(positions[index])
                index += 1
            last: i64 = len(kept)
            if last == first:
                self._forget_relocated(message)
                continue
            self._place(message, current, batch, last - first, writer.publish(message, kept, first, last))
        batch.positions = kept

    def _place(
        self, message: Message, current: JournalFile, batch: Batch, refs: i64, stored_bytes: i64
    ) -> None:
        left_file = message.file
        if left_file is not None:
            # The old record counts as live until the new one is durable, which keeps its file from being deleted.
            batch.relocated.append((message, left_file, message.stored_bytes))
        message.file = current
        message.stored_bytes = stored_bytes
        message.journal_refs = refs
        current.live_bytes += stored_bytes

    def _forget_relocated(self, message: Message) -> None:
        # All positions of a message under relocation were settled meanwhile: nobody counted its old record down.
        file = message.file
        if file is not None:
            file.live_bytes -= message.stored_bytes
            message.file = None

    def _dead_files(self) -> list[int]:
        dead = self._undeleted
        self._undeleted = []
        while len(self.files) > 1 and self.files[0].live_bytes == 0 and self.files[0] is not self._relocating:
            dead.append(self.files.pop(0).number)
        return dead

    def _on_failed(self, batch: Batch) -> None:
        self.failed_count += 1
        self._needs_new_file = True
        self._undeleted.extend(batch.delete_files)
        for message, left_file, stored_bytes in batch.relocated:
            if message.file is None:
                left_file.live_bytes -= stored_bytes
            else:
                message.file.live_bytes -= message.stored_bytes
                message.file = left_file
                message.stored_bytes = stored_bytes
        for position in batch.positions:
            message = position.message
            file = message.file
            if position.journal_state != WRITTEN or file is None or file.number != batch.file_number:
                continue
            position.journal_state = NOT_JOURNALED
            message.journal_refs -= 1
            if message.journal_refs == 0:
                file.live_bytes -= message.stored_bytes
                message.file = None
            position.log.add_ack(position.seq)
            self._mark_dirty(position.log)
        for log, runs in batch.acks:
            log.runs.extend(runs)
            self._mark_dirty(log)
        if batch.starts_file:
            # Nothing in it counts. The flusher has tried to remove it; the next batch makes sure.
            file = self.files.pop()
            if batch.created_file:
                self._undeleted.append(file.number)
        # Metadata changes are idempotent puts and deletes: they are tried again until they are on disk.
        self.batch.changes = batch.changes + self.batch.changes
