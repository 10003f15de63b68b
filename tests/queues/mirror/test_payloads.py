"""Payloads of a master, applied twice on another node, give a copy that equals it after every step.
The queues are those of `tests/queues/test_queue_machine.py`. A link carries the payloads in order;
another one brings what a mirror lacks, and neither waits for the other. A mirror begins at some
time, and may miss payloads. At the end it takes over and delivers what is left.
"""

from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from simulator.models.mirror import MirrorModel
from tests.queues.test_queue_machine import QUEUES, QueueMachine
from tests.support.stores.model_store import ModelHost
from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import Entry
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.backing import MirrorBacking
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.queues.mirror.snapshot import LevelCopy, describe_copy
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs, add_run, contains

NOW_MS = 1_000


def described(copy: "Mirror") -> list[LevelCopy]:
    """What a mirror would offer."""
    found: list[list[LevelCopy]] = []
    describe_copy(copy.queue, found.append)
    (levels,) = found
    return levels


class Both(OperationFeed):
    """Notifies two feeds."""

    def __init__(self, *feeds: OperationFeed) -> None:
        self.feeds = feeds

    def published(self, entry: Entry) -> None:
        for feed in self.feeds:
            feed.published(entry)

    def delivered(self, seq: int) -> None:
        for feed in self.feeds:
            feed.delivered(seq)

    def leaving(self, seq: int) -> None:
        for feed in self.feeds:
            feed.leaving(seq)

    def returned(self, seq: int) -> None:
        for feed in self.feeds:
            feed.returned(seq)

    def put_back(self, seq: int) -> None:
        for feed in self.feeds:
            feed.put_back(seq)

    def settled(self, seq: int, reason: int) -> None:
        for feed in self.feeds:
            feed.settled(seq, reason)

    def settled_runs(self, runs: Runs, reason: int) -> None:
        for feed in self.feeds:
            feed.settled_runs(list(runs), reason)

    def readers_changed(self) -> None:
        for feed in self.feeds:
            feed.readers_changed()

    def receipts_changed(self) -> None:
        for feed in self.feeds:
            feed.receipts_changed()


class Master:
    """The master's side of one queue: its feed, and what is on the way to the mirror."""

    def __init__(self, queue: Queue, model: MirrorModel) -> None:
        self.queue = queue
        self.model = model
        self.epoch = 0
        self.ring: list[bytes] = []
        # Steps of a synchronisation, in order.
        self.chunks: list[Callable[[], None]] = []
        # Seq id from which the pass under way continues; 0: none is under way.
        self.cursor = 0
        self.changes = 0
        self.begin_epoch()

    def begin_epoch(self) -> None:
        self.epoch += 1
        self.feed = RingFeed(self.queue, self.feed_changed)
        self.feed.begin(self.epoch, next_start(self.queue, 0))
        ring_feed = self.queue.backing.feed
        assert ring_feed is not None
        self.queue.backing.feed = Both(self.model, ring_feed)

    def feed_changed(self) -> None:
        self.changes += 1

    def flush(self) -> None:
        assert self.changes == (1 if self.feed.gathered_bytes > 0 else 0)
        self.changes = 0
        number = self.feed.carrier
        payload = self.feed.take(self.epoch)
        assert number == self.feed.taken_count
        if payload:
            self.ring.append(payload)


class Mirror:
    """The mirror of one queue."""

    def __init__(self, host: ModelHost, durable: bool, is_lazy: bool) -> None:
        self.queue = host.declare(durable, is_lazy, -1)
        self.queue.begin_hidden()
        # So little that it holds a few messages.
        self.applier = MirrorApplier(self.queue, held_bytes=2500)
        reopened: list[bool] = []
        self.applier.reopen(lambda: reopened.append(True))
        assert reopened
        self.is_joined = False

    @property
    def level(self) -> MirrorBacking:
        (level,) = self.applier.levels()
        return level


