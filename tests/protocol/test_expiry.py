"""x-message-ttl, the expiration property, x-expires (protocol 7.1, 7.2).
Time passes while the machine is busy with something else. A test therefore checks that something
has not yet expired only where it cannot have, and waits for what must have expired.
"""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, method_frame, table
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    ChannelFlow,
    ChannelFlowOk,
    QueueDeclare,
    QueueDeclareOk,
)
from warrenmq.wire.properties import Properties


def expiring(ms: int) -> bytes:
    return Properties(expiration=str(ms).encode()).encode()


def queue_with_ttl(amqp: Amqp, ms: int, durable: bool = False) -> tuple[ChannelPeer, bytes]:
    channel = amqp.channel()
    return channel, channel.declare(
        amqp.name(), durable=durable, arguments=table(x__message__ttl=ms)
    ).queue


def got_in_time(
    amqp: Amqp,
    channel: ChannelPeer,
    queue: bytes,
    ttl_ms: int,
    bodies: list[bytes],
    pause_ms: int = 0,
) -> tuple[list[int], float]:
    """Get messages before they expire; returns tags and publish time, retries when too slow."""
    while True:
        started_ms = amqp.now_ms()
        channel.publish_each(queue, *bodies)
        amqp.pause(pause_ms)
        found = [channel.call(BasicGet(queue)) for _ in bodies]
        tags = [item.got.delivery_tag for item in found if isinstance(item, Message)]
        if len(tags) == len(bodies):
            return tags, started_ms
        assert amqp.has_passed(ttl_ms, started_ms)
        for tag in tags:
            channel.ack(tag)


@pytest.mark.parametrize("durable", [False, True])
def test_queue_ttl(amqp: Amqp, durable: bool) -> None:
    channel, queue = queue_with_ttl(amqp, 300, durable)
    started_ms = amqp.now_ms()
    channel.publish(queue, b"x", PERSISTENT)
    amqp.pause(50)
    assert channel.count(queue) == 1 or amqp.has_passed(300, started_ms)
    amqp.pause(400)
    amqp.eventually(lambda: channel.count(queue) == 0)
    assert channel.is_empty(queue)
    channel.delete(queue)


def test_message_ttl(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"x", expiring(200))
    channel.publish(queue, b"y")
    # The messages are in the queue, so their time runs.
    channel.quiet()
    amqp.pause(400)
    assert channel.drain(queue) == [b"y"]


@pytest.mark.parametrize(("queue_ms", "message_ms"), [(200, 60_000), (60_000, 200)])
def test_the_lower_ttl_counts(amqp: Amqp, queue_ms: int, message_ms: int) -> None:
    channel, queue = queue_with_ttl(amqp, queue_ms)
    channel.publish(queue, b"x", expiring(message_ms))
    amqp.pause(350)
    amqp.eventually(lambda: channel.count(queue) == 0)


def test_expiration_stays_in_the_properties(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"x", expiring(60_000))
    assert channel.get(queue).raw == expiring(60_000)


def test_expiry_at_the_head_only(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"long", expiring(60_000))
    channel.publish(queue, b"short", expiring(100))
    channel.publish(queue, b"none")
    channel.quiet()
    amqp.pause(300)
    assert channel.count(queue) == 3
    assert channel.get(queue, no_ack=True).body == b"long"
    assert channel.drain(queue) == [b"none"]


def test_never_delivered_after_expiry(amqp: Amqp) -> None:
    channel, queue = queue_with_ttl(amqp, 100)
    channel.publish_each(queue, b"1", b"2")
    channel.quiet()
    amqp.pause(250)
    channel.consume(queue)
    channel.publish(queue, b"3")
    assert channel.bodies(1) == [b"3"]
    channel.quiet()


@pytest.mark.parametrize("via", ["queue", "message"])
def test_ttl_0_without_a_consumer_is_gone_at_once(amqp: Amqp, via: str) -> None:
    channel = amqp.channel()
    arguments = table(x__message__ttl=0) if via == "queue" else b""
    queue = channel.declare(amqp.name(), arguments=arguments).queue
    channel.confirm_select()
    channel.publish(queue, b"x", expiring(0) if via == "message" else b"\0\0", mandatory=True)
    # The confirm without a return shows that a queue had the message.
    assert len(channel.confirms(1)) == 1
    assert channel.is_empty(queue)
    assert channel.count(queue) == 0


@pytest.mark.parametrize("no_ack", [False, True])
def test_ttl_0_is_delivered_to_a_waiting_consumer(amqp: Amqp, no_ack: bool) -> None:
    channel, queue = queue_with_ttl(amqp, 0)
    channel.consume(queue, no_ack=no_ack)
    for number in range(5):
        channel.publish(queue, str(number).encode())
    assert channel.bodies(5) == [b"0", b"1", b"2", b"3", b"4"]


