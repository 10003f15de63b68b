"""Bodies and properties of every shape come back bit by bit (protocol 1, 3, 11)."""

import gc
import random
import struct
import sys

import pytest

from tests.support.brokers.amqp_frames import BODY, PERSISTENT, frame, header_frame, method_frame
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.methods import BasicPublish
from warrenmq.wire.properties import Properties

ALL_FIELDS = {
    "t": Field(ord("t"), True),
    "b": Field(ord("b"), -128),
    "B": Field(ord("B"), 255),
    "s": Field(ord("s"), -32768),
    "u": Field(ord("u"), 65535),
    "I": Field(ord("I"), -(2**31)),
    "i": Field(ord("i"), 2**32 - 1),
    "l": Field(ord("l"), -(2**63)),
    "L": Field(ord("L"), -1),
    "f": Field(ord("f"), 1.5),
    "d": Field(ord("d"), -1e300),
    "D": Field(ord("D"), (3, 2**32 - 1)),
    "S": Field(ord("S"), b"\xff\xfe not utf-8"),
    "x": Field(ord("x"), bytes(range(256))),
    "T": Field(ord("T"), 2**40),
    "V": Field(ord("V"), None),
    "A": Field(ord("A"), [Field(ord("I"), 1), Field(ord("S"), b"two"), Field(ord("A"), [])]),
    "F": Field(ord("F"), {"deep": Field(ord("F"), {"er": Field(ord("t"), False)})}),
}
EVERYTHING = Properties(
    b"application/octet-stream", b"gzip", encode_table(ALL_FIELDS), 2, 255, b"corr", b"reply", b"3600000", b"id",
    2**64 - 1, b"type", b"guest", b"app", b"cluster",
).encode()  # fmt: skip


