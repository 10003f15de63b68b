"""Reader groups of a mirrored queue: its copies have what the master has told a reader."""

import dataclasses
from collections.abc import Callable
from random import Random

import msgspec
import pytest

from simulator.simulated.file_system import POWER
from tests.admin.readers.test_on_disk import PausedNode
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import OneQueue, end_of, one_queue, open_one
from warrenmq.admin.protocol.requests import (
    DeleteGroup,
    ErrorReply,
    Fetch,
    Fetched,
    GroupList,
    GroupOpened,
    ListGroups,
    OpenGroup,
    Request,
    Reserved,
)
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.queues.confirm_source import ConfirmSource
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.mirror.ring_feed import RingFeed, next_start
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.settings import QueueSettings
from warrenmq.store.journal.confirm_run import ConfirmParty
from warrenmq.vocabulary.error_codes import DATA_LOSS, FENCED, MOVED, STORAGE_FAILED

BIRTH = 40
COUNT = 30


def definition(node: MemoryNode) -> QueueDefinition:
    queue_id = node.broker.next_queue_id()
    return QueueDefinition(b"q", queue_id, True, False, None, b"", QueueSettings(), BIRTH)


class Copy:
    """A node with a copy of the queue `q`, of which it is the master from `lead` on."""

    def __init__(self, other_queues: int = 0) -> None:
        self.node = MemoryNode(MemoryDisk())
        for number in range(other_queues):
            self.node.declare(b"other%d" % number)
        wanted = definition(self.node)
        self.queue = self.node.vhost.add_hidden_queue(wanted, self.node.clock.now_ms())
        self.store_row()
        # What the other copies get.
        self.feed: RingFeed | None = None
        self.epoch = 0
        self.open()

    def store_row(self) -> None:
        row = PutQueue(b"/", self.queue.id, b"q", True, False, b"", group=b"{}", birth=BIRTH)
        self.node.vhost.store_changes([row], True)
        self.node.commit()

    def open(self) -> None:
        """Let the operations of a master be applied."""
        self.applier = MirrorApplier(self.queue)
        self.applier.reopen(lambda: None)
        self.node.work()

    def crash(self) -> None:
        """Start the node again, with what it had synced."""
        self.node = self.node.crash()
        self.queue = self.node.vhost.queues_by_id[self.queue.id]
        self.open()

    def lead(self, epoch: int, is_complete: bool = True) -> None:
        """Become the master of `epoch`."""
        vhost, now_ms = self.node.vhost, self.node.clock.now_ms()
        remote = vhost.remote_queues.get(b"q")
        if remote is None:
            remote = vhost.add_remote_queue(self.queue.definition, b"other@host", epoch)
        self.feed = RingFeed(self.queue, lambda: None)
        self.epoch = epoch
        self.feed.begin(epoch, next_start(self.queue, 0))
        vhost.replace_taker(remote, self.queue, now_ms, is_complete)
        self.node.work()

    def step_down(self) -> None:
        """Be a copy again."""
        assert self.feed is not None
        vhost = self.node.vhost
        self.feed.end()
        remote = vhost.new_remote_queue(self.queue.definition, b"other@host", self.epoch + 1)
        vhost.replace_taker(self.queue, remote, self.node.clock.now_ms())
        self.open()

    def tell(self, *copies: "Copy") -> None:
        """Let `copies` have all that has happened here, on their disks."""
        assert self.feed is not None
        payload = self.feed.take(self.epoch)
        for copy in copies:
            if payload:
                copy.applier.apply(payload, copy.node.clock.now_ms())
            copy.node.commit()
            copy.node.work()

    @property
    def client(self) -> MemoryClient:
        return MemoryClient(self.node)


@pytest.fixture
def pair() -> tuple[Copy, Copy]:
    """A master with COUNT messages, and a mirror, on which the queue has another id."""
    master, mirror = Copy(), Copy(other_queues=3)
    master.lead(1)
    for number in range(COUNT):
        master.node.publish(b"q", b"%d" % number)
    master.tell(mirror)
    assert (mirror.queue.ready_count, mirror.queue.id) == (COUNT, 4)
    return master, mirror


def opened(copy: Copy, may_rebind: bool = False) -> OneQueue:
    return one_queue(copy.client.must(OpenGroup("g", [b"q"], may_rebind=may_rebind)))


