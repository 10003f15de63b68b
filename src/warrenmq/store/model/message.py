"""A message's content, and its position in one queue, as the store sees them.

Content is stored in the form in which it travels: `address` is the two short strings `exchange,
routing key` exactly as a publish carries them and a deliver repeats them, `properties` is the raw
property block from the flag word on. Storing and delivering decode nothing. A message routed to
several queues is one `Message` with several positions, and its content is written once (S37).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from warrenmq.store.model.content_log import ContentLog
from warrenmq.store.model.delivered import DeliveredRuns
from warrenmq.store.model.epochs import Epochs
from warrenmq.store.model.queue_index import QueueIndex
from warrenmq.store.model.runs import Runs, merge_runs

# States of a position in the journal (`Position.journal_state`).
# Transient, or its batch failed: the position lives in memory only.
NOT_JOURNALED: Final = 0
# In the batch that gathers: a position settled in this state never costs a write.
PENDING: Final = 1
# In a sealed batch: settling the position takes an ack record.
WRITTEN: Final = 2
# Settled while it was PENDING.
SETTLED: Final = 3
# In its queue's index: settling the position takes an ack record, but no journal file counts it.
INDEXED: Final = 4


class JournalFile:
    """One journal file `<number>.wal`: its size and how much of it is still needed (bytes)."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = 0
        self.live_bytes: i64 = 0
        # Bytes that are durable.
        self.synced_bytes: i64 = 0
        # Bytes of the records whose positions have all moved to indexes.
        self.moved_bytes: i64 = 0
        # Pins: MOVE records in this file whose originals are not settled yet. The file is not
        # deleted before the count is 0.
        self.pins: i64 = 0
        # The contents in the file that indexes refer to.
        self.log: ContentLog = ContentLog(number)
        # Ledgers of the queues that have positions in this file.
        self.ledgers: list[QueueLedger] = []
        # The `next_seq` of each of `ledgers` when the file was closed; empty until then.
        self.ends: list[int] = []


@mypyc_attr(acyclic=True)
class ContentRef:
    """Where the content of a large message is: its id in a content store, and a place there.

    The place (file and offset) was right when it was written: compaction moves content, the id
    stays.
    """

    def __init__(
        self,
        content_id: i64,
        file: i64,
        offset: i64,
        stored_bytes: i64,
        references: i64,
        transient: bool,
    ) -> None:
        self.id: i64 = content_id
        self.file: i64 = file
        self.offset: i64 = offset
        # Size of the CONTENT record in bytes.
        self.stored_bytes: i64 = stored_bytes
        # Positions that share the content.
        self.references: i64 = references
        self.transient: bool = transient


@mypyc_attr(acyclic=True)
class Message:
    """Content of a message, shared by every queue to which it was routed."""

    def __init__(
        self, address: bytes, properties: bytes, body: bytes, persistent: bool, timestamp_ms: i64
    ) -> None:
        self.address: bytes = address
        self.properties: bytes = properties
        self.body: bytes = body
        self.persistent: bool = persistent
        self.timestamp_ms: i64 = timestamp_ms
        # Journal file with the message's record; None: no journal file has one.
        self.file: JournalFile | None = None
        # Offset of that record in the file.
        self.offset: i64 = 0
        # Size of that record in bytes.
        self.stored_bytes: i64 = 0
        # Positions that still need that record.
        self.journal_refs: i64 = 0
        # Set when the content went to a content store.
        self.content_ref: ContentRef | None = None

    @property
    def content_bytes(self) -> i64:
        """Bytes that are stored: address, properties and body."""
        return len(self.address) + len(self.properties) + len(self.body)

    def exchange(self) -> bytes:
        """Name of the exchange to which the message was published."""
        return self.address[1 : 1 + self.address[0]]

    def routing_key(self) -> bytes:
        """Routing key with which the message was published."""
        return self.address[2 + self.address[0] :]


