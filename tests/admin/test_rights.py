"""Sessions of the admin protocol need the rights that a consumer or a publisher would need."""

import pytest

from tests.support.brokers.memory_node import USER, MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.staged import staged_message
from warrenmq.admin.protocol.figures import DescribeNode, ListQueues
from warrenmq.admin.protocol.requests import (
    Ack,
    DeleteGroup,
    DescribeQueue,
    ErrorReply,
    Fetch,
    GroupOpened,
    ListGroups,
    LoggedIn,
    Login,
    OpenGroup,
    Peek,
    PlanRange,
    QueueDescription,
    Request,
    Reserve,
    Reserved,
    SeekTime,
)
from warrenmq.admin.protocol.sinks import (
    CommitBatch,
    DescribeSink,
    FinishStage,
    OpenStage,
    StageMessages,
    StageOpened,
)
from warrenmq.broker.definitions.login_guard import FREE_FAILURES, WAIT_MAX_MS
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeletePermission,
    DeleteTopicPermission,
    DeleteUser,
    PutPermission,
    PutTopicPermission,
    PutUser,
)
from warrenmq.wire.properties import Properties

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


ALL = (".*", ".*", ".*")
LOST: dict[str, Change] = {
    "patterns": PutPermission(b"/", b"reader", "", "", ""),
    "permission": DeletePermission(b"/", b"reader"),
    "user": DeleteUser(b"reader"),
}


def apply(node: MemoryNode, *changes: Change) -> None:
    for change in changes:
        node.broker.access.apply(change)


@pytest.mark.parametrize("how", LOST)
def test_an_open_session_does_nothing_more_without_its_rights(node: MemoryNode, how: str) -> None:
    """Groups and sinks of a session lose their rights at once; nothing is half done."""
    apply(node, PutPermission(b"/", b"reader", *ALL))
    for body in (b"1", b"2"):
        node.publish(b"private", body)
    client = MemoryClient(node, user="reader")
    opened = client.must(OpenGroup("g", [b"private"]))
    assert isinstance(opened, GroupOpened)
    incarnation = opened.members[0].incarnation
    reserved = client.must(Reserve("g", opened.epoch, {}, 1, MANY))
    assert isinstance(reserved, Reserved)
    stage = client.must(OpenStage("s", 0))
    assert isinstance(stage, StageOpened)
    block = memoryview(staged_message(b"a", b"open", b"amq.direct"))
    client.must(StageMessages(stage.stage, block))
    queue = node.vhost.queues[b"private"]
    ready = queue.ready_count

    apply(node, LOST[how])
    requests: tuple[Request, ...] = (
        OpenGroup("h", [b"private"]),
        Reserve("g", opened.epoch, {}, MANY, MANY),
        PlanRange("g", opened.epoch, incarnation, 1, 1, 10),
        Fetch("g", opened.epoch, incarnation, 1, 1, 10, MANY),
        Ack("g", opened.epoch, {incarnation: 1}),
        DeleteGroup("g"),
        DescribeQueue(b"private"),
        SeekTime(b"private", incarnation, 0),
        Peek(b"private", incarnation, 1, 9, 10, MANY),
        StageMessages(stage.stage, block),
    )
    if how != "patterns":
        # Without any rights in the vhost, what needs no right to a queue is refused as well.
        requests += (
            FinishStage(stage.stage, 1),
            CommitBatch("s", 0, [stage.stage]),
            DescribeSink("s"),
            ListGroups(),
            ListQueues(0, 10),
            DescribeNode(),
        )
    for request in requests:
        assert refusal(client, request).endswith("refused for user 'reader'")
    assert (queue.ready_count, queues_of(node)) == (ready, [b"private"])
    assert list(node.groups.reader_groups.by_name) == [b"g"]
    assert node.vhost.queues[b"open"].ready_count == 0


def test_topic_permissions_hold_for_sinks(node: MemoryNode) -> None:
    apply(
        node,
        PutPermission(b"/", b"reader", *ALL),
        PutTopicPermission(b"/", b"reader", b"amq.topic", "^{username}[.]", ""),
    )
    client = MemoryClient(node, user="reader")
    text = "access to topic 'a.k' in exchange 'amq.topic' in vhost '/' refused for user 'reader'"
    other = memoryview(staged_message(b"a", b"a.k", b"amq.topic"))
    for batch, change in enumerate((None, DeleteTopicPermission(b"/", b"reader", b"amq.topic"))):
        if change is not None:
            apply(node, change)
        opened = client.must(OpenStage("s", batch))
        assert isinstance(opened, StageOpened)
        own = memoryview(staged_message(b"a", b"reader.k", b"amq.topic"))
        client.must(StageMessages(opened.stage, own))
        if change is None:
            assert refusal(client, StageMessages(opened.stage, other)) == text
        else:
            client.must(StageMessages(opened.stage, other))


def test_the_tags_of_a_sinks_user_are_looked_up_at_each_request(node: MemoryNode) -> None:
    apply(node, PutPermission(b"/", b"reader", *ALL))
    client = MemoryClient(node, user="reader")
    foreign = Properties(user_id=b"guest").encode()
    block = memoryview(staged_message(b"a", b"q", b"amq.direct", foreign))
    for tags, is_allowed in (([], False), (["impersonator", "administrator"], True), ([], False)):
        apply(node, PutUser(b"reader", USER.password_hash, USER.hashing, tags))
        opened = client.must(OpenStage("s", 0))
        assert isinstance(opened, StageOpened)
        reply = client.ask(StageMessages(opened.stage, block))
        assert isinstance(reply, ErrorReply) != is_allowed
        direct = client.ask(OpenStage("t", 0, b"open"))
        assert isinstance(direct, StageOpened) == is_allowed


def test_guesses_are_answered_late(node: MemoryNode) -> None:
    waits = []
    for _ in range(FREE_FAILURES + 4):
        client = MemoryClient(node, log_in=False)
        begin_ms = node.clock.now_ms()
        reply = client.ask(Login("reader", "wrong", "/"))
        assert isinstance(reply, ErrorReply)
        assert reply.code == "access_refused"
        assert client.is_closed
        waits.append(node.clock.now_ms() - begin_ms)
    assert waits[:FREE_FAILURES] == [0] * FREE_FAILURES
    assert waits[FREE_FAILURES] > 0
    assert waits[-1] >= WAIT_MAX_MS - 1000
    for user, is_late in (("guest", False), ("reader", True), ("reader", False)):
        client = MemoryClient(node, log_in=False)
        begin_ms = node.clock.now_ms()
        assert isinstance(client.ask(Login(user, "guest", "/")), LoggedIn)
        assert (node.clock.now_ms() > begin_ms) == is_late


def test_a_client_that_leaves_before_its_late_answer(node: MemoryNode) -> None:
    for _ in range(FREE_FAILURES):
        MemoryClient(node, log_in=False).ask(Login("reader", "wrong", "/"))
    client = MemoryClient(node, log_in=False)
    client.send(Login("reader", "wrong", "/"))
    client.session.connection_lost()
    node.clock.advance(WAIT_MAX_MS)
    assert client.replies() == []
