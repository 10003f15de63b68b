"""Groups of several queues: their members, shares, waits, start times, and deleted queues."""

import pytest

from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import MANY
from warrenmq.admin.protocol.figures import DescribeNode, ListQueues, NodeStatus, QueueList
from warrenmq.admin.protocol.requests import (
    Ack,
    Acked,
    DeleteGroup,
    ErrorReply,
    Fetch,
    GroupList,
    GroupOpened,
    GroupStatus,
    ListGroups,
    Member,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
    SeekTime,
    TimeSought,
)
from warrenmq.queues.readers.groups import MEMBERS_MAX
from warrenmq.queues.settings import QueueSettings, QueueTraits
from warrenmq.vocabulary.error_codes import (
    BAD_REQUEST,
    DATA_LOSS,
    MOVED,
    NOT_FOUND,
    PRECONDITION,
)


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


def opened(
    client: MemoryClient, *queues: bytes, pattern: str = "", may_rebind: bool = False
) -> GroupOpened:
    reply = client.must(OpenGroup("g", list(queues), pattern, may_rebind=may_rebind))
    assert isinstance(reply, GroupOpened)
    return reply


def positions(group: GroupOpened) -> dict[int, int]:
    return {member.incarnation: member.acked for member in group.members}


def ranges(reply: object) -> dict[bytes, tuple[int, int]]:
    """Return (start, end) of the range of each queue in a reply."""
    assert isinstance(reply, Reserved), reply
    return {part.queue: (part.start, part.end) for part in reply.members}


def ends(reply: object) -> dict[int, int]:
    assert isinstance(reply, Reserved), reply
    return {part.incarnation: part.end for part in reply.members}


# -- which queues ----------------------------------------------------------------------------------


