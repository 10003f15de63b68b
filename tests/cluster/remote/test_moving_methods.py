"""Methods, publishes and confirms of a queue whose master moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.remote.held_parties import HeldParties
from tests.cluster.remote.three_nodes import THIRD, ThreeNodes, channel_at, left, mirrored
from tests.cluster.remote.two_nodes import BACK, FRONT, Decisions
from tests.support.brokers.amqp_frames import BODY, PERSISTENT, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import Message
from tests.support.brokers.mirrors import MirrorsOfTest
from warrenmq.broker.definitions.metadata import Change
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    BasicNack,
    BasicPublish,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)

ANSWERS = pytest.mark.parametrize(
    ("method", "answer"),
    [
        (BasicGet(b"q"), Message),
        (BasicConsume(b"q"), BasicConsumeOk),
        (QueuePurge(b"q"), QueuePurgeOk),
        (QueueDeclare(b"q", True), QueueDeclareOk),
        (QueueDeclare(b"q", False, True), QueueDeclareOk),
        (QueueDelete(b"q"), QueueDeleteOk),
    ],
    ids=["get", "consume", "purge", "passive", "declare", "delete"],
)
AnyMethod = BasicGet | BasicConsume | QueuePurge | QueueDeclare | QueueDelete


@ANSWERS
@pytest.mark.parametrize("is_pending", [False, True], ids=["before", "meanwhile"])
def test_a_method_waits_for_the_new_master(
    nodes: ThreeNodes, method: AnyMethod, answer: type, is_pending: bool
) -> None:
    channel = mirrored(nodes, b"1")
    if is_pending:
        nodes.delay_ms = 20
        channel.send(method)
        nodes.advance(10)
    nodes.isolate(BACK)
    if not is_pending:
        channel.send(method)
    nodes.advance(1000)
    assert list(channel.replies) == []
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    assert isinstance(channel.reply(), answer)


@ANSWERS
def test_a_former_master_sends_clients_on(
    nodes: ThreeNodes, method: AnyMethod, answer: type
) -> None:
    channel = mirrored(nodes, b"1")
    nodes.follow(BACK, THIRD)
    channel.send(method)
    nodes.advance(300)
    assert list(channel.replies) == []
    nodes.promote(THIRD)
    nodes.follow(FRONT, THIRD)
    assert isinstance(channel.reply(), answer)
    if not isinstance(method, QueueDelete):
        channel.peer.drop()


@pytest.mark.parametrize(
    "method",
    [BasicGet(b"q"), BasicConsume(b"q"), QueuePurge(b"q"), QueueDeclare(b"q", True)],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.parametrize("is_there", [False, True], ids=["down", "moved"])
def test_a_method_does_not_wait_for_ever(
    nodes: ThreeNodes, method: AnyMethod, is_there: bool
) -> None:
    channel = mirrored(nodes)
    if is_there:
        nodes.follow(BACK, THIRD)
    else:
        nodes.isolate(BACK)
    text = "home node 'back@host' of durable queue 'q' in vhost '/' is down or inaccessible"
    before = nodes.front.now_ms
    channel.refused(method, 404, text)
    assert 4900 <= nodes.front.now_ms - before <= 5500


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "meanwhile"])
@pytest.mark.parametrize(
    "method",
    [BasicGet(b"q"), BasicConsume(b"q"), QueuePurge(b"q"), QueueDeclare(b"q", True)],
    ids=lambda method: type(method).__name__,
)
def test_a_method_waits_for_no_master_that_cannot_come(
    nodes: ThreeNodes, method: AnyMethod, is_late: bool
) -> None:
    """`is_late`: the last copy that might take over is lost while the method waits."""
    channel = mirrored(nodes)
    mirrors = nodes.front.broker.mirrors = MirrorsOfTest()
    mirrors.has_heir = is_late
    nodes.isolate(BACK)
    before = nodes.front.now_ms
    if is_late:
        channel.send(method)
        nodes.advance(1000)
        assert list(channel.replies) == []
        mirrors.has_heir = False
    else:
        channel.send(method)
    text = "home node 'back@host' of durable queue 'q' in vhost '/' is down or inaccessible"
    channel.closed_with(404, text, method)
    assert nodes.front.now_ms - before <= (1100 if is_late else 0)


def test_a_publish_between_two_masters_is_nacked(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes)
    channel.confirm_select()
    nodes.isolate(BACK)
    channel.publish(b"q", b"1")
    assert isinstance(channel.event(), BasicNack)
    nodes.promote(THIRD)
    nodes.follow(FRONT, BACK)
    channel.publish(b"q", b"2")
    assert isinstance(channel.event(), BasicNack)
    nodes.follow(FRONT, THIRD)
    channel.publish(b"q", b"3")
    assert isinstance(channel.event(), BasicAck)
    assert left(nodes) == [b"3"]


def test_a_publish_that_reaches_a_former_master_is_nacked(nodes: ThreeNodes) -> None:
    channel = mirrored(nodes)
    channel.confirm_select()
    nodes.follow(BACK, THIRD)
    channel.publish(b"q", b"1")
    assert isinstance(channel.event(), BasicNack)
    assert nodes.queue(BACK).ready_count == 0


class HeldDecisions(Decisions):
    """Decides nothing; the test answers proposals with `done`."""

    def propose(
        self, changes: list[Change], done: Callable[[str, int], None], conflict: str = ""
    ) -> None:
        self.done = done


@pytest.mark.parametrize("node", [FRONT, BACK])
def test_a_former_master_cannot_say_that_a_queue_is_empty(nodes: ThreeNodes, node: bytes) -> None:
    """Another master has taken a message, before this one hears that it is deposed."""
    mirrored(nodes)
    channel = channel_at(nodes, node)
    decisions = HeldDecisions(nodes, BACK)
    nodes.back.broker.shared = decisions
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), HeldParties())
    method = QueueDelete(b"q", if_empty=True)
    channel.send(method)
    nodes.advance(100)
    nodes.promote(THIRD)
    channel_at(nodes, THIRD).publish_each(b"q", b"1")
    nodes.follow(FRONT, THIRD)
    nodes.follow(BACK, THIRD)
    decisions.done("", nodes.back.now_ms)
    nodes.advance(1000)
    channel.closed_with(406, "queue 'q' in vhost '/' not empty", method)
    assert left(nodes) == [b"1"]


@pytest.mark.parametrize("node", [FRONT, BACK])
def test_a_master_deletes_an_empty_queue_when_that_is_decided(
    nodes: ThreeNodes, node: bytes
) -> None:
    mirrored(nodes)
    channel = channel_at(nodes, node)
    decisions = HeldDecisions(nodes, BACK)
    nodes.back.broker.shared = decisions
    queue = nodes.queue(BACK)
    nodes.back.vhost.set_confirm_source(queue, HeldParties())
    channel.send(QueueDelete(b"q", if_unused=True, if_empty=True))
    nodes.advance(100)
    assert not channel.replies and not queue.is_deleted
    nodes.back.vhost.delete_followed(queue, nodes.back.now_ms)
    decisions.done("", nodes.back.now_ms)
    nodes.advance(100)
    assert isinstance(channel.reply(), QueueDeleteOk)


@pytest.mark.parametrize("is_pending", [False, True])
def test_a_get_that_waits_for_the_disk_while_the_queue_moves(
    nodes: ThreeNodes, is_pending: bool
) -> None:
    mirrored(nodes, b"1")
    channel = channel_at(nodes, BACK)
    queue = nodes.queue(BACK)
    queue.demand.restoring_count = 1
    channel.send(BasicGet(b"q", True))
    nodes.pump()
    nodes.follow(BACK, THIRD)
    nodes.promote(THIRD)
    nodes.advance(200)
    assert isinstance(channel.reply(), Message)
    assert isinstance(channel.call(BasicGet(b"q", True)), BasicGetEmpty)


# -- confirms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [FRONT, BACK])
@pytest.mark.parametrize("ok", [False, True])
def test_a_confirm_waits_for_the_source_of_the_queue(
    nodes: ThreeNodes, node: bytes, ok: bool
) -> None:
    mirrored(nodes)
    source = HeldParties()
    channel = channel_at(nodes, node)
    channel.confirm_select()
    channel.publish(b"q", b"0")
    assert isinstance(channel.event(), BasicAck)
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), source)
    channel.publish(b"q", b"1")
    channel.quiet()
    assert len(source.parties) == 1
    source.parties[0].finish(ok)
    nodes.pump()
    assert isinstance(channel.event(), BasicAck if ok else BasicNack)


@pytest.mark.parametrize("node", [FRONT, BACK])
@pytest.mark.parametrize("ok", [False, True])
def test_a_purge_waits_for_the_copies(nodes: ThreeNodes, node: bytes, ok: bool) -> None:
    mirrored(nodes, b"1", b"2")
    source = HeldParties()
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), source)
    channel = channel_at(nodes, node)
    channel.send(QueuePurge(b"q"))
    nodes.advance(100)
    assert list(channel.replies) == [] and nodes.queue(BACK).ready_count == 0
    source.decide(ok)
    nodes.advance(100)
    if ok:
        answer = channel.reply()
        assert isinstance(answer, QueuePurgeOk) and answer.message_count == 2
    else:
        text = "copies of queue 'q' in vhost '/' may still have purged messages"
        channel.closed_with(506, text, QueuePurge(b"q"))


@pytest.mark.parametrize("node", [FRONT, BACK])
def test_a_purge_of_a_deposed_master_is_made_at_the_next_one(
    nodes: ThreeNodes, node: bytes
) -> None:
    mirrored(nodes, b"1")
    source = HeldParties()
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), source)
    channel = channel_at(nodes, node)
    channel.send(QueuePurge(b"q"))
    nodes.advance(100)
    nodes.promote(THIRD)
    channel_at(nodes, THIRD).publish_each(b"q", b"2", b"3")
    nodes.follow(FRONT, THIRD)
    source.decide(False)
    nodes.follow(BACK, THIRD)
    nodes.advance(1000)
    assert isinstance(channel.reply(), QueuePurgeOk)
    assert left(nodes) == []


@pytest.mark.parametrize("properties", [b"\x00\x00", b"\x10\x00\x02"], ids=["transient", "durable"])
def test_a_publish_to_a_master_that_steps_down_before_it_is_awaited_is_refused(
    nodes: ThreeNodes, properties: bytes
) -> None:
    """Only the publish is in the first frame; the old master's disk says nothing of the copies."""
    mirrored(nodes)
    source = HeldParties()
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), source)
    channel = channel_at(nodes, FRONT)
    channel.confirm_select()
    nodes.delay_ms = 1000
    channel.publish(b"q", bytes(100_000), properties)
    frames = nodes.pairs[FRONT, BACK].frames
    assert len(frames) == 2
    nodes.users[BACK, FRONT].take_frame(frames.popleft()[2], nodes.front.now_ms)
    assert nodes.queue(BACK).ready_count == 1
    # As in a step down: what waits is refused, and the queue has another source by then, or none.
    source.refusing = True
    nodes.follow(BACK, THIRD)
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), None)
    nodes.advance(1000)
    nodes.advance(1000)
    assert isinstance(channel.event(), BasicNack)


def test_a_publish_whose_body_comes_after_the_step_down_goes_to_the_new_master(
    nodes: ThreeNodes,
) -> None:
    """The old master has journaled nothing that its copies must have."""
    mirrored(nodes)
    nodes.back.vhost.set_confirm_source(nodes.queue(BACK), HeldParties())
    channel = channel_at(nodes, BACK)
    channel.confirm_select()
    channel.publish(b"q", b"before", PERSISTENT)
    channel.peer.send(
        method_frame(channel.number, BasicPublish(b"", b"q")),
        header_frame(channel.number, 5, PERSISTENT),
    )
    old = nodes.queue(BACK)
    nodes.follow(BACK, THIRD)
    nodes.back.vhost.set_confirm_source(old, None)
    channel.peer.send(frame(BODY, channel.number, b"after"))
    nodes.advance(1000)
    assert old.ready_count == 1, "the body that came before"
    assert isinstance(channel.event(), BasicNack), "the new master is not there"
