"""Malformed frames, and the limits of the sizes of frames (protocol section 1)."""

import re
import struct

import pytest

from tests.support.brokers.amqp_frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    frame,
    full_text,
    header_frame,
    method_frame,
    payload_of,
)
from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicDeliver,
    BasicPublish,
    BasicQos,
    ChannelOpen,
    ConnectionClose,
    ConnectionOpen,
    QueueDeclare,
    QueueDeclareOk,
    decode_method,
)

QUEUE_DECLARE = struct.pack(">HH", 50, 10)


def faulty(
    peer: Peer, data: bytes, code: int, text: str, class_id: int = 0, method_id: int = 0
) -> None:
    """Check that the bytes close the connection with this reply."""
    peer.send(data)
    close = peer.await_close()
    found = close.reply_text.decode()
    if peer.is_foreign:
        # Erlang shows printable octets as text and breaks long lines; we always show numbers.
        found, text = (
            re.sub(r"<<.*>>", "<<>>", re.sub(r"\s", "", shown)) for shown in (found, text)
        )
        assert found == re.sub(r"\s", "", full_text(code, text))
    else:
        assert found == full_text(code, text)
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (
        code,
        class_id,
        method_id,
    )


def test_frame_over_frame_max_is_refused_on_its_header(amqp: Amqp) -> None:
    peer = amqp.connect(frame_max=8192)
    peer.channel()
    text = "type 3, all octets = <<>>: {frame_too_large,8193,8184}"
    faulty(peer, struct.pack(">BHI", BODY, 1, 8193), 501, text)


def test_socket_is_closed_after_a_framing_fault_without_waiting_for_close_ok(amqp: Amqp) -> None:
    amqp.slow_in_real_time()
    peer = amqp.connect()
    peer.send(struct.pack(">BHI", BODY, 1, 131073))
    (close,) = peer.frames_until_end()
    assert isinstance(decode_method(close.payload, 0, len(close.payload)), ConnectionClose)


def test_payload_of_frame_max_is_taken(amqp: Amqp) -> None:
    # The eight bytes of the frame itself do not count.
    channel = amqp.connect(frame_max=4096).channel()
    queue = channel.declare(amqp.name()).queue
    body = bytes(range(256)) * 16
    number = channel.number
    channel.peer.send(
        method_frame(number, BasicPublish(b"", queue)),
        header_frame(number, 4096),
        frame(BODY, number, body),
    )
    message = channel.get(queue)
    assert message.body == body
    assert message.pieces == [4088, 8]


@pytest.mark.parametrize(
    ("payload", "octets"),
    [(b"", "all octets = <<>>"), (b"abc", "all octets = <<97,98,99>>"),
     (bytes(range(16)), "all octets = <<0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15>>"),
     (bytes(range(17)), "first 16 octets = <<0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15>>")],
    ids=["0", "3", "16", "17"],
)  # fmt: skip
def test_wrong_end_octet(amqp: Amqp, payload: bytes, octets: str) -> None:
    peer = amqp.connect()
    data = struct.pack(">BHI", METHOD, 0, len(payload)) + payload + b"\xcd"
    faulty(peer, data, 501, f"type 1, {octets}: {{invalid_frame_end_marker,205}}")


@pytest.mark.parametrize("kind", [0, 4, 7, 9, 255])
def test_unknown_frame_type(amqp: Amqp, kind: int) -> None:
    faulty(
        amqp.connect(),
        frame(kind, 0, b"x"),
        501,
        f"type {kind}, all octets = <<120>>: unknown_frame",
    )


@pytest.mark.parametrize("kind", [0, 9])
def test_unknown_frame_type_on_an_open_channel(amqp: Amqp, kind: int) -> None:
    peer = amqp.connect()
    peer.channel()
    faulty(peer, frame(kind, 1, b"x"), 501, f"type {kind}, all octets = <<120>>: unknown_frame")


