"""Queues under memory pressure, step by step: what is paged, what is loaded, and who waits.
The store is the model; its loads complete when the test says so.
"""

import pytest

from tests.support.stores.model_store import NOW_MS, ModelHost
from tests.support.stores.paging_queues import (
    ADDRESS,
    LARGE,
    SMALL,
    Taker,
    drain,
    fill,
    forms,
    lazy,
    shape,
)
from warrenmq.queues.backing.paging import Progress, page_slice
from warrenmq.queues.backing.variable_queue import EMPTY, LOADING, READY, UNLIMITED
from warrenmq.queues.entry import ALPHA, BETA, GAMMA
from warrenmq.queues.turn import MORE, STEPS_A_MESSAGE, TURN_STEPS, TURN_STEPS_MAX, WRITE_STEPS
from warrenmq.store.model.message import INDEXED, Message


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


# -- paging step by step (S62-S68) -----------------------------------------------------------------


def test_t50_targets_that_jump_keep_order_and_counts(host: ModelHost) -> None:
    queue = host.declare()
    for target in (int(UNLIMITED), 10, 0, 3, int(UNLIMITED), 0, 40):
        queue.backing.memory.set_target(target)
        fill(queue, 25)
        fill(queue, 5, LARGE, False)
        host.settle_down()
        host.check()
    assert drain(host, queue) == list(range(1, 7 * 30 + 1))
    host.check()


def test_t51_one_and_a_half_segments() -> None:
    """At target 0 one segment stays in q3, the rest is delta, and later messages enter q1."""
    host = ModelHost(page_batch=2048, segment_entries=16384)
    queue = host.declare(durable=False)
    fill(queue, 24576, 1, False)
    queue.backing.memory.set_target(0)
    host.settle_down()
    host.check()
    assert shape(queue) == (0, 16384, 8192, 0, 0)
    queue.backing.memory.set_target(int(UNLIMITED))
    fill(queue, 1, 1, False)
    assert shape(queue) == (0, 16384, 8192, 0, 1)
    assert drain(host, queue) == list(range(1, 24578))


def test_alphas_sink_from_q1_oldest_first_then_from_q4_youngest_first(host: ModelHost) -> None:
    """S62, S64: alphas move to the middle, whose oldest message stays older than those of q4."""
    queue = host.declare(durable=False)
    fill(queue, 6, LARGE, False)
    queue.backing.memory.set_target(5)
    host.settle_down()
    assert shape(queue) == (5, 1, 0, 0, 0)
    assert forms(queue) == [ALPHA] * 5 + [BETA]
    fill(queue, 3, LARGE, False)
    host.settle_down()
    # The three messages that entered q1 moved first.
    assert shape(queue) == (5, 4, 0, 0, 0)
    fill(queue, 1, LARGE, False)
    queue.backing.memory.set_target(2)
    host.settle_down()
    assert shape(queue) == (2, 8, 0, 0, 0)
    assert queue.backing.ready.q3.first_seq() == 3 and queue.backing.ready.ram_count == 2
    host.check()
    assert drain(host, queue) == list(range(1, 11))


def test_large_persistent_messages_become_gamma_and_transient_ones_beta(host: ModelHost) -> None:
    """S51, S52, S54: contents are on disk, and so are the positions of persistent messages."""
    queue = host.declare()
    fill(queue, 3, LARGE)
    queue.backing.memory.set_target(0)
    host.settle_down()
    fill(queue, 2, LARGE, False)
    host.settle_down()
    assert forms(queue) == [GAMMA, GAMMA, GAMMA, BETA, BETA]
    assert queue.backing.ready.ram_count == 0
    assert len(host.contents) == 5
    host.check()
    assert drain(host, queue) == [1, 2, 3, 4, 5]
    assert host.contents == {}


def test_c14_small_messages_keep_their_content_until_they_go_to_delta(host: ModelHost) -> None:
    queue = host.declare()
    fill(queue, 10)
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert shape(queue) == (0, 10, 0, 0, 0) and forms(queue) == [ALPHA] * 10
    assert host.stores[0].live == {}
    fill(queue, 30)
    host.settle_down()
    ready = queue.backing.ready
    assert ready.delta.count > 0 and len(host.stores[0].live) >= ready.delta.count
    # A message that is in the index keeps nothing in memory.
    assert all(ready.at(index).journal_state != INDEXED for index in range(int(ready.ram_count)))
    assert drain(host, queue) == list(range(1, 41))


