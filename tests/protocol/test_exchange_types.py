"""The exchange types x-consistent-hash, x-random and x-delayed-message, and chains of exchanges."""

import pytest

from tests.support.brokers.amqp_frames import table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import ExchangeBind, ExchangeDeclare, QueueBind, QueueUnbind
from warrenmq.wire.properties import Properties

HASH = b"x-consistent-hash"
RANDOM = b"x-random"
DELAYED = b"x-delayed-message"


def queues(channel: ChannelPeer, exchange: bytes, *weights: bytes) -> list[bytes]:
    """A new queue for each weight, bound with it."""
    names = []
    for weight in weights:
        names.append(channel.declare(exclusive=True).queue)
        channel.bind(names[-1], exchange, weight)
    return names


def with_headers(**values: object) -> bytes:
    return Properties(headers=encode_table(fields_from_python(values))).encode()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (table(hash__property="app_id"), "Unsupported property: app_id"),
        (
            table(hash__header="h", hash__property="app_id"),
            "hash-header and hash-property are mutually exclusive",
        ),
    ],
)
def test_hash_arguments_that_are_refused(amqp: Amqp, arguments: bytes, text: str) -> None:
    method = ExchangeDeclare(amqp.name("x"), HASH, arguments=arguments)
    amqp.channel().refused(method, 406, text)


def test_only_the_type_and_flags_count_in_a_repeated_declaration(amqp: Amqp) -> None:
    """RabbitMQ compares no other argument, and shows the type as a quoted atom."""
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name, HASH, arguments=table(hash__header="h"))
    channel.exchange(name, HASH, arguments=table(hash__property="app_id"))
    text = (
        f"inequivalent arg 'type' for exchange '{name.decode()}' in vhost '/': "
        "received ''x-random'' but current is ''x-consistent-hash''"
    )
    channel.refused(ExchangeDeclare(name, RANDOM), 406, text)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"0", "The binding key must be greater than 0"),
        (b"", "The binding key must be an integer: <<>>"),
        ("é".encode(), 'The binding key must be an integer: <<"é">>'),
    ],
)
def test_weights_that_are_refused(amqp: Amqp, key: bytes, text: str) -> None:
    """A bind refuses what is no weight; an unbind finds no binding and is content."""
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, HASH)
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.call(QueueUnbind(queue, exchange, key))
    channel.refused(QueueBind(queue, exchange, key), 406, text)
    amqp.channel().refused(ExchangeBind(b"amq.fanout", exchange, key), 406, text)


def test_equal_keys_go_to_one_queue(amqp: Amqp) -> None:
    """Each message goes to one queue, and those with its key to the same one."""
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, HASH)
    names = queues(channel, exchange, b"1", b"1", b"2")
    for _ in range(3):
        for number in range(60):
            for _ in range(2):
                channel.publish(b"%d" % number, b"%d" % number, exchange=exchange)
    found = [channel.drain(name) for name in names]
    assert sum(len(bodies) for bodies in found) == 360
    assert all(bodies.count(body) == 6 for bodies in found for body in bodies)
    assert all(bodies for bodies in found)


@pytest.mark.parametrize(
    "arguments",
    [table(hash__header="h"), table(hash__property="message_id")],
    ids=["header", "property"],
)
def test_equal_values_go_to_one_queue(amqp: Amqp, arguments: bytes) -> None:
    """With one routing key for all, the header or the property decides."""
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, HASH, arguments=arguments)
    names = queues(channel, exchange, b"1", b"1", b"1")
    for _ in range(3):
        for number in range(60):
            properties = Properties(
                headers=encode_table(fields_from_python({"h": number})),
                message_id=b"id-%d" % number,
            )
            channel.publish(b"k", b"%d" % number, properties.encode(), exchange)
    found = [channel.drain(name) for name in names]
    assert sum(len(bodies) for bodies in found) == 180
    assert all(bodies.count(body) == 3 for bodies in found for body in bodies)
    assert all(bodies for bodies in found)


