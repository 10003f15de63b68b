"""ack, nack, reject, recover: valid tags, and places of requeued messages (protocol 5.5, 9.1)."""

import random

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicAck,
    BasicNack,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
)


def filled(amqp: Amqp, count: int, durable: bool = False) -> tuple[ChannelPeer, bytes]:
    """A channel and a queue with messages 0, 1, 2 ..."""
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=durable).queue
    properties = PERSISTENT if durable else b"\0\0"
    for number in range(count):
        channel.publish(queue, str(number).encode(), properties)
    return channel, queue


def numbers(messages: list[bytes]) -> list[int]:
    return [int(body) for body in messages]


def get_all(channel: ChannelPeer, queue: bytes, count: int) -> list[int]:
    """Take `count` messages without acking; returns their tags."""
    return [channel.get(queue).got.delivery_tag for _ in range(count)]


# -- tags ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", [0, 1, 2**63])
@pytest.mark.parametrize("kind", ["ack", "nack", "reject"])
def test_unknown_tag(amqp: Amqp, tag: int, kind: str) -> None:
    wire_tag = tag if tag < 2**63 else tag - 2**64
    method = {"ack": BasicAck, "nack": BasicNack, "reject": BasicReject}[kind](wire_tag)
    amqp.channel().refused(method, 406, f"unknown delivery tag {tag}")


def test_a_second_ack(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 2)
    tags = get_all(channel, queue, 2)
    channel.ack(tags[0])
    channel.refused(BasicAck(tags[0]), 406, f"unknown delivery tag {tags[0]}")


def test_tags_of_no_ack_deliveries_are_unknown(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 1)
    channel.get(queue, no_ack=True)
    channel.refused(BasicAck(1), 406, "unknown delivery tag 1")


def test_tags_belong_to_their_channel(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 1)
    get_all(channel, queue, 1)
    channel.peer.channel().refused(BasicAck(1), 406, "unknown delivery tag 1")


def test_multiple_up_to_a_tag_that_is_not_outstanding(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 3)
    get_all(channel, queue, 3)
    channel.ack(2)
    channel.refused(BasicAck(2, True), 406, "unknown delivery tag 2")
    # The refused ack settled nothing: both messages come back.
    assert numbers(amqp.channel().drain(queue)) == [0, 2]


def test_multiple_beyond_the_last_tag(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 2)
    get_all(channel, queue, 2)
    channel.refused(BasicAck(3, True), 406, "unknown delivery tag 3")


def test_multiple(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 5)
    get_all(channel, queue, 5)
    channel.ack(2)
    channel.ack(4, multiple=True)
    channel.close()
    assert numbers(amqp.channel().drain(queue)) == [4]


@pytest.mark.parametrize("count", [0, 3])
def test_multiple_with_tag_0_is_everything(amqp: Amqp, count: int) -> None:
    channel, queue = filled(amqp, 3)
    get_all(channel, queue, count)
    channel.ack(0, multiple=True)
    channel.nack(0, multiple=True)
    channel.quiet()
    channel.close()
    assert numbers(amqp.channel().drain(queue)) == list(range(count, 3))


def test_acks_in_any_order(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 300)
    channel.consume(queue)
    tags = [channel.message().deliver.delivery_tag for _ in range(300)]
    random.Random(7).shuffle(tags)
    for tag in tags[:-1]:
        channel.ack(tag)
    channel.quiet()
    channel.close()
    assert numbers(amqp.channel().drain(queue)) == [tags[-1] - 1]


# -- back to the queue -----------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [False, True])
def test_requeue_to_the_original_place(amqp: Amqp, durable: bool) -> None:
    channel, queue = filled(amqp, 6, durable)
    tags = get_all(channel, queue, 4)
    channel.reject(tags[2])
    channel.reject(tags[0])
    messages = [channel.get(queue) for _ in range(4)]
    assert numbers([message.body for message in messages]) == [0, 2, 4, 5]
    assert [message.got.redelivered for message in messages] == [True, True, False, False]
    channel.delete(queue)


