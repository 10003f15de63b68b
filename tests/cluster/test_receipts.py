"""Receipts: each message of a cluster's sink is taken once, whatever comes again and crashes."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.broker.vhost.remote.slice_carrier import Delivery
from warrenmq.broker.vhost.sinks.receipt_waits import TakeWaiter
from warrenmq.broker.vhost.sinks.receipts import Receipts
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.receipts import POSITIONS_MAX
from warrenmq.store.model.message import Message

SINK = b"sink/1"


class Answers(TakeWaiter):
    """The answers to all slices, in order."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        self.failures.append(failure)


class Receiver:
    """A node with the queue `q`, which gets messages of a sink and may crash."""

    def __init__(self, node: MemoryNode) -> None:
        self.node = node
        self.all = Answers()
        self.answers: TakeWaiter = self.all

    @property
    def receipts(self) -> Receipts:
        return self.node.vhost.receipts

    def take(
        self, *positions: int, floor: int = 0, queues: tuple[bytes, ...] = (b"q",)
    ) -> list[str]:
        """Take messages; returns the failures of all slices that are answered at once."""
        now_ms = self.node.clock.now_ms()
        self.receipts.raise_floor(SINK, floor)
        takers: list[MessageTaker] = [self.node.vhost.queues[name] for name in queues]
        deliveries = [
            Delivery(
                position,
                Message(b"\x00\x01q", b"\x00\x00", b"m%d" % position, True, now_ms),
                takers,
                False,
            )
            for position in positions
        ]
        self.receipts.take(SINK, deliveries, self.answers, "", now_ms)
        return self.all.failures

    def bodies(self, name: bytes = b"q") -> list[bytes]:
        """The bodies in a queue."""
        ready = self.node.vhost.queues[name].backing.peek(0, 1000, 1 << 20)
        return [entry.message.body for entry in ready]

    def pins(self) -> int:
        """MOVEs that keep files of the journal."""
        return sum(int(file.pins) for file in self.node.vhost.journal.files)

    def crash(self) -> "Receiver":
        return Receiver(self.node.crash())

    def fill_file(self) -> None:
        """Let the journal begin another file, and the node look at its receipts."""
        self.node.vhost.journal.request_file()
        self.node.publish(b"other", b"x")
        self.node.commit()
        self.node.clock.advance(2000)
        self.node.work()
        self.node.commit()
        self.node.publish(b"other", b"y")
        self.node.commit()


def receiver() -> Receiver:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    node.declare(b"other")
    return Receiver(node)


def test_a_message_that_comes_again_is_taken_once() -> None:
    """Before it is durable, afterwards, and after a crash; others are new."""
    one = receiver()
    one.take(1, 2)
    assert one.take(2, 3) == []
    one.node.commit()
    assert one.all.failures == ["", ""]
    one.take(1, 2, 3)
    one.node.commit()
    again = one.crash()
    again.take(1, 2, 3, 4)
    again.node.commit()
    assert again.bodies() == [b"m1", b"m2", b"m3", b"m4"]


def test_what_was_not_durable_is_taken_after_a_crash() -> None:
    """A failed batch is written again with the next one; before, no answer leaves."""
    one = receiver()
    one.take(1)
    one.node.commit(ok=False)
    assert one.all.failures == []
    again = one.crash()
    assert again.bodies() == []
    again.take(1)
    again.node.commit(ok=False)
    again.take(1, 2)
    again.node.commit()
    assert again.all.failures == ["", ""]
    assert again.crash().bodies() == [b"m1", b"m2"]


def test_a_torn_batch_may_store_the_book_and_not_its_messages() -> None:
    one = receiver()
    one.take(1)
    one.node.commit(ok=False, is_torn=True)
    again = one.crash()
    assert again.bodies() == []
    again.take(1)
    again.node.commit()
    assert again.bodies() == [b"m1"]