def test_s66_only_lumps_go_to_delta(host: ModelHost) -> None:
    """Messages move to delta only when a whole batch exceeds the permitted number."""
    queue = host.declare(durable=False)
    queue.backing.memory.set_target(0)
    fill(queue, 16 + 7, SMALL, False)
    host.settle_down()
    assert shape(queue) == (0, 23, 0, 0, 0)
    fill(queue, 1, SMALL, False)
    host.settle_down()
    assert shape(queue) == (0, 16, 8, 0, 0)
    fill(queue, 7, SMALL, False)
    host.settle_down()
    assert shape(queue) == (0, 16, 8, 7, 0)
    fill(queue, 1, SMALL, False)
    host.settle_down()
    # q3 has the permitted number, so q2 moves its oldest messages.
    assert shape(queue) == (0, 8, 16, 8, 0)


def test_c7_the_oldest_of_q3_stays() -> None:
    """However many messages must go, the oldest stays: without it the next message is unknown."""
    host = ModelHost(page_batch=1, segment_entries=4)
    queue = host.declare(durable=False)
    fill(queue, 50, SMALL, False)
    queue.backing.memory.set_target(1)
    host.settle_down()
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.ready.q3.count >= 1 and queue.backing.ready.q3.first_seq() == 1
    host.check()


def test_small_messages_in_the_middle_are_bounded_by_bytes() -> None:
    """A segment of small messages may take 64 MiB: above 4 MiB all but the oldest go to delta."""
    host = ModelHost(embed_below=1 << 20, page_batch=8, segment_entries=16384)
    queue = host.declare(durable=False)
    fill(queue, 50, 100_000, False)
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.ready.delta.count > 0 and queue.backing.ready.alpha_bytes < 1 << 20
    host.check()


def test_what_paging_frees_the_account_knows_in_the_same_turn(host: ModelHost) -> None:
    """Otherwise the monitor would ask the queue repeatedly for memory that it no longer has."""
    queue = host.declare()
    fill(queue, 30, LARGE)
    host.settle_down()
    before = queue.backing.memory.ram_bytes
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.ready.ram_count == 0
    assert (
        queue.backing.memory.ram_bytes
        == host.memory.ram_bytes
        == queue.backing.memory.current_bytes()
        < before // 2
    )


@pytest.mark.parametrize("target", [0, 25])
def test_publishing_without_a_pause_does_not_keep_a_queue_from_paging(
    host: ModelHost, target: int
) -> None:
    """The youngest messages are never on disk then; the older ones are paged all the same."""
    queue = host.declare()
    queue.backing.memory.set_target(target)
    for _ in range(50):
        for _ in range(10):
            body = b"%0*d" % (LARGE, queue.next_seq)
            queue.publish(Message(ADDRESS, b"\x00\x00", body, True, 0), -1, host.now_ms)
        # One batch is durable and the next one in flight, and more messages gather behind it.
        host.commit()
        host.seal()
        for _ in range(10):
            body = b"%0*d" % (LARGE, queue.next_seq)
            queue.publish(Message(ADDRESS, b"\x00\x00", body, True, 0), -1, host.now_ms)
        host.turn()
        host.check()
        assert queue.backing.ready.ram_count <= max(target + 30, 60)
    assert drain(host, queue) == list(range(1, 50 * 20 + 1))


def test_what_is_not_sealed_waits_for_the_seal(host: ModelHost) -> None:
    """A PENDING message does not move, and the queue asks for no more turns before the seal."""
    queue = host.declare(is_lazy=True)
    for _ in range(5):
        queue.publish(Message(ADDRESS, b"\x00\x00", b"x", True, 0), -1, NOW_MS)
    host.turn()
    wakes = host.wake_count
    for _ in range(5):
        host.turn()
    assert host.wake_count == wakes and shape(queue)[0] == 5
    host.seal()
    host.turn()
    assert shape(queue) == (0, 0, 5, 0, 0)


