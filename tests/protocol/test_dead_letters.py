"""Dead letters: which messages die, of what, and what is left of them."""

import time

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer
from tests.support.brokers.dying_queue import (
    FIRST_DEATH,
    Dying,
    death,
    deaths,
)
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, decode_table
from warrenmq.wire.methods import (
    BasicNack,
    ChannelFlow,
    ChannelFlowOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import NO_PROPERTIES, Properties


def expiring(ms: int) -> bytes:
    return Properties(expiration=b"%d" % ms).encode()


def refused(channel: ChannelPeer, upto: int) -> list[int]:
    """Wait for the confirms of all publishes; returns those that got a nack."""
    undecided, found = set(range(1, upto + 1)), set[int]()
    for item in channel.confirms(upto):
        tag = item.delivery_tag
        decided = {number for number in undecided if number <= tag} if item.multiple else {tag}
        undecided -= decided
        if isinstance(item, BasicNack):
            found |= decided
    return sorted(found)


# -- the dead letter -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("queue_mode", ["default", "lazy"])
def test_a_dead_letter(amqp: Amqp, mode: int, queue_mode: str) -> None:
    """Properties are kept, but for the expiration, which would count again."""
    dying = Dying(amqp, True, {"x__queue__mode": queue_mode})
    properties = Properties(
        b"text/plain", b"utf-8", table(own=1), mode, 3, b"correlation", b"reply", b"60000",
        b"id", 1, b"type", b"guest", b"app", b"cluster",
    )  # fmt: skip
    dying.publish(b"body", properties=properties.encode())
    dying.get_and_reject()
    letter = dying.letters.message()
    deliver = letter.deliver
    assert (deliver.exchange, deliver.routing_key) == (dying.exchange, dying.queue)
    assert letter.body == b"body" and not deliver.redelivered
    left = letter.properties
    assert left.headers is not None and left.expiration is None
    headers = decode_table(left.headers)
    left.headers, left.expiration = properties.headers, properties.expiration
    assert left.encode() == properties.encode()

    queue, empty = Field(ord("S"), dying.queue), Field(ord("S"), b"")
    now_s = amqp.memory.now_ms // 1000 if amqp.memory is not None else int(time.time())
    fields = {
        "count": Field(ord("l"), 1),
        "reason": Field(ord("S"), b"rejected"),
        "queue": queue,
        "time": Field(ord("T"), now_s),
        "exchange": empty,
        "routing-keys": Field(ord("A"), [queue]),
    }
    # RabbitMQ forgets it when it has read the message from disk.
    if not (amqp.is_foreign and queue_mode == "lazy"):
        fields["original-expiration"] = Field(ord("S"), b"60000")
    items = headers.pop("x-death").value
    assert isinstance(items, list) and len(items) == 1 and items[0].tag == ord("F")
    found = items[0].value
    assert isinstance(found, dict) and found.keys() == fields.keys()
    died_at = found["time"].value
    assert isinstance(died_at, int) and now_s - 60 <= died_at <= now_s
    fields["time"] = Field(ord("T"), died_at)
    assert list(found.items()) == list(fields.items())
    first = dict(zip(FIRST_DEATH, (fields["reason"], queue, empty), strict=True))
    assert headers == {"own": Field(ord("I"), 1), **first}
    assert dying.channel.is_empty(dying.queue)
    dying.delete()


# -- rejected --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "dead"),
    [
        ("reject", [b"2"]),
        ("nack", [b"2"]),
        ("nack multiple", [b"1", b"2"]),
        ("nack all", [b"1", b"2", b"3"]),
        ("reject and requeue", []),
        ("nack and requeue", []),
    ],
)
@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
def test_rejected(amqp: Amqp, method: str, dead: list[bytes], properties: bytes) -> None:
    dying = Dying(amqp, durable=True)
    dying.publish(b"1", b"2", b"3", properties=properties)
    channel = dying.channel
    tags = [channel.get(dying.queue).got.delivery_tag for _ in range(3)]
    match method:
        case "reject":
            channel.reject(tags[1], requeue=False)
        case "nack":
            channel.nack(tags[1], requeue=False)
        case "nack multiple":
            channel.nack(tags[1], multiple=True, requeue=False)
        case "nack all":
            channel.nack(0, multiple=True, requeue=False)
        case "reject and requeue":
            channel.reject(tags[1])
        case _:
            channel.nack(tags[2], multiple=True)
    found = [dying.letters.message() for _ in dead]
    assert [letter.body for letter in found] == dead
    assert all(deaths(letter) == [death(dying.queue, "rejected")] for letter in found)
    # What is left still waits for an ack or has returned.
    channel.nack(0, multiple=True)
    assert channel.drain(dying.queue) == [body for body in (b"1", b"2", b"3") if body not in dead]
    dying.has_no_more_letters()
    dying.delete()


