"""Applies the payloads of a queue's master (`records.py`) to the copy of this node.

The copy is a queue that serves nobody (`Queue.is_hidden`). Applying a payload twice changes
nothing. A payload of a lower epoch than the copy's comes from a deposed master and is refused; an
epoch that is higher counts from its EPOCH record on.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.mirror import records
from warrenmq.queues.mirror.backing import HELD_BYTES, MirrorBacking
from warrenmq.queues.queue import Queue
from warrenmq.queues.receipts import SinkReceipts
from warrenmq.queues.remote.link_records import MalformedRecordError, RecordReader
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs, add_run, contains, merge_runs, subtract


class EpochError(Exception):
    """A payload of another epoch than the copy's; nothing of it was applied."""


class StaleEpochError(EpochError):
    """The payload comes from a master that was deposed."""


class UnknownEpochError(EpochError):
    """The copy has missed the beginning of the payload's epoch: it must be synchronised."""


class MirrorApplier:
    """Applies operations of its master to the copy `queue`; call `reopen` first."""

    def __init__(self, queue: Queue, held_bytes: i64 = HELD_BYTES) -> None:
        self.queue: Queue = queue
        # Messages come by `fill` too, until `end_sync` returns True.
        self.is_syncing: bool = False
        # What the master has told of receipts during the synchronisation; None: nothing yet.
        self._told: list[SinkReceipts] | None = None
        # Positions of messages that no operation has brought since the synchronisation began, by
        # the key of the sink: the master had got them before. None: it has not told of any.
        self._missed: dict[bytes, Runs] | None = None
        # Positions that operations have brought while `_missed` is None.
        self._brought: dict[bytes, Runs] = {}
        self._held_bytes: i64 = held_bytes
        # By priority.
        self._levels: list[MirrorBacking | None] = []
        for _ in range(1 if queue.levels is None else queue.levels.highest + 1):
            self._levels.append(None)
        self._published: records.PublishedReader = records.PublishedReader()
        # Levels whose scan is not over.
        self._reopening: i64 = 0
        self._on_reopened: Callable[[], None] | None = None

    # -- the copy ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> i64:
        """The highest epoch that the copy has seen."""
        return self.queue.epoch

    def reopen(self, done: Callable[[], None]) -> None:
        """Take over what the copy has, as after a restart; nothing in it may be unacked.

        Calls `done` at once or later, when positions had to be read from the index. No other method
        may be called before.
        """
        backings = self.queue.backings()
        self._on_reopened = done
        self._reopening = len(backings)
        for backing in backings:
            level = self._add_level(self.queue.level_of(backing.ledger), backing)
            level.reopen(self._level_reopened)

    def levels(self) -> list[MirrorBacking]:
        """The levels of the copy that have begun, the lowest first."""
        return [level for level in self._levels if level is not None]

    def check(self) -> None:
        """Assert the invariants of a mirror; for tests and the simulator."""
        for level in self.levels():
            level.check()

    # -- payloads ----------------------------------------------------------------------------------

    def apply(self, payload: bytes, now_ms: i64) -> bool:
        """Apply a payload; True: the batch that gathers has something that must be durable.

        Raises EpochError, or MalformedRecordError where a record makes no sense; the records before
        it are then applied.
        """
        reader = RecordReader(payload)
        epoch = reader.integer()
        known = self.queue.epoch
        if epoch < known:
            raise StaleEpochError(f"a payload of epoch {epoch} came in epoch {known}")
        if epoch > known and (
            len(payload) == records.HEAD_BYTES or payload[records.HEAD_BYTES] != records.EPOCH
        ):
            raise UnknownEpochError(f"a payload of epoch {epoch} came in epoch {known}")
        is_for_disk = False
        while reader.has_more():
            kind = reader.octet()
            if kind == records.PUBLISH:
                is_for_disk = self._publish(reader, now_ms) or is_for_disk
            elif kind == records.DELIVERED:
                self._level(reader).mark_delivered(records.read_runs(reader))
            elif kind == records.SPARED:
                self._level(reader).unmark_delivered(records.read_runs(reader))
            elif kind == records.SETTLED:
                level = self._level(reader)
                # The reason makes no difference to a copy.
                reader.octet()
                self._settle(level, records.read_runs(reader), now_ms)
            elif kind == records.RETURN_COUNT:
                self._count_returns(reader)
            elif kind == records.READERS:
                is_for_disk = self._take_readers(reader) or is_for_disk
            elif kind == records.RECEIVED:
                is_for_disk = self._receive(reader, now_ms) or is_for_disk
            elif kind == records.RECEIPTS:
                is_for_disk = self._take_receipts(reader) or is_for_disk
            elif kind == records.LEVEL:
                self._level(reader)
            elif kind == records.EPOCH:
                is_for_disk = self._begin_epoch(reader, epoch, now_ms) or is_for_disk
            else:
                raise MalformedRecordError(f"no record has kind {kind}")
        return is_for_disk

    def mark_all_delivered(self) -> None:
        """Mark all messages as delivered: the master has died, and may have delivered any.

        A node that runs alone does so after a crash, too (W29).
        """
        for level in self.levels():
            next_seq = level.backing.ledger.next_seq
            if next_seq > 1:
                level.mark_delivered([(1, next_seq - 1)])

    # -- synchronisation ---------------------------------------------------------------------------

    def begin_sync(self, epoch: i64, now_ms: i64) -> None:
        """Join the master of `epoch`; expect its messages by `fill`, besides its operations.

        Every operation from now on must come. The copy keeps what it has. Raises StaleEpochError.
        """
        known = self.queue.epoch
        if epoch < known:
            raise StaleEpochError(f"a synchronisation of epoch {epoch} began in epoch {known}")
        self.is_syncing = True
        self._told = None
        self._forget_brought()
        for level in self.levels():
            level.begin_sync()
            level.begin_epoch(epoch, 0, now_ms)

    def fill(
        self,
        priority: i64,
        seq: i64,
        message: Message,
        expiry_ms: i64,
        is_redelivered: bool,
        now_ms: i64,
    ) -> None:
        """Take a message of the master; see `MirrorBacking.fill`."""
        self._level_of(priority).fill(seq, message, expiry_ms, is_redelivered, now_ms)

    def settle(self, priority: i64, runs: Runs, now_ms: i64) -> None:
        """Drop messages that the copy has and that the master has no more."""
        self._settle(self._level_of(priority), runs, now_ms)

    def end_sync(self, upto: list[tuple[i64, i64]], now_ms: i64) -> bool:
        """End a pass; `upto`: (priority, next seq id) of each level of the master.

        True: the copy is complete, and durable with the batch that gathers. False: the master must
        send in another pass what is missing, from the next seq id of each level on.
        """
        ends: list[i64] = [0] * len(self._levels)
        for priority, seq in upto:
            self._level_of(priority)
            ends[priority] = seq
        is_complete = True
        for priority in range(len(self._levels)):
            level = self._levels[priority]
            if (
                level is not None
                and level.is_syncing
                and not level.end_sync(ends[priority], now_ms)
            ):
                is_complete = False
        self.is_syncing = not is_complete
        receipts = self.queue.backing.host.receipts
        told = self._told
        if is_complete and receipts is not None and told is not None:
            receipts.follow(self.queue.backing.ledger, told, False)
            self._told = None
        return is_complete

    def stop_sync(self, now_ms: i64) -> None:
        """End the synchronisation, if one is under way: no message comes by it any more.

        What waited for its end is in the copy then, and in the journal batch that gathers, with the
        receipts of what operations have brought.
        """
        if not self.is_syncing:
            return
        for level in self.levels():
            while level.is_syncing:
                level.end_sync(max(level.held_from, level.backing.ledger.next_seq), now_ms)
        self.is_syncing = False
        receipts = self.queue.backing.host.receipts
        self._note_forgotten()
        if receipts is not None and self._missed is not None:
            ledger = self.queue.backing.ledger
            receipts.follow(ledger, self._told_of_brought(receipts.receipts_of(ledger)), False)
            self._told = None

    # -- records -----------------------------------------------------------------------------------

    def _publish(self, reader: RecordReader, now_ms: i64) -> bool:
        level = self._level(reader)
        seq = records.read_seq(reader)
        left = reader.number()
        is_for_disk = False
        published = self._published
        while left > 0:
            message = published.read(reader)
            if level.publish_at(seq, message, published.expiry_ms, published.redelivered, now_ms):
                is_for_disk = True
            seq += 1
            left -= 1
        return is_for_disk

    def _receive(self, reader: RecordReader, now_ms: i64) -> bool:
        level = self._level(reader)
        sink = reader.text()
        seq = records.read_seq(reader)
        left = reader.number()
        is_for_disk = False
        published = self._published
        ledger = self.queue.backing.ledger
        receipts = self.queue.backing.host.receipts
        while left > 0:
            position = records.read_position(reader)
            message = published.read(reader)
            # While the copy lacks messages, the receipts come at the end of that.
            if receipts is not None and not self.is_syncing:
                moved = receipts.received(ledger, sink, position, message)
                if moved is not None:
                    message = moved
                    is_for_disk = True
            if level.publish_at(seq, message, published.expiry_ms, published.redelivered, now_ms):
                is_for_disk = True
            if self.is_syncing:
                self._bring(sink, position)
            seq += 1
            left -= 1
        return is_for_disk

    def _settle(self, level: MirrorBacking, runs: Runs, now_ms: i64) -> None:
        level.settle(runs, now_ms)
        counts = self.queue.return_counts
        if len(counts) > 0:
            for seq in [seq for seq in counts if contains(runs, seq)]:
                del counts[seq]

    def _count_returns(self, reader: RecordReader) -> None:
        level = self._level_of(0)
        left = reader.number()
        while left > 0:
            seq = records.read_seq(reader)
            count = reader.number()
            if not level.is_settled(seq):
                self.queue.return_counts[seq] = count
            left -= 1

    def _take_readers(self, reader: RecordReader) -> bool:
        parts = records.read_readers(reader)
        backing = self.queue.backing
        return backing.host.take_reader_parts(backing.ledger, parts)

    def _take_receipts(self, reader: RecordReader) -> bool:
        books = records.read_receipts(reader)
        backing = self.queue.backing
        receipts = backing.host.receipts
        if receipts is None:
            return False
        if not self.is_syncing:
            return receipts.follow(backing.ledger, books, False)
        self._told = books
        self._note_forgotten()
        if self._missed is None:
            missed: dict[bytes, Runs] = {}
            for book in books:
                missed[book.sink] = _without(book.runs, self._brought.get(book.sink, []))
            self._missed = missed
        return receipts.follow(backing.ledger, books, True)

    def _bring(self, sink: bytes, position: i64) -> None:
        """Note that an operation has brought a message during the synchronisation."""
        self._note_forgotten()
        if self._missed is None:
            add_run(self._brought.setdefault(sink, []), position, position)

    def _note_forgotten(self) -> None:
        """Count what operations have brought as missed, once the copy had to forget some of it."""
        for level in self.levels():
            if level.has_forgotten:
                level.has_forgotten = False
                self._forget_brought()

    def _forget_brought(self) -> None:
        self._missed = None
        self._brought = {}

    def _told_of_brought(self, own: list[SinkReceipts]) -> list[SinkReceipts]:
        """What the master has told, without the messages that no operation has brought.

        The copy may lack them. `own`: its receipts of before, which stay.
        """
        told = self._told
        missed = self._missed
        assert told is not None and missed is not None
        known: dict[bytes, Runs] = {}
        for book in own:
            known[book.sink] = book.runs
        found: list[SinkReceipts] = []
        for book in told:
            runs = _without(book.runs, missed.get(book.sink, []))
            runs.extend(known.get(book.sink, []))
            found.append(SinkReceipts(book.sink, book.floor, merge_runs(runs)))
        return found

    def _begin_epoch(self, reader: RecordReader, epoch: i64, now_ms: i64) -> bool:
        if reader.integer() != epoch:
            raise MalformedRecordError("a payload begins another epoch than its own")
        left = reader.number()
        starts: list[i64] = [0] * len(self._levels)
        while left > 0:
            priority = reader.octet()
            seq = records.read_seq(reader)
            self._level_of(priority)
            starts[priority] = seq
            left -= 1
        is_begun = False
        for priority in range(len(self._levels)):
            level = self._levels[priority]
            if level is not None and level.begin_epoch(epoch, starts[priority], now_ms):
                is_begun = True
        return is_begun and self.queue.durable

    def _level(self, reader: RecordReader) -> MirrorBacking:
        return self._level_of(reader.octet())

    def _level_of(self, priority: i64) -> MirrorBacking:
        """The level of `priority`, which begins now if it has not."""
        if priority < 0 or priority >= len(self._levels):
            raise MalformedRecordError(f"the queue has no level {priority}")
        level = self._levels[priority]
        if level is None:
            backing = self.queue.begin_level(priority)
            if backing is None:
                raise MalformedRecordError(f"the queue has no level {priority}")
            level = self._add_level(priority, backing)
            if self.is_syncing:
                level.begin_sync()
        return level

    def _add_level(self, priority: i64, backing: PagedQueue) -> MirrorBacking:
        level = MirrorBacking(backing, self.queue, self._held_bytes)
        self._levels[priority] = level
        return level

    def _level_reopened(self) -> None:
        self._reopening -= 1
        done = self._on_reopened
        if self._reopening == 0 and done is not None:
            self._on_reopened = None
            done()


def _without(runs: Runs, others: Runs) -> Runs:
    """The positions of `runs` that `others` have not."""
    left: Runs = []
    for first, last in runs:
        left.extend(subtract(first, last, others))
    return left
