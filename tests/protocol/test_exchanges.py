"""exchange.declare, delete, bind, unbind: checks, replies, equivalence (protocol 5.3, 9.5)."""

import pytest

from tests.support.brokers.amqp_frames import frame, payload_of, table
from tests.support.brokers.amqp_peer import ChannelClosedError, ChannelPeer
from tests.support.brokers.fixtures import Amqp
from warrenmq.routing.topic_automaton import STATES_MAX
from warrenmq.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueUnbind,
    QueueUnbindOk,
)

DEFAULT = "operation not permitted on the default exchange"


def exists(channel: ChannelPeer, name: bytes) -> bool:
    """Whether the exchange exists; uses a channel of its own."""
    other = channel.peer.channel()
    other.send(ExchangeDeclare(name, b"", True))
    try:
        other.expect(ExchangeDeclareOk)
    except ChannelClosedError:
        other.closed_with(404, f"no exchange '{name.decode()}' in vhost '/'", ExchangeDeclare())
        return False
    other.close()
    return True


@pytest.mark.parametrize(
    ("name", "type"),
    [("amq.direct", "direct"), ("amq.fanout", "fanout"), ("amq.topic", "topic"), ("amq.headers", "headers"),
     ("amq.match", "headers")],
)  # fmt: skip
def test_predeclared_exchanges(amqp: Amqp, name: str, type: str) -> None:
    channel = amqp.channel()
    channel.exchange(name.encode(), type.encode(), durable=True)


def test_predeclared_trace_exchange_is_internal(amqp: Amqp) -> None:
    amqp.channel().exchange(b"amq.rabbitmq.trace", b"topic", durable=True, internal=True)


