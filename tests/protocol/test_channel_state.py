"""Opening, closing and failing channels, and what one may not send there (protocol 5.1, 11, P7)."""

import pytest

from tests.support.brokers.amqp_frames import BODY, frame, header_frame, method_frame
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    AccessRequest,
    AccessRequestOk,
    BasicAck,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionOpen,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    TxCommitOk,
)


def test_method_on_a_channel_that_is_not_open(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.expect_channel(5).fatal(QueueDeclare(b"q"), 504, "expected 'channel.open'")


def test_channel_number_is_free_again_after_close_and_unknown_until_opened(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel(3)
    channel.close()
    peer.channel(3).declare(exclusive=True)
    peer.channels[3].close()
    peer.expect_channel(3).fatal(QueueDeclare(b"q"), 504, "expected 'channel.open'")


def test_opening_an_open_channel(amqp: Amqp) -> None:
    amqp.channel().fatal(ChannelOpen(), 504, "second 'channel.open' seen")


def test_the_number_of_channels_is_limited_not_the_numbers(amqp: Amqp) -> None:
    peer = amqp.connect(channel_max=3)
    for number in (65535, 1, 4000):
        peer.channel(number)
    text = "number of channels opened (3) has reached the negotiated channel_max (3)"
    peer.method(2, ChannelOpen())
    # RabbitMQ blames no method here, unlike elsewhere.
    peer.closed_with(530, text)


def test_a_closed_channel_makes_room(amqp: Amqp) -> None:
    peer = amqp.connect(channel_max=1)
    for _ in range(3):
        peer.channel().close()


@pytest.mark.parametrize(
    "method",
    [
        BasicConsumeOk(b"t"),
        TxCommitOk(),
        ChannelOpenOk(),
        ConnectionOpen(b"/"),
        QueueDeclareOk(b"q"),
        ChannelFlowOk(True),
    ],
    ids=lambda method: type(method).__name__,
)
def test_what_a_client_may_not_send(amqp: Amqp, method: Method) -> None:
    amqp.channel().fatal(method, 503, "unimplemented method")


@pytest.mark.parametrize(
    "method",
    [BasicDeliver(), BasicGetOk(), BasicReturn()],
    ids=lambda method: type(method).__name__,
)
def test_contents_only_a_server_may_send(amqp: Amqp, method: Method) -> None:
    channel = amqp.channel()
    channel.peer.send(method_frame(1, method), header_frame(1, 0))
    channel.peer.closed_with(503, "unimplemented method", method.class_id, method.method_id)


def test_flow(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.send(ChannelFlow(True))
    assert channel.expect(ChannelFlowOk).active is True
    channel.fatal(ChannelFlow(False), 540, "active=false")


def test_access_request(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.send(AccessRequest(b"/data", False, True, True, True, True))
    assert channel.expect(AccessRequestOk).ticket == 1


def test_a_channel_error_spares_the_others(amqp: Amqp) -> None:
    peer = amqp.connect()
    first, second = peer.channel(), peer.channel()
    queue = second.declare(amqp.name(), exclusive=True).queue
    missing = amqp.name()
    first.refused(BasicGet(missing), 404, f"no queue '{missing.decode()}' in vhost '/'")
    second.publish(queue, b"still here")
    assert second.get(queue).body == b"still here"
    peer.channel(1).declare(exclusive=True)


def test_what_is_under_way_on_a_failed_channel_is_swallowed(amqp: Amqp) -> None:
    peer = amqp.connect()
    other, channel = peer.channel(), peer.channel()
    queue = other.declare(amqp.name()).queue
    missing = amqp.name()
    number = channel.number
    peer.send(
        method_frame(number, BasicGet(missing)),
        method_frame(number, BasicPublish(b"", queue)),
        header_frame(number, 3),
        frame(BODY, number, b"abc"),
        method_frame(number, BasicAck(17)),
        method_frame(number, QueueDelete(queue)),
        method_frame(number, BasicPublish(b"", queue)),
        header_frame(number, 6),
        frame(BODY, number, b"abc"),
    )
    close = channel.await_close()
    assert close.reply_code == 404
    # Frames within a content are ignored as well.
    peer.send(frame(BODY, number, b"def"), method_frame(number, ChannelCloseOk()))
    del peer.channels[number]
    again = peer.channel(number)
    again.publish(queue, b"after")
    assert again.drain(queue) == [b"after"]


def test_frames_after_close_ok_are_for_an_unknown_channel(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    missing = amqp.name()
    channel.refused(BasicGet(missing), 404, f"no queue '{missing.decode()}' in vhost '/'")
    peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 0))
    assert peer.await_close().reply_code == 504


def test_both_sides_close_a_channel_at_once(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    peer.send(
        method_frame(1, BasicGet(amqp.name())), method_frame(1, ChannelClose(200, b"bye", 0, 0))
    )
    assert channel.await_close().reply_code == 404
    channel.expect(ChannelCloseOk)
    channel.send(ChannelCloseOk())
    del peer.channels[1]
    peer.channel(1).declare(exclusive=True)


def test_replies_keep_the_order_of_requests(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.peer.send(
        method_frame(1, QueueDeclare(name, False, True)),
        method_frame(1, BasicQos(0, 5)),
        method_frame(1, QueueDeclare(name, True)),
        method_frame(1, ChannelFlow(True)),
        method_frame(1, QueueDelete(name)),
        method_frame(1, QueueDelete(name)),
    )
    kinds = [type(channel.reply()).__name__ for _ in range(6)]
    assert kinds == [
        "QueueDeclareOk", "BasicQosOk", "QueueDeclareOk", "ChannelFlowOk", "QueueDeleteOk", "QueueDeleteOk",
    ]  # fmt: skip


def test_pipelined_declare_bind_publish(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.peer.send(
        method_frame(1, QueueDeclare(name, False, True)),
        method_frame(1, BasicPublish(b"", name)),
        header_frame(1, 1),
        frame(BODY, 1, b"x"),
        method_frame(1, QueueDelete(name)),
    )
    channel.expect(QueueDeclareOk)
    channel.send(ChannelFlow(True))
    deleted = channel.expect(QueueDeleteOk)
    if not amqp.is_foreign:
        assert deleted.message_count == 1


def test_an_error_text_is_cut_at_255_bytes(amqp: Amqp) -> None:
    name = b"n" * 255
    amqp.channel().refused(BasicGet(name), 404, f"no queue '{name.decode()}' in vhost '/'")


def test_an_error_text_is_not_cut_inside_a_character(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ cuts bytes")
    channel = amqp.channel()
    channel.refused(BasicGet("ü".encode() * 127), 404, f"no queue '{'ü' * 127}' in vhost '/'")


def test_channel_close_while_a_commit_is_under_way(amqp: Amqp) -> None:
    engine = amqp.engine()
    engine.holds_commits = True
    peer = amqp.connect()
    channel = peer.channel()
    name = amqp.name()
    peer.send(
        method_frame(1, QueueDeclare(name, False, True)),
        method_frame(1, BasicPublish(b"", name)),
        header_frame(1, 1),
        frame(BODY, 1, b"x"),
        method_frame(1, ChannelClose(200, b"", 0, 0)),
    )
    assert not peer.read(0.1)
    engine.holds_commits = False
    engine.pump()
    channel.expect(QueueDeclareOk)
    channel.expect(ChannelCloseOk)
    assert amqp.channel().count(name) == 1


def test_connection_is_lost_while_a_commit_is_under_way(amqp: Amqp) -> None:
    engine = amqp.engine()
    engine.holds_commits = True
    peer = amqp.connect()
    peer.channel()
    name = amqp.name()
    peer.send(method_frame(1, QueueDeclare(name, False, True)), method_frame(1, QueueDelete(name)))
    peer.drop()
    engine.holds_commits = False
    engine.pump()
    assert amqp.channel().declare(name, durable=True).queue == name


def test_a_failed_commit_of_a_definition_is_told(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    engine.failing_commits = 1
    channel.send(QueueDeclare(amqp.name(), False, True))
    close = channel.peer.await_close()
    assert close.reply_code == 506
