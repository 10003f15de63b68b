"""x-max-length, x-max-length-bytes, x-overflow: what a full queue takes (protocol 7.1, 7.2)."""

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import BasicAck, BasicNack

LIMITS = [{"x-max-length": 2}, {"x-max-length-bytes": 20}]
REFUSING = ["reject-publish", "reject-publish-dlx"]


def limited(amqp: Amqp, channel: ChannelPeer, arguments: dict[str, object]) -> bytes:
    encoded = table(**{key.replace("-", "__"): value for key, value in arguments.items()})
    return channel.declare(amqp.name(), arguments=encoded).queue


def bodies(count: int) -> list[bytes]:
    return [b"%010d" % number for number in range(count)]


def outcome(channel: ChannelPeer, queue: bytes, body: bytes, exchange: bytes = b"") -> bool:
    """Publish and await the confirm: whether it is an ack."""
    channel.publish(queue, body, exchange=exchange)
    found = channel.event()
    assert isinstance(found, BasicAck | BasicNack), found
    return isinstance(found, BasicAck)


@pytest.mark.parametrize("limit", LIMITS)
def test_drop_head_keeps_the_newest(amqp: Amqp, limit: dict[str, object]) -> None:
    channel = amqp.channel()
    queue = limited(amqp, channel, limit)
    channel.confirm_select()
    assert [outcome(channel, queue, body) for body in bodies(4)] == [True] * 4
    assert channel.drain(queue) == bodies(4)[2:]


@pytest.mark.parametrize("overflow", REFUSING)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_full_queue_refuses(amqp: Amqp, limit: dict[str, object], overflow: str) -> None:
    channel = amqp.channel()
    queue = limited(amqp, channel, {**limit, "x-overflow": overflow})
    channel.confirm_select()
    assert [outcome(channel, queue, body) for body in bodies(4)] == [True, True, False, False]
    assert channel.drain(queue) == bodies(4)[:2]


@pytest.mark.parametrize("overflow", ["drop-head", *REFUSING])
def test_max_length_0(amqp: Amqp, overflow: str) -> None:
    """Under drop-head a waiting consumer gets the message; the others refuse even then."""
    channel = amqp.channel()
    queue = limited(amqp, channel, {"x-max-length": 0, "x-overflow": overflow})
    channel.confirm_select()
    takes = overflow == "drop-head"
    assert outcome(channel, queue, b"lost") == takes
    assert channel.count(queue) == 0
    if takes:
        reader = amqp.channel()
        reader.consume(queue, no_ack=True)
        assert outcome(channel, queue, b"taken")
        assert reader.bodies(1) == [b"taken"]


def test_one_of_two_queues_refuses(amqp: Amqp) -> None:
    channel = amqp.channel()
    full = limited(amqp, channel, {"x-max-length": 1, "x-overflow": "reject-publish"})
    free = channel.declare(amqp.name()).queue
    exchange = amqp.name("e")
    channel.exchange(exchange, b"fanout", auto_delete=True)
    channel.bind(full, exchange)
    channel.bind(free, exchange)
    channel.confirm_select()
    assert [outcome(channel, b"", body, exchange) for body in bodies(2)] == [True, False]
    assert channel.drain(full) == bodies(1)
    assert channel.drain(free) == bodies(2)
