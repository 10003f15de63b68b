"""Dead letters of a real RabbitMQ have the bytes that `death_headers` writes.

RabbitMQ makes dead letters of messages with properties and headers by chance. Each dead letter is
published again, as a client would that tries once more, so x-death grows, and some begin with an
x-death that a client made up.
"""

import random
from collections.abc import Iterator
from typing import TypeVar

import pytest

from bench.brokers import RabbitmqBroker
from tests.support.brokers.amqp_frames import SocketLink, table
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.other_brokers import running
from warrenmq.broker.dead_letters.death_headers import (
    EXPIRED,
    MAXLEN,
    REJECTED,
    cycling_queues,
    dead_letter_properties,
    with_delivery_count,
)
from warrenmq.wire.field_table import decode_table
from warrenmq.wire.methods import ExchangeDelete, QueuePurge
from warrenmq.wire.properties import Properties, decode_properties

T = TypeVar("T")
HOPS = 6
DEAD = b"dl-dead"
SOURCES = b"dl-x"
FANOUT = b"dl-fanout"
TARGETS = [b"dl-t0", b"dl-t1", b"dl-t2", b"dl-t3"]
# Arguments that make a queue give its messages away at once; rejections are made by hand.
QUICK = {
    MAXLEN: {"x-max-length": 0},
    EXPIRED: {"x-message-ttl": 0},
    REJECTED: {},
}
QUEUES = [
    (b"dl-%s-%d%s" % (reason, number, b"-key" if has_key else b""), reason, has_key)
    for reason in QUICK
    for number in range(2)
    for has_key in (False, True)
]


def raw_name(name: bytes) -> bytes:
    return bytes([len(name)]) + name


def longstr(text: bytes) -> bytes:
    return b"S" + len(text).to_bytes(4, "big") + text


