"""Entry deque, variable queue, consumer circle and unacked window equal lists and dictionaries."""

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.steps import lines_run
from tests.support.stores.model_store import ModelHost
from warrenmq.broker.channel.unacked import UnackedWindow
from warrenmq.queues.backing.entry_deque import BLOCK_ENTRIES, EntryDeque
from warrenmq.queues.backing.variable_queue import VariableQueue
from warrenmq.queues.backing.waiting_consumers import ConsumerCircle
from warrenmq.queues.entry import Consumer, Entry
from warrenmq.server.config.keys import SIZE_MAX
from warrenmq.store.model.message import Message, QueueLedger

QUEUE = ModelHost().declare(durable=False)
MACHINE = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def entry(seq: int, size: int = 0) -> Entry:
    """An entry with a body of `size` bytes."""
    return Entry(
        Message(b"\x00\x00", b"\x00\x00", bytes(size), False, 0), QueueLedger(1), seq, 0, QUEUE
    )


def seqs(entries: list[Entry]) -> list[int]:
    return [int(one.seq) for one in entries]


# -- the deque -------------------------------------------------------------------------------------


class DequeMachine(RuleBasedStateMachine):
    """Small blocks make every boundary come soon."""

    def __init__(self) -> None:
        super().__init__()
        self.deque = EntryDeque(4)
        self.model: list[Entry] = []
        self.taken: list[Entry] = []
        self.next_seq = 1

    @rule(count=st.integers(1, 40))
    def append(self, count: int) -> None:
        for _ in range(count):
            one = entry(self.next_seq)
            self.next_seq += 1
            self.deque.append(one)
            self.model.append(one)

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 30))
    def pop_left(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            one = self.deque.pop_left()
            assert one is self.model.pop(0)
            self.taken.append(one)

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 30))
    def pop_right(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            assert self.deque.last() is self.model[-1]
            one = self.deque.pop_right()
            assert one is self.model.pop()
            self.taken.append(one)

    @precondition(lambda self: self.taken)
    @rule()
    def append_left(self) -> None:
        oldest = min(self.taken)
        if not self.model or oldest < self.model[0]:
            self.taken.remove(oldest)
            self.deque.append_left(oldest)
            self.model.insert(0, oldest)

    @rule(first=st.integers(0, 200), count=st.integers(0, 100))
    def take_seqs(self, first: int, count: int) -> None:
        taken = self.deque.take_seqs(first, first + count)
        assert taken == [one for one in self.model if first <= one.seq <= first + count]
        self.model = [one for one in self.model if one not in taken]
        self.taken += taken

    @rule(data=st.data())
    def take_range(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.model)))
        count = data.draw(st.integers(0, len(self.model) - first))
        taken = self.deque.take_range(first, count)
        assert taken == self.model[first : first + count]
        del self.model[first : first + count]
        self.taken += taken

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def put_back(self, data: st.DataObject) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.taken) - 1), min_size=1))
        returned = sorted(self.taken[place] for place in places)
        self.taken = [one for place, one in enumerate(self.taken) if place not in places]
        self.deque.put_back(returned)
        self.model = sorted(self.model + returned)

    @rule(seq=st.integers(0, 500))
    def index_of_seq(self, seq: int) -> None:
        assert self.deque.index_of_seq(seq) == sum(1 for one in self.model if one.seq < seq)

    @rule()
    def place_of(self) -> None:
        assert [self.deque.place_of(one) for one in self.model] == list(range(len(self.model)))
        assert all(self.deque.place_of(one) < 0 for one in self.taken)

    @invariant()
    def same(self) -> None:
        assert self.deque.count == len(self.model)
        assert [self.deque.at(index) for index in range(len(self.model))] == self.model


TestDeque = DequeMachine.TestCase
TestDeque.settings = MACHINE


