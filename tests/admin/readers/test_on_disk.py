"""Reader groups and peeks of a queue whose messages are on disk, through admin sessions."""

from random import Random

import pytest

from simulator.simulated.file_system import POWER
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import MANY, OneQueue, end_of, open_one
from tests.support.spark.blocks import read_block
from warrenmq.admin.protocol.requests import (
    DeleteGroup,
    DescribeQueue,
    ErrorReply,
    Fetch,
    Fetched,
    ListGroups,
    Peek,
    QueueDescription,
)
from warrenmq.queues.readers.group import RESERVED_BYTES_MAX
from warrenmq.queues.readers.reservation import EVERYTHING
from warrenmq.vocabulary.error_codes import DATA_LOSS, STORAGE_FAILED


class PausedNode(MemoryNode):
    """A node whose disk does nothing while `is_paused`."""

    is_paused = False

    def work(self) -> None:
        if not self.is_paused:
            super().work()


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q").backing.memory.set_mode(True)
    return node


def fill(node: MemoryNode, count: int, size: int = 10, persistent: bool = True) -> None:
    for _ in range(count):
        seq = node.vhost.queues[b"q"].next_seq
        node.publish(b"q", b"%0*d" % (size, seq), persistent)
    node.commit()
    node.work()


def on_disk(node: MemoryNode) -> int:
    return int(node.vhost.queues[b"q"].backing.ready.delta.count)


def reserve(client: MemoryClient, group: OneQueue, start: int, max_messages: int = MANY) -> int:
    return end_of(client.must(group.reserve(start, max_messages)))


def fetch_all(client: MemoryClient, group: OneQueue, start: int, end: int) -> list[int]:
    found = []
    while start < end:
        reply = client.must(Fetch("g", group.epoch, group.incarnation, start, end, 100, 1 << 20))
        assert isinstance(reply, Fetched)
        found += [int((message.body or b"")[-9:]) for message in read_block(reply.block)]
        start = reply.next
    return found


def test_a_range_on_disk_is_reserved_read_again_and_acked(node: MemoryNode) -> None:
    """A range of more than one load is read again the same, while the queue grows."""
    fill(node, 5000)
    assert on_disk(node) == 5000
    client = MemoryClient(node)
    group = open_one(client)
    assert reserve(client, group, 0, 3000) == 3001
    assert (on_disk(node), node.vhost.queues[b"q"].unacked_count) == (2000, 3000)
    fill(node, 10)
    for _ in range(2):
        assert fetch_all(client, group, 0, 3001) == list(range(1, 3001))
    client.must(group.ack(3001))
    assert reserve(client, group, 3001) == 5011
    assert fetch_all(client, group, 3001, 5011) == list(range(3001, 5011))


def test_what_a_group_holds_keeps_little_in_memory(node: MemoryNode) -> None:
    """The contents of a large range are read at each fetch, not kept in memory by the reserve."""
    fill(node, 4000, 10_000)
    client = MemoryClient(node)
    group = open_one(client)
    assert reserve(client, group, 0) == 4001
    queue = node.vhost.queues[b"q"]
    assert (
        queue.backing.unacked.content_bytes <= RESERVED_BYTES_MAX + 20_000
        and queue.backing.unacked.paged_count > 2000
    )
    assert fetch_all(client, group, 3000, 3300) == list(range(3000, 3300))
    assert fetch_all(client, group, 0, 100) == list(range(1, 100))


def test_held_messages_are_held_again_after_a_crash_before_anybody_is_served(
    node: MemoryNode,
) -> None:
    """A start reads the reserved messages from disk before it answers calls or serves consumers."""
    fill(node, 3000)
    group = open_one(MemoryClient(node))
    client = MemoryClient(node)
    assert reserve(client, group, 0, 2500) == 2501
    # Take a checkpoint, so that the start uses the index.
    node.vhost.store.checkpoints.want()
    node.commit()
    node.work()
    PausedNode.is_paused = True
    try:
        restarted = PausedNode(node.disk, node.clock)
        queue = restarted.vhost.queues[b"q"]
        assert queue.demand.awaits_older and queue.ready_count == 3000
        client = MemoryClient(restarted)
        client.send(ListGroups())
        client.send(Fetch("g", group.epoch, group.incarnation, 2490, 2501, 100, 1 << 20))
        restarted.clock.advance(10)
        assert client.replies() == []
        assert queue.get(True, restarted.clock.now_ms()) is None
    finally:
        PausedNode.is_paused = False
    restarted.work()
    assert (queue.ready_count, queue.unacked_count) == (500, 2500)
    _groups, fetched = client.replies()
    assert isinstance(fetched, Fetched)
    assert [int(message.body or b"") for message in read_block(fetched.block)] == list(
        range(2490, 2501)
    )
    queue.when_head(lambda now_ms: None)
    restarted.work()
    entry = queue.get(True, restarted.clock.now_ms())
    assert entry is not None and entry.seq == 2501


