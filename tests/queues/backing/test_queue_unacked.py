"""Queues on disk with unacked messages: requeues, purges, deletions, range readers, memory.
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
)
from warrenmq.queues.backing.loading import EntryContents, RangeLoad, peek_anywhere
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import ALPHA, GAMMA, Entry
from warrenmq.queues.memory.account import FOREVER_S
from warrenmq.queues.queue import Queue
from warrenmq.queues.turn import TURN_STEPS, WRITE_STEPS
from warrenmq.store.model.message import Message, QueueLedger


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


# -- T53, T54 --------------------------------------------------------------------------------------


def test_t53_a_block_that_comes_back_in_reverse_keeps_its_order(host: ModelHost) -> None:
    queue = host.declare()
    fill(queue, 40)
    out = [host.take(queue) for _ in range(20)]
    queue.backing.memory.set_target(0)
    host.settle_down()
    for entry in reversed(out):
        assert entry is not None
        host.requeue(entry)
        host.turn()
        host.check()
    host.settle_down()
    assert drain(host, queue) == list(range(1, 41))


@pytest.mark.parametrize("is_lazy", [False, True])
def test_t53_with_holes_and_with_what_is_out_in_the_midst_of_delta(
    host: ModelHost, is_lazy: bool
) -> None:
    queue = host.declare()
    fill(queue, 60)
    out = [host.take(queue) for _ in range(30)]
    host.now_ms += 2000
    queue.backing.memory.set_mode(is_lazy)
    queue.backing.memory.set_target(0)
    for entry in out[::3]:
        assert entry is not None
        host.requeue(entry)
    host.settle_down()
    host.check()
    for entry in out[1::3]:
        assert entry is not None
        host.settle(entry)
    for entry in out[2::6]:
        assert entry is not None
        host.requeue(entry)
    host.settle_down()
    host.check()
    expected = sorted([*range(1, 31, 3), *range(3, 31, 6), *range(31, 61)])
    assert drain(host, queue) == expected
    assert len(host.out) == 5
    host.requeue(*host.out)
    assert drain(host, queue) == list(range(6, 31, 6))
    assert host.stores[0].live == {}


def test_t54_unacked_messages_leave_memory_and_come_back(host: ModelHost) -> None:
    """Half are unacked; at target 0 no content is in memory; a requeue reads it again."""
    queue = host.declare()
    fill(queue, 20, LARGE)
    out = [host.take(queue) for _ in range(10)]
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert (
        queue.backing.memory.ram_count == 0
        and queue.backing.unacked.paged_count == 10
        and queue.backing.unacked.content_bytes == 0
    )
    host.check()
    seen: list[list[Entry]] = []
    held = [entry for entry in out if entry is not None]
    queue.backing.loader.submit(EntryContents(queue.backing, held, held.__contains__, seen.append))
    host.complete()
    assert seen == [[]] and all(int(entry.message.body) == entry.seq for entry in held)
    host.check()
    host.requeue(*held)
    assert drain(host, queue) == list(range(1, 21))
    assert host.contents == {}


def test_small_unacked_messages_leave_memory_as_well(host: ModelHost) -> None:
    """C14 says that they cannot; here they move to the index."""
    queue = host.declare()
    fill(queue, 10)
    for _ in range(10):
        host.take(queue)
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.unacked.paged_count == 10 and len(host.stores[0].live) == 10
    host.check()
    host.requeue(*host.out)
    assert drain(host, queue) == list(range(1, 11))
    host.check()


# -- contents that arrive or fail for another taker -----------------------------------------------


def group_takes_what_is_read(host: ModelHost, damaged: set[int]) -> tuple[Queue, Entry]:
    """While contents of three messages are read for a basic.get, a reader group takes the first."""
    queue = host.declare()
    fill(queue, 3, LARGE)
    queue.backing.memory.set_target(0)
    host.turn()
    host.stores[0].damaged = damaged
    queue.when_head(lambda now_ms: None)
    assert len(host.loads) == 1
    (held,) = queue.backing.reserve(1, 1, 1 << 40)
    host.out.append(held)
    return queue, held


@pytest.mark.parametrize("is_given_back", [False, True])
def test_the_content_of_what_a_client_has_by_now_is_not_asked_for(
    host: ModelHost, is_given_back: bool
) -> None:
    """A peek waits for other loads; meanwhile a client takes the message, and it is paged again."""
    queue = host.declare()
    fill(queue, 3, LARGE)
    entry = host.take(queue)
    assert entry is not None
    queue.backing.memory.set_target(0)
    host.turn()
    host.now_ms += 2000
    host.settle_down()
    assert entry.form != ALPHA
    host.stores[0].damaged = {1}
    seen: list[list[Entry]] = []
    queue.backing.loader.submit(
        EntryContents(queue.backing, [entry], queue.backing.ready.contains, seen.append)
    )
    host.complete()
    assert seen == [[]] and host.lost == []
    assert queue.unacked_count == 1
    if is_given_back:
        host.requeue(entry)
        assert drain(host, queue) == [2, 3]
        assert host.lost == [(host.stores[0], 1)]
    else:
        host.settle(entry)
        assert drain(host, queue) == [2, 3]
        assert host.lost == []
    assert queue.unacked_count == 0


def test_a_purge_does_not_keep_a_content_from_a_message_that_was_taken_before(
    host: ModelHost,
) -> None:
    queue, held = group_takes_what_is_read(host, set())
    queue.purge(NOW_MS)
    host.complete()
    assert held.form == ALPHA and int(held.message.body) == 1
    host.check()
    host.requeue(held)
    assert drain(host, queue) == [1]
    assert host.contents == {}


@pytest.mark.parametrize("is_purged", [False, True])
def test_who_holds_a_message_learns_that_its_content_is_lost(
    host: ModelHost, is_purged: bool
) -> None:
    """A reader group learns of the loss although a basic.get asked and a purge came between."""
    queue, _held = group_takes_what_is_read(host, {1})
    if is_purged:
        queue.purge(NOW_MS)
    host.complete()
    assert host.out == [] and queue.unacked_count == 0 and queue.backing.unacked.paged_count == 0
    host.check()
    assert drain(host, queue) == ([] if is_purged else [2, 3])
    assert host.contents == {}


def test_what_is_in_memory_stays_there_until_the_rest_has_come(host: ModelHost) -> None:
    """Contents dropped while others load would make the loads alternate without end."""
    queue = host.declare()
    fill(queue, 4, LARGE)
    queue.backing.memory.set_target(0)
    host.settle_down()
    held = queue.backing.reserve(1, 2, 1 << 40)
    host.out.extend(held)
    queue.backing.loader.submit(
        EntryContents(queue.backing, held[:1], held.__contains__, lambda lost: None)
    )
    host.complete()
    assert [entry.form == ALPHA for entry in held] == [True, False]
    seen: list[list[Entry]] = []
    queue.backing.loader.submit(EntryContents(queue.backing, held, held.__contains__, seen.append))
    host.turn()
    queue.backing.memory.set_target(0)
    host.turn()
    assert held[0].form != ALPHA
    host.complete()
    assert seen == [[]] and [int(entry.message.body) for entry in held if entry.form == ALPHA] == [
        1,
        2,
    ]
    host.check()


@pytest.mark.parametrize("first", [1, 5, 8])
def test_a_range_that_ends_or_begins_with_damage_is_counted_without_it(
    host: ModelHost, first: int
) -> None:
    """Three of ten messages on disk are taken; the rest is read to its end despite the damage."""
    queue = lazy(host, 10)
    host.stores[0].damaged = {first, 10}
    taken: list[Entry] = []

    def arrived(entries: list[Entry]) -> None:
        taken.extend(entries)
        host.out.extend(entries)

    for start in (first, 10):
        queue.backing.loader.submit(RangeLoad(queue.backing, start, 11, 2, 1 << 40, True, arrived))
        host.complete()
        host.check()
    held = [int(entry.seq) for entry in taken]
    assert held == list(range(first + 1, min(first + 3, 10)))
    host.settle_down()
    assert drain(host, queue) == [seq for seq in range(1, 10) if seq != first and seq not in held]
    assert queue.backing.ready.count == 0
    host.check()


# -- T55 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_t55_purge_with_unacked(host: ModelHost, size: int) -> None:
    """Unacked messages are not purged, wherever they lie in delta's range; they return later."""
    queue = host.declare()
    fill(queue, 100, size)
    out = [host.take(queue) for _ in range(60)]
    host.now_ms += 2000
    queue.backing.memory.set_mode(True)
    for entry in out[::2]:
        assert entry is not None
        host.requeue(entry)
    host.settle_down()
    assert queue.backing.ready.delta.count == 70
    done: list[int] = []
    purge = queue.purge(host.now_ms)
    purge.when_done = done.append
    assert purge.count == 70 and queue.backing.ready.count == 0 and queue.unacked_count == 30
    fill(queue, 1, size)
    host.settle_down()
    assert purge.is_done and done == [host.now_ms]
    host.check()
    host.requeue(*host.out)
    assert drain(host, queue) == [*range(2, 61, 2), 101]
    host.settle_down()
    assert host.stores[0].live == {} and host.contents == {}


