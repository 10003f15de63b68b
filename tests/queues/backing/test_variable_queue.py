"""The variable queue alone: where messages enter, wait and leave, and what may stay in memory."""

import pytest

from tests.support.stores.model_store import ModelHost
from warrenmq.queues.backing.paging import permitted_beta_count
from warrenmq.queues.backing.variable_queue import (
    EMPTY,
    LOADING,
    READY,
    UNLIMITED,
    VariableQueue,
)
from warrenmq.queues.entry import BETA, GAMMA, Entry
from warrenmq.queues.memory.account import ENTRY_BYTES, MESSAGE_BYTES
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import INDEXED, ContentRef, Message

SEGMENT = 16384


@pytest.fixture
def owner() -> Queue:
    return ModelHost().declare(durable=False)


@pytest.fixture
def ready() -> VariableQueue:
    return VariableQueue()


def entry(
    owner: Queue, seq: int, indexed: bool = False, paged: bool = False, size: int = 10
) -> Entry:
    one = Entry(
        Message(b"\x00\x00", b"\x00\x00", bytes(size), False, 0), owner.ledger, seq, 0, owner
    )
    if indexed:
        one.journal_state = INDEXED
    if paged:
        one.content_ref = ContentRef(1, 0, 0, size, 1, True)
        one.drop_content()
    return one


def publish(ready: VariableQueue, owner: Queue, *seqs: int, indexed: bool = True) -> None:
    for seq in seqs:
        ready.append(entry(owner, seq, indexed))


def parts(ready: VariableQueue) -> list[list[int]]:
    """The seq ids of q4, q3, q2 and q1."""
    return [
        [int(ring.at(place).seq) for place in range(int(ring.count))]
        for ring in (ready.q4, ready.q3, ready.q2, ready.q1)
    ]


def in_all_parts(ready: VariableQueue, owner: Queue) -> None:
    """q4: 10, 20; q3: 30, 40; delta: 50 to 69 with 2 messages; q2: 70, 80; q1: 90, 100."""
    publish(ready, owner, 10, 20, 30, 40, 50, 60)
    for _ in range(4):
        ready.push_q4()
    ready.push_old()
    ready.push_old()
    ready.delta.end = 70
    publish(ready, owner, 70, 80)
    ready.push_q1()
    ready.push_q1()
    publish(ready, owner, 90, 100)
    ready.check()
    assert parts(ready) == [[10, 20], [30, 40], [70, 80], [90, 100]]
    assert (ready.delta.start, ready.delta.end, ready.delta.count) == (50, 70, 2)


# -- S61, S70-S73 ----------------------------------------------------------------------------------


def test_a_message_enters_at_q4_until_something_is_behind_it(
    ready: VariableQueue, owner: Queue
) -> None:
    """S61: a message enters q4 while q3 is empty, else q1."""
    publish(ready, owner, 1, 2)
    assert parts(ready) == [[1, 2], [], [], []]
    ready.push_q4()
    publish(ready, owner, 3)
    assert parts(ready) == [[1], [2], [], [3]]


def test_taking_the_last_of_q3_makes_q1_the_head(ready: VariableQueue, owner: Queue) -> None:
    """S70, S71: messages leave q4 first, then q3; with q3 and delta empty q1 becomes q4."""
    publish(ready, owner, 1, 2)
    ready.push_q4()
    publish(ready, owner, 3, 4)
    assert [ready.fetch().seq, ready.fetch().seq] == [1, 2]
    assert parts(ready) == [[3, 4], [], [], []]
    ready.check()


def test_an_emptied_delta_hands_on_to_q2(ready: VariableQueue, owner: Queue) -> None:
    """S72: the load that empties delta moves q2 to q3; a load that does not leaves q2."""
    in_all_parts(ready, owner)
    ready.accept([entry(owner, 50, True)], 60)
    assert parts(ready) == [[10, 20], [30, 40, 50], [70, 80], [90, 100]]
    ready.check()
    ready.accept([entry(owner, 60, True)], 70)
    assert parts(ready) == [[10, 20], [30, 40, 50, 60, 70, 80], [], [90, 100]]
    ready.check()