ORDERS: dict[str, Callable[[list[Entry]], list[Entry]]] = {
    "random": lambda entries: random.Random(1).sample(entries, len(entries)),
    "every second first": lambda entries: entries[::2] + entries[1::2],
    "reversed": lambda entries: entries[::-1],
    "in order": lambda entries: entries,
    "from the middle": lambda entries: entries[len(entries) // 2 :] + entries[: len(entries) // 2],
}


@pytest.mark.parametrize("order", ORDERS)
def test_a_return_moves_the_entries_of_one_block(order: str) -> None:
    deque = EntryDeque()
    count = 6 * BLOCK_ENTRIES
    for one in ORDERS[order]([entry(seq) for seq in range(count)]):
        deque.put_back([one])
    assert seqs(deque.take_all()) == list(range(count))
    for one in ORDERS[order]([entry(seq) for seq in range(count)]):
        deque.put_back([one])
    # The test reads internals: the size of the largest block bounds what one return moves.
    blocks = deque._blocks
    assert blocks is not None
    assert max(len(block) for block in blocks) <= BLOCK_ENTRIES
    assert len(blocks) <= 2 * 6 + 1


@pytest.mark.parametrize("order", ORDERS)
def test_the_work_of_returns_grows_with_their_number(order: str) -> None:
    def lines(count: int) -> int:
        deque = EntryDeque()
        window = UnackedWindow()
        entries = [entry(seq) for seq in range(1, count + 1)]
        for one in entries:
            one.delivery_tag = one.seq
            window.append(one)

        def work() -> None:
            for one in ORDERS[order](entries):
                deque.put_back(window.take_named(one.delivery_tag, False))

        return lines_run(work)

    assert lines(4000) < 2.5 * lines(2000)


@pytest.mark.parametrize("taken", [0, 1, 7, 8, 9, 15, 16, 17])
def test_a_deque_goes_on_wherever_its_oldest_is(taken: int) -> None:
    deque = EntryDeque()
    for seq in range(taken):
        deque.append(entry(seq))
    deque.take_all()
    for seq in range(100, 150):
        deque.append(entry(seq))
    assert seqs([deque.at(place) for place in range(50)]) == list(range(100, 150))
    assert seqs([deque.pop_right(), deque.pop_left()]) == [149, 100]
    assert seqs(deque.take_all()) == list(range(101, 149))


# -- the variable queue ----------------------------------------------------------------------------


class VariableQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = VariableQueue()
        self.model: list[Entry] = []
        self.out: list[Entry] = []
        self.next_seq = 1

    @rule(sizes=st.lists(st.integers(0, 50), min_size=1, max_size=30))
    def publish(self, sizes: list[int]) -> None:
        for size in sizes:
            one = entry(self.next_seq, size)
            self.next_seq += 1
            self.queue.append(one)
            self.model.append(one)

    @precondition(lambda self: self.model)
    @rule(count=st.integers(1, 20))
    def fetch(self, count: int) -> None:
        for _ in range(min(count, len(self.model))):
            assert self.queue.head() is self.model[0]
            assert self.queue.fetch() is self.model[0]
            self.out.append(self.model.pop(0))

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        places = data.draw(st.sets(st.integers(0, len(self.out) - 1), min_size=1))
        returned = sorted(self.out[place] for place in places)
        self.out = [one for place, one in enumerate(self.out) if place not in places]
        self.queue.requeue(returned)
        self.model = sorted(self.model + returned)

    @rule(data=st.data())
    def take_range(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.model)))
        count = data.draw(st.integers(0, len(self.model) - first))
        taken = self.queue.take_range(first, count)
        assert taken == self.model[first : first + count]
        del self.model[first : first + count]
        self.out += taken

    @rule(first=st.integers(0, 300), count=st.integers(0, 100))
    def take_seqs(self, first: int, count: int) -> None:
        taken = self.queue.take_seqs(first, first + count)
        assert taken == [one for one in self.model if first <= one.seq <= first + count]
        self.model = [one for one in self.model if one not in taken]
        self.out += taken

    @invariant()
    def same(self) -> None:
        self.queue.check()
        assert self.queue.count == len(self.model)
        assert self.queue.body_bytes == sum(len(one.message.body) for one in self.model)
        assert [self.queue.at(index) for index in range(len(self.model))] == self.model


TestVariableQueue = VariableQueueMachine.TestCase
TestVariableQueue.settings = MACHINE


# -- the window of unacked deliveries --------------------------------------------------------------


class WindowMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.window = UnackedWindow()
        self.model: dict[int, Entry] = {}
        self.next_tag = 1

    def tags(self, data: st.DataObject) -> int:
        """A tag that is outstanding, settled, not given yet or never given."""
        return data.draw(
            st.one_of(st.integers(1, self.next_tag + 3), st.sampled_from([0, -1, 1 << 62]))
        )

    @rule(count=st.integers(1, 150))
    def append(self, count: int) -> None:
        for _ in range(count):
            one = entry(self.next_tag)
            one.delivery_tag = self.next_tag
            self.next_tag += 1
            self.window.append(one)
            self.model[int(one.delivery_tag)] = one

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        tag = self.tags(data)
        assert self.window.take(tag) is self.model.pop(tag, None)

    @rule()
    def take_in_order(self) -> None:
        for tag in list(self.model)[:100]:
            assert self.window.take(tag) is self.model.pop(tag)

    @rule(step=st.integers(2, 5))
    def take_with_gaps(self, step: int) -> None:
        for tag in list(self.model)[::step]:
            assert self.window.take(tag) is self.model.pop(tag)

    @rule(data=st.data())
    def take_upto(self, data: st.DataObject) -> None:
        tag = self.tags(data)
        found = self.window.take_upto(tag)
        if tag != 0 and tag not in self.model:
            assert found is None
            return
        taken = [one for key, one in self.model.items() if tag in (0, key) or key < tag]
        assert found == taken
        for one in taken:
            del self.model[int(one.delivery_tag)]

    @rule(data=st.data(), limit=st.integers(0, 80))
    def take_oldest(self, data: st.DataObject, limit: int) -> None:
        upto = self.tags(data)
        assert self.window.has(upto) == (upto == 0 or upto in self.model)
        assert self.window.queues_upto(upto) == (
            [QUEUE] if min(self.model, default=upto + 1) <= upto else []
        )
        taken = [one for tag, one in self.model.items() if tag <= upto][:limit]
        assert self.window.take_oldest(upto, limit) == taken
        for one in taken:
            del self.model[int(one.delivery_tag)]

    @rule(data=st.data())
    def take_and_restore(self, data: st.DataObject) -> None:
        tags = (
            data.draw(st.sets(st.sampled_from(sorted(self.model)), max_size=20))
            if self.model
            else set()
        )
        taken = [self.window.take(tag) for tag in tags]
        self.window.restore([one for one in taken if one is not None])

    @rule()
    def take_all(self) -> None:
        assert self.window.take_all() == list(self.model.values())
        self.model.clear()

    @invariant()
    def same(self) -> None:
        assert self.window.count == len(self.model)
        assert self.window.all() == list(self.model.values())


TestWindow = WindowMachine.TestCase
TestWindow.settings = MACHINE


def test_a_message_that_is_never_acked_holds_no_others() -> None:
    window = UnackedWindow()
    first = entry(1)
    first.delivery_tag = 1
    window.append(first)
    for tag in range(2, 100_000):
        one = entry(tag)
        one.delivery_tag = tag
        window.append(one)
        assert window.take(tag) is one
    assert window.all() == [first]
    # The test reads internals: settled tags must not pile up behind the straggler.
    assert len(window._tags) < 1000


def test_the_age_of_a_delivery_is_never_too_high() -> None:
    """Notes of time are a 32nd of the timeout apart, which the age may be too low by."""
    window = UnackedWindow()
    delivered: dict[int, int] = {}
    for now_ms in range(0, 200_000, 1000):
        one = entry(1 + now_ms)
        one.delivery_tag = 1 + now_ms
        window.append(one)
        delivered[one.delivery_tag] = now_ms
        window.is_overdue(now_ms, 320_000)
        oldest = window.oldest(2)
        assert [each.delivery_tag for each in oldest] == sorted(delivered)[:2]
        for each in oldest:
            age_ms = now_ms - delivered[each.delivery_tag]
            assert age_ms - 11_000 <= window.age_ms(each.delivery_tag) <= age_ms
        if now_ms >= 50_000:
            taken = min(delivered)
            assert window.take(taken) is not None
            del delivered[taken]
    window.take_all()
    assert window.oldest(1) == []


