"""Exclusive and auto-delete queues, and what is gone at which reply (protocol 2, 7.2, 9.5, 11)."""

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelClosedError, Peer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import ChannelCloseOk, ExchangeDeclare, ExchangeDeclareOk, QueueDeclare


def queue_exists(peer: Peer, queue: bytes) -> bool:
    channel = peer.channel()
    try:
        channel.count(queue)
    except ChannelClosedError:
        assert channel.await_close().reply_code == 404
        channel.send(ChannelCloseOk())
        del peer.channels[channel.number]
        return False
    channel.close()
    return True


def exchange_exists(peer: Peer, exchange: bytes) -> bool:
    channel = peer.channel()
    channel.send(ExchangeDeclare(exchange, b"", True))
    try:
        channel.expect(ExchangeDeclareOk)
    except ChannelClosedError:
        channel.closed_with(
            404, f"no exchange '{exchange.decode()}' in vhost '/'", ExchangeDeclare()
        )
        return False
    channel.close()
    return True


def test_exclusive_queues_go_before_close_ok(amqp: Amqp) -> None:
    other = amqp.connect()
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, auto_delete=True)
    queues = [channel.declare(amqp.name(), exclusive=True).queue for _ in range(5)]
    for queue in queues:
        channel.bind(queue, exchange, b"k")
    channel.publish(queues[0], b"x")
    channel.peer.close()
    assert [queue_exists(other, queue) for queue in queues] == [False] * 5
    assert not exchange_exists(other, exchange)


def test_exclusive_queues_outlive_their_channel(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.close()
    assert queue_exists(channel.peer, queue)


def test_exclusive_queues_go_with_a_lost_connection(amqp: Amqp) -> None:
    other = amqp.connect()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.peer.drop()

    def is_gone() -> bool:
        probe = other.channel()
        probe.send(QueueDeclare(queue, True))
        close = probe.await_close()
        probe.send(ChannelCloseOk())
        del other.channels[probe.number]
        assert close.reply_code in (404, 405)
        return close.reply_code == 404

    amqp.eventually(is_gone)


def test_exclusive_queues_go_with_a_connection_error(amqp: Amqp) -> None:
    other = amqp.connect()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.send(ExchangeDeclare(amqp.name("x"), b"nonsense"))
    assert channel.peer.await_close().reply_code == 503
    # The queue is gone even before our close-ok.
    assert not queue_exists(other, queue)


def test_an_exclusive_name_is_free_again(amqp: Amqp) -> None:
    name = amqp.name()
    for _ in range(3):
        channel = amqp.channel()
        channel.declare(name, exclusive=True)
        channel.peer.close()


# -- auto-delete -----------------------------------------------------------------------------------


def test_auto_delete_waits_for_a_first_consumer(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), auto_delete=True).queue
    channel.publish(queue, b"x")
    channel.get(queue)
    channel.close()
    assert queue_exists(channel.peer, queue)


@pytest.mark.parametrize("how", ["cancel", "close channel", "close connection"])
def test_auto_delete_with_the_last_consumer(amqp: Amqp, how: str) -> None:
    other = amqp.connect()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), auto_delete=True).queue
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout", auto_delete=True)
    channel.bind(queue, exchange)
    for tag in (b"a", b"b"):
        channel.consume(queue, tag)
    channel.publish_each(queue, b"1", b"2", b"3")
    channel.bodies(3)
    channel.cancel(b"a")
    assert queue_exists(other, queue)
    match how:
        case "cancel":
            channel.cancel(b"b")
        case "close channel":
            channel.close()
        case _:
            channel.peer.close()
    assert not queue_exists(other, queue)
    assert not exchange_exists(other, exchange)


def test_auto_delete_takes_unacked_along(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), auto_delete=True).queue
    tag = channel.consume(queue)
    channel.publish_each(queue, b"1", b"2")
    channel.bodies(2)
    channel.cancel(tag)
    channel.ack(1)
    channel.nack(2)
    channel.quiet()
    channel.declare(queue, auto_delete=True)
    assert channel.count(queue) == 0


@pytest.mark.parametrize("end", ["channel", "connection"])
def test_auto_delete_comes_before_the_return_of_unacked(amqp: Amqp, end: str) -> None:
    """Returned messages would be over the limit, and become dead letters."""
    letters, channel, other = amqp.channel(), amqp.channel(), amqp.channel()
    grave = letters.declare(amqp.name("grave"), exclusive=True).queue
    letters.consume(grave)
    arguments = table(
        x__max__length=1, x__dead__letter__exchange="", x__dead__letter__routing__key=grave.decode()
    )
    queue = other.declare(amqp.name(), auto_delete=True, arguments=arguments).queue
    channel.qos(1)
    channel.consume(queue)
    other.publish_each(queue, b"1", b"2")
    assert channel.message().body == b"1"
    assert other.count(queue) == 1
    if end == "channel":
        channel.close()
    else:
        channel.peer.close()
    letters.quiet()


def test_a_name_can_be_reused_right_after_auto_delete(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    for _ in range(5):
        channel.declare(name, auto_delete=True)
        channel.publish(name, b"x")
        tag = channel.consume(name)
        assert channel.bodies(1) == [b"x"]
        channel.cancel(tag)


def test_auto_delete_and_durable(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True, auto_delete=True).queue
    tag = channel.consume(queue)
    channel.cancel(tag)
    assert not queue_exists(channel.peer, queue)


def test_consumers_on_several_connections(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), auto_delete=True).queue
    consumers = [amqp.channel() for _ in range(3)]
    for consumer in consumers:
        consumer.consume(queue)
    for number, consumer in enumerate(consumers):
        assert queue_exists(channel.peer, queue), number
        consumer.peer.close()
    assert not queue_exists(channel.peer, queue)


def test_bindings_go_with_their_queue(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    queue = channel.declare(amqp.name()).queue
    channel.bind(queue, exchange)
    channel.delete(queue)
    channel.declare(queue)
    channel.publish(b"", b"x", exchange=exchange, mandatory=True)
    assert channel.message().returned.reply_code == 312


def test_consumers_are_gone_after_channel_close_ok(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name()).queue
    channel.consume(queue, exclusive=True)
    other = channel.peer.channel()
    channel.close()
    other.consume(queue, exclusive=True)


# -- consumers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close connection", "drop"])
def test_what_one_channel_gives_back_goes_to_no_other_of_its_connection(
    amqp: Amqp, how: str
) -> None:
    """Such a consumer would take the message without acks and never read it."""
    other = amqp.connect().channel()
    queue = other.declare(amqp.name()).queue
    other.publish_each(queue, b"1", b"2")
    amqp.departure("channels of one connection end one after the other there, in any order")
    holder = amqp.channel()
    holder.get(queue)
    holder.get(queue)
    holder.peer.channel().consume(queue, no_ack=True)
    if how == "drop":
        holder.peer.drop()
    else:
        holder.peer.close()
    amqp.eventually(lambda: other.count(queue) == 2)
