"""x-single-active-consumer: one consumer gets all messages, and the next takes over."""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.methods import (
    BasicCancel,
    BasicConsume,
    BasicRecover,
    BasicRecoverOk,
    QueueDeclare,
    QueueDeclareOk,
)

ENDS = ["cancel", "channel", "connection", "drop"]


def single_active(
    amqp: Amqp, durable: bool = False, auto_delete: bool = False, **arguments: object
) -> tuple[ChannelPeer, bytes]:
    """A channel that does not consume, and a queue with a single active consumer."""
    channel = amqp.channel()
    whole = table(x__single__active__consumer=True, **arguments)
    return channel, channel.declare(amqp.name(), durable, False, auto_delete, whole).queue


def consumer(amqp: Amqp, queue: bytes, priority: int | None = None, room: int = 0) -> ChannelPeer:
    """A channel on a connection of its own, with a consumer `c`."""
    channel = amqp.channel()
    channel.qos(room)
    channel.consume(queue, b"c", arguments=b"" if priority is None else table(x__priority=priority))
    return channel


def end(channel: ChannelPeer, way: str) -> None:
    """End the consumer `c`."""
    match way:
        case "cancel":
            channel.cancel(b"c")
        case "channel":
            channel.close()
        case "connection":
            channel.peer.close()
        case _:
            channel.peer.drop()


def publish(channel: ChannelPeer, queue: bytes, numbers: range) -> None:
    for each in numbers:
        channel.publish(queue, b"%d" % each, PERSISTENT)


def delivered(channel: ChannelPeer, count: int) -> list[int]:
    return [int(body) for body in channel.bodies(count)]


def consumer_count(channel: ChannelPeer, queue: bytes) -> int:
    channel.send(QueueDeclare(queue, True))
    return channel.expect(QueueDeclareOk).consumer_count


def again(messages: list[Message]) -> list[tuple[int, bool]]:
    """The number of each message, and whether it is redelivered."""
    return [(int(message.body), message.deliver.redelivered) for message in messages]


# -- the argument ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "value", "type"),
    [
        ("S", b"true", "longstr"),
        ("I", 1, "signedint"),
        ("l", 1, "long"),
        ("d", 1.0, "double"),
        ("V", None, "void"),
        ("F", {}, "table"),
    ],
)
def test_the_argument_is_a_boolean(amqp: Amqp, tag: str, value: object, type: str) -> None:
    name = amqp.name()
    method = QueueDeclare(name)
    method.arguments = encode_table({"x-single-active-consumer": Field(ord(tag), value)})
    text = (
        f"invalid arg 'x-single-active-consumer' for queue '{name.decode()}' in vhost '/': "
        f"{{unacceptable_type,{type}}}"
    )
    amqp.channel().refused(method, 406, text)


@pytest.mark.parametrize(
    ("before", "after", "received", "current"),
    [
        (True, None, "none", "the value 'true' of type 'bool'"),
        (None, True, "the value 'true' of type 'bool'", "none"),
        (True, False, "'false'", "'true'"),
        (False, None, "none", "the value 'false' of type 'bool'"),
    ],
)
def test_declaring_again(
    amqp: Amqp, before: bool | None, after: bool | None, received: str, current: str
) -> None:
    first, second = (
        b"" if value is None else table(x__single__active__consumer=value)
        for value in (before, after)
    )
    channel = amqp.channel()
    name = channel.declare(amqp.name(), exclusive=True, arguments=first).queue
    text = (
        f"inequivalent arg 'x-single-active-consumer' for queue '{name.decode()}' in vhost '/': "
        f"received {received} but current is {current}"
    )
    channel.refused(QueueDeclare(name, False, False, True, False, False, second), 406, text)


def test_without_it_all_consumers_get_messages(amqp: Amqp) -> None:
    channel = amqp.channel()
    arguments = table(x__single__active__consumer=False)
    queue = channel.declare(amqp.name(), arguments=arguments).queue
    first, second = consumer(amqp, queue), consumer(amqp, queue)
    publish(channel, queue, range(4))
    assert (delivered(first, 2), delivered(second, 2)) == ([0, 2], [1, 3])
    channel.delete(queue)


# -- one gets all ----------------------------------------------------------------------------------