def test_requeue_among_messages_published_later(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 3)
    get_all(channel, queue, 3)
    channel.publish_each(queue, b"3", b"4")
    channel.nack(0, multiple=True)
    assert numbers(channel.drain(queue)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(4))
def test_requeue_in_any_order(amqp: Amqp, seed: int) -> None:
    chance = random.Random(seed)
    channel, queue = filled(amqp, 60)
    tags = get_all(channel, queue, 40)
    chance.shuffle(tags)
    acked = set()
    for tag in tags:
        choice = chance.random()
        if choice < 0.3:
            channel.ack(tag)
            acked.add(tag - 1)
        elif choice < 0.6:
            channel.reject(tag)
        else:
            channel.nack(tag)
    assert numbers(channel.drain(queue)) == [number for number in range(60) if number not in acked]


def test_nack_multiple(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 5)
    get_all(channel, queue, 5)
    channel.nack(3, multiple=True)
    channel.nack(0, multiple=True, requeue=False)
    assert numbers(channel.drain(queue)) == [0, 1, 2]


def test_reject_without_requeue_drops(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 2)
    tags = get_all(channel, queue, 2)
    channel.reject(tags[0], requeue=False)
    channel.nack(tags[1], requeue=False)
    channel.quiet()
    channel.close()
    assert amqp.channel().is_empty(queue)


def test_a_requeued_message_may_go_to_the_same_consumer(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 1)
    channel.consume(queue)
    first = channel.message()
    channel.reject(first.deliver.delivery_tag)
    again = channel.message()
    assert (again.deliver.delivery_tag, again.deliver.redelivered, again.body) == (2, True, b"0")


@pytest.mark.parametrize("how", ["close channel", "close connection", "drop", "channel error"])
def test_unacked_return_when_their_channel_ends(amqp: Amqp, how: str) -> None:
    channel, queue = filled(amqp, 4)
    channel.qos(2)
    channel.consume(queue)
    assert numbers(channel.bodies(2)) == [0, 1]
    get_all(channel, queue, 1)
    match how:
        case "close channel":
            channel.close()
        case "close connection":
            channel.peer.close()
        case "drop":
            channel.peer.drop()
        case _:
            channel.refused(BasicAck(99), 406, "unknown delivery tag 99")
    other = amqp.channel()
    messages: list[Message] = []
    amqp.eventually(lambda: other.count(queue) == 4)
    for _ in range(4):
        messages.append(other.get(queue))
    assert numbers([message.body for message in messages]) == [0, 1, 2, 3]
    assert [message.got.redelivered for message in messages] == [True, True, True, False]


def test_unacked_go_to_another_consumer_when_their_channel_ends(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 3)
    channel.consume(queue)
    channel.bodies(3)
    other = amqp.channel()
    other.consume(queue)
    channel.close()
    messages = [other.message() for _ in range(3)]
    assert numbers([message.body for message in messages]) == [0, 1, 2]
    assert all(message.deliver.redelivered for message in messages)


# -- recover ---------------------------------------------------------------------------------------


def test_recover(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 3)
    get_all(channel, queue, 2)
    channel.send(BasicRecover(True))
    channel.expect(BasicRecoverOk)
    messages = [channel.get(queue) for _ in range(3)]
    assert numbers([message.body for message in messages]) == [0, 1, 2]
    assert [message.got.redelivered for message in messages] == [True, True, False]
    channel.refused(BasicAck(1), 406, "unknown delivery tag 1")


def test_recover_with_nothing_unacked(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.send(BasicRecover(True))
    channel.expect(BasicRecoverOk)


def test_recover_async_has_no_reply(amqp: Amqp) -> None:
    channel, queue = filled(amqp, 1)
    get_all(channel, queue, 1)
    channel.send(BasicRecoverAsync(True))
    channel.quiet()
    assert numbers(channel.drain(queue)) == [0]


@pytest.mark.parametrize("method", [BasicRecover(False), BasicRecoverAsync(False)])
def test_recover_without_requeue(amqp: Amqp, method: BasicRecover | BasicRecoverAsync) -> None:
    amqp.channel().fatal(method, 540, "requeue=false")
