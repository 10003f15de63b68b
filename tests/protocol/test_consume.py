"""basic.consume, cancel, get, and the order of serving consumers (protocol 5.5, 9.1, 9.2)."""

import re

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)


def consumer_count(channel: ChannelPeer, queue: bytes) -> int:
    channel.send(QueueDeclare(queue, True))
    return channel.expect(QueueDeclareOk).consumer_count


# -- consume ---------------------------------------------------------------------------------------


def test_deliveries(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish_each(queue, b"1", b"2")
    assert channel.count(queue) == 2
    assert channel.consume(queue, b"mine") == b"mine"
    for number in (1, 2):
        message = channel.message()
        deliver = message.deliver
        assert (deliver.consumer_tag, deliver.delivery_tag, deliver.redelivered) == (
            b"mine",
            number,
            False,
        )
        assert (deliver.exchange, deliver.routing_key) == (b"", queue)
        assert message.body == str(number).encode()


def test_consume_ok_comes_before_the_first_delivery(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish_each(queue, b"1", b"2")
    channel.log.clear()
    channel.consume(queue)
    channel.bodies(2)
    assert isinstance(channel.log[0], BasicConsumeOk)


def test_server_made_tags(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    tags = {channel.consume(queue) for _ in range(3)}
    assert len(tags) == 3
    assert all(re.fullmatch(rb"amq\.ctag-[A-Za-z0-9_-]{22}", tag) for tag in tags)


def test_a_tag_in_use_closes_the_connection(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.consume(queue, b"t")
    channel.peer.channel().consume(queue, b"t")
    channel.fatal(BasicConsume(queue, b"t"), 530, "attempt to reuse consumer tag 't'")


def test_a_tag_is_free_again_after_cancel(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    for _ in range(2):
        channel.consume(queue, b"t")
        channel.cancel(b"t")


def test_missing_queue(amqp: Amqp) -> None:
    missing = amqp.name()
    amqp.channel().refused(
        BasicConsume(missing), 404, f"no queue '{missing.decode()}' in vhost '/'"
    )


def test_no_wait(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(queue, b"x")
    channel.send(BasicConsume(queue, b"t", False, False, False, True))
    assert channel.message().deliver.consumer_tag == b"t"
    channel.send(BasicCancel(b"t", True))
    channel.publish(queue, b"y")
    channel.quiet()


def test_no_local_is_ignored(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.send(BasicConsume(queue, b"t", True))
    channel.expect(BasicConsumeOk)
    channel.publish(queue, b"x")
    assert channel.message().body == b"x"


def test_exclusive_consumer(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.consume(queue, b"t", exclusive=True)
    text = f"queue '{queue.decode()}' in vhost '/' in exclusive use"
    amqp.channel().refused(BasicConsume(queue), 403, text)
    other = amqp.channel()
    # basic.get does not count as a consumer.
    assert other.is_empty(queue)
    channel.cancel(b"t")
    other.consume(queue)
    channel.refused(BasicConsume(queue, b"t", False, False, True), 403, text)


@pytest.mark.parametrize(
    ("tag", "value", "type"), [("S", b"1", "longstr"), ("d", 1.0, "double"), ("t", True, "bool")]
)
def test_bad_priority(amqp: Amqp, tag: str, value: object, type: str) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    arguments = encode_table({"x-priority": Field(ord(tag), value)})
    text = f"invalid arg 'x-priority' for queue '{queue.decode()}' in vhost '/': \"expected integer, got {type}\""
    channel.refused(BasicConsume(queue, b"", False, False, False, False, arguments), 406, text)


def test_stream_offset_is_for_streams(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    arguments = table(x__stream__offset=1)
    text = f"invalid arg 'x-stream-offset' for queue '{queue.decode()}' in vhost '/' of queue type rabbit_classic_queue"
    channel.refused(BasicConsume(queue, b"", False, False, False, False, arguments), 406, text)


def test_unknown_consume_arguments_are_ignored(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.consume(queue, arguments=table(x__whatever="x", x__priority=-3))


def test_round_robin(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    tags = [channel.consume(queue) for _ in range(3)]
    seen = []
    for number in range(9):
        channel.publish(queue, str(number).encode())
        message = channel.message()
        assert message.body == str(number).encode()
        seen.append(message.deliver.consumer_tag)
    assert sorted(seen[:3]) == sorted(tags)
    assert seen[3:6] == seen[:3]
    assert seen[6:] == seen[:3]


def test_higher_priority_first_lower_while_they_are_blocked(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.qos(2)
    channel.consume(queue, b"low", arguments=table(x__priority=-5))
    channel.consume(queue, b"mid")
    channel.consume(queue, b"high", arguments=table(x__priority=10))
    seen = []
    tags = []
    for number in range(6):
        channel.publish(queue, str(number).encode())
        deliver = channel.message().deliver
        seen.append(deliver.consumer_tag)
        tags.append(deliver.delivery_tag)
    assert seen == [b"high", b"high", b"mid", b"mid", b"low", b"low"]
    channel.ack(tags[0])
    channel.quiet()
    channel.publish(queue, b"7")
    assert channel.message().deliver.consumer_tag == b"high"


def test_order_is_kept_for_one_consumer(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    bodies = [str(number).encode() for number in range(500)]
    channel.publish_each(queue, *bodies[:250])
    channel.consume(queue, no_ack=True)
    channel.publish_each(queue, *bodies[250:])
    assert channel.bodies(500) == bodies


def test_delivery_tags_count_gets_and_no_ack_deliveries(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish_each(queue, b"1", b"2", b"3", b"4")
    assert channel.get(queue).got.delivery_tag == 1
    assert channel.get(queue, no_ack=True).got.delivery_tag == 2
    channel.consume(queue, no_ack=True)
    assert [channel.message().deliver.delivery_tag for _ in range(2)] == [3, 4]
    channel.publish(queue, b"5")
    assert channel.message().deliver.delivery_tag == 5
    channel.ack(1)
    channel.quiet()
    channel.refused(BasicAck(3), 406, "unknown delivery tag 3")


# -- cancel ----------------------------------------------------------------------------------------


def test_cancel_of_an_unknown_tag(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.send(BasicCancel(b"nobody"))
    assert channel.expect(BasicCancelOk).consumer_tag == b"nobody"


def test_unacked_outlive_their_consumer(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish_each(queue, b"1", b"2", b"3")
    channel.qos(2)
    tag = channel.consume(queue)
    first, second = channel.message().deliver, channel.message().deliver
    channel.cancel(tag)
    channel.publish(queue, b"4")
    channel.quiet()
    channel.ack(first.delivery_tag)
    channel.reject(second.delivery_tag)
    channel.quiet()
    assert channel.drain(queue) == [b"2", b"3", b"4"]
    assert consumer_count(channel, queue) == 0


def test_no_delivery_after_cancel_ok(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    publisher = amqp.channel()
    for round_number in range(20):
        tag = channel.consume(queue, no_ack=True)
        for _ in range(5):
            publisher.publish(queue, b"x")
        channel.cancel(tag)
        channel.events.clear()
        if round_number % 5 == 0:
            channel.quiet()
    assert list(channel.events) == []


# -- cancelled by the broker -----------------------------------------------------------------------


def test_consumers_are_told_of_the_end_of_their_queue(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.consume(queue, b"a")
    channel.publish(queue, b"x")
    unacked = channel.message().deliver.delivery_tag
    other = amqp.channel()
    other.delete(queue)
    item = channel.event()
    assert isinstance(item, BasicCancel)
    assert (item.consumer_tag, item.nowait) == (b"a", True)
    # The tag is free, and an ack of the unacked delivery is accepted without effect.
    channel.ack(unacked)
    channel.declare(queue)
    channel.consume(queue, b"a")
    channel.quiet()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("nowait", [False, True])
def test_the_channel_that_deletes_is_told_behind_the_reply(
    amqp: Amqp, durable: bool, nowait: bool
) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=durable).queue
    for tag in (b"a", b"b"):
        channel.consume(queue, tag)
    channel.log.clear()
    channel.send(QueueDelete(queue, nowait=nowait))
    tags = set()
    for _ in range(2):
        item = channel.event()
        assert isinstance(item, BasicCancel)
        tags.add(item.consumer_tag)
    assert tags == {b"a", b"b"}
    kinds = [type(item) for item in channel.log]
    assert kinds == [*([] if nowait else [QueueDeleteOk]), BasicCancel, BasicCancel]


def test_nobody_is_told_without_the_capability(amqp: Amqp) -> None:
    channel = amqp.connect(capabilities={}).channel()
    queue = channel.declare(amqp.name()).queue
    channel.consume(queue, b"a")
    amqp.channel().delete(queue)
    channel.quiet()


def test_an_answer_to_a_cancel_is_ignored(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ closes the connection with 503")
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.consume(queue, b"a")
    amqp.channel().delete(queue)
    channel.event()
    channel.send(BasicCancelOk(b"a"))
    channel.quiet()


def test_requeue_into_a_deleted_queue_is_accepted(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish_each(queue, b"1", b"2")
    tags = [channel.get(queue).got.delivery_tag for _ in range(2)]
    channel.delete(queue)
    channel.reject(tags[0])
    channel.nack(tags[1], requeue=False)
    channel.quiet()


# -- get -------------------------------------------------------------------------------------------


def test_get(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish_each(queue, b"1", b"2", b"3")
    for number, left in ((1, 2), (2, 1), (3, 0)):
        message = channel.get(queue)
        got = message.got
        assert (message.body, got.delivery_tag, got.redelivered) == (
            str(number).encode(),
            number,
            False,
        )
        assert (got.exchange, got.routing_key, got.message_count) == (b"", queue, left)
    assert isinstance(channel.call(BasicGet(queue)), BasicGetEmpty)
    missing = amqp.name()
    channel.refused(BasicGet(missing), 404, f"no queue '{missing.decode()}' in vhost '/'")


def test_get_no_ack_is_final(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.publish(queue, b"x")
    channel.get(queue, no_ack=True)
    channel.close()
    assert amqp.channel().is_empty(queue)


def test_get_beside_a_consumer_without_room(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.qos(1)
    channel.consume(queue)
    channel.publish_each(queue, b"1", b"2")
    assert channel.message().body == b"1"
    assert channel.get(queue).body == b"2"


def test_deliveries_of_a_message_are_equal(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    queues = [channel.declare(exclusive=True).queue for _ in range(3)]
    for queue in queues:
        channel.bind(queue, exchange)
    channel.publish(b"key", b"body", exchange=exchange)
    for queue in queues:
        message = channel.get(queue)
        assert (message.got.exchange, message.got.routing_key, message.body) == (
            exchange,
            b"key",
            b"body",
        )
