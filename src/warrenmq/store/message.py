"""A message's content, and its position in one queue, as the store sees them.

Content is kept in the form in which it travels: `address` is the two short strings `exchange, routing key` exactly
as a publish carries them and a deliver repeats them, `properties` is the raw property block from the flag word on.
Nothing is decoded to be stored or delivered. A message routed to several queues is one `Message` with several
positions, and its content is written once (S37).
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64, mypyc_attr

from warrenmq.store.queue_index import QueueIndex
from warrenmq.store.runs import Runs, merge_runs

# Life of a position in the journal.
NOT_JOURNALED: Final = 0  # transient, or its batch failed: lives in memory only
PENDING: Final = 1  # in the batch that gathers; settled now, it never costs a write
WRITTEN: Final = 2  # in a sealed batch; settling it takes an ack record
SETTLED: Final = 3  # settled while still pending
INDEXED: Final = (
    4  # in its queue's index; settling it takes an ack record, no account of the journal
)


class JournalFile:
    """One `<number>.wal`: how large it is and how much of it is still wanted (bytes)."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        self.size_bytes: i64 = 0
        self.live_bytes: i64 = 0
        # Records of moves in it whose messages are not settled yet where they were staged: it stays until they are.
        self.pins: i64 = 0
        # The queues it has positions of and, once it is closed, the seq id each had reached.
        self.ledgers: list[QueueLedger] = []
        self.ends: list[int] = []


@mypyc_attr(acyclic=True)
class ContentRef:
    """Where the content of a large message is: its id in a content store, and the place that was right when it was
    written (compaction moves content; the id stays)."""

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
        # Size of its record, and how many positions share it.
        self.stored_bytes: i64 = stored_bytes
        self.references: i64 = references
        self.transient: bool = transient


@mypyc_attr(acyclic=True)
class Message:
    """Content, shared by every queue the message was routed to."""

    def __init__(
        self, address: bytes, properties: bytes, body: bytes, persistent: bool, timestamp_ms: i64
    ) -> None:
        self.address: bytes = address
        self.properties: bytes = properties
        self.body: bytes = body
        self.persistent: bool = persistent
        self.timestamp_ms: i64 = timestamp_ms
        # Where its record is (None: nowhere), the record's size, and how many positions still need it.
        self.file: JournalFile | None = None
        self.stored_bytes: i64 = 0
        self.journal_refs: i64 = 0
        # Set when the content went to a content store.
        self.content_ref: ContentRef | None = None

    @property
    def content_bytes(self) -> i64:
        """Size of everything that is stored: address, properties and body."""
        return len(self.address) + len(self.properties) + len(self.body)

    def exchange(self) -> bytes:
        """Name of the exchange it was published to."""
        return self.address[1 : 1 + self.address[0]]

    def routing_key(self) -> bytes:
        """Routing key it was published with."""
        return self.address[2 + self.address[0] :]


@mypyc_attr(acyclic=True)
class MovedMessage(Message):
    """A message that was staged, on its way to the queues it is for. Its record says from where it comes, so that
    recovery knows what is not to be published again."""

    def __init__(
        self,
        address: bytes,
        properties: bytes,
        body: bytes,
        persistent: bool,
        timestamp_ms: i64,
        stage_id: i64,
        stage_seq: i64,
    ) -> None:
        super().__init__(address, properties, body, persistent, timestamp_ms)
        # Id of the staging log's queue, and the message's place in it.
        self.stage_id: i64 = stage_id
        self.stage_seq: i64 = stage_seq
        # The file that must stay until the message is settled where it was staged.
        self.pinned: JournalFile | None = None


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueLedger:
    """The store's side of one queue: its numbering, and the acks the next batch will carry.

    Acks gather as inclusive runs of seq ids, so a queue that is consumed in order costs one pair of integers a batch.
    """

    def __init__(self, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        # Are its acks written?
        self.is_durable: bool = False
        self.next_seq: i64 = 1
        # Highest seq id ever handed to a consumer; written at a clean stop (redelivered flag after a restart, W29).
        self.delivered_upto: i64 = 0
        # Every live position below is in the queue's index, and none from here on.
        self.indexed_upto: i64 = 1
        # Transient positions below were there before the last start: they are gone.
        self.transient_floor: i64 = 0
        # Highest seq id that was in a batch that failed: what is left of those on disk is retracted by acks.
        self.retracted_upto: i64 = 0
        # Highest seq id that had moved to the index when its batch failed: no journal has it, so a crash may take it until a
        # checkpoint has synced its segment.
        self.failed_upto: i64 = 0
        # Unacked positions from `indexed_upto` on.
        self.unindexed_out: i64 = 0
        # Number of the journal file that names this log among those it has positions of.
        self.journal_file: i64 = -1
        # Settled since the last seal: positions that are in the journal only, and those that are in the index.
        self.journaled: RunGatherer = RunGatherer()
        self.indexed: RunGatherer = RunGatherer()
        # Contents of which these positions held a reference each.
        self.releases: list[ContentRef] = []
        self.is_dirty: bool = False
        # None: it has none yet.
        self.index: QueueIndex | None = None

    def make_position(self, message: Message, seq: i64, expiry_ms: i64) -> Position:
        """A position of this queue, as what its owner keeps."""
        return Position(message, self, seq, expiry_ms)


class RunGatherer:
    """Seq ids that were settled, as inclusive runs."""

    def __init__(self) -> None:
        self._first: i64 = 0
        self._last: i64 = -1
        self.runs: Runs = []

    def add(self, seq: i64) -> None:
        """Take note of `seq`."""
        if seq == self._last + 1 and self._last >= 0:
            self._last = seq
            return
        if self._last >= 0:
            self.runs.append((self._first, self._last))
        self._first = seq
        self._last = seq

    def gathered(self) -> Runs:
        """What has gathered so far, merged and in order; gathering goes on."""
        runs = list(self.runs)
        if self._last >= 0:
            runs.append((self._first, self._last))
        return merge_runs(runs)

    def take(self) -> Runs:
        """The gathered runs, merged and in order; gathering starts over."""
        if self._last >= 0:
            self.runs.append((self._first, self._last))
        self._last = -1
        runs = self.runs
        self.runs = []
        return merge_runs(runs)


@mypyc_attr(acyclic=True)
class Position:
    """One message's place in one queue."""

    def __init__(self, message: Message, ledger: QueueLedger, seq: i64, expiry_ms: i64) -> None:
        # ABSENT when it is in the index and its content is not in memory.
        self.message: Message = message
        self.ledger: QueueLedger = ledger
        self.seq: i64 = seq
        self.persistent: bool = message.persistent
        self.body_bytes: i64 = len(message.body)
        # Address, properties and body.
        self.content_bytes: i64 = self.body_bytes + len(message.address) + len(message.properties)
        # Absolute milliseconds since 1970; 0 = never.
        self.expiry_ms: i64 = expiry_ms
        self.redelivered: bool = False
        self.journal_state: i64 = NOT_JOURNALED
        # Is the body in memory?
        self.has_content: bool = True
        # Has it a PUBLISH record of its own in the journal, and the CRC (signed) of that: its record in the index has the
        # same bytes. They fill what `has_content` leaves of its word, so an entry is no larger by them.
        self.is_summed: bool = False
        self.crc: i32 = 0
        # Set when the content is in a content store and may not be in memory.
        self.content_ref: ContentRef | None = None
        # Offset of its record in its segment of the index; -1: not there.
        self.place: i64 = -1


# What a position points to whose content is on disk only.
ABSENT: Final = Message(b"\x00\x00", b"\x00\x00", b"", False, 0)
