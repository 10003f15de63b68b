"""Reader groups of a queue that becomes a hidden copy, as another node is its master."""

from random import Random

import pytest

from simulator.simulated.file_system import POWER
from tests.admin.readers.test_on_disk import PausedNode
from tests.support.brokers.memory_node import MemoryClient, MemoryDisk, MemoryNode
from tests.support.brokers.one_queue_group import end_of, one_queue, open_one
from warrenmq.admin.protocol.requests import ErrorReply, GroupList, ListGroups, OpenGroup, Request
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.queues.mirror.applier import MirrorApplier
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.vocabulary.error_codes import DATA_LOSS

COUNT = 3000
HELD = 2000


@pytest.fixture
def node() -> MemoryNode:
    """A node with COUNT messages on disk, of which a group has reserved HELD."""
    node = MemoryNode(MemoryDisk())
    queue = node.declare(b"q")
    queue.backing.memory.set_mode(True)
    for number in range(COUNT):
        node.publish(b"q", b"%d" % number)
    client = MemoryClient(node)
    assert end_of(client.must(open_one(client).reserve(0, HELD))) == HELD + 1
    node.vhost.store.checkpoints.want()
    node.commit()
    node.work()
    return node


def hide(node: MemoryNode) -> tuple[Queue, RemoteQueue]:
    """Let the queue be a hidden copy; returns it with what stands for the master."""
    vhost, queue = node.vhost, node.vhost.queues[b"q"]
    remote = vhost.new_remote_queue(queue.definition, b"other@host", 1)
    vhost.replace_taker(queue, remote, node.clock.now_ms())
    return queue, remote


def open_copy(node: MemoryNode, queue: Queue) -> None:
    """Let operations of the master be applied to the copy."""
    opened: list[bool] = []
    copy = MirrorApplier(queue)
    copy.reopen(lambda: opened.append(True))
    node.work()
    assert opened
    copy.check()


def test_a_copy_that_is_hidden_at_a_start_has_nothing_reserved(node: MemoryNode) -> None:
    group = one_queue(MemoryClient(node).must(OpenGroup("g", [b"q"])))
    [row] = node.disk.queues.values()
    node.disk.queues[row.id] = PutQueue(
        row.vhost, row.id, row.name, True, False, row.arguments, group=b"{}"
    )
    node = node.crash()
    copy = node.vhost.queues_by_id[row.id]
    assert (copy.is_hidden, copy.ready_count, copy.unacked_count) == (True, COUNT, 0)
    open_copy(node, copy)
    client = MemoryClient(node)
    assert "has moved: another node" in text_of(client, group.reserve(0))
    assert client.refused(group.ack(HELD + 1)) == DATA_LOSS
    assert copy.ready_count == COUNT


def text_of(client: MemoryClient, request: Request) -> str:
    """The text of the data loss that answers `request`."""
    reply = client.ask(request)
    assert isinstance(reply, ErrorReply) and reply.code == DATA_LOSS, reply
    return reply.text


def test_a_reader_learns_that_its_queue_has_moved_and_is_not_deleted(node: MemoryNode) -> None:
    """The error says "moved" to a reader that reads on, starts again, or names a pattern."""
    group = one_queue(MemoryClient(node).must(OpenGroup("g", [b"q"])))
    hide(node)
    client = MemoryClient(node)
    moved = (
        "reader group 'g': queue 'q' (incarnation 1) has moved: another node has become its master"
    )
    assert text_of(client, group.reserve(HELD + 1)) == moved
    assert text_of(client, OpenGroup("g", [], elsewhere=[b"q"])) == moved
    by_pattern = MemoryNode(MemoryDisk())
    by_pattern.declare(b"q")
    client = MemoryClient(by_pattern)
    client.must(OpenGroup("g", [], "q"))
    hide(by_pattern)
    assert text_of(client, OpenGroup("g", [], "q")) == moved


def test_a_queue_that_is_hidden_while_a_group_takes_its_messages_back(
    node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.disk.files.crash(Random(1), POWER)
    monkeypatch.setattr(PausedNode, "is_paused", True)
    node = PausedNode(node.disk, node.clock)
    assert node.vhost.queues[b"q"].unacked_count == 0, "the messages are not read yet"
    queue, remote = hide(node)
    monkeypatch.setattr(PausedNode, "is_paused", False)
    node.work()
    assert (queue.ready_count, queue.unacked_count) == (COUNT, 0)
    open_copy(node, queue)
    assert isinstance(MemoryClient(node).must(ListGroups()), GroupList)
    node.vhost.replace_taker(remote, queue, node.clock.now_ms())
    assert not queue.demand.awaits_older


def test_a_group_reads_a_queue_that_has_come_back_only_if_it_accepts_the_loss(
    node: MemoryNode,
) -> None:
    queue, remote = hide(node)
    node.vhost.replace_taker(remote, queue, node.clock.now_ms())
    client = MemoryClient(node)
    assert client.refused(OpenGroup("g", [b"q"])) == DATA_LOSS
    group = one_queue(client.must(OpenGroup("g", [b"q"], may_rebind=True)))
    assert (group.acked, group.reserved) == (0, 0)
    assert end_of(client.must(group.reserve(0, HELD))) == HELD + 1
    client.must(group.ack(HELD + 1))
    assert queue.ready_count == COUNT - HELD