def test_what_waits_for_its_content_waits_for_the_commit(host: ModelHost) -> None:
    """No reference is written to the index before its content is on disk."""
    queue = host.declare(is_lazy=True)
    for size in (SMALL, LARGE, SMALL):
        queue.publish(Message(ADDRESS, b"\x00\x00", b"1" * size, True, 0), -1, NOW_MS)
    host.seal()
    host.turn()
    assert shape(queue) == (0, 0, 1, 0, 2)
    host.commit()
    host.turn()
    assert shape(queue) == (0, 0, 3, 0, 0)


def test_a_disk_that_is_behind_is_given_no_more(host: ModelHost) -> None:
    queue = host.declare(durable=False, is_lazy=True)
    host.is_behind = True
    fill(queue, 20, SMALL, False)
    host.turn()
    assert shape(queue)[0] == 20
    host.is_behind = False
    host.turn()
    assert shape(queue)[2] == 20


def test_w19_paging_goes_in_slices_and_other_queues_have_their_turn() -> None:
    """One turn takes its steps; a later queue is served by the turn after the next."""
    host = ModelHost(page_batch=2048, segment_entries=16384)
    most = TURN_STEPS_MAX // WRITE_STEPS
    first = host.declare(durable=False)
    fill(first, 3 * most, SMALL, False)
    second = host.declare(durable=False)
    fill(second, 10, SMALL, False)
    first.backing.memory.set_mode(True)
    second.backing.memory.set_mode(True)
    host.turn()
    assert 0 < first.ledger.indexed_upto <= most + 1 and host.wake_count > 0
    host.turn()
    host.turn()
    assert second.backing.ready.delta.count == 10
    host.settle_down()
    assert first.backing.ready.delta.count == 3 * most


def test_a_turn_pages_a_bounded_number_of_messages_and_more_than_came_in() -> None:
    """G6: the work of one turn depends on the publishes in it, not on the backlog."""
    host = ModelHost(page_batch=2048, segment_entries=16384)
    queue = host.declare(durable=False)
    fill(queue, 20000, SMALL, False)
    host.turn()
    queue.backing.memory.set_target(0)
    turns = 0
    while queue.backing.ready.delta.count < 20000 - 16384:
        before = (queue.ledger.indexed_upto, queue.backing.ready.delta.count)
        host.turn()
        turns += 1
        assert queue.ledger.indexed_upto - before[0] <= TURN_STEPS // WRITE_STEPS
        assert queue.backing.ready.delta.count - before[1] <= TURN_STEPS
        assert turns < 1000
    fill(queue, 10 * TURN_STEPS, SMALL, False)
    before_count = queue.backing.ready.entry_count
    host.turn()
    assert queue.backing.steps_used <= TURN_STEPS_MAX
    host.settle_down()
    # An endless stream of publishes does not make memory grow.
    for _ in range(50):
        fill(queue, 200, SMALL, False)
        host.turn()
        assert queue.backing.steps_used <= TURN_STEPS + 200 * STEPS_A_MESSAGE
    assert queue.backing.ready.entry_count < before_count
    host.settle_down()
    host.check()


def test_a_batch_that_is_cut_goes_to_delta_to_its_end() -> None:
    """S66: a batch that a turn cuts off follows in later turns."""
    host = ModelHost(page_batch=2048, segment_entries=16)
    queue = host.declare(durable=False)
    fill(queue, 2100, SMALL, False)
    host.turn()
    queue.backing.memory.set_target(0)
    host.settle_down()
    host.check()
    assert shape(queue) == (0, 52, 2048, 0, 0)


def test_w18_write_through_leaves_memory_as_it_is(host: ModelHost) -> None:
    """Messages that block a journal file go to the index in slices and stay alpha."""
    queue = host.declare()
    fill(queue, 20)
    assert not queue.backing.index_upto(15, 6)
    assert not queue.backing.index_upto(15, 6)
    assert queue.backing.index_upto(15, 6)
    assert sorted(host.stores[0].live) == list(range(1, 15))
    assert forms(queue) == [ALPHA] * 20 and shape(queue) == (20, 0, 0, 0, 0)
    host.check()
    assert drain(host, queue) == list(range(1, 21))
    assert host.stores[0].live == {}


# -- coming back -----------------------------------------------------------------------------------


