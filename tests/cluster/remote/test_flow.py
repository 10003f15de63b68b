"""Too many bytes on their way to a queue of another node stop its publishers, and only these."""

import pytest

from tests.cluster.remote.conftest import far
from tests.cluster.remote.two_nodes import TwoNodes
from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.memory_broker import EngineLink
from warrenmq.queues.remote.queue import UNAPPLIED_BYTES_MAX

BODY = bytes(1024 * 1024)
FEW = UNAPPLIED_BYTES_MAX // len(BODY) // 2
MANY = 2 * FEW + 1
WAY_MS = 100


def is_read(channel: ChannelPeer) -> bool:
    """Whether the front reads the socket of a channel."""
    link = channel.peer.link
    assert isinstance(link, EngineLink) and link.connection is not None
    return link.connection.is_reading


@pytest.fixture
def publishers(cluster: TwoNodes) -> tuple[ChannelPeer, ChannelPeer]:
    """Two channels that publish to a queue each; the first one has much on its way."""
    first, second = far(cluster), far(cluster)
    for name in (b"one", b"two"):
        first.declare(name, durable=True)
    cluster.delay_ms = WAY_MS
    first.publish_each(b"one", *[BODY] * FEW)
    assert is_read(first)
    first.publish_each(b"one", *[BODY] * (MANY - FEW))
    second.publish(b"two", BODY)
    assert (is_read(first), is_read(second)) == (False, True)
    return first, second


def test_it_is_read_again_when_the_other_node_has_it(
    cluster: TwoNodes, publishers: tuple[ChannelPeer, ChannelPeer]
) -> None:
    first, _ = publishers
    cluster.advance(WAY_MS)
    assert not is_read(first)
    cluster.advance(WAY_MS)
    assert is_read(first)


def test_it_is_read_again_when_the_queue_is_down(
    cluster: TwoNodes, publishers: tuple[ChannelPeer, ChannelPeer]
) -> None:
    first, _ = publishers
    cluster.cut()
    assert is_read(first)


def test_a_node_that_is_short_of_memory_makes_no_room(
    cluster: TwoNodes, publishers: tuple[ChannelPeer, ChannelPeer]
) -> None:
    first, _ = publishers
    back = cluster.back.broker
    limit = back.alarms.memory_limit_bytes
    back.memory_used(limit + 1, cluster.back.now_ms)
    cluster.advance(10 * WAY_MS)
    assert not is_read(first)
    assert cluster.back.vhost.queues[b"one"].ready_count == MANY
    back.memory_used(0, cluster.back.now_ms)
    cluster.advance(10 * WAY_MS)
    assert is_read(first)


def test_a_node_whose_disk_is_slow_makes_no_room(cluster: TwoNodes) -> None:
    channel = far(cluster)
    channel.declare(b"q", durable=True)
    cluster.back.broker.disk_flow.stop_bytes = 2 * len(BODY)
    cluster.holds_commits = True
    for _ in range(MANY):
        channel.publish(b"q", BODY, PERSISTENT)
    cluster.advance(1000)
    assert not is_read(channel)
    cluster.holds_commits = False
    cluster.advance(1000)
    assert is_read(channel)