def test_nothing_below_the_floor_is_taken() -> None:
    """A mover that is behind another one repeats what has left the queue long ago."""
    one = receiver()
    one.take(*range(1, 10))
    one.take(10, floor=10)
    one.node.commit()
    assert one.receipts.floor_of(SINK) == 10
    one.take(3, 9, 11, floor=4)
    one.node.commit()
    assert len(one.bodies()) == 11


def test_a_message_that_is_too_far_ahead_is_refused() -> None:
    """So nobody makes the node keep books without end."""
    one = receiver()
    one.take(POSITIONS_MAX - 1, POSITIONS_MAX)
    one.node.commit()
    (failure,) = one.all.failures
    assert "too far ahead" in failure
    one.take(POSITIONS_MAX, floor=1)
    one.node.commit()
    assert one.bodies() == [b"m%d" % (POSITIONS_MAX - 1), b"m%d" % POSITIONS_MAX]


def test_receipts_keep_no_old_file_of_the_journal() -> None:
    """The row takes over what MOVEs of older files say; a start knows all the same."""
    one = receiver()
    one.take(1, 2, 5)
    one.node.commit()
    assert one.pins() == 3
    one.fill_file()
    assert one.pins() == 0
    one.take(6, floor=2)
    one.node.commit()
    again = one.crash()
    assert again.pins() == 1
    again.take(2, 3, 5, 6)
    again.node.commit()
    assert again.bodies() == [b"m1", b"m2", b"m5", b"m6", b"m3"]


def test_books_end_with_their_sink() -> None:
    """At once, and at a start for sinks that were deleted while the node was down."""
    one = receiver()
    one.take(1)
    one.node.commit()
    one.receipts.keep_only({SINK})
    one.take(1)
    one.receipts.keep_only({b"sink/2"})
    one.node.commit()
    one.node.publish(b"other", b"the next batch lets the file go")
    one.node.commit()
    assert one.pins() == 0
    assert one.node.disk.receipts == {}
    assert one.crash().receipts.floor_of(SINK) == 0


class Slice(TakeWaiter):
    """The answer to a slice of `mover`, whose messages end before `end`."""

    def __init__(self, mover: "Mover", end: int) -> None:
        self.mover = mover
        self.end = end

    def on_taken(self, failure: str, may_be_known: bool) -> None:
        assert failure == ""
        self.mover.floor = max(self.mover.floor, self.end)


class Mover:
    """Sends the messages of the sink slice by slice; all below `floor` are answered."""

    def __init__(self) -> None:
        self.next = 1
        self.floor = 0

    def send(self, receiver: Receiver, count: int) -> None:
        receiver.answers = Slice(self, self.next + count)
        receiver.take(*range(self.next, self.next + count), floor=self.floor)
        self.next += count


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("slice"), st.integers(0, 1), st.integers(1, 6)),
        st.tuples(st.just("begin again"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("go back"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("commit"), st.booleans(), st.booleans()),
        st.tuples(st.just("file"), st.just(0), st.just(0)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS)
def test_two_movers_put_each_message_into_the_queue_once(
    steps: list[tuple[str, int, int]],
) -> None:
    """Each may repeat everything, or what was not answered, while the node fails and crashes."""
    one = receiver()
    movers = [Mover(), Mover()]
    highest = 1
    for step, first, second in steps:
        if step == "slice":
            movers[first].send(one, second)
            highest = max(highest, movers[first].next)
        elif step == "begin again":
            movers[first] = Mover()
        elif step == "go back":
            movers[first].next = max(1, movers[first].floor)
        elif step == "commit":
            one.node.commit(bool(first), bool(second))
        elif step == "file":
            one.fill_file()
        else:
            one = one.crash()
            for mover in movers:
                mover.next = max(1, mover.floor)
    movers[0] = Mover()
    movers[0].send(one, highest)
    one.node.commit()
    assert movers[0].floor == highest + 1
    found = one.crash().bodies()
    assert sorted(found) == sorted(b"m%d" % position for position in range(1, highest + 1))
