"""A reader group rejects messages that its reader cannot take, before it learns of them."""

import pytest

from tests.support.brokers.dead_letters import (
    TO_DEAD,
    declare_with_dead_letters,
    take_dead_letters,
)
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import OneQueue, end_of, one_queue, open_one
from tests.support.spark.blocks import read_block
from warrenmq.admin.protocol.requests import (
    Acked,
    ErrorReply,
    Fetch,
    Fetched,
    OpenGroup,
    PlanRange,
    RangePlan,
)
from warrenmq.queues.settings import DeadLetterRule, QueueSettings
from warrenmq.vocabulary.error_codes import DATA_LOSS, PRECONDITION

LIMIT = 100
SMALL = [b"first", bytes(LIMIT), b"last"]
LARGE = bytes(LIMIT + 1)


@pytest.fixture
def node() -> MemoryNode:
    """A node whose queue `q` has a large message among small ones, and dead letters in `dead`."""
    node = MemoryNode(MemoryDisk())
    declare_with_dead_letters(node, b"q")
    for body in (SMALL[0], LARGE, *SMALL[1:]):
        node.publish(b"q", body)
    node.commit()
    return node


def plan_of(group: OneQueue, end: int, body_bytes_max: int | None = LIMIT) -> PlanRange:
    return PlanRange(
        "g", group.epoch, group.incarnation, 0, end, 1 << 15, body_bytes_max=body_bytes_max
    )


def reserved(client: MemoryClient) -> tuple[OneQueue, int]:
    group = open_one(client)
    return group, end_of(client.must(group.reserve(0)))


def bodies_of(client: MemoryClient, group: OneQueue, end: int) -> list[bytes | None]:
    reply = client.must(Fetch("g", group.epoch, group.incarnation, 0, end, 100, 1 << 20))
    assert isinstance(reply, Fetched)
    return [message.body for message in read_block(reply.block)]


def counts_of(reply: object) -> list[int]:
    """The number of messages of each planned slice."""
    assert isinstance(reply, RangePlan), reply
    return [part.message_count for part in reply.slices]


def test_a_plan_leaves_out_what_it_rejects(node: MemoryNode) -> None:
    """A larger message becomes a dead letter once, however often the range is planned and read."""
    client = MemoryClient(node)
    group, end = reserved(client)
    assert bodies_of(client, group, end) == [SMALL[0], LARGE, *SMALL[1:]]
    for _ in range(2):
        assert counts_of(client.must(plan_of(group, end))) == [3]
        assert bodies_of(client, group, end) == SMALL
    assert node.vhost.queues[b"q"].unacked_count == 3
    assert client.must(group.ack(end)) == Acked({group.incarnation: end})
    assert take_dead_letters(node) == [(LARGE, True)]
    node.vhost.check()


def test_a_plan_is_answered_when_its_dead_letters_are_durable(node: MemoryNode) -> None:
    """A crash before the answer leaves the range as it was; a crash after it doubles nothing."""
    client = MemoryClient(node)
    group, end = reserved(client)
    client.send(plan_of(group, end))
    node.vhost.advance(node.clock.now_ms())
    assert not client.replies()

    node = node.crash()
    client = MemoryClient(node)
    assert bodies_of(client, group, end) == [SMALL[0], LARGE, *SMALL[1:]]
    assert counts_of(client.must(plan_of(group, end))) == [3]

    node = node.crash()
    client = MemoryClient(node)
    assert bodies_of(client, group, end) == SMALL
    assert counts_of(client.must(plan_of(group, end))) == [3]
    client.must(group.ack(end))
    assert take_dead_letters(node) == [(LARGE, True)]
    assert one_queue(client.must(OpenGroup("g", [b"q"]))).acked == end
    node.vhost.check()


def test_nothing_is_rejected_into_the_void(node: MemoryNode) -> None:
    """Without a dead-letter exchange a plan is refused by message, until the queue has one."""
    queue = node.vhost.queues[b"q"]
    client = MemoryClient(node)
    group, end = reserved(client)
    for rule in (None, DeadLetterRule(b"missing", None)):
        queue.apply(QueueSettings(dead_letters=rule))
        reply = client.ask(plan_of(group, end))
        assert isinstance(reply, ErrorReply)
        assert reply.code == PRECONDITION
        assert "message 2 with a body of 101 bytes (limit 100) would be lost" in reply.text
    assert bodies_of(client, group, end) == [SMALL[0], LARGE, *SMALL[1:]]
    queue.apply(TO_DEAD)
    assert counts_of(client.must(plan_of(group, end))) == [3]
    assert take_dead_letters(node) == [(LARGE, True)]


def test_a_refused_plan_rejects_nothing(node: MemoryNode) -> None:
    """A reader whose range is not reserved learns that, and all messages stay."""
    client = MemoryClient(node)
    group, end = reserved(client)
    assert client.refused(plan_of(group, end + 1)) == DATA_LOSS
    assert counts_of(client.must(plan_of(group, end, None))) == [4]
