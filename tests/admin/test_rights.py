"""Sessions of the admin protocol need the rights that a consumer or a publisher would need."""

import pytest

from tests.support.brokers.memory_node import USER, MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.staged import staged_message
from warrenmq.admin.protocol import (
    Ack,
    DeleteGroup,
    DescribeQueue,
    ErrorReply,
    Fetch,
    GroupOpened,
    OpenGroup,
    Peek,
    PlanRange,
    QueueDescription,
    Request,
    Reserve,
    Reserved,
    SeekTime,
)
from warrenmq.admin.sink_protocol import OpenStage, StageMessages, StageOpened
from warrenmq.broker.definitions.metadata import Definitions, PutPermission, PutUser

MANY = 1000
REFUSED = "access to queue 'private' in vhost '/' refused for user 'reader'"


@pytest.fixture
def node() -> MemoryNode:
    """A node with the queues `open` and `private`, of which the user `reader` may read one."""
    node = MemoryNode(MemoryDisk())
    definitions = Definitions()
    definitions.users = [PutUser(b"reader", USER.password_hash, USER.hashing, [])]
    definitions.permissions = [PutPermission(b"/", b"reader", "", "^amq\\.direct$", "^open$")]
    node.broker.load_users(definitions)
    node.declare(b"open")
    node.declare(b"private")
    return node


def refusal(client: MemoryClient, request: Request) -> str:
    """The text with which `request` is refused for want of a right."""
    reply = client.ask(request)
    assert isinstance(reply, ErrorReply), reply
    assert reply.code == "access_refused"
    return reply.text


def queues_of(node: MemoryNode) -> list[bytes]:
    """Names of the queues that the reader group g reads; none when there is no such group."""
    group = node.groups.reader_groups.by_name.get(b"g")
    return [] if group is None else [member.queue_name for member in group.ordered()]


def test_a_queue_that_a_user_may_not_read_is_not_described_or_shown(node: MemoryNode) -> None:
    client = MemoryClient(node, user="reader")
    described = client.must(DescribeQueue(b"open"))
    assert isinstance(described, QueueDescription)
    incarnation = node.vhost.queues[b"private"].id
    for request in (
        DescribeQueue(b"private"),
        DescribeQueue(b"private-and-missing"),
        SeekTime(b"private", incarnation, 0),
        Peek(b"private", incarnation, 1, 9, 10, MANY),
    ):
        assert refusal(client, request).startswith("access to queue 'private")


def test_a_group_reads_only_what_its_user_may_read(node: MemoryNode) -> None:
    client = MemoryClient(node, user="reader")
    assert refusal(client, OpenGroup("g", [b"open", b"private"])) == REFUSED
    assert queues_of(node) == []
    opened = client.must(OpenGroup("g", pattern=".*"))
    assert isinstance(opened, GroupOpened)
    assert [member.queue for member in opened.members] == [b"open"]
    node.declare(b"declared-later")
    reserved = client.must(Reserve("g", opened.epoch, {}, MANY, MANY))
    assert isinstance(reserved, Reserved)
    assert queues_of(node) == [b"open"]


def test_a_group_of_somebody_else_cannot_be_driven_without_its_rights(node: MemoryNode) -> None:
    opened = MemoryClient(node).must(OpenGroup("g", [b"private"]))
    assert isinstance(opened, GroupOpened)
    incarnation = opened.members[0].incarnation
    client = MemoryClient(node, user="reader")
    for request in (
        Reserve("g", opened.epoch, {}, MANY, MANY),
        PlanRange("g", opened.epoch, incarnation, 1, 1, 10),
        Fetch("g", opened.epoch, incarnation, 1, 1, 10, MANY),
        Ack("g", opened.epoch, {incarnation: 1}),
        DeleteGroup("g"),
    ):
        assert refusal(client, request) == REFUSED
    assert queues_of(node) == [b"private"]


def test_a_sink_publishes_only_where_its_user_may_write(node: MemoryNode) -> None:
    client = MemoryClient(node, user="reader")
    opened = client.must(OpenStage("s", 0))
    assert isinstance(opened, StageOpened)
    allowed = staged_message(b"a", b"open", b"amq.direct")
    client.must(StageMessages(opened.stage, memoryview(allowed)))
    default = StageMessages(opened.stage, memoryview(staged_message(b"a", b"open")))
    expected = "access to exchange 'amq.default' in vhost '/' refused for user 'reader'"
    assert refusal(client, default) == expected
    assert list(node.vhost.staging.stages) == [], "the stage is dropped"
