"""A channel that leaves a delivery unacked for longer than `consumer_timeout` is closed.

Both brokers do it with the same words, for the same deliveries. What no other broker shows: how
late at most, what does not count, and that the timeout can change.
"""

from collections.abc import Callable

import pytest

from bench.brokers import RabbitmqBroker
from tests.support.awaiting import eventually
from tests.support.brokers.amqp_frames import SocketLink
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.memory_broker import EngineLink, MemoryBroker
from tests.support.brokers.other_brokers import running
from warrenmq.broker.definitions.settings import Settings
from warrenmq.wire.methods import TxSelect

TIMEOUT_MS = 300
# Longest time from one look at a connection to the next (ms).
TICK_MS = 1000
QUEUE = b"consumer-timeout"
TEXT = (
    "delivery acknowledgement on channel {} timed out. Timeout value used: {} ms. "
    "This timeout value can be configured, see consumers doc guide to learn more"
)


def get(channel: ChannelPeer) -> None:
    channel.get(QUEUE)


def consume(channel: ChannelPeer) -> None:
    channel.consume(QUEUE)
    channel.message()


def cancel(channel: ChannelPeer) -> None:
    """The consumer is gone when the time is up."""
    tag = channel.consume(QUEUE)
    channel.message()
    channel.cancel(tag)


def ack_another(channel: ChannelPeer) -> None:
    """The oldest delivery counts, whatever is acked behind it."""
    channel.publish(QUEUE, b"another")
    channel.consume(QUEUE)
    channel.message()
    channel.ack(channel.message().deliver.delivery_tag)


def delete_the_queue(channel: ChannelPeer) -> None:
    channel.get(QUEUE)
    channel.delete(QUEUE)


CASES = [get, consume, cancel, ack_another, delete_the_queue]


def check_close(connect: Callable[[], Peer], act: Callable[[ChannelPeer], None]) -> None:
    peer = connect().open()
    bystander = peer.channel()
    bystander.declare(QUEUE)
    bystander.publish(QUEUE, b"first")
    channel = peer.channel(7)
    act(channel)
    channel.closed_with(406, TEXT.format(7, TIMEOUT_MS))
    if act is not delete_the_queue:
        # RabbitMQ returns the delivery a moment after it has closed the channel.
        eventually(lambda: bystander.count(QUEUE) == 1, "the delivery is back")
        assert bystander.get(QUEUE, no_ack=True).got.redelivered
    bystander.declare(QUEUE)
    bystander.delete(QUEUE)
    peer.close()


@pytest.mark.parametrize("act", CASES)
def test_warren_closes_the_channel(act: Callable[[ChannelPeer], None]) -> None:
    memory = MemoryBroker(Settings(consumer_timeout_ms=TIMEOUT_MS))
    check_close(lambda: Peer(memory.connect()), act)


def test_rabbitmq_closes_the_channel(rabbitmq: RabbitmqBroker) -> None:
    running(rabbitmq)
    set_timeouts(rabbitmq, TIMEOUT_MS, 50)
    try:
        for act in CASES:
            check_close(lambda: Peer(SocketLink("127.0.0.1", rabbitmq.port), True), act)
    finally:
        set_timeouts(rabbitmq, 1_800_000, 60_000)
        # Other tests use the same node, and expect nothing else in it.
        peer = Peer(SocketLink("127.0.0.1", rabbitmq.port), True).open()
        peer.channel().delete(QUEUE)
        peer.close()


def set_timeouts(rabbitmq: RabbitmqBroker, timeout_ms: int, tick_ms: int) -> None:
    rabbitmq.control(
        "eval",
        f"application:set_env(rabbit, consumer_timeout, {timeout_ms}), "
        f"application:set_env(rabbit, channel_tick_interval, {tick_ms}).",
    )


class Waiting:
    """A broker in memory with a queue, and a channel that has got its only message."""

    def __init__(self, timeout_ms: int) -> None:
        self.memory = MemoryBroker(Settings(consumer_timeout_ms=timeout_ms))
        self.peer = Peer(self.memory.connect()).open()
        self.channel = self.peer.channel()
        self.channel.declare(QUEUE)
        self.get()

    def get(self) -> int:
        """Publish a message and get it; returns its delivery tag."""
        self.channel.publish(QUEUE, b"body")
        return self.channel.get(QUEUE).got.delivery_tag

    def is_open(self) -> bool:
        while self.peer.read(0):
            pass
        return not self.channel.replies


def test_a_busy_channel_is_closed_in_time() -> None:
    """The deliveries in front are acked late, but in time: each has its own deadline."""
    waiting = Waiting(320_000)
    for tag in range(1, 100):
        waiting.memory.advance(10_000)
        waiting.get()
        if tag > 30:
            waiting.channel.ack(tag - 30)
        assert waiting.is_open()
    # The oldest delivery is now 300 s old.
    waiting.memory.advance(15_000)
    assert waiting.is_open()
    waiting.memory.advance(5_000 + 320_000 // 32 + TICK_MS)
    assert not waiting.is_open()


def test_an_ack_that_is_not_committed_counts() -> None:
    waiting = Waiting(TIMEOUT_MS)
    waiting.channel.call(TxSelect())
    waiting.channel.ack(1)
    waiting.memory.advance(10 * TIMEOUT_MS + TICK_MS)
    assert waiting.is_open()


def test_time_in_which_the_node_does_not_read_does_not_count() -> None:
    waiting = Waiting(60_000)
    link = waiting.peer.link
    assert isinstance(link, EngineLink)
    assert link.connection is not None
    link.connection.is_unread = True
    waiting.memory.advance(200_000)
    link.connection.is_unread = False
    waiting.memory.advance(50_000)
    assert waiting.is_open()
    # A stall of the node: the client's ack may wait in the socket.
    waiting.memory.now_ms += 1_000_000
    waiting.memory.advance(1)
    assert waiting.is_open()
    waiting.memory.advance(20_000)
    assert not waiting.is_open()


def test_a_new_timeout_counts_for_open_channels() -> None:
    waiting = Waiting(3_600_000)
    waiting.memory.advance(600_000)
    assert waiting.is_open()
    waiting.memory.broker.settings.consumer_timeout_ms = 100_000
    waiting.memory.advance(TICK_MS)
    assert not waiting.is_open()
