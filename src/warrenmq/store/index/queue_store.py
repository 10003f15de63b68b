"""A queue's access to the store: publish, settle, move to the index, load from it.

The queue decides which messages are in memory; this module does what that means on disk. Nothing
here waits: a load ends with a later call of `LoadDone` on the loop.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.index.content_load import ContentLoad
from warrenmq.store.index.load import POSITIONS_BYTES, IndexLoad
from warrenmq.store.index.repair import is_counted_as_lost
from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.index.segment_loss import SegmentLoss
from warrenmq.store.jobs.job import LoadDone
from warrenmq.store.journal.journal import Journal
from warrenmq.store.journal.window import may_refer
from warrenmq.store.model.epochs import add_epoch
from warrenmq.store.model.message import (
    INDEXED,
    NOT_JOURNALED,
    PENDING,
    WRITTEN,
    ContentRef,
    JournalFile,
    Position,
    QueueLedger,
)
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.model.runs import add_run
from warrenmq.store.records.content import write_publish_ref
from warrenmq.store.records.log_places import PlacesWriter, may_refer_to
from warrenmq.store.records.record import INDEX_MAGIC, RecordWriter

# References of a deleted queue that are released at a time.
RELEASE_BATCH: Final = 2048


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueStore:
    """The store of one queue, one of `siblings`, by queue id.

    The index of a queue that is not `is_durable` is in a directory that is wiped at start.
    """

    def __init__(
        self,
        files: SegmentFiles,
        loss: SegmentLoss,
        journal: Journal,
        siblings: dict[int, QueueStore],
        ledger: QueueLedger,
        is_durable: bool,
    ) -> None:
        self.files: SegmentFiles = files
        self.loss: SegmentLoss = loss
        self.journal: Journal = journal
        self.siblings: dict[int, QueueStore] = siblings
        self.ledger: QueueLedger = ledger
        self.is_durable: bool = is_durable
        self.places: PlacesWriter = files.places
        # The queue is deleted; the references it holds are being released.
        self.is_deleted: bool = False
        # The queue is a copy, whose master on another node gives the seq ids: none may be skipped.
        self.is_copy: bool = False
        # The queue's row in the last checkpoint.
        self.row: bytes = b""
        # `QueueIndex.version` from which `row` was made; -1: none.
        self.row_version: i64 = -1

    @property
    def now_ms(self) -> i64:
        """The time of this turn (ms)."""
        return self.files.jobs.now_ms

    @property
    def is_behind(self) -> bool:
        """True while so much waits to be written that the queue should not index more."""
        return self.files.is_behind

    def append(self, position: Position, now_ms: i64) -> None:
        """Journal a position of a durable queue; positions of one message must follow each other.

        The position outlives restarts from then on, even if its message was published as transient.
        """
        if not position.persistent:
            position.persistent = True
            self.ledger.remove_transient(position)
        self.journal.append(position, now_ms)

    def settle(self, position: Position, now_ms: i64) -> None:
        """Settle a position: it was acked, dropped or expired."""
        state = position.journal_state
        if state == INDEXED:
            position.journal_state = NOT_JOURNALED
            if self._is_lasting(position):
                self.journal.settle_indexed(self.ledger, position.seq, position.content_ref, now_ms)
            else:
                self._settle_transient(position)
        elif state != NOT_JOURNALED:
            self.journal.settle(position, now_ms)
        elif position.content_ref is not None:
            self._release_transient(position.content_ref)
        # A load of this content sees by these two fields that the position is settled.
        position.content_ref = None
        position.place = -1

    def lose(self, position: Position) -> None:
        """Settle, count and report a live position whose content cannot be read any more."""
        if not is_counted_as_lost(position):
            self.files.losses.add_messages(
                self.ledger.queue_id, 1, position.seq, position.seq, "their contents cannot be read"
            )
        self.settle(position, self.now_ms)

    def may_index(self, position: Position) -> bool:
        """True when the position may move to the index.

        A position that is not sealed may not, nor one whose content the index is to refer to and
        that is not written yet: the content may still turn out not to be there.
        """
        if position.journal_state != WRITTEN:
            return position.journal_state != PENDING
        message = position.message
        content = message.content_ref
        if content is not None:
            return self.files.contents.is_written(content)
        file = message.file
        return file is None or (
            message.offset + message.stored_bytes <= file.synced_bytes
            or not may_refer(self.journal, file)
        )

    def survives_crash(self, position: Position) -> bool:
        """True when a sealed or indexed position survives a crash; else a checkpoint is requested.

        The position survives a crash once that checkpoint is taken.
        """
        if position.journal_state != INDEXED:
            return position.journal_state != NOT_JOURNALED
        index = self.ledger.index
        failed = self.ledger.failed
        if position.seq > max(failed.indexed_upto, failed.retracted_upto) or (
            index is not None and position.seq < index.checkpointed_upto
        ):
            return True
        self.files.needs.is_wanted = True
        return False

    # -- the queue's row in checkpoints ------------------------------------------------------------

    def begin_epoch(self, epoch: i64) -> None:
        """Begin `epoch`, higher than all before, with the next message; journal it."""
        ledger = self.ledger
        add_epoch(ledger.epochs, epoch, ledger.next_seq)
        self.row_version = -1
        if self.is_durable:
            self.journal.begin_epoch(ledger.queue_id, epoch, ledger.next_seq)

    def note_delivered(self, first: i64, last: i64) -> None:
        """Note that the live messages of [first, last] were handed out, wherever they are."""
        ledger = self.ledger
        ledger.delivered_upto = ledger.delivered.add(first, last, ledger.delivered_upto)
        self.row_version = -1

    # -- index -------------------------------------------------------------------------------------

    def index(self, positions: list[Position]) -> None:
        """Move `positions` (ascending) to the index, each of which `may_index`.

        They must be all live positions from `ledger.indexed_upto` up to the last of `positions`.
        They are on disk before any load can read them.
        """
        if len(positions) == 0:
            return
        ledger = self.ledger
        index = self._index()
        writer = self.files.writer
        segment = index.segment_for_append(positions[0].seq)
        self._start_append(index, segment, writer)
        segment_end: i64 = (segment.number + 1) * index.segment_entries
        expected = ledger.indexed_upto
        # The end of the run of positions that are treated alike.
        run_end: i64 = 0
        is_referred = False
        place: i64 = 0
        while place < len(positions):
            position = positions[place]
            assert position.seq >= expected
            if position.seq > expected:
                # Seq ids between two live positions are settled, also for a start that finds their
                # acks in the journal.
                add_run(index.settled, expected, position.seq - 1)
            expected = position.seq + 1
            if position.seq >= segment_end:
                self._finish_append(index, segment, writer)
                segment = index.segment_for_append(position.seq)
                self._start_append(index, segment, writer)
                segment_end = (segment.number + 1) * index.segment_entries
            if place >= run_end:
                run_end, is_referred = self._next_run(positions, place, index)
            if is_referred:
                self._refer(position, segment, index, writer)
            else:
                self.places.flush(ledger.queue_id, writer)
                self._append(position, segment, index, writer)
            place += 1
        self._finish_append(index, segment, writer)
        ledger.indexed_upto = positions[-1].seq + 1
        index.version += 1

    def index_range_done(self, upto: i64) -> None:
        """Declare that nothing is live between `ledger.indexed_upto` and `upto`."""
        ledger = self.ledger
        if upto > ledger.indexed_upto:
            index = ledger.index
            if index is not None:
                add_run(index.settled, ledger.indexed_upto, upto - 1)
                index.drop_dead_segments(upto)
                self.files.needs.take_dead_segments(index)
            ledger.indexed_upto = upto

    def content_to_transient(self, position: Position) -> None:
        """Put the large content of a position that is not journaled into the transient store."""
        self._to_transient(position)

    def _next_run(
        self, positions: list[Position], place: i64, index: QueueIndex
    ) -> tuple[i64, bool]:
        """The end of a run of `positions` that begins at `place`, and what is written for it.

        True: entries that refer to contents in one journal file. False: copies of the contents, or
        references to a content store.
        """
        file = _file_of(positions[place])
        if file is None or not may_refer(self.journal, file):
            return place + 1, False
        end = place
        size: i64 = 0
        while end < len(positions) and _file_of(positions[end]) is file:
            message = positions[end].message
            if message.offset + message.stored_bytes > file.synced_bytes:
                break
            size += message.stored_bytes
            end += 1
        if end == place:
            return place + 1, False
        last = index.stretches.last_log()
        if last is not None and file.number - 1 <= last.number:
            return end, True
        settings = self.files.settings
        return end, end - place >= settings.refer_entries and size >= settings.refer_bytes

    def _refer(
        self, position: Position, segment: Segment, index: QueueIndex, writer: RecordWriter
    ) -> None:
        """Append an entry for a position whose content is in a journal file."""
        message = position.message
        file = message.file
        assert file is not None
        self.places.add(position, message, writer)
        index.stretches.add(position.seq, file.log, message.stored_bytes)
        self.journal.on_indexed(position)
        position.journal_state = INDEXED
        segment.has_places = True
        segment.referred_bytes += message.stored_bytes
        segment.entries += 1
        segment.live_persistent += 1

    def _append(
        self, position: Position, segment: Segment, index: QueueIndex, writer: RecordWriter
    ) -> None:
        message = position.message
        position.place = segment.size_bytes + writer.size_bytes
        if position.content_ref is None and position.journal_state != NOT_JOURNALED:
            # Only a journaled position takes the message's content: that content counts no
            # reference of a position that is not journaled.
            position.content_ref = message.content_ref
        if (
            position.content_ref is None
            and position.journal_state == NOT_JOURNALED
            and position.content_bytes >= self.journal.messages.embed_below
        ):
            self._to_transient(position)
        source = message.file if position.journal_state == WRITTEN else None
        self.journal.on_indexed(position)
        if not self.is_durable:
            # A queue that is not durable keeps its settled seq ids with those of transient
            # positions, and a load looks for them there.
            position.persistent = False
        if position.content_ref is None:
            if position.journal_state == NOT_JOURNALED:
                self._count_written()
            writer.add_publish_copy(message, position, source)
        else:
            write_publish_ref(writer, position.content_ref, message, [position], 0, 1)
            segment.has_references = True
        position.journal_state = INDEXED
        segment.entries += 1
        if self._is_lasting(position):
            segment.live_persistent += 1
            if position.content_ref is None:
                index.stretches.end()
            else:
                index.stretches.pass_over(position.seq)
            return
        index.stretches.end()
        segment.live_transient += 1

    def end_left_segment(self, index: QueueIndex) -> None:
        """Cut off what a crash has left behind a segment that the queue has left since the start.

        An append does so, too. But without one, a later start would take the file for one that a
        rewrite has made longer, and read those bytes.
        """
        segment = index.find(index.open_at_start)
        if segment is None:
            index.open_at_start = -1
        elif (segment.number + 1) * index.segment_entries <= self.ledger.indexed_upto:
            index.open_at_start = -1
            self.files.append(self.ledger, segment, index.path_of(segment), [], False)
            segment.is_dirty = True
            index.has_dirty = True

    def _start_append(self, index: QueueIndex, segment: Segment, writer: RecordWriter) -> None:
        number = index.file_number(segment.number)
        if segment.size_bytes == 0:
            writer.start_file(INDEX_MAGIC, number)
        else:
            writer.continue_file(number)

    def _finish_append(self, index: QueueIndex, segment: Segment, writer: RecordWriter) -> None:
        self.places.flush(self.ledger.queue_id, writer)
        size = writer.size_bytes
        self.files.append(
            self.ledger, segment, index.path_of(segment), writer.take(), segment.size_bytes == 0
        )
        segment.size_bytes += size
        segment.is_dirty = True
        index.has_dirty = True

    def _index(self) -> QueueIndex:
        index = self.ledger.index
        if index is None:
            index = self.files.new_index(self.ledger.queue_id, self.is_durable)
            add_run(index.settled, 0, self.ledger.indexed_upto - 1)
            self.ledger.index = index
        return index

    def _is_lasting(self, position: Position) -> bool:
        # True when the position comes back after a restart.
        return self.is_durable and position.persistent

    def _to_transient(self, position: Position) -> None:
        message = position.message
        # Other queues share the message, and it may refer to a persistent content for them.
        kept = message.content_ref
        position.content_ref = self.files.contents.transient.add(message, [position], 0, 1)
        message.content_ref = kept
        # The position does not outlive a restart, even if its message was published as persistent:
        # its batch has failed.
        if position.persistent:
            position.persistent = False
            if self.is_durable:
                self.ledger.add_transient(position)
        self._count_written()
        self.files.write_transient()

    def _count_written(self) -> None:
        self.ledger.written_count += 1
        self.journal.written_messages += 1

    # -- settle ------------------------------------------------------------------------------------

    def settle_range(self, first: i64, end: i64, now_ms: i64) -> i64:
        """Settle live entries of the index in [first, end) as far as possible without reads.

        Returns the seq id up to which the caller must load and settle the rest one by one; `first`
        when nothing is left. `end` is the end of the index or of a segment, and no position in the
        range is unacked.
        """
        index = self.ledger.index
        if index is None:
            return first
        entries = index.segment_entries
        start: i64 = (first + entries - 1) // entries * entries
        if start >= end or index.has_references(start, end):
            return end if index.live_count(first, end) > 0 else first
        index.forget_transients(start, end)
        self.journal.settle_indexed_runs(self.ledger, [(start, end - 1)], now_ms)
        return start if start > first else first

    def _settle_transient(self, position: Position) -> None:
        index = self.ledger.index
        if index is not None:
            index.settle_transient(position.seq, self.ledger.indexed_upto)
            self.files.needs.take_dead_segments(index)
        if position.content_ref is not None:
            self._release_transient(position.content_ref)

    def _release_transient(self, content: ContentRef) -> None:
        if content.transient:
            self.files.contents.transient.release(
                content.id, content.references, content.stored_bytes
            )

    # -- load --------------------------------------------------------------------------------------

    def load(
        self, from_seq: i64, end_seq: i64, max_messages: i64, max_bytes: i64, done: LoadDone
    ) -> None:
        """Read live positions of [from_seq, end_seq) with their contents, one or more if any.

        Unacked positions are live too.
        """
        IndexLoad(
            self.files,
            self.loss,
            self.ledger,
            from_seq,
            end_seq,
            max_messages,
            max_bytes,
            True,
            done,
        ).start()

    def take_lost(self) -> i64:
        """Return the number of messages lost by damage that was found since the last call."""
        index = self.ledger.index
        if index is None:
            return 0
        lost = index.lost_count
        index.lost_count = 0
        return lost

    def load_positions(
        self, from_seq: i64, end_seq: i64, max_messages: i64, done: LoadDone
    ) -> None:
        """Read live positions of [from_seq, end_seq) to settle them, without stored contents."""
        IndexLoad(
            self.files,
            self.loss,
            self.ledger,
            from_seq,
            end_seq,
            max_messages,
            POSITIONS_BYTES,
            False,
            done,
        ).start()

    def load_contents(self, positions: list[Position], done: LoadDone) -> None:
        """Read the contents of `positions`."""
        ContentLoad(self.files, self.loss, self.ledger, positions, done).start()

    # -- end ---------------------------------------------------------------------------------------

    def delete(self) -> None:
        """Delete the queue's segments, after the references in them are released.

        The queue has settled everything that it had in memory.
        """
        self.is_deleted = True
        index = self.ledger.index
        if index is not None and index.has_references(0, self.ledger.indexed_upto):
            _ReferenceRelease(self).release_from(0)
        else:
            self.drop()

    def drop(self) -> None:
        """Drop the queue's ledger and segments: nothing of the queue is needed any more."""
        ledger = self.ledger
        self.siblings.pop(ledger.queue_id, None)
        self.journal.ledgers.pop(ledger.queue_id, None)
        index = ledger.index
        if index is not None:
            for segment in index.segments:
                index.dead_paths.append(index.path_of(segment))
                index.dead_bytes += segment.size_bytes
            index.segments = []
            index.stretches.clear()
            self.files.needs.take_dead_segments(index)


def _file_of(position: Position) -> JournalFile | None:
    """The journal file to which an entry for `position` can refer; None: to none."""
    if position.journal_state != WRITTEN or not position.persistent:
        return None
    message = position.message
    if message.content_ref is not None or not may_refer_to(message):
        return None
    return message.file


class _ReferenceRelease(LoadDone):
    """Releases the references in the index of a deleted queue, batch by batch."""

    def __init__(self, queue: QueueStore) -> None:
        self.queue: QueueStore = queue

    def release_from(self, from_seq: i64) -> None:
        """Release the references in the index from `from_seq` on."""
        self.queue.load_positions(from_seq, self.queue.ledger.indexed_upto, RELEASE_BATCH, self)

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        queue = self.queue
        for position in positions:
            queue.settle(position, queue.now_ms)
        if next_seq < queue.ledger.indexed_upto:
            self.release_from(next_seq)
        else:
            queue.drop()