def test_t55_purge_of_whole_segments_reads_nothing(host: ModelHost) -> None:
    """Segments without references are deleted unread; only the edges of the range are read."""
    queue = lazy(host, 100)
    before = host.stores[0].loads
    purge = queue.purge(NOW_MS)
    host.settle_down()
    assert purge.is_done and purge.count == 100
    assert host.stores[0].live == {}
    # [1, 16) and [96, 101), in batches of 8.
    assert host.stores[0].loads - before == 3


def test_w19_a_purge_takes_turns() -> None:
    """Many messages in memory leave at once, are settled in slices, and are answered at the end."""
    host = ModelHost()
    queue = host.declare()
    fill(queue, 5000)
    other = host.declare()
    purge = queue.purge(NOW_MS)
    assert queue.backing.ready.count == 0 and not purge.is_done
    fill(other, 1)
    assert host.take(other, True) is not None
    turns = 0
    answered: list[int] = []
    purge.when_done = answered.append
    while not answered:
        host.turn()
        turns += 1
    assert turns == 2 and purge.count == 5000
    assert all(position.journal_state != 2 for position in host.batch)


def test_two_purges_after_each_other(host: ModelHost) -> None:
    queue = lazy(host, 50)
    first = queue.purge(NOW_MS)
    fill(queue, 40, SMALL, False)
    host.turn()
    second = queue.purge(NOW_MS)
    host.settle_down()
    assert (first.count, second.count) == (50, 40)
    assert first.is_done and second.is_done and host.stores[0].live == {}


