"""A queue's door to the store: publish, settle, move to the index, load from it.

The queue decides what is in memory; this says what that means on disk. Nothing here waits: a load ends with a call of
`LoadDone` on the loop, later.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.content_records import write_publish_ref
from warrenmq.store.index_load import POSITIONS_BYTES, ContentLoad, IndexLoad
from warrenmq.store.index_repair import is_counted_as_lost
from warrenmq.store.jobs import LoadDone
from warrenmq.store.journal import Journal
from warrenmq.store.message import (
    INDEXED,
    NOT_JOURNALED,
    PENDING,
    WRITTEN,
    ContentRef,
    Position,
    QueueLedger,
)
from warrenmq.store.queue_index import QueueIndex, Segment
from warrenmq.store.record import INDEX_MAGIC, RecordWriter
from warrenmq.store.runs import add_run
from warrenmq.store.segment_files import SegmentFiles
from warrenmq.store.segment_loss import SegmentLoss

# References of a deleted queue that are given up at a time.
RELEASE_BATCH: Final = 2048


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueStore:
    """The store of one queue, one of `siblings`. A queue that is not `is_durable` has its index in a place that is wiped at
    start."""

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
        # Its queue is deleted; the references it holds are being given up.
        self.is_deleted: bool = False
        # The row of the last checkpoint, and what it was made from.
        self.row: bytes = b""
        self.row_version: i64 = -1

    @property
    def now_ms(self) -> i64:
        """The time of this turn."""
        return self.files.jobs.now_ms

    @property
    def is_behind(self) -> bool:
        """Is so much waiting to be written that the queue should move no more to the index for now?"""
        return self.files.is_behind

    def append(self, position: Position, now_ms: i64) -> None:
        """Journal a position of a durable queue; positions of one message must follow each other.

        It outlives restarts from then on, whatever its publisher wanted.
        """
        position.persistent = True
        self.journal.append(position, now_ms)

    def settle(self, position: Position, now_ms: i64) -> None:
        """The position is acked, dropped or expired."""
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
        # A load that is looking for its content sees by these that nobody wants it any more.
        position.content_ref = None
        position.place = -1

    def lose(self, position: Position) -> None:
        """The content of a live position cannot be had any more: it is settled, counted and reported."""
        if not is_counted_as_lost(position):
            self.files.losses.add_messages(
                self.ledger.queue_id, 1, position.seq, position.seq, "their contents cannot be read"
            )
        self.settle(position, self.now_ms)

    def may_index(self, position: Position) -> bool:
        """May it move to the index by now? What is not sealed may not, nor what refers to a content that may still turn
        out not to be there."""
        if position.journal_state != WRITTEN:
            return position.journal_state != PENDING
        content = position.message.content_ref
        return content is None or self.files.contents.is_written(content)

    def is_kept(self, position: Position) -> bool:
        """Does a crash leave a position that is sealed or indexed where it is? When that takes a checkpoint, one is taken."""
        if position.journal_state != INDEXED:
            return position.journal_state != NOT_JOURNALED
        index = self.ledger.index
        if position.seq > self.ledger.failed_upto or (
            index is not None and position.seq < index.checkpointed_upto
        ):
            return True
        self.files.needs.is_wanted = True
        return False

    # -- index -----------------------------------------------------------------------------------------------

    def index(self, positions: list[Position]) -> None:
        """Move positions to the index: all live ones from `log.indexed_upto` on up to the last of `positions`,
        ascending, all of which may be (`may_index`). They are on disk before anybody is able to load them."""
        if len(positions) == 0:
            return
        ledger = self.ledger
        index = self._index()
        writer = self.files.writer
        segment = index.segment_for_append(positions[0].seq)
        self._start_append(index, segment, writer)
        segment_end: i64 = (segment.number + 1) * index.segment_entries
        expected = ledger.indexed_upto
        for position in positions:
            assert position.seq >= expected
            if position.seq > expected:
                # What is not alive here is settled, also for a start that meets its ack in the journal.
                add_run(index.settled, expected, position.seq - 1)
            expected = position.seq + 1
            if position.seq >= segment_end:
                self._finish_append(index, segment, writer)
                segment = index.segment_for_append(position.seq)
                self._start_append(index, segment, writer)
                segment_end = (segment.number + 1) * index.segment_entries
            self._append(position, segment, writer)
        self._finish_append(index, segment, writer)
        ledger.indexed_upto = positions[-1].seq + 1
        index.version += 1

    def index_range_done(self, upto: i64) -> None:
        """Nothing is alive between `log.indexed_upto` and `upto`."""
        ledger = self.ledger
        if upto > ledger.indexed_upto:
            index = ledger.index
            if index is not None:
                add_run(index.settled, ledger.indexed_upto, upto - 1)
                index.drop_dead_segments(upto)
                self.files.needs.take_dead_segments(index)
            ledger.indexed_upto = upto

    def content_to_transient(self, position: Position) -> None:
        """Give the large content of a message that is not journaled a place in the transient content store."""
        self._to_transient(position)

    def _append(self, position: Position, segment: Segment, writer: RecordWriter) -> None:
        message = position.message
        position.place = segment.size_bytes + writer.size_bytes
        if position.content_ref is None and position.journal_state != NOT_JOURNALED:
            # Others of its message may have a content that counts no reference of this one.
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
            # Its settles are kept with those of transient positions, and a load looks for them there.
            position.persistent = False
        if position.content_ref is None:
            writer.add_publish_copy(message, position, source)
        else:
            write_publish_ref(writer, position.content_ref, message, [position], 0, 1)
            segment.has_references = True
        position.journal_state = INDEXED
        segment.entries += 1
        if self._is_lasting(position):
            segment.live_persistent += 1
            return
        segment.live_transient += 1
        index = self.ledger.index
        if self.is_durable and position.seq <= self.ledger.retracted_upto and index is not None:
            # Its batch may have failed, and the journal has an ack of it as a retraction then: to a start it is settled
            # already. (Its message may not be in memory, and so not say whether it is persistent.)
            add_run(index.settled, position.seq, position.seq)

    def _start_append(self, index: QueueIndex, segment: Segment, writer: RecordWriter) -> None:
        number = index.file_number(segment.number)
        if segment.size_bytes == 0:
            writer.start_file(INDEX_MAGIC, number)
        else:
            writer.continue_file(number)

    def _finish_append(self, index: QueueIndex, segment: Segment, writer: RecordWriter) -> None:
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
        # Does it come back after a restart?
        return self.is_durable and position.persistent

    def _to_transient(self, position: Position) -> None:
        message = position.message
        # Other queues share the message; theirs may be a content that lasts.
        kept = message.content_ref
        position.content_ref = self.files.contents.transient.add(message, [position], 0, 1)
        message.content_ref = kept
        # It does not outlive a restart, whatever its publisher wanted: its batch has failed.
        position.persistent = False
        self.files.write_transient()

    # -- settle ----------------------------------------------------------------------------------------------

    def settle_range(self, first: i64, end: i64, now_ms: i64) -> i64:
        """Settle what is alive in the index in [first, end), as far as that goes without looking at each position.

        Returns up to where the caller must load and settle one by one: `first` when all is done. `end` is the end of
        the index or a segment's, and nothing in the range is out.
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

    # -- load ------------------------------------------------------------------------------------------------

    def load(
        self, from_seq: i64, end_seq: i64, max_messages: i64, max_bytes: i64, done: LoadDone
    ) -> None:
        """Read live positions of [from_seq, end_seq) with their contents, at least one if there is one; what is unacked
        is alive as well."""
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

    def load_positions(
        self, from_seq: i64, end_seq: i64, max_messages: i64, done: LoadDone
    ) -> None:
        """Read live positions of [from_seq, end_seq) to settle them; the contents that are elsewhere stay there."""
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
        """Read the contents of these positions."""
        ContentLoad(self.files, self.loss, self.ledger, positions, done).start()

    # -- end -------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        """The queue is deleted and has settled what it had in memory. Its segments may go, not before the references in
        them are given up."""
        self.is_deleted = True
        index = self.ledger.index
        if index is not None and index.has_references(0, self.ledger.indexed_upto):
            _ReferenceRelease(self).release_from(0)
        else:
            self.drop()

    def drop(self) -> None:
        """Nothing of the queue is needed any more."""
        ledger = self.ledger
        self.siblings.pop(ledger.queue_id, None)
        self.journal.ledgers.pop(ledger.queue_id, None)
        index = ledger.index
        if index is not None:
            for segment in index.segments:
                index.dead_paths.append(index.path_of(segment))
                index.dead_bytes += segment.size_bytes
            index.segments = []
            self.files.needs.take_dead_segments(index)


class _ReferenceRelease(LoadDone):
    """Gives up the references in the index of a deleted queue, batch by batch."""

    def __init__(self, queue: QueueStore) -> None:
        self.queue: QueueStore = queue

    def release_from(self, from_seq: i64) -> None:
        """Release what is in the index from `from_seq` on."""
        self.queue.load_positions(from_seq, self.queue.ledger.indexed_upto, RELEASE_BATCH, self)

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
        queue = self.queue
        for position in positions:
            queue.settle(position, queue.now_ms)
        if next_seq < queue.ledger.indexed_upto:
            self.release_from(next_seq)
        else:
            queue.drop()
