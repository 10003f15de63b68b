"""Admin sessions: login, arbitrary frames, request order, the long poll, durability of answers."""

import pytest

from tests.support.brokers.memory_node import NO_EXPIRATION, MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import OneQueue, end_of, open_one
from tests.support.spark.blocks import read_block
from warrenmq.admin.client.client import NodeAddress
from warrenmq.admin.protocol.requests import (
    REQUEST_BYTES_MAX,
    Acked,
    DeleteGroup,
    DescribeQueue,
    ErrorReply,
    Fetch,
    Fetched,
    GroupList,
    GroupOpened,
    ListGroups,
    LoggedIn,
    Login,
    MemberRange,
    OpenGroup,
    Peek,
    PlanRange,
    QueueDescription,
    RangePlan,
    Reserve,
    Reserved,
    SeekTime,
    encode_frame,
)
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.store.model.message import Message
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    BAD_REQUEST,
    DATA_LOSS,
    FENCED,
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
)

MANY = 1 << 40


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return node


@pytest.fixture
def client(node: MemoryNode) -> MemoryClient:
    return MemoryClient(node)


def fill(node: MemoryNode, count: int, persistent: bool = True) -> None:
    for number in range(count):
        node.publish(b"q", b"m%d" % number, persistent)


def reserve(
    group: OneQueue, start: int, max_messages: int = MANY, wait_ms: int = 0, until: int = MANY
) -> Reserve:
    return group.reserve(start, max_messages, wait_ms=wait_ms, until=until)


def reserved_end(client: MemoryClient, request: Reserve) -> int:
    return end_of(client.must(request))


def reserved(start: int, end: int) -> Reserved:
    return Reserved([MemberRange(b"q", 1, start, end, end)])


def fetch_all(
    client: MemoryClient, group: OneQueue, start: int, end: int, step: int = 100
) -> list[bytes | None]:
    bodies = []
    while start < end:
        reply = client.must(Fetch("g", group.epoch, group.incarnation, start, end, step, 1 << 20))
        assert isinstance(reply, Fetched)
        bodies += [message.body for message in read_block(reply.block)]
        start = reply.next
    return bodies


# -- login and frames ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("user", "password", "vhost"),
    [
        ("guest", "wrong", "/"),
        ("nobody", "guest", "/"),
        ("guest", "guest", "/other"),
        ("guest", "", "/"),
    ],
)
def test_login_with_wrong_credentials_is_refused_and_closed(
    node: MemoryNode, user: str, password: str, vhost: str
) -> None:
    """A wrong login gets one refusal, then the connection ends."""
    client = MemoryClient(node, log_in=False)
    reply = client.ask(Login(user, password, vhost))
    assert isinstance(reply, ErrorReply) and reply.code == ACCESS_REFUSED
    assert client.is_closed


def test_requests_before_login_are_refused(node: MemoryNode) -> None:
    """A request before the login is refused, and the connection ends."""
    client = MemoryClient(node, log_in=False)
    assert client.refused(ListGroups()) == ACCESS_REFUSED
    assert client.is_closed


def test_silent_peer_is_closed(node: MemoryNode) -> None:
    """A peer that does not log in within ten seconds is closed; one that logged in stays."""
    silent = MemoryClient(node, log_in=False)
    logged_in = MemoryClient(node)
    node.clock.advance(60_000)
    assert silent.is_closed
    assert not logged_in.is_closed


