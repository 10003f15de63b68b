"""The end of a connection, begun by the client, the broker or both (protocol 2, 11, P33)."""

import socket

import pytest

from tests.support.brokers.amqp_frames import HEARTBEAT, METHOD, SocketLink, frame, method_frame
from tests.support.brokers.fixtures import Amqp
from tests.support.skips import does_not_apply
from warrenmq.wire.methods import (
    BasicPublish,
    ChannelClose,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ExchangeDeclare,
    QueueDeclare,
    QueueDeclareOk,
)


def test_close_is_answered_and_nothing_else_comes(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish_each(queue, *[b"x"] * 20)
    channel.consume(queue)
    channel.bodies(20)
    peer.send(method_frame(0, ConnectionClose(200, b"bye", 0, 0)), frame(HEARTBEAT, 0, b""))
    peer.expect(ConnectionCloseOk)
    assert amqp.channel().count(queue) == 20


def test_what_was_sent_before_a_close_counts(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    name = amqp.name()
    channel.declare(name, durable=True)
    for number in range(500):
        channel.publish(name, str(number).encode())
    peer.close()
    other = amqp.channel()
    amqp.eventually(lambda: other.count(name) == 500)
    assert other.drain(name) == [str(number).encode() for number in range(500)]
    other.delete(name)


def test_durable_declaration_then_close_in_one_packet(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    name = amqp.name()
    peer.send(
        method_frame(1, QueueDeclare(name, False, True)),
        method_frame(0, ConnectionClose(200, b"", 0, 0)),
    )
    if not amqp.is_foreign:
        channel.expect(QueueDeclareOk)
    peer.expect(ConnectionCloseOk)
    other = amqp.channel()
    other.declare(name, durable=True)
    other.delete(name)


@pytest.mark.parametrize("packets", [1, 2])
def test_both_sides_close_at_once(amqp: Amqp, packets: int) -> None:
    amqp.departure("RabbitMQ forgets the client's close when its own follows at once")
    peer = amqp.connect()
    peer.channel()
    fault = method_frame(1, ExchangeDeclare(amqp.name("x"), b"nonsense"))
    close = method_frame(0, ConnectionClose(200, b"", 0, 0))
    if packets == 1:
        peer.send(fault, close)
    else:
        peer.send(fault)
        peer.send(close)
    assert peer.await_close().reply_code == 503
    peer.expect(ConnectionCloseOk)
    peer.finish_close()


def test_frames_after_a_close_of_ours_are_ignored_until_close_ok(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    channel.send(ExchangeDeclare(amqp.name("x"), b"nonsense"))
    assert peer.await_close().reply_code == 503
    peer.send(
        method_frame(1, QueueDeclare(b"")),
        method_frame(7, BasicPublish(b"", b"q")),
        method_frame(1, ChannelClose(200, b"", 0, 0)),
        method_frame(0, ConnectionOpen(b"/")),
        frame(HEARTBEAT, 0, b""),
    )
    peer.method(0, ConnectionCloseOk())
    assert [found for found in peer.frames_until_end() if found.kind == METHOD] == []


def test_the_socket_is_closed_when_a_client_does_not_answer(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=5)
    peer.channel().send(ExchangeDeclare(b"x", b"nonsense"))
    peer.await_close()
    started_ms = engine.now_ms
    peer.frames_until_end(60)
    assert 4_000 <= engine.now_ms - started_ms <= 6_000


def test_the_socket_is_closed_when_a_client_closes_but_stays(amqp: Amqp) -> None:
    engine = amqp.engine()
    peer = amqp.connect(heartbeat=5)
    peer.method(0, ConnectionClose(200, b"", 0, 0))
    peer.expect(ConnectionCloseOk)
    started_ms = engine.now_ms
    peer.frames_until_end(60)
    assert 4_000 <= engine.now_ms - started_ms <= 6_000


def test_half_close_is_a_loss(amqp: Amqp) -> None:
    if not amqp.uri:
        does_not_apply("needs a socket")
    peer = amqp.connect()
    channel = peer.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"x")
    channel.get(queue)
    assert isinstance(peer.link, SocketLink)
    peer.link.socket.shutdown(socket.SHUT_WR)
    peer.frames_until_end()
    other = amqp.channel()
    amqp.eventually(lambda: other.count(queue) == 1)
    assert other.get(queue).got.redelivered


def test_a_connection_after_many_others(amqp: Amqp) -> None:
    for _ in range(30):
        channel = amqp.channel()
        channel.declare(exclusive=True)
        channel.peer.close()
