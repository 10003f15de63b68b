"""basic.qos: per consumer and per channel, exact counts (protocol 9.3, P5)."""

from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import BasicQos, BasicRecover, BasicRecoverOk


def waiting(amqp: Amqp, count: int) -> tuple[ChannelPeer, bytes]:
    """A channel, and a queue with `count` messages."""
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish_each(queue, *[str(number).encode() for number in range(count)])
    assert channel.count(queue) == count
    return channel, queue


def test_prefetch_size_is_not_implemented(amqp: Amqp) -> None:
    amqp.channel().fatal(BasicQos(4096, 1), 540, "prefetch_size!=0 (4096)")


def test_no_limit_by_default(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 300)
    channel.consume(queue)
    assert len(channel.bodies(300)) == 300


def test_per_consumer_limit_is_exact(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 10)
    channel.qos(3)
    channel.consume(queue)
    assert channel.bodies(3) == [b"0", b"1", b"2"]
    channel.quiet()
    channel.ack(2)
    assert channel.bodies(1) == [b"3"]
    channel.quiet()
    channel.ack(4, multiple=True)
    assert channel.bodies(3) == [b"4", b"5", b"6"]
    channel.quiet()
    channel.nack(7, requeue=False)
    assert channel.bodies(1) == [b"7"]
    channel.quiet()


def test_per_consumer_limit_counts_for_later_consumers_only(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 0)
    channel.qos(1)
    channel.consume(queue, b"one")
    channel.qos(2)
    channel.consume(queue, b"two")
    channel.qos(0)
    for number in range(5):
        channel.publish(queue, str(number).encode())
    tags = sorted(channel.message().deliver.consumer_tag for _ in range(3))
    assert tags == [b"one", b"two", b"two"]
    channel.quiet()
    channel.consume(queue, b"all")
    assert [channel.message().deliver.consumer_tag for _ in range(2)] == [b"all", b"all"]


def test_channel_wide_limit(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 0)
    other = channel.declare(amqp.name(), exclusive=True).queue
    channel.qos(3, whole_channel=True)
    for name in (queue, other):
        channel.consume(name)
    for _ in range(4):
        channel.publish(queue, b"x")
        channel.publish(other, b"x")
    channel.bodies(3)
    channel.quiet()
    channel.ack(1)
    channel.bodies(1)
    channel.quiet()
    channel.ack(0, multiple=True)
    channel.bodies(3)
    channel.quiet()


def test_channel_wide_limit_counts_what_is_unacked_and_acts_at_once(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 3)
    channel.consume(queue)
    channel.bodies(3)
    channel.qos(4, whole_channel=True)
    channel.publish_each(queue, b"3", b"4", b"5")
    assert channel.bodies(1) == [b"3"]
    channel.quiet()
    # Raising the limit frees room, and 0 removes it.
    channel.qos(5, whole_channel=True)
    assert channel.bodies(1) == [b"4"]
    channel.quiet()
    channel.qos(0, whole_channel=True)
    assert channel.bodies(1) == [b"5"]


def test_both_limits_together(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 0)
    channel.qos(2)
    channel.qos(3, whole_channel=True)
    channel.consume(queue, b"a")
    channel.consume(queue, b"b")
    for _ in range(6):
        channel.publish(queue, b"x")
    tags = [channel.message().deliver.consumer_tag for _ in range(3)]
    assert sorted(tags.count(tag) for tag in (b"a", b"b")) == [1, 2]
    channel.quiet()


def test_qos_per_consumer_lifts_the_channel_wide_limit(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 4)
    channel.qos(1, whole_channel=True)
    channel.consume(queue)
    channel.bodies(1)
    channel.quiet()
    channel.qos(10)
    channel.bodies(3)


def test_a_cancelled_consumers_unacked_count_channel_wide(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 4)
    channel.qos(2, whole_channel=True)
    tag = channel.consume(queue)
    channel.bodies(2)
    channel.cancel(tag)
    channel.consume(queue)
    channel.quiet()
    channel.ack(1)
    channel.bodies(1)
    channel.quiet()


def test_a_cancelled_consumers_unacked_do_not_count_for_the_next(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 4)
    channel.qos(2)
    tag = channel.consume(queue)
    channel.bodies(2)
    channel.cancel(tag)
    channel.consume(queue)
    channel.bodies(2)
    channel.ack(1)
    channel.quiet()


def test_get_is_outside(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 4)
    channel.qos(1)
    for _ in range(2):
        channel.get(queue)
    channel.consume(queue)
    channel.bodies(1)
    channel.quiet()
    channel.get(queue)


def test_get_is_not_counted_channel_wide(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 6)
    channel.qos(2, whole_channel=True)
    for _ in range(3):
        channel.get(queue)
    channel.consume(queue)
    channel.bodies(2)
    channel.quiet()


def test_per_consumer_limit_does_not_apply_to_no_ack(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 20)
    channel.qos(1)
    channel.consume(queue, no_ack=True)
    channel.bodies(20)


def test_a_channel_wide_limit_blocks_no_ack_without_counting_it(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 3)
    other = channel.declare(amqp.name(), exclusive=True).queue
    channel.qos(1, whole_channel=True)
    channel.consume(other, no_ack=True)
    for _ in range(5):
        channel.publish(other, b"free")
    assert channel.bodies(5) == [b"free"] * 5
    channel.consume(queue)
    channel.bodies(1)
    channel.publish(other, b"blocked")
    channel.quiet()
    channel.qos(0, whole_channel=True)
    assert sorted(channel.bodies(3)) == [b"1", b"2", b"blocked"]


def test_two_channels_share_fairly_by_prefetch(amqp: Amqp) -> None:
    peer = amqp.connect()
    first, second = peer.channel(), peer.channel()
    queue = first.declare(amqp.name(), exclusive=True).queue
    for channel in (first, second):
        channel.qos(5)
        channel.consume(queue)
    for _ in range(10):
        first.publish(queue, b"x")
    assert len(first.bodies(5)) == 5
    assert len(second.bodies(5)) == 5
    first.publish(queue, b"y")
    second.ack(5)
    assert second.bodies(1) == [b"y"]
    first.quiet()


def test_room_made_by_a_requeue_serves_another_queue(amqp: Amqp) -> None:
    channel, first = waiting(amqp, 1)
    second = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(second, b"other")
    channel.qos(1, whole_channel=True)
    tag = channel.consume(first)
    assert channel.bodies(1) == [b"0"]
    channel.cancel(tag)
    channel.consume(second)
    channel.quiet()
    channel.nack(1)
    assert channel.bodies(1) == [b"other"]


def test_room_made_by_recover_serves_another_queue(amqp: Amqp) -> None:
    channel, first = waiting(amqp, 1)
    second = channel.declare(amqp.name(), exclusive=True).queue
    channel.publish(second, b"other")
    channel.qos(1, whole_channel=True)
    tag = channel.consume(first)
    channel.bodies(1)
    channel.cancel(tag)
    channel.consume(second)
    channel.quiet()
    channel.send(BasicRecover(True))
    assert isinstance(channel.reply(), BasicRecoverOk)
    assert channel.bodies(1) == [b"other"]


def test_requeue_after_cancel_serves_other_channels(amqp: Amqp) -> None:
    channel, queue = waiting(amqp, 3)
    tag = channel.consume(queue)
    channel.bodies(3)
    other = channel.peer.channel()
    other.qos(1)
    other.consume(queue)
    channel.cancel(tag)
    channel.nack(0, multiple=True)
    assert other.bodies(1) == [b"0"]
    other.quiet()
    other.reject(1, requeue=False)
    assert other.bodies(1) == [b"1"]