def test_declare_twice(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    for _ in range(2):
        channel.exchange(name, b"topic", auto_delete=True, arguments=table(other=1))
    channel.exchange(name, b"topic", auto_delete=True, arguments=table(other=2))


def test_passive_declare_asks_for_the_name_only(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name, b"direct")
    channel.send(ExchangeDeclare(name, b"nonsense", True, True, True, True))
    channel.expect(ExchangeDeclareOk)
    missing = amqp.name("x")
    channel.refused(
        ExchangeDeclare(missing, b"direct", True),
        404,
        f"no exchange '{missing.decode()}' in vhost '/'",
    )


def test_passive_declare_of_the_default_exchange(amqp: Amqp) -> None:
    amqp.channel().refused(ExchangeDeclare(b"", b"direct", True), 403, DEFAULT)


def test_declare_of_the_default_exchange(amqp: Amqp) -> None:
    amqp.channel().refused(ExchangeDeclare(b"", b"direct", False, True), 403, DEFAULT)


@pytest.mark.parametrize("type", ["nonsense", "", "x-nonsense"])
def test_unknown_type_closes_the_connection(amqp: Amqp, type: str) -> None:
    channel = amqp.channel()
    channel.send(ExchangeDeclare(amqp.name("x"), type.encode()))
    close = channel.peer.await_close()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (503, 40, 10)
    # RabbitMQ says `unknown` or `invalid`, depending on whether it knows the word from elsewhere.
    known = {f"COMMAND_INVALID - unknown exchange type '{type}'"}
    if amqp.is_foreign:
        known.add(f"COMMAND_INVALID - invalid exchange type '{type}'")
    assert close.reply_text.decode() in known


def test_reserved_prefix(amqp: Amqp) -> None:
    text = "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    amqp.channel().refused(ExchangeDeclare(b"amq.mine", b"direct"), 403, text)


@pytest.mark.parametrize(
    ("attribute", "changed", "received", "current"),
    [
        ("type", {"type": b"fanout"}, "'fanout'", "'topic'"),
        ("durable", {"durable": True}, "'true'", "'false'"),
        ("auto_delete", {"auto_delete": True}, "'true'", "'false'"),
        ("internal", {"internal": True}, "'true'", "'false'"),
        ("alternate-exchange", {"arguments": table(alternate__exchange="b")}, "'b'", "'a'"),
        ("alternate-exchange", {"arguments": b""}, "none", "the value 'a' of type 'longstr'"),
    ],
)  # fmt: skip
def test_inequivalent(
    amqp: Amqp, attribute: str, changed: dict[str, object], received: str, current: str
) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    arguments = table(alternate__exchange="a")
    channel.exchange(name, b"topic", arguments=arguments)
    method = ExchangeDeclare(name, b"topic", False, False, False, False, False, arguments)
    for key, value in changed.items():
        setattr(method, key, value)
    text = f"inequivalent arg '{attribute}' for exchange '{name.decode()}' in vhost '/': received {received} but current is {current}"
    channel.refused(method, 406, text)


def test_inequivalent_argument_that_was_not_there(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name)
    text = (
        f"inequivalent arg 'alternate-exchange' for exchange '{name.decode()}' in vhost '/': "
        "received the value 'a' of type 'longstr' but current is none"
    )
    method = ExchangeDeclare(
        name, b"direct", False, False, False, False, False, table(alternate__exchange="a")
    )
    channel.refused(method, 406, text)


def test_alternate_exchange_must_be_text(amqp: Amqp) -> None:
    name = amqp.name("x")
    method = ExchangeDeclare(
        name, b"direct", False, False, False, False, False, table(alternate__exchange=1)
    )
    text = f"invalid type 'signedint' for arg 'alternate-exchange' in exchange '{name.decode()}' in vhost '/'"
    amqp.channel().refused(method, 406, text)


def test_line_ends_are_dropped_from_names(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(b"\r\n" + name + b"\n")
    channel.send(ExchangeDeclare(name, b"", True))
    channel.expect(ExchangeDeclareOk)


def test_delete(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    channel.exchange(name)
    for _ in range(2):
        channel.send(ExchangeDelete(name))
        channel.expect(ExchangeDeleteOk)
    assert not exists(channel, name)


def test_delete_of_the_default_exchange(amqp: Amqp) -> None:
    amqp.channel().refused(ExchangeDelete(b""), 403, DEFAULT)


def test_delete_of_a_system_exchange(amqp: Amqp) -> None:
    text = "deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    amqp.channel().refused(ExchangeDelete(b"amq.direct"), 403, text)


def test_delete_if_unused_looks_at_bindings_from_it(amqp: Amqp) -> None:
    channel = amqp.channel()
    source, target = amqp.name("x"), amqp.name("x")
    channel.exchange(source)
    channel.exchange(target)
    channel.bind_exchange(target, source, b"k")
    # A binding *to* the exchange does not count as use.
    channel.send(ExchangeDelete(target, True))
    channel.expect(ExchangeDeleteOk)
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.bind(queue, source, b"k")
    channel.refused(
        ExchangeDelete(source, True), 406, f"exchange '{source.decode()}' in vhost '/' in use"
    )


def test_unbind_ok_is_method_51(amqp: Amqp) -> None:
    channel = amqp.channel()
    source, target = amqp.name("x"), amqp.name("x")
    channel.exchange(source)
    channel.exchange(target)
    channel.send(ExchangeBind(target, source, b"k"))
    assert channel.expect(ExchangeBindOk).method_id == 31
    channel.send(ExchangeUnbind(target, source, b"k"))
    assert channel.expect(ExchangeUnbindOk).method_id == 51


def test_bind_exchange_to_what_is_missing(amqp: Amqp) -> None:
    channel = amqp.channel()
    there, missing = amqp.name("x"), amqp.name("x")
    channel.exchange(there)
    text = f"no exchange '{missing.decode()}' in vhost '/'"
    channel.refused(ExchangeBind(there, missing), 404, text)
    channel = channel.peer.channel()
    channel.refused(ExchangeBind(missing, there), 404, text)
    channel = channel.peer.channel()
    # The error names the source first.
    other = amqp.name("x")
    channel.refused(
        ExchangeBind(missing, other), 404, f"no exchange '{other.decode()}' in vhost '/'"
    )


@pytest.mark.parametrize("ends", [(b"", b"amq.direct"), (b"amq.direct", b"")])
def test_bind_exchange_to_the_default_exchange(amqp: Amqp, ends: tuple[bytes, bytes]) -> None:
    amqp.channel().refused(ExchangeBind(*ends), 403, DEFAULT)


@pytest.mark.parametrize("ends", [(b"", b"amq.direct"), (b"amq.direct", b"")])
def test_unbind_exchange_from_the_default_exchange(amqp: Amqp, ends: tuple[bytes, bytes]) -> None:
    amqp.channel().refused(ExchangeUnbind(*ends), 403, DEFAULT)


def test_unbind_of_what_is_missing(amqp: Amqp) -> None:
    channel = amqp.channel()
    there = amqp.name("x")
    channel.exchange(there)
    for ends in ((there, amqp.name("x")), (amqp.name("x"), there), (there, b"amq.fanout")):
        channel.send(ExchangeUnbind(*ends))
        channel.expect(ExchangeUnbindOk)


def test_auto_delete_goes_with_the_last_binding_from_it(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name("x")
    queue = channel.declare(amqp.name(), exclusive=True).queue
    channel.exchange(name, auto_delete=True)
    assert exists(channel, name), "only after it had a binding"
    channel.bind(queue, name, b"a")
    channel.bind(queue, name, b"b")
    for key, left in ((b"a", True), (b"b", False)):
        channel.send(QueueUnbind(queue, name, key))
        channel.expect(QueueUnbindOk)
        assert exists(channel, name) == left


def test_auto_delete_goes_with_the_end_of_the_destination_and_cascades(amqp: Amqp) -> None:
    channel = amqp.channel()
    outer, inner = amqp.name("x"), amqp.name("x")
    channel.exchange(outer, b"fanout", auto_delete=True)
    channel.exchange(inner, b"fanout", auto_delete=True)
    queue = channel.declare(amqp.name()).queue
    channel.bind(queue, inner)
    channel.bind_exchange(inner, outer)
    channel.delete(queue)
    assert not exists(channel, inner)
    assert not exists(channel, outer)


def test_no_wait(amqp: Amqp) -> None:
    channel = amqp.channel()
    source, target = amqp.name("x"), amqp.name("x")
    channel.send(ExchangeDeclare(source, b"fanout", False, False, False, False, True))
    channel.send(ExchangeDeclare(target, b"fanout", False, True, False, False, True))
    channel.send(ExchangeBind(target, source, b"", True))
    channel.send(ExchangeUnbind(target, source, b"", True))
    channel.send(ExchangeDelete(source, False, True))
    channel.send(ExchangeDelete(target, False, True))
    channel.quiet()
    channel.refused(ExchangeDelete(b"", False, True), 403, DEFAULT)


def test_bits_are_packed_across_no_wait(amqp: Amqp) -> None:
    # passive durable auto-delete internal no-wait share one octet, lowest bit first.
    channel = amqp.channel()
    name = amqp.name("x")
    payload = payload_of(ExchangeDeclare(name, b"direct"))
    channel.peer.send(frame(1, 1, payload[:-5] + bytes([0b01010]) + payload[-4:]))
    channel.expect(ExchangeDeclareOk)
    channel.exchange(name, durable=True, internal=True)


def test_a_pattern_that_would_slow_down_every_publish_is_refused(amqp: Amqp) -> None:
    """Patterns with several `#` have a limit of words; beyond it only the channel is closed."""
    amqp.departure("RabbitMQ has no such limit, and matches by recursion")
    channel = amqp.channel()
    exchange, queue = amqp.name("x"), amqp.name("q")
    channel.exchange(exchange, b"topic")
    channel.declare(queue)
    long = b"#.a." * 40
    for number in range(STATES_MAX // 42):
        channel.send(QueueBind(queue, exchange, long + b"#.%d" % number, True))
    channel.bind(queue, exchange, long + b"#.0")
    text = (
        f"exchange '{exchange.decode()}' has no room for another pattern with several '#' or with wildcards in an order "
        f"of its own: such patterns may have {STATES_MAX} words together"
    )
    channel.refused(QueueBind(queue, exchange, long + b"#.more"), 406, text)
    channel = amqp.channel()
    channel.publish(b"a." * 40 + b"7", exchange=exchange)
    channel.get(queue)
    channel.delete(queue)
