"""Consumers take turns at a channel's prefetch and a connection's output (protocol 9.1, 9.3)."""

import sys
from collections import Counter
from itertools import groupby
from types import FrameType

import pytest

from tests.support.brokers.amqp_frames import method_frame, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import EngineLink
from tests.support.skips import has_no_meaning
from warrenmq.broker.channel.channel_host import OUTPUT_BYTES_MAX
from warrenmq.broker.connection.output_turns import TURN_MESSAGES
from warrenmq.build import build_name
from warrenmq.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicRecover,
    BasicRecoverOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)

# RabbitMQ picks the first queue at random, which shows in a hundred messages.
DRAWN_TOLERANCE = 0.7
TOLERANCE = 0.2
BODY = b"x" * 1000


def filled(channel: ChannelPeer, amqp: Amqp, count: int, body: bytes = b"x") -> bytes:
    """Declare a queue with `count` messages."""
    queue = channel.declare(amqp.name()).queue
    channel.publish_each(queue, *[body] * count)
    assert channel.count(queue) == count
    return queue


def assert_even(amqp: Amqp, shares: Counter[bytes], names: int) -> None:
    even = shares.total() / names
    tolerance = DRAWN_TOLERANCE if amqp.is_foreign else TOLERANCE
    assert len(shares) == names, shares
    assert all(abs(share - even) <= tolerance * even for share in shares.values()), shares


@pytest.mark.parametrize("prefetch", [1, 4, 10])
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "all at once"])
def test_queues_share_the_channel_wide_prefetch(amqp: Amqp, prefetch: int, at_once: bool) -> None:
    channel = amqp.channel()
    queues = [filled(channel, amqp, 100) for _ in range(3)]
    channel.qos(prefetch, whole_channel=True)
    for queue in queues:
        channel.consume(queue, queue)
    shares: Counter[bytes] = Counter()
    # The first consumer begins with a full prefetch. When all is acked at once, it keeps that lead.
    for number in range(1, 151 if at_once else 100):
        message = channel.message().deliver
        shares[message.consumer_tag] += 1
        if not at_once:
            channel.ack(message.delivery_tag)
        elif number % prefetch == 0:
            channel.ack(message.delivery_tag, multiple=True)
    assert_even(amqp, shares, 3)


@pytest.mark.parametrize("prefetch", [1, 4])
def test_consumers_of_one_queue_share_the_channel_wide_prefetch(amqp: Amqp, prefetch: int) -> None:
    channel = amqp.channel()
    queue = filled(channel, amqp, 60)
    channel.qos(prefetch, whole_channel=True)
    for tag in (b"a", b"b", b"c"):
        channel.consume(queue, tag)
    shares: Counter[bytes] = Counter()
    for _ in range(30):
        message = channel.message().deliver
        shares[message.consumer_tag] += 1
        channel.ack(message.delivery_tag)
    assert_even(amqp, shares, 3)


def test_both_limits_share(amqp: Amqp) -> None:
    """A consumer whose own prefetch was full waits behind the others for the channel's room."""
    channel = amqp.channel()
    queues = [filled(channel, amqp, 100) for _ in range(3)]
    channel.qos(1)
    channel.qos(2, whole_channel=True)
    for queue in queues:
        channel.consume(queue, queue)
    shares: Counter[bytes] = Counter()
    for _ in range(90):
        message = channel.message().deliver
        shares[message.consumer_tag] += 1
        channel.ack(message.delivery_tag)
    assert_even(amqp, shares, 3)