@pytest.mark.parametrize("queue_mode", ["default", "lazy"])
def test_many_keep_their_order(amqp: Amqp, queue_mode: str) -> None:
    """The 700 messages, a third of them transient, take several reads from the disk."""
    dying = Dying(amqp, True, {"x__queue__mode": queue_mode})
    numbers = range(700)
    for number in numbers:
        properties = NO_PROPERTIES if number % 3 == 0 else PERSISTENT
        dying.publish(b"%d" % number, properties=properties)
    dying.channel.consume(dying.queue)
    dying.channel.bodies(len(numbers))
    dying.channel.nack(0, multiple=True, requeue=False)
    assert dying.letters.bodies(len(numbers)) == [b"%d" % number for number in numbers]
    dying.delete()


@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
def test_a_queue_keeps_what_its_target_has_not(amqp: Amqp, properties: bytes) -> None:
    """Until the copy of a persistent message is durable, the queue has it as unacked."""
    engine = amqp.engine()
    dying = Dying(amqp, durable=True)
    dying.publish(b"x", properties=properties)
    backing = engine.vhost.queues[dying.queue].backing
    engine.holds_commits = True
    dying.get_and_reject()
    assert dying.letters.message().body == b"x"
    assert backing.unacked.count == (1 if properties == PERSISTENT else 0)
    engine.holds_commits = False
    engine.pump()
    assert backing.unacked.count == 0
    dying.delete()


def test_a_transaction_rejects_when_it_commits(amqp: Amqp) -> None:
    dying = Dying(amqp)
    dying.publish(b"1")
    channel = dying.channel.peer.channel()
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    tag = channel.get(dying.queue).got.delivery_tag
    channel.reject(tag, requeue=False)
    channel.send(TxRollback())
    channel.expect(TxRollbackOk)
    dying.has_no_more_letters()
    channel.reject(tag, requeue=False)
    dying.has_no_more_letters()
    channel.send(TxCommit())
    channel.expect(TxCommitOk)
    assert dying.letters.message().body == b"1"


@pytest.mark.parametrize("how", ["ack", "get", "consume", "close", "purge", "purge, then reject"])
def test_who_leaves_otherwise_does_not_die(amqp: Amqp, how: str) -> None:
    dying = Dying(amqp)
    queue = dying.queue
    dying.publish(b"1", b"2")
    channel = dying.channel.peer.channel()
    match how:
        case "ack":
            for _ in range(2):
                channel.ack(channel.get(queue).got.delivery_tag)
        case "get":
            assert channel.drain(queue) == [b"1", b"2"]
        case "consume":
            channel.consume(queue, no_ack=True)
            assert channel.bodies(2) == [b"1", b"2"]
        case "close":
            channel.get(queue)
            channel.close()
            channel = dying.channel
            amqp.eventually(lambda: channel.count(queue) == 2)
            assert channel.drain(queue) == [b"1", b"2"]
        case _:
            tag = channel.get(queue).got.delivery_tag
            channel.send(QueuePurge(queue))
            assert channel.expect(QueuePurgeOk).message_count == 1
            # The purge has left the unacked message.
            channel.reject(tag, requeue=how == "purge")
            if how == "purge":
                assert channel.drain(queue) == [b"1"]
            else:
                assert dying.letters.message().body == b"1"
    if how == "consume":
        dying.letters.quiet()
    else:
        dying.has_no_more_letters()