@pytest.mark.parametrize(
    "frame",
    [
        (REQUEST_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03\xff\xff\xff",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\xc0",
        bytes(encode_frame(ErrorReply("x", "y"))),
        b"\x00\x00\x10\x00" + b"\x91" * 4096,
    ],
)
def test_unreadable_frame_is_answered_and_closed(client: MemoryClient, frame: bytes) -> None:
    """An unreadable frame gets one refusal; the session then closes and ignores further bytes."""
    client.session.receive(frame)
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == BAD_REQUEST
    assert client.is_closed
    client.send(ListGroups())
    assert client.replies() == []


@pytest.mark.parametrize(
    "request_",
    [
        OpenGroup("has space", [b"q"]),
        OpenGroup("", [b"q"]),
        OpenGroup("g", [b"q" * 256]),
        Fetch("g", 1, 1, -1, 5, 10, 10),
        Fetch("g", 1, 1, 1, 1 << 63, 10, 10),
        Fetch("g", 1, 1, 1, 5, 0, 10),
        PlanRange("g", 1, 1, 1, 5, 0),
        Reserve("g", 1, {1: 1}, 5, 5, wait_ms=60_001),
        Reserve("g", 1, {1: -1}, 5, 5),
        OpenGroup("g", pattern="q" * 1001),
        OpenGroup("g", pattern="("),
        OpenGroup("g"),
        OpenGroup("g", [b"q"], "q"),
    ],
)
def test_values_out_of_range_are_bad_requests(client: MemoryClient, request_: OpenGroup) -> None:
    """Numbers out of range and invalid names are refused before they reach the groups."""
    assert client.refused(request_) == BAD_REQUEST


def test_frames_may_be_cut_anywhere(node: MemoryNode) -> None:
    """Frames that arrive byte by byte get the same replies as frames that arrive at once."""
    frames = bytes(encode_frame(Login("guest", "guest", "/")) + encode_frame(DescribeQueue(b"q")))
    whole = MemoryClient(node, log_in=False)
    whole.session.receive(frames)
    single = MemoryClient(node, log_in=False)
    for octet in frames:
        single.session.receive(bytes([octet]))
    replies = whole.replies()
    assert [type(reply) for reply in replies] == [LoggedIn, QueueDescription]
    assert single.replies() == replies


def test_requests_sent_ahead_are_answered_in_order_without_recursion(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A thousand requests in one packet are answered in order; the last one is refused."""
    client.session.receive(
        bytes(encode_frame(ListGroups())) * 1000 + bytes(encode_frame(DescribeQueue(b"x")))
    )
    replies = client.replies()
    assert len(replies) == 1001
    assert isinstance(replies[-1], ErrorReply) and replies[-1].code == NOT_FOUND
    group = open_one(client)
    client.session.receive(bytes(encode_frame(reserve(group, 0))) * 1000)
    assert len(client.replies()) == 1000


def test_nothing_is_worked_on_while_the_peer_does_not_read(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A client that sends requests and never reads costs bounded memory."""
    client.session.pause_writing()
    client.send(ListGroups())
    assert client.replies() == []
    client.session.resume_writing()
    assert len(client.replies()) == 1
    client.session.pause_writing()
    client.session.receive(bytes(encode_frame(ListGroups())) * 20_000)
    assert client.is_closed


def test_login_is_not_shown_with_its_password() -> None:
    """Neither the login request nor the address shows the password in its repr."""
    assert "geheim" not in repr(Login("u", "geheim", "/"))
    assert "geheim" not in repr(NodeAddress("amqp://u:geheim@h/v"))


# -- groups ----------------------------------------------------------------------------------------


def test_open_is_answered_when_the_epoch_is_durable(node: MemoryNode, client: MemoryClient) -> None:
    """The group's definition is on disk before the answer, and every opening raises the epoch."""
    client.send(OpenGroup("g", [b"q"]))
    assert client.replies() == []
    node.commit()
    (reply,) = client.replies()
    assert isinstance(reply, GroupOpened)
    assert node.disk.groups[b"g"].epoch == reply.epoch
    assert open_one(client).epoch == reply.epoch + 1


def test_open_that_cannot_be_stored_is_refused(node: MemoryNode, client: MemoryClient) -> None:
    """An opening that cannot be stored is refused; a later one works."""
    reply = client.ask(OpenGroup("g", [b"q"]), commit_ok=False)
    assert isinstance(reply, ErrorReply) and reply.code == STORAGE_FAILED
    assert open_one(client).epoch == node.disk.groups[b"g"].epoch


def test_open_of_a_queue_that_groups_cannot_read_is_refused(
    node: MemoryNode, client: MemoryClient
) -> None:
    """An unknown, transient, exclusive or priority queue is refused with its own error code."""
    node.declare(b"levels", settings=QueueSettings(traits=QueueTraits(max_priority=2)))
    node.declare(b"transient", durable=False)
    node.declare(b"exclusive", owner=object())
    assert client.refused(OpenGroup("g", [b"nope"])) == NOT_FOUND
    assert client.refused(OpenGroup("g", [b"transient"])) == PRECONDITION
    assert client.refused(OpenGroup("g", [b"exclusive"])) == PRECONDITION
    assert client.refused(OpenGroup("g", [b"levels"])) == PRECONDITION
    assert client.refused(DescribeQueue(b"levels")) == PRECONDITION


def test_reserved_range_survives_a_crash_with_its_transient_messages(
    node: MemoryNode, client: MemoryClient
) -> None:
    """An answered reserve is on disk, transient messages included: a crash keeps the range."""
    fill(node, 3, persistent=False)
    group = open_one(client)
    assert reserved_end(client, reserve(group, 0)) == 4
    fill(node, 2, persistent=False)
    restarted = node.crash()
    client = MemoryClient(restarted)
    # The epoch is still valid: a driver that outlives the broker continues.
    assert fetch_all(client, group, 0, 4) == [b"m0", b"m1", b"m2"]
    assert restarted.vhost.queues[b"q"].ready_count == 0


def test_reserve_is_not_answered_when_it_cannot_be_stored(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A failing disk refuses the reserve; messages stay reserved, and a retry gives the range."""
    fill(node, 3, persistent=False)
    group = open_one(client)
    reply = client.ask(reserve(group, 0), commit_ok=False)
    assert isinstance(reply, ErrorReply) and reply.code == STORAGE_FAILED
    assert reserved_end(client, reserve(group, 0)) == 4
    assert fetch_all(MemoryClient(node.crash()), group, 0, 4) == [b"m0", b"m1", b"m2"]


def test_reserve_notices_that_an_earlier_batch_failed(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A message whose batch failed is journaled again before a reserve of its range is answered."""
    group = open_one(client)
    fill(node, 2)
    node.commit(ok=False)
    assert reserved_end(client, reserve(group, 0)) == 3
    assert fetch_all(MemoryClient(node.crash()), group, 0, 3) == [b"m0", b"m1"]


def test_reserve_notices_that_a_batch_in_flight_failed(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A reserve is refused when an earlier batch in flight fails, although its own commit succeeds.

    Part of the range is not on disk then.
    """
    group = open_one(client)
    fill(node, 2)
    in_flight = node.vhost.journal.seal()
    client.send(reserve(group, 0))
    node.vhost.journal.on_done(in_flight, False, node.clock.now_ms())
    node.commit()
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == STORAGE_FAILED
    assert reserved_end(client, reserve(group, 0)) == 3
    assert fetch_all(MemoryClient(node.crash()), group, 0, 3) == [b"m0", b"m1"]


def test_reserve_waits_for_messages_and_no_longer_than_asked(
    node: MemoryNode, client: MemoryClient
) -> None:
    """The long poll ends with the first message, or with an empty range after its time."""
    group = open_one(client)
    client.send(reserve(group, 0, wait_ms=2000))
    node.clock.advance(1000)
    assert client.replies() == []
    fill(node, 1)
    node.clock.advance(0)
    node.commit()
    assert client.replies() == [reserved(0, 2)]
    client.send(reserve(group, 2, wait_ms=2000))
    node.commit()
    node.clock.advance(1999)
    assert client.replies() == []
    node.clock.advance(1)
    assert client.replies() == [reserved(2, 2)]


def test_reserve_waits_behind_a_message_that_a_consumer_has(
    node: MemoryNode, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reserve waits for a consumer's unacked message, and gets it in order after its requeue."""
    fill(node, 3)
    group = open_one(client)
    queue = node.vhost.queues[b"q"]
    entry = queue.get(False, 0)
    assert entry is not None
    monkeypatch.setattr(node.groups, "first_unacked_seq", lambda queue, seq: entry.seq)
    client.send(reserve(group, 0, wait_ms=5000))
    node.clock.advance(3000)
    assert client.replies() == []
    queue.requeue([entry], 0)
    node.clock.advance(100)
    node.commit()
    assert client.replies() == [reserved(0, 4)]


@pytest.mark.parametrize(
    ("happens", "code"),
    [
        (OpenGroup("g", [b"q"]), FENCED),
        (DeleteGroup("g"), NOT_FOUND),
        (None, DATA_LOSS),
    ],
)
def test_waiting_reserve_takes_nothing_when_its_group_is_not_its_own_any_more(
    node: MemoryNode, client: MemoryClient, happens: OpenGroup | DeleteGroup | None, code: str
) -> None:
    """A waiting reserve takes no message when its group is taken over, deleted or without queue."""
    group = open_one(client)
    client.send(reserve(group, 0, wait_ms=2000))
    if happens is None:
        node.delete(b"q")
        node.declare(b"q")
    else:
        MemoryClient(node).must(happens)
    fill(node, 1)
    node.clock.advance(0)
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == code
    assert node.vhost.queues[b"q"].ready_count == 1


def test_poll_of_a_lost_connection_leaves_nothing_behind(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A lost connection removes the timer and the watcher of its long poll."""
    group = open_one(client)
    client.send(reserve(group, 0, wait_ms=2000))
    client.session.connection_lost()
    fill(node, 1)
    node.clock.advance(5000)
    assert client.replies() == []
    assert node.vhost.queues[b"q"].ready_count == 1


def test_ack_is_answered_when_journal_and_definition_are_durable(
    node: MemoryNode, client: MemoryClient
) -> None:
    """An answered ack survives a crash; before the answer the definition never leads the acks."""
    fill(node, 5)
    group = open_one(client)
    reserved_end(client, reserve(group, 0))
    client.send(group.ack(4))
    assert node.disk.members[b"g", 1].acked == 0
    node.commit()
    assert client.replies() == [Acked({1: 4})]
    assert node.disk.members[b"g", 1].acked == 4
    assert client.must(group.ack(2)) == Acked({1: 4})
    restarted = MemoryClient(node.crash())
    assert restarted.refused(Fetch("g", group.epoch, group.incarnation, 3, 6, 10, 10)) == DATA_LOSS
    assert fetch_all(restarted, group, 4, 6) == [b"m3", b"m4"]


def test_reserve_acks_what_lies_below_its_start(node: MemoryNode, client: MemoryClient) -> None:
    """A reserve acks all messages below its start: one round trip a batch, also when idle."""
    fill(node, 4)
    group = open_one(client)
    end = reserved_end(client, reserve(group, 0, max_messages=2))
    assert reserved_end(client, reserve(group, end)) == 5
    client.send(reserve(group, 5, wait_ms=1000))
    node.commit()
    restarted = node.crash()
    assert restarted.vhost.queues[b"q"].ready_count == 0
    assert restarted.groups.reader_groups.get(b"g").reserved_count() == 0


def test_zombies_are_refused_every_call(node: MemoryNode) -> None:
    """Every request of an older epoch is refused."""
    fill(node, 5)
    client = MemoryClient(node)
    old = open_one(client)
    reserved_end(client, reserve(old, 0))
    new = open_one(MemoryClient(node))
    zombie = ("g", old.epoch, old.incarnation)
    for request in (
        reserve(old, 0),
        PlanRange(*zombie, 0, 3, 10),
        Fetch(*zombie, 0, 3, 10, 10),
        old.ack(3),
    ):
        assert client.refused(request) == FENCED
    assert fetch_all(client, new, 0, 6) == [b"m%d" % number for number in range(5)]


@pytest.mark.parametrize("crashes", [False, True])
def test_readers_of_a_deleted_group_are_zombies_of_its_successor(
    node: MemoryNode, crashes: bool
) -> None:
    """A new group of the same name refuses requests of the deleted group's readers."""
    fill(node, 5)
    old = open_one(MemoryClient(node))
    again = open_one(MemoryClient(node))
    MemoryClient(node).must(DeleteGroup("g"))
    if crashes:
        node.clock.advance(1000)
        node = node.crash()
    client = MemoryClient(node)
    new = open_one(client)
    end = reserved_end(client, reserve(new, 0))
    for zombie in (old, again):
        assert client.refused(zombie.ack(3)) == FENCED
        assert client.refused(reserve(zombie, 3)) == FENCED
    assert fetch_all(client, new, 0, end) == [b"m%d" % number for number in range(5)]


def test_plan_and_fetch_together_give_each_message_once(
    node: MemoryNode, client: MemoryClient
) -> None:
    """The slices of a plan, fetched in small blocks, add up to the range."""
    fill(node, 50)
    group = open_one(client)
    end = reserved_end(client, reserve(group, 0))
    plan = client.must(PlanRange("g", group.epoch, group.incarnation, 0, end, 16))
    assert isinstance(plan, RangePlan)
    bodies = []
    for part in plan.slices:
        bodies += fetch_all(client, group, part.start, part.end, step=7)
    assert bodies == [b"m%d" % number for number in range(50)]
    assert [part.message_count for part in plan.slices] == [15, 16, 16, 3]


def test_groups_are_listed_and_deleted_durably(node: MemoryNode, client: MemoryClient) -> None:
    """The list shows positions and lag; a deleted group does not reappear after a crash."""
    fill(node, 5)
    group = open_one(client)
    reserved_end(client, reserve(group, 0, max_messages=2))
    listed = client.must(ListGroups())
    assert isinstance(listed, GroupList)
    (status,) = listed.groups
    assert (status.group, status.pattern, status.epoch) == ("g", "", group.epoch)
    (member,) = status.members
    assert (member.queue, member.held, member.lag, member.reserved) == (b"q", 2, 5, 3)
    client.must(DeleteGroup("g"))
    assert client.refused(DeleteGroup("g")) == NOT_FOUND
    restarted = node.crash()
    assert (restarted.disk.groups, restarted.disk.members) == ({}, {})
    assert restarted.vhost.queues[b"q"].ready_count == 5


# -- peek ------------------------------------------------------------------------------------------


def test_peek_changes_nothing_and_skips_what_vanished(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A peek changes nothing and can be repeated; consumed messages are missing from it."""
    fill(node, 6)
    described = client.must(DescribeQueue(b"q"))
    assert described == QueueDescription(1, True, 6, 1, 7)
    for _ in range(2):
        reply = client.must(Peek(b"q", 1, 1, 5, 100, 1 << 20))
        assert isinstance(reply, Fetched) and reply.next == 5
        assert [message.seq for message in read_block(reply.block)] == [1, 2, 3, 4]
    node.vhost.queues[b"q"].get(True, 0)
    reply = client.must(Peek(b"q", 1, 1, 5, 2, 1 << 20, with_bodies=False))
    assert isinstance(reply, Fetched) and reply.next == 4
    assert [(message.seq, message.body, message.size) for message in read_block(reply.block)] == [
        (2, None, 2),
        (3, None, 2),
    ]
    node.delete(b"q")
    assert client.refused(Peek(b"q", 1, 1, 5, 2, 1 << 20)) == DATA_LOSS


def test_a_level_of_a_priority_queue_is_peeked_by_its_priority(
    node: MemoryNode, client: MemoryClient
) -> None:
    """Each level has seq ids of its own; a level without messages so far is described, not read."""
    settings = QueueSettings(traits=QueueTraits(max_priority=2))
    queue = node.declare(b"levels", settings=settings)
    for priority, body in ((0, b"low"), (9, b"high"), (2, b"higher")):
        message = Message(b"\x00\x06levels", b"\x00\x00", body, True, node.clock.now_ms())
        queue.publish(message, NO_EXPIRATION, node.clock.now_ms(), priority=priority)
    described = client.must(DescribeQueue(b"levels", 2))
    assert described == QueueDescription(queue.id, True, 2, 1, 3, [2, 0])
    reply = client.must(Peek(b"levels", queue.id, 1, 3, 100, 1 << 20, level=2))
    assert isinstance(reply, Fetched)
    assert [message.body for message in read_block(reply.block)] == [b"high", b"higher"]
    empty = client.must(DescribeQueue(b"levels", 1))
    assert empty == QueueDescription(queue.id, True, 0, 1, 1, [2, 0])
    assert client.refused(Peek(b"levels", queue.id, 1, 3, 100, 1 << 20, level=1)) == NOT_FOUND
    assert client.refused(Peek(b"levels", queue.id, 1, 3, 100, 1 << 20)) == PRECONDITION
    assert client.must(DescribeQueue(b"q", 0)) == QueueDescription(1, True, 0, 1, 1, [0])


def test_exclusive_queues_are_for_their_connection_to_look_at(
    node: MemoryNode, client: MemoryClient
) -> None:
    queue = node.declare(b"exclusive", owner=object())
    for request in (
        DescribeQueue(b"exclusive"),
        SeekTime(b"exclusive", queue.id, 0),
        Peek(b"exclusive", queue.id, 0, 5, 2, 1 << 20),
    ):
        assert client.refused(request) == PRECONDITION


def test_describe_an_empty_queue(client: MemoryClient) -> None:
    """The first and the end of an empty queue are the next seq id."""
    assert client.must(DescribeQueue(b"q")) == QueueDescription(1, True, 0, 1, 1)
