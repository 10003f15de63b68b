"""A mirror made of `MirrorBacking` equals its queue after every step, in memory and on disk.
The queues are those of `tests/queues/test_queue_machine.py`. The feed of each updates a mirror in
another vhost, which pages, seals and loads at other moments, as on another node. At the end the
mirror takes over and delivers what is left.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from simulator.models.mirror import MirrorModel
from tests.queues.test_queue_machine import QUEUES, QueueMachine
from tests.support.stores.model_store import ModelHost
from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import Entry
from warrenmq.queues.mirror.backing import MirrorBacking
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs

ADDRESS = b"\x00\x01q"
NOW_MS = 1_000


class Link(OperationFeed):
    """Applies each change of a queue twice to its mirror, and once to the queue's model."""

    def __init__(self, model: MirrorModel, mirror: MirrorBacking) -> None:
        self.model = model
        self.mirror = mirror

    def published(self, entry: Entry) -> None:
        self.model.published(entry)
        message = entry.message
        for _ in range(2):
            copy = Message(
                message.address,
                message.properties,
                message.body,
                entry.persistent,
                message.timestamp_ms,
            )
            self.mirror.publish_at(entry.seq, copy, entry.expiry_ms, entry.redelivered, NOW_MS)

    def delivered(self, seq: int) -> None:
        self.model.delivered(seq)
        for _ in range(2):
            self.mirror.mark_delivered([(seq, seq)])

    def leaving(self, seq: int) -> None:
        self.model.leaving(seq)

    def returned(self, seq: int) -> None:
        self.model.returned(seq)

    def put_back(self, seq: int) -> None:
        self.model.put_back(seq)
        for _ in range(2):
            self.mirror.unmark_delivered([(seq, seq)])

    def settled(self, seq: int, reason: int) -> None:
        self.model.settled(seq, reason)
        for _ in range(2):
            self.mirror.settle([(seq, seq)], NOW_MS)

    def readers_changed(self) -> None:
        """The link carries messages only."""

    def settled_runs(self, runs: Runs, reason: int) -> None:
        self.model.settled_runs(runs, reason)
        for _ in range(2):
            self.mirror.settle(runs, NOW_MS)


class MirroredQueueMachine(QueueMachine):
    def __init__(self) -> None:
        super().__init__()
        self.other = ModelHost(embed_below=60, page_batch=4, segment_entries=8)
        # The mirror's clock is far behind: messages expire when the master says so, not by this
        # clock.
        self.other.now_ms = NOW_MS
        self.copies: list[Queue] = []
        self.backings: list[MirrorBacking] = []

    @initialize(
        is_lazy=st.booleans(),
        ttl_ms=st.sampled_from([-1, -1, -1, 500]),
        mirror_is_lazy=st.booleans(),
    )
    def declare(self, is_lazy: bool, ttl_ms: int, mirror_is_lazy: bool = False) -> None:
        super().declare(is_lazy, ttl_ms)
        for queue in self.queues:
            copy = self.other.declare(queue.durable, mirror_is_lazy, -1)
            backing = MirrorBacking(copy.backing, copy)
            self.copies.append(copy)
            self.backings.append(backing)
            model = self.mirrors[int(queue.id)] = MirrorModel(queue)
            queue.backing.feed = Link(model, backing)

    # -- what happens on the other node ------------------------------------------------------------

    @rule(commit=st.booleans())
    def mirror_seals(self, commit: bool) -> None:
        self.other.seal()
        if commit:
            self.other.commit()

    @rule()
    def mirror_turn(self) -> None:
        self.other.turn()

    @rule(
        number=QUEUES, most=st.sampled_from([0, 0, 5, 20, int(UNLIMITED)]), turns=st.integers(0, 6)
    )
    def mirror_is_pressed(self, number: int, most: int, turns: int) -> None:
        self.copies[number].backing.memory.set_target(most)
        for _ in range(turns):
            self.other.seal()
            self.other.commit()
            self.other.turn()

    @rule(number=QUEUES, is_lazy=st.booleans())
    def mirror_changes_mode(self, number: int, is_lazy: bool) -> None:
        self.copies[number].backing.memory.set_mode(is_lazy)

    @precondition(lambda self: self.other.loads)
    @rule(data=st.data())
    def mirror_load_comes_back(self, data: st.DataObject) -> None:
        self.other.loads.pop(data.draw(st.integers(0, len(self.other.loads) - 1)))()

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def mirrors_equal(self) -> None:
        self.other.check()
        assert self.other.timed == [], "only a master expires"
        for number, queue in enumerate(self.queues):
            backing = self.backings[number]
            backing.check()
            assert backing.backing.ledger.next_seq == queue.next_seq
            live = self.mirrors[int(queue.id)].messages
            ready = backing.backing.ready
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

    def teardown(self) -> None:
        """After the master is gone, the mirror delivers all live messages in order, with flags."""
        for number, queue in enumerate(self.queues):
            copy = self.copies[number]
            live = dict(sorted(self.mirrors[int(queue.id)].messages.items()))
            for seq, copied in live.items():
                entry = self.other.take(copy, True)
                assert entry is not None
                assert (entry.seq, entry.expiry_ms) == (seq, copied.expiry_ms)
                message = entry.message
                assert (message.address, message.properties, message.body) == copied.content
                assert entry.redelivered == copied.is_delivered
            assert self.other.take(copy, True) is None
            self.other.settle_down()
            queue.backing.feed = self.mirrors[int(queue.id)]
        assert self.other.references == {}, "contents leak"
        for store in self.other.stores:
            assert store.live == {}
        super().teardown()