def test_a_load_that_is_overtaken_by_a_purge_brings_nothing(host: ModelHost) -> None:
    queue = lazy(host, 30)
    taker = Taker(host, queue, 100)
    queue.add_consumer(taker)
    queue.deliver_ready(NOW_MS)
    assert len(host.loads) == 1
    queue.purge(NOW_MS)
    host.settle_down()
    assert taker.taken == [] and queue.backing.ready.count == 0
    fill(queue, 1, SMALL, False)
    assert [entry.seq for entry in taker.taken] == [31]
    host.check()


def test_delete_gives_everything_up(host: ModelHost) -> None:
    """A deletion settles messages in memory, on disk and unacked, with a load in flight."""
    queue = host.declare()
    fill(queue, 5000, SMALL)
    fill(queue, 5, LARGE)
    entry = host.take(queue)
    assert entry is not None
    queue.backing.memory.set_mode(True)
    host.turn()
    taker = Taker(host, queue, 1)
    queue.add_consumer(taker)
    queue.deliver_ready(NOW_MS)
    consumers = queue.delete(NOW_MS)
    assert consumers == [taker] and queue.backing.ready.count == 0
    host.settle_down()
    assert host.stores[0].was_deleted
    for one in list(host.out):
        host.settle(one)
    assert host.contents == {}
    assert host.memory.ram_bytes == 0


