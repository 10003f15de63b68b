"""A queue store in memory, whose loads end when the test says so, and a host for its queues.

The model keeps what the real store keeps on disk, including journal states and references. It is
strict: it fails when a queue asks for something it may not ask for. `ModelHost.check` compares each
queue with the stored positions.
"""

from collections.abc import Callable

from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.memory.account import MemoryAccount
from warrenmq.queues.queue import Queue
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.jobs.job import LoadDone
from warrenmq.store.model.epochs import add_epoch
from warrenmq.store.model.message import (
    ABSENT,
    INDEXED,
    NOT_JOURNALED,
    PENDING,
    SETTLED,
    WRITTEN,
    ContentRef,
    Message,
    Position,
    QueueLedger,
)

NOW_MS = 1_700_000_000_000


class Stored:
    """One position in the index."""

    def __init__(self, position: Position, message: Message) -> None:
        self.message = message
        self.expiry_ms = position.expiry_ms
        self.persistent = position.persistent
        self.redelivered = position.redelivered
        self.content = position.content_ref


class ModelHost(QueueHost):
    """A vhost; small `page_batch` and `segment_entries` make every boundary come soon."""

    def __init__(
        self, embed_below: int = 100, page_batch: int = 8, segment_entries: int = 16
    ) -> None:
        super().__init__(MemoryAccount(lambda: None), embed_below, page_batch, segment_entries)
        self.now_ms = NOW_MS
        self.stores: list[ModelStore] = []
        # Messages in the content stores, by content id.
        self.contents: dict[int, Message] = {}
        # Number of positions that refer to each content, by content id.
        self.references: dict[int, int] = {}
        self.next_content_id = 1
        # Positions that gather for the next batch.
        self.batch: list[Position] = []
        # Unacked entries that the test has taken.
        self.out: list[Entry] = []
        # Completions of loads, oldest first.
        self.loads: list[Callable[[], None]] = []
        # (store, seq id) of messages that could not be read.
        self.lost: list[tuple[ModelStore, int]] = []
        self.is_behind = False
        self.wake_count = 0
        self.timed: list[QueueLedger] = []
        # The parts of reader groups, by the id of the ledger.
        self.parts: dict[int, list[ReaderPart]] = {}

    def open_store(self, ledger: QueueLedger, is_durable: bool) -> "ModelStore":
        store = ModelStore(self, ledger, is_durable)
        ledger.is_durable = is_durable
        self.stores.append(store)
        return store

    def expect_timer(self, ledger: QueueLedger) -> None:
        self.timed.append(ledger)

    def wake(self) -> None:
        self.wake_count += 1

    def on_unacked_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        for entry in lost:
            self.out.remove(entry)

    def find_unacked(self, ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        return [entry for entry in self.out if entry.ledger is ledger and first <= entry.seq < end]

    def reader_parts(self, ledger: QueueLedger) -> list[ReaderPart]:
        return self.parts.get(ledger.queue_id, [])

    def take_reader_parts(self, ledger: QueueLedger, parts: list[ReaderPart]) -> bool:
        self.parts[ledger.queue_id] = parts
        return True

    # -- what the test does ------------------------------------------------------------------------

    def declare(self, durable: bool = True, is_lazy: bool = False, ttl_ms: int = -1) -> Queue:
        """Declare a queue."""
        settings = QueueSettings(message_ttl_ms=ttl_ms, is_lazy=is_lazy)
        definition = QueueDefinition(
            b"q", 1 + len(self.stores), durable, False, None, b"", settings
        )
        return Queue(definition, self, self.now_ms)

    def seal(self) -> None:
        """Encode the gathered batch."""
        for position in self.batch:
            if position.journal_state == PENDING:
                position.journal_state = WRITTEN
                if position.content_bytes >= self.embed_below:
                    self.undurable_stores(position)
                if (
                    position.content_bytes >= self.embed_below
                    and position.message.content_ref is None
                ):
                    position.message.content_ref = self.add_content(position.message, False)
                elif position.message.content_ref is not None:
                    self.references[int(position.message.content_ref.id)] += 1
        self.batch = []
        self.on_sealed()

    def commit(self) -> None:
        """Make the sealed batches durable."""
        for store in self.stores:
            store.undurable.clear()
        self.on_sealed()

    def undurable_stores(self, position: Position) -> None:
        for store in self.stores:
            if store.ledger is position.ledger:
                store.undurable.add(int(position.seq))

    def add_content(self, message: Message, transient: bool) -> ContentRef:
        ref = ContentRef(self.next_content_id, 0, 0, len(message.body), 1, transient)
        self.contents[self.next_content_id] = message
        self.references[self.next_content_id] = 1
        self.next_content_id += 1
        return ref

    def release(self, ref: ContentRef) -> None:
        self.references[int(ref.id)] -= 1
        assert self.references[int(ref.id)] >= 0, "a content was released too often"
        if self.references[int(ref.id)] == 0:
            del self.references[int(ref.id)]
            del self.contents[int(ref.id)]

    def turn(self) -> None:
        """End a turn."""
        self.end_turn(self.now_ms)

    def complete(self, count: int = 1) -> None:
        """Complete the oldest `count` loads."""
        for _ in range(min(count, len(self.loads))):
            self.loads.pop(0)()

    def settle_down(self, seal: bool = True) -> None:
        """Run turns, commits and loads until nothing happens any more; `seal` False: no commits."""
        for _ in range(10_000):
            if seal:
                self.seal()
                self.commit()
            before = self.wake_count
            self.turn()
            if self.loads:
                self.complete(len(self.loads))
            elif self.wake_count == before:
                return
        raise AssertionError("the queue never rests")

    def take(self, queue: Queue, no_ack: bool = False) -> Entry | None:
        """Take one message as basic.get does, after as many loads as that needs."""
        found: list[Entry | None] = []

        def look(now_ms: int) -> None:
            entry = queue.get(no_ack, now_ms)
            if entry is not None:
                if not no_ack:
                    self.out.append(entry)
                assert entry.has_content and entry.message is not ABSENT
                found.append(entry)
            elif queue.head_state(now_ms) == EMPTY:
                found.append(None)
            else:
                queue.when_head(look)

        look(self.now_ms)
        for _ in range(1000):
            if found:
                return found[0]
            self.turn()
            self.complete()
        raise AssertionError("the head never comes")

    def settle(self, entry: Entry) -> None:
        """Ack, as basic.ack does."""
        self.out.remove(entry)
        entry.queue.leave(entry, ACKED, self.now_ms)

    def requeue(self, *entries: Entry) -> None:
        """Requeue entries of one queue, as basic.nack does."""
        for entry in entries:
            self.out.remove(entry)
        entries[0].queue.requeue(list(entries), self.now_ms)

    def check(self) -> None:
        """Assert that each queue matches its store."""
        for store in self.stores:
            store.check(self)


class ModelStore(QueueStore):
    """The store of one queue."""

    def __init__(self, host: ModelHost, ledger: QueueLedger, is_durable: bool) -> None:
        # No super().__init__: the model replaces all parts of the real store.
        self.host = host
        self.ledger = ledger
        self.is_durable = is_durable
        self.is_copy = False
        self.live: dict[int, Stored] = {}
        self.is_loading = False
        self.was_deleted = False
        self.loads = 0
        # Seq ids whose record cannot be read.
        self.damaged: set[int] = set()
        # Those of them that are counted as lost, and how many of them the queue does not know of.
        self.counted: set[int] = set()
        self.lost_count = 0
        # Seq ids whose record can be read, but not their content.
        self.unreadable: set[int] = set()
        # Damaged seq ids whose message was nowhere else.
        self.lost: set[int] = set()
        # Seq id after the last load; a load that continues there counts no damage twice.
        self.cursor_seq = 0
        # Seq ids whose content has not reached the disk.
        self.undurable: set[int] = set()

    @property
    def is_behind(self) -> bool:
        return self.host.is_behind

    @property
    def queue(self) -> Queue:
        """The queue of this store."""
        position = self.ledger.make_position(ABSENT, 0, 0)
        assert isinstance(position, Entry) and isinstance(position.queue, Queue)
        return position.queue

    def begin_epoch(self, epoch: int) -> None:
        add_epoch(self.ledger.epochs, epoch, self.ledger.next_seq)

    def append(self, position: Position, now_ms: int) -> None:
        assert self.is_durable and position.journal_state == NOT_JOURNALED and position.has_content
        assert position.seq >= self.ledger.indexed_upto
        if not position.persistent:
            position.persistent = True
            self.ledger.remove_transient(position)
        position.journal_state = PENDING
        self.host.batch.append(position)

    def settle(self, position: Position, now_ms: int) -> None:
        state = position.journal_state
        assert state != SETTLED
        if state == INDEXED:
            assert self.live.pop(int(position.seq), None) is not None, "settled twice"
            if position.content_ref is not None:
                self.host.release(position.content_ref)
                position.content_ref = None
        elif state == WRITTEN:
            assert position.message is not ABSENT, "the journal's account is lost"
            if position.message.content_ref is not None:
                self.host.release(position.message.content_ref)
        elif position.content_ref is not None:
            self.host.release(position.content_ref)
            position.content_ref = None
        position.journal_state = SETTLED if state == PENDING else NOT_JOURNALED

    def lose(self, position: Position) -> None:
        self.host.lost.append((self, int(position.seq)))
        self.settle(position, 0)

    def may_index(self, position: Position) -> bool:
        return position.journal_state != PENDING and position.seq not in self.undurable

    def index(self, positions: list[Position]) -> None:
        previous = self.ledger.indexed_upto - 1
        for position in positions:
            assert position.seq > previous
            assert position.journal_state in (NOT_JOURNALED, WRITTEN) and self.may_index(position)
            previous = position.seq
            message = position.message
            if position.content_ref is None:
                position.content_ref = message.content_ref
            if position.content_ref is None and position.content_bytes >= self.host.embed_below:
                self.content_to_transient(position)
            if position.content_ref is not None:
                message = self.host.contents[int(position.content_ref.id)]
            assert message is not ABSENT
            position.journal_state = INDEXED
            position.place = position.seq
            self.live[int(position.seq)] = Stored(position, message)
        self.ledger.indexed_upto = positions[-1].seq + 1

    def index_range_done(self, upto: int) -> None:
        self.ledger.indexed_upto = max(self.ledger.indexed_upto, upto)

    def content_to_transient(self, position: Position) -> None:
        assert position.journal_state == NOT_JOURNALED and position.content_ref is None
        position.content_ref = self.host.add_content(position.message, True)

    def settle_range(self, first: int, end: int, now_ms: int) -> int:
        size = self.host.segment_entries
        start = (first + size - 1) // size * size
        assert end % size == 0 or end == self.ledger.indexed_upto
        within = [seq for seq in self.live if first <= seq < end]
        if any(self.live[seq].content is not None for seq in within if seq >= start):
            return end
        out = {int(entry.seq) for entry in self.host.find_unacked(self.ledger, first, end)}
        for seq in within:
            if seq >= start:
                assert seq not in out, "an unacked message was purged"
                del self.live[seq]
        return min(start, end) if start > first else first

    def load(
        self, from_seq: int, end_seq: int, max_messages: int, max_bytes: int, done: LoadDone
    ) -> None:
        assert not self.is_loading, "one load at a time"
        self.is_loading = True
        self.loads += 1
        positions: list[Position] = []
        next_seq = end_seq
        size = 0
        # A damaged record does not say which queue it belonged to. The scan begins at the start of
        # the segment, or at the cursor.
        start = from_seq // self.host.segment_entries * self.host.segment_entries
        met_from = self.cursor_seq if start <= self.cursor_seq <= from_seq else start
        # As in the real store, a load finds what is live at its begin, whatever happens until its
        # end.
        for seq in sorted(self.live):
            if seq < from_seq or seq >= end_seq:
                continue
            if len(positions) >= max_messages or (positions and size >= max_bytes):
                next_seq = seq
                break
            stored = self.live[seq]
            if seq in self.damaged:
                continue
            position = self.ledger.make_position(stored.message, seq, stored.expiry_ms)
            position.journal_state = INDEXED
            position.persistent = stored.persistent
            position.redelivered = stored.redelivered
            position.content_ref = stored.content
            position.place = seq
            if seq in self.unreadable:
                position.message = ABSENT
                position.has_content = False
            positions.append(position)
            size += position.content_bytes
        met = {seq for seq in self.damaged if met_from <= seq < next_seq}
        self.cursor_seq = next_seq

        def come_back() -> None:
            self.is_loading = False
            in_memory = self._in_memory()
            for seq in met:
                if seq not in self.live:
                    continue
                if seq not in self.counted:
                    self.counted.add(seq)
                    self.lost_count += 1
                if seq >= from_seq and seq not in in_memory:
                    self.host.lost.append((self, seq))
                    self._lose(seq)
            done.on_loaded(positions, next_seq)

        self.host.loads.append(come_back)

    def take_lost(self) -> int:
        lost, self.lost_count = self.lost_count, 0
        return lost

    def load_positions(
        self, from_seq: int, end_seq: int, max_messages: int, done: LoadDone
    ) -> None:
        # A read of the index brings fewer messages than requested.
        self.load(from_seq, end_seq, min(max_messages, int(self.host.page_batch)), 1 << 40, done)

    def load_contents(self, positions: list[Position], done: LoadDone) -> None:
        assert not self.is_loading, "one load at a time"
        self.is_loading = True
        self.loads += 1
        found: list[tuple[Position, Message]] = []
        lost: list[Position] = []
        for position in positions:
            assert not position.has_content
            seq = int(position.seq)
            if seq in self.damaged or seq in self.unreadable:
                lost.append(position)
            elif position.content_ref is not None:
                found.append((position, self.host.contents[int(position.content_ref.id)]))
            else:
                found.append((position, self.live[seq].message))

        def come_back() -> None:
            self.is_loading = False
            for position, message in found:
                position.message = message
                position.has_content = True
            done.on_contents(
                positions, [position for position in lost if int(position.seq) in self.live]
            )

        self.host.loads.append(come_back)

    def delete(self) -> None:
        assert not self.was_deleted
        self.was_deleted = True
        for stored in self.live.values():
            if stored.content is not None:
                self.host.release(stored.content)
        self.live = {}

    def _in_memory(self) -> set[int]:
        """Seq ids that the queue or a holder of its messages knows without a load."""
        queue = self.queue
        out = {int(entry.seq) for entry in self.host.out if entry.queue is queue}
        ready = {
            int(queue.backing.ready.at(index).seq)
            for index in range(queue.backing.ready.entry_count)
        }
        purged: set[int] = set()
        for purge in queue.backing.purges.waiting:
            for part in purge._parts:
                purged.update(int(part.at(place).seq) for place in range(part.count))
        return out | ready | purged

    def _lose(self, seq: int) -> None:
        self.lost.add(seq)
        stored = self.live.pop(seq)
        if stored.content is not None:
            self.host.release(stored.content)

    def check(self, host: ModelHost) -> None:
        """Assert correct index and counts, unless the queue is deleted or has a purge to run."""
        queue = self.queue
        if queue.is_deleted or not queue.backing.purges.is_empty():
            return
        queue.backing.ready.check()
        # The account knows every change of memory by the end of the turn.
        assert (
            queue.backing.memory.is_changed
            or queue.backing.is_listed
            or queue.backing.memory.ram_bytes == queue.backing.memory.current_bytes()
        )
        out = [entry for entry in host.out if entry.queue is queue]
        assert queue.unacked_count == len(out)
        assert queue.ledger.unindexed_unacked == sum(
            entry.seq >= queue.ledger.indexed_upto for entry in out
        )
        assert queue.backing.unacked.paged_count == sum(entry.form != 0 for entry in out)
        assert queue.backing.unacked.content_bytes == sum(
            entry.content_bytes for entry in out if entry.form == 0
        )
        ready = queue.backing.ready
        entries = [ready.at(index) for index in range(ready.entry_count)]
        mark = queue.ledger.indexed_upto
        for entry in entries + out:
            assert (entry.journal_state == INDEXED) == (entry.seq < mark)
            assert entry.journal_state != INDEXED or int(entry.seq) in self.live
        in_memory = {int(entry.seq) for entry in entries + out}
        on_disk = {seq for seq in self.live if seq not in in_memory}
        delta = ready.delta
        if delta.is_uncertain:
            assert delta.count > 0 or not on_disk
        else:
            # Delta counts lost messages until its begin or end moves past them.
            lost = sum(delta.covers(seq) for seq in self.lost)
            assert len(on_disk) <= delta.count <= len(on_disk) + lost
        assert all(ready.delta.covers(seq) for seq in on_disk)