TestMirroredQueueMachine = MirroredQueueMachine.TestCase
TestMirroredQueueMachine.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_message_that_was_delivered_while_it_was_on_disk_is_a_redelivery_after_a_promotion() -> (
    None
):
    host = ModelHost()
    queue = host.declare(is_lazy=True)
    mirror = MirrorBacking(queue.backing, queue)
    for seq in (1, 2, 3):
        mirror.publish_at(
            seq, Message(ADDRESS, b"\x00\x00", b"%d" % seq, True, 0), 0, False, host.now_ms
        )
    host.settle_down()
    assert queue.backing.ready.delta.count == 3
    mirror.mark_delivered([(1, 2)])
    mirror.settle([(1, 1)], host.now_ms)
    assert queue.backing.ready.delta.count == 2
    taken = [host.take(queue), host.take(queue)]
    assert [(one.seq, one.redelivered) for one in taken if one is not None] == [
        (2, True),
        (3, False),
    ]


def test_a_delivery_that_is_taken_back_after_it_was_written_is_none_after_a_promotion() -> None:
    host = ModelHost()
    queue = host.declare(is_lazy=True)
    mirror = MirrorBacking(queue.backing, queue)
    mirror.publish_at(1, Message(ADDRESS, b"\x00\x00", b"1", False, 0), 0, False, host.now_ms)
    mirror.mark_delivered([(1, 1)])
    host.settle_down()
    assert queue.backing.ready.delta.count == 1
    mirror.unmark_delivered([(1, 1)])
    taken = host.take(queue)
    assert taken is not None and not taken.redelivered


def test_a_message_that_a_reader_gave_back_unseen_counts_as_delivered_when_a_consumer_gets_it() -> (
    None
):
    host = ModelHost()
    queue = host.declare()
    for body in (b"1", b"2", b"3"):
        queue.publish(Message(ADDRESS, b"\x00\x00", body, True, 0), -1, host.now_ms)
    queue.put_back(queue.backing.reserve(3, 1, 100), host.now_ms)
    assert not queue.ledger.was_delivered(3)
    for _ in range(3):
        host.take(queue)
    assert queue.ledger.was_delivered(3)


def test_a_run_around_a_message_that_was_settled_on_disk_before_is_counted_as_a_whole() -> None:
    host = ModelHost()
    queue = host.declare(is_lazy=True)
    mirror = MirrorBacking(queue.backing, queue)
    for seq in range(1, 10):
        mirror.publish_at(
            seq, Message(ADDRESS, b"\x00\x00", b"%d" % seq, True, 0), 0, False, host.now_ms
        )
    host.settle_down()
    assert queue.backing.ready.delta.count == 9
    mirror.settle([(4, 4)], host.now_ms)
    mirror.settle([(2, 9)], host.now_ms)
    assert queue.backing.ready.delta.count == 1
    mirror.check()