# -- readers ---------------------------------------------------------------------------------------


def test_a_range_on_disk_can_be_looked_at_and_taken(host: ModelHost) -> None:
    queue = lazy(host, 40)
    seen: list[list[Entry]] = []
    peek_anywhere(queue.backing, 10, 30, 5, 1 << 30, seen.append)
    host.complete()
    assert [int(entry.message.body) for entry in seen.pop()] == [10, 11, 12, 13, 14]
    assert queue.backing.ready.count == 40 and queue.unacked_count == 0
    queue.backing.loader.submit(RangeLoad(queue.backing, 10, 13, 100, 1 << 30, True, seen.append))
    host.complete()
    taken = seen.pop()
    host.out.extend(taken)
    assert [int(entry.seq) for entry in taken] == [10, 11, 12]
    host.check()
    assert drain(host, queue) == [*range(1, 10), *range(13, 41)]


def test_contents_that_are_lost_are_looked_past(host: ModelHost) -> None:
    """A peek skips lost contents, even whole batches of them, and continues on disk."""
    queue = host.declare()
    fill(queue, 6, LARGE)
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert forms(queue) == [GAMMA] * 6
    host.stores[0].damaged = {1, 2, 4}
    seen: list[list[Entry]] = []
    peek_anywhere(queue.backing, 0, 1 << 60, 2, 1 << 30, seen.append)
    host.settle_down()
    assert [[int(entry.seq) for entry in entries] for entries in seen] == [[3]]
    assert queue.backing.ready.count == 3
    host.stores[0].damaged = {5, 6}
    peek_anywhere(queue.backing, 4, 1 << 60, 1, 1 << 30, seen.append)
    host.settle_down()
    assert seen[1:] == [[]] and queue.backing.ready.count == 1
    host.check()


def test_looking_at_a_queue_that_is_deleted_meanwhile_ends(host: ModelHost) -> None:
    queue = host.declare()
    fill(queue, 6, LARGE)
    queue.backing.memory.set_target(0)
    host.settle_down()
    host.stores[0].damaged = {1, 2, 3, 4, 5, 6}
    seen: list[list[Entry]] = []
    peek_anywhere(queue.backing, 0, 1 << 60, 2, 1 << 30, seen.append)
    queue.delete(NOW_MS)
    host.settle_down()
    assert seen == [[]]


def test_taking_a_range_ends_before_what_somebody_else_has(host: ModelHost) -> None:
    queue = host.declare()
    fill(queue, 20)
    out = [host.take(queue) for _ in range(6)]
    host.now_ms += 2000
    queue.backing.memory.set_mode(True)
    host.requeue(*[entry for entry in out if entry is not None and entry.seq != 4])
    host.settle_down()
    seen: list[list[Entry]] = []
    queue.backing.loader.submit(RangeLoad(queue.backing, 2, 100, 100, 1 << 30, True, seen.append))
    host.complete()
    assert [int(entry.seq) for entry in seen[0]] == [2, 3]
    host.out.extend(seen[0])
    host.check()


def test_peeking_goes_on_in_memory_behind_what_is_unacked_on_disk(host: ModelHost) -> None:
    """With nothing ready left in delta's range, the first message after it is the answer."""
    queue = host.declare()
    fill(queue, 10)
    host.settle_down()
    queue.backing.memory.set_mode(True)
    host.settle_down()
    seen: list[list[Entry]] = []
    queue.backing.loader.submit(RangeLoad(queue.backing, 6, 100, 100, 1 << 30, True, seen.append))
    host.complete()
    host.out.extend(seen.pop())
    for _ in range(2):
        queue.publish(Message(ADDRESS, b"\x00\x00", b"%d" % queue.next_seq, True, 0), -1, NOW_MS)
    peek_anywhere(queue.backing, 7, 1 << 60, 5, 1 << 30, seen.append)
    host.settle_down(seal=False)
    assert [int(entry.seq) for entry in seen.pop()] == [11, 12]


# -- the memory monitor ----------------------------------------------------------------------------