def text_of(client: MemoryClient, request: Request, code: str) -> str:
    """The text of the refusal of `request`."""
    reply = client.ask(request)
    assert isinstance(reply, ErrorReply) and reply.code == code, reply
    return reply.text


def block(client: MemoryClient, group: OneQueue, start: int, end: int) -> tuple[int, int]:
    """Where the range's next fetch begins, and the size of its first block."""
    reply = client.must(
        Fetch(group.name, group.epoch, group.incarnation, start, end, COUNT, 1 << 20)
    )
    assert isinstance(reply, Fetched)
    return reply.next, len(reply.block)


def test_a_new_master_has_what_the_reader_was_told(pair: tuple[Copy, Copy]) -> None:
    """The same epoch, incarnation, ranges and rows, also if the node has crashed meanwhile."""
    master, mirror = pair
    group = opened(master)
    assert group.incarnation == BIRTH
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.client.must(group.ack(end - 4))
    second = end_of(master.client.must(group.reserve(end, 5)))
    rows = block(master.client, group, end, second)
    master.tell(mirror)
    assert text_of(mirror.client, group.reserve(end), MOVED).endswith("has become its master")
    mirror.crash()
    mirror.lead(2)
    client = mirror.client
    assert mirror.queue.unacked_count == 5, "all that was reserved is taken back"
    assert end_of(client.must(group.reserve(end, 5))) == second
    assert block(client, group, end, second) == rows
    client.must(group.ack(second))
    assert mirror.queue.ready_count == COUNT - 15
    third = end_of(client.must(group.reserve(second, 100)))
    assert third - second == COUNT - 15
    mirror.node.publish(b"q", b"of the new master")
    assert end_of(client.must(group.reserve(third, 100))) > third
    assert client.refused(dataclasses.replace(group, epoch=group.epoch - 1).ack(third)) == FENCED


@pytest.mark.parametrize("reads_more", [False, True])
def test_a_master_that_was_away_refuses_what_it_has_no_more(
    pair: tuple[Copy, Copy], reads_more: bool
) -> None:
    """It died and dropped its copy; readers that have missed that are sent to the new master."""
    master, _ = pair
    group = opened(master)
    if reads_more:
        master.node.declare(b"r")
        reply = master.client.must(OpenGroup("g", [b"q", b"r"]))
        assert isinstance(reply, GroupOpened)
        group = dataclasses.replace(group, epoch=reply.epoch)
    end = group.reserved + 10
    master.client.must(group.reserve(0, 10))
    master.crash()
    vhost, now_ms = master.node.vhost, master.node.clock.now_ms()
    vhost.add_remote_queue(master.queue.definition, b"other@host", 2)
    vhost.remove_hidden_queue(master.queue, now_ms)
    for request in (
        group.reserve(end, 10),
        group.ack(end),
        Fetch(group.name, group.epoch, group.incarnation, 0, end, COUNT, 1 << 20),
    ):
        assert text_of(master.client, request, MOVED) == "queue 'q' is served by node other@host"


def test_a_deposed_master_follows_the_new_one(pair: tuple[Copy, Copy]) -> None:
    """What only the old master knew counts no more; a message is never in two hands."""
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.tell(mirror)
    lost = end_of(master.client.must(group.reserve(end, 10)))
    master.step_down()
    assert (master.queue.ready_count, master.queue.unacked_count) == (COUNT - 10, 0)
    assert text_of(master.client, group.reserve(lost), MOVED)
    mirror.lead(2)
    mirror.tell(master)
    assert mirror.client.refused(group.reserve(lost)) == DATA_LOSS, "no reader was told of it"
    assert end_of(mirror.client.must(group.reserve(end, 10))) == lost
    mirror.client.must(group.ack(lost))
    mirror.tell(master)
    mirror.step_down()
    master.lead(3)
    assert master.queue.ready_count == COUNT - 20
    assert end_of(master.client.must(group.reserve(lost, 100))) == lost + COUNT - 20