@pytest.mark.parametrize("how", ["delete", "expire", "auto-delete"])
def test_the_messages_of_a_deleted_queue_do_not_die(amqp: Amqp, how: str) -> None:
    """The unacked ones do not die when they are rejected later."""
    dying = Dying(amqp)
    channel = dying.channel
    values: dict[str, object] = {"x__dead__letter__exchange": dying.exchange.decode()}
    if how == "expire":
        values["x__expires"] = 50
    queue = channel.declare(
        amqp.name(), auto_delete=how == "auto-delete", arguments=table(**values)
    ).queue
    channel.qos(1)
    channel.publish_each(queue, b"1", b"2")
    match how:
        case "delete":
            assert channel.get(queue).body == b"1"
            assert channel.delete(queue) == 1
            channel.reject(1, requeue=False)
        case "auto-delete":
            tag = channel.consume(queue)
            assert channel.message().body == b"1"
            channel.cancel(tag)
            channel.reject(1, requeue=False)
        case _:
            amqp.eventually(lambda: is_gone(channel, queue))
    dying.letters.quiet()


def is_gone(channel: ChannelPeer, queue: bytes) -> bool:
    """Whether a message for the queue comes back; unlike a declaration it does not use it."""
    channel.publish(queue, b"probe", mandatory=True)
    assert isinstance(channel.call(ChannelFlow(True)), ChannelFlowOk)
    return bool(channel.events)


# -- expired ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expiration"),
    [
        ({}, b"1"),
        ({}, b"0"),
        ({"x__message__ttl": 1}, None),
        ({"x__message__ttl": 0}, None),
        ({"x__message__ttl": 1}, b"60000"),
        ({"x__message__ttl": 60_000}, b"1"),
        ({"x__message__ttl": 1, "x__queue__mode": "lazy"}, None),
    ],
)
@pytest.mark.parametrize("mode", [1, 2])
def test_expired(
    amqp: Amqp, arguments: dict[str, object], expiration: bytes | None, mode: int
) -> None:
    """The expiration of the message, though not that of the queue, is kept in x-death."""
    dying = Dying(amqp, True, arguments)
    properties = Properties(delivery_mode=mode, expiration=expiration).encode()
    dying.publish(b"1", b"2", b"3", properties=properties)
    found = [dying.letters.message() for _ in range(3)]
    assert [letter.body for letter in found] == [b"1", b"2", b"3"]
    expected = death(dying.queue, "expired")
    if expiration is not None:
        expected["original-expiration"] = expiration.decode()
    for letter in found:
        assert deaths(letter) == [expected]
        assert letter.properties.expiration is None
        assert letter.properties.delivery_mode == mode
    dying.delete()


def test_a_message_dies_when_it_comes_to_the_head(amqp: Amqp) -> None:
    dying = Dying(amqp)
    dying.publish(b"head")
    dying.publish(b"behind", properties=expiring(1))
    dying.channel.quiet()
    amqp.pause(20)
    dying.letters.quiet()
    assert dying.channel.get(dying.queue).body == b"head"
    assert dying.letters.message().body == b"behind"


def test_a_returned_message_that_is_too_old_dies(amqp: Amqp) -> None:
    """The reason is its age, although a consumer has rejected it."""
    dying = Dying(amqp)
    dying.channel.qos(1)
    dying.channel.consume(dying.queue)
    dying.publish(b"x", properties=expiring(0))
    dying.channel.reject(dying.channel.message().deliver.delivery_tag)
    (item,) = deaths(dying.letters.message())
    assert item == {**death(dying.queue, "expired"), "original-expiration": "0"}
    dying.channel.quiet()


