"""Paging queues on the real store: what a load returns, what a restart finds, and no leaks."""

import errno

import pytest

from simulator.simulated.file_system import Fault
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.queues.backing.variable_queue import EMPTY
from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.store.jobs.job import ReadRanges, StoreJob
from warrenmq.store.model.message import Message, QueueLedger

LARGE = 5000


@pytest.fixture
def node() -> MemoryNode:
    return MemoryNode(MemoryDisk())


def fill(
    node: MemoryNode, count: int, size: int = 10, persistent: bool = True, first: int = 0
) -> Queue:
    for number in range(first, first + count):
        node.publish(b"q", b"%0*d" % (size, number), persistent)
    node.commit()
    node.work()
    return node.vhost.queues[b"q"]


def take(node: MemoryNode, queue: Queue, no_ack: bool = False, limit: int = 1000) -> Entry | None:
    """Take the head of the queue, from memory or from disk."""
    found: list[Entry | None] = []

    def look(now_ms: int) -> None:
        entry = queue.get(no_ack, now_ms)
        if entry is not None or queue.head_state(now_ms) == EMPTY:
            found.append(entry)
        else:
            queue.when_head(look)

    look(node.clock.now_ms())
    for _ in range(limit):
        if found:
            return found[0]
        node.work()
    raise AssertionError("the head never comes")


def bodies(node: MemoryNode, queue: Queue) -> list[int]:
    """Take all ready messages; returns their bodies as numbers."""
    found = []
    while (entry := take(node, queue, True)) is not None:
        found.append(int(entry.message.body))
    return found


def forget_gets(node: MemoryNode) -> None:
    """Advance the clock until no basic.get counts as waiting for the head."""
    node.clock.time_ms += 2000


def held_out(node: MemoryNode, entries: list[Entry]) -> None:
    """Make the vhost find these entries as unacked."""
    node.vhost.host.unacked_finders.append(
        lambda ledger, first, end: [
            one for one in entries if one.ledger is ledger and first <= one.seq < end
        ]
    )


@pytest.mark.parametrize("size", [10, 4200])
def test_a_load_without_any_room_brings_one_message(node: MemoryNode, size: int) -> None:
    """With a paging ratio of 0 no queue has room to read ahead."""
    node.broker.memory_account.page_above = 0
    node.declare(b"q").backing.memory.set_mode(True)
    queue = fill(node, 20, size, False)
    assert queue.backing.ready.delta.count == 20
    assert bodies(node, queue) == list(range(20))


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_what_was_acked_does_not_come_back_with_a_load(
    node: MemoryNode, persistent: bool, is_sealed: bool
) -> None:
    """A message acked out of order inside delta's range stays away, its ack sealed or not."""
    node.declare(b"q")
    queue = fill(node, 5, persistent=persistent)
    out: list[Entry] = []
    held_out(node, out)
    for _ in range(4):
        entry = take(node, queue)
        assert entry is not None
        out.append(entry)
    forget_gets(node)
    queue.backing.memory.set_mode(True)
    node.work()
    assert queue.backing.ready.entry_count == 0
    second = out.pop(1)
    queue.leave(second, ACKED, node.clock.now_ms())
    if is_sealed:
        node.commit()
    # The first message returns, to disk: delta's range then covers messages 2, 3 and 4.
    forget_gets(node)
    queue.requeue([out.pop(0)], node.clock.now_ms())
    node.work()
    assert queue.backing.ready.delta.start == 1 and queue.backing.ready.delta.count == 2
    assert bodies(node, queue) == [0, 4]
    queue.requeue([out.pop(), out.pop()], node.clock.now_ms())
    assert bodies(node, queue) == [2, 3]


