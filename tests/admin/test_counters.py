"""The counters of a node are those of what its clients have done, for users who may see them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import MONITORING, NEEDS
from warrenmq.admin.protocol.counters import (
    ChurnCounters,
    DescribeCounters,
    MessageCounters,
    NodeCounters,
)
from warrenmq.wire.methods import TxCommit, TxCommitOk, TxSelect, TxSelectOk
from warrenmq.wire.properties import Properties


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    """A node that has just started."""
    node = NodeThread(tmp_path)
    yield node
    node.stop()


def counted(node: NodeThread) -> NodeCounters:
    """The counters of the node."""
    with AdminClient(NodeAddress(node.uri)) as client:
        return client.request(DescribeCounters(), NodeCounters)


def publish_and_take(channel: ChannelPeer) -> None:
    """Publish to queues and to none; take messages in each way, and settle them."""
    channel.declare(b"q")
    channel.declare(b"q")
    channel.count(b"q")
    channel.declare(b"other")
    for queue in (b"q", b"other"):
        channel.bind(queue, b"amq.fanout")
    channel.publish(b"", b"to two", exchange=b"amq.fanout")
    channel.publish(b"nowhere", b"dropped")
    channel.publish(b"nowhere", b"returned", mandatory=True)
    channel.message()
    channel.publish_each(b"q", b"1", b"2", b"3", b"4")
    channel.get(b"q", no_ack=True)
    first = channel.get(b"q")
    channel.reject(first.got.delivery_tag)
    second = channel.get(b"q")
    assert second.got.redelivered
    channel.ack(second.got.delivery_tag)
    channel.drain(b"other")
    assert channel.is_empty(b"other")


def test_messages_are_counted_as_rabbitmq_counts_them(node: NodeThread) -> None:
    peer = node.peer()
    peer.open()
    publish_and_take(peer.channel())
    other = peer.channel()
    other.consume(b"q", b"tag")
    for _ in range(3):
        last = other.message()
    other.ack(last.deliver.delivery_tag, multiple=True)
    other.cancel(b"tag")
    confirming = peer.channel()
    confirming.confirm_select()
    confirming.consume(b"q", no_ack=True)
    confirming.publish(b"q", b"5")
    # The confirm and the delivery, in any order.
    assert len([confirming.event() for _ in range(2)]) == 2
    committing = peer.channel()
    committing.send(TxSelect())
    committing.expect(TxSelectOk)
    committing.publish(b"other", b"6")
    committing.send(TxCommit())
    committing.expect(TxCommitOk)
    messages = counted(node).messages
    peer.close()
    assert messages == MessageCounters(
        received=9,
        received_confirm=1,
        confirmed=1,
        routed=8,
        unroutable_dropped=1,
        unroutable_returned=1,
        delivered_consume_auto_ack=1,
        delivered_consume_manual_ack=3,
        delivered_get_auto_ack=2,
        delivered_get_manual_ack=2,
        # Once by the drain, and once by the check after it.
        get_empty=2,
        redelivered=1,
        acknowledged=4,
    )


def test_what_comes_and_goes_is_counted(node: NodeThread) -> None:
    before = counted(node)
    assert before.churn == ChurnCounters(0, 0, 0, 0, 0, 0, 0)
    stays = node.peer()
    stays.open()
    channel = stays.channel()
    for name in (b"a", b"b", b"a"):
        channel.declare(name)
    channel.delete(b"a")
    during = counted(node)
    assert during.churn == ChurnCounters(1, 0, 1, 0, 3, 2, 1)
    assert during.received_bytes > 0 and during.sent_bytes > 0
    stays.channel(7).close()
    goes: Peer = node.peer()
    goes.open()
    goes.channel()
    goes.close()
    after = counted(node)
    assert after.churn == ChurnCounters(2, 1, 3, 2, 3, 2, 1)
    assert after.received_bytes > during.received_bytes and after.sent_bytes > during.sent_bytes
    stays.close()


def test_messages_written_to_disk_are_counted_beyond_the_life_of_their_queue(
    node: NodeThread,
) -> None:
    peer = node.peer()
    peer.open()
    channel = peer.channel()
    channel.declare(b"d", durable=True)
    channel.publish(b"d", properties=Properties(delivery_mode=2).encode())
    channel.count(b"d")
    eventually(lambda: counted(node).written_messages == 1, "the message is written")
    channel.delete(b"d")
    after = counted(node)
    assert (after.read_messages, after.written_messages) == (0, 1)
    peer.close()


def test_counters_are_for_monitors() -> None:
    assert NEEDS[DescribeCounters] == MONITORING