def test_s69_the_target_is_duration_times_rates(host: ModelHost) -> None:
    """2000 messages a second for 33.9 seconds make about 67,800 messages (S69)."""
    queue = host.declare(durable=False)
    host.turn()
    for _ in range(40):
        fill(queue, 500, 1, False)
        for _ in range(500):
            entry = host.take(queue)
            assert entry is not None
            host.settle(entry)
        host.now_ms += 1000
        host.turn()
        queue.backing.memory.sample_rates(host.now_ms)
    assert queue.backing.memory.rates.total() == pytest.approx(2000, rel=0.02)
    queue.backing.memory.set_duration((61 / 3) / 0.6)
    assert queue.backing.memory.target_ram_count == pytest.approx(67_800, rel=0.02)
    queue.backing.memory.set_duration(FOREVER_S)
    assert queue.backing.memory.target_ram_count == UNLIMITED


def test_rates_halve_in_five_seconds_and_an_idle_queue_has_no_duration(host: ModelHost) -> None:
    queue = host.declare(durable=False)
    host.turn()
    fill(queue, 1000, 1, False)
    host.turn()
    host.now_ms += 1000
    queue.backing.memory.sample_rates(host.now_ms)
    ingress = queue.backing.memory.rates.ingress
    host.now_ms += 5000
    queue.backing.memory.sample_rates(host.now_ms)
    assert queue.backing.memory.rates.ingress == pytest.approx(ingress / 2)
    assert queue.backing.memory.duration_s() == pytest.approx(2 * 1000 / (4 * ingress / 2))
    host.now_ms += 600_000
    queue.backing.memory.sample_rates(host.now_ms)
    assert queue.backing.memory.duration_s() == FOREVER_S


def test_the_account_follows_what_is_in_memory(host: ModelHost) -> None:
    """The account counts ready and unacked messages once a turn; an idle queue is on no list."""
    queue = host.declare()
    fill(queue, 10)
    host.turn()
    assert host.memory.ram_bytes == queue.backing.ready.ram_bytes > 0
    entry = host.take(queue)
    assert entry is not None
    host.turn()
    before = host.memory.ram_bytes
    assert before > queue.backing.ready.ram_bytes
    host.settle(entry)
    host.turn()
    assert host.memory.ram_bytes == queue.backing.ready.ram_bytes < before
    assert host.changed == [] and host.listed == []


def held(host: ModelHost, queue: Queue) -> Entry:
    entry = host.take(queue)
    assert entry is not None
    return entry


class CountingHost(ModelHost):
    """Counts the walks through all unacked messages."""

    walk_count = 0

    def find_unacked(self, ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        self.walk_count += 1
        return super().find_unacked(ledger, first, end)


@pytest.mark.parametrize("gap", [0, 3000])
def test_very_many_unacked_messages_go_a_slice_at_a_time(gap: int) -> None:
    """S73, W19: the youngest leave first, with few walks and a bounded number of moves a turn."""
    host = CountingHost(page_batch=2048, segment_entries=16384)
    queue = host.declare()
    fill(queue, 1000)
    old = [held(host, queue) for _ in range(1000)]
    fill(queue, gap)
    drain(host, queue)
    fill(queue, 2000)
    young = [held(host, queue) for _ in range(2000)]
    host.turn()
    queue.backing.memory.set_target(500)
    turns = 0
    while queue.backing.memory.ram_count > 500:
        before = queue.backing.unacked.paged_count
        host.walk_count = 0
        host.turn()
        assert host.walk_count <= 2 + TURN_STEPS // WRITE_STEPS // 100
        assert (
            queue.backing.steps_used <= TURN_STEPS
            and queue.backing.unacked.paged_count - before <= TURN_STEPS
        )
        turns += 1
        assert turns < 200
    assert [entry.form == ALPHA for entry in old + young] == [True] * 500 + [False] * 2500
    host.settle_down()
    # Messages delivered later lie above the point where paging stopped, and are found all the same.
    fill(queue, 700)
    late = [held(host, queue) for _ in range(700)]
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.memory.ram_count == 0 and all(entry.form != ALPHA for entry in late)
    host.check()
