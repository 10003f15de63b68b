"""Receipts travel with a mirrored queue: whoever leads it, each message of a sink is in it once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queues.mirror.test_copies import open_copy
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.broker.vhost.remote.slice_carrier import Delivery
from warrenmq.broker.vhost.sinks.receipt_waits import TakeWaiter
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

SINK = b"sink/1"


class Answer(TakeWaiter):
    """Whether the node itself has what a slice brought."""

    def __init__(self) -> None:
        self.is_here = False

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        assert failure == ""
        self.is_here = True


class Copy:
    """Queue q on one node: a mirror, or the master."""

    def __init__(self, held_bytes: int = 1 << 20) -> None:
        self.node = MemoryNode(MemoryDisk())
        self.applier: MirrorApplier = open_copy(self.node, held_bytes)
        self.feed: RingFeed | None = None
        # Payloads of the master's epoch that came, and those that were durable at the last commit.
        self.applied = 0
        self.durable = 0

    @property
    def queue(self) -> Queue:
        return self.node.vhost.queues[b"q"]

    def now_ms(self) -> int:
        return self.node.clock.now_ms()

    def lead(self, epoch: int) -> bytes:
        """Become the master, complete or not; returns the payload that begins the epoch."""
        self.applier.stop_sync(self.now_ms())
        start = next_start(self.queue, 0)
        self.feed = RingFeed(self.queue, lambda: None)
        self.feed.begin(epoch, start)
        self.queue.unhide(self.now_ms())
        return bytes(self.feed.take(epoch))

    def take(self, first: int, end: int, floor: int = 0) -> Answer:
        """Take messages of the sink, as the master."""
        receipts = self.node.vhost.receipts
        receipts.raise_floor(SINK, floor)
        deliveries = [
            Delivery(
                position,
                Message(b"\x00\x01q", b"\x00\x00", b"m%d" % position, True, self.now_ms()),
                [self.queue],
                False,
            )
            for position in range(first, end)
        ]
        answer = Answer()
        receipts.take(SINK, deliveries, answer, "", self.now_ms())
        return answer

    def payload(self, epoch: int) -> bytes:
        """The next payload for the copies."""
        assert self.feed is not None
        return bytes(self.feed.take(epoch))

    def apply(self, payload: bytes) -> None:
        self.applier.apply(payload, self.now_ms())
        self.applied += 1

    def commit(self, ok: bool = True, is_torn: bool = False) -> None:
        self.node.commit(ok, is_torn)
        if ok:
            self.durable = self.applied

    def commit_one_batch(self) -> None:
        """Let what has gathered be durable, and nothing that comes of that."""
        batch = self.node.vhost.journal.seal()
        self.node.disk.store(batch.change_sets)
        self.node.driver.flush(batch, self.now_ms())

    def crash(self) -> None:
        """Lose power, and come back as a copy that has missed operations."""
        self.node = self.node.crash()
        self.applier = open_copy(self.node)
        self.feed = None

    def follow(self, master: Copy, epoch: int) -> None:
        """Be synchronised with a master whose other copies have all payloads."""
        if self.feed is not None:
            self.feed.end()
            self.feed = None
            self.queue.begin_hidden()
            self.applier = open_copy(self.node)
        assert master.feed is not None
        self.applier.begin_sync(epoch, self.now_ms())
        master.feed.repeat(0, 1)

    def fill(self, master: Copy) -> None:
        """Get the messages of the master, and drop what it has not."""
        entries = entries_of(master.queue)
        upto = master.queue.backing.ledger.next_seq
        live = {entry.seq for entry in entries}
        own = [entry.seq for entry in entries_of(self.queue) if entry.seq not in live]
        self.applier.settle(0, [(seq, seq) for seq in own], self.now_ms())
        for entry in entries:
            message = entry.message
            assert message is not None
            copy = Message(
                message.address, message.properties, message.body, True, message.timestamp_ms
            )
            self.applier.fill(0, entry.seq, copy, 0, False, self.now_ms())
        assert self.applier.end_sync([(0, upto)], self.now_ms())

    def bodies(self) -> list[bytes]:
        return [entry.message.body for entry in entries_of(self.queue)]


def entries_of(queue: Queue) -> list[Entry]:
    return list(queue.backing.peek(0, 10_000, 1 << 24))


def pair() -> tuple[Copy, Copy]:
    """A master in epoch 1, and a copy that follows it."""
    master, copy = Copy(), Copy()
    copy.apply(master.lead(1))
    return master, copy


def test_a_copy_that_takes_over_takes_nothing_again() -> None:
    """It has the receipts after a crash of its own, too."""
    master, copy = pair()
    master.take(1, 6)
    copy.apply(master.payload(1))
    copy.commit()
    copy.crash()
    copy.lead(2)
    copy.take(3, 8)
    copy.commit()
    assert copy.bodies() == [b"m%d" % position for position in range(1, 8)]


def test_a_copy_that_loses_a_batch_loses_its_receipts() -> None:
    """Also when the definitions of the batch were stored, and its records were not."""
    master, copy = pair()
    master.take(1, 3)
    copy.apply(master.payload(1))
    copy.commit()
    master.take(3, 6)
    copy.apply(master.payload(1))
    copy.commit(ok=False, is_torn=True)
    copy.crash()
    copy.lead(2)
    copy.take(1, 6)
    copy.commit()
    assert copy.bodies() == [b"m%d" % position for position in range(1, 6)]


def test_a_message_that_was_consumed_at_once_does_not_come_again() -> None:
    """A copy never gets its content, but its receipt."""
    master, copy = pair()
    master.take(1, 4)
    entry = master.queue.get(False, master.now_ms())
    assert entry is not None
    master.queue.leave(entry, ACKED, master.now_ms())
    copy.apply(master.payload(1))
    copy.commit()
    copy.crash()
    copy.lead(2)
    copy.take(1, 5)
    copy.commit()
    assert copy.bodies() == [b"m2", b"m3", b"m4"]


def test_a_deposed_master_forgets_what_the_next_one_never_got() -> None:
    """Its journal says that the message is here, but it was dropped with the synchronisation."""
    master, copy = pair()
    master.take(1, 3)
    copy.apply(master.payload(1))
    copy.commit()
    master.take(3, 4)
    master.commit()
    copy.lead(2)
    master.follow(copy, 2)
    master.apply(copy.payload(2))
    master.fill(copy)
    master.commit()
    master.crash()
    master.lead(3)
    master.take(1, 4)
    master.commit()
    assert master.bodies() == [b"m1", b"m2", b"m3"]


def test_a_copy_that_lacks_messages_has_no_receipts_for_them() -> None:
    """It may have to take over before it is complete."""
    master, _ = pair()
    master.take(1, 4)
    master.payload(1)
    late = Copy()
    late.follow(master, 1)
    late.apply(master.payload(1))
    late.commit()
    late.crash()
    late.lead(2)
    late.take(1, 4)
    late.commit()
    assert late.bodies() == [b"m1", b"m2", b"m3"]


def test_receipts_that_come_behind_a_synchronisation_are_not_durable_before_messages() -> None:
    """The batch is torn: the copy has the rows of the definitions, and no message."""
    master, _ = pair()
    master.take(1, 4)
    master.payload(1)
    late = Copy()
    late.follow(master, 1)
    late.fill(master)
    late.apply(master.payload(1))
    late.commit(ok=False, is_torn=True)
    late.crash()
    late.lead(2)
    late.take(1, 4)
    late.commit()
    assert late.bodies() == [b"m1", b"m2", b"m3"]


def test_the_receipts_of_a_synchronisation_are_in_the_batch_of_its_messages() -> None:
    """The copy counts as soon as that is durable, and may die before it writes anything more."""
    master, late = joined()
    late.apply(master.payload(1))
    late.fill(master)
    late.commit_one_batch()
    late.crash()
    late.lead(2)
    late.take(1, 5)
    late.commit()
    assert late.bodies() == [b"m1", b"m2", b"m3", b"m4"]


def joined() -> tuple[Copy, Copy]:
    """A master of epoch 1 with m1 to m3, and a copy that has joined it, and lacks all of them."""
    master = Copy()
    master.lead(1)
    master.take(1, 4)
    master.payload(1)
    late = Copy()
    late.follow(master, 1)
    return master, late


def test_a_copy_that_takes_over_incomplete_has_receipts_of_what_waited() -> None:
    """Messages that came during its synchronisation are in it then, and each is there once."""
    master, late = joined()
    # This payload tells of all that the master has for the first time.
    master.take(4, 6)
    late.apply(master.payload(1))
    master.take(6, 8)
    late.apply(master.payload(1))
    late.lead(2)
    late.take(1, 9)
    late.commit()
    expected = [b"m%d" % position for position in (4, 5, 6, 7, 1, 2, 3, 8)]
    assert late.bodies() == expected
    late.crash()
    late.lead(3)
    late.take(1, 9)
    assert late.bodies() == expected


def test_a_message_that_was_consumed_during_a_synchronisation_does_not_come_again() -> None:
    """The copy never gets its content, and takes over before it is complete."""
    master, late = joined()
    late.apply(master.payload(1))
    master.take(4, 6)
    entry = entries_of(master.queue)[-1]
    master.queue.purge(master.now_ms())
    assert entry.message.body == b"m5"
    late.apply(master.payload(1))
    late.lead(2)
    late.take(4, 7)
    late.commit()
    assert late.bodies() == [b"m6"]


@pytest.mark.parametrize("is_plain_last", [False, True])
def test_a_copy_has_no_receipts_of_what_it_had_to_forget(is_plain_last: bool) -> None:
    """More came during its synchronisation than it could keep."""
    master, _ = joined()
    late = Copy(held_bytes=1)
    late.follow(master, 1)
    late.apply(master.payload(1))
    for position in (4, 5, 6):
        master.take(position, position + 1)
        late.apply(master.payload(1))
    kept = b"m6"
    if is_plain_last:
        kept = b"plain"
        master.node.publish(b"q", kept)
        late.apply(master.payload(1))
    late.lead(2)
    late.take(1, 8)
    late.commit()
    rest = [b"m%d" % position for position in range(1, 8)]
    assert late.bodies() == [kept, *[body for body in rest if body != kept]]


def test_what_waited_and_is_lost_with_a_batch_comes_again() -> None:
    """The batch is torn: the new master has the rows of the definitions, and no message."""
    master, late = joined()
    master.take(4, 6)
    late.apply(master.payload(1))
    late.lead(2)
    late.commit(ok=False, is_torn=True)
    late.crash()
    late.lead(3)
    late.take(1, 6)
    late.commit()
    assert late.bodies() == [b"m%d" % position for position in range(1, 6)]


def test_a_book_ends_at_the_copies_with_its_sink() -> None:
    master, copy = pair()
    master.take(1, 4)
    copy.apply(master.payload(1))
    copy.commit()
    assert len(copy.node.disk.receipts) == 1
    master.node.vhost.receipts.drop_sink(SINK)
    copy.apply(master.payload(1))
    copy.commit()
    assert copy.node.disk.receipts == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("slice"), st.integers(1, 5), st.just(False)),
        st.tuples(st.just("consume"), st.just(0), st.just(False)),
        st.tuples(st.just("apply"), st.integers(1, 2), st.just(False)),
        st.tuples(st.just("commit"), st.integers(0, 2), st.just(False)),
        st.tuples(st.just("torn"), st.integers(1, 2), st.just(False)),
        st.tuples(st.just("kill"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("miss"), st.integers(1, 2), st.booleans()),
        st.tuples(st.just("again"), st.just(0), st.just(False)),
    ),
    max_size=25,
)


class Cluster:
    """Three copies; those that are no master count, whether they are in sync or lack something."""

    def __init__(self) -> None:
        self.copies = [Copy(), Copy(), Copy()]
        self.epoch = 0
        # Payloads of the epoch.
        self.payloads: list[bytes] = []
        self.next = 1
        self.highest = 1
        self.floor = 0
        # Slices without an answer: (answer of the master, number of the payload, end).
        self.waiting: list[tuple[Answer, int, int]] = []
        self.consumed: list[bytes] = []
        self.lead(0)

    @property
    def master(self) -> Copy:
        return self.copies[0]

    def send(self) -> None:
        """Make a payload of what the master did in this turn."""
        payload = self.master.payload(self.epoch)
        if payload:
            self.payloads.append(payload)

    def slice(self, count: int) -> None:
        answer = self.master.take(self.next, self.next + count, self.floor)
        self.next += count
        self.highest = max(self.highest, self.next)
        self.send()
        self.waiting.append((answer, len(self.payloads), self.next))

    def consume(self) -> None:
        """Let a client get a message that all copies have, and ack it for good."""
        for copy in self.copies[1:]:
            self.complete(copy)
        self.commit_all()
        queue = self.master.queue
        entry = queue.get(False, self.master.now_ms())
        if entry is not None and entry.message is not None:
            self.consumed.append(entry.message.body)
            queue.leave(entry, ACKED, self.master.now_ms())
            self.send()
            self.commit_all()

    def commit_all(self) -> None:
        """Let all copies have everything."""
        self.master.commit()
        for copy in self.copies[1:]:
            while copy.applied < len(self.payloads):
                copy.apply(self.payloads[copy.applied])
            copy.commit()

    def apply(self, copy: Copy) -> None:
        if copy.applied < len(self.payloads):
            copy.apply(self.payloads[copy.applied])

    def answer(self) -> None:
        """Answer slices that all copies have made durable, in order."""
        if any(copy.applier.is_syncing for copy in self.copies[1:]):
            return
        durable = min(copy.durable for copy in self.copies[1:])
        while self.waiting:
            answer, number, end = self.waiting[0]
            if not answer.is_here or durable < number:
                return
            self.waiting.pop(0)
            self.floor = max(self.floor, end)

    def lead(self, place: int) -> None:
        """Let the copy at `place` become the master, and the others be synchronised with it."""
        self.epoch += 1
        self.copies.insert(0, self.copies.pop(place))
        self.payloads = [self.master.lead(self.epoch)]
        self.master.commit()
        self.waiting = []
        # What was not answered comes again.
        self.next = max(1, self.floor)
        for copy in self.copies[1:]:
            self.synchronise(copy)

    def synchronise(self, copy: Copy) -> None:
        self.begin_sync(copy)
        self.complete(copy)

    def begin_sync(self, copy: Copy) -> None:
        """Let a copy join the master again, which then lacks what it has missed."""
        copy.follow(self.master, self.epoch)
        copy.applied = len(self.payloads)
        self.send()

    def complete(self, copy: Copy) -> None:
        """End the synchronisation of a copy, if one is under way."""
        while copy.applied < len(self.payloads):
            self.apply(copy)
        if copy.applier.is_syncing:
            copy.fill(self.master)
        copy.commit()

    def end(self) -> list[bytes]:
        """Deliver everything once more; returns what is and was in the queue."""
        self.master.take(1, self.highest + 1)
        self.master.commit()
        self.master.crash()
        return self.consumed + self.master.bodies()


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_each_message_is_in_the_queue_once_whoever_leads(
    steps: list[tuple[str, int, bool]],
) -> None:
    """Masters die, copies lose batches, and the mover repeats; every message is there once."""
    cluster = Cluster()
    for step, number, flag in steps:
        copy = cluster.copies[number] if step != "slice" else cluster.master
        if step == "slice":
            cluster.slice(number)
        elif step == "consume":
            cluster.consume()
        elif step == "apply":
            cluster.apply(copy)
        elif step == "commit":
            copy.commit()
        elif step == "torn":
            copy.commit(ok=False, is_torn=True)
            copy.crash()
            cluster.synchronise(copy)
        elif step == "miss":
            if flag:
                copy.crash()
            else:
                copy.applier = open_copy(copy.node)
            cluster.begin_sync(copy)
            cluster.apply(copy)
        elif step == "kill":
            if flag:
                # The others lose power, too.
                copy.crash()
            cluster.master.crash()
            cluster.lead(number)
        else:
            cluster.next = 1
        cluster.answer()
    found = cluster.end()
    expected = [b"m%d" % position for position in range(1, cluster.highest + 1)]
    assert sorted(found) == sorted(expected)