def test_with_q3_empty_everything_is(ready: VariableQueue, owner: Queue) -> None:
    """S73: taking all messages empties the parts in order."""
    in_all_parts(ready, owner)
    ready.accept([entry(owner, 50, True), entry(owner, 60, True)], 70)
    assert [int(ready.fetch().seq) for _ in range(10)] == list(range(10, 110, 10))
    assert ready.count == 0 and ready.head_state() == EMPTY
    ready.check()


def test_the_head_is_ready_or_on_its_way(ready: VariableQueue, owner: Queue) -> None:
    assert ready.head_state() == EMPTY
    publish(ready, owner, 1)
    assert ready.head_state() == READY
    ready.drop_content(ready.head())
    assert ready.head_state() == LOADING and ready.has_head_entry()
    ready.take_content(ready.head())
    assert ready.head_state() == READY
    ready.push_old()
    assert ready.head_state() == LOADING and not ready.has_head_entry()
    ready.check()


# -- T52 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "q1", "q3", "q4", "target", "permitted"),
    [
        (0, 0, 0, 0, 0, UNLIMITED),
        (0, 0, 0, 0, 5000, UNLIMITED),
        (100, 0, 100, 0, 0, 100),
        (100, 0, 60, 40, 0, 60),
        (50_000, 0, 50_000, 0, 0, SEGMENT),
        (50_000, 10_000, 20_000, 20_000, 0, SEGMENT),
        # B - B * B / (B + T)
        (100_000, 0, 100_000, 0, 1, SEGMENT),
        (100_000, 0, 100_000, 0, 100_000, 50_000),
        (100_000, 10_000, 80_000, 10_000, 80_000, 40_000),
        (100_000, 0, 100_000, 0, 10_000_000, 99_010),
        (100_000, 0, 100_000, 0, UNLIMITED, UNLIMITED),
        (10_000_000, 0, 10_000_000, 0, 67_800, 67_344),
    ],
)
def test_t52_permitted_beta_count(
    length: int, q1: int, q3: int, q4: int, target: int, permitted: int
) -> None:
    """S65, C8: the target decides how many messages may stay beta."""
    assert permitted_beta_count(length, q1, q3, q4, target, SEGMENT) == permitted


def test_t52_a_larger_target_permits_more() -> None:
    """C9: a larger target never permits fewer betas."""
    targets = [0, 1, 10, 1000, 20_000, 1_000_000, 10**12, int(UNLIMITED)]
    found = [
        int(permitted_beta_count(200_000, 0, 200_000, 0, target, SEGMENT)) for target in targets
    ]
    assert found == sorted(found)


# -- T53 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq", "place"),
    [
        (5, [[5, 10, 20], [30, 40], [70, 80], [90, 100]]),
        (15, [[10, 15, 20], [30, 40], [70, 80], [90, 100]]),
        (25, [[10, 20, 25], [30, 40], [70, 80], [90, 100]]),
        (35, [[10, 20], [30, 35, 40], [70, 80], [90, 100]]),
        (45, [[10, 20], [30, 40, 45], [70, 80], [90, 100]]),
        (75, [[10, 20], [30, 40], [70, 75, 80], [90, 100]]),
        (85, [[10, 20], [30, 40], [70, 80], [85, 90, 100]]),
        (95, [[10, 20], [30, 40], [70, 80], [90, 95, 100]]),
        (105, [[10, 20], [30, 40], [70, 80], [90, 100, 105]]),
    ],
)
def test_t53_what_comes_back_goes_to_its_place(
    ready: VariableQueue, owner: Queue, seq: int, place: list[list[int]]
) -> None:
    in_all_parts(ready, owner)
    ready.requeue([entry(owner, seq, True)])
    assert parts(ready) == place
    ready.check()


def test_t53_between_two_parts_content_decides(ready: VariableQueue, owner: Queue) -> None:
    """An entry without content goes to the middle, and those after it in a requeue follow it."""
    in_all_parts(ready, owner)
    ready.requeue(
        [entry(owner, 25, True, True), entry(owner, 26, True), entry(owner, 85, True, True)]
    )
    assert parts(ready) == [[10, 20], [25, 26, 30, 40], [70, 80, 85], [90, 100]]
    ready.check()


def test_t53_what_belongs_to_delta_is_left_to_the_disk(ready: VariableQueue, owner: Queue) -> None:
    """The index has the message already: it is counted and costs no memory."""
    in_all_parts(ready, owner)
    before = ready.ram_bytes
    ready.requeue([entry(owner, 55, True), entry(owner, 65, True, True)])
    assert ready.delta.count == 4 and ready.ram_bytes == before
    ready.check()


