"""A master and one mirror on real stores and simulated disks, and the links between them.

Operations go over the ring, records of a synchronisation over a link of their own; neither waits
for the other. A test decides when frames arrive, and moves the clock.
"""

from collections import deque

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode, VirtualClock
from warrenmq.broker.definitions.metadata import PutQueuePart
from warrenmq.cluster.mirrors.log.sync_lines import SyncLines
from warrenmq.cluster.mirrors.records import SyncRecord
from warrenmq.cluster.mirrors.sync.records import CHUNK, decode
from warrenmq.cluster.mirrors.sync.source import IN_SYNC, SourceHost, SyncSource
from warrenmq.cluster.mirrors.sync.target import SyncTarget, TargetHost
from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.backing import HELD_BYTES
from warrenmq.queues.mirror.durable_marks import DurableMarks, MarkHost
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.model.message import Message, QueueLedger

NAME = b"q"
# (level, seq, body, properties, expiry ms, is redelivered) of a message.
Row = tuple[int, int, bytes, bytes, int, bool]


class Disk(MemoryDisk):
    """A disk whose priority queues do not outlive a crash."""

    def apply(self, change: object) -> None:
        if not isinstance(change, PutQueuePart):
            super().apply(change)


class MasterHost(SourceHost):
    """The master, as the source sees it."""

    def __init__(self, pair: "Pair") -> None:
        self.pair = pair
        self.ring_bytes = 0

    def send_sync(self, node: bytes, record: SyncRecord) -> None:
        self.pair.to_mirror.append(record)

    def next_number(self) -> int:
        self.pair.must_send = True
        return self.pair.ring_number + 1

    def repeat(self, level: int, below: int) -> None:
        self.pair.feed.repeat(level, below)

    def on_synced(self, node: bytes) -> None:
        self.pair.synced_count += 1


class MirrorHost(TargetHost, MarkHost):
    """The replica of the mirror."""

    def __init__(self, pair: "Pair") -> None:
        self.pair = pair

    def report(self, record: SyncRecord) -> None:
        self.pair.to_master.append(record)

    def begin_anew(self) -> None:
        self.pair.begin_anew()

    def mark_raised(self, upto: int) -> None:
        pass

    def mark_failed(self) -> None:
        self.pair.has_failed = True


