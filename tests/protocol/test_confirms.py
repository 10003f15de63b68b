"""Publisher confirms: numbering, batching, what is acked when, and nacks (protocol section 6)."""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicAck,
    BasicNack,
    BasicPublish,
    ConfirmSelect,
    QueueDelete,
    TxSelect,
)


def acks(channel: ChannelPeer, upto: int) -> list[tuple[int, bool]]:
    """(tag, multiple) of the confirms up to `upto`, all of which must be acks."""
    found = []
    for confirm in channel.confirms(upto):
        assert isinstance(confirm, BasicAck)
        found.append((confirm.delivery_tag, confirm.multiple))
    return found


def test_select_may_be_repeated_and_numbering_goes_on(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, b"before")
    channel.confirm_select()
    channel.publish(queue, b"1")
    assert acks(channel, 1) == [(1, False)]
    channel.confirm_select()
    channel.publish(queue, b"2")
    item = channel.event()
    assert isinstance(item, BasicAck)
    assert (item.delivery_tag, item.multiple) == (2, False)


def test_select_no_wait(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.send(ConfirmSelect(True))
    channel.quiet()
    channel.publish(amqp.name())
    acks(channel, 1)


def test_not_in_a_transactional_channel(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.call(TxSelect())
    channel.refused(ConfirmSelect(), 406, "cannot switch from tx to confirm mode")


def test_no_confirms_without_select(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(exclusive=True).queue
    channel.publish(queue, b"x", PERSISTENT)
    channel.quiet()


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("properties", [b"\0\0", PERSISTENT], ids=["transient", "persistent"])
def test_every_publish_is_confirmed_once(amqp: Amqp, durable: bool, properties: bytes) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    queue = channel.declare(amqp.name(), durable=durable).queue
    for number in range(1000):
        channel.publish(queue, str(number).encode(), properties)
    acks(channel, 1000)
    assert channel.count(queue) == 1000
    channel.delete(queue)


def test_a_mixture_is_confirmed_once_each(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    durable, transient = (
        channel.declare(amqp.name(), durable=True).queue,
        channel.declare(exclusive=True).queue,
    )
    for number in range(300):
        queue = (durable, transient, b"nowhere-" + durable)[number % 3]
        channel.publish(
            queue, b"x", PERSISTENT if number % 2 else b"\0\0", mandatory=number % 7 == 0
        )
    returned = sum(1 for number in range(300) if number % 3 == 2 and number % 7 == 0)
    open_numbers = set(range(1, 301))
    while open_numbers or returned:
        item = channel.event()
        if isinstance(item, BasicAck):
            tag = item.delivery_tag
            assert tag in open_numbers
            open_numbers -= (
                {number for number in open_numbers if number <= tag} if item.multiple else {tag}
            )
        else:
            returned -= 1
    channel.delete(durable)


def test_unroutable_is_confirmed(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    channel.publish(amqp.name(), b"x", PERSISTENT)
    assert acks(channel, 1) == [(1, False)]


def test_a_confirm_covers_several_queues_once(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout")
    queues = [
        channel.declare(amqp.name(), durable=True).queue,
        channel.declare(exclusive=True).queue,
    ]
    for queue in queues:
        channel.bind(queue, exchange)
    channel.publish(b"", b"x", PERSISTENT, exchange=exchange)
    assert acks(channel, 1) == [(1, False)]
    channel.quiet()
    channel.delete(queues[0])


def test_delivery_to_a_no_ack_consumer_is_confirmed(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    consumer = amqp.channel()
    consumer.consume(queue, no_ack=True)
    channel.confirm_select()
    channel.publish(queue, b"x", PERSISTENT)
    acks(channel, 1)
    assert consumer.message().body == b"x"
    channel.delete(queue)


def test_a_publish_whose_queue_is_deleted_is_confirmed(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    queue = channel.declare(amqp.name(), durable=True).queue
    for _ in range(50):
        channel.publish(queue, b"x", PERSISTENT)
    channel.call(QueueDelete(queue))
    acks(channel, 50)


def test_confirms_of_channels_are_numbered_apart(amqp: Amqp) -> None:
    peer = amqp.connect()
    first, second = peer.channel(), peer.channel()
    queue = first.declare(exclusive=True).queue
    for channel in (first, second):
        channel.confirm_select()
    for count, channel in ((3, first), (2, second)):
        for _ in range(count):
            channel.publish(queue, b"x")
    acks(first, 3)
    acks(second, 2)


def test_a_refused_publish_closes_the_channel_instead(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.confirm_select()
    missing = amqp.name("x")
    channel.publish(b"k", exchange=missing)
    channel.closed_with(404, f"no exchange '{missing.decode()}' in vhost '/'", BasicPublish())


# -- inside the engine -----------------------------------------------------------------------------


def test_a_persistent_message_is_confirmed_by_the_commit_only(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    channel.confirm_select()
    engine.holds_commits = True
    channel.publish(queue, b"x", PERSISTENT)
    engine.advance(1000)
    channel.quiet()
    engine.holds_commits = False
    engine.pump()
    assert acks(channel, 1) == [(1, False)]


def test_confirms_of_a_commit_are_one_frame(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    channel.confirm_select()
    engine.holds_commits = True
    for _ in range(100):
        channel.publish(queue, b"x", PERSISTENT)
    engine.holds_commits = False
    engine.pump()
    assert acks(channel, 100) == [(100, True)]


def test_a_failed_commit_nacks_and_later_publishes_are_confirmed(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    channel.confirm_select()
    engine.holds_commits = True
    for _ in range(10):
        channel.publish(queue, b"x", PERSISTENT)
    engine.failing_commits = 1
    engine.holds_commits = False
    engine.pump()
    (nack,) = channel.confirms(10)
    assert isinstance(nack, BasicNack)
    assert (nack.delivery_tag, nack.multiple) == (10, True)
    channel.publish(queue, b"y", PERSISTENT)
    item = channel.event()
    assert isinstance(item, BasicAck)
    assert item.delivery_tag == 11


def test_an_acked_message_is_confirmed_though_it_was_never_written(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), durable=True).queue
    consumer = amqp.channel()
    consumer.consume(queue)
    channel.confirm_select()
    engine.holds_commits = True
    channel.publish(queue, b"x", PERSISTENT)
    consumer.ack(consumer.message().deliver.delivery_tag)
    engine.holds_commits = False
    engine.pump()
    assert acks(channel, 1) == [(1, False)]


def test_no_confirm_after_the_channel_is_closed(amqp: Amqp) -> None:
    engine = amqp.engine()
    channel = amqp.channel()
    peer = channel.peer
    queue = channel.declare(amqp.name(), durable=True).queue
    channel.confirm_select()
    engine.holds_commits = True
    channel.publish(queue, b"x", PERSISTENT)
    channel.close()
    again = peer.channel(1)
    engine.holds_commits = False
    engine.pump()
    again.quiet()