# -- maxlen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "dead", "kept"),
    [
        ({"x__max__length": 2}, [b"aa", b"b"], [b"cc", b"d"]),
        ({"x__max__length": 0}, [b"aa", b"b", b"cc", b"d"], []),
        ({"x__max__length__bytes": 3}, [b"aa", b"b"], [b"cc", b"d"]),
        ({"x__max__length": 3, "x__queue__mode": "lazy"}, [b"aa"], [b"b", b"cc", b"d"]),
    ],
)
@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
def test_dropped_heads_die(
    amqp: Amqp, limit: dict[str, object], dead: list[bytes], kept: list[bytes], properties: bytes
) -> None:
    """Their publisher gets an ack."""
    dying = Dying(amqp, True, limit)
    dying.channel.confirm_select()
    dying.publish(b"aa", b"b", b"cc", b"d", properties=properties)
    assert refused(dying.channel, 4) == []
    found = [dying.letters.message() for _ in dead]
    assert [letter.body for letter in found] == dead
    assert all(deaths(letter) == [death(dying.queue, "maxlen")] for letter in found)
    assert dying.channel.drain(dying.queue) == kept
    dying.letters.quiet()
    dying.delete()


def test_a_returned_message_over_the_limit_dies_of_that(amqp: Amqp) -> None:
    """Although it is too old as well."""
    dying = Dying(amqp, arguments={"x__max__length": 1})
    dying.channel.qos(1)
    dying.channel.consume(dying.queue)
    dying.publish(b"old", properties=expiring(0))
    tag = dying.channel.message().deliver.delivery_tag
    dying.publish(b"new")
    dying.channel.reject(tag)
    (item,) = deaths(dying.letters.message())
    assert item == {**death(dying.queue, "maxlen"), "original-expiration": "0"}
    assert dying.channel.message().body == b"new"


@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_refused_publishes_die_by_the_overflow(
    amqp: Amqp, overflow: str, properties: bytes
) -> None:
    dying = Dying(amqp, True, {"x__max__length": 1, "x__overflow": overflow})
    dying.channel.confirm_select()
    dying.publish(b"1", b"2", b"3", properties=properties)
    assert refused(dying.channel, 3) == [2, 3]
    if overflow == "reject-publish-dlx":
        found = [dying.letters.message() for _ in range(2)]
        assert [letter.body for letter in found] == [b"2", b"3"]
        assert all(deaths(letter) == [death(dying.queue, "maxlen")] for letter in found)
    dying.get_and_reject()
    assert deaths(dying.letters.message()) == [death(dying.queue, "rejected")]
    dying.letters.quiet()
    dying.delete()


def test_two_queues_refuse_one_publish(amqp: Amqp) -> None:
    """There are two dead letters, and one nack."""
    limits: dict[str, object] = {"x__max__length": 0, "x__overflow": "reject-publish-dlx"}
    dying = [Dying(amqp, False, limits) for _ in range(2)]
    channel = amqp.channel()
    channel.confirm_select()
    exchange = amqp.name("x")
    channel.exchange(exchange, b"fanout", auto_delete=True)
    for each in dying:
        each.channel.bind(each.queue, exchange)
    channel.publish(b"key", b"1", exchange=exchange, mandatory=True)
    assert refused(channel, 1) == [1]
    for each in dying:
        found = deaths(each.letters.message())
        assert found == [death(each.queue, "maxlen", 1, exchange, b"key")]
    channel.quiet()


def test_a_refused_publish_of_a_transaction_dies(amqp: Amqp) -> None:
    dying = Dying(amqp, False, {"x__max__length": 0, "x__overflow": "reject-publish-dlx"})
    channel = amqp.channel()
    channel.send(TxSelect())
    channel.expect(TxSelectOk)
    channel.publish(dying.queue, b"1")
    channel.refused(TxCommit(), 406, "partial tx completion")
    assert dying.letters.message().body == b"1"