def test_delivery_stops_at_a_head_on_disk_and_goes_on_when_it_comes(host: ModelHost) -> None:
    queue = lazy(host, 30)
    taker = Taker(host, queue, 20)
    queue.add_consumer(taker)
    queue.deliver_ready(NOW_MS)
    assert (
        taker.taken == [] and queue.backing.ready.head_state() == LOADING and len(host.loads) == 1
    )
    host.complete()
    assert taker.taken == []
    host.turn()
    assert len(taker.taken) == 8
    host.settle_down()
    assert [entry.seq for entry in taker.taken] == list(range(1, 21))
    host.check()


def test_the_next_batch_is_read_before_the_last_one_is_used_up(host: ModelHost) -> None:
    """With less than half a batch left, a load runs while the rest is delivered (read-ahead)."""
    queue = lazy(host, 30)
    taker = Taker(host, queue, 1)
    queue.add_consumer(taker)
    queue.deliver_ready(NOW_MS)
    host.complete()
    host.turn()
    seen: list[int] = []
    while queue.backing.ready.count > 0 and len(seen) < 25:
        entry = taker.taken.pop()
        seen.append(int(entry.seq))
        host.settle(entry)
        queue.consumer_can_take(taker)
        queue.deliver_ready(NOW_MS)
        # The consumer never waits, although a load takes as long as three messages.
        assert taker.taken, f"waits behind {seen[-1]}"
        if len(seen) % 3 == 0:
            host.complete()
            host.turn()
    assert seen == list(range(1, 26))
    host.check()


def test_nobody_reads_without_a_consumer(host: ModelHost) -> None:
    """A queue without consumers stays on disk, whatever is requeued to it."""
    queue = lazy(host, 30)
    fill(queue, 5, SMALL, False)
    entry = host.take(queue)
    assert entry is not None
    host.now_ms += 2000
    host.requeue(entry)
    host.settle_down()
    assert host.loads == [] and shape(queue)[:3] == (0, 0, 35)


def test_get_waits_for_the_head(host: ModelHost) -> None:
    queue = lazy(host, 3)
    assert queue.get(True, NOW_MS) is None and queue.head_state(NOW_MS) == LOADING
    times: list[int] = []
    queue.when_head(times.append)
    host.turn()
    assert times == []
    host.complete()
    host.turn()
    assert times == [NOW_MS] and queue.head_state(NOW_MS) == READY


def test_a_get_that_waits_is_answered_when_the_queue_empties(host: ModelHost) -> None:
    queue = lazy(host, 3)
    times: list[int] = []
    queue.when_head(times.append)
    queue.purge(NOW_MS)
    host.turn()
    assert times == [NOW_MS] and queue.head_state(NOW_MS) == EMPTY
    host.complete(3)
    host.settle_down()
    host.check()


def test_damaged_messages_just_lower_the_counts(host: ModelHost) -> None:
    queue = lazy(host, 10)
    host.stores[0].damaged = {1, 4, 10}
    assert drain(host, queue) == [2, 3, 5, 6, 7, 8, 9]
    assert queue.backing.ready.count == 0
    host.check()


def test_a_damaged_content_lowers_the_counts_as_well(host: ModelHost) -> None:
    queue = host.declare()
    fill(queue, 4, LARGE)
    queue.backing.memory.set_target(0)
    host.settle_down()
    host.stores[0].damaged = {1, 3}
    assert drain(host, queue) == [2, 4]
    host.check()
    assert host.contents == {}


# -- T57, T63 --------------------------------------------------------------------------------------


def test_t57_modes_change_with_messages_in_all_states(host: ModelHost) -> None:
    """Messages arrive, leave and return while the mode changes, some of it on a slow disk."""
    queue = host.declare()
    expected: list[int] = []
    for round_number in range(6):
        first = queue.next_seq
        fill(queue, 12)
        fill(queue, 4, LARGE, False)
        fill(queue, 4, LARGE, True)
        expected += range(first, first + 20)
        entry = host.take(queue)
        assert entry is not None
        assert entry.seq == expected.pop(0)
        host.is_behind = round_number in (2, 3)
        queue.backing.memory.set_mode(round_number % 2 == 0)
        queue.backing.memory.set_target((int(UNLIMITED), 5, 0)[round_number % 3])
        for _ in range(4):
            host.turn()
            host.complete()
            host.check()
        host.now_ms += 2000
    host.is_behind = False
    queue.backing.memory.set_mode(True)
    host.settle_down()
    assert shape(queue) == (0, 0, len(expected), 0, 0)
    host.requeue(*host.out)
    queue.backing.memory.set_mode(False)
    assert drain(host, queue) == sorted([*expected, *range(1, 7)])


