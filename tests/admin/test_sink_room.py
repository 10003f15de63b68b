"""How long sinks wait for memory and disk, and what they are told then (admin/sink_calls.py)."""

from tests.support.brokers.memory_node import MemoryClient, MemoryNode
from tests.support.brokers.staged import bodies, settle, stage, staged_message, started
from warrenmq.admin.protocol.requests import ErrorReply
from warrenmq.admin.protocol.sinks import (
    BatchCommitted,
    CommitBatch,
    OpenStage,
    Staged,
    StageMessages,
    StageOpened,
)
from warrenmq.admin.room_waits import FORGET_MS
from warrenmq.vocabulary.error_codes import NO_ROOM


def alarm(node: MemoryNode, memory: bool = False, disk: bool = False) -> None:
    """Switch the alarms of the node on or off."""
    now_ms = node.clock.now_ms()
    node.broker.set_limits(now_ms)
    node.broker.memory_used(1 << 50 if memory else 0, now_ms)
    node.broker.disk_free(0 if disk else 1 << 50, now_ms)


def stage_one(node: MemoryNode, room_ms: int, batch: int = 0) -> MemoryClient:
    """A client that has sent a message for a stage of the sink s, and waits for the answer."""
    client = MemoryClient(node)
    opened = client.must(OpenStage("s", batch))
    assert isinstance(opened, StageOpened)
    client.send(StageMessages(opened.stage, memoryview(staged_message(b"a")), room_ms))
    return client


def no_room(client: MemoryClient) -> str:
    """The text of the only reply, which says that there was no room for too long."""
    (reply,) = client.replies()
    assert isinstance(reply, ErrorReply) and reply.code == NO_ROOM, reply
    return reply.text


def test_a_batch_waits_for_room_as_long_as_its_client_allows() -> None:
    """All of its parts wait together: one that comes later waits for the rest of the time."""
    node, _client = started()
    alarm(node, memory=True)
    early = stage_one(node, 1000)
    node.clock.advance(900)
    late, other = stage_one(node, 1000), stage_one(node, 1000, batch=1)
    assert early.replies() == []
    node.clock.advance(110)
    assert no_room(early).startswith("the memory alarm of the broker is on")
    assert no_room(late) == no_room(stage_one(node, 1000))
    assert other.replies() == []
    # Whoever comes back after a while waits anew, as does a batch that has found room since.
    node.clock.advance(FORGET_MS + 10)
    again = stage_one(node, 1000)
    assert again.replies() == []
    alarm(node)
    node.clock.advance(20)
    assert again.replies() == [Staged(1)]
    alarm(node, memory=True, disk=True)
    again = stage_one(node, 1000)
    node.clock.advance(500)
    assert again.replies() == []
    node.clock.advance(510)
    assert no_room(again).startswith("the memory and disk alarms of the broker are on")


def test_a_commit_waits_for_the_batch_before_as_long_as_its_client_allows() -> None:
    node, client = started()
    first, second = (stage(client, "s", batch, [staged_message(b"%d" % batch)]) for batch in (0, 1))
    alarm(node, disk=True)
    client.send(CommitBatch("s", 0, [first], wait_ms=500))
    settle(node)
    node.clock.advance(510)
    (reply,) = client.replies()
    assert isinstance(reply, BatchCommitted) and not reply.is_moved
    assert reply.shortage.startswith("the disk alarm of the broker is on")
    client.send(CommitBatch("s", 1, [second], room_ms=1000))
    node.clock.advance(1010)
    assert no_room(client).startswith(
        "the batch before it is not in its queues yet: the disk alarm"
    )
    # The refused commit does not come later by itself.
    alarm(node)
    for _ in range(10):
        settle(node)
        node.clock.advance(10)
    assert bodies(node) == [b"0"]
    client.must(CommitBatch("s", 1, [second], wait_ms=1000))
    assert bodies(node) == [b"1"]