@mypyc_attr(acyclic=True)
class MovedMessage(Message):
    """The copy of a message that is handed over; its record (MOVE) names the original's place.

    Recovery learns from that record that the original must not be handed over again.
    """

    def __init__(
        self,
        address: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        timestamp_ms: i64,
        origin_id: i64,
        origin_seq: i64,
    ) -> None:
        super().__init__(address, properties, body, persistent, timestamp_ms)
        # Queue id of the original.
        self.origin_id: i64 = origin_id
        # Seq id of the original.
        self.origin_seq: i64 = origin_seq
        # The journal file with the MOVE, pinned until the original is settled.
        self.pinned: JournalFile | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueLedger:
    """The store's account of one queue: its numbering, and the acks that the next batch carries.

    Acks gather as inclusive runs of seq ids, so a queue that is consumed in order costs one pair of
    integers a batch.
    """

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        # Acks of the queue are written to the journal.
        self.is_durable: bool = False
        self.next_seq: i64 = 1
        # Every live message at or below this seq id was handed out, except those that `delivered`
        # spares. Written at a clean stop, for the redelivered flag after a restart (W29).
        self.delivered_upto: i64 = 0
        # The exceptions to `delivered_upto`.
        self.delivered: DeliveredRuns = DeliveredRuns()
        # The start of each epoch of which a message may be alive, and of the last one.
        self.epochs: Epochs = []
        # Every live position below this seq id is in the queue's index, and none at or above it.
        self.indexed_upto: i64 = 1
        # Transient positions below this seq id are from before the last start: they are gone.
        self.transient_floor: i64 = 0
        # The seq ids that were in failed batches.
        self.failed: FailedSeqs = FailedSeqs()
        # Number of unacked positions with seq ids of `indexed_upto` or more.
        self.unindexed_unacked: i64 = 0
        # Live transient positions of a durable queue that are in memory, ready or unacked.
        self.transient_count: i64 = 0
        # Bytes of the bodies of these positions.
        self.transient_bytes: i64 = 0
        # Messages of the queue that were written to disk since the start.
        self.written_count: i64 = 0
        # Number of the journal file that has this ledger in its `ledgers`; -1: none.
        self.journal_file: i64 = -1
        # Seq ids settled since the last seal whose positions are in the journal only.
        self.journaled: RunGatherer = RunGatherer()
        # Seq ids settled since the last seal whose positions are in the index.
        self.indexed: RunGatherer = RunGatherer()
        # Contents of which positions settled since the last seal held one reference each.
        self.releases: list[ContentRef] = []
        # The ledger is in the journal's list of ledgers that the next batch writes acks of.
        self.is_dirty: bool = False
        # The queue's index; None until the first position moves to it.
        self.index: QueueIndex | None = None

    def make_position(self, message: Message, seq: i64, expiry_ms: i64) -> Position:
        """Make a position of this queue; a queue may return its own subclass."""
        return Position(message, self, seq, expiry_ms)

    @property
    def epoch(self) -> i64:
        """The epoch of the queue; 0: no cluster has decided about it."""
        return self.epochs[len(self.epochs) - 1][0] if len(self.epochs) > 0 else 0

    def was_delivered(self, seq: i64) -> bool:
        """Whether the live message `seq` was handed out: to a consumer, or to a reader group."""
        return self.delivered.contains(seq, self.delivered_upto)

    def add_transient(self, position: Position) -> None:
        """Count a live position of a durable queue, which is in memory and transient."""
        self.transient_count += 1
        self.transient_bytes += position.body_bytes

    def remove_transient(self, position: Position) -> None:
        """Stop counting a transient position: it left the queue or memory, or became persistent."""
        self.transient_count -= 1
        self.transient_bytes -= position.body_bytes


class FailedSeqs:
    """The seq ids of a queue that were in failed batches."""

    def __init__(self) -> None:
        # Seq ids that the next batch must retract: their records may be on disk.
        self.unretracted: RunGatherer = RunGatherer()
        # The highest seq id that was retracted, or is to be.
        self.retracted_upto: i64 = 0
        # The highest seq id that was in the index already when its batch failed. The journal lacks
        # its record, so a crash may lose the message until a checkpoint has synced its segment.
        self.indexed_upto: i64 = 0


class RunGatherer:
    """Gathers seq ids into inclusive runs, (first, last)."""

    def __init__(self) -> None:
        self._first: i64 = 0
        self._last: i64 = -1
        self.runs: Runs = []

    def add(self, seq: i64) -> None:
        """Add `seq` to the runs."""
        if seq == self._last + 1 and self._last >= 0:
            self._last = seq
            return
        if self._last >= 0:
            self.runs.append((self._first, self._last))
        self._first = seq
        self._last = seq

    def gathered(self) -> Runs:
        """Copy of the runs so far, merged and in order; the gatherer keeps them."""
        runs = list(self.runs)
        if self._last >= 0:
            runs.append((self._first, self._last))
        return merge_runs(runs)

    def take(self) -> Runs:
        """The gathered runs, merged and in order; the gatherer starts over."""
        if self._last >= 0:
            self.runs.append((self._first, self._last))
        self._last = -1
        runs = self.runs
        self.runs = []
        return merge_runs(runs)


@mypyc_attr(acyclic=True)
class Position:
    """The place of one message in one queue."""

    def __init__(self, message: Message, ledger: QueueLedger, seq: i64, expiry_ms: i64) -> None:
        # The content; ABSENT when the position is in the index and its content is not in memory.
        self.message: Message = message
        self.ledger: QueueLedger = ledger
        self.seq: i64 = seq
        self.persistent: bool = message.persistent
        self.body_bytes: i64 = len(message.body)
        # Size of address, properties and body.
        self.content_bytes: i64 = self.body_bytes + len(message.address) + len(message.properties)
        # Expiry time in absolute milliseconds since 1970; 0 = never.
        self.expiry_ms: i64 = expiry_ms
        self.redelivered: bool = False
        self.journal_state: i64 = NOT_JOURNALED
        # The content is in memory.
        self.has_content: bool = True
        # The journal has a PUBLISH record for this position alone, and `crc` is that record's CRC.
        # `is_summed` and `crc` fill the rest of the word that `has_content` begins, so they do not
        # make an entry larger.
        self.is_summed: bool = False
        # CRC (signed) of that record; the position's record in the index has the same bytes.
        self.crc: i32 = 0
        # Set when the content is in a content store and may not be in memory.
        self.content_ref: ContentRef | None = None
        # Where the content of an indexed position is: the offset of the position's record in its
        # index segment; below -1, a place in a journal file (`store/records/log_places.py`); -1:
        # neither.
        self.place: i64 = -1


# Stands for the content of a position whose content is on disk only.
ABSENT: Final = Message(b"\x00\x00", b"\x00\x00", b"", False, 0)