def test_a_pattern_names_durable_queues_whose_whole_name_matches(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A pattern selects durable queues whose whole name matches, no transient or exclusive ones."""
    node.declare(b"aa")
    node.declare(b"a-transient", durable=False)
    node.declare(b"a-exclusive", owner=object())
    group = opened(client, pattern="a|aa.?")
    assert [member.queue for member in group.members] == [b"a", b"aa"]


def test_no_group_reads_a_priority_queue(
    node: MemoryNode, client: MemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A pattern passes over one, also over one that comes later; answers and log name each once."""
    settings = QueueSettings(traits=QueueTraits(9))
    node.declare(b"q", settings=settings)
    reply = client.ask(OpenGroup("g", [b"a", b"q"]))
    assert isinstance(reply, ErrorReply)
    text = "queue 'q' is a priority queue: its messages have no common order"
    assert (reply.code, reply.text) == (PRECONDITION, text)
    group = opened(client, pattern="[a-q]")
    assert group.passed_over == [b"q"]
    node.declare(b"c", settings=settings)
    fill(node, b"c", 1)
    for passed_over in ([b"c", b"q"], []):
        reply = client.must(Reserve("g", group.epoch, positions(group), MANY, MANY))
        assert ranges(reply) == {b"a": (0, 0), b"b": (0, 0)}
        assert isinstance(reply, Reserved) and reply.passed_over == passed_over
    assert opened(client, pattern="[a-q]").passed_over == [b"c", b"q"]
    said = "reader group 'g' passes over priority queues that match its pattern: "
    assert [record.getMessage() for record in caplog.records] == [f"{said}'q'", f"{said}'c'"]


def test_queues_join_by_the_pattern_at_a_reserve_and_stay_over_a_crash(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A queue that joins is read from its first message, and after a crash in the same epoch."""
    group = opened(client, pattern="[a-c]")
    fill(node, b"a", 1)
    node.declare(b"c")
    fill(node, b"c", 2)
    first = client.must(Reserve("g", group.epoch, positions(group), MANY, MANY))
    assert ranges(first) == {b"a": (0, 2), b"b": (0, 0), b"c": (0, 3)}
    node = node.crash()
    client = MemoryClient(node)
    node.declare(b"d")
    again = client.must(Reserve("g", group.epoch, positions(group), MANY, MANY))
    assert ranges(again) == ranges(first)


def test_what_is_not_named_any_more_leaves_and_gives_back_what_it_held(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A queue that is not named leaves with its reservation, also after a crash, and may rejoin."""
    fill(node, b"a", 2)
    fill(node, b"b", 3)
    group = opened(client, b"a", b"b")
    client.must(Reserve("g", group.epoch, {}, MANY, MANY))
    assert node.vhost.queues[b"b"].ready_count == 0
    assert [member.queue for member in opened(client, b"a").members] == [b"a"]
    node = node.crash()
    assert node.vhost.queues[b"b"].ready_count == 3
    group = opened(MemoryClient(node), b"b", b"a", b"b")
    assert group.members == [Member(b"a", 1, 0, 3, 3, 1), Member(b"b", 2, 0, 0, 4, 2)]


def test_names_and_pattern_exclude_each_other_and_must_mean_something(client: MemoryClient) -> None:
    for request in (OpenGroup("g"), OpenGroup("g", [b"a"], "a"), OpenGroup("g", pattern="(")):
        assert client.refused(request) == BAD_REQUEST
    assert client.refused(OpenGroup("g", [b"a", b"nope"])) == NOT_FOUND
    assert client.must(ListGroups()) == GroupList([])


def test_no_pattern_holds_up_the_node(node: MemoryNode, client: MemoryClient) -> None:
    """Patterns match in linear time; a look-around is refused.

    A backtracking matcher takes 2^200 steps for this pattern, and only such a matcher has
    look-arounds.
    """
    node.declare(b"x" * 200 + b"y")
    node.declare(b"x" * 200)
    group = opened(client, pattern="(x+)+")
    assert [member.queue for member in group.members] == [b"x" * 200]
    assert client.refused(OpenGroup("h", pattern="(?=a)b")) == BAD_REQUEST


def test_a_group_has_a_limit(node: MemoryNode, client: MemoryClient) -> None:
    """A group has at most MEMBERS_MAX queues: a request names a position for each, and is small."""
    for number in range(MEMBERS_MAX):
        node.declare(b"many-%d" % number)
    group = opened(client, pattern="many.*")
    reply = client.must(Reserve("g", group.epoch, positions(group), 10, 10, until=positions(group)))
    assert isinstance(reply, Reserved) and len(reply.members) == MEMBERS_MAX
    node.declare(b"many-more")
    assert client.refused(Reserve("g", group.epoch, {}, 10, 10)) == PRECONDITION
    assert client.refused(OpenGroup("h", pattern="many.*")) == PRECONDITION


def test_incarnations_of_others_are_refused(node: MemoryNode, client: MemoryClient) -> None:
    """A request that names another queue's incarnation is refused: its checkpoint is foreign."""
    group = opened(client, b"a")
    other = node.vhost.queues[b"b"].id
    for request in (
        Reserve("g", group.epoch, {other: 0}, 1, 1),
        Ack("g", group.epoch, {other: 0}),
        PlanRange("g", group.epoch, other, 0, 0, 10),
        Fetch("g", group.epoch, other, 0, 0, 10, 10),
    ):
        assert client.refused(request) == DATA_LOSS


# -- shares ----------------------------------------------------------------------------------------


def test_limits_are_shared_and_what_one_leaves_goes_to_the_others(
    node: MemoryNode, client: MemoryClient
) -> None:
    fill(node, b"a", 100)
    fill(node, b"b", 100)
    node.declare(b"c")
    fill(node, b"c", 3)
    group = opened(client, pattern=".")
    reply = client.must(Reserve("g", group.epoch, {}, 31, MANY))
    counts = {queue: max(0, end - 1) for queue, (_, end) in ranges(reply).items()}
    assert counts[b"c"] == 3 and sum(counts.values()) == 31
    assert {counts[b"a"], counts[b"b"]} == {14}


def test_a_limit_of_one_starves_nobody(node: MemoryNode, client: MemoryClient) -> None:
    fill(node, b"a", 10)
    fill(node, b"b", 10)
    group = opened(client, b"a", b"b")
    offset = positions(group)
    for _ in range(8):
        offset = ends(client.must(Reserve("g", group.epoch, offset, 1, MANY)))
    assert sorted(offset.values()) == [5, 5]


def test_bytes_are_exceeded_by_one_message_at_most(node: MemoryNode, client: MemoryClient) -> None:
    """A reserve exceeds its byte limit by one message at most, whatever the number of queues."""
    names = [b"n%d" % number for number in range(10)]
    for name in names:
        node.declare(name)
        fill(node, name, 3, size=1000)
    group = opened(client, *names)
    reply = client.must(Reserve("g", group.epoch, {}, MANY, 2500))
    assert sum(max(0, end - 1) for _, end in ranges(reply).values()) == 3


def test_the_same_request_again_gives_at_least_the_same(
    node: MemoryNode, client: MemoryClient
) -> None:
    """A request repeated after a lost answer gives the same ranges, although messages have come."""
    fill(node, b"a", 4)
    fill(node, b"b", 50)
    group = opened(client, b"a", b"b")
    request = Reserve("g", group.epoch, positions(group), 20, MANY)
    first = ranges(client.must(request))
    fill(node, b"a", 50)
    assert ranges(client.must(request)) == first
    more = ranges(client.must(Reserve("g", group.epoch, positions(group), 40, MANY)))
    assert all(more[queue][1] >= end for queue, (_, end) in first.items())


def test_until_leaves_out_what_it_does_not_name(node: MemoryNode, client: MemoryClient) -> None:
    fill(node, b"a", 5)
    fill(node, b"b", 5)
    group = opened(client, b"a", b"b")
    reply = client.must(Reserve("g", group.epoch, {}, MANY, MANY, until={1: 3}))
    assert ranges(reply) == {b"a": (0, 3), b"b": (0, 0)}


def test_acks_of_several_queues_are_one_call(node: MemoryNode, client: MemoryClient) -> None:
    fill(node, b"a", 5)
    fill(node, b"b", 5)
    group = opened(client, b"a", b"b")
    client.must(Reserve("g", group.epoch, {}, MANY, MANY))
    assert client.must(Ack("g", group.epoch, {1: 4, 2: 6})) == Acked({1: 4, 2: 6})
    node = node.crash()
    group = opened(MemoryClient(node), b"a", b"b")
    assert [(member.acked, member.reserved) for member in group.members] == [(4, 6), (6, 6)]
    assert MemoryClient(node).refused(Ack("g", group.epoch, {1: 6, 2: 7})) == DATA_LOSS


# -- waiting ---------------------------------------------------------------------------------------


def test_a_reserve_waits_for_so_many_messages_or_so_long(
    node: MemoryNode, client: MemoryClient
) -> None:
    """The wait for a minimum counts from the first message on, over several requests."""
    group = opened(client, b"a", b"b")
    request = Reserve("g", group.epoch, positions(group), 100, MANY, 10, 5000, 2000)
    fill(node, b"a", 4)
    client.send(request)
    node.clock.advance(1000)
    fill(node, b"b", 6)
    node.clock.advance(100)
    node.commit()
    (reply,) = client.replies()
    assert ranges(reply) == {b"a": (0, 5), b"b": (0, 7)}
    fill(node, b"b", 1)
    request = Reserve("g", group.epoch, ends(reply), 100, MANY, 10, 5000, 2000)
    answers = []
    for _ in range(3):
        client.send(request)
        node.commit()
        node.clock.advance(2000)
        node.commit()
        answers += [
            sum(end - start for start, end in ranges(reply).values()) for reply in client.replies()
        ]
    assert answers == [0, 0, 1]
    # Repeat the request as if its answer were lost.
    again = client.must(request)
    assert sum(end - start for start, end in ranges(again).values()) == 1


@pytest.mark.parametrize("is_lazy", [False, True])
def test_what_lies_below_a_group_is_none_of_its_messages(
    node: MemoryNode, client: MemoryClient, is_lazy: bool
) -> None:
    """Messages below a group's start count neither for the minimum of a reserve nor as lag."""
    node.vhost.queues[b"a"].backing.memory.set_mode(is_lazy)
    fill(node, b"a", 20)
    node.commit()
    node.work()
    node.clock.advance(10_000)
    group = client.must(OpenGroup("g", [b"a"], start="latest"))
    assert isinstance(group, GroupOpened)
    status = status_of(client)
    assert (status.lag, status.lag_seconds) == (0, 0)
    fill(node, b"a", 1)
    node.commit()
    node.work()
    request = Reserve("g", group.epoch, {}, 100, MANY, 10, 5000, 2000)
    assert ranges(client.must(request)) == {b"a": (21, 21)}
    status = status_of(client)
    assert status.lag == 1 and 2 <= status.lag_seconds < 3
    fill(node, b"a", 9)
    node.commit()
    node.work()
    assert ranges(client.must(request)) == {b"a": (21, 31)}
    assert status_of(client).lag == 10


def test_a_message_in_any_queue_ends_the_wait(node: MemoryNode, client: MemoryClient) -> None:
    group = opened(client, b"a", b"b")
    for queue in (b"a", b"b"):
        client.send(Reserve("g", group.epoch, {}, 100, MANY, wait_ms=2000))
        node.clock.advance(1000)
        assert client.replies() == []
        fill(node, queue, 1)
        node.clock.advance(0)
        node.commit()
        (reply,) = client.replies()
        group = opened(client, b"a", b"b")
        client.must(Ack("g", group.epoch, ends(reply)))
    for queue in (b"a", b"b"):
        assert node.vhost.queues[queue].demand.ready_watchers == []


# -- deleted queues --------------------------------------------------------------------------------


def test_a_queue_that_was_read_to_its_end_may_go(node: MemoryNode, client: MemoryClient) -> None:
    """With a pattern, the deletion of a fully read queue is no loss, before and after a crash.

    The group knows the queue's last position until no request names it.
    """
    fill(node, b"a", 3)
    group = opened(client, pattern="[ab]")
    offset = ends(client.must(Reserve("g", group.epoch, positions(group), MANY, MANY)))
    client.must(Ack("g", group.epoch, offset))
    node.delete(b"a")
    for _ in range(2):
        client = MemoryClient(node)
        assert ranges(client.must(Reserve("g", group.epoch, offset, MANY, MANY))) == {b"b": (0, 0)}
        assert client.must(PlanRange("g", group.epoch, 1, 4, 4, 10)) == RangePlan([])
        assert client.refused(Reserve("g", group.epoch, {1: 3}, MANY, MANY)) == DATA_LOSS
        assert [member.queue for member in opened(client, pattern="[ab]").members] == [b"a", b"b"]
        node = node.crash()
        group = opened(MemoryClient(node), pattern="[ab]")
    client = MemoryClient(node)
    client.must(Reserve("g", group.epoch, {2: 0}, MANY, MANY))
    node.commit()
    assert client.refused(Reserve("g", group.epoch, offset, MANY, MANY)) == DATA_LOSS
    assert set(node.disk.members) == {(b"g", 2)}


def test_what_others_have_of_a_deleted_queue(node: MemoryNode, client: MemoryClient) -> None:
    """A consumer's message would have come back; what a group has is the loss of that group."""
    for name in (b"a", b"b"):
        fill(node, name, 1)
    group = opened(client, pattern="[ab]")
    other = client.must(OpenGroup("other", [b"a"]))
    assert isinstance(other, GroupOpened)
    client.must(Reserve("other", other.epoch, {1: 0}, MANY, MANY))
    node.vhost.queues[b"b"].get(False, node.clock.now_ms())
    node.delete(b"a")
    assert client.refused(Reserve("other", other.epoch, {1: 0}, MANY, MANY)) == DATA_LOSS
    offset = positions(group)
    assert ranges(client.must(Reserve("g", group.epoch, offset, MANY, MANY))) == {b"b": (0, 0)}
    node.delete(b"b")
    assert client.refused(Reserve("g", group.epoch, offset, MANY, MANY)) == DATA_LOSS


def test_a_range_of_which_nothing_is_left_is_acked_when_its_queue_has_ended(
    node: MemoryNode, client: MemoryClient
) -> None:
    """An empty range is acked after its queue is deleted.

    A crash between the definition and the messages of an unanswered reserve leaves an empty range.
    """
    group = opened(client, pattern="[ab]")
    fill(node, b"a", 1)
    client.send(Reserve("g", group.epoch, positions(group), MANY, MANY))
    node.commit(ok=False, is_torn=True)
    node = node.crash()
    client = MemoryClient(node)
    group = opened(client, pattern="[ab]")
    (of_a, _) = group.members
    assert (of_a.acked, of_a.reserved) == (0, 2)
    node.delete(b"a")
    assert client.must(Ack("g", group.epoch, {1: 1})) == Acked({1: 1})
    assert client.must(Ack("g", group.epoch, {1: 2})) == Acked({1: 2})
    assert client.refused(Ack("g", group.epoch, {1: 3})) == DATA_LOSS
    assert ranges(client.must(Reserve("g", group.epoch, {1: 2}, MANY, MANY))) == {b"b": (0, 0)}


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("pattern", ["", "[ab]"])
def test_a_queue_that_goes_with_messages_is_a_loss_until_somebody_accepts_it(
    node: MemoryNode, client: MemoryClient, pattern: str, is_held: bool
) -> None:
    """Every call refuses a lost queue, after a crash too, until a call accepts the loss."""
    names = () if pattern else (b"a", b"b")
    fill(node, b"a", 3)
    group = opened(client, *names, pattern=pattern)
    if is_held:
        client.must(Reserve("g", group.epoch, positions(group), MANY, MANY))
    node.delete(b"a")
    node.declare(b"a")
    for _ in range(2):
        assert client.refused(Reserve("g", group.epoch, positions(group), MANY, MANY)) == DATA_LOSS
        assert client.refused(OpenGroup("g", list(names), pattern)) == DATA_LOSS
        node = node.crash()
        client = MemoryClient(node)
    fill(node, b"a", 1)
    group = opened(client, *names, pattern=pattern, may_rebind=True)
    assert 1 not in positions(group)
    reply = client.must(Reserve("g", group.epoch, positions(group), MANY, MANY))
    assert ranges(reply) == {b"a": (0, 2), b"b": (0, 0)}


@pytest.mark.parametrize("pattern", ["", "[ab]"])
def test_a_queue_whose_master_moves_is_read_there(
    node: MemoryNode, client: MemoryClient, pattern: str
) -> None:
    """This node refuses it as moved, reads the others, and knows its position if it comes back."""
    names = () if pattern else (b"a", b"b")
    fill(node, b"a", 3)
    group = opened(client, *names, pattern=pattern)
    offset = ends(client.must(Reserve("g", group.epoch, positions(group), MANY, MANY)))
    queue = node.vhost.queues[b"a"]
    remote = node.vhost.new_remote_queue(queue.definition, b"other@host", 2)
    node.vhost.replace_taker(queue, remote, node.clock.now_ms())
    assert queue.ready_count == 3
    assert client.refused(Reserve("g", group.epoch, offset, MANY, MANY)) == MOVED
    if names:
        assert client.refused(OpenGroup("g", list(names))) == MOVED
    group = opened(client, *names[1:], pattern=pattern)
    assert set(positions(group)) == {2}
    node.vhost.replace_taker(remote, queue, node.clock.now_ms())
    assert (queue.ready_count, queue.unacked_count) == (0, 3)
    client.must(Ack("g", group.epoch, offset))
    assert queue.unacked_count == 0


def test_a_waiting_reserve_learns_that_one_of_its_queues_goes(
    node: MemoryNode, client: MemoryClient
) -> None:
    group = opened(client, b"a", b"b")
    client.send(Reserve("g", group.epoch, {}, 100, MANY, wait_ms=2000))
    node.delete(b"b")
    node.clock.advance(0)
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == DATA_LOSS and "'b'" in reply.text


@pytest.mark.parametrize("is_committing", [False, True])
def test_a_reserve_goes_on_without_a_queue_that_ends_meanwhile(
    node: MemoryNode, client: MemoryClient, is_committing: bool
) -> None:
    """With a pattern, a reserve that waits for messages or disk survives a queue's deletion."""
    group = opened(client, pattern="[ab]")
    if is_committing:
        fill(node, b"b", 1)
    client.send(Reserve("g", group.epoch, positions(group), 100, MANY, wait_ms=2000))
    node.delete(b"a")
    node.clock.advance(0)
    if not is_committing:
        fill(node, b"b", 1)
    node.clock.advance(0)
    node.commit()
    (reply,) = client.replies()
    assert ranges(reply) == {b"b": (0, 2)}


@pytest.mark.parametrize("is_lazy", [False, True])
def test_two_groups_never_hold_one_range(
    node: MemoryNode, client: MemoryClient, is_lazy: bool
) -> None:
    """A second group gets nothing at or behind the first group's reservation until its release."""
    node.vhost.queues[b"a"].backing.memory.set_mode(is_lazy)
    first = opened(client, b"a")
    second = client.must(OpenGroup("h", [b"a"]))
    assert isinstance(second, GroupOpened)
    fill(node, b"a", 4)
    node.work()
    held = client.must(Reserve("g", first.epoch, positions(first), 2, MANY))
    assert ranges(held) == {b"a": (0, 3)}
    assert ranges(client.must(Reserve("h", second.epoch, positions(second), 2, MANY))) == {
        b"a": (0, 0)
    }
    client.must(DeleteGroup("g"))
    reply = client.must(Reserve("h", second.epoch, positions(second), 3, MANY))
    assert ranges(reply) == {b"a": (0, 4)}


# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_lazy", [False, True])
def test_a_time_is_found_wherever_the_messages_are(
    node: MemoryNode, client: MemoryClient, is_lazy: bool
) -> None:
    """A time is found in memory and on disk, in gaps, before the first message, after the last."""
    queue = node.declare(b"timed")
    queue.backing.memory.set_mode(is_lazy)
    times = []
    for number in range(500):
        node.clock.time_ms += 10 * (number % 3)
        times.append(node.clock.time_ms)
        node.publish(b"timed", b"%d" % number)
    node.commit()
    node.work()
    assert (queue.backing.ready.delta.count > 0) == is_lazy
    for ms in (0, times[0], times[0] + 1, times[250], times[333] - 1, times[499], times[499] + 1):
        reply = client.must(SeekTime(b"timed", queue.id, ms))
        assert isinstance(reply, TimeSought)
        first = next((seq for seq, at in enumerate(times, 1) if at >= ms), 501)
        found = next((seq for seq in range(max(1, reply.seq), 501)), 501)
        assert found == first, ms
    assert client.refused(SeekTime(b"timed", 99, 0)) == DATA_LOSS


def test_a_group_may_begin_at_a_time_at_the_end_or_at_a_place(
    node: MemoryNode, client: MemoryClient
) -> None:
    """The start of a group applies only to queues that join."""
    fill(node, b"a", 5)
    node.clock.time_ms += 1000
    now_ms = node.clock.time_ms
    fill(node, b"a", 5)
    fill(node, b"b", 2)
    timed = client.must(OpenGroup("timed", [b"a", b"b"], start=now_ms))
    assert isinstance(timed, GroupOpened) and [member.acked for member in timed.members] == [6, 1]
    latest = client.must(OpenGroup("latest", pattern="[ab]", start="latest", start_at={"b": 2}))
    assert isinstance(latest, GroupOpened) and [member.acked for member in latest.members] == [
        11,
        2,
    ]
    again = client.must(OpenGroup("latest", pattern="[ab]"))
    assert isinstance(again, GroupOpened) and [member.acked for member in again.members] == [11, 2]
    beyond = client.must(OpenGroup("beyond", [b"a"], start_at={"a": 1000}))
    assert isinstance(beyond, GroupOpened) and beyond.members[0].acked == 11


def test_a_group_of_a_thousand_queues_begins_at_a_time(
    client: MemoryClient, node: MemoryNode
) -> None:
    for number in range(MEMBERS_MAX):
        name = b"many.%d" % number
        node.declare(name)
        node.publish(name, b"early")
    node.clock.time_ms += 1000
    group = client.must(OpenGroup("g", pattern=r"many\..*", start=node.clock.time_ms))
    assert isinstance(group, GroupOpened)
    assert [member.acked for member in group.members] == [2] * MEMBERS_MAX


# -- figures ---------------------------------------------------------------------------------------


def status_of(client: MemoryClient) -> GroupStatus:
    reply = client.must(ListGroups())
    assert isinstance(reply, GroupList)
    return reply.groups[0]


@pytest.mark.parametrize("is_lazy", [False, True])
def test_lag_in_messages_and_seconds(node: MemoryNode, client: MemoryClient, is_lazy: bool) -> None:
    """The lag counts messages that are reserved, in memory, or on disk."""
    node.vhost.queues[b"a"].backing.memory.set_mode(is_lazy)
    for _ in range(5):
        node.publish(b"a", b"x")
        node.clock.time_ms += 1000
    node.commit()
    node.work()
    group = opened(client, pattern="[ab]")
    first_ms = node.clock.time_ms - 5000
    status = status_of(client)
    assert (status.pattern, status.held, status.lag) == ("[ab]", 0, 5)
    # The broker measures the lag during the request, which takes a moment.
    assert status.lag_seconds == pytest.approx((node.clock.time_ms - first_ms) / 1000, abs=0.1)
    client.must(Reserve("g", group.epoch, {1: 0}, 3, MANY))
    client.must(Ack("g", group.epoch, {1: 2}))
    a, b = status_of(client).members
    assert (a.held, a.lag, b.lag, b.lag_seconds) == (2, 4, 0, 0)
    assert a.lag_seconds == pytest.approx((node.clock.time_ms - first_ms - 1000) / 1000, abs=0.1)
    listed = client.must(ListQueues())
    assert isinstance(listed, QueueList)
    (share,) = listed.queues[0].groups
    assert (share.group, share.held, share.lag) == ("g", 2, 4)
    described = client.must(DescribeNode())
    assert isinstance(described, NodeStatus)
    (vhost,) = described.vhosts
    assert (vhost.groups, vhost.group_held, vhost.group_lag) == (1, 2, 4)