def test_transient_messages_of_a_queue_with_a_group_are_journaled(node: MemoryNode) -> None:
    """Reserved transient messages survive a crash, also when they were paged before the reserve."""
    client = MemoryClient(node)
    group = open_one(client)
    fill(node, 50, persistent=False)
    assert on_disk(node) == 50
    assert reserve(client, group, 0) == 51
    restarted = node.crash()
    client = MemoryClient(restarted)
    assert fetch_all(client, group, 0, 51) == list(range(1, 51))


def test_transient_messages_paged_before_the_first_group_stay_transient(node: MemoryNode) -> None:
    """A crash loses them from a reserved range; what came after the group did is still there."""
    fill(node, 5, persistent=False)
    assert on_disk(node) == 5
    client = MemoryClient(node)
    group = open_one(client)
    fill(node, 3, persistent=False)
    assert reserve(client, group, 0) == 9
    assert fetch_all(client, group, 0, 9) == list(range(1, 9))
    restarted = node.crash()
    assert fetch_all(MemoryClient(restarted), group, 0, 9) == [6, 7, 8]


def test_what_the_index_alone_has_is_not_reserved_before_a_checkpoint(node: MemoryNode) -> None:
    """A message that only the index has is not reserved before a checkpoint.

    It moved to the index while its batch was in flight, and the batch failed: no journal has it.
    """
    client = MemoryClient(node)
    group = open_one(client)
    for number in range(20):
        node.publish(b"q", b"%09d" % (number + 1))
    batch = node.vhost.journal.seal()
    node.vhost.advance(node.clock.now_ms())
    assert on_disk(node) == 20
    node.driver.fail(batch, node.clock.now_ms())
    node.work()
    checkpoints = node.vhost.store.checkpoints.count
    request = group.reserve(0)
    assert client.refused(request) == STORAGE_FAILED
    node.work()
    assert node.vhost.store.checkpoints.count == checkpoints + 1
    assert reserve(client, group, 0) == 21
    node.disk.files.crash(Random(1), POWER)
    restarted = node.crash()
    assert fetch_all(MemoryClient(restarted), group, 0, 21) == list(range(1, 21))


def test_a_group_that_is_deleted_while_a_load_is_under_way_takes_nothing(node: MemoryNode) -> None:
    fill(node, 100)
    client = MemoryClient(node)
    group = open_one(client)
    client.send(group.reserve(0))
    MemoryClient(node).must(DeleteGroup("g"))
    node.work()
    node.clock.advance(100)
    queue = node.vhost.queues[b"q"]
    assert (queue.ready_count, queue.unacked_count) == (100, 0)


def test_peek_reads_from_disk_and_leaves_everything_there(node: MemoryNode) -> None:
    fill(node, 5000)
    client = MemoryClient(node)
    described = client.must(DescribeQueue(b"q"))
    assert isinstance(described, QueueDescription)
    assert (described.first_ready, described.ready, described.tail) == (1, 5000, 5001)
    start = 100
    found: list[int] = []
    while start < 4900:
        reply = client.must(Peek(b"q", described.incarnation, start, 4900, 1000, 1 << 26))
        assert isinstance(reply, Fetched)
        found += [int(message.body or b"") for message in read_block(reply.block)]
        start = reply.next
    assert found == list(range(100, 4900))
    assert on_disk(node) == 5000 and node.vhost.queues[b"q"].backing.peek(0, 1, EVERYTHING) == []


def test_peek_at_a_queue_that_is_deleted_meanwhile_is_refused() -> None:
    """A peek at a queue that is deleted meanwhile is refused, instead of a shorter result."""
    node = PausedNode(MemoryDisk())
    node.declare(b"q").backing.memory.set_mode(True)
    fill(node, 3000)
    client = MemoryClient(node)
    PausedNode.is_paused = True
    try:
        client.send(Peek(b"q", 1, 5, 2000, 1000, 1 << 20))
        assert client.replies() == []
        node.delete(b"q")
    finally:
        PausedNode.is_paused = False
    node.work()
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == DATA_LOSS


def test_a_damaged_record_in_the_middle_costs_itself(node: MemoryNode) -> None:
    """A damaged record costs only itself: a fetch returns all messages around it, each time."""
    fill(node, 300, 100)
    client = MemoryClient(node)
    group = open_one(client)
    assert reserve(client, group, 0) == 301
    queue = node.vhost.queues[b"q"]
    (member,) = node.groups.reader_groups.get(b"g").members.values()
    for entry in member.reserved_entries:
        queue.backing.unacked.drop_content(entry)
    assert queue.backing.unacked.paged_count == 300
    index = queue.ledger.index
    assert index is not None
    node.disk.files.flip(
        index.path_of(index.segments[0]), member.reserved_entries[149].place + 60, 3
    )
    expected = [seq for seq in range(1, 301) if seq != 150]
    for _ in range(2):
        assert fetch_all(client, group, 0, 301) == expected
    assert queue.unacked_count == 299
