"""queue.declare, delete, purge, and the arguments of a queue (protocol 5.4, 7.1)."""

import re

import pytest

from tests.support.brokers.amqp_frames import LOCKED, frame, table
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, encode_table
from warrenmq.wire.method import Method
from warrenmq.wire.methods import (
    BasicConsume,
    BasicGet,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
)

CLASSIC_ONLY = (
    "x-dead-letter-strategy", "x-delivery-limit", "x-quorum-initial-group-size", "x-max-in-memory-length",
    "x-max-in-memory-bytes", "x-queue-leader-locator", "x-max-age", "x-stream-max-segment-size-bytes",
    "x-initial-cluster-size",
)  # fmt: skip


def arguments_of(key: str, tag: str, value: object) -> bytes:
    """A table with one field of exactly that type."""
    return encode_table({key: Field(ord(tag), value)})


def declaration(name: bytes, arguments: bytes = b"", **flags: bool) -> QueueDeclare:
    method = QueueDeclare(name)
    method.arguments = arguments
    for flag, value in flags.items():
        setattr(method, flag, value)
    return method


def missing(name: bytes) -> str:
    return f"no queue '{name.decode()}' in vhost '/'"


# -- names -----------------------------------------------------------------------------------------


def test_server_named(amqp: Amqp) -> None:
    channel = amqp.channel()
    names = {channel.declare(exclusive=True).queue for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(rb"amq\.gen-[A-Za-z0-9_-]{22}", name) for name in names)