def through(channel: ChannelPeer, queue: bytes, body: bytes, properties: bytes = b"\0\0") -> None:
    """Publish a message, get it back by get and by delivery, and compare."""
    for _ in range(2):
        channel.publish(queue, body, properties)
    got = channel.get(queue, no_ack=True)
    assert (got.raw, got.body) == (properties, body)
    tag = channel.consume(queue, no_ack=True)
    message = channel.message()
    assert (message.raw, message.body) == (properties, body)
    channel.cancel(tag)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize(
    "size",
    [0, 1, 4087, 4088, 4089, 8176, 16383, 16384, 131063, 131064, 131065, 262128, 262129, 1_500_000],
)
def test_bodies_around_every_boundary(amqp: Amqp, size: int, durable: bool) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=durable).queue
    through(channel, queue, bytes(range(251)) * (size // 251) + b"z" * (size % 251), PERSISTENT)
    channel.delete(queue)


@pytest.mark.parametrize("frame_max", [4096, 4097, 65536, 131072])
def test_deliveries_keep_to_frame_max(amqp: Amqp, frame_max: int) -> None:
    channel = amqp.connect(frame_max=frame_max).channel()
    queue = channel.declare(exclusive=True).queue
    for size in (
        frame_max - 9,
        frame_max - 8,
        frame_max - 7,
        3 * (frame_max - 8),
        3 * (frame_max - 8) + 1,
    ):
        channel.publish(queue, b"x" * size)
        message = channel.get(queue, no_ack=True)
        full, rest = divmod(size, frame_max - 8)
        assert message.pieces == [frame_max - 8] * full + ([rest] if rest else [])


def test_a_message_passes_between_connections_of_different_frame_max(amqp: Amqp) -> None:
    small, large = amqp.connect(frame_max=4096).channel(), amqp.channel()
    queue = small.declare(amqp.name()).queue
    body = bytes(range(256)) * 1000
    large.publish(queue, body)
    small.publish(queue, body)
    small.consume(queue, no_ack=True)
    assert small.bodies(2) == [body, body]


def test_one_byte_frames_and_empty_frames(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    body = bytes(range(200))
    frames = b"".join(
        frame(BODY, 1, body[at : at + 1]) + frame(BODY, 1, b"") * (at % 3 == 0) for at in range(199)
    )
    channel.peer.send(
        method_frame(1, BasicPublish(b"", queue)), header_frame(1, 200), frame(BODY, 1, b""), frames,
        frame(BODY, 1, body[-1:]),
    )  # fmt: skip
    message = channel.get(queue)
    assert message.body == body
    assert message.pieces == [200]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_any_size(amqp: Amqp, seed: int) -> None:
    chance = random.Random(seed)
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    for _ in range(20):
        pieces = [
            chance.randbytes(chance.choice([0, 1, 2, 1023, 1024, 1025, 3000])) for _ in range(40)
        ]
        body = b"".join(pieces)
        frames = [frame(BODY, 1, piece) for piece in pieces]
        while pieces and not pieces[-1]:
            # A frame after the last octet would be one frame too many.
            pieces.pop()
            frames.pop()
        channel.peer.send(
            method_frame(1, BasicPublish(b"", queue)), header_frame(1, len(body)), *frames
        )
        assert channel.get(queue, no_ack=True).body == body


def test_a_body_in_tiny_frames_costs_no_object_for_each(amqp: Amqp) -> None:
    amqp.engine()
    channel = amqp.channel()
    channel.peer.send(method_frame(1, BasicPublish(b"", b"q")), header_frame(1, 1_000_000))
    data = frame(BODY, 1, b"ab") * 10_000
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        channel.peer.send(data)
    assert sys.getallocatedblocks() - before < 10_000


def test_all_properties_and_all_field_types(amqp: Amqp) -> None:
    channel = amqp.channel()
    through(channel, channel.declare(exclusive=True).queue, b"x", EVERYTHING)


def test_properties_from_any_publish_to_any_other(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    blocks = [
        EVERYTHING,
        b"\0\0",
        PERSISTENT,
        EVERYTHING,
        Properties(priority=3).encode(),
        b"\0\0",
        b"\0\0",
    ]
    for block in blocks:
        channel.publish(queue, b"x", block)
    assert [channel.get(queue, no_ack=True).raw for _ in blocks] == blocks
    channel.delete(queue)


@pytest.mark.parametrize("flag", range(2, 16))
def test_each_property_alone(amqp: Amqp, flag: int) -> None:
    names = [
        "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
        "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
    ]  # fmt: skip
    name = names[15 - flag]
    values: dict[str, object] = {"headers": b"", "delivery_mode": 1, "priority": 0, "timestamp": 0}
    values |= {"expiration": b"60000", "user_id": b"guest"}
    properties = Properties()
    setattr(properties, name, values.get(name, b""))
    raw = properties.encode()
    assert struct.unpack(">H", raw[:2]) == (1 << flag,)
    channel = amqp.channel()
    through(channel, channel.declare(exclusive=True).queue, b"x", raw)


def test_headers_with_duplicate_names_keep_their_order(amqp: Amqp) -> None:
    headers = b"\1zt\1" + b"\1aI\0\0\0\1" + b"\1zt\0" + b"\0S\0\0\0\0"
    channel = amqp.channel()
    through(
        channel, channel.declare(exclusive=True).queue, b"x", Properties(headers=headers).encode()
    )


def test_headers_of_almost_a_frame(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    room = channel.peer.frame_max - 8 - 12 - 2 - 4 - len(encode_table({"h": Field(ord("S"), b"")}))
    headers = encode_table({"h": Field(ord("S"), b"x" * room)})
    through(channel, queue, b"body", Properties(headers=headers).encode())


def test_continuation_bits_of_the_flags_are_ignored(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.peer.send(
        method_frame(1, BasicPublish(b"", queue)), header_frame(1, 0, b"\x10\x03\x02")
    )
    assert channel.get(queue).properties.delivery_mode == 2


def test_routing_key_and_exchange_of_full_length(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x").ljust(255, b"x")
    channel.exchange(exchange, b"topic")
    queue = channel.declare(exclusive=True).queue
    channel.bind(queue, exchange, b"#")
    key = "ключ.".encode() * 28
    channel.publish(key, b"x", exchange=exchange)
    got = channel.get(queue).got
    assert (got.exchange, got.routing_key) == (exchange, key)


def test_many_messages_of_many_sizes_in_order(amqp: Amqp) -> None:
    channel, consumer = amqp.channel(), amqp.channel()
    queue = channel.declare(amqp.name()).queue
    consumer.qos(7)
    consumer.consume(queue)
    bodies = [bytes([number % 256]) * (number * 97 % 20_000) for number in range(300)]
    for body in bodies:
        channel.publish(queue, body)
    for body in bodies:
        message = consumer.message()
        assert message.body == body
        consumer.ack(message.deliver.delivery_tag)
