"""Reader groups on a real queue: ranges, limits, slices, fencing, and unity after a crash."""

import pytest

from tests.support.brokers.dead_letters import TO_DEAD
from tests.support.brokers.memory_node import NO_EXPIRATION, MemoryDisk, MemoryNode
from warrenmq.queues.backing.variable_queue import LOADING
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group import GROUP_SLICE_MESSAGES, GroupMember
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import ReaderGroup
from warrenmq.queues.readers.planned_range import PlannedRange
from warrenmq.queues.readers.reservation import EVERYTHING, MORE, Reservation
from warrenmq.queues.settings import DROP_HEAD, NO_LIMIT, LengthLimit, QueueSettings
from warrenmq.store.model.message import Message
from warrenmq.vocabulary.error_codes import DATA_LOSS, FENCED, MOVED, NOT_FOUND, PRECONDITION

NOW_MS = 1_700_000_000_000


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return node


def never_loads() -> None:
    raise AssertionError("everything is in memory")


def fill(node: MemoryNode, count: int, size: int = 10, persistent: bool = True) -> Queue:
    for number in range(count):
        node.publish(b"q", b"%0*d" % (size, number), persistent)
    return node.vhost.queues[b"q"]


def open_as(
    node: MemoryNode,
    name: bytes,
    queue: Queue,
    from_latest: bool = False,
    may_rebind: bool = False,
    opener: str = "",
) -> ReaderGroup:
    starts = {queue.id: queue.next_seq} if from_latest else {}
    return node.groups.reader_groups.open(name, opener, [queue], "", starts, may_rebind, NOW_MS)


def open_group(node: MemoryNode, name: bytes = b"g", from_latest: bool = False) -> GroupMember:
    """Open a group with one member; returns the member."""
    queue = node.vhost.queues[b"q"]
    return open_as(node, name, queue, from_latest).members[queue.id]


def reserve(
    group: GroupMember,
    start: int,
    max_messages: int = EVERYTHING,
    max_bytes: int = EVERYTHING,
    until: int = EVERYTHING,
    barrier: int = EVERYTHING,
) -> Reservation:
    reservation = Reservation(start, until, max_messages, max_bytes)
    while group.reserve_slice(reservation, True, barrier, NOW_MS, never_loads) == MORE:
        pass
    group.check()
    return reservation


def ack(group: GroupMember, end: int) -> int:
    """Ack up to `end`; returns the number of slices."""
    slices = 1
    while group.ack_slice(end, NOW_MS):
        group.check()
        slices += 1
    group.check()
    return slices


def seqs(group: GroupMember, start: int, end: int) -> list[int]:
    return [entry.seq for entry in group.fetch(start, end, EVERYTHING, EVERYTHING)]