# -- figures and ranges ----------------------------------------------------------------------------


def test_every_state_is_counted_with_its_bytes(ready: VariableQueue, owner: Queue) -> None:
    """Messages and bytes of alpha, beta, gamma and delta are counted, and their cost in memory."""
    publish(ready, owner, 1, 2, 3, 4)
    size = 14
    assert (ready.ram_count, ready.alpha_bytes) == (4, 4 * size)
    ready.q4.at(3).journal_state = 0
    ready.q4.at(3).content_ref = ContentRef(1, 0, 0, size, 1, True)
    ready.drop_content(ready.q4.at(3))
    assert ready.q4.at(3).form == BETA and (ready.beta_count, ready.beta_bytes) == (1, size)
    ready.drop_content(ready.q4.at(1))
    assert ready.q4.at(1).form == GAMMA and (ready.gamma_count, ready.gamma_bytes) == (1, size)
    ready.q4.at(3).journal_state = INDEXED
    ready.on_indexed(ready.q4.at(3))
    assert (ready.beta_count, ready.gamma_count) == (0, 2)
    ready.push_old()
    assert (ready.delta.count, ready.delta.content_bytes, ready.gamma_count) == (1, size, 1)
    assert ready.ram_bytes == 2 * size + 3 * ENTRY_BYTES + 2 * MESSAGE_BYTES
    assert ready.body_bytes == 40
    ready.check()


def test_a_range_ends_where_delta_begins(ready: VariableQueue, owner: Queue) -> None:
    in_all_parts(ready, owner)
    assert [ready.index_of_seq(seq) for seq in (0, 20, 21, 41, 70, 101)] == [0, 1, 2, 4, 4, 8]
    assert [ready.run_length(index) for index in (0, 3, 4, 7)] == [4, 1, 4, 1]
    assert [ready.is_on_disk(seq) for seq in (0, 40, 41, 69, 70, 101)] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert [int(one.seq) for one in ready.take_range(1, 2)] == [20, 30]
    assert [int(one.seq) for one in ready.take_range(2, 3)] == [70, 80, 90]
    assert parts(ready) == [[10], [40], [], [100]]
    ready.check()


def test_the_middle_may_be_taken_from_under_q1(ready: VariableQueue, owner: Queue) -> None:
    """A range that empties q3 while q4 and q1 have messages joins those two."""
    publish(ready, owner, 1, 2, 3)
    ready.push_q4()
    publish(ready, owner, 4, 5, 6, 7)
    assert [int(one.seq) for one in ready.take_range(2, 1)] == [3]
    assert parts(ready) == [[1, 2, 4, 5, 6, 7], [], [], []]
    ready.check()


def test_a_load_that_finds_less_lowers_the_count(ready: VariableQueue, owner: Queue) -> None:
    """Damaged messages lower the count, and so do those that a restart counted too many."""
    ready.restore_delta(1, 100, 10, 1000)
    ready.restore(entry(owner, 100))
    ready.check()
    ready.lose_in_delta(3)
    ready.accept([entry(owner, 1, True), entry(owner, 5, True)], 50)
    assert ready.count == 8
    ready.accept([entry(owner, 60, True)], 100)
    assert ready.count == 4 and ready.delta.count == 0
    assert parts(ready) == [[], [1, 5, 60, 100], [], []]
    ready.check()


def test_a_range_without_anything_ready_is_cut_off(ready: VariableQueue, owner: Queue) -> None:
    in_all_parts(ready, owner)
    ready.trim_delta(65)
    assert (ready.delta.end, ready.delta.count) == (65, 2)
    ready.trim_delta(50)
    assert ready.delta.count == 0 and ready.count == 8
    assert parts(ready) == [[10, 20], [30, 40, 70, 80], [], [90, 100]]
    ready.check()


def test_what_a_restart_brings_keeps_its_order(ready: VariableQueue, owner: Queue) -> None:
    """Small messages return with content, large ones without; publishes continue after them."""
    for seq, paged in ((1, False), (2, True), (3, False)):
        ready.restore(entry(owner, seq, paged=paged))
    publish(ready, owner, 4, indexed=False)
    assert parts(ready) == [[1], [2, 3], [], [4]]
    assert (ready.beta_count, ready.gamma_count) == (1, 0)
    ready.check()