def test_a_consumer_without_acks_shares_too(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ may leave it blocked for as long as the other queue has messages")
    channel = amqp.channel()
    free, counted = filled(channel, amqp, 50), filled(channel, amqp, 50)
    channel.qos(1, whole_channel=True)
    channel.consume(counted, b"counted")
    channel.consume(free, b"free", no_ack=True)
    for _ in range(20):
        message = channel.message().deliver
        while message.consumer_tag != b"counted":
            message = channel.message().deliver
        channel.ack(message.delivery_tag)
    # A consumer without acks takes no room, so it may be ahead; it has not waited for the other
    # queue to empty.
    assert channel.count(free) <= 50 - 15


def test_the_higher_priority_gets_all_the_room(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = filled(channel, amqp, 30)
    channel.qos(2, whole_channel=True)
    channel.consume(queue, b"high", arguments=table(x__priority=10))
    channel.consume(queue, b"low")
    for _ in range(20):
        message = channel.message().deliver
        assert message.consumer_tag == b"high"
        channel.ack(message.delivery_tag)


def test_a_message_returned_for_ever_stops_no_other_queue(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ gives the message back to its consumer at once, for ever")
    channel = amqp.channel()
    poison, healthy = filled(channel, amqp, 1), filled(channel, amqp, 10)
    channel.qos(1, whole_channel=True)
    channel.consume(poison, b"poison")
    channel.consume(healthy, b"healthy")
    acked = 0
    for _ in range(22):
        message = channel.message().deliver
        if message.consumer_tag == b"poison":
            channel.nack(message.delivery_tag)
        else:
            channel.ack(message.delivery_tag)
            acked += 1
        if acked == 10:
            return
    pytest.fail(f"{acked} of 10 in 22 deliveries")


def test_room_of_recover_goes_to_who_waits(amqp: Amqp) -> None:
    channel = amqp.channel()
    first, second = filled(channel, amqp, 1), filled(channel, amqp, 1)
    channel.qos(1, whole_channel=True)
    channel.consume(first, b"first")
    channel.consume(second, b"second")
    assert channel.message().deliver.consumer_tag == b"first"
    tags = []
    for _ in range(4):
        channel.send(BasicRecover(True))
        assert isinstance(channel.reply(), BasicRecoverOk)
        tags.append(channel.message().deliver.consumer_tag)
    assert amqp.is_foreign or tags == [b"second", b"first"] * 2


def test_room_of_a_commit_goes_to_who_waits(amqp: Amqp) -> None:
    channel = amqp.channel()
    queues = [filled(channel, amqp, 30) for _ in range(2)]
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    channel.qos(1, whole_channel=True)
    for queue in queues:
        channel.consume(queue, queue)
    shares: Counter[bytes] = Counter()
    for _ in range(20):
        message = channel.message().deliver
        shares[message.consumer_tag] += 1
        channel.ack(message.delivery_tag)
        channel.send(TxCommit())
        channel.expect(TxCommitOk)
    assert_even(amqp, shares, 2)


def test_channels_share_their_connections_output(amqp: Amqp) -> None:
    """The order of channels or consumers does not decide which one is sent the next burst."""
    engine = amqp.engine()
    peer = amqp.connect()
    one, two = peer.channel(), peer.channel()
    first = filled(one, amqp, 900, BODY)
    one.consume(first, b"first", no_ack=True)
    queues = [filled(two, amqp, 900, BODY) for _ in range(2)]
    arrived: list[bytes] = []
    # All of `first` has been delivered. It is filled again while the socket takes nothing.
    one.bodies(900)
    link = peer.link
    assert isinstance(link, EngineLink) and link.connection is not None
    link.connection.is_writable = False
    amqp.channel().publish_each(first, *[BODY] * 900)
    for queue in queues:
        link.send(method_frame(2, consume_without_acks(queue)))
    link.connection.is_writable = True
    link.connection.on_written(engine.now_ms)
    while len(arrived) < 750:
        peer.read()
        for channel in (one, two):
            arrived.extend(
                item.deliver.consumer_tag for item in channel.events if isinstance(item, Message)
            )
            channel.events.clear()
    assert_even(amqp, Counter(arrived[:750]), 3)
    # Turns are short: no consumer waits until another one's burst has filled the socket.
    assert max(len(list(run)) for _, run in groupby(arrived[:750])) <= TURN_MESSAGES


def consume_without_acks(queue: bytes) -> BasicConsume:
    return BasicConsume(queue, queue, False, True, False, True)


def test_channels_that_get_share_their_connections_output(amqp: Amqp) -> None:
    """A client with many gets in a row holds up neither other such channels nor consumers."""
    engine = amqp.engine()
    peer = amqp.connect()
    channels = [peer.channel(), peer.channel(), peer.channel()]
    queues = [filled(channel, amqp, 900, BODY) for channel in channels]
    link = peer.link
    assert isinstance(link, EngineLink) and link.connection is not None
    link.connection.is_writable = False
    for number in (1, 2):
        link.send(method_frame(number, BasicGet(queues[number - 1], True)) * 900)
    link.send(method_frame(3, consume_without_acks(queues[2])))
    link.connection.is_writable = True
    link.connection.on_written(engine.now_ms)
    shares: Counter[bytes] = Counter()
    while shares.total() < 6 * OUTPUT_BYTES_MAX // len(BODY):
        peer.read()
        for channel in channels:
            shares[b"%d" % channel.number] += len(channel.replies) + len(channel.events)
            channel.replies.clear()
            channel.events.clear()
    assert shares.pop(b"3") > shares.total() / 3
    assert_even(amqp, shares, 2)


def test_cancelled_consumers_leave_nothing_behind(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = filled(channel, amqp, 3)
    other = channel.declare(amqp.name()).queue
    channel.qos(1, whole_channel=True)
    channel.consume(queue)
    for _ in range(5):
        channel.publish(other, b"x")
        channel.cancel(channel.consume(other))
        channel.consume(other)
        channel.delete(other)
        other = channel.declare(amqp.name()).queue
    (broker_channel,) = [
        one for link in engine.links if link.connection for one in link.connection.channels.values()
    ]
    assert broker_channel.room.rotation.take() is not None
    assert broker_channel.room.rotation.count == 0


@has_no_meaning(build_name() == "compiled", "counts the calls of Python functions")
@pytest.mark.parametrize("shared", [False, True], ids=["queue each", "one queue"])
def test_an_ack_costs_the_same_whatever_the_number_of_consumers(amqp: Amqp, shared: bool) -> None:
    amqp.engine()
    channel = amqp.channel()
    channel.qos(1, whole_channel=True)
    queue = filled(channel, amqp, 20)
    for _ in range(300):
        channel.consume(queue if shared else filled(channel, amqp, 1))
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and "/warrenmq/" in frame.f_code.co_filename

    for _ in range(10):
        message = channel.message().deliver
        sys.setprofile(count)
        try:
            channel.ack(message.delivery_tag)
        finally:
            sys.setprofile(None)
    assert 0 < calls < 10 * 300