def test_method_frame_too_short_to_name_a_method(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    faulty(peer, frame(METHOD, 1, b"\0\1\2"), 501, "type 1, all octets = <<0,1,2>>: unknown_frame")


def test_header_frame_too_short(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    octets = ",".join(["0"] * 11)
    faulty(
        peer, frame(HEADER, 1, bytes(11)), 501, f"type 2, all octets = <<{octets}>>: unknown_frame"
    )


@pytest.mark.parametrize("size", [12, 13])
def test_header_frame_without_property_flags(amqp: Amqp, size: int) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    peer.send(frame(HEADER, 1, struct.pack(">HHQ", 60, 0, 0).ljust(size, b"\0")))
    peer.closed_with(541, "")


def test_heartbeat_with_payload_is_an_unknown_frame(amqp: Amqp) -> None:
    faulty(
        amqp.connect(),
        frame(HEARTBEAT, 0, b"x"),
        501,
        "type 8, all octets = <<120>>: unknown_frame",
    )


@pytest.mark.parametrize("channel", [1, 7])
def test_heartbeat_on_another_channel(amqp: Amqp, channel: int) -> None:
    peer = amqp.connect()
    peer.channel(1)
    faulty(peer, frame(HEARTBEAT, channel, b""), 505, "type 8, all octets = <<>>")


@pytest.mark.parametrize(
    ("kind", "size", "octets"), [(HEADER, 12, "all octets = <<{}>>"), (BODY, 0, "all octets = <<{}>>"),
                                 (BODY, 16, "all octets = <<{}>>"), (BODY, 17, "first 16 octets = <<{}>>")],
)  # fmt: skip
def test_content_on_channel_0(amqp: Amqp, kind: int, size: int, octets: str) -> None:
    shown = ",".join(["1"] * min(size, 16))
    faulty(
        amqp.connect(), frame(kind, 0, b"\1" * size), 505, f"type {kind}, {octets.format(shown)}"
    )


def test_channel_before_open(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ says nothing before the connection is open")
    peer = amqp.raw()
    peer.start()
    peer.method(1, ChannelOpen())
    faulty(peer, b"", 505, "type 1, all octets = <<0,20,0,10,0>>")


@pytest.mark.parametrize("kind", [HEADER, BODY])
def test_content_when_a_method_is_due(amqp: Amqp, kind: int) -> None:
    peer = amqp.connect()
    peer.channel()
    payload = struct.pack(">HHQH", 60, 0, 1, 0) if kind == HEADER else b"x"
    faulty(
        peer, frame(kind, 1, payload), 505, "expected method frame, got non method frame instead"
    )


@pytest.mark.parametrize("second", [BasicPublish(b"", b"q"), BasicQos(0, 1)])
def test_method_when_a_header_is_due(amqp: Amqp, second: BasicPublish | BasicQos) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    text = "expected content header for class 60, got non content header frame instead"
    faulty(peer, method_frame(1, second), 505, text, 60, 40)


def test_body_when_a_header_is_due(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    text = "expected content header for class 60, got non content header frame instead"
    faulty(peer, frame(BODY, 1, b"x"), 505, text, 60, 40)


def test_header_with_a_weight(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    peer.send(frame(HEADER, 1, struct.pack(">HHQH", 60, 1, 0, 0)))
    close = peer.await_close()
    assert close.reply_code in ((501, 505) if amqp.is_foreign else (505,))


def test_header_of_another_class(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.method(1, BasicPublish(b"", b"q"))
    text = "expected content header for class 60, got one for class 50 instead"
    faulty(peer, frame(HEADER, 1, struct.pack(">HHQH", 50, 0, 0, 0)), 505, text, 60, 40)


@pytest.mark.parametrize("kind", ["method", "header"])
def test_something_else_inside_a_body(amqp: Amqp, kind: str) -> None:
    peer = amqp.connect()
    peer.channel()
    peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 2), frame(BODY, 1, b"x"))
    data = method_frame(1, BasicPublish(b"", b"q")) if kind == "method" else header_frame(1, 1)
    faulty(peer, data, 505, "expected content body, got non content body frame instead", 60, 40)


def test_more_body_than_announced(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ does not notice")
    peer = amqp.connect()
    peer.channel()
    peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 2))
    faulty(peer, frame(BODY, 1, b"abc"), 501, "content body of 3 bytes, 2 announced", 60, 40)


def test_other_channels_may_interleave(amqp: Amqp) -> None:
    peer = amqp.connect()
    first, second = peer.channel(), peer.channel()
    queue = first.declare(amqp.name()).queue
    peer.send(
        method_frame(1, BasicPublish(b"", queue)),
        method_frame(2, BasicPublish(b"", queue)),
        header_frame(1, 2),
        frame(HEARTBEAT, 0, b""),
        header_frame(2, 2),
        frame(BODY, 2, b"c"),
        frame(BODY, 1, b"a"),
        frame(BODY, 2, b"d"),
        frame(BODY, 1, b"b"),
    )
    second.quiet()
    first.quiet()
    assert sorted(first.drain(queue)) == [b"ab", b"cd"]


def test_arguments_that_do_not_decode(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    payload = QUEUE_DECLARE + b"\0\0\5ab"
    peer.send(frame(METHOD, 1, payload))
    close = peer.await_close()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (501, 50, 10)
    assert close.reply_text.decode().startswith("FRAME_ERROR - cannot decode <<0,0,5,97,98>>")


def test_arguments_of_the_connection_class_that_do_not_decode(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.send(frame(METHOD, 0, struct.pack(">HH", 10, 50) + b"\1"))
    close = peer.await_close()
    assert close.reply_code == (541 if amqp.is_foreign else 501)


def test_shortstr_that_is_not_utf8(amqp: Amqp) -> None:
    peer = amqp.connect()
    peer.channel()
    payload = QUEUE_DECLARE + b"\0\0\2\xc3\x28\0\0\0\0\0"
    faulty(peer, frame(METHOD, 1, payload), 501, "Malformed UTF-8 in shortstr")


def test_routing_key_of_a_publish_may_be_any_bytes(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.publish(b"\xff\xfe", b"x", exchange=b"amq.fanout")
    channel.quiet()


@pytest.mark.parametrize("id", [0x00320063, 0x00630001, 0x003C0073])
def test_unknown_method(amqp: Amqp, id: int) -> None:
    amqp.departure("RabbitMQ drops the socket")
    peer = amqp.connect()
    peer.channel()
    peer.send(frame(METHOD, 1, struct.pack(">I", id)))
    close = peer.await_close()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (
        503,
        id >> 16,
        id & 0xFFFF,
    )


@pytest.mark.parametrize("tag", [b"U", b"Z", b"\0"])
def test_unknown_tag_in_a_table(amqp: Amqp, tag: bytes) -> None:
    amqp.departure("RabbitMQ drops the socket")
    peer = amqp.connect()
    peer.channel()
    arguments = b"\1a" + tag + b"\0\0"
    peer.method(1, QueueDeclare(amqp.name()))
    peer.expect_channel(1)
    payload = (
        payload_of(QueueDeclare(amqp.name()))[:-4] + struct.pack(">I", len(arguments)) + arguments
    )
    peer.send(frame(METHOD, 1, payload))
    close = peer.await_close()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (501, 50, 10)


def test_table_nested_without_end(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ has no limit")
    arguments = b""
    for _ in range(500):
        arguments = b"\1aF" + struct.pack(">I", len(arguments)) + arguments
    peer = amqp.connect()
    peer.channel()
    payload = payload_of(QueueDeclare(b"q"))[:-4] + struct.pack(">I", len(arguments)) + arguments
    peer.send(frame(METHOD, 1, payload))
    assert peer.await_close().reply_code == 501


def test_unused_bits_are_ignored(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    payload = QUEUE_DECLARE + b"\0\0" + bytes([len(name)]) + name + b"\xe8" + b"\0\0\0\0"
    channel.peer.send(frame(METHOD, 1, payload))
    assert channel.expect(QueueDeclareOk).queue == name


def test_every_chunking_of_the_stream(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    data = b"".join(
        [
            method_frame(1, BasicPublish(b"", queue)),
            header_frame(1, 5),
            frame(BODY, 1, b"ab"),
            frame(BODY, 1, b"cde"),
        ]
    )
    for size in (1, 2, 3, 5, 7, 8, 11):
        for at in range(0, len(data), size):
            channel.peer.send(data[at : at + size])
        assert channel.count(queue) == 1
        assert channel.get(queue, no_ack=True).body == b"abcde"


def test_frames_after_a_connection_error_are_ignored(amqp: Amqp) -> None:
    peer = amqp.connect()
    channel = peer.channel()
    queue = channel.declare(amqp.name()).queue
    stray = [method_frame(2, BasicDeliver()), method_frame(0, ConnectionOpen(b"/"))]
    peer.send(
        method_frame(1, BasicQos(1, 0)),
        method_frame(1, QueueDeclare(queue)),
        method_frame(1, BasicPublish(b"", queue)),
        header_frame(1, 1),
        frame(BODY, 1, b"x"),
        # RabbitMQ handles channels concurrently, so it would find these first.
        *([] if amqp.is_foreign else stray),
    )
    peer.closed_with(540, "prefetch_size!=0 (1)", 60, 10)
    assert amqp.channel().count(queue) == 0
