"""Messages that a reader group has reserved do not expire, and no other client can take them."""

import pytest

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import MANY
from tests.support.spark.blocks import read_block
from warrenmq.admin.protocol.requests import (
    Fetch,
    Fetched,
    GroupOpened,
    MemberRange,
    OpenGroup,
    Reserve,
    Reserved,
)
from warrenmq.store.figures import StoreFigures
from warrenmq.store.model.message import Message


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"a")
    node.declare(b"b")
    return node


@pytest.fixture
def client(node: MemoryNode) -> MemoryClient:
    return MemoryClient(node)


def fill(node: MemoryNode, queue: bytes, count: int, size: int = 10) -> None:
    for number in range(count):
        node.publish(queue, b"%0*d" % (size, number))


def opened(client: MemoryClient, queue: bytes) -> GroupOpened:
    reply = client.must(OpenGroup("g", [queue]))
    assert isinstance(reply, GroupOpened)
    return reply


def bodies(client: MemoryClient, group: GroupOpened, part: MemberRange) -> list[bytes | None]:
    request = Fetch("g", group.epoch, part.incarnation, part.start, part.end, 100_000, 1 << 26)
    reply = client.must(request)
    assert isinstance(reply, Fetched) and reply.next == part.end
    return [message.body for message in read_block(reply.block)]


def held_range(client: MemoryClient, node: MemoryNode) -> tuple[GroupOpened, MemberRange]:
    group = opened(client, b"a")
    reply = client.must(Reserve("g", group.epoch, {}, MANY, MANY))
    assert isinstance(reply, Reserved)
    return group, reply.members[0]


def test_held_messages_do_not_expire(node: MemoryNode, client: MemoryClient) -> None:
    """Reserved messages expire neither in memory nor while the node is down; released ones do."""
    queue = node.vhost.queues[b"a"]
    now_ms = node.clock.now_ms()
    for number in range(3):
        queue.publish(
            Message(b"\x00\x01a", b"\x00\x00", b"%d" % number, True, now_ms), 1000, now_ms
        )
    group, part = held_range(client, node)
    node.clock.advance(5000)
    queue.drop_expired_head(node.clock.now_ms())
    assert bodies(client, group, part) == [b"0", b"1", b"2"]
    node = node.crash()
    client = MemoryClient(node)
    assert bodies(client, group, part) == [b"0", b"1", b"2"]
    node.groups.reader_groups.delete(b"g", node.clock.now_ms())
    assert node.vhost.queues[b"a"].ready_count == 0


def test_a_purge_and_other_consumers_leave_held_messages(
    node: MemoryNode, client: MemoryClient
) -> None:
    fill(node, b"a", 3)
    group, part = held_range(client, node)
    fill(node, b"a", 2)
    queue = node.vhost.queues[b"a"]
    taken = queue.get(True, node.clock.now_ms())
    assert taken is not None and taken.seq == part.end
    queue.purge(node.clock.now_ms())
    node.commit()
    node.work()
    for _ in range(2):
        assert len(bodies(client, group, part)) == 3
        node = node.crash()
        client = MemoryClient(node)


def test_compaction_moves_held_contents_and_they_are_read_on(
    node: MemoryNode, client: MemoryClient
) -> None:
    """Reserved contents stay readable when compaction moves them away from garbage."""
    store = node.vhost.store
    store.contents.persistent.file_size_limit = 100_000
    for number in range(60):
        node.publish(b"a", (b"%04d" % number) * 2500)
        for _ in range(3):
            node.publish(b"b", bytes(10_000))
        node.commit()
    group, part = held_range(client, node)
    expected = bodies(client, group, part)
    node.vhost.queues[b"b"].purge(node.clock.now_ms())
    for _ in range(200):
        node.clock.time_ms += 1000
        store.checkpoints.want()
        node.commit()
        node.work()
    assert StoreFigures(store).persistent.compactions > 0
    assert bodies(client, group, part) == expected
    node = node.crash()
    assert bodies(MemoryClient(node), group, part) == expected
