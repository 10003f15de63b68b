"""Counts of what paging leaves in memory; `test_queue_machine.py` compares orders and places."""

import pytest

from tests.support.stores.model_store import ModelHost
from warrenmq.queues.backing.paging import permitted_beta_count
from warrenmq.queues.backing.variable_queue import UNLIMITED
from warrenmq.queues.entry import ALPHA
from warrenmq.queues.memory.account import AHEAD_BYTES_MAX
from warrenmq.queues.queue import Queue
from warrenmq.store.model.message import Message
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES

BATCH = 2048


@pytest.fixture
def host() -> ModelHost:
    return ModelHost(embed_below=4096, page_batch=BATCH, segment_entries=SEGMENT_ENTRIES)


def publish(host: ModelHost, queue: Queue, count: int, size: int, persistent: bool = True) -> None:
    for _ in range(count):
        body = b"%0*d" % (size, queue.next_seq)
        queue.publish(Message(b"\x00\x01q", b"\x00\x00", body, persistent, 0), -1, host.now_ms)
    host.seal()
    host.commit()


def drained(host: ModelHost, queue: Queue) -> list[int]:
    """All bodies as numbers, in the order of delivery."""
    found: list[int] = []
    while (entry := host.take(queue, no_ack=True)) is not None:
        found.append(int(entry.message.body[-9:]))
    return found


@pytest.mark.parametrize(
    ("length", "q1", "q3", "q4", "target", "permitted"),
    [
        (0, 0, 0, 0, 0, UNLIMITED),
        (0, 0, 0, 0, 500, UNLIMITED),
        (10, 0, 0, 10, UNLIMITED, UNLIMITED),
        (100, 0, 30, 0, 0, 30),
        (50_000, 0, 50_000, 0, 0, SEGMENT_ENTRIES),
        (1_000, 0, 1_000, 0, 10, SEGMENT_ENTRIES),
        (100_000, 0, 100_000, 0, 100_000, 50_000),
        (110_000, 5_000, 50_000, 5_000, 100_000, 50_000),
        (100_000, 0, 100_000, 0, 1 << 40, 100_000),
    ],
)
def test_permitted_betas(
    length: int, q1: int, q3: int, q4: int, target: int, permitted: int
) -> None:
    """T52: permitted_beta_count has these values."""
    assert permitted_beta_count(length, q1, q3, q4, target, SEGMENT_ENTRIES) == permitted


def test_a_larger_target_permits_no_less() -> None:
    """T52, C9: a larger target never permits fewer betas."""
    for length in (1, 1_000, 16_384, 40_000, 1_000_000):
        before = 0
        for target in [1, 10, *range(100, 2_000_000, 9_973), 1 << 40]:
            permitted = int(permitted_beta_count(length, 0, length, 0, target, SEGMENT_ENTRIES))
            assert permitted >= before
            before = permitted


def test_one_segment_and_a_half_without_memory(host: ModelHost) -> None:
    """T51: positions beyond one segment become delta, the next message enters q1, order holds."""
    queue = host.declare()
    count = SEGMENT_ENTRIES * 3 // 2
    publish(host, queue, count, 10)
    queue.backing.memory.set_target(0)
    host.settle_down()
    ready = queue.backing.ready
    assert (ready.q4.count, ready.q3.count, ready.q2.count, ready.q1.count) == (
        0,
        SEGMENT_ENTRIES,
        0,
        0,
    )
    assert (ready.delta.count, ready.delta.end) == (count - SEGMENT_ENTRIES, count + 1)
    assert queue.backing.memory.ram_count == 0
    publish(host, queue, 1, 10)
    assert (ready.q1.count, ready.q1.at(0).form) == (1, ALPHA)
    host.settle_down()
    assert (ready.q2.count, ready.q1.count) == (1, 0)
    assert drained(host, queue) == list(range(1, count + 2))


def test_small_messages_of_one_segment_are_paged_too(host: ModelHost) -> None:
    """W18: so few positions may stay, but the contents are too large and leave memory."""
    queue = host.declare()
    publish(host, queue, 10_000, 1_000)
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.backing.ready.q3.count == 10_000
    assert queue.backing.ready.alpha_bytes < AHEAD_BYTES_MAX
    assert drained(host, queue) == list(range(1, 10_001))