def test_only_the_first_gets_messages(amqp: Amqp) -> None:
    """The others are counted as consumers; on the same channel or others, they wait."""
    channel, queue = single_active(amqp)
    first = consumer(amqp, queue)
    first.consume(queue, b"same channel")
    others = [consumer(amqp, queue) for _ in range(2)]
    publish(channel, queue, range(10))
    found = [first.message() for _ in range(10)]
    assert again(found) == [(each, False) for each in range(10)]
    assert {message.deliver.consumer_tag for message in found} == {b"c"}
    for other in [first, *others]:
        other.quiet()
    assert consumer_count(channel, queue) == 4
    channel.delete(queue)


def test_the_others_get_nothing_although_it_has_no_room(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue, room=2), consumer(amqp, queue)
    publish(channel, queue, range(5))
    assert delivered(first, 2) == [0, 1]
    second.quiet()
    assert channel.count(queue) == 3
    first.ack(1)
    assert delivered(first, 1) == [2]
    first.ack(3, multiple=True)
    assert delivered(first, 2) == [3, 4]
    second.quiet()
    channel.delete(queue)


@pytest.mark.parametrize("way", ["nack", "reject", "recover"])
def test_what_it_returns_comes_to_it_again(amqp: Amqp, way: str) -> None:
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue), consumer(amqp, queue)
    publish(channel, queue, range(3))
    assert delivered(first, 3) == [0, 1, 2]
    match way:
        case "nack":
            first.nack(0, multiple=True)
        case "reject":
            first.reject(2)
        case _:
            first.send(BasicRecover(True))
            first.expect(BasicRecoverOk)
    expected = [1] if way == "reject" else [0, 1, 2]
    assert again([first.message() for _ in expected]) == [(each, True) for each in expected]
    second.quiet()
    channel.delete(queue)


def test_a_waiting_consumer_goes(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    first, second, third = (consumer(amqp, queue) for _ in range(3))
    end(second, "cancel")
    publish(channel, queue, range(2))
    assert delivered(first, 2) == [0, 1]
    end(first, "channel")
    assert delivered(third, 2) == [0, 1]
    second.quiet()
    channel.delete(queue)


# -- taking over -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["default", "lazy"])
@pytest.mark.parametrize("way", ENDS[1:])
def test_the_next_takes_over(amqp: Amqp, way: str, mode: str) -> None:
    """What the old one had comes first and in order."""
    channel, queue = single_active(amqp, durable=True, x__queue__mode=mode)
    first, second, third = consumer(amqp, queue, room=3), *(consumer(amqp, queue) for _ in "ab")
    publish(channel, queue, range(6))
    assert delivered(first, 3) == [0, 1, 2]
    first.ack(2)
    assert delivered(first, 1) == [3]
    end(first, way)
    found = [second.message() for _ in range(5)]
    assert again(found) == [(0, True), (2, True), (3, True), (4, False), (5, False)]
    third.quiet()
    channel.delete(queue)


def test_a_cancelled_one_keeps_what_it_has(amqp: Amqp) -> None:
    """It may still settle that; the next consumer gets what it returns."""
    channel, queue = single_active(amqp)
    first, second, third = (consumer(amqp, queue) for _ in range(3))
    publish(channel, queue, range(4))
    assert delivered(first, 4) == [0, 1, 2, 3]
    end(first, "cancel")
    publish(channel, queue, range(4, 5))
    assert again([second.message()]) == [(4, False)]
    first.ack(1)
    first.nack(3, multiple=True)
    assert again([second.message(), second.message()]) == [(1, True), (2, True)]
    end(first, "channel")
    assert again([second.message()]) == [(3, True)]
    third.quiet()
    channel.delete(queue)


def test_what_waits_goes_to_the_next_after_a_cancel(amqp: Amqp) -> None:
    amqp.departure(
        "nothing is delivered there after such a cancel, and a publish crashes the queue"
    )
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue, room=1), consumer(amqp, queue)
    publish(channel, queue, range(3))
    assert delivered(first, 1) == [0]
    end(first, "cancel")
    assert again([second.message(), second.message()]) == [(1, False), (2, False)]
    channel.delete(queue)


def test_one_after_another(amqp: Amqp) -> None:
    """One that consumes again is the last."""
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue), consumer(amqp, queue)
    end(first, "cancel")
    first.consume(queue, b"c")
    third = consumer(amqp, queue)
    for each, active in enumerate((second, first, third)):
        publish(channel, queue, range(each, each + 1))
        assert delivered(active, 1) == [each]
        active.ack(1)
        end(active, "cancel")
    publish(channel, queue, range(3, 4))
    assert channel.get(queue).body == b"3"
    channel.delete(queue)