def test_random_exchange(amqp: Amqp) -> None:
    """Equal publishes take turns by chance; copies get no second chance."""
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, RANDOM)
    names = queues(channel, exchange, b"", b"any key")
    properties = with_headers(CC=["copy"])
    for _ in range(100):
        channel.publish(b"k", b"m", exchange=exchange)
        channel.publish(b"k", b"m", properties, exchange)
    counts = [len(channel.drain(name)) for name in names]
    assert sum(counts) == 200 and min(counts) > 50


def test_chains_with_loops_and_internal_exchanges(amqp: Amqp) -> None:
    """A message visits each exchange once; internal ones get it by bindings and as alternates."""
    channel = amqp.channel()
    first, ring, inner, spare = (amqp.name(text) for text in ("first", "ring", "inner", "spare"))
    channel.exchange(spare, b"fanout", internal=True)
    channel.exchange(first, RANDOM, arguments=table(alternate__exchange=spare.decode()))
    channel.exchange(ring, HASH)
    channel.exchange(inner, b"topic", internal=True)
    (lost,) = queues(channel, spare, b"")
    (target,) = queues(channel, inner, b"a.*")
    channel.publish(b"a.b", b"1", exchange=first, mandatory=True)
    assert channel.drain(lost) == [b"1"]
    channel.bind_exchange(ring, first)
    channel.bind_exchange(inner, ring, b"1")
    channel.bind_exchange(first, inner, b"#")
    for body in (b"2", b"3"):
        channel.publish(b"a.b", body, exchange=first, mandatory=True)
    channel.publish(b"other", b"4", exchange=first)
    assert (channel.drain(target), channel.drain(lost)) == ([b"2", b"3"], [])
    channel.publish(b"other", b"5", exchange=first, mandatory=True)
    assert channel.message().body == b"5"


def test_delayed_exchange(amqp: Amqp) -> None:
    """Without a delay it routes as its inner type; the type in the argument is not compared."""
    amqp.departure("the plug-in does not come with RabbitMQ")
    channel = amqp.channel()
    exchange = amqp.name("x")
    channel.exchange(exchange, DELAYED, arguments=table(x__delayed__type="topic"))
    channel.exchange(exchange, DELAYED, arguments=table(x__delayed__type="direct"))
    (target,) = queues(channel, exchange, b"a.#")
    for properties in (with_headers(), with_headers(**{"x-delay": -5}), with_headers(a=1)):
        channel.publish(b"a.b", b"m", properties, exchange)
    assert channel.drain(target) == [b"m"] * 3
    text = "Invalid argument, 'x-delayed-type' must be an existing exchange type"
    channel.refused(ExchangeDeclare(amqp.name("x"), DELAYED), 406, text)
    unknown = ExchangeDeclare(amqp.name("x"), DELAYED, arguments=table(x__delayed__type="x"))
    amqp.channel().fatal(unknown, 503, "unknown exchange type 'x'")


def test_dead_letters_are_hashed_by_their_properties(amqp: Amqp) -> None:
    """A dead letter goes where a publish with its properties goes."""
    channel = amqp.channel()
    exchange, source = amqp.name("x"), amqp.name()
    channel.exchange(exchange, HASH, arguments=table(hash__property="message_id"))
    names = queues(channel, exchange, b"1", b"1", b"1")
    arguments = table(x__dead__letter__exchange=exchange.decode())
    channel.declare(source, exclusive=True, arguments=arguments)
    for number in range(30):
        properties = Properties(message_id=b"id-%d" % number).encode()
        channel.publish(b"k", b"%d" % number, properties, exchange)
        channel.publish(source, b"%d" % number, properties)
    for _ in range(30):
        channel.reject(channel.get(source).got.delivery_tag, requeue=False)
    amqp.eventually(lambda: sum(channel.count(name) for name in names) == 60)
    found = [channel.drain(name) for name in names]
    assert all(bodies.count(body) == 2 for bodies in found for body in bodies)
    assert all(bodies for bodies in found)
