"""Lazy queues have everything on disk, and clients notice no difference (S74-S76)."""

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import QueueDeclare, QueuePurge, QueuePurgeOk
from warrenmq.wire.properties import Properties

LAZY = table(x__queue__mode="lazy")
COUNT = 3000


def lazy_queue(amqp: Amqp, count: int, durable: bool = True, size: int = 0, mode: int = 2) -> bytes:
    """A lazy queue with `count` messages, numbered from 0, which have had time to go to disk."""
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, durable=durable, arguments=LAZY)
    channel.confirm_select()
    for number in range(count):
        channel.publish(name, b"%d" % number + bytes(size), Properties(delivery_mode=mode).encode())
    channel.confirms(count)
    if amqp.memory is not None:
        amqp.memory.advance(100)
        queue = amqp.memory.vhost.queues[name]
        assert queue.backing.ready.entry_count == 0 and queue.backing.ready.delta.count == count
    return name


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("size", [0, 5000])
def test_messages_come_in_order_and_whole(amqp: Amqp, mode: int, size: int) -> None:
    """Small and large, transient and persistent messages come back when got one by one."""
    name = lazy_queue(amqp, 50, True, size, mode)
    channel = amqp.channel()
    assert channel.drain(name) == [b"%d" % number + bytes(size) for number in range(50)]


def test_a_consumer_is_served_from_disk(amqp: Amqp) -> None:
    """A consumer gets more than one batch, acked message by message."""
    name = lazy_queue(amqp, COUNT)
    channel = amqp.channel()
    channel.qos(100)
    channel.consume(name)
    found: list[int] = []
    while len(found) < COUNT:
        message = channel.message()
        found.append(int(message.body))
        channel.ack(message.deliver.delivery_tag)
    assert found == list(range(COUNT))
    channel.quiet()
    assert channel.count(name) == 0


def test_methods_behind_a_get_wait_for_it(amqp: Amqp) -> None:
    """While the head is read from disk, methods after a get wait for the get's answer."""
    name = lazy_queue(amqp, 10)
    channel = amqp.channel()
    message = channel.get(name)
    assert message.body == b"0" and message.got.message_count == 9
    channel.nack(message.got.delivery_tag)
    again = channel.get(name)
    assert again.body == b"0" and again.got.redelivered
    assert channel.count(name) == 9


def test_purge_counts_what_was_on_disk(amqp: Amqp) -> None:
    name = lazy_queue(amqp, COUNT)
    channel = amqp.channel()
    message = channel.get(name)
    assert message.body == b"0"
    channel.send(QueuePurge(name))
    assert channel.expect(QueuePurgeOk).message_count == COUNT - 1
    assert channel.is_empty(name)
    channel.nack(message.got.delivery_tag)
    assert channel.drain(name) == [b"0"]


def test_unacked_messages_return_to_disk_in_order(amqp: Amqp) -> None:
    name = lazy_queue(amqp, 100)
    peer = amqp.connect()
    channel = peer.channel()
    channel.qos(60)
    channel.consume(name)
    assert channel.bodies(60) == [b"%d" % number for number in range(60)]
    peer.drop()
    channel = amqp.channel()
    amqp.eventually(lambda: channel.count(name) == 100)
    assert channel.drain(name) == [b"%d" % number for number in range(100)]


def test_the_mode_is_part_of_the_declaration(amqp: Amqp) -> None:
    name = lazy_queue(amqp, 0)
    channel = amqp.channel()
    channel.declare(name, durable=True, arguments=LAZY)
    text = (
        f"inequivalent arg 'x-queue-mode' for queue '{name.decode()}' in vhost '/': received none but current is "
        "the value 'lazy' of type 'longstr'"
    )
    channel.refused(QueueDeclare(name, False, True, False, False, False, b""), 406, text)
