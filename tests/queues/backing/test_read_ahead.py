"""Bytes in memory for consumers are bounded, and each consumer that can take a message gets it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores.model_store import ModelHost
from tests.support.stores.paging_queues import ADDRESS, Taker
from warrenmq.queues.backing.loading import AHEAD_MESSAGES
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.memory.account import AHEAD_BYTES_MAX, AHEAD_SHARE
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message

ROOM = 10_000
# Bytes that count as content beside the body: address and properties.
CONTENT_BYTES = len(ADDRESS) + 2


@pytest.fixture
def host() -> ModelHost:
    return small_host()


def small_host() -> ModelHost:
    """The only active queue has ROOM bytes for its consumers, less than a batch of messages."""
    host = ModelHost(page_batch=64, segment_entries=64)
    host.memory.page_above = AHEAD_SHARE * ROOM
    return host


def fill(host: ModelHost, queue: Queue, sizes: list[int]) -> None:
    for size in sizes:
        message = Message(ADDRESS, b"\x00\x00", b"%0*d" % (size, queue.next_seq), True, 0)
        queue.publish(message, -1, host.now_ms)
    host.settle_down()


def paged(host: ModelHost, is_lazy: bool, sizes: list[int]) -> Queue:
    queue = host.declare(is_lazy=is_lazy)
    fill(host, queue, sizes)
    if not is_lazy:
        queue.backing.memory.set_target(0)
        host.settle_down()
        queue.backing.memory.set_target(UNLIMITED)
        host.settle_down()
    assert queue.backing.memory.ram_count == 0
    return queue


def consume(host: ModelHost, queue: Queue, prefetch: int) -> Taker:
    taker = Taker(host, queue, prefetch)
    queue.add_consumer(taker)
    queue.deliver_ready(host.now_ms)
    host.settle_down()
    return taker


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_consumer_that_holds_its_message_has_few_bytes_read_ahead(
    host: ModelHost, is_lazy: bool
) -> None:
    queue = paged(host, is_lazy, [1000] * 60)
    taker = consume(host, queue, 1)
    assert len(taker.taken) == 1
    assert 0 < queue.backing.ready.alpha_bytes <= ROOM
    host.check()


def test_the_next_load_begins_before_the_messages_of_the_last_one_are_delivered() -> None:
    """So the disk reads while the consumers get messages."""
    host = ModelHost(page_batch=4 * AHEAD_MESSAGES, segment_entries=64)
    queue = paged(host, True, [1] * 5 * AHEAD_MESSAGES)
    taker = Taker(host, queue, 10 * AHEAD_MESSAGES)
    queue.add_consumer(taker)
    queue.deliver_ready(host.now_ms)
    while len(taker.taken) < 3 * AHEAD_MESSAGES:
        taken = len(taker.taken)
        assert len(host.loads) == 1
        host.complete(1)
        assert len(host.loads) == 1 and len(taker.taken) == taken
        host.turn()
        assert len(taker.taken) > taken


@pytest.mark.parametrize("is_lazy", [False, True])
def test_nothing_is_read_ahead_that_is_larger_than_the_room(host: ModelHost, is_lazy: bool) -> None:
    queue = paged(host, is_lazy, [2 * ROOM] * 5)
    taker = consume(host, queue, 1)
    assert len(taker.taken) == 1
    assert queue.backing.ready.alpha_bytes == 0
    for count in range(2, 6):
        taker.room = count
        queue.consumer_can_take(taker)
        queue.deliver_ready(host.now_ms)
        host.settle_down()
        assert [entry.seq for entry in taker.taken] == list(range(1, count + 1))
        assert queue.backing.ready.alpha_bytes == 0


@pytest.mark.parametrize("is_lazy", [False, True])
@pytest.mark.parametrize("excess", [0, 1])
def test_a_message_that_fills_the_room_exactly_is_read_ahead(
    host: ModelHost, is_lazy: bool, excess: int
) -> None:
    """One byte more than the room is too much."""
    queue = paged(host, is_lazy, [ROOM - CONTENT_BYTES + excess] * 3)
    consume(host, queue, 1)
    assert queue.backing.ready.alpha_bytes == (0 if excess else ROOM)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_what_arrives_while_a_consumer_holds_its_message_leaves_memory(
    host: ModelHost, is_lazy: bool
) -> None:
    queue = host.declare(is_lazy=is_lazy)
    consume(host, queue, 1)
    if not is_lazy:
        queue.backing.memory.set_target(0)
    fill(host, queue, [1000] * 60)
    assert queue.backing.ready.alpha_bytes <= ROOM + 1000 * 2
    host.check()


@pytest.mark.parametrize(("missing", "kept"), [(0, 1), (1, 2)])
def test_messages_of_a_lazy_queue_stay_in_memory_until_they_fill_the_room(
    host: ModelHost, missing: int, kept: int
) -> None:
    """The message that fills the room stays; if one byte is missing, the next one stays too."""
    queue = host.declare(is_lazy=True)
    consume(host, queue, 1)
    size = ROOM - missing
    fill(host, queue, [1] + [size - CONTENT_BYTES] * 70)
    assert queue.backing.ready.alpha_bytes == kept * size


def test_queues_that_are_active_share_what_they_have_for_consumers(host: ModelHost) -> None:
    queues = [paged(host, True, [1000] * 60) for _ in range(5)]
    room = host.memory.ahead_room()
    assert room == ROOM // 5
    for queue in queues:
        consume(host, queue, 1)
    assert sum(int(queue.backing.ready.alpha_bytes) for queue in queues) <= ROOM


def test_a_reader_ahead_of_its_disk_is_not_slowed_by_plenty_of_memory() -> None:
    host = ModelHost(page_batch=64, segment_entries=64)
    assert host.memory.ahead_room() == AHEAD_BYTES_MAX
    queue = paged(host, True, [1000] * 60)
    consume(host, queue, 1)
    assert queue.backing.ready.ram_count >= 32 - 1


SIZES = st.lists(
    st.sampled_from([200, 500, 3000, ROOM // 2, ROOM, 3 * ROOM]), min_size=1, max_size=40
)


@given(SIZES, st.booleans(), st.lists(st.tuples(st.booleans(), st.integers(0, 8)), max_size=8))
def test_bytes_are_bounded_and_who_can_take_gets(
    sizes: list[int], is_lazy: bool, steps: list[tuple[bool, int]]
) -> None:
    host = small_host()
    queue = paged(host, is_lazy, sizes)
    taker = consume(host, queue, 1)
    for is_ack, count in steps:
        # Some messages are acked, or the consumer gets room for more.
        for entry in taker.taken[: count if is_ack else 0]:
            taker.taken.remove(entry)
            host.settle(entry)
        taker.room = max(1, count)
        queue.consumer_can_take(taker)
        queue.deliver_ready(host.now_ms)
        host.settle_down()
        assert queue.backing.ready.count == 0 or not taker.can_take()
        assert queue.backing.ready.alpha_bytes <= ROOM + max(sizes)
        host.check()
