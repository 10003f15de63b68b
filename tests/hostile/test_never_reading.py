"""A client that sends and never reads costs bounded memory, and delays no other client."""

import socket
import time

import pytest

from tests.support.awaiting import PATIENCE_S, eventually
from tests.support.brokers.amqp_frames import BODY, SocketLink, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer, Message, Peer
from tests.support.brokers.watched_broker import MIB, WatchedBroker, WellBehaved
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
    QueueDeclare,
)
from warrenmq.wire.properties import Properties

pytestmark = pytest.mark.slow
# Memory that one client may cost: the transport's buffer, gathered output, bytes that the kernel
# refuses, one large message.
COST = 40 * MIB


class Mute:
    """A client that logs in, opens channel 1, and then never reads."""

    def __init__(self, broker: WatchedBroker) -> None:
        link = SocketLink(broker.node.host, broker.node.port)
        link.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.peer = Peer(link).open()
        self.channel = self.peer.channel()
        self.socket = link.socket

    def push(self, data: bytes, seconds: float) -> int:
        """Send `data` repeatedly for `seconds`, as fast as possible; return the number of times."""
        self.socket.setblocking(False)
        deadline = time.monotonic() + seconds
        sent = 0
        while time.monotonic() < deadline:
            try:
                sent += self.socket.send(memoryview(data)[sent % len(data) :])
            except BlockingIOError:
                time.sleep(0.01)
        return sent // len(data)


@pytest.fixture
def well_behaved(broker: WatchedBroker) -> WellBehaved:
    client = WellBehaved(broker)
    client.start()
    return client


def with_message(broker: WatchedBroker, queue: bytes, body: bytes, count: int = 1) -> ChannelPeer:
    """Declare a queue with `count` messages; return its channel."""
    channel = broker.connect().channel()
    channel.declare(queue)
    for _ in range(count):
        channel.publish(queue, body)
    assert channel.count(queue) == count
    return channel


def check(broker: WatchedBroker, client: WellBehaved, before: int, cost: int = COST) -> None:
    client.stop()
    assert client.peak - before < cost, f"{(client.peak - before) / MIB:.0f} MiB"
    assert client.longest_work_s < 1.0, f"of {client.slowest:.2f} s"
    broker.check_service()


def test_a_message_got_and_returned_for_ever(
    broker: WatchedBroker, well_behaved: WellBehaved
) -> None:
    with_message(broker, b"q", bytes(MIB))
    before = broker.rss()
    mute = Mute(broker)
    pairs = b"".join(
        method_frame(1, BasicGet(b"q")) + method_frame(1, BasicReject(tag, True))
        for tag in range(1, 20_000)
    )
    mute.push(pairs, 1.5)
    check(broker, well_behaved, before)


def test_a_message_recovered_for_ever(broker: WatchedBroker, well_behaved: WellBehaved) -> None:
    with_message(broker, b"q", bytes(MIB))
    before = broker.rss()
    mute = Mute(broker)
    mute.peer.send(method_frame(1, BasicConsume(b"q", b"c")))
    rejects = b"".join(method_frame(1, BasicReject(tag, True)) for tag in range(1, 20_000))
    # Wait for more bytes than the consume-ok: then the message is delivered and may be rejected.
    mute.socket.settimeout(PATIENCE_S)
    eventually(lambda: len(mute.socket.recv(1000, socket.MSG_PEEK)) == 1000, "a delivery")
    mute.push(rejects, 1.5)
    check(broker, well_behaved, before)


def test_replies_nobody_reads(broker: WatchedBroker, well_behaved: WellBehaved) -> None:
    before = broker.rss()
    mute = Mute(broker)
    mute.push(method_frame(1, QueueDeclare(b"a" * 255, exclusive=True)) * 1000, 3)
    check(broker, well_behaved, before)


def test_returns_nobody_reads(broker: WatchedBroker, well_behaved: WellBehaved) -> None:
    before = broker.rss()
    mute = Mute(broker)
    size = 100_000
    publish = method_frame(1, BasicPublish(b"", b"nowhere", True))
    publish += header_frame(1, size) + frame(BODY, 1, bytes(size))
    assert mute.push(publish, 3) > 20
    check(broker, well_behaved, before)