def refusal(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(GroupError) as caught:
        call(*arguments)
    return caught.value.code


def test_reserve_takes_messages_out_of_reach_of_consumers(node: MemoryNode) -> None:
    """A reserved message is neither ready nor delivered to anyone else."""
    queue = fill(node, 5)
    group = open_group(node)
    reservation = reserve(group, 0, max_messages=3)
    assert (reservation.end, queue.ready_count, queue.unacked_count) == (4, 2, 3)
    entry = queue.get(True, NOW_MS)
    assert entry is not None and entry.seq == 4


def test_reserve_stops_at_each_limit(node: MemoryNode) -> None:
    """Messages, bytes and the target position each end a range; the first message always fits."""
    fill(node, 10, size=1000)
    group = open_group(node)
    assert reserve(group, 0, max_messages=2).end == 3
    assert reserve(group, 3, max_bytes=2500).message_count == 2
    position = group.reserved
    assert reserve(group, position, max_bytes=1).end == position + 1
    assert reserve(group, position + 1, until=position + 2).end == position + 2


def test_reserve_more_than_one_slice_takes_everything(node: MemoryNode) -> None:
    """A reserve works in slices and still ends at the end of the queue."""
    count = 2 * GROUP_SLICE_MESSAGES + 100
    fill(node, count)
    group = open_group(node)
    reservation = Reservation(0, EVERYTHING, EVERYTHING, EVERYTHING)
    slices = 1
    while group.reserve_slice(reservation, True, EVERYTHING, NOW_MS, never_loads) == MORE:
        slices += 1
    assert (reservation.message_count, reservation.end) == (count, count + 1)
    assert slices == 3
    assert ack(group, count + 1) == 3
    assert node.vhost.queues[b"q"].unacked_count == 0


def test_reserve_repeated_from_the_same_start_gives_the_same_messages_first(
    node: MemoryNode,
) -> None:
    """A lost answer is repeated, and smaller limits cut within the reserved range."""
    fill(node, 10)
    group = open_group(node)
    assert reserve(group, 0, max_messages=6).end == 7
    assert reserve(group, 0, max_messages=6).end == 7
    assert reserve(group, 0, max_messages=4).end == 5
    assert reserve(group, 0).end == 11
    assert seqs(group, 0, 11) == list(range(1, 11))


def test_reserve_stops_before_a_message_somebody_else_has_unacked(node: MemoryNode) -> None:
    """A message that may come back must not lie inside a reserved range."""
    queue = fill(node, 5)
    queue.get(False, NOW_MS)
    group = open_group(node)
    assert reserve(group, 0, barrier=1).message_count == 0
    assert reserve(group, 0, barrier=4).end == 4


def test_reserve_stops_before_a_dead_letter_that_is_on_its_way(node: MemoryNode) -> None:
    """A crash would bring it back into the range."""
    node.declare(b"dead")
    node.declare(b"from", settings=TO_DEAD)
    queue = node.vhost.queues[b"from"]
    for body, expiration in ((b"a", 5), (b"b", NO_EXPIRATION)):
        message = Message(b"\x00\x04from", b"\x00\x00", body, True, NOW_MS)
        queue.publish(message, expiration, NOW_MS - 10)
    node.commit()
    group = open_as(node, b"g", queue).members[queue.id]
    assert reserve(group, 0).message_count == 0
    node.work()
    node.commit()
    reservation = reserve(group, 0)
    assert (reservation.message_count, reservation.end) == (1, 3)


def test_fetch_may_be_repeated_and_is_bounded(node: MemoryNode) -> None:
    """Fetch repeats the same messages any number of times, within its limits, at least one."""
    fill(node, 10, size=100)
    group = open_group(node)
    reserve(group, 0)
    for _ in range(3):
        assert seqs(group, 3, 8) == [3, 4, 5, 6, 7]
    assert [entry.seq for entry in group.fetch(3, 8, 2, EVERYTHING)] == [3, 4]
    assert [entry.seq for entry in group.fetch(3, 8, EVERYTHING, 1)] == [3]
    assert group.fetch(5, 5, 1, 1) == []


def test_ack_is_monotone_and_may_be_repeated(node: MemoryNode) -> None:
    """A lower or equal position changes nothing and is no error; one above reserved is an error."""
    queue = fill(node, 10)
    group = open_group(node)
    reserve(group, 0, max_messages=6)
    for end in (4, 4, 2):
        ack(group, end)
        assert group.acked == 4
    assert seqs(group, 4, 7) == [4, 5, 6]
    assert queue.unacked_count == 3
    assert refusal(group.ack_slice, 8, NOW_MS) == DATA_LOSS


def test_positions_outside_of_the_held_range_are_data_loss(node: MemoryNode) -> None:
    """Messages below acked are gone, and those above reserved were never promised."""
    fill(node, 10)
    group = open_group(node)
    reserve(group, 0, max_messages=6)
    ack(group, 4)
    assert refusal(group.fetch, 3, 5, 1, 1) == DATA_LOSS
    assert refusal(group.fetch, 5, 8, 1, 1) == DATA_LOSS
    assert refusal(group.fetch, 6, 5, 1, 1) == PRECONDITION
    assert refusal(group.check_start, 3) == DATA_LOSS
    assert refusal(group.check_start, 8) == DATA_LOSS


def test_slices_lie_at_multiples_and_skip_what_is_empty(node: MemoryNode) -> None:
    """Slices depend on the range alone, and gaps get no slice."""
    queue = fill(node, 100)
    for _ in range(30):
        queue.get(True, NOW_MS)
    group = open_group(node)
    reserve(group, 0)
    found = PlannedRange(group, 0, 101, False).slices(16)
    assert [(start, end, count) for start, end, count, _ in found] == [
        (16, 32, 1),
        (32, 48, 16),
        (48, 64, 16),
        (64, 80, 16),
        (80, 96, 16),
        (96, 101, 5),
    ]
    assert sum(size for *_, size in found) == sum(
        len(e.message.body) + 5 for e in group.reserved_entries
    )
    ack(group, 40)
    assert refusal(PlannedRange, group, 0, 101, False) == DATA_LOSS
    assert [part[:2] for part in PlannedRange(group, 0, 200, True).slices(64)] == [
        (40, 64),
        (64, 101),
    ]


def test_newest_opener_wins_and_older_epochs_are_refused_by_name(node: MemoryNode) -> None:
    """Opening fences off the previous opener, and the refusal names the new one."""
    fill(node, 3)
    groups = node.groups.reader_groups
    queue = node.vhost.queues[b"q"]
    first = open_as(node, b"g", queue, opener="the first")
    epoch = first.epoch
    first.expect(epoch)
    open_as(node, b"g", queue, opener="the second")
    with pytest.raises(GroupError, match="the second") as caught:
        groups.get(b"g").expect(epoch)
    assert caught.value.code == FENCED


def test_opening_keeps_positions_and_latest_counts_only_at_creation(node: MemoryNode) -> None:
    """A group continues from its positions, whatever start is requested."""
    fill(node, 4)
    group = open_group(node, from_latest=True)
    assert (group.acked, group.reserved) == (5, 5)
    fill(node, 2)
    assert reserve(group, 5).end == 7
    ack(group, 6)
    again = open_group(node, from_latest=True)
    assert (again.acked, again.reserved) == (6, 7)
    assert node.vhost.queues[b"q"].ready_count == 4


def test_open_refuses_what_cannot_work(node: MemoryNode) -> None:
    """A transient queue is refused, and so is a second group while one has reserved messages."""
    transient = node.declare(b"transient", durable=False)
    assert refusal(open_as, node, b"t", transient) == PRECONDITION
    queue = fill(node, 2)
    group = open_group(node)
    reserve(group, 0)
    assert refusal(open_as, node, b"h", queue) == PRECONDITION
    ack(group, 3)
    open_as(node, b"h", queue)


def test_a_queue_declared_anew_is_another_one(node: MemoryNode) -> None:
    """Reading continues only if the opener accepts the loss, from the start of the new queue."""
    fill(node, 5)
    group = open_group(node)
    reserve(group, 0)
    ack(group, 3)
    incarnation = group.queue_id
    node.commit()
    node.delete(b"q")
    assert node.vhost.journal.live_bytes() == 0
    assert refusal(group.expect_queue, NOW_MS) == DATA_LOSS
    assert group.reserved_entries == []
    queue = node.declare(b"q")
    fill(node, 2)
    assert refusal(open_as, node, b"g", queue) == DATA_LOSS
    opened = open_as(node, b"g", queue, may_rebind=True)
    assert refusal(opened.member, incarnation) == DATA_LOSS
    member = opened.member(queue.id)
    assert (member.acked, member.reserved) == (0, 0)
    assert reserve(member, 0).end == 3


def test_delete_returns_messages_to_their_places(node: MemoryNode) -> None:
    """Reserved messages are ready again, in order, and every use of the group fails."""
    queue = fill(node, 5)
    group = open_group(node)
    reserve(group, 0, max_messages=4)
    ack(group, 2)
    groups = node.groups.reader_groups
    whole = groups.get(b"g")
    groups.delete(b"g", NOW_MS)
    assert [entry.seq for entry in queue.backing.peek(0, 10, EVERYTHING)] == [2, 3, 4, 5]
    assert queue.unacked_count == 0
    assert refusal(groups.get, b"g") == NOT_FOUND
    assert refusal(whole.expect, whole.epoch) == NOT_FOUND


def test_recover_holds_the_live_messages_of_the_range_again(node: MemoryNode) -> None:
    """After a crash [acked, reserved) is reserved, transient messages too; the rest is ready."""
    fill(node, 3)
    fill(node, 3, persistent=False)
    fill(node, 3)
    group = open_group(node)
    reserve(group, 0, max_messages=5)
    ack(group, 3)
    node.commit()
    restarted = node.crash()
    queue = restarted.vhost.queues[b"q"]
    group_again = ReaderGroup(b"g", 7, "")
    group_again.recover_member(queue.id, b"q", 0, 3, 6, False, queue)
    recovered = group_again.member(queue.id)
    recovered.check()
    assert seqs(recovered, 3, 6) == [3, 4, 5]
    # Message 6 was transient and not reserved.
    assert [entry.seq for entry in queue.backing.peek(0, 10, EVERYTHING)] == [7, 8, 9]


def attach(queue: Queue, acked: int, reserved: int) -> GroupMember:
    """The member of a group that had reserved a range before."""
    member = GroupMember(b"g", queue.name, queue.id, queue.incarnation, acked, reserved)
    member.attach(queue)
    return member


def turns_to_attach(node: MemoryNode, member: GroupMember) -> list[int]:
    """End turns until the member has its range again; returns the messages of each turn."""
    counts = [len(member.reserved_entries)]
    while member.is_attaching:
        node.vhost.advance(node.clock.now_ms())
        counts.append(len(member.reserved_entries) - sum(counts))
        member.check()
    return counts


def test_a_large_range_is_reserved_again_in_bounded_slices(node: MemoryNode) -> None:
    """Meanwhile nobody gets a message, and publishes go on."""
    count = 4 * GROUP_SLICE_MESSAGES + 10
    queue = fill(node, count + 2)
    member = attach(queue, 1, count + 1)
    assert member.is_attaching
    assert queue.get(True, NOW_MS) is None
    fill(node, 1)
    counts = turns_to_attach(node, member)
    assert max(counts) <= GROUP_SLICE_MESSAGES
    assert sum(counts) == count
    entry = queue.get(True, NOW_MS)
    assert entry is not None and entry.seq == count + 1
    assert (queue.ready_count, queue.unacked_count) == (2, count)


def test_a_range_that_is_reserved_again_expires_no_more_and_is_not_dropped(
    node: MemoryNode,
) -> None:
    """The rest of it is ready for some turns, and must not leave by the rules of ready messages."""
    count = 3 * GROUP_SLICE_MESSAGES
    queue = fill(node, count)
    member = attach(queue, 1, count + 1)
    queue.apply(QueueSettings(limit=LengthLimit(1, NO_LIMIT, DROP_HEAD)))
    assert queue.head_state(NOW_MS) == LOADING
    assert sum(turns_to_attach(node, member)) == count


def test_a_member_that_attaches_lets_go_and_attaches_anew(node: MemoryNode) -> None:
    """A master may be deposed and lead again before it had everything."""
    count = 3 * GROUP_SLICE_MESSAGES
    queue = fill(node, count)
    member = attach(queue, 1, count + 1)
    member.detach(NOW_MS)
    assert not member.is_attaching and not queue.demand.awaits_older
    left = queue.ready_count
    member.attach(queue)
    assert sum(turns_to_attach(node, member)) == left
    assert not queue.demand.awaits_older


def test_two_groups_attach_to_one_queue(node: MemoryNode) -> None:
    """Deliveries wait for the slower one."""
    count = 3 * GROUP_SLICE_MESSAGES
    queue = fill(node, count)
    one = attach(queue, 1, count - 9)
    other = attach(queue, count - 9, count + 1)
    assert not other.is_attaching and queue.demand.awaits_older
    turns_to_attach(node, one)
    assert (queue.ready_count, len(other.reserved_entries)) == (0, 10)


def test_recover_without_the_queue_tells_of_the_loss() -> None:
    """A group stays when its queue is gone, so that its reader learns of the loss."""
    group = ReaderGroup(b"g", 2, "")
    group.recover_member(17, b"q", 0, 3, 6, False, None)
    assert refusal(group.member(17).expect_queue, NOW_MS) == DATA_LOSS


def test_every_call_counts_as_use_of_the_queue(node: MemoryNode) -> None:
    """A queue with x-expires does not expire while a reader uses it."""
    queue = fill(node, 1)
    group = open_group(node)
    group.expect_queue(NOW_MS + 5000)
    assert queue.last_used_ms == NOW_MS + 5000


def test_nobody_reads_while_the_cluster_decides_that_the_queue_goes(node: MemoryNode) -> None:
    queue = fill(node, 1)
    group = open_group(node)
    source = queue.confirm_source = ConfirmSource()
    source.is_leaving = True
    assert refusal(group.expect_queue, NOW_MS + 5000) == MOVED
    source.is_leaving = False
    assert group.expect_queue(NOW_MS + 5000) is queue