@pytest.mark.parametrize("timeout_ms", [12 * 3_600_000, SIZE_MAX])
def test_the_age_of_a_delivery_with_a_long_timeout(timeout_ms: int) -> None:
    """One delivery waits for two days while others come and go: it is known to within an hour."""
    window = UnackedWindow()
    first = entry(1)
    first.delivery_tag = 1
    window.append(first)
    began_ms = dict.fromkeys([1], 0)
    for now_ms in range(0, 2 * 86_400_000, 60_000):
        one = entry(2 + now_ms)
        one.delivery_tag = 2 + now_ms
        window.append(one)
        began_ms[one.delivery_tag] = now_ms
        is_overdue = window.is_overdue(now_ms, timeout_ms)
        assert is_overdue == (now_ms > timeout_ms)
        # Each is acked after ten hours, but for the first one.
        late = now_ms - 10 * 3_600_000
        if late >= 0:
            assert window.take(2 + late) is not None
        for back_ms, error_ms in ((20 * 60_000, 60_000), (9 * 3_600_000, 3_600_000)):
            tag = 2 + max(now_ms - back_ms, 0)
            age_ms = now_ms - began_ms[tag]
            assert age_ms - error_ms <= window.age_ms(tag) <= age_ms
    # The test reads internals: the notes are few.
    marks = window._marks
    assert marks is not None and len(marks.times) < 120


# -- the circle of consumers -----------------------------------------------------------------------


class Taker(Consumer):
    """A consumer with room for a number of messages."""

    def __init__(self, name: int, priority: int) -> None:
        super().__init__(QUEUE, b"%d" % name, False, False, priority, 0)
        self.room = 0

    def can_take(self) -> bool:
        return self.room > 0

    def deliver(self, entry: Entry) -> None:
        raise AssertionError("not here")

    def on_queue_deleted(self) -> None:
        raise AssertionError("not here")


class CircleMachine(RuleBasedStateMachine):
    """The model is a list by priority, in the order of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.circle = ConsumerCircle()
        self.waiting: list[Taker] = []
        self.idle: list[Taker] = []
        self.names = 0

    @rule(priority=st.integers(-2, 2), room=st.integers(0, 3))
    def join(self, priority: int, room: int) -> None:
        self.names += 1
        taker = Taker(self.names, priority)
        taker.room = room
        self.circle.add(taker)
        self.waiting.append(taker)

    @precondition(lambda self: self.idle)
    @rule(data=st.data(), room=st.integers(0, 3))
    def rejoin(self, data: st.DataObject, room: int) -> None:
        taker = self.idle.pop(data.draw(st.integers(0, len(self.idle) - 1)))
        taker.room = room
        self.circle.add(taker)
        self.waiting.append(taker)

    @precondition(lambda self: self.waiting or self.idle)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        taker = data.draw(st.sampled_from(self.waiting + self.idle))
        taker.stop_waiting()
        self.waiting = [one for one in self.waiting if one is not taker]
        self.idle = [one for one in self.idle if one is not taker]

    @rule()
    def next_ready(self) -> None:
        found = self.circle.next_ready()
        expected = None
        for taker in sorted(self.waiting, key=lambda one: -one.priority):
            # `sorted` is stable: among equals, the consumer that has waited longest comes first.
            if expected is not None:
                break
            self.waiting.remove(taker)
            if taker.room > 0:
                expected = taker
                taker.room -= 1
                self.waiting.append(taker)
            else:
                self.idle.append(taker)
        assert found is expected

    @invariant()
    def same(self) -> None:
        assert all(taker.waits_in is self.circle for taker in self.waiting)
        assert all(taker.waits_in is None for taker in self.idle)


TestCircle = CircleMachine.TestCase
TestCircle.settings = MACHINE


def test_priorities_that_nobody_has_any_more_are_forgotten() -> None:
    circle = ConsumerCircle()
    for priority in range(5000):
        taker = Taker(priority, priority)
        circle.add(taker)
        # Half of the consumers leave while they wait, half after they could not take a message.
        if priority % 2:
            assert circle.next_ready() is None
        taker.stop_waiting()
    assert len(circle._levels) <= 1


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_equals_are_served_in_turn(priorities: list[int]) -> None:
    circle = ConsumerCircle()
    takers = [Taker(number, priority) for number, priority in enumerate(priorities)]
    for taker in takers:
        taker.room = 1000
        circle.add(taker)
    highest = [taker for taker in takers if taker.priority == max(priorities)]
    for _ in range(3):
        assert [circle.next_ready() for _ in highest] == highest


def test_an_empty_deque_refuses() -> None:
    with pytest.raises(IndexError):
        EntryDeque().pop_left()