class PayloadMachine(QueueMachine):
    def __init__(self) -> None:
        super().__init__()
        self.other = ModelHost(embed_below=60, page_batch=4, segment_entries=8)
        # Messages expire when the master says so, not by the mirror's clock.
        self.other.now_ms = NOW_MS
        self.masters: list[Master] = []
        self.copies: list[Mirror] = []

    @initialize(
        is_lazy=st.booleans(),
        ttl_ms=st.sampled_from([-1, -1, -1, 500]),
        mirror_is_lazy=st.booleans(),
        joins_early=st.booleans(),
    )
    def declare(
        self,
        is_lazy: bool,
        ttl_ms: int,
        mirror_is_lazy: bool = False,
        joins_early: bool = True,
    ) -> None:
        super().declare(is_lazy, ttl_ms)
        for queue in self.queues:
            model = self.mirrors[int(queue.id)] = MirrorModel(queue)
            self.masters.append(Master(queue, model))
            copy = Mirror(self.other, queue.durable, mirror_is_lazy)
            copy.is_joined = joins_early
            self.copies.append(copy)

    # -- the links ---------------------------------------------------------------------------------

    @rule(number=QUEUES)
    def end_turn(self, number: int) -> None:
        self.masters[number].flush()

    @rule(number=QUEUES)
    def begin_epoch(self, number: int) -> None:
        """The master leads on in a new epoch, as after a transfer back and forth."""
        master = self.masters[number]
        master.flush()
        master.feed.end()
        master.begin_epoch()

    @rule(number=QUEUES, most=st.integers(1, 5))
    def ring_arrives(self, number: int, most: int) -> None:
        ring = self.masters[number].ring
        for _ in range(min(most, len(ring))):
            self.apply(number, ring.pop(0))

    def apply(self, number: int, payload: bytes) -> None:
        copy = self.copies[number]
        if not copy.is_joined:
            return
        for _ in range(2):
            copy.applier.apply(payload, NOW_MS)

    @rule(number=QUEUES)
    def mirror_leaves(self, number: int) -> None:
        """The mirror is cut off; what is on the way to it is lost."""
        self.copies[number].is_joined = False
        master = self.masters[number]
        master.ring = []
        master.chunks = []
        master.cursor = 0

    @precondition(lambda self: not all(copy.is_joined for copy in self.copies))
    @rule(number=QUEUES)
    def mirror_joins(self, number: int) -> None:
        """A mirror offers what it has, and the master sends what it lacks."""
        copy, master = self.copies[number], self.masters[number]
        if copy.is_joined:
            return
        copy.is_joined = True
        master.flush()
        master.ring = []
        copy.applier.begin_sync(master.epoch, NOW_MS)
        (offer,) = described(copy)
        live = master.model.messages
        for seq in live:
            assert seq >= offer.next_seq or contains(offer.runs, seq), "a copy has no holes"
        surplus: Runs = []
        for first, last in offer.runs:
            for seq in range(int(first), int(last) + 1):
                if seq not in live:
                    add_run(surplus, seq, seq)
        master.chunks.append(lambda: copy.applier.settle(0, surplus, NOW_MS))
        # What consumers have had comes over the ring.
        master.feed.repeat(0, master.queue.next_seq)
        master.cursor = int(offer.next_seq)

    @rule(number=QUEUES, most=st.integers(1, 6))
    def sync_is_read(self, number: int, most: int) -> None:
        """The master reads the next messages that its mirror may lack."""
        master, copy = self.masters[number], self.copies[number]
        if master.cursor == 0:
            return
        seqs = sorted(seq for seq in master.model.messages if seq >= master.cursor)[:most]
        for seq in seqs:
            copied = master.model.messages[seq]
            assert copied.content is not None
            address, properties, body = copied.content
            message = Message(address, properties, body, len(body) % 2 == 0, 0)
            master.chunks.append(
                partial(
                    copy.applier.fill,
                    0,
                    seq,
                    message,
                    copied.expiry_ms,
                    copied.is_delivered,
                    NOW_MS,
                )
            )
            master.cursor = seq + 1
        if len(seqs) < most:
            upto = int(master.queue.next_seq)
            master.cursor = 0

            def end() -> None:
                if not copy.applier.end_sync([(0, upto)], NOW_MS):
                    master.cursor = int(copy.queue.next_seq)

            master.chunks.append(end)

    @rule(number=QUEUES, most=st.integers(1, 8))
    def sync_arrives(self, number: int, most: int) -> None:
        chunks = self.masters[number].chunks
        for _ in range(min(most, len(chunks))):
            chunks.pop(0)()

    # -- what happens on the other node ------------------------------------------------------------

    @rule(commit=st.booleans())
    def mirror_seals(self, commit: bool) -> None:
        self.other.seal()
        if commit:
            self.other.commit()

    @rule(
        number=QUEUES, most=st.sampled_from([0, 0, 5, 20, int(UNLIMITED)]), turns=st.integers(1, 6)
    )
    def mirror_is_pressed(self, number: int, most: int, turns: int) -> None:
        self.copies[number].queue.backing.memory.set_target(most)
        for _ in range(turns):
            self.other.seal()
            self.other.commit()
            self.other.turn()

    @precondition(lambda self: self.other.loads)
    @rule(data=st.data())
    def mirror_load_comes_back(self, data: st.DataObject) -> None:
        self.other.loads.pop(data.draw(st.integers(0, len(self.other.loads) - 1)))()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def copies_are_sound(self) -> None:
        self.other.check()
        assert self.other.timed == [], "only a master expires"
        for number, copy in enumerate(self.copies):
            copy.applier.check()
            master = self.masters[number]
            if (
                copy.is_joined
                and not copy.applier.is_syncing
                and not master.ring
                and not master.chunks
                and master.feed.gathered_bytes == 0
            ):
                self.compare(number)

    def compare(self, number: int) -> None:
        copy, queue = self.copies[number], self.queues[number]
        assert copy.queue.next_seq == queue.next_seq
        assert copy.applier.epoch == queue.epoch
        live = self.mirrors[int(queue.id)].messages
        ready = copy.queue.backing.ready
        entries = [ready.at(place) for place in range(ready.entry_count)]
        for entry in entries:
            copied = live[int(entry.seq)]
            assert entry.expiry_ms == copied.expiry_ms
            assert entry.redelivered == copied.is_delivered
            if entry.has_content:
                message = entry.message
                assert (message.address, message.properties, message.body) == copied.content
        in_memory = {int(entry.seq) for entry in entries}
        on_disk = [seq for seq in live if seq not in in_memory]
        assert ready.delta.count == len(on_disk)
        assert all(ready.delta.covers(seq) for seq in on_disk)
        runs: Runs = []
        for seq in sorted(live):
            add_run(runs, seq, seq)
        (offer,) = described(copy)
        assert offer.runs == runs

    def teardown(self) -> None:
        """Once all has arrived, the mirror takes over and delivers all messages in order."""
        for number, queue in enumerate(self.queues):
            master, copy = self.masters[number], self.copies[number]
            self.mirror_joins(number)
            for _ in range(100):
                master.flush()
                self.ring_arrives(number, len(master.ring))
                self.sync_is_read(number, 1000)
                self.sync_arrives(number, 1000)
                if not copy.applier.is_syncing:
                    break
            assert not master.ring and not copy.applier.is_syncing
            self.compare(number)
            master.feed.end()
            queue.backing.feed = master.model
            copy.queue.is_hidden = False
            for seq, copied in sorted(master.model.messages.items()):
                entry = self.other.take(copy.queue, True)
                assert entry is not None and entry.seq == seq
                message = entry.message
                assert (message.address, message.properties, message.body) == copied.content
                assert entry.redelivered == copied.is_delivered
            assert self.other.take(copy.queue, True) is None
            self.other.settle_down()
        assert self.other.references == {}, "contents leak"
        for store in self.other.stores:
            assert store.live == {}
        super().teardown()


TestPayloadMachine = PayloadMachine.TestCase
TestPayloadMachine.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