def array(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"A" + len(body).to_bytes(4, "big") + body


def raw_table(*fields: tuple[bytes, bytes]) -> bytes:
    body = b"".join(raw_name(name) + value for name, value in fields)
    return b"F" + len(body).to_bytes(4, "big") + body


def any_value(rng: random.Random, depth: int = 0) -> bytes:
    """A value of any type, also in encodings that RabbitMQ rewrites."""
    simple = [
        b"t\x00", b"t\x01", b"t\x02", b"b\x80", b"B\xff", b"s\x80\x00", b"u\xff\xff",
        b"I\x80\x00\x00\x00", b"i\xff\xff\xff\xff", b"l" + b"\xff" * 8, b"L" + b"\xfe" * 8,
        b"f\x3f\x80\x00\x00", b"d\x3f\xf0" + bytes(6), b"D\x02\x00\x00\x00\x05", b"T" + b"\xff" * 8,
        b"V", longstr(b"text \xff"), b"x\x00\x00\x00\x02\x00\x01",
    ]  # fmt: skip
    kind = rng.randrange(4)
    if depth < 3 and kind == 0:
        return array(*(any_value(rng, depth + 1) for _ in range(rng.randrange(3))))
    if depth < 3 and kind == 1:
        names = rng.sample([b"b", b"a", b"", b"\xc3\xa9"], rng.randrange(4))
        return raw_table(*((name, any_value(rng, depth + 1)) for name in names))
    return rng.choice(simple)


def made_up_death(rng: random.Random) -> bytes:
    """A table of x-death as a client may write it, with fields missing, doubled or strange."""
    queue, reason, _ = rng.choice(QUEUES)
    fields = []
    if rng.random() < 0.7:
        counts = [b"l" + (7).to_bytes(8, "big"), b"I\xff\xff\xff\xfe", b"B\xff", b"s\x80\x00",
                  b"L\x7f" + b"\xff" * 7, b"i\xff\xff\xff\xff"]  # fmt: skip
        fields.append((b"count", rng.choice(counts)))
    if rng.random() < 0.9:
        fields.append((b"queue", longstr(queue)))
    if rng.random() < 0.9:
        fields.append((b"reason", longstr(reason)))
    if rng.random() < 0.5:
        fields.append((rng.choice([b"time", b"z", b"count"]), b"T" + bytes(8)))
    fields = [field for field in fields if field != (b"count", b"T" + bytes(8))]
    rng.shuffle(fields)
    return raw_table(*fields)


def any_headers(rng: random.Random) -> bytes:
    fields = [
        (rng.choice([b"a", b"Z", b"x-deat", b"y", b"", b"a"]), any_value(rng))
        for _ in range(rng.randrange(4))
    ]
    if rng.random() < 0.3:
        keys = [longstr(rng.choice([DEAD, b"nowhere"])), b"I\x00\x00\x00\x01"]
        fields.append((b"CC", array(*keys[: rng.randrange(3)])))
    chance = rng.random()
    if chance < 0.3:
        deaths = [made_up_death(rng) for _ in range(rng.randrange(5))]
        fields.append((b"x-death", array(*deaths)))
    elif chance < 0.4:
        fields.append((b"x-death", rng.choice([longstr(b"?"), b"V", b"I\x00\x00\x00\x01"])))
    if rng.random() < 0.2:
        fields.append((b"x-first-death-queue", rng.choice([longstr(b"made up"), b"V"])))
    rng.shuffle(fields)
    return b"".join(raw_name(name) + value for name, value in fields)


def any_properties(rng: random.Random) -> bytes:
    def some(*values: T) -> T | None:
        return rng.choice([None, None, *values])

    return Properties(
        some(b"text/plain", b""), some(b"utf-8"), some(any_headers(rng), any_headers(rng)),
        some(1, 2), some(0, 3, 255), some(b"correlation"), some(b"reply"),
        some(b"60000", b"+90000", b"100000000"), some(b"id"), some(0, 2**64 - 1), some(b"type"),
        some(b"guest"), some(b"app"), some(b"cluster"),
    ).encode()  # fmt: skip


@pytest.fixture(scope="module")
def channel(rabbitmq: RabbitmqBroker) -> Iterator[ChannelPeer]:
    """A channel to RabbitMQ with the queues of QUEUES, whose dead letters all come to DEAD."""
    running(rabbitmq)
    peer = Peer(SocketLink("127.0.0.1", rabbitmq.port), True).open()
    channel = peer.channel()
    channel.exchange(SOURCES)
    channel.exchange(FANOUT, b"fanout")
    channel.declare(DEAD)
    channel.bind(DEAD, FANOUT)
    for name, reason, has_key in QUEUES:
        arguments: dict[str, object] = dict(QUICK[reason])
        arguments["x-dead-letter-exchange"] = "" if has_key else FANOUT.decode()
        if has_key:
            arguments["x-dead-letter-routing-key"] = DEAD.decode()
        channel.declare(name, arguments=table(**arguments))
        channel.bind(name, SOURCES, b"to " + name)
    yield channel
    for name in (DEAD, *(name for name, _, _ in QUEUES)):
        channel.delete(name)
    for exchange in (SOURCES, FANOUT):
        channel.call(ExchangeDelete(exchange))
    peer.close()


def dead_letter(channel: ChannelPeer, raw: bytes, queue: bytes, reason: bytes) -> bytes:
    """Let a message with the block `raw` die in the queue; the block of its dead letter."""
    channel.publish(b"to " + queue, b"body", raw, SOURCES)
    if reason == REJECTED:
        channel.reject(take(channel, queue)[0], False)
    return take(channel, DEAD)[1]


def take(channel: ChannelPeer, queue: bytes) -> tuple[int, bytes]:
    """Wait for a message in the queue; its delivery tag and its property block."""
    tag = channel.consume(queue, no_ack=queue == DEAD)
    message = channel.message()
    channel.cancel(tag)
    return message.deliver.delivery_tag, message.raw


def latest_time(raw: bytes) -> int:
    headers = decode_properties(raw).headers
    assert headers is not None
    deaths = decode_table(headers)["x-death"].value
    assert isinstance(deaths, list)
    fields = deaths[0].value
    assert isinstance(fields, dict)
    value = fields["time"].value if "time" in fields else 0
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("seed", range(20))
def test_dead_letters_have_the_bytes_of_rabbitmq(channel: ChannelPeer, seed: int) -> None:
    rng = random.Random(seed)
    raw = any_properties(rng)
    for _ in range(HOPS):
        queue, reason, has_key = rng.choice(QUEUES)
        theirs = dead_letter(channel, raw, queue, reason)
        ours = dead_letter_properties(
            raw, SOURCES, b"to " + queue, queue, reason, latest_time(theirs), not has_key
        )
        assert ours == theirs
        raw = theirs


@pytest.mark.parametrize("reason", [EXPIRED, MAXLEN, REJECTED])
def test_rabbitmq_skips_the_same_queues(channel: ChannelPeer, reason: bytes) -> None:
    rng = random.Random(16)
    queue = b"dl-%s-0" % reason
    targets = channel.peer.channel()
    for name in TARGETS:
        targets.declare(name)
        targets.bind(name, FANOUT)
        targets.consume(name, name, no_ack=True)
    for number in range(50):
        deaths = [
            raw_table(
                (b"queue", rng.choice([longstr(name), b"x" + longstr(name)[1:]])),
                (b"reason", longstr(rng.choice([REJECTED, EXPIRED, EXPIRED, MAXLEN]))),
                (b"number", b"I" + number.to_bytes(4, "big")),
            )
            for name in rng.choices(TARGETS, k=rng.randrange(6))
        ]
        headers = raw_name(b"x-death") + array(*deaths)
        theirs = dead_letter(channel, Properties(headers=headers).encode(), queue, reason)
        # Every target gets the dead letter without a history, behind the other one.
        dead_letter(channel, Properties(message_id=b"last").encode(), queue, reason)
        got = []
        open_targets = set(TARGETS)
        while open_targets:
            message = targets.message()
            if message.properties.message_id == b"last":
                open_targets.remove(message.deliver.consumer_tag)
            else:
                got.append(message.deliver.consumer_tag)
        skipped = cycling_queues(theirs, reason, [DEAD, *TARGETS])
        assert [name for name in TARGETS if name not in skipped] == sorted(got)
    for name in TARGETS:
        channel.delete(name)
    targets.close()


def test_quorum_queues_count_deliveries_in_the_same_header(channel: ChannelPeer) -> None:
    queue = b"dl-quorum"
    arguments = table(**{"x-queue-type": "quorum"})
    channel.declare(queue, durable=True, arguments=arguments)
    rng = random.Random(16)
    for _ in range(10):
        raw = any_properties(rng)
        channel.publish(queue, b"body", raw)
        channel.nack(take(channel, queue)[0])
        for count in range(1, 3):
            tag, theirs = take(channel, queue)
            assert theirs == with_delivery_count(raw, count)
            channel.nack(tag)
        channel.call(QueuePurge(queue))
    channel.delete(queue)