@pytest.mark.parametrize("size", [10, 5_000])
@pytest.mark.parametrize("persistent", [True, False])
def test_unacked_messages_are_paged(host: ModelHost, size: int, persistent: bool) -> None:
    """T54: unacked messages leave memory, and a requeue returns them to their places."""
    queue = host.declare()
    publish(host, queue, 100, size, persistent)
    held = [host.take(queue) for _ in range(50)]
    queue.backing.memory.set_target(0)
    host.settle_down()
    assert queue.unacked_count == 50
    assert queue.backing.unacked.paged_count == 50
    assert queue.backing.unacked.content_bytes == 0
    host.requeue(*[entry for entry in held if entry is not None])
    queue.backing.memory.set_target(UNLIMITED)
    host.settle_down()
    assert drained(host, queue) == list(range(1, 101))


MIB = 1048576


@pytest.fixture
def shallow_host(host: ModelHost) -> ModelHost:
    """A host whose default queues are deep from a MiB of content on."""
    host.memory.deep_bytes_max = MIB
    return host


def is_deep(queue: Queue) -> bool:
    return queue.backing.memory.is_deep


def test_a_deep_queue_keeps_its_oldest_messages(shallow_host: ModelHost) -> None:
    """Half of the room stays in memory, and what comes later goes to delta as in a lazy queue."""
    queue = shallow_host.declare()
    publish(shallow_host, queue, 1_000, 1_000)
    shallow_host.settle_down()
    assert not is_deep(queue)
    assert queue.backing.memory.ram_count == 1_000
    publish(shallow_host, queue, 2_000, 1_000)
    shallow_host.settle_down()
    ready = queue.backing.ready
    assert is_deep(queue)
    assert MIB * 9 // 20 < ready.alpha_bytes <= MIB // 2
    assert ready.q4.first().seq == 1
    assert ready.entry_count == ready.q4.count and ready.delta.end == 3_001
    publish(shallow_host, queue, 500, 1_000)
    shallow_host.settle_down()
    assert ready.alpha_bytes <= MIB // 2
    shallow_host.check()
    assert drained(shallow_host, queue) == list(range(1, 3_501))
    shallow_host.settle_down()
    assert not is_deep(queue)


def test_a_queue_without_delta_and_with_half_its_room_is_deep_no_more(
    shallow_host: ModelHost,
) -> None:
    queue = shallow_host.declare()
    publish(shallow_host, queue, 1_500, 1_000)
    shallow_host.settle_down()
    assert is_deep(queue)
    for _ in range(1_400):
        assert shallow_host.take(queue, no_ack=True) is not None
    shallow_host.settle_down()
    assert not is_deep(queue)
    assert not queue.backing.memory.pages
    publish(shallow_host, queue, 500, 1_000)
    shallow_host.settle_down()
    assert queue.backing.ready.delta.count == 0
    assert drained(shallow_host, queue) == list(range(1_401, 2_001))


@pytest.mark.parametrize(("transient", "becomes_deep"), [(100, True), (1_500, False)])
def test_many_transient_messages_keep_a_queue_in_memory(
    shallow_host: ModelHost, transient: int, becomes_deep: bool
) -> None:
    """Their bytes are on no disk, so paging would write them."""
    queue = shallow_host.declare()
    publish(shallow_host, queue, transient, 1_000, persistent=False)
    publish(shallow_host, queue, 2_000 - transient, 1_000)
    shallow_host.settle_down()
    assert is_deep(queue) == becomes_deep
    assert (queue.backing.ready.delta.count > 0) == becomes_deep
    assert drained(shallow_host, queue) == list(range(1, 2_001))


def test_a_lazy_queue_is_not_deep(shallow_host: ModelHost) -> None:
    queue = shallow_host.declare()
    publish(shallow_host, queue, 2_000, 1_000)
    shallow_host.settle_down()
    queue.backing.memory.set_mode(True)
    shallow_host.settle_down()
    assert not is_deep(queue)
    assert queue.backing.memory.ram_count == 0
    queue.backing.memory.set_mode(False)
    assert drained(shallow_host, queue) == list(range(1, 2_001))
