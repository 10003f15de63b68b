"""A client that does not read costs bounded memory; one that sends too fast is not read from."""

import sys
from types import FrameType

import pytest

from tests.support.brokers.amqp_frames import BODY as BODY_FRAME
from tests.support.brokers.amqp_frames import PERSISTENT, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import Message
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import EngineLink
from tests.support.skips import does_not_apply, has_no_meaning
from warrenmq.broker.channel.channel_host import OUTPUT_BYTES_MAX
from warrenmq.broker.flow.throttle import WINDOW_BYTES
from warrenmq.build import build_name
from warrenmq.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicPublish,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from warrenmq.wire.properties import NO_PROPERTIES

BODY = b"x" * 10_000


def test_deliveries_stop_while_the_socket_is_full(amqp: Amqp) -> None:
    amqp.engine()
    slow = amqp.channel()
    queue = slow.declare(amqp.name()).queue
    slow.consume(queue, no_ack=True)
    link = slow.peer.link
    assert isinstance(link, EngineLink)
    assert link.connection is not None
    link.connection.is_writable = False
    publisher = amqp.channel()
    for _ in range(100):
        publisher.publish(queue, BODY)
    assert len(link.arrived) <= OUTPUT_BYTES_MAX
    assert publisher.count(queue) >= 100 - OUTPUT_BYTES_MAX // len(BODY)
    # When the socket takes data again, the rest is delivered.
    link.connection.is_writable = True
    link.connection.on_written(amqp.engine().now_ms)
    assert slow.bodies(100) == [BODY] * 100


def test_a_slow_consumer_leaves_the_messages_to_the_others(amqp: Amqp) -> None:
    amqp.engine()
    slow, fast = amqp.channel(), amqp.channel()
    queue = slow.declare(amqp.name()).queue
    for channel in (slow, fast):
        channel.consume(queue, no_ack=True)
    link = slow.peer.link
    assert isinstance(link, EngineLink)
    assert link.connection is not None
    link.connection.is_writable = False
    publisher = amqp.channel()
    for _ in range(200):
        publisher.publish(queue, BODY)
    assert publisher.count(queue) == 0
    assert len(fast.bodies(150)) == 150


def test_a_consumer_that_does_not_read(amqp: Amqp) -> None:
    if not amqp.uri:
        does_not_apply("needs a socket")
    peer = amqp.connect()
    slow = peer.channel()
    queue = slow.declare(amqp.name()).queue
    slow.consume(queue, no_ack=True)
    fast, publisher = amqp.channel(), amqp.channel()
    body = b"x" * 100_000
    fast.qos(50)
    fast.consume(queue)
    publisher.confirm_select()
    for _ in range(400):
        publisher.publish(queue, body)
    publisher.confirms(400)
    # 40 MB are more than sockets can buffer. The second consumer gets the messages that the first
    # does not read.
    for number in range(200):
        tag = fast.message().deliver.delivery_tag
        if number % 10 == 9:
            fast.ack(tag, multiple=True)
    peer.drop()
    fast.close()
    publisher.delete(queue)


def test_replies_that_are_not_read(amqp: Amqp) -> None:
    if not amqp.uri:
        does_not_apply("needs a socket")
    amqp.departure("how much RabbitMQ takes is not ours to test")
    greedy = amqp.connect().channel()
    other = amqp.channel()
    queue = other.declare(amqp.name()).queue
    for _ in range(400):
        other.publish(queue, b"x" * 100_000)
    assert other.count(queue) == 400
    # All answers together are far more than sockets can buffer; the broker serves others meanwhile.
    greedy.send(BasicGet(queue, True))
    for _ in range(399):
        greedy.peer.link.send(method_frame(1, BasicGet(queue, True)))
    other.declare(exclusive=True)
    for _ in range(400):
        item = greedy.reply()
        assert isinstance(item, Message)
        assert len(item.body) == 100_000
    assert other.count(queue) == 0


@pytest.mark.parametrize("persistent", [False, True])
def test_a_suspended_channel_stops_the_reading_when_much_has_gathered(
    amqp: Amqp, persistent: bool
) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    channel.call(TxSelect())
    link = channel.peer.link
    assert isinstance(link, EngineLink)
    connection = link.connection
    assert connection is not None

    def is_reading() -> bool:
        return connection.is_reading

    engine.holds_commits = True
    channel.publish(queue, b"first", PERSISTENT)
    channel.send(TxCommit())
    count = WINDOW_BYTES // len(BODY) + 10
    for _ in range(count):
        channel.publish(queue, BODY, PERSISTENT if persistent else b"\0\0")
    assert not is_reading()
    engine.holds_commits = False
    engine.pump()
    assert is_reading()
    channel.expect(TxCommitOk)
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    assert channel.count(queue) == count + 1


def test_consuming_a_deep_queue_is_cut_into_turns(amqp: Amqp) -> None:
    amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    for _ in range(500):
        channel.publish(queue, BODY)
    channel.send(BasicConsume(queue, b"", False, True))
    channel.reply()
    assert len(channel.bodies(500)) == 500


def test_many_declarations_in_one_packet(amqp: Amqp) -> None:
    channel = amqp.channel()
    names = [amqp.name() for _ in range(50)]
    channel.peer.send(*(method_frame(1, QueueDeclare(name, False, True)) for name in names))
    for name in names:
        reply = channel.reply()
        assert getattr(reply, "queue", None) == name
    for name in names:
        channel.delete(name)


def test_declarations_and_publishes_in_one_packet_keep_their_order(amqp: Amqp) -> None:
    """More frames are kept than the list of kept frames releases at a time."""
    channel = amqp.channel()
    names = [amqp.name() for _ in range(700)]
    frames: list[bytes] = []
    for name in names:
        frames.append(method_frame(1, QueueDeclare(name, False, True)))
        frames.append(
            method_frame(1, BasicPublish(b"", name)) + header_frame(1, len(name), NO_PROPERTIES)
        )
        frames.append(frame(BODY_FRAME, 1, name))
    channel.peer.send(*frames)
    for name in names:
        assert channel.expect(QueueDeclareOk).queue == name
    assert [channel.get(name, True).body for name in names] == names


@has_no_meaning(build_name() == "compiled", "counts the calls of Python functions")
def test_a_kept_frame_is_kept_once(amqp: Amqp) -> None:
    """A channel that waits for many declarations does not touch all kept frames for each."""
    amqp.engine()
    channel = amqp.channel()
    names = [amqp.name() for _ in range(500)]
    calls = 0

    def count(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.endswith("backlog.py")

    sys.setprofile(count)
    try:
        channel.peer.send(*(method_frame(1, QueueDeclare(name, False, True)) for name in names))
        for name in names:
            assert channel.expect(QueueDeclareOk).queue == name
    finally:
        sys.setprofile(None)
    assert 0 < calls < 20 * len(names)
