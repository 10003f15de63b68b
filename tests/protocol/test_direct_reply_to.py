"""Direct reply-to (protocol 9.6, P23)."""

import pytest

from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicPublish,
    BasicReturn,
    QueueDeclare,
    QueueDeclareOk,
)
from warrenmq.wire.properties import Properties

PSEUDO = b"amq.rabbitmq.reply-to"
ASKING = Properties(reply_to=PSEUDO, correlation_id=b"c1").encode()


def asking(amqp: Amqp) -> tuple[ChannelPeer, ChannelPeer, bytes]:
    """A requester, a responder and the responder's queue."""
    requester, responder = amqp.channel(), amqp.channel()
    queue = responder.declare(amqp.name()).queue
    requester.consume(PSEUDO, b"replies", no_ack=True)
    return requester, responder, queue


def address(amqp: Amqp, responder: ChannelPeer, queue: bytes) -> bytes:
    """The reply-to of the next request."""
    amqp.eventually(lambda: responder.count(queue) == 1)
    message = responder.get(queue, no_ack=True)
    properties = message.properties
    assert properties.correlation_id == b"c1"
    assert properties.reply_to is not None
    return properties.reply_to


def test_request_and_replies(amqp: Amqp) -> None:
    requester, responder, queue = asking(amqp)
    requester.publish(queue, b"question", ASKING)
    reply_to = address(amqp, responder, queue)
    assert reply_to.startswith(PSEUDO + b".")
    properties = Properties(correlation_id=b"c1").encode()
    for body in (b"1", b"2"):
        responder.publish(reply_to, body, properties)
    tags = []
    for body in (b"1", b"2"):
        message = requester.message()
        deliver = message.deliver
        assert (deliver.consumer_tag, deliver.redelivered) == (b"replies", False)
        assert (deliver.exchange, deliver.routing_key) == (b"", reply_to)
        assert (message.raw, message.body) == (properties, body)
        tags.append(deliver.delivery_tag)
    assert tags[0] == tags[1], "the tag is not advanced"


def test_the_consumer_must_be_no_ack(amqp: Amqp) -> None:
    amqp.channel().refused(BasicConsume(PSEUDO), 406, "reply consumer cannot acknowledge")


def test_one_consumer_a_channel(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.consume(PSEUDO, no_ack=True)
    channel.refused(BasicConsume(PSEUDO, b"", False, True), 406, "reply consumer already set")


def test_tag_reuse(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.consume(queue, b"t")
    channel.fatal(BasicConsume(PSEUDO, b"t", False, True), 530, "attempt to reuse consumer tag 't'")


def test_asking_without_a_consumer(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.publish(b"q", b"x", ASKING)
    channel.closed_with(406, "fast reply consumer does not exist", BasicPublish())


def test_asking_after_cancel(amqp: Amqp) -> None:
    channel = amqp.channel()
    tag = channel.consume(PSEUDO, no_ack=True)
    channel.cancel(tag)
    channel.publish(b"q", b"x", ASKING)
    channel.closed_with(406, "fast reply consumer does not exist", BasicPublish())


def test_replies_to_a_requester_that_is_gone_are_lost(amqp: Amqp) -> None:
    requester, responder, queue = asking(amqp)
    requester.publish(queue, b"question", ASKING)
    reply_to = address(amqp, responder, queue)
    requester.close()
    responder.confirm_select()
    responder.publish(reply_to, b"late")
    assert isinstance(responder.event(), BasicAck)


def test_a_mandatory_reply_is_returned_although_delivered(amqp: Amqp) -> None:
    requester, responder, queue = asking(amqp)
    requester.publish(queue, b"question", ASKING)
    reply_to = address(amqp, responder, queue)
    responder.confirm_select()
    responder.publish(reply_to, b"answer", mandatory=True)
    returned = responder.event()
    assert isinstance(returned, Message)
    assert isinstance(returned.method, BasicReturn)
    assert isinstance(responder.event(), BasicAck)
    assert requester.message().body == b"answer"


def test_probe(amqp: Amqp) -> None:
    requester, responder, queue = asking(amqp)
    requester.publish(queue, b"question", ASKING)
    reply_to = address(amqp, responder, queue)
    for passive in (False, True):
        for name in (reply_to, PSEUDO):
            responder.send(QueueDeclare(name, passive))
            found = responder.expect(QueueDeclareOk)
            assert (found.queue, found.message_count, found.consumer_count) == (name, 0, 1)
    requester.close()
    text = f"no queue '{reply_to.decode()}' in vhost '/'"
    responder.refused(QueueDeclare(reply_to), 404, text)


def test_a_garbled_address_is_unroutable(amqp: Amqp) -> None:
    amqp.departure("RabbitMQ closes the connection with 541")
    channel = amqp.channel()
    channel.publish(PSEUDO + b".garbled", b"x", mandatory=True)
    assert channel.message().returned.reply_code == 312


@pytest.mark.parametrize("size", [0, 300_000])
def test_large_replies(amqp: Amqp, size: int) -> None:
    requester, responder, queue = asking(amqp)
    requester.publish(queue, b"question", ASKING)
    responder.publish(address(amqp, responder, queue), b"x" * size)
    assert requester.message().body == b"x" * size


def test_other_reply_tos_are_left_alone(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    properties = Properties(reply_to=b"my.queue").encode()
    channel.publish(queue, b"x", properties)
    assert channel.get(queue).raw == properties