def test_ttl_0_with_a_full_consumer_is_gone(amqp: Amqp) -> None:
    channel, queue = queue_with_ttl(amqp, 0)
    channel.qos(1)
    channel.consume(queue)
    channel.publish_each(queue, b"1", b"2")
    assert channel.bodies(1) == [b"1"]
    channel.ack(1)
    channel.quiet()


def test_ttl_0_behind_a_waiting_message(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"first")
    channel.publish(queue, b"hurry", expiring(0))
    assert channel.drain(queue) == [b"first"]


def test_unacked_do_not_expire_but_requeued_ones_do(amqp: Amqp) -> None:
    channel, queue = queue_with_ttl(amqp, 200)
    tags, _ = got_in_time(amqp, channel, queue, 200, [b"1", b"2"])
    amqp.pause(400)
    channel.ack(tags[0])
    channel.reject(tags[1])
    channel.quiet()
    assert channel.is_empty(queue)


def test_requeue_keeps_the_expiry(amqp: Amqp) -> None:
    channel, queue = queue_with_ttl(amqp, 400)
    (tag,), started_ms = got_in_time(amqp, channel, queue, 400, [b"x"], pause_ms=200)
    channel.reject(tag)
    assert channel.count(queue) == 1 or amqp.has_passed(400, started_ms)
    amqp.pause(300)
    amqp.eventually(lambda: channel.count(queue) == 0)


def test_expired_messages_of_a_durable_queue_are_confirmed_once(amqp: Amqp) -> None:
    channel, queue = queue_with_ttl(amqp, 30, durable=True)
    channel.confirm_select()
    for _ in range(100):
        channel.publish(queue, b"x", PERSISTENT)
    channel.confirms(100)
    amqp.pause(150)
    amqp.eventually(lambda: channel.count(queue) == 0)
    channel.quiet()
    channel.delete(queue)


# -- x-expires -------------------------------------------------------------------------------------


def exists(channel: ChannelPeer, queue: bytes) -> bool:
    other = channel.peer.channel()
    try:
        other.count(queue)
    except ChannelClosedError:
        other.closed_with(404, f"no queue '{queue.decode()}' in vhost '/'", QueueDeclare())
        return False
    other.close()
    return True


def is_gone(channel: ChannelPeer, queue: bytes) -> bool:
    """Whether a probe comes back as unroutable; unlike a declaration, it does not use the queue."""
    channel.publish(queue, b"probe", PERSISTENT, mandatory=True)
    assert isinstance(channel.call(ChannelFlow(True)), ChannelFlowOk)
    return bool(channel.events) and channel.message().returned.reply_code == 312


def test_an_unused_queue_expires(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), arguments=table(x__expires=300)).queue
    # A publish does not count as use.
    for _ in range(5):
        channel.publish(queue, b"x")
        amqp.pause(100)
    amqp.eventually(lambda: is_gone(channel, queue))
    assert not exists(channel, queue)


def use_a_while(amqp: Amqp, channel: ChannelPeer, use: str, expires_ms: int) -> bytes | None:
    """Use a queue beyond its x-expires; returns None if the machine was too slow for that."""
    arguments = table(x__expires=expires_ms)
    used_ms = amqp.now_ms()
    queue = channel.declare(amqp.name(), arguments=arguments).queue
    for _ in range(4):
        amqp.pause(expires_ms // 2)
        since_ms, used_ms = used_ms, amqp.now_ms()
        try:
            match use:
                case "get":
                    channel.is_empty(queue)
                case "declare":
                    channel.declare(queue, arguments=arguments)
                case _:
                    channel.count(queue)
        except ChannelClosedError:
            assert amqp.has_passed(expires_ms, since_ms)
            return None
    return queue


@pytest.mark.parametrize("use", ["get", "declare", "passive"])
def test_use_puts_expiry_off(amqp: Amqp, use: str) -> None:
    expires_ms = 400
    channel = amqp.channel()
    while (queue := use_a_while(amqp, channel, use, expires_ms)) is None:
        expires_ms *= 2
        channel = amqp.channel()
    amqp.pause(expires_ms)
    amqp.eventually(lambda: is_gone(channel, queue))
    assert not exists(channel, queue)


def test_a_consumer_keeps_a_queue(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = amqp.name()
    # One packet has both methods, so that the queue does not expire between them.
    channel.peer.send(
        method_frame(1, QueueDeclare(queue, arguments=table(x__expires=200))),
        method_frame(1, BasicConsume(queue, b"t")),
    )
    channel.expect(QueueDeclareOk)
    channel.expect(BasicConsumeOk)
    amqp.pause(600)
    channel.publish(queue, b"x")
    assert channel.bodies(1) == [b"x"]
    channel.send(BasicCancel(b"t"))
    channel.expect(BasicCancelOk)
    amqp.pause(200)
    amqp.eventually(lambda: is_gone(channel, queue))
    assert not exists(channel, queue)


def test_an_expired_queue_takes_no_more(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True, arguments=table(x__expires=100)).queue
    channel.publish(queue, b"x", PERSISTENT)
    amqp.pause(100)
    amqp.eventually(lambda: is_gone(channel, queue))
