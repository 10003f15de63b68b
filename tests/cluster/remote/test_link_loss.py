"""A link that goes down at any step: nothing confirmed is lost, what is unacked comes back."""

import pytest

from tests.cluster.remote.conftest import far, near
from tests.cluster.remote.two_nodes import TwoNodes
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicReturn,
    ConnectionClose,
    ConnectionCloseOk,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)

DOWN = "home node 'back@host' of {}queue 'q' in vhost '/' is down or inaccessible"
# The way of a frame (ms): a cut in between loses it.
WAY_MS = 20


def declared(cluster: TwoNodes, durable: bool = True) -> ChannelPeer:
    """A channel at the front, and the queue `q` at the back."""
    channel = far(cluster)
    channel.declare(b"q", durable=durable)
    return channel


def bodies(cluster: TwoNodes) -> list[bytes]:
    """What is in the queue, by a client of its node."""
    return near(cluster).drain(b"q")


@pytest.mark.parametrize("wait_ms", [0, 10, 20, 30, 40, 50])
def test_a_publish_is_confirmed_only_if_it_is_there(cluster: TwoNodes, wait_ms: int) -> None:
    channel = declared(cluster)
    channel.confirm_select()
    cluster.delay_ms = WAY_MS
    channel.publish_each(b"q", b"1", b"2")
    cluster.advance(wait_ms)
    cluster.cut()
    found = channel.confirms(2)
    has_arrived = wait_ms >= WAY_MS
    is_confirmed = wait_ms >= 2 * WAY_MS
    assert {type(item) for item in found} == {BasicAck if is_confirmed else BasicNack}
    assert bodies(cluster) == ([b"1", b"2"] if has_arrived else [])


@pytest.mark.parametrize("mandatory", [False, True])
def test_a_publish_to_a_queue_that_is_down_is_nacked(cluster: TwoNodes, mandatory: bool) -> None:
    channel = declared(cluster)
    channel.confirm_select()
    cluster.cut()
    channel.publish(b"q", b"x", mandatory=mandatory)
    (nack,) = channel.confirms(1)
    assert isinstance(nack, BasicNack)
    assert not any(isinstance(item, BasicReturn) for item in channel.log)
    cluster.join()
    channel.publish(b"q", b"y")
    assert isinstance(channel.event(), BasicAck)
    assert bodies(cluster) == [b"y"]


def test_without_confirms_it_is_counted(cluster: TwoNodes) -> None:
    channel = declared(cluster)
    cluster.cut()
    channel.publish_each(b"q", b"x", b"y")
    channel.quiet()
    assert cluster.front.vhost.remote_queues[b"q"].dropped_count == 2


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        BasicGet(b"q"),
        BasicConsume(b"q"),
        QueuePurge(b"q"),
        QueueDeclare(b"q", True),
    ],
    ids=lambda method: type(method).__name__,
)
@pytest.mark.parametrize("is_pending", [False, True], ids=["before", "meanwhile"])
def test_methods_are_refused(
    cluster: TwoNodes,
    method: BasicGet | BasicConsume | QueuePurge | QueueDeclare,
    durable: bool,
    is_pending: bool,
) -> None:
    channel = declared(cluster, durable)
    if is_pending:
        cluster.delay_ms = WAY_MS
        channel.send(method)
    cluster.cut()
    if not is_pending:
        channel.send(method)
    channel.closed_with(404, DOWN.format("durable " if durable else ""), method)
    cluster.join()
    assert far(cluster).count(b"q") == 0


def test_a_deletion_on_its_way_is_refused(cluster: TwoNodes) -> None:
    channel = declared(cluster, True)
    cluster.delay_ms = WAY_MS
    channel.send(QueueDelete(b"q"))
    cluster.cut()
    channel.closed_with(404, DOWN.format("durable "), QueueDelete(b"q"))


def test_a_queue_that_is_down_may_be_deleted_but_never_as_an_empty_one(cluster: TwoNodes) -> None:
    channel = declared(cluster, True)
    cluster.cut()
    text = "queue 'q' in vhost '/' not empty"
    channel.refused(QueueDelete(b"q", if_empty=True), 406, text)
    assert far(cluster).delete(b"q") == 0
    assert cluster.front.vhost.taker(b"q") is None


@pytest.mark.parametrize("wants_notice", [False, True])
def test_consumers_are_cancelled_and_may_come_again(cluster: TwoNodes, wants_notice: bool) -> None:
    declared(cluster)
    capabilities: dict[str, object] = {"consumer_cancel_notify": wants_notice}
    channel = Peer(cluster.front.connect()).open(capabilities=capabilities).channel()
    channel.consume(b"q", b"c")
    cluster.cut()
    assert cluster.back.vhost.queues[b"q"].consumers == []
    if wants_notice:
        cancel = channel.event()
        assert isinstance(cancel, BasicCancel)
        assert cancel.consumer_tag == b"c"
    channel.quiet()
    cluster.join()
    channel.publish(b"q", b"x")
    channel.consume(b"q", b"c")
    assert channel.message().body == b"x"