def test_reserved_prefix(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = channel.declare(exclusive=True).queue
    assert channel.count(name) == 0
    text = f"queue name '{name.decode()}' contains reserved prefix 'amq.*'"
    channel.refused(declaration(name, exclusive=True), 403, text)


def test_line_ends_are_dropped_from_names(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    assert channel.declare(b"\n" + name + b"\r\n", exclusive=True).queue == name


def test_an_empty_name_is_the_last_queue_declared(amqp: Amqp) -> None:
    channel = amqp.channel()
    first, second = amqp.name(), amqp.name()
    for name in (first, second):
        channel.declare(name, exclusive=True)
    channel.publish_each(first, b"1")
    channel.publish_each(second, b"2", b"3")
    assert channel.get(b"").body == b"2"
    # A passive declaration counts as well.
    channel.count(first)
    assert channel.get(b"").body == b"1"
    channel.bind(b"", b"amq.direct", b"")
    channel.publish(first, b"by its own name", exchange=b"amq.direct")
    assert channel.get(first).body == b"by its own name"
    channel.send(QueuePurge(second))
    assert channel.expect(QueuePurgeOk).message_count == 1


def test_an_empty_name_with_a_routing_key_keeps_the_key(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    key = amqp.name("k")
    channel.bind(b"", b"amq.direct", key)
    channel.publish(queue, b"no", exchange=b"amq.direct")
    channel.publish(key, b"yes", exchange=b"amq.direct")
    assert channel.drain(queue) == [b"yes"]


@pytest.mark.parametrize(
    "method",
    [BasicGet(b""), BasicConsume(b""), QueueBind(b"", b"amq.direct"), QueueUnbind(b"", b"amq.direct"),
     QueuePurge(b""), QueueDelete(b"")],
    ids=lambda method: type(method).__name__,
)  # fmt: skip
def test_an_empty_name_before_any_declaration(amqp: Amqp, method: Method) -> None:
    amqp.channel().refused(method, 404, "no previously declared queue")


def test_passive_declaration_of_an_empty_name(amqp: Amqp) -> None:
    channel = amqp.channel()
    channel.declare(exclusive=True)
    channel.refused(declaration(b"", passive=True), 404, missing(b""))


# -- declare ---------------------------------------------------------------------------------------


def test_counts_are_of_ready_messages_and_consumers(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    channel.publish_each(name, b"1", b"2", b"3")
    channel.get(name)
    assert channel.count(name) == 2
    other = amqp.channel()
    other.qos(1)
    other.consume(name)
    other.event()
    found = channel.declare(name)
    assert (found.queue, found.message_count, found.consumer_count) == (name, 1, 1)


def test_passive_declaration_of_a_missing_queue(amqp: Amqp) -> None:
    name = amqp.name()
    amqp.channel().refused(declaration(name, passive=True), 404, missing(name))


def test_passive_declaration_ignores_attributes(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    channel.send(QueueDeclare(name, True, True, True, True, False, table(x__expires=-1)))
    assert channel.expect(QueueDeclareOk).queue == name


@pytest.mark.parametrize("flag", ["durable", "auto_delete"])
@pytest.mark.parametrize("before", [False, True])
def test_inequivalent_flags(amqp: Amqp, flag: str, before: bool) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.send(declaration(name, b"", **{flag: before}))
    channel.expect(QueueDeclareOk)
    received, current = (str(value).lower() for value in (not before, before))
    text = f"inequivalent arg '{flag}' for queue '{name.decode()}' in vhost '/': received '{received}' but current is '{current}'"
    channel.refused(declaration(name, b"", **{flag: not before}), 406, text)


@pytest.mark.parametrize("before", [False, True])
def test_a_changed_exclusive_bit_is_405(amqp: Amqp, before: bool) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, exclusive=before)
    channel.refused(declaration(name, exclusive=not before), 405, LOCKED.format(name.decode()))


def test_exclusive_queues_are_never_durable(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, exclusive=True, durable=True)
    channel.declare(name, exclusive=True, durable=False)


@pytest.mark.parametrize(
    "method",
    [QueueDeclare(), QueueDeclare(b"", True), QueueBind(b"", b"amq.direct", b"k"), QueueUnbind(b"", b"amq.direct", b"k"),
     QueuePurge(), QueueDelete(), BasicGet(), BasicConsume()],
    ids=["declare", "passive", "bind", "unbind", "purge", "delete", "get", "consume"],
)  # fmt: skip
def test_exclusive_queue_of_another_connection(amqp: Amqp, method: Method) -> None:
    owner = amqp.channel()
    name = owner.declare(amqp.name(), exclusive=True).queue
    owner.bind(name, b"amq.direct", b"k")
    setattr(method, "queue", name)  # noqa: B010 - a different class each time
    amqp.channel().refused(method, 405, LOCKED.format(name.decode()))


def test_anybody_may_publish_to_an_exclusive_queue(amqp: Amqp) -> None:
    owner = amqp.channel()
    name = owner.declare(amqp.name(), exclusive=True).queue
    other = amqp.channel()
    other.publish(name, b"hello")
    other.close()
    assert owner.get(name).body == b"hello"


def test_another_channel_of_the_owner_may_use_an_exclusive_queue(amqp: Amqp) -> None:
    owner = amqp.channel()
    name = owner.declare(amqp.name(), exclusive=True).queue
    owner.close()
    assert owner.peer.channel().count(name) == 0


# -- delete and purge ------------------------------------------------------------------------------


def test_delete_counts_ready_messages(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    channel.publish_each(name, b"1", b"2", b"3")
    channel.get(name)
    assert channel.count(name) == 2
    assert channel.delete(name) == 2
    assert channel.delete(name) == 0
    channel.refused(declaration(name, passive=True), 404, missing(name))


def test_delete_if_empty_ignores_unacked(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    channel.publish_each(name, b"1", b"2")
    channel.get(name)
    assert channel.count(name) == 1
    channel.peer.channel().refused(
        QueueDelete(name, False, True), 406, f"queue '{name.decode()}' in vhost '/' not empty"
    )
    channel.get(name)
    channel.send(QueueDelete(name, False, True))
    assert channel.expect(QueueDeleteOk).message_count == 0


def test_delete_if_unused(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    tag = channel.consume(name)
    channel.peer.channel().refused(
        QueueDelete(name, True), 406, f"queue '{name.decode()}' in vhost '/' in use"
    )
    channel.cancel(tag)
    channel.send(QueueDelete(name, True))
    channel.expect(QueueDeleteOk)


def test_purge(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name)
    channel.publish_each(name, b"1", b"2", b"3")
    unacked = channel.get(name)
    assert channel.count(name) == 2
    for expected in (2, 0):
        channel.send(QueuePurge(name))
        assert channel.expect(QueuePurgeOk).message_count == expected
    channel.reject(unacked.got.delivery_tag)
    assert channel.drain(name) == [b"1"]
    gone = amqp.name()
    channel.refused(QueuePurge(gone), 404, missing(gone))


def test_no_wait(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.send(QueueDeclare(name, False, False, False, False, True))
    channel.send(QueueDeclare(name, True, False, False, False, True))
    channel.send(QueueBind(name, b"amq.direct", b"k", True))
    channel.send(QueuePurge(name, True))
    channel.quiet()
    assert channel.count(name) == 0
    channel.send(QueueDelete(name, False, False, True))
    channel.quiet()
    channel.refused(QueueDeclare(name, True, False, False, False, True), 404, missing(name))


def test_no_wait_on_durable_queues(amqp: Amqp) -> None:
    channel = amqp.channel()
    name, exchange = amqp.name(), amqp.name("x")
    channel.exchange(exchange, durable=True)
    channel.send(QueueDeclare(name, False, True, False, False, True))
    channel.send(QueueBind(name, exchange, b"k", True))
    channel.publish(b"k", b"x", exchange=exchange)
    assert channel.get(name).body == b"x"
    channel.send(QueueDelete(name, False, False, True))
    channel.send(ExchangeDelete(exchange, False, True))
    channel.quiet()


def test_unbind_has_no_no_wait_bit(amqp: Amqp) -> None:
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    payload = (
        b"\0\x32\0\x32\0\0" + bytes([len(queue)]) + queue + b"\x0aamq.direct" + b"\1k" + b"\0\0\0\0"
    )
    channel.peer.send(frame(1, 1, payload))
    assert type(channel.reply()).__name__ == "QueueUnbindOk"


# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", list("bBsuIil"))
def test_every_integer_type_will_do(amqp: Amqp, tag: str) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, exclusive=True, arguments=arguments_of("x-message-ttl", tag, 100))
    # Arguments are equal by value, whatever their type.
    channel.declare(name, exclusive=True, arguments=table(x__message__ttl=100))


@pytest.mark.parametrize(
    ("key", "tag", "value", "reason"),
    [
        ("x-expires", "I", 0, "{value_zero,0}"),
        ("x-expires", "I", -1, "{value_negative,-1}"),
        ("x-expires", "l", 315360000001, "{value_too_large,315360000001}"),
        ("x-expires", "S", b"60", '"expected integer, got longstr"'),
        ("x-expires", "d", 1.5, '"expected integer, got double"'),
        ("x-expires", "t", True, '"expected integer, got bool"'),
        ("x-message-ttl", "I", -2, "{value_negative,-2}"),
        ("x-message-ttl", "l", 315360000001, "{value_too_large,315360000001}"),
        ("x-message-ttl", "S", b"60", '"expected integer, got longstr"'),
        ("x-queue-type", "S", b"nonsense", "\"unsupported queue type 'nonsense'\""),
        ("x-queue-type", "I", 1, "{unacceptable_type,signedint}"),
        ("x-queue-mode", "S", b"nonsense", "\"unsupported queue mode 'nonsense'\""),
        ("x-queue-mode", "I", 1, "{unacceptable_type,signedint}"),
        ("x-queue-version", "I", 3, "\"unsupported queue version '3'\""),
    ],
)  # fmt: skip
def test_bad_argument(amqp: Amqp, key: str, tag: str, value: object, reason: str) -> None:
    channel = amqp.channel()
    name = amqp.name()
    text = f"invalid arg '{key}' for queue '{name.decode()}' in vhost '/': {reason}"
    channel.refused(declaration(name, arguments_of(key, tag, value)), 406, text)
    # The refused declaration has left nothing behind.
    channel.peer.channel().refused(declaration(name, passive=True), 404, missing(name))


@pytest.mark.parametrize(
    ("key", "tag", "value"),
    [("x-expires", "l", 315360000000), ("x-message-ttl", "I", 0), ("x-queue-type", "S", b"classic"),
     ("x-queue-mode", "S", b"default"), ("x-queue-mode", "S", b"lazy"), ("x-queue-version", "I", 2), ("x-queue-master-locator", "S", b"random"),
     ("x-whatever", "F", {"a": Field(ord("I"), 1)}), ("x-max-length", "I", 0), ("x-max-length-bytes", "l", 2**40),
     ("x-overflow", "S", b"reject-publish-dlx"), ("x-dead-letter-exchange", "S", b"not there"),
     ("x-max-priority", "I", 0), ("x-max-priority", "B", 255), ("x-single-active-consumer", "t", True)],
)  # fmt: skip
def test_good_argument(amqp: Amqp, key: str, tag: str, value: object) -> None:
    channel = amqp.channel()
    channel.declare(amqp.name(), exclusive=True, arguments=arguments_of(key, tag, value))


@pytest.mark.parametrize("key", CLASSIC_ONLY)
def test_argument_of_another_queue_type(amqp: Amqp, key: str) -> None:
    name = amqp.name()
    text = f"invalid arg '{key}' for queue '{name.decode()}' in vhost '/' of queue type rabbit_classic_queue"
    amqp.channel().refused(declaration(name, arguments_of(key, "I", 1)), 406, text)


@pytest.mark.parametrize(
    ("before", "after", "received", "current"),
    [
        (table(x__message__ttl=60000), b"", "none", "the value '60000' of type 'signedint'"),
        (b"", table(x__message__ttl=60000), "the value '60000' of type 'signedint'", "none"),
        (table(x__message__ttl=1), table(x__message__ttl=2), "'2'", "'1'"),
        (table(x__expires=60000), table(x__expires=2**33), f"'{2**33}'", "'60000'"),
    ],
)
def test_inequivalent_arguments(
    amqp: Amqp, before: bytes, after: bytes, received: str, current: str
) -> None:
    channel = amqp.channel()
    name = amqp.name()
    key = "x-expires" if b"x-expires" in before else "x-message-ttl"
    channel.declare(name, exclusive=True, arguments=before)
    text = f"inequivalent arg '{key}' for queue '{name.decode()}' in vhost '/': received {received} but current is {current}"
    channel.refused(declaration(name, after, exclusive=True), 406, text)


def test_only_known_arguments_are_compared_and_the_default_type_is_classic(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    for arguments in (
        table(whatever=1), table(whatever=2), b"", table(x__queue__type="classic"),
        table(x__cancel__on__ha__failover=True),
    ):  # fmt: skip
        channel.declare(name, exclusive=True, arguments=arguments)


def test_arguments_of_an_existing_queue_are_compared_not_validated(amqp: Amqp) -> None:
    channel = amqp.channel()
    name = amqp.name()
    channel.declare(name, exclusive=True, arguments=table(x__message__ttl=1))
    text = f"inequivalent arg 'x-message-ttl' for queue '{name.decode()}' in vhost '/': received '-1' but current is '1'"
    channel.refused(declaration(name, table(x__message__ttl=-1), exclusive=True), 406, text)


def test_dead_letter_exchange_must_be_text(amqp: Amqp) -> None:
    name = amqp.name()
    text = f"invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue '{name.decode()}' in vhost '/'"
    amqp.channel().refused(declaration(name, table(x__dead__letter__exchange=1)), 406, text)
