"""x-queue-type=quorum: what is refused, counts of returns, and their limit (protocol 7.1).

Single messages are returned here: where several go is a departure
(tests/differential/differences.py).
"""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, decode_table, encode_table, to_python
from warrenmq.wire.methods import (
    BasicConsume,
    BasicGet,
    BasicRecover,
    BasicRecoverOk,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueuePurgeOk,
)
from warrenmq.wire.properties import Properties

QUORUM = Field(ord("S"), b"quorum")
WAYS = ["nack", "multiple", "reject", "recover", "channel", "connection"]


def quorum_queue(amqp: Amqp, **arguments: object) -> tuple[ChannelPeer, bytes]:
    """Declare a quorum queue; returns a channel without consumers, and its name."""
    channel = amqp.channel()
    whole = table(x__queue__type="quorum", **arguments)
    return channel, channel.declare(amqp.name(), durable=True, arguments=whole).queue


def consumer(
    amqp: Amqp, queue: bytes, priority: int = 0, exclusive: bool = False, room: int = 1
) -> ChannelPeer:
    """A channel on a connection of its own, with a consumer `c`."""
    channel = amqp.channel()
    channel.qos(room)
    channel.consume(queue, b"c", exclusive=exclusive, arguments=table(x__priority=priority))
    return channel


def give_back(channel: ChannelPeer, tag: int, way: str) -> bool:
    """Return the message `tag` to its queue in one of WAYS; False if that closes the channel."""
    match way:
        case "nack":
            channel.nack(tag)
        case "multiple":
            channel.nack(0, multiple=True)
        case "reject":
            channel.reject(tag)
        case "recover":
            channel.send(BasicRecover(True))
            channel.expect(BasicRecoverOk)
        case "channel":
            channel.close()
        case _:
            channel.peer.drop()
    return way not in ("channel", "connection")


def headers_of(message: Message) -> dict[str, object]:
    headers = message.properties.headers
    return {} if headers is None else to_python(decode_table(headers))


def got(amqp: Amqp, channel: ChannelPeer, queue: bytes) -> Message:
    """Get a message that is on its way: in RabbitMQ, a get may overtake publishes and returns."""
    found: list[Message] = []

    def is_there() -> bool:
        item = channel.call(BasicGet(queue))
        if isinstance(item, Message):
            found.append(item)
        return len(found) > 0

    amqp.eventually(is_there)
    return found[0]


def declaration(name: bytes, arguments: bytes, durable: bool = True) -> QueueDeclare:
    return QueueDeclare(name, False, durable, False, False, False, arguments)


# -- declarations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("durable", "exclusive", "auto_delete", "refused"),
    [
        (False, False, False, "non-durable"),
        (True, True, False, "exclusive-owner"),
        (True, False, True, "auto-delete"),
        (False, True, False, "exclusive-owner"),
        (False, True, True, "auto-delete"),
    ],
)
def test_refused_properties(
    amqp: Amqp, durable: bool, exclusive: bool, auto_delete: bool, refused: str
) -> None:
    name = amqp.name()
    arguments = encode_table({"x-queue-type": QUORUM})
    method = QueueDeclare(name, False, durable, exclusive, auto_delete, False, arguments)
    text = f"invalid property '{refused}' for queue '{name.decode()}' in vhost '/'"
    amqp.channel().refused(method, 406, text)


def test_the_server_makes_no_name(amqp: Amqp) -> None:
    method = declaration(b"", encode_table({"x-queue-type": QUORUM}))
    text = "Cannot declare a server-named queue for type rabbit_quorum_queue"
    amqp.channel().refused(method, 406, text)


@pytest.mark.parametrize(
    ("key", "tag", "value"),
    [
        ("x-max-priority", "I", 5),
        ("x-queue-mode", "S", b"lazy"),
        ("x-queue-version", "I", 2),
        ("x-queue-master-locator", "S", b"random"),
        ("x-max-age", "S", b"1D"),
        ("x-stream-max-segment-size-bytes", "I", 1000),
        ("x-initial-cluster-size", "I", 1),
    ],
)
def test_arguments_of_other_types(amqp: Amqp, key: str, tag: str, value: object) -> None:
    name = amqp.name()
    arguments = encode_table({"x-queue-type": QUORUM, key: Field(ord(tag), value)})
    text = f"invalid arg '{key}' for queue '{name.decode()}' in vhost '/' of queue type rabbit_quorum_queue"
    amqp.channel().refused(declaration(name, arguments), 406, text)


