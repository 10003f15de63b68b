"""What only a client of another node meets: a link between it and its queue."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.remote.conftest import far, near
from tests.cluster.remote.two_nodes import BACK, TwoNodes
from tests.support.brokers.amqp_frames import LOCKED, table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.memory_broker import EngineLink
from warrenmq.admin.node import AdminVhost
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.remote.consumer import WINDOW_BYTES, WINDOW_MESSAGES
from warrenmq.queues.remote.link_records import DONE, FINISHED, RETURN, SETTLE, MalformedRecordError
from warrenmq.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicNack,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueuePurge,
)
from warrenmq.wire.properties import Properties

REPLY_TO = b"amq.rabbitmq.reply-to"


def socket_of(channel: ChannelPeer) -> EngineLink:
    link = channel.peer.link
    assert isinstance(link, EngineLink) and link.connection is not None
    return link


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# -- exclusive queues ------------------------------------------------------------------------------


def test_an_exclusive_queue_is_locked_on_other_nodes(cluster: TwoNodes) -> None:
    owner = near(cluster)
    owner.declare(b"q", exclusive=True)
    for method in (
        QueueDeclare(b"q", True),
        QueueDeclare(b"q"),
        BasicGet(b"q"),
        BasicConsume(b"q"),
        QueuePurge(b"q"),
        QueueDelete(b"q"),
    ):
        far(cluster).refused(method, 405, LOCKED.format("q"))
    # Everybody may publish to it.
    far(cluster).publish(b"q", b"x")
    assert owner.get(b"q").body == b"x"


# -- direct replies --------------------------------------------------------------------------------


def test_a_direct_reply_crosses_nodes(cluster: TwoNodes) -> None:
    client, server = far(cluster), near(cluster)
    server.declare(b"requests")
    client.consume(REPLY_TO, b"replies", no_ack=True)
    client.publish(b"requests", b"?", Properties(reply_to=REPLY_TO).encode())
    name = server.get(b"requests").properties.reply_to
    assert name is not None and name.startswith(REPLY_TO + b".")
    server.publish(name, b"!")
    message = client.message()
    assert (message.body, message.deliver.consumer_tag) == (b"!", b"replies")
    probe = server.call(QueueDeclare(name, True))
    assert isinstance(probe, QueueDeclareOk)
    assert (probe.queue, probe.consumer_count) == (name, 1)
    client.close()
    text = f"no queue '{name.decode()}' in vhost '/'"
    server.refused(QueueDeclare(name, True), 404, text)


# -- room ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 4])
def test_a_stuck_client_gives_others_what_it_has_no_room_for(
    cluster: TwoNodes, prefetch: int
) -> None:
    stuck, other = far(cluster), near(cluster)
    stuck.declare(b"q")
    stuck.qos(prefetch)
    stuck.consume(b"q")
    connection = socket_of(stuck).connection
    assert connection is not None
    connection.is_writable = False
    other.publish_each(b"q", *numbers(10))
    other.consume(b"q")
    cluster.advance(1000)
    found = [other.message() for _ in range(10)]
    assert sorted(each.body for each in found) == numbers(10)
    # A message that the stuck client gave back is marked redelivered if a later one was delivered
    # before it.
    unmarked = [each.body for each in found if not each.deliver.redelivered]
    assert unmarked and unmarked == sorted(unmarked)
    connection.is_writable = True
    connection.on_written(cluster.front.now_ms)
    other.ack(0, multiple=True)
    for tag in list(cluster.back.vhost.queues[b"q"].consumers)[1:]:
        other.cancel(tag.tag)
    other.publish(b"q", b"last")
    assert stuck.message().body == b"last"
    cluster.check()


def test_a_client_without_prefetch_has_a_window(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    channel.publish_each(b"q", *[b"x" * 100] * (3 * WINDOW_MESSAGES))
    cluster.delay_ms = 10
    channel.send(BasicConsume(b"q", b"", False, True))
    cluster.advance(10)
    assert cluster.back.vhost.queues[b"q"].ready_count == 2 * WINDOW_MESSAGES
    channel.expect(BasicConsumeOk)
    assert len(channel.bodies(3 * WINDOW_MESSAGES)) == 3 * WINDOW_MESSAGES


def test_the_window_counts_bytes(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    body = bytes(WINDOW_BYTES // 2)
    channel.publish_each(b"q", *[body] * 8)
    cluster.delay_ms = 10
    channel.send(BasicConsume(b"q"))
    cluster.advance(10)
    # The last message may exceed the window.
    assert cluster.back.vhost.queues[b"q"].ready_count == 8 - 2
    assert [len(each) for each in channel.bodies(8)] == [len(body)] * 8


def test_a_link_without_room_gets_no_more_deliveries(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    channel.consume(b"q")
    cluster.links[BACK].is_writable = False
    channel.publish_each(b"q", *numbers(3))
    channel.quiet()
    assert channel.count(b"q") == 3
    cluster.links[BACK].is_writable = True
    cluster.back.wake()
    assert channel.bodies(3) == numbers(3)


def test_what_is_on_its_way_when_a_no_ack_consumer_is_cancelled(cluster: TwoNodes) -> None:
    """Its queue has forgotten the messages, so the client gets them before the cancel-ok."""
    channel = far(cluster)
    channel.declare(b"q")
    channel.consume(b"q", b"c", no_ack=True)
    cluster.delay_ms = 10
    near(cluster).publish_each(b"q", *numbers(3))
    cluster.advance(5)
    channel.send(BasicCancel(b"c"))
    channel.expect(BasicCancelOk)
    assert [type(item) for item in channel.log[-4:]][-1] is BasicCancelOk
    assert channel.bodies(3) == numbers(3)


def test_what_is_on_its_way_to_a_closed_channel_returns(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    channel.consume(b"q")
    cluster.delay_ms = 10
    other = near(cluster)
    other.publish_each(b"q", *numbers(3))
    cluster.advance(5)
    channel.close()
    cluster.advance(100)
    found = [other.get(b"q") for _ in range(3)]
    assert [(each.body, each.got.redelivered) for each in found] == [
        (body, False) for body in numbers(3)
    ]


def test_what_is_got_for_a_closed_channel_returns(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    channel.publish(b"q", b"x")
    cluster.delay_ms = 10
    channel.send(BasicGet(b"q"))
    cluster.advance(15)
    channel.peer.drop()
    cluster.advance(100)
    found = near(cluster).get(b"q")
    assert (found.body, found.got.redelivered) == (b"x", False)


def test_a_consumer_that_is_accepted_too_late_is_removed(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    cluster.delay_ms = 10
    channel.send(BasicConsume(b"q"))
    cluster.advance(15)
    channel.peer.drop()
    cluster.advance(100)
    assert cluster.back.vhost.queues[b"q"].consumers == []


# -- queues that come and go -----------------------------------------------------------------------


def test_a_queue_that_its_node_does_not_have(cluster: TwoNodes) -> None:
    """The definition of another life of the queue, which one of the nodes has not followed yet."""
    channel = far(cluster)
    channel.declare(b"q")
    vhost = cluster.back.vhost
    vhost.remove_queue(vhost.queues[b"q"], cluster.back.now_ms)
    channel.confirm_select()
    channel.publish(b"q", b"x")
    (nack,) = channel.confirms(1)
    assert isinstance(nack, BasicNack)
    channel.refused(BasicGet(b"q"), 404, "no queue 'q' in vhost '/'")


def test_a_reader_group_waits_behind_what_clients_of_both_nodes_have(cluster: TwoNodes) -> None:
    """A message that returns into a range which was read already would be acked with it, unread."""
    groups = AdminVhost(cluster.back.vhost)
    channel, other = far(cluster), near(cluster)
    channel.declare(b"q")
    channel.publish_each(b"q", *numbers(3))
    first = channel.get(b"q")
    second = other.get(b"q")
    queue = cluster.back.vhost.queues[b"q"]
    assert groups.first_unacked_seq(queue, 0) == 1
    channel.ack(first.got.delivery_tag)
    assert groups.first_unacked_seq(queue, 0) == 2
    other.ack(second.got.delivery_tag)
    assert groups.first_unacked_seq(queue, 0) == -1


def test_a_deletion_through_another_node_cancels_consumers(cluster: TwoNodes) -> None:
    consumers = [far(cluster), near(cluster)]
    consumers[0].declare(b"q")
    for channel in consumers:
        channel.consume(b"q", b"c")
    assert far(cluster).delete(b"q") == 0
    for channel in consumers:
        cancel = channel.event()
        assert isinstance(cancel, BasicCancel)
        channel.quiet()
    assert consumers[0].declare(b"q").consumer_count == 0


def test_many_bytes_of_one_turn_go_in_several_frames(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q")
    channel.confirm_select()
    bodies = [bytes([number]) * 50_000 for number in range(40)]
    channel.publish_each(b"q", *bodies)
    channel.confirms(len(bodies))
    assert channel.drain(b"q") == bodies


def test_a_policy_reaches_a_remote_queue(cluster: TwoNodes) -> None:
    far(cluster).declare(b"q", arguments=table(x__max__length=5))
    definition = '{"pattern":"q","apply-to":"queues","priority":0,"definition":{"max-length":2,"overflow":"reject-publish"}}'
    for node in cluster.nodes.values():
        node.vhost.put_parameter("policy", "p", definition)
    cluster.pump()
    limit = cluster.front.vhost.remote_queues[b"q"].settings.limit
    assert limit is not None and limit.messages == 2
    channel = far(cluster)
    channel.confirm_select()
    channel.publish_each(b"q", *numbers(4))
    assert [type(each).__name__ for each in channel.confirms(4)].count("BasicNack") == 2


# -- the other side --------------------------------------------------------------------------------


def take_operations(cluster: TwoNodes) -> Callable[[bytes], None]:
    return lambda data: cluster.clients[BACK].take_frame(data, cluster.back.now_ms)


def take_events(cluster: TwoNodes) -> Callable[[bytes], None]:
    node = cluster.front.broker.remote_node(BACK)
    return lambda data: node.take_frame(data, cluster.front.now_ms)


@pytest.mark.parametrize("take", [take_operations, take_events])
@given(data=st.binary(min_size=1, max_size=40), kind=st.integers(1, 42))
def test_bytes_that_are_no_records(
    take: Callable[[TwoNodes], Callable[[bytes], None]], data: bytes, kind: int
) -> None:
    """They are handled or refused with the one error that ends the link."""
    cluster = TwoNodes()
    far(cluster).declare(b"q")
    with contextlib.suppress(MalformedRecordError):
        take(cluster)(bytes([kind]) + data)
    cluster.check()


_END = 1 << 63


@pytest.mark.parametrize(
    ("first", "last"),
    [(2, 1), (-1, 1), (-_END, _END - 1), (_END - 1, _END - 1), (1, _END - 1), (-_END, -1)],
)
def test_runs_that_no_queue_can_have(first: int, last: int) -> None:
    """They are refused before anything counts from their first number to their last one."""
    cluster = TwoNodes()
    channel = far(cluster)
    channel.declare(b"q")
    channel.publish_each(b"q", b"m")
    assert channel.get(b"q") is not None
    run = first.to_bytes(8, "big", signed=True) + last.to_bytes(8, "big", signed=True)
    queue = (1).to_bytes(4, "big")
    settle = bytes([SETTLE]) + queue + bytes([0, ACKED]) + run
    give_back = bytes([RETURN]) + queue + bytes([0, 0]) + queue + run
    for operation in (settle, give_back):
        with pytest.raises(MalformedRecordError, match="no run goes from"):
            take_operations(cluster)(operation)
    with pytest.raises(MalformedRecordError, match="no run goes from"):
        take_events(cluster)(bytes([FINISHED]) + run + bytes([DONE]))
    cluster.check()
