"""The journal of one vhost: group commit, and when a journal file may be deleted.

Engine side, without I/O. Publishes and acks of all queues gather in one batch; `seal` encodes the
batch, the flusher writes and syncs it, and `on_done` releases everything that waited: confirms,
transactions, metadata changes. While one batch is being synced the next one gathers, so the slower
the disk, the larger the batch (S17-S19, W8).

A message settled before its batch is sealed is never written: a queue that keeps up costs no
content writes. A confirm leaves only when its batch is durable, or when nothing of the message is
left to lose (G1, protocol 6, "Confirms").

Files. The journal is a sequence of `<n>.wal` files, the newest open for writing. A file retires
when nothing in it is needed any more: every position it holds is settled, or has moved to its
queue's index. When the journal outgrows its window (`window.py`), the oldest files are made
to retire. Retired files are deleted from the oldest end only, after a checkpoint: an ack record is
needed exactly as long as the publish it belongs to, and deleting in order keeps that true without
bookkeeping.

Large messages. The content of a message of `embed_below` bytes or more goes to the content store
when the batch is sealed; the journal holds a reference. The flusher syncs contents before the
journal, so a reference on disk has its content. The release of a reference is a record of its own
(RELEASE) with a serial number: a release counted twice after a crash would lose a content.

`moves.py` has the messages that are handed over.

Failed batches. A batch that fails may have left bytes on the disk. Its publishes are nacked and its
file is abandoned (W27). The next batch retracts the leftovers (RETRACT), before its own publishes,
so that a position that is journaled again behind the retraction counts. A position that moves to
the index meanwhile stays there: a retraction is about the journal's records only.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from warrenmq.store.contents.store import ContentStore
from warrenmq.store.journal.batch import Batch
from warrenmq.store.journal.change_sets import ChangeLine
from warrenmq.store.journal.message_writer import MessageWriter
from warrenmq.store.journal.moves import Moves
from warrenmq.store.model.message import (
    INDEXED,
    NOT_JOURNALED,
    PENDING,
    SETTLED,
    WRITTEN,
    ContentRef,
    JournalFile,
    MovedMessage,
    Position,
    QueueLedger,
)
from warrenmq.store.model.queue_index import QueueIndex
from warrenmq.store.model.runs import Runs, merge_runs
from warrenmq.store.records.content import Release, write_release
from warrenmq.store.records.record import FILE_MAGIC, RecordWriter

# Gathered bytes that make a seal due without waiting for the tick (S17).
BUFFER_BYTES: Final = 1048576
# Longest time (ms) that a gathered entry waits for a seal when no client waits for it (S18). An
# idle node does not wait when the last write is that long ago (S19).
FLUSH_INTERVAL_MS: Final = 25


class Journal:
    """Group commit over the journal files of one vhost. Sizes in bytes, times in ms."""

    def __init__(
        self,
        store_id: bytes,
        file_size_limit: i64,
        embed_below: i64,
        contents: ContentStore,
        buffer_bytes: i64 = BUFFER_BYTES,
    ) -> None:
        self.store_id: bytes = store_id
        self.file_size_limit: i64 = file_size_limit
        self.buffer_bytes: i64 = buffer_bytes
        self.contents: ContentStore = contents
        self.files: list[JournalFile] = []
        self.batch: Batch = Batch(1)
        self.pending_bytes: i64 = 0
        self.oldest_pending_ms: i64 = 0
        self.in_flight: list[Batch] = []
        # Ledgers whose acks the next batch must write.
        self.dirty_ledgers: list[QueueLedger] = []
        # Ledgers of all durable queues, by queue id.
        self.ledgers: dict[int, QueueLedger] = {}
        self.failed_count: i64 = 0
        # Number of the last batch that failed; 0: none did.
        self.last_failed: i64 = 0
        # Number of the batch that carries the acks of a failed batch again; 0: all acks that were
        # sealed are on disk, or on their way.
        self.repeating: i64 = 0
        # Bytes of address, properties and body of journaled messages, each once however many
        # queues it goes to. Hand-overs do not count.
        self.published_bytes: i64 = 0
        # Messages that were written for a queue: by a batch, or when they were paged out.
        self.written_messages: i64 = 0
        # Bytes of records that batches have carried to journal files.
        self.written_bytes: i64 = 0
        # Bytes of large contents that batches have carried to content files.
        self.content_bytes: i64 = 0
        # Changes of definitions that the next batch carries.
        self.definitions: ChangeLine = ChangeLine()
        # Staged messages that were published and whose MOVE is to be written.
        self.moves: Moves = Moves()
        # Starts of epochs that the next batch writes: (queue id, epoch, first seq id).
        self.epochs: list[tuple[i64, i64, i64]] = []
        # Serial number of the last RELEASE record.
        self.release_serial: i64 = 0
        # Commit at once, even when no commit is due: a checkpoint is taken right behind a commit.
        self.is_wanted: bool = False
        # Highest number of a journal file that someone has deleted.
        self.gone_upto: i64 = 0
        # Indexes with segments that died at the last seal, or that hold few live entries.
        self._dead_indexes: list[QueueIndex] = []
        # Releases of failed batches, to be written again.
        self._unwritten_releases: list[Release] = []
        # Acks of a failed batch wait for the next seal.
        self._has_failed_acks: bool = False
        self.writer: RecordWriter = RecordWriter(store_id)
        self.messages: MessageWriter = MessageWriter(self.writer, contents, embed_below)
        # Time at which the flusher finished the last batch that it had to write.
        self._written_ms: i64 = 0
        self._needs_new_file: bool = True
        self._next_file_number: i64 = 1
        self._clean_stop: bool = False
        # The journal has the mark of a clean stop: the run is about to end.
        self.is_marked_clean: bool = False
        self._wants_file: bool = False
        # Files of failed batches whose deletion failed, or was lost with another failed batch.
        self._undeleted: list[int] = []

    # -- called by the queues ----------------------------------------------------------------------

    def append(self, position: Position, now_ms: i64) -> None:
        """Gather a position; those of one message must follow each other to share one record."""
        position.journal_state = PENDING
        batch = self.batch
        if len(batch.positions) == 0:
            self.oldest_pending_ms = now_ms
        batch.positions.append(position)
        self.pending_bytes += 64 + position.content_bytes

    def settle(self, position: Position, now_ms: i64) -> None:
        """Settle a position that is not in its queue's index: it was acked, dropped or expired.

        A position that is not written yet costs nothing. `QueueStore.settle` handles positions in
        the index.
        """
        state = position.journal_state
        if state == WRITTEN:
            self._release_record(position)
            self._expect_seal(now_ms)
            ledger = position.ledger
            ledger.journaled.add(position.seq)
            self.mark_dirty(ledger)
            position.journal_state = NOT_JOURNALED
            content = position.message.content_ref
            if content is not None:
                ledger.releases.append(content)
        elif state == PENDING:
            position.journal_state = SETTLED
            self.pending_bytes -= 64 + position.content_bytes

    def settle_indexed(
        self, ledger: QueueLedger, seq: i64, content: ContentRef | None, now_ms: i64
    ) -> None:
        """Settle a persistent position that is in the index."""
        self._expect_seal(now_ms)
        ledger.indexed.add(seq)
        self.mark_dirty(ledger)
        if content is not None:
            ledger.releases.append(content)

    def settle_indexed_runs(self, ledger: QueueLedger, runs: Runs, now_ms: i64) -> None:
        """Settle whole runs of indexed persistent positions that refer to no stored content."""
        self._expect_seal(now_ms)
        ledger.indexed.runs.extend(runs)
        self.mark_dirty(ledger)

    def settle_forgotten(self, ledger: QueueLedger, position: Position, now_ms: i64) -> None:
        """Settle a recovered position that belongs to no queue; `ledger` carries its ack."""
        self._release_record(position)
        self._expect_seal(now_ms)
        ledger.journaled.add(position.seq)
        self.mark_dirty(ledger)
        content = position.message.content_ref
        if content is not None:
            ledger.releases.append(content)

    def on_indexed(self, position: Position) -> None:
        """Release the position's journal record: the position has moved to its queue's index."""
        if position.journal_state == WRITTEN:
            message = position.message
            file = message.file
            if file is not None and message.journal_refs == 1:
                file.moved_bytes += message.stored_bytes
            self._release_record(position)

    def begin_epoch(self, queue_id: i64, epoch: i64, first_seq: i64) -> None:
        """Write in the next batch, at once, that a durable queue has begun `epoch`."""
        self.epochs.append((queue_id, epoch, first_seq))
        self.is_wanted = True

    def when_durable(self, done: Callable[[bool, int], None]) -> None:
        """Call `done(ok, now_ms)` when the records gathered so far are durable or have failed.

        Definitions have callbacks of their own (`ChangeSet.callbacks`).
        """
        self.batch.callbacks.append(done)

    # -- when to commit ----------------------------------------------------------------------------

    def is_due(self, now_ms: i64, is_idle: bool = False) -> bool:
        """True when a batch should be sealed, provided the flusher is free.

        `is_idle`: the node has nothing else to do. On an idle node, publishes that no client waits
        for are committed at once, unless a batch was written just before: a trickle of them would
        then cost a sync each. Acks wait for their interval: the loss of an ack costs only a
        redelivery.
        """
        batch = self.batch
        if len(batch.runs) > 0 or len(batch.callbacks) > 0 or self.is_wanted:
            return True
        if self.definitions.is_due(now_ms):
            return True
        if self.pending_bytes >= self.buffer_bytes:
            return True
        if is_idle and len(batch.positions) > 0 and now_ms - self._written_ms >= FLUSH_INTERVAL_MS:
            return True
        if len(batch.positions) > 0 or len(self.dirty_ledgers) > 0:
            return now_ms - self.oldest_pending_ms >= FLUSH_INTERVAL_MS
        return self._clean_stop

    def has_pending(self) -> bool:
        """True while something has gathered that a later commit must carry."""
        batch = self.batch
        return (
            len(batch.positions) > 0
            or len(self.dirty_ledgers) > 0
            or len(self._unwritten_releases) > 0
            or self.moves.has_work()
            or len(self.epochs) > 0
            or len(batch.runs) > 0
            or len(batch.callbacks) > 0
            or not self.definitions.is_empty()
        )

    def seal(self) -> Batch:
        """Encode the gathered batch for the flusher, which must get batches in order of sealing."""
        batch = self.batch
        self.batch = Batch(batch.number + 1)
        self.pending_bytes = 0
        batch.change_sets = self.definitions.take()
        self.is_wanted = False
        writer = self.writer
        batch.starts_file = self._open_file_if_due(batch)
        current = self.files[-1] if len(self.files) > 0 else None
        self._write_acks(batch)
        self._has_failed_acks = False
        batch.epochs = self.epochs
        self.epochs = []
        for queue_id, epoch, first_seq in batch.epochs:
            writer.epoch(queue_id, epoch, first_seq)
        if current is not None:
            self.moves.write_again(batch.moves, current, writer, self.messages)
            self._write_positions(batch, current)
            self.moves.write_rest(batch.moves, current, writer)
        self.moves.on_sealed()
        if self._clean_stop:
            for ledger in self.ledgers.values():
                writer.queue_state(ledger)
            writer.clean_stop()
            self._clean_stop = False
            self.is_marked_clean = True
        if current is not None:
            batch.file = current
            batch.part_bytes = writer.size_bytes
            current.size_bytes += batch.part_bytes
            batch.file_end = current.size_bytes
        batch.parts = writer.take()
        self.written_bytes += batch.part_bytes
        batch.content_writes = self.contents.take_writes()
        for write in batch.content_writes:
            self.content_bytes += write.size_bytes
        batch.content_upto = self.contents.next_id
        batch.delete_files = self._undeleted
        self._undeleted = []
        self.in_flight.append(batch)
        return batch

    def adopt(self, files: list[JournalFile], next_number: i64) -> None:
        """Take over files that recovery found; the next file gets number `next_number` or more."""
        self.files = files
        self._next_file_number = next_number
        if len(files) > 0:
            self._next_file_number = max(next_number, files[-1].number + 1)

    def request_file(self) -> None:
        """Make the next sealed batch start a file: marks of a clean stop before it are void."""
        self._wants_file = True
        self._needs_new_file = True

    def request_clean_stop(self) -> None:
        """End the next sealed batch with all queue states and the mark of an orderly stop."""
        self._clean_stop = True

    def on_done(self, batch: Batch, ok: bool, now_ms: i64) -> None:
        """Release everything that waited for `batch`, the oldest in flight, which is finished.

        The flusher has finished it; `ok`: contents and records are durable. Each change set has a
        result of its own. `now_ms`: the current time.
        """
        self.in_flight.pop(0)
        if batch.has_work():
            self._written_ms = now_ms
        self.contents.on_written(batch.content_writes, ok)
        if ok:
            self._undeleted.extend(batch.found.undeleted)
            file = batch.file
            if file is not None:
                file.synced_bytes = batch.file_end
            if batch.number >= self.repeating:
                self.repeating = 0
        else:
            self._on_failed(batch)
        # Definitions come first: a caller that waits for both needs the result of both.
        self.definitions.on_done(batch.change_sets, now_ms)
        batch.finish(ok)
        for callback in batch.callbacks:
            callback(ok, now_ms)

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants that hold between two operations; for tests and the simulator."""
        pending: i64 = 0
        for position in self.batch.positions:
            if position.journal_state == PENDING:
                pending += 64 + position.content_bytes
        assert self.pending_bytes == pending
        number = self.batch.number - i64(len(self.in_flight))
        for batch in self.in_flight:
            # The flusher gets the batches in order, without gaps.
            assert batch.number == number
            number += 1
        before: i64 = 0
        for file in self.files:
            assert file.number > before
            before = file.number
            assert file.live_bytes >= 0 and file.pins >= 0
        assert before < self._next_file_number
        for ledger in self.dirty_ledgers:
            assert ledger.is_dirty

    # -- files -------------------------------------------------------------------------------------

    def total_bytes(self) -> i64:
        """Bytes of all journal files."""
        total: i64 = 0
        for file in self.files:
            total += file.size_bytes
        return total

    def live_bytes(self) -> i64:
        """Bytes of records that some queue still needs; those that indexes need are estimated."""
        total: i64 = 0
        for file in self.files:
            total += file.live_bytes
            log = file.log
            if log.live_entries > 0:
                others = file.size_bytes - file.live_bytes
                total += others * log.live_entries // log.entries
        return total

    def take_dead_indexes(self) -> list[QueueIndex]:
        """Indexes that have segments to delete, or with few live entries, since the last call."""
        indexes = self._dead_indexes
        self._dead_indexes = []
        return indexes

    def has_settled(self) -> bool:
        """True when acks or releases have gathered since the last seal or failed to be written."""
        return len(self.dirty_ledgers) > 0 or len(self._unwritten_releases) > 0

    def last_sealed(self) -> i64:
        """Number of the batch that was sealed last."""
        return self.batch.number - 1

    def last_finished(self) -> i64:
        """Number of the last batch that the flusher has finished."""
        return self.in_flight[0].number - 1 if len(self.in_flight) > 0 else self.batch.number - 1

    def last_acking(self) -> i64:
        """Number of the batch with which all acks that were sealed so far are durable.

        The next one has those of failed batches, which may fail again.
        """
        return self.batch.number if self._has_failed_acks else self.batch.number - 1

    def first_needed_file(self) -> i64:
        """Number of the oldest file that a start would need if a checkpoint were taken now."""
        for file in self.files[:-1]:
            if file.live_bytes > 0 or file.pins > 0:
                return file.number
        return self.files[-1].number if len(self.files) > 0 else self._next_file_number

    def end(self) -> tuple[i64, i64]:
        """Number and size in bytes of the file being written; sealed records lie before its end."""
        if len(self.files) == 0:
            return self._next_file_number, 0
        return self.files[-1].number, self.files[-1].size_bytes

    def forget_files(self, first_needed: i64) -> list[JournalFile]:
        """Forget the files below `first_needed`, never the newest; returns them, oldest first."""
        forgotten: list[JournalFile] = []
        while len(self.files) > 1 and self.files[0].number < first_needed:
            forgotten.append(self.files.pop(0))
        return forgotten

    # -- inside ------------------------------------------------------------------------------------

    def mark_dirty(self, ledger: QueueLedger) -> None:
        """Have the next batch write the acks that this ledger has gathered."""
        if not ledger.is_dirty:
            ledger.is_dirty = True
            self.dirty_ledgers.append(ledger)

    def _expect_seal(self, now_ms: i64) -> None:
        if len(self.dirty_ledgers) == 0 and len(self.batch.positions) == 0:
            self.oldest_pending_ms = now_ms

    def _release_record(self, position: Position) -> None:
        # The position does not need its record in the journal any more.
        message = position.message
        message.journal_refs -= 1
        if message.journal_refs == 0:
            file = message.file
            if file is not None:
                file.live_bytes -= message.stored_bytes
                message.file = None

    def _open_file_if_due(self, batch: Batch) -> bool:
        has_bytes = (
            len(batch.positions) > 0
            or self.moves.has_work()
            or len(self.epochs) > 0
            or len(self.dirty_ledgers) > 0
            or len(self._unwritten_releases) > 0
            or self._clean_stop
        )
        if not has_bytes and not self._wants_file:
            return False
        self._wants_file = False
        if not self._needs_new_file and self.files[-1].size_bytes < self.file_size_limit:
            return False
        self._needs_new_file = False
        file = JournalFile(self._next_file_number)
        self._next_file_number += 1
        self.writer.start_file(FILE_MAGIC, file.number)
        if len(self.files) > 0:
            closed = self.files[-1]
            for ledger in closed.ledgers:
                closed.ends.append(ledger.next_seq)
            # File numbers between the two belong to failed batches. Without this record a start
            # could not tell such a gap from a lost file.
            self.writer.predecessor(closed.number, closed.size_bytes)
        self.files.append(file)
        return True

    def _write_acks(self, batch: Batch) -> None:
        writer = self.writer
        for ledger in self.dirty_ledgers:
            ledger.is_dirty = False
            retracted = ledger.failed.unretracted.take()
            if len(retracted) > 0 and ledger.is_durable:
                writer.retract(ledger.queue_id, retracted)
                batch.retractions.append((ledger, retracted))
            runs = ledger.journaled.take()
            indexed = ledger.indexed.take()
            index = ledger.index
            if len(indexed) > 0 and index is not None:
                index.settle(indexed, ledger.indexed_upto)
                index.drop_dead_segments(ledger.indexed_upto)
                if (
                    len(index.dead_paths) > 0
                    or index.has_stragglers
                    or len(index.stretches.dead_logs) > 0
                ):
                    self._dead_indexes.append(index)
                runs = merge_runs(runs + indexed)
            if len(ledger.releases) > 0:
                self._release_references(ledger, runs)
            elif len(runs) > 0 and ledger.is_durable:
                # Write the ack even for a deleted queue, so that recovery does not release its
                # references twice.
                writer.ack(ledger.queue_id, runs)
                batch.acks.append((ledger, runs))
        self.dirty_ledgers = []
        batch.releases = self._unwritten_releases
        self._unwritten_releases = []
        for release in batch.releases:
            write_release(writer, release)

    def _release_references(self, ledger: QueueLedger, runs: Runs) -> None:
        for content in ledger.releases:
            self.contents.release(content.id, content.references, content.stored_bytes)
        self.release_serial += 1
        self._unwritten_releases.append(
            Release(self.release_serial, ledger.queue_id, runs, ledger.releases)
        )
        ledger.releases = []

    def _write_positions(self, batch: Batch, current: JournalFile) -> None:
        positions = batch.positions
        kept: list[Position] = []
        published_bytes: i64 = 0
        # Number of positions in the records of `batch.moves`.
        moved_count: i64 = 0
        index: i64 = 0
        count: i64 = len(positions)
        while index < count:
            message = positions[index].message
            published_bytes += positions[index].content_bytes
            first: i64 = len(kept)
            while index < count and positions[index].message is message:
                position = positions[index]
                if position.journal_state == PENDING:
                    kept.append(position)
                    ledger = position.ledger
                    ledger.written_count += 1
                    if ledger.journal_file != current.number:
                        ledger.journal_file = current.number
                        current.ledgers.append(ledger)
                index += 1
            last: i64 = len(kept)
            if last > first:
                message.offset = current.size_bytes + self.writer.size_bytes
                stored_bytes = self.messages.write(message, kept, first, last)
                message.file = current
                message.stored_bytes = stored_bytes
                message.journal_refs = last - first
                current.live_bytes += stored_bytes
                if isinstance(message, MovedMessage):
                    published_bytes -= kept[first].content_bytes
                    self.moves.on_written(batch.moves, message, kept[first:last], current)
                    moved_count += last - first
                    del kept[first:]
        batch.positions = kept
        batch.settled_count = count - len(kept) - moved_count
        self.published_bytes += published_bytes
        self.written_messages += len(kept)

    def _on_failed(self, batch: Batch) -> None:
        self.failed_count += 1
        self.repeating = self.batch.number
        self.last_failed = batch.number
        self._needs_new_file = True
        self._has_failed_acks = True
        self._undeleted.extend(batch.delete_files)
        for position in batch.positions:
            message = position.message
            file = message.file
            if position.journal_state == INDEXED:
                failed = position.ledger.failed
                failed.indexed_upto = max(failed.indexed_upto, position.seq)
            if (
                position.journal_state != WRITTEN
                or file is None
                or file.number != batch.file_number
            ):
                continue
            position.journal_state = NOT_JOURNALED
            self._release_record(position)
            message.content_ref = None
            position.content_ref = None
            ledger = position.ledger
            failed = ledger.failed
            failed.unretracted.add(position.seq)
            failed.retracted_upto = max(failed.retracted_upto, position.seq)
            self.mark_dirty(ledger)
        self.moves.take_back(batch.moves, batch.file_number)
        for ledger, runs in batch.acks:
            ledger.journaled.runs.extend(runs)
            self.mark_dirty(ledger)
        for ledger, runs in batch.retractions:
            ledger.failed.unretracted.runs.extend(runs)
            self.mark_dirty(ledger)
        self._unwritten_releases.extend(batch.releases)
        for queue_id, epoch, first_seq in batch.epochs:
            self.begin_epoch(queue_id, epoch, first_seq)
        if batch.starts_file:
            # No byte of the new file counts. The flusher has tried to remove the file; the next
            # batch deletes it if it is still there.
            file = self.files.pop()
            if batch.found.created_file:
                self._undeleted.append(file.number)
        elif len(self.files) > 0:
            # Bytes that the failed batch left at the end of the file do not count.
            self.files[-1].size_bytes -= batch.part_bytes
            if batch.found.is_file_gone:
                self.gone_upto = batch.file_number
        # Releases, MOVEs and epochs are written again, although nothing new may ever gather.
        if self.has_pending():
            self.is_wanted = True