def test_two_on_one_channel(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    both = consumer(amqp, queue)
    both.consume(queue, b"d")
    publish(channel, queue, range(1))
    assert both.message().deliver.consumer_tag == b"c"
    end(both, "cancel")
    both.nack(1)
    message = both.message()
    assert (message.deliver.consumer_tag, message.deliver.redelivered) == (b"d", True)
    channel.delete(queue)


def test_priority_gives_no_right_to_take_over_but_the_first_turn(amqp: Amqp) -> None:
    """The active one stays; then the highest is next, and of these the oldest."""
    channel, queue = single_active(amqp)
    waiting = {
        name: consumer(amqp, queue, priority)
        for name, priority in (("first", -1), ("low", 0), ("high", 5), ("late", 5), ("none", None))
    }
    for each, name in enumerate(("first", "high", "late", "low", "none")):
        publish(channel, queue, range(each, each + 1))
        assert delivered(waiting[name], 1) == [each]
        waiting[name].ack(1)
        end(waiting[name], "cancel")
    channel.delete(queue)


def test_the_room_of_the_next_counts(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue, room=3), consumer(amqp, queue, room=1)
    publish(channel, queue, range(5))
    assert delivered(first, 3) == [0, 1, 2]
    end(first, "channel")
    for each in range(5):
        assert again([second.message()]) == [(each, each < 3)]
        second.ack(each + 1)
    channel.delete(queue)


@pytest.mark.parametrize("way", ENDS)
def test_the_last_one_ends(amqp: Amqp, way: str) -> None:
    """Messages wait for the next consumer."""
    channel, queue = single_active(amqp)
    end(consumer(amqp, queue), way)
    publish(channel, queue, range(2))
    assert delivered(consumer(amqp, queue), 2) == [0, 1]
    channel.delete(queue)


def test_an_auto_delete_queue_stays_while_one_waits(amqp: Amqp) -> None:
    channel, queue = single_active(amqp, auto_delete=True)
    first, second = consumer(amqp, queue), consumer(amqp, queue)
    end(first, "cancel")
    publish(channel, queue, range(1))
    assert delivered(second, 1) == [0]
    end(second, "cancel")
    missing = f"no queue '{queue.decode()}' in vhost '/'"
    channel.refused(QueueDeclare(queue, True), 404, missing)


def test_all_hear_of_the_deletion(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    consumers = [consumer(amqp, queue) for _ in range(3)]
    channel.delete(queue)
    for each in consumers:
        item = each.event()
        assert isinstance(item, BasicCancel)
        assert item.consumer_tag == b"c"


# -- beside other ways to choose -------------------------------------------------------------------


@pytest.mark.parametrize("has_consumer", [False, True])
def test_no_exclusive_consumer(amqp: Amqp, has_consumer: bool) -> None:
    channel, queue = single_active(amqp)
    first = consumer(amqp, queue) if has_consumer else None
    text = f"queue '{queue.decode()}' in vhost '/' in exclusive use"
    amqp.channel().refused(BasicConsume(queue, b"x", False, False, True), 403, text)
    publish(channel, queue, range(1))
    assert delivered(first or consumer(amqp, queue), 1) == [0]
    channel.delete(queue)


def test_get_takes_messages_beside_it(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    first, second = consumer(amqp, queue, room=1), consumer(amqp, queue)
    publish(channel, queue, range(4))
    assert delivered(first, 1) == [0]
    got = channel.get(queue)
    assert (got.body, got.got.message_count) == (b"1", 2)
    first.ack(1)
    assert delivered(first, 1) == [2]
    channel.nack(got.got.delivery_tag)
    assert channel.count(queue) == 2
    first.ack(2)
    assert again([first.message()]) == [(1, True)]
    second.quiet()
    channel.delete(queue)


def test_one_that_needs_no_acks(amqp: Amqp) -> None:
    channel, queue = single_active(amqp)
    publish(channel, queue, range(2))
    first = amqp.channel()
    first.consume(queue, b"c", no_ack=True)
    second = consumer(amqp, queue)
    publish(channel, queue, range(2, 4))
    assert delivered(first, 4) == [0, 1, 2, 3]
    end(first, "drop")
    amqp.eventually(lambda: consumer_count(channel, queue) == 1)
    publish(channel, queue, range(4, 5))
    assert again([second.message()]) == [(4, False)]
    channel.delete(queue)