class Pair:
    """Node `master` with the queue and node `mirror`, which has a copy of it and has not joined."""

    def __init__(
        self,
        settings: QueueSettings | None = None,
        durable: bool = True,
        held_bytes: int = HELD_BYTES,
        rate_bytes: int = 0,
        is_automatic: bool = True,
        batch_messages: int = 4096,
    ) -> None:
        self.clock = VirtualClock()
        self.settings = settings or QueueSettings()
        self.durable = durable
        self.held_bytes = held_bytes
        self.master = MemoryNode(Disk(), self.clock)
        self.mirror = MemoryNode(Disk(), self.clock)
        # Consumers want so few messages in memory that a few more leave it.
        self.master.vhost.host.page_batch = 4
        self.queue: Queue = self.master.declare(NAME, durable, self.settings)
        # Unacked entries of the master.
        self.out: list[Entry] = []
        self.master.vhost.host.unacked_finders.append(self._find_unacked)
        self.mirror_host = MirrorHost(self)
        self.epoch = 0
        self.ring: deque[tuple[int, bytes]] = deque()
        self.ring_number = 0
        self.master_host = MasterHost(self)
        self.must_send = False
        self.to_mirror: deque[SyncRecord] = deque()
        self.to_master: deque[SyncRecord] = deque()
        self.synced_count = 0
        self.has_failed = False
        self.is_joined = False
        self.bodies = 0
        self.begin_epoch()
        self.lines: list[str] = []
        self.source = SyncSource(
            b"n2",
            self.queue,
            self.master_host,
            batch_messages,
            rate_bytes,
            is_automatic,
            SyncLines("n2", lambda text, _event: self.lines.append(text)),
        )
        self.mirror.declare(NAME, durable, self.settings)
        self.open_copy()

    def _find_unacked(self, ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        return [one for one in self.out if one.ledger is ledger and first <= one.seq < end]

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def is_in_sync(self) -> bool:
        return self.source.state == IN_SYNC

    # -- nodes -------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Begin an epoch at the master."""
        self.epoch += 1
        self.feed = RingFeed(self.queue, lambda: None)
        self.feed.begin(self.epoch, next_start(self.queue, 0))

    def open_copy(self) -> None:
        """Open the copy that the mirror has of the queue."""
        self.mirror.vhost.host.page_batch = 4
        self.copy = self.mirror.vhost.queues[NAME]
        self.copy.begin_hidden()
        self.applier = MirrorApplier(self.copy, self.held_bytes)
        reopened: list[bool] = []
        self.applier.reopen(lambda: reopened.append(True))
        self.mirror.work()
        assert reopened
        self.marks = DurableMarks(self.mirror.vhost.journal, self.mirror_host)
        self.target = SyncTarget(self.applier, self.marks, self.mirror_host)

    def join(self) -> None:
        """Let the mirror join the ring, and synchronise."""
        assert not self.is_joined
        self.flush_ring()
        self.ring.clear()
        self.is_joined = True
        self.target.begin(self.epoch, self.now_ms)

    def leave(self) -> None:
        """Take the mirror out of the ring and cut its link."""
        self.is_joined = False
        self.cut_link()
        self.ring.clear()

    def cut_link(self) -> None:
        """Lose what is under way between source and target; the ring keeps its messages."""
        self.to_mirror.clear()
        self.to_master.clear()
        self.source.stop()
        self.target.stop()

    def restart_mirror(self) -> None:
        """Let the mirror's node lose its power, and start again."""
        self.leave()
        self.mirror = self.mirror.crash()
        self.open_copy()

    def reopen_copy(self) -> None:
        """Let the mirror, which has missed operations, take over what it has."""
        self.leave()
        self.mirror.commit()
        self.open_copy()

    def begin_anew(self) -> None:
        """Replace the copy by an empty one."""
        self.leave()
        self.mirror.delete(NAME)
        self.mirror.declare(NAME, self.durable, self.settings)
        self.open_copy()
        self.join()

    # -- what clients do ---------------------------------------------------------------------------

    def publish(
        self,
        count: int = 1,
        size: int = 20,
        persistent: bool = True,
        expiration_ms: int = -1,
        priority: int = 0,
    ) -> None:
        """Publish messages with bodies of their own."""
        for _ in range(count):
            self.bodies += 1
            body = b"%0*d" % (size, self.bodies)
            message = Message(b"\x00\x01q", b"\x00\x00", body, persistent, self.now_ms)
            self.queue.publish(message, expiration_ms, self.now_ms, priority=priority)

    def take(self, count: int = 1) -> list[Entry]:
        """Take messages with basic.get, fewer if the queue is empty."""
        taken: list[Entry] = []
        while len(taken) < count:
            entry = self._get(self.master, self.queue, False)
            if entry is None:
                break
            self.out.append(entry)
            taken.append(entry)
        return taken

    def ack(self, entries: list[Entry]) -> None:
        """Ack unacked messages."""
        for entry in entries:
            self.out.remove(entry)
            self.queue.leave(entry, ACKED, self.now_ms)

    def requeue(self, entries: list[Entry], is_unseen: bool = False) -> None:
        """Return unacked messages."""
        for entry in entries:
            self.out.remove(entry)
        if is_unseen:
            self.queue.put_back(list(entries), self.now_ms)
        else:
            self.queue.requeue(list(entries), self.now_ms)

    def _get(self, node: MemoryNode, queue: Queue, no_ack: bool) -> Entry | None:
        for _ in range(100):
            entry = queue.get(no_ack, self.now_ms)
            if entry is not None or queue.head_state(self.now_ms) == EMPTY:
                return entry
            queue.when_head(lambda now_ms: None)
            node.work()
        raise AssertionError("the head never comes")

    def page_out(self) -> None:
        """Let most messages of the master leave memory, and let it be a default queue again."""
        for level in self.queue.backings():
            level.memory.set_mode(True)
            level.ask_for_turn()
        for _ in range(10):
            self.master.work()
            self.master.commit()
        for level in self.queue.backings():
            level.memory.set_mode(self.settings.is_lazy)

    # -- time --------------------------------------------------------------------------------------

    def flush_ring(self) -> None:
        """End a turn of the master: its operations go to the ring."""
        payload = self.feed.take(self.epoch)
        if payload == b"" and self.must_send:
            payload = self.epoch.to_bytes(8, "big")
        self.must_send = False
        if payload:
            self.ring_number += 1
            self.master_host.ring_bytes += len(payload)
            self.ring.append((self.ring_number, payload))

    def end_turn(self) -> None:
        """Let both replicas do their share, and the nodes work."""
        self.source.advance(self.now_ms)
        self.master.work()
        self.flush_ring()
        self.target.advance(self.now_ms)
        self.mirror.work()

    def deliver_ring(self) -> None:
        """Deliver the next message of the ring."""
        if len(self.ring) > 0 and self.is_joined:
            number, payload = self.ring.popleft()
            self.marks.note(number, self.applier.apply(payload, self.now_ms))

    def deliver_to_mirror(self) -> SyncRecord | None:
        """Deliver the next record of the master."""
        if len(self.to_mirror) == 0:
            return None
        record = self.to_mirror.popleft()
        self.target.take(decode(record), self.now_ms)
        return record

    def deliver_to_master(self) -> None:
        """Deliver the next record of the mirror."""
        if len(self.to_master) > 0:
            self.source.take(decode(self.to_master.popleft()), self.now_ms)

    def turn(self, ms: int = 1) -> None:
        """Deliver all that is under way; commit on both nodes."""
        while len(self.to_mirror) > 0 or len(self.to_master) > 0 or len(self.ring) > 0:
            before = (len(self.to_mirror), len(self.to_master), len(self.ring))
            self.deliver_ring()
            self.deliver_to_mirror()
            self.deliver_to_master()
            if before == (len(self.to_mirror), len(self.to_master), len(self.ring)):
                break
        self.end_turn()
        self.master.commit()
        self.mirror.commit()
        self.clock.advance(ms)

    def synchronise(self, turns: int = 3000) -> None:
        """Run turns until the mirror is in sync."""
        for _ in range(turns):
            if self.is_in_sync and len(self.ring) == 0 and self.feed.gathered_bytes == 0:
                return
            self.turn()
        raise AssertionError("the mirror is never in sync")

    def receive_chunks(self, count: int) -> None:
        """Run turns until the mirror has taken so many more chunks."""
        for _ in range(3000):
            self.end_turn()
            self.deliver_ring()
            record = self.deliver_to_mirror()
            self.deliver_to_master()
            if record is not None and record.kind == CHUNK:
                count -= 1
            self.mirror.commit()
            self.master.commit()
            if count == 0:
                return
            self.clock.advance(1)
        raise AssertionError("no chunk comes")

    # -- comparison --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of both sides."""
        self.queue.check()
        self.applier.check()

    def drain_both(self) -> tuple[list[Row], list[Row]]:
        """Take all messages of the master and of the copy, as if the mirror became the master."""
        self.feed.end()
        rows = [self._row(self.queue, entry, True) for entry in self.out]
        rows += self._drain(self.master, self.queue)
        self.copy.is_hidden = False
        return sorted(rows), sorted(self._drain(self.mirror, self.copy))

    def assert_equal(self) -> list[Row]:
        """Assert that the copy is complete: contents, order, flags. Ends the pair."""
        self.check()
        ours, theirs = self.drain_both()
        missing = [row for row in ours if row not in theirs]
        excess = [row for row in theirs if row not in ours]
        told = [(row[:2], row[-1]) for row in missing], [(row[:2], row[-1]) for row in excess]
        assert told == ([], []), f"missing {told[0]}, too many {told[1]}"
        assert theirs == ours
        return ours

    def _drain(self, node: MemoryNode, queue: Queue) -> list[Row]:
        rows: list[Row] = []
        before: tuple[int, int] | None = None
        while (entry := self._get(node, queue, True)) is not None:
            row = self._row(queue, entry, entry.redelivered)
            assert before is None or before < (-row[0], row[1]), "messages are out of order"
            before = (-row[0], row[1])
            rows.append(row)
        return rows

    def _row(self, queue: Queue, entry: Entry, is_redelivered: bool) -> Row:
        return (
            int(queue.level_of(entry.ledger)),
            int(entry.seq),
            entry.message.body,
            entry.message.properties,
            int(entry.expiry_ms),
            bool(is_redelivered),
        )