@pytest.mark.parametrize(
    ("key", "tag", "value", "reason"),
    [
        ("x-max-length", "I", -1, "{value_negative,-1}"),
        ("x-overflow", "S", b"nonsense", "invalid_overflow"),
        ("x-expires", "I", 0, "{value_zero,0}"),
        ("x-single-active-consumer", "I", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-strategy", "S", b"nonsense", "invalid_dlx_strategy"),
        ("x-dead-letter-strategy", "I", 1, "{unacceptable_type,signedint}"),
        ("x-max-in-memory-length", "I", -1, "{value_negative,-1}"),
        ("x-max-in-memory-bytes", "S", b"1", '"expected integer, got longstr"'),
        ("x-quorum-initial-group-size", "I", 0, "{value_zero,0}"),
        ("x-queue-leader-locator", "S", b"nonsense", "invalid_queue_locator_arg"),
        ("x-queue-leader-locator", "I", 1, "{unacceptable_type,signedint}"),
    ],
)
def test_bad_argument(amqp: Amqp, key: str, tag: str, value: object, reason: str) -> None:
    name = amqp.name()
    arguments = encode_table({"x-queue-type": QUORUM, key: Field(ord(tag), value)})
    text = f"invalid arg '{key}' for queue '{name.decode()}' in vhost '/': {reason}"
    amqp.channel().refused(declaration(name, arguments), 406, text)


def test_no_streams(amqp: Amqp) -> None:
    amqp.departure("it has streams")
    name = amqp.name()
    text = f"invalid arg 'x-queue-type' for queue '{name.decode()}' in vhost '/': \"unsupported queue type 'stream'\""
    amqp.channel().refused(declaration(name, table(x__queue__type="stream")), 406, text)


@pytest.mark.parametrize(
    ("before", "after", "key", "received", "current"),
    [
        ({"x__queue__type": "quorum"}, {}, "x-queue-type", "none", "the value 'quorum' of type 'longstr'"),
        ({"x__queue__type": "quorum"}, {"x__queue__type": "classic"}, "x-queue-type", "'classic'", "'quorum'"),
        ({"x__queue__type": "classic"}, {"x__queue__type": "quorum"}, "x-queue-type", "'quorum'", "'classic'"),
        ({}, {"x__queue__type": "quorum"}, "x-queue-type", "the value 'quorum' of type 'longstr'", "none"),
        ({"x__queue__type": "quorum", "x__delivery__limit": 2}, {"x__queue__type": "quorum", "x__delivery__limit": 3},
         "x-delivery-limit", "'3'", "'2'"),
    ],
)  # fmt: skip
def test_declaring_again(
    amqp: Amqp,
    before: dict[str, object],
    after: dict[str, object],
    key: str,
    received: str,
    current: str,
) -> None:
    channel = amqp.channel()
    name = amqp.name()
    for _ in range(2):
        channel.declare(name, durable=True, arguments=table(**before))
    text = (
        f"inequivalent arg '{key}' for queue '{name.decode()}' in vhost '/': "
        f"received {received} but current is {current}"
    )
    channel.refused(declaration(name, table(**after)), 406, text)
    amqp.channel().delete(name)


# -- refused calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["if-unused", "if-empty"])
def test_no_delete_with_conditions(amqp: Amqp, flag: str) -> None:
    channel, queue = quorum_queue(amqp)
    text = (
        f"cannot delete queue '{queue.decode()}' in vhost '/'. queue.delete operations with {flag} "
        "flag set are not supported by quorum queues"
    )
    channel.fatal(QueueDelete(queue, flag == "if-unused", flag == "if-empty"), 540, text)
    amqp.channel().delete(queue)


def test_no_limit_of_the_whole_channel(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp)
    channel.qos(1, whole_channel=True)
    text = f"queue '{queue.decode()}' in vhost '/' does not support global qos"
    channel.fatal(BasicConsume(queue), 540, text)
    amqp.channel().delete(queue)


@pytest.mark.parametrize(
    ("key", "tag", "value"), [("x-stream-offset", "I", 1), ("x-cancel-on-ha-failover", "t", True)]
)
def test_consume_arguments_of_other_types(amqp: Amqp, key: str, tag: str, value: object) -> None:
    """The channel-wide limit, which quorum queues refuse too, comes after them."""
    channel, queue = quorum_queue(amqp)
    channel.qos(1, whole_channel=True)
    arguments = encode_table({key: Field(ord(tag), value)})
    text = f"invalid arg '{key}' for queue '{queue.decode()}' in vhost '/' of queue type rabbit_quorum_queue"
    channel.refused(BasicConsume(queue, b"", False, False, False, False, arguments), 406, text)
    amqp.channel().delete(queue)


def test_exclusive_consumers_are_like_others(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp)
    consumers = [
        consumer(amqp, queue, exclusive=is_exclusive) for is_exclusive in (True, False, True)
    ]
    channel.publish_each(queue, b"1", b"2", b"3")
    assert {each.message().body for each in consumers} == {b"1", b"2", b"3"}
    channel.delete(queue)


def test_a_single_active_consumer(amqp: Amqp) -> None:
    """The oldest is next, whatever the priorities; nobody may use basic.get."""
    channel, queue = quorum_queue(amqp, x__single__active__consumer=True)
    first, second, third = (consumer(amqp, queue, priority) for priority in (1, 2, 9))
    for each, active in ((b"1", first), (b"2", second), (b"3", third)):
        channel.publish(queue, each)
        assert active.message().body == each
        active.ack(1)
        active.cancel(b"c")
    text = (
        f"cannot obtain access to locked queue '{queue.decode()}' in vhost '/'. basic.get operations "
        "are not supported by quorum queues with single active consumer"
    )
    channel.refused(BasicGet(queue), 405, text)
    amqp.channel().delete(queue)


# -- as in other queues ----------------------------------------------------------------------------


def test_messages_in_order_and_counts(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp)
    channel.confirm_select()
    for body in (b"1", b"2", b"3", b"4"):
        channel.publish(queue, body, PERSISTENT if body == b"2" else b"\0\0", mandatory=True)
    channel.confirms(4)
    amqp.eventually(lambda: channel.count(queue) == 4)
    assert [channel.get(queue, no_ack=True).body for _ in range(2)] == [b"1", b"2"]
    channel.send(QueuePurge(queue))
    assert channel.expect(QueuePurgeOk).message_count == 2
    channel.publish(queue, b"5")
    assert consumer(amqp, queue).message().body == b"5"
    channel.delete(queue)


def test_a_message_waits_behind_another_one_to_expire(amqp: Amqp) -> None:
    """Also one with a time to live of 0, which a classic queue drops at once."""
    channel, queue = quorum_queue(amqp)
    channel.publish_each(queue, b"dropped", b"1", b"2")
    amqp.set_policy(queue, message__ttl=0, max__length=2)
    amqp.eventually(lambda: channel.count(queue) == 2)
    assert channel.get(queue, no_ack=True).body == b"1"
    channel.publish(queue, b"behind")
    amqp.eventually(lambda: channel.count(queue) == 2)
    assert channel.drain(queue) == [b"2"]
    channel.delete(queue)


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish-dlx"])
def test_a_full_queue_drops_its_head(amqp: Amqp, overflow: str) -> None:
    """Also with an overflow that quorum queues do not know."""
    channel, queue = quorum_queue(amqp, x__max__length=2, x__overflow=overflow)
    channel.confirm_select()
    channel.publish_each(queue, b"1", b"2", b"3", b"4")
    channel.confirms(4)
    assert channel.drain(queue) == [b"3", b"4"]
    channel.delete(queue)


def test_a_rejected_message_becomes_a_dead_letter(amqp: Amqp) -> None:
    letters, dead = mortuary(amqp)
    channel, queue = quorum_queue(
        amqp, x__dead__letter__exchange="", x__dead__letter__routing__key=dead.decode()
    )
    channel.publish(queue, b"x", Properties(headers=table(mine=1)).encode())
    channel.reject(got(amqp, channel, queue).got.delivery_tag, requeue=False)
    assert death_of(letters.message(), queue) == ("rejected", 1)
    channel.delete(queue)


# -- counts of returns -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_each_return_is_counted(amqp: Amqp, way: str) -> None:
    """The header is beside those of the client, and comes with the first return."""
    channel, queue = quorum_queue(amqp)
    channel.publish(queue, b"x", Properties(headers=table(mine=1)).encode())
    reader = consumer(amqp, queue)
    for count in range(4):
        message = reader.message()
        expected = {"mine": 1, "x-delivery-count": count} if count else {"mine": 1}
        assert headers_of(message) == expected
        assert message.deliver.redelivered == (count > 0)
        if not give_back(reader, message.deliver.delivery_tag, way):
            reader = consumer(amqp, queue)
    channel.delete(queue)


def test_get_tells_the_count_from_the_first_on(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp)
    channel.publish(queue, b"x")
    for count in range(3):
        message = got(amqp, channel, queue)
        assert headers_of(message) == {"x-delivery-count": count}
        assert message.got.redelivered == (count > 0)
        channel.nack(message.got.delivery_tag)
    channel.delete(queue)


def test_each_message_has_its_own_count(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp)
    channel.publish_each(queue, b"1", b"2")
    reader = consumer(amqp, queue, room=2)
    assert reader.bodies(2) == [b"1", b"2"]
    reader.nack(2)
    message = reader.message()
    assert (message.body, headers_of(message)) == (b"2", {"x-delivery-count": 1})
    reader.nack(1)
    message = reader.message()
    assert (message.body, headers_of(message)) == (b"1", {"x-delivery-count": 1})
    reader.nack(3)
    message = reader.message()
    assert (message.body, headers_of(message)) == (b"2", {"x-delivery-count": 2})
    channel.delete(queue)


# -- the limit -------------------------------------------------------------------------------------


def mortuary(amqp: Amqp) -> tuple[ChannelPeer, bytes]:
    """A queue for dead letters, and the channel with its consumer."""
    letters = amqp.channel()
    dead = letters.declare(amqp.name("dead"), exclusive=True).queue
    letters.consume(dead, b"d", no_ack=True)
    return letters, dead


def death_of(letter: Message, queue: bytes) -> tuple[object, object]:
    """Reason and count of the only death of a dead letter of `queue`, whose headers are checked."""
    headers = headers_of(letter)
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    (death,) = deaths
    assert (death["queue"], death["routing-keys"]) == (queue.decode(), [queue.decode()])
    assert headers["x-first-death-queue"] == queue.decode()
    assert headers["x-first-death-reason"] == death["reason"]
    assert "x-delivery-count" not in headers
    assert letter.deliver.redelivered is False
    return death["reason"], death["count"]


def watched(amqp: Amqp, **arguments: object) -> tuple[ChannelPeer, bytes]:
    """A quorum queue, and a channel with a consumer `c` of it and `d` of its dead letters."""
    channel, dead = mortuary(amqp)
    whole = table(
        x__queue__type="quorum",
        x__dead__letter__exchange="",
        x__dead__letter__routing__key=dead.decode(),
        **arguments,
    )
    queue = channel.declare(amqp.name(), durable=True, arguments=whole).queue
    channel.qos(1)
    channel.consume(queue, b"c")
    return channel, queue


def deliveries(channel: ChannelPeer, queue: bytes, most: int = 6) -> int:
    """How often a message that is always returned comes until it is dead; at most `most` times."""
    channel.publish(queue, b"poison")
    for count in range(most):
        deliver = channel.message().deliver
        if deliver.consumer_tag == b"d":
            return count
        if count < most - 1:
            channel.nack(deliver.delivery_tag)
        else:
            channel.ack(deliver.delivery_tag)
    return most


@pytest.mark.parametrize(("limit", "expected"), [(0, 1), (1, 2), (3, 4), (-5, 1), (100, 6)])
def test_a_message_that_is_returned_more_often_is_dead(
    amqp: Amqp, limit: int, expected: int
) -> None:
    channel, queue = watched(amqp, x__delivery__limit=limit)
    for _ in range(2):
        assert deliveries(channel, queue) == expected
    assert channel.delete(queue) == 0


def test_without_a_dead_letter_exchange_it_is_dropped(amqp: Amqp) -> None:
    channel, queue = quorum_queue(amqp, x__delivery__limit=1)
    reader = consumer(amqp, queue)
    channel.publish(queue, b"1")
    for tag in (1, 2):
        assert reader.message().body == b"1"
        reader.nack(tag)
    channel.publish(queue, b"2")
    assert reader.message().body == b"2"
    reader.quiet()
    channel.delete(queue)


@pytest.mark.parametrize("way", WAYS)
def test_it_becomes_a_dead_letter(amqp: Amqp, way: str) -> None:
    letters, dead = mortuary(amqp)
    channel, queue = quorum_queue(
        amqp,
        x__delivery__limit=1,
        x__dead__letter__exchange="",
        x__dead__letter__routing__key=dead.decode(),
    )
    channel.publish(queue, b"x")
    reader = consumer(amqp, queue)
    for _ in range(2):
        if not give_back(reader, reader.message().deliver.delivery_tag, way):
            reader = consumer(amqp, queue)
    letter = letters.message()
    assert letter.body == b"x"
    assert death_of(letter, queue) == ("delivery_limit", 1)
    reader.quiet()
    channel.delete(queue)


@pytest.mark.parametrize(
    ("argument", "policy", "operator", "expected"),
    [
        (None, None, 2, 3),
        (1, 3, None, 2),
        (3, 2, 1, 2),
    ],
)
def test_the_lowest_of_argument_and_policies_counts(
    amqp: Amqp, argument: int | None, policy: int | None, operator: int | None, expected: int
) -> None:
    arguments = {} if argument is None else {"x__delivery__limit": argument}
    channel, queue = watched(amqp, **arguments)
    if policy is not None:
        amqp.set_policy(queue, delivery__limit=policy)
    if operator is not None:
        amqp.set_policy(queue, "operator_policy", delivery__limit=operator)
    amqp.eventually(lambda: deliveries(channel, queue) == expected)
    channel.delete(queue)


def test_a_policy_comes_and_goes(amqp: Amqp) -> None:
    channel, queue = watched(amqp)
    assert deliveries(channel, queue) == 6
    amqp.set_policy(queue, delivery__limit=1)
    amqp.eventually(lambda: deliveries(channel, queue) == 2)
    amqp.clear_policy(queue)
    amqp.eventually(lambda: deliveries(channel, queue) == 6)
    channel.delete(queue)