class Source(ConfirmSource):
    """The copies of a queue, which have a commit when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = ConfirmParty()
        self.is_short = False

    def party(self) -> ConfirmParty:
        return self.waiting

    def refuses(self) -> bool:
        return self.is_short

    def has_room(self) -> bool:
        return True

    def is_drained(self) -> bool:
        return True


REQUESTS: dict[str, Callable[[OneQueue, int], Request]] = {
    "open": lambda group, end: OpenGroup("g", [b"q"]),
    "reserve": lambda group, end: group.reserve(end, 10),
    "ack": lambda group, end: group.ack(end),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_an_answer_waits_for_the_copies_in_sync(pair: tuple[Copy, Copy], name: str) -> None:
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.tell(mirror)
    source = master.queue.confirm_source = Source()
    request = REQUESTS[name](group, end)
    source.is_short = True
    assert master.client.refused(request) == STORAGE_FAILED
    source.is_short = False
    for is_kept in (False, True):
        client = master.client
        client.send(request)
        master.node.commit()
        assert client.replies() == []
        master.tell(mirror)
        source.waiting.finish(is_kept)
        (reply,) = client.replies()
        assert isinstance(reply, ErrorReply) == (not is_kept)


def test_what_leaves_the_queue_leaves_its_copies(pair: tuple[Copy, Copy]) -> None:
    """A group that is deleted, or reads other queues, and a copy that is discarded."""
    master, mirror = pair
    other = open_one(master.client, "other")
    master.client.must(opened(master).reserve(0, 10))
    master.tell(mirror)
    assert set(mirror.node.disk.groups) == {b"g", b"other"}
    assert mirror.client.must(ListGroups()) == GroupList([])
    master.client.must(DeleteGroup("g"))
    master.tell(mirror)
    assert set(mirror.node.disk.groups) == {b"other"}
    master.client.must(OpenGroup("other", [], elsewhere=[b"not here"]))
    assert other.incarnation == BIRTH
    master.tell(mirror)
    assert mirror.node.disk.groups == {} and mirror.node.disk.members == {}
    opened(master)
    master.tell(mirror)
    mirror.node.vhost.remove_hidden_queue(mirror.queue, mirror.node.clock.now_ms())
    mirror.node.commit()
    assert mirror.node.disk.groups == {} and mirror.node.disk.members == {}


def test_a_group_that_moves_off_a_node_leaves_the_parts_in_its_copies(
    pair: tuple[Copy, Copy],
) -> None:
    """A reader opens the group at all nodes; those with a copy only have nothing to give up."""
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.tell(mirror)
    elsewhere = OpenGroup("g", [], elsewhere=[b"q"])
    assert mirror.client.must(elsewhere) == GroupOpened(0, [])
    wanted = OpenGroup("g", [b"other0"], elsewhere=[b"q"], epoch=group.epoch + 5)
    reply = mirror.client.must(wanted)
    assert isinstance(reply, GroupOpened) and reply.epoch == group.epoch + 5
    assert [member.queue for member in reply.members] == [b"other0"]
    assert mirror.client.must(elsewhere) == GroupOpened(0, [])
    mirror.crash()
    mirror.lead(2)
    newer = dataclasses.replace(group, epoch=group.epoch + 5)
    assert end_of(mirror.client.must(newer.reserve(0, 10))) == end


def test_a_reader_that_missed_a_move_does_not_make_the_group_leave_its_queue(
    pair: tuple[Copy, Copy],
) -> None:
    """It takes the new master for a node that has other queues of the group, or none."""
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.tell(mirror)
    mirror.lead(2)
    for queues in ([], [b"other0"]):
        for may_rebind in (False, True):
            request = OpenGroup("g", queues, may_rebind=may_rebind, elsewhere=[b"q"])
            assert mirror.client.refused(request) == MOVED
    assert end_of(mirror.client.must(group.reserve(0, 10))) == end


def test_a_copy_that_is_not_complete_is_data_loss_with_its_range(pair: tuple[Copy, Copy]) -> None:
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.client.must(group.ack(end - 2))
    master.tell(mirror)
    mirror.lead(2, is_complete=False)
    client = mirror.client
    for request in (group.reserve(end), group.ack(end), OpenGroup("g", [b"q"])):
        assert f"the range [{end - 2}, {end})" in text_of(client, request, DATA_LOSS)
    assert client.refused(OpenGroup("g", [], elsewhere=[b"q"])) == DATA_LOSS
    group = opened(mirror, may_rebind=True)
    assert end_of(client.must(group.reserve(0, 100))) > end


def lapsed(pair: tuple[Copy, Copy]) -> OneQueue:
    """The group as it was when an incomplete copy, the second one, took over."""
    master, mirror = pair
    group = opened(master)
    end = end_of(master.client.must(group.reserve(0, 10)))
    master.tell(mirror)
    mirror.lead(2, is_complete=False)
    mirror.node.commit()
    return dataclasses.replace(group, reserved=end)


def test_a_loss_is_kept_over_a_restart_of_the_node(pair: tuple[Copy, Copy]) -> None:
    """The copy is in sync when it leads again, and lacks the messages until somebody accepts it."""
    _, mirror = pair
    group = lapsed(pair)
    mirror.crash()
    mirror.lead(3)
    request = group.reserve(group.reserved)
    assert f"the range [0, {group.reserved})" in text_of(mirror.client, request, DATA_LOSS)
    assert mirror.client.refused(OpenGroup("g", [b"q"])) == DATA_LOSS
    opened(mirror, may_rebind=True)
    mirror.step_down()
    mirror.crash()
    mirror.lead(4)
    mirror.client.must(opened(mirror).reserve(0, 10))


def test_a_loss_goes_along_to_the_next_master(pair: tuple[Copy, Copy]) -> None:
    """Its copy is one of what the last master had, until somebody accepts the loss."""
    master, mirror = pair
    group = lapsed(pair)
    master.step_down()
    mirror.tell(master)
    mirror.step_down()
    master.crash()
    master.lead(3)
    request = group.reserve(group.reserved)
    assert f"the range [0, {group.reserved})" in text_of(master.client, request, DATA_LOSS)
    group = opened(master, may_rebind=True)
    master.tell(mirror)
    master.step_down()
    mirror.lead(4)
    mirror.client.must(opened(mirror).reserve(0, 10))


def test_a_queue_that_no_group_had_read_joins_with_its_new_master(pair: tuple[Copy, Copy]) -> None:
    """A pattern has been matched with all queues of the node, and this one was not served there."""
    _, mirror = pair
    reply = mirror.client.must(OpenGroup("p", [], "q.*"))
    assert isinstance(reply, GroupOpened) and reply.members == []
    group = OneQueue("p", reply.epoch, BIRTH, 0, 0)
    wanted = msgspec.structs.replace(group.reserve(0, 100), starts={}, until=None)
    assert mirror.client.must(wanted) == Reserved([])
    mirror.lead(2)
    reserved = mirror.client.must(wanted)
    assert isinstance(reserved, Reserved)
    (member,) = reserved.members
    assert (member.queue, member.birth) == (b"q", BIRTH)
    assert mirror.queue.unacked_count == COUNT


def hide(node: MemoryNode) -> tuple[Queue, RemoteQueue]:
    """Let the queue be a hidden copy; returns it with what stands for the master."""
    vhost, queue = node.vhost, node.vhost.queues[b"q"]
    remote = vhost.new_remote_queue(queue.definition, b"other@host", 1)
    vhost.replace_taker(queue, remote, node.clock.now_ms())
    return queue, remote


def test_a_queue_that_is_hidden_while_a_group_takes_its_messages_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They lie on disk, and have not been read when the master is another one already."""
    node = MemoryNode(MemoryDisk())
    node.declare(b"q").backing.memory.set_mode(True)
    for number in range(3000):
        node.publish(b"q", b"%d" % number)
    client = MemoryClient(node)
    group = open_one(client)
    assert end_of(client.must(group.reserve(0, 2000))) == 2001
    node.vhost.store.checkpoints.want()
    node.commit()
    node.work()
    node.disk.files.crash(Random(1), POWER)
    monkeypatch.setattr(PausedNode, "is_paused", True)
    node = PausedNode(node.disk, node.clock)
    assert node.vhost.queues[b"q"].unacked_count == 0, "the messages are not read yet"
    queue, remote = hide(node)
    monkeypatch.setattr(PausedNode, "is_paused", False)
    node.work()
    assert (queue.ready_count, queue.unacked_count) == (3000, 0)
    copy = MirrorApplier(queue)
    copy.reopen(lambda: None)
    node.work()
    copy.check()
    assert isinstance(MemoryClient(node).must(ListGroups()), GroupList)
    node.vhost.replace_taker(remote, queue, node.clock.now_ms())
    node.work()
    assert queue.unacked_count == 2000
    assert end_of(MemoryClient(node).must(group.reserve(0, 2000))) == 2001