def test_unacked_messages_come_back_in_order_and_redelivered(cluster: TwoNodes) -> None:
    channel = declared(cluster)
    channel.publish_each(b"q", *[b"%d" % number for number in range(6)])
    channel.qos(4)
    channel.consume(b"q")
    tags = [channel.message().deliver.delivery_tag for _ in range(4)]
    channel.ack(tags[1])
    cluster.cut()
    other = near(cluster)
    found = [other.get(b"q") for _ in range(5)]
    assert [(each.body, each.got.redelivered) for each in found] == [
        (b"0", True),
        (b"2", True),
        (b"3", True),
        # The ack made room for this one.
        (b"4", True),
        (b"5", False),
    ]
    cluster.check()


@pytest.mark.parametrize("way", ["ack", "nack", "requeue", "close"])
def test_what_an_older_link_delivered_settles_nothing(cluster: TwoNodes, way: str) -> None:
    channel = declared(cluster)
    channel.publish_each(b"q", b"1", b"2", b"3")
    channel.consume(b"q")
    channel.bodies(3)
    cluster.cut()
    cluster.join()
    # The same seq ids are unacked again, by another consumer of this node.
    second = far(cluster)
    second.consume(b"q")
    assert second.bodies(3) == [b"1", b"2", b"3"]
    if way == "close":
        channel.close()
    elif way == "ack":
        channel.ack(0, multiple=True)
    else:
        channel.nack(0, multiple=True, requeue=way == "requeue")
    if way != "close":
        # The first event is the notice of the cancelled consumer.
        assert isinstance(channel.event(), BasicCancel)
        channel.quiet()
    second.quiet()
    assert cluster.back.vhost.queues[b"q"].unacked_count == 3
    second.close()
    assert bodies(cluster) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("wait_ms", [0, 20, 40])
def test_acks_on_their_way_may_be_lost(cluster: TwoNodes, wait_ms: int) -> None:
    channel = declared(cluster)
    channel.publish_each(b"q", b"1", b"2")
    channel.consume(b"q")
    channel.bodies(2)
    cluster.delay_ms = WAY_MS
    channel.ack(1)
    cluster.advance(wait_ms)
    cluster.cut()
    assert bodies(cluster) == ([b"1", b"2"] if wait_ms < WAY_MS else [b"2"])


@pytest.mark.parametrize("wait_ms", [0, 10, 20, 30])
def test_deliveries_on_their_way_come_back(cluster: TwoNodes, wait_ms: int) -> None:
    channel = declared(cluster)
    channel.consume(b"q")
    cluster.delay_ms = WAY_MS
    near(cluster).publish_each(b"q", b"1", b"2")
    cluster.advance(wait_ms)
    cluster.cut()
    assert bodies(cluster) == [b"1", b"2"]
    cluster.check()


def test_a_queue_loses_its_last_consumer(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q", auto_delete=True)
    channel.consume(b"q")
    cluster.cut()
    assert b"q" not in cluster.back.vhost.queues


def test_another_consumer_takes_over(cluster: TwoNodes) -> None:
    channel = declared(cluster)
    channel.publish_each(b"q", b"1", b"2")
    channel.qos(1)
    channel.consume(b"q")
    assert channel.message().body == b"1"
    other = near(cluster)
    other.qos(1)
    other.consume(b"q")
    assert other.message().body == b"2"
    cluster.cut()
    other.ack(1)
    message = other.message()
    assert (message.body, message.deliver.redelivered) == (b"1", True)


@pytest.mark.parametrize("wait_ms", [0, 20, 40])
def test_a_transaction_is_complete_or_refused(cluster: TwoNodes, wait_ms: int) -> None:
    channel = declared(cluster)
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    channel.publish(b"q", b"x", PERSISTENT)
    cluster.delay_ms = WAY_MS
    channel.send(TxCommit())
    cluster.advance(wait_ms)
    cluster.cut()
    if wait_ms >= 2 * WAY_MS:
        channel.expect(TxCommitOk)
        assert bodies(cluster) == [b"x"]
    else:
        channel.closed_with(406, "partial tx completion", TxCommit())


def test_a_shared_prefetch_is_free_again(cluster: TwoNodes) -> None:
    """Room that was reserved for messages of the other node serves the queues of this one."""
    channel = declared(cluster)
    cluster.place_at = b"front@host"
    channel.declare(b"here")
    channel.qos(1, whole_channel=True)
    channel.consume(b"q")
    channel.consume(b"here")
    cluster.delay_ms = WAY_MS
    near(cluster).publish(b"q", b"far")
    cluster.advance(WAY_MS)
    # The front has asked for the message; it has not come.
    channel.publish(b"here", b"near")
    cluster.cut()
    assert channel.message().body == b"near"
    assert isinstance(channel.event(), BasicCancel)
    cluster.check()


def test_a_connection_that_closes_meanwhile_is_answered(cluster: TwoNodes) -> None:
    channel = declared(cluster)
    cluster.delay_ms = WAY_MS
    channel.send(BasicGet(b"q"))
    peer = channel.peer
    peer.method(0, ConnectionClose(200, b"bye", 0, 0))
    cluster.cut()
    peer.expect(ConnectionCloseOk)