@pytest.mark.parametrize("no_ack", [True, False])
def test_a_consumer_that_never_reads_slows_nobody(
    broker: WatchedBroker, well_behaved: WellBehaved, no_ack: bool
) -> None:
    channel = with_message(broker, b"q", b"", 0)
    mute = Mute(broker)
    mute.peer.method(1, BasicConsume(b"q", b"mute", False, no_ack))
    reader = broker.connect().channel()
    reader.send(BasicQos(0, 100))
    reader.expect(BasicQosOk)
    reader.send(BasicConsume(b"q", b"reader"))
    reader.expect(BasicConsumeOk)
    before = broker.rss()
    size, count = 50_000, 4000
    received = 0
    for number in range(count):
        channel.publish(b"q", bytes(size))
        if number % 20 == 19:
            while reader.peer.read(0.0001):
                pass
            for item in list(reader.events):
                assert isinstance(item, Message)
                reader.send(BasicAck(item.deliver.delivery_tag))
                received += 1
            reader.events.clear()
    # The reader gets all 200 MB but the messages that the mute consumer was given.
    while received * size < (count * size) - 8 * MIB:
        message = reader.message()
        reader.send(BasicAck(message.deliver.delivery_tag))
        received += 1
    check(broker, well_behaved, before)
    # The mute consumer's unacked messages are requeued when its connection ends.
    mute.socket.close()
    if not no_ack:
        while received < count:
            message = reader.message()
            reader.send(BasicAck(message.deliver.delivery_tag))
            received += 1


def test_many_mute_consumers(broker: WatchedBroker, well_behaved: WellBehaved) -> None:
    with_message(broker, b"q", bytes(20_000), 200)
    before = broker.rss()
    mutes = [Mute(broker) for _ in range(60)]
    for mute in mutes:
        mute.peer.method(1, BasicConsume(b"q", b"mute"))
    time.sleep(1)
    check(broker, well_behaved, before, 60 * MIB)
    for mute in mutes:
        mute.socket.close()
    channel = broker.connect().channel()
    eventually(lambda: channel.count(b"q") == 200, "all messages back in the queue")


def test_an_announced_body_that_never_comes(
    broker: WatchedBroker, well_behaved: WellBehaved
) -> None:
    before = broker.rss()
    mutes = [Mute(broker) for _ in range(30)]
    for mute in mutes:
        mute.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 128 * MIB))
        mute.peer.send(frame(BODY, 1, bytes(100_000)))
    time.sleep(0.5)
    check(broker, well_behaved, before)


@pytest.mark.parametrize("size", [1, 2, 9])
def test_a_body_in_crumbs(broker: WatchedBroker, well_behaved: WellBehaved, size: int) -> None:
    mute = Mute(broker)
    before = broker.rss()
    mute.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 64 * MIB))
    crumbs = frame(BODY, 1, bytes(size)) * 5000
    times = mute.push(crumbs, 0.7)
    # The part of the body that has arrived may be in memory more than once while it grows.
    check(broker, well_behaved, before, 20 * MIB + 3 * times * 5000 * size)


def test_the_crumbs_are_the_body(broker: WatchedBroker) -> None:
    channel = broker.connect().channel()
    channel.declare(b"q")
    body = bytes(range(256)) * 100
    crumbs = [frame(BODY, 1, body[at : at + 3]) for at in range(0, len(body), 3)]
    for _ in range(2):
        channel.peer.send(
            method_frame(1, BasicPublish(b"", b"q")), header_frame(1, len(body)), *crumbs
        )
        assert channel.get(b"q").body == body


def test_direct_replies_to_one_who_does_not_read(
    broker: WatchedBroker, well_behaved: WellBehaved
) -> None:
    mute = Mute(broker)
    mute.peer.method(1, BasicConsume(b"amq.rabbitmq.reply-to", b"r", False, True))
    mute.channel.expect(BasicConsumeOk)
    server = broker.connect().channel()
    server.declare(b"rpc")
    mute.channel.publish(b"rpc", b"?", Properties(reply_to=b"amq.rabbitmq.reply-to").encode())
    eventually(lambda: server.count(b"rpc") == 1, "the question")
    reply_to = server.get(b"rpc").properties.reply_to
    assert reply_to is not None
    before = broker.rss()
    for _ in range(200):
        server.publish(reply_to, bytes(MIB))
    # The reply to this declare comes after all publishes.
    assert server.count(b"rpc") == 0
    # The bound of the output, and the copies of the part being written.
    check(broker, well_behaved, before, 120 * MIB)