def test_persistent_messages_in_a_queue_that_is_not_durable_are_settled_once(
    node: MemoryNode,
) -> None:
    """Such a queue treats them as transient, and an acked one does not come back."""
    node.declare(b"q", durable=False)
    queue = fill(node, 5)
    queue.backing.memory.set_mode(True)
    node.work()
    out: list[Entry] = []
    held_out(node, out)
    for _ in range(3):
        entry = take(node, queue)
        assert entry is not None
        out.append(entry)
    queue.leave(out.pop(1), ACKED, node.clock.now_ms())
    forget_gets(node)
    # The first message returns to disk, and delta's range begins before the acked one.
    queue.requeue([out.pop(0)], node.clock.now_ms())
    node.work()
    assert queue.backing.ready.delta.start == 1
    assert bodies(node, queue) == [0, 3, 4]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_purge_reads_positions_only(
    node: MemoryNode, is_deleted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No released large content is read; one read brings the references of many messages."""
    node.declare(b"q")
    queue = fill(node, 500, LARGE)
    queue.backing.memory.set_mode(True)
    for _ in range(50):
        node.work()
    assert queue.backing.ready.delta.count == 500
    read: list[str] = []
    run = node.driver.runner.run

    def noted(job: StoreJob) -> None:
        if isinstance(job, ReadRanges):
            read.extend(path for path, _, _ in job.ranges)
        run(job)

    monkeypatch.setattr(node.driver.runner, "run", noted)
    if is_deleted:
        node.vhost.delete_queue(queue, node.clock.now_ms())
    else:
        assert queue.purge(node.clock.now_ms()).count == 500
    for _ in range(50):
        node.work()
    node.commit()
    assert node.vhost.store.contents.persistent.valid_bytes == 0
    assert len(read) <= 2 and not [path for path in read if path.endswith(".rdq")]


def test_w27_what_is_appended_behind_a_segment_that_is_written_anew_stays(node: MemoryNode) -> None:
    """After a failed sync the queue continues, and the segment's copy keeps later appends."""
    queue = node.declare(b"q")
    queue.backing.memory.set_mode(True)
    fill(node, 10)
    store = node.driver.store
    node.disk.files.faults.append(Fault(("sync",), 0, errno.EIO))
    store.checkpoints.want()
    now_ms = node.clock.now_ms()
    node.vhost.advance(now_ms)
    assert node.driver.run_jobs(now_ms) and store.checkpoints.failures == 1
    # The append waits behind the copy in the lane.
    for number in range(10, 20):
        node.publish(b"q", b"%d" % number)
    node.driver.flush(node.vhost.journal.seal(), now_ms)
    node.vhost.advance(now_ms)
    node.work()
    fill(node, 10, first=20)
    assert queue.backing.ready.entry_count == 0
    assert bodies(node, queue) == list(range(30))
    assert (store.files.losses.lost_count, store.files.losses.damaged_count) == (0, 0)


def test_a_segment_that_is_deleted_has_all_that_is_in_memory_again(node: MemoryNode) -> None:
    """Ready and unacked messages of any size are in index and memory, and may leave memory."""
    node.declare(b"q")
    queue = fill(node, 5)
    fill(node, 5, 4200, first=5)
    out = [entry for _ in range(2) if (entry := take(node, queue)) is not None]
    held_out(node, out)
    assert queue.backing.index_upto(queue.ledger.next_seq, 1000)
    node.work()
    (path,) = [path for path, _ in node.disk.files.files() if path.endswith(".idx")]
    node.disk.files.unlink(path)
    fill(node, 5, first=10)
    assert queue.backing.index_upto(queue.ledger.next_seq, 1000)
    for _ in range(50):
        node.clock.time_ms += 100
        node.work()
    forget_gets(node)
    queue.backing.memory.set_mode(True)
    node.work()
    assert queue.backing.ready.ram_count == 0
    assert (node.driver.store.files.losses.lost_count, node.driver.store.jobs.lane.is_idle()) == (
        0,
        True,
    )
    queue.requeue(out, node.clock.now_ms())
    assert bodies(node, queue) == list(range(15))


@pytest.mark.parametrize("is_requeued", [True, False])
def test_a_load_leaves_to_a_client_what_it_has(node: MemoryNode, is_requeued: bool) -> None:
    """A load does not count a client's message as lost; the client settles its content once.
    The other queue that shares the content keeps its reference.
    """
    queues = [node.declare(b"q"), node.declare(b"r")]
    for number in range(4):
        message = Message(
            b"\x00\x01q", b"\x00\x00", (b"%d" % number).ljust(LARGE), True, node.clock.now_ms()
        )
        for queue in queues:
            queue.publish(message, -1, node.clock.now_ms())
    node.commit()
    queue, other = queues
    out: list[Entry] = []
    held_out(node, out)
    for _ in range(2):
        entry = take(node, queue)
        assert entry is not None
        out.append(entry)
    for one in queues:
        one.backing.memory.set_mode(True)
    forget_gets(node)
    node.work()
    # The first message returns: delta's range covers the second, which is unacked.
    queue.requeue([out.pop(0)], node.clock.now_ms())
    forget_gets(node)
    node.work()
    assert (
        queue.backing.ready.delta.start,
        queue.backing.ready.delta.count,
        queue.unacked_count,
    ) == (
        1,
        3,
        1,
    )
    content = out[0].content_ref
    assert content is not None
    path = f"msg_store_persistent/{content.file}.rdq"
    node.disk.files.flip(path, content.offset + 100, 0)
    assert bodies(node, queue) == [0, 2, 3]
    node.disk.files.flip(path, content.offset + 100, 0)
    if is_requeued:
        queue.requeue([out.pop()], node.clock.now_ms())
        assert bodies(node, queue) == [1]
    else:
        queue.leave(out.pop(), ACKED, node.clock.now_ms())
    node.commit()
    store = node.driver.store
    assert (store.files.losses.lost_count, store.contents.persistent.unknown_releases) == (0, 0)
    assert bodies(node, other) == [0, 1, 2, 3]


def test_what_expires_while_its_content_is_loaded_is_not_lost(node: MemoryNode) -> None:
    """A message may expire and its segment be deleted before the load reads its content."""
    queue = node.declare(b"q")
    now_ms = node.clock.now_ms()
    for number in range(4):
        queue.publish(
            Message(b"\x00\x01q", b"\x00\x00", b"%d" % number, True, now_ms), 1000, now_ms
        )
    node.commit()
    queue.backing.memory.set_mode(True)
    node.work()
    # Read the messages ahead and page them again, so that their positions are in memory.
    queue.backing.memory.set_mode(False)
    queue.when_head(lambda now_ms: None)
    node.work()
    queue.backing.memory.set_target(0)
    forget_gets(node)
    node.clock.time_ms -= 2000
    node.work()
    assert queue.backing.ready.gamma_count == 4
    queue.backing.memory.set_target(1 << 62)
    queue.when_head(lambda now_ms: None)
    (job,) = node.driver.store.take_jobs(now_ms)
    node.clock.time_ms += 1000
    queue.drop_expired_head(node.clock.now_ms())
    queue.ledger.next_seq = 1 << 20
    queue.backing.store.index_range_done(queue.ledger.next_seq)
    node.commit()
    node.driver.runner.run(job)
    job.finished()
    node.work()
    assert node.driver.store.files.losses.lost_count == 0


def test_after_a_restart_loads_do_not_look_through_what_is_unacked(node: MemoryNode) -> None:
    """Unacked messages are older than loaded ones, even if all may have been delivered before."""
    node.declare(b"q")
    fill(node, 1500)
    node = node.crash()
    queue = node.vhost.queues[b"q"]
    queue.backing.memory.set_mode(True)
    node.work()
    assert queue.backing.ready.delta.count == 1500
    entry = take(node, queue)
    assert entry is not None and entry.redelivered
    looks: list[int] = []

    def held(ledger: QueueLedger, first: int, end: int) -> list[Entry]:
        looks.append(first)
        return [entry] if first <= entry.seq < end else []

    node.vhost.host.unacked_finders.append(held)
    assert bodies(node, queue) == list(range(1, 1500))
    assert looks == []
    queue.requeue([entry], node.clock.now_ms())
    assert bodies(node, queue) == [0]


def test_what_a_start_brings_back_counts_as_memory() -> None:
    """The monitor may have to page recovered messages before the first publish."""
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    for _ in range(100):
        node.publish(b"q", b"x" * 1000)
    node.commit()
    node = node.crash()
    assert (
        node.broker.memory_account.ram_bytes
        == node.vhost.queues[b"q"].backing.memory.current_bytes()
        > 100_000
    )