def test_s75_lazy_keeps_nothing_without_consumers_and_a_little_with_one(host: ModelHost) -> None:
    queue = lazy(host, 200)
    assert queue.backing.ready.ram_bytes == 0
    taker = Taker(host, queue, 1)
    queue.add_consumer(taker)
    queue.deliver_ready(NOW_MS)
    host.settle_down()
    fill(queue, 50, SMALL, False)
    host.settle_down()
    assert queue.backing.ready.entry_count <= 2 * host.page_batch
    assert queue.remove_consumer(taker, NOW_MS) is False
    host.settle_down()
    assert queue.backing.ready.entry_count == 0
    host.check()


@pytest.mark.parametrize("moves", [0, 1, 2])
def test_a_slice_may_end_where_a_lazy_queue_is_parted(host: ModelHost, moves: int) -> None:
    """A slice that ended there made all messages q1, and a waiting consumer never got the head."""
    queue = host.declare(durable=False, is_lazy=True)
    fill(queue, 5, SMALL, False)
    # Enough steps to write one message and to make `moves` moves.
    host.steps_left = WRITE_STEPS + moves
    assert page_slice(queue.backing, Progress()) == MORE
    queue.backing.ready.check()
    host.settle_down()
    assert shape(queue) == (0, 0, 5, 0, 0)
    assert drain(host, queue) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("no_ack", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_t63_direct_delivery(host: ModelHost, no_ack: bool, persistent: bool) -> None:
    """An empty queue delivers at once; a dead consumer's messages return, marked redelivered."""
    queue = host.declare()
    taker = Taker(host, queue, 5, no_ack)
    queue.add_consumer(taker)
    fill(queue, 3, SMALL, persistent)
    assert [entry.seq for entry in taker.taken] == [1, 2, 3] and queue.backing.ready.count == 0
    assert queue.ledger.unindexed_unacked == (0 if no_ack else 3)
    assert all(entry.redelivered is False for entry in taker.taken)
    queue.remove_consumer(taker, NOW_MS)
    if no_ack:
        assert queue.unacked_count == 0
        return
    host.requeue(*host.out)
    entry = host.take(queue)
    assert entry is not None and entry.seq == 1 and entry.redelivered
    queue.backing.memory.set_mode(True)
    host.now_ms += 2000
    host.settle_down()
    again = host.take(queue)
    assert again is not None and again.seq == 2 and again.redelivered
    host.check()


# -- expiry ----------------------------------------------------------------------------------------


def test_t56_expired_messages_are_dropped_in_slices() -> None:
    """10,000 at the head: no step drops more than a slice, and no live message is lost."""
    host = ModelHost()
    queue = host.declare()
    fill(queue, 10_000, SMALL, True, 100)
    fill(queue, 3)
    host.now_ms += 100
    assert not queue.drop_expired_head(host.now_ms)
    assert queue.backing.ready.count == 10_003 - 2048
    assert queue.head_state(host.now_ms) == LOADING
    assert drain(host, queue) == [10_001, 10_002, 10_003]
    assert queue.backing.counters.expired == 10_000


def test_what_expires_on_disk_is_not_read_before_its_time(host: ModelHost) -> None:
    """The queue knows the expiry of a head on disk."""
    queue = host.declare(is_lazy=True, ttl_ms=1000)
    fill(queue, 20)
    host.settle_down()
    for _ in range(5):
        host.now_ms += 100
        queue.drop_expired_head(host.now_ms)
    assert host.loads == []
    host.now_ms += 1000
    while queue.backing.ready.count > 0:
        queue.drop_expired_head(host.now_ms)
        host.settle_down()
    assert queue.backing.counters.expired == 20 and host.stores[0].live == {}
    host.check()
