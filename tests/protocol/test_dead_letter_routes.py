"""Where dead letters go, messages that die again and again, and policies."""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import Message
from tests.support.brokers.dying_queue import (
    FIRST_DEATH,
    Dying,
    death,
    deaths,
    headers_of,
    reject_head,
)
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.methods import (
    BasicAck,
    ExchangeDelete,
    ExchangeDeleteOk,
)
from warrenmq.wire.properties import NO_PROPERTIES, Properties


def with_headers(**values: object) -> bytes:
    return Properties(headers=table(**values)).encode()


# -- routing ---------------------------------------------------------------------------------------


def test_a_dead_letter_keeps_its_keys(amqp: Amqp) -> None:
    """Those of CC too: the header stays, and x-death lists them."""
    dying = Dying(amqp)
    letters = dying.letters
    exchange = amqp.name("x")
    letters.exchange(exchange, b"direct", auto_delete=True)
    letters.bind_exchange(exchange, dying.exchange)
    graves = {key: letters.declare(exclusive=True).queue for key in (b"to", b"cc1", b"cc2")}
    for key, grave in graves.items():
        letters.bind(grave, exchange, key)
    source = amqp.name("x")
    dying.channel.exchange(source, b"fanout", auto_delete=True)
    dying.channel.bind(dying.queue, source)
    properties = with_headers(CC=["cc1", "cc2", "none"], BCC=["blind"])
    dying.channel.publish(b"to", b"1", properties, source)
    dying.get_and_reject()
    letter = letters.message()
    assert (letter.deliver.exchange, letter.deliver.routing_key) == (dying.exchange, b"to")
    assert headers_of(letter)["CC"] == ["cc1", "cc2", "none"] and "BCC" not in headers_of(letter)
    keys = (b"to", b"cc1", b"cc2", b"none")
    assert deaths(letter) == [death(dying.queue, "rejected", 1, source, *keys)]
    assert headers_of(letter)["x-first-death-exchange"] == source.decode()
    amqp.eventually(lambda: [letters.count(grave) for grave in graves.values()] == [1, 1, 1])


def test_a_key_for_dead_letters(amqp: Amqp) -> None:
    """It is the only key then, so CC is removed; x-death keeps all keys."""
    target, channel = amqp.name(), amqp.channel()
    copied = channel.declare(exclusive=True).queue
    channel.declare(target, exclusive=True)
    arguments = {"x__dead__letter__exchange": "", "x__dead__letter__routing__key": target.decode()}
    queue = channel.declare(amqp.name(), exclusive=True, arguments=table(**arguments)).queue
    channel.publish(queue, b"1", with_headers(CC=[copied.decode()], own=1))
    assert channel.drain(copied) == [b"1"]
    reject_head(channel, queue)
    channel.consume(target)
    letter = channel.message()
    assert (letter.deliver.exchange, letter.deliver.routing_key) == (b"", target)
    assert deaths(letter) == [death(queue, "rejected", 1, b"", queue, copied)]
    assert sorted(headers_of(letter)) == ["own", "x-death", *sorted(FIRST_DEATH)]
    assert channel.is_empty(copied)


def test_blind_keys_are_lost(amqp: Amqp) -> None:
    amqp.departure("there they are keys of the dead letter")
    channel = amqp.channel()
    arguments = table(x__dead__letter__exchange="")
    queue = channel.declare(exclusive=True, arguments=arguments).queue
    blind = channel.declare(exclusive=True).queue
    channel.publish(queue, b"1", with_headers(BCC=[blind.decode()]))
    assert channel.drain(blind) == [b"1"]
    channel.qos(1)
    channel.consume(queue)
    # The message comes back to its queue by its first key.
    for _ in range(3):
        channel.reject(channel.message().deliver.delivery_tag, requeue=False)
    channel.message()
    assert channel.is_empty(blind)


@pytest.mark.parametrize("how", ["no exchange", "no binding"])
def test_a_dead_letter_without_a_route_is_dropped(amqp: Amqp, how: str) -> None:
    """Nobody is told, and the queue goes on: later ones arrive when there is a way."""
    channel = amqp.channel()
    exchange = amqp.name("dlx")
    if how == "no binding":
        channel.exchange(exchange, internal=True, auto_delete=True)
    arguments = table(x__dead__letter__exchange=exchange.decode())
    queue = channel.declare(exclusive=True, arguments=arguments).queue
    channel.confirm_select()
    channel.publish(queue, b"1", PERSISTENT, mandatory=True)
    assert isinstance(channel.event(), BasicAck)
    reject_head(channel, queue)
    channel.quiet()
    assert channel.is_empty(queue)
    channel.exchange(exchange, internal=True, auto_delete=True)
    grave = channel.declare(exclusive=True).queue
    channel.bind(grave, exchange, queue)
    channel.consume(grave, no_ack=True)
    channel.publish(queue, b"2")
    reject_head(channel, queue)
    # The confirm and the dead letter come in any order.
    events = [channel.event() for _ in range(2)]
    assert [item.body for item in events if isinstance(item, Message)] == [b"2"]
    channel.send(ExchangeDelete(exchange))
    channel.expect(ExchangeDeleteOk)
    channel.publish(queue, b"3")
    reject_head(channel, queue)
    assert isinstance(channel.event(), BasicAck)
    channel.quiet()


def test_an_alternate_exchange_gets_dead_letters(amqp: Amqp) -> None:
    dying = Dying(amqp)
    exchange = amqp.name("x")
    alternate = table(alternate__exchange=dying.exchange.decode())
    dying.channel.exchange(exchange, b"direct", auto_delete=True, arguments=alternate)
    arguments = table(x__dead__letter__exchange=exchange.decode())
    queue = dying.channel.declare(exclusive=True, arguments=arguments).queue
    dying.channel.publish(queue, b"1")
    reject_head(dying.channel, queue)
    assert dying.letters.message().deliver.exchange == exchange


def test_several_targets(amqp: Amqp) -> None:
    """One that is full refuses the dead letter, which may die there for the second time."""
    dying = Dying(amqp)
    channel = dying.channel
    full = channel.declare(
        exclusive=True, arguments=table(x__max__length=0, x__overflow="reject-publish")
    ).queue
    passing = Dying(amqp, False, {"x__max__length": 0, "x__overflow": "reject-publish-dlx"})
    other = channel.declare(exclusive=True).queue
    for queue, owner in ((full, channel), (passing.queue, passing.channel), (other, channel)):
        owner.bind(queue, dying.exchange)
    first = death(dying.queue, "rejected")
    assert deaths(dying.reject()) == [first]
    second = death(passing.queue, "maxlen", 1, dying.exchange, dying.queue)
    assert deaths(passing.letters.message()) == [second, first]
    amqp.eventually(lambda: channel.count(other) == 1)
    assert channel.drain(full) == []
    passing.letters.quiet()


# -- several deaths --------------------------------------------------------------------------------


def test_the_second_death_in_a_queue_counts(amqp: Amqp) -> None:
    """The item keeps what it says of the first one."""
    dying = Dying(amqp)
    exchange = amqp.name("x")
    dying.channel.exchange(exchange, b"fanout", auto_delete=True)
    dying.channel.bind(dying.queue, exchange)
    letter = dying.reject()
    headers = headers_of(letter)
    amqp.pause(1100)
    for count in (2, 3):
        dying.channel.publish(b"other", b"x", letter.raw, exchange)
        dying.get_and_reject()
        letter = dying.letters.message()
        items = headers["x-death"]
        assert isinstance(items, list)
        items[0]["count"] = count
        assert headers_of(letter) == headers


def test_the_latest_death_stands_first(amqp: Amqp) -> None:
    """The order of the others turns round each time, as in RabbitMQ."""
    first, second, third = dying = [Dying(amqp) for _ in range(3)]
    letter = first.reject()
    raw = letter.raw
    for each, order in (
        (second, [(1, 1), (0, 1)]),
        (third, [(2, 1), (0, 1), (1, 1)]),
        (first, [(0, 2), (1, 1), (2, 1)]),
        (second, [(1, 2), (2, 1), (0, 2)]),
    ):
        letter = each.reject(raw)
        raw = letter.raw
        assert deaths(letter) == [
            death(dying[place].queue, "rejected", count) for place, count in order
        ]
        headers = headers_of(letter)
        assert [headers[name] for name in FIRST_DEATH] == ["rejected", first.queue.decode(), ""]


def test_reasons_are_counted_apart(amqp: Amqp) -> None:
    dying = Dying(amqp)
    letter = dying.reject()
    properties = letter.properties
    properties.expiration = b"1"
    dying.publish(b"x", properties=properties.encode())
    rejected = death(dying.queue, "rejected")
    expired = {**death(dying.queue, "expired"), "original-expiration": "1"}
    letter = dying.letters.message()
    assert deaths(letter) == [expired, rejected]
    letter = dying.reject(letter.raw)
    assert deaths(letter) == [{**rejected, "count": 2}, expired]


def test_retries(amqp: Amqp) -> None:
    """A message goes between a queue where it is rejected and one where it waits."""
    channel = amqp.channel()
    work, wait = amqp.name("work"), amqp.name("wait")
    for queue, target, ttl in ((work, wait, 60_000), (wait, work, 1)):
        key = target.decode()
        arguments = table(
            x__dead__letter__exchange="", x__dead__letter__routing__key=key, x__message__ttl=ttl
        )
        channel.declare(queue, durable=True, arguments=arguments)
    channel.qos(1)
    channel.consume(work)
    channel.publish(work, b"x", PERSISTENT)
    for count in range(5):
        message = channel.message()
        if count:
            expected = [death(wait, "expired", count), death(work, "rejected", count)]
            assert deaths(message) == expected
        channel.reject(message.deliver.delivery_tag, requeue=False)
    for queue in (work, wait):
        channel.delete(queue)


@pytest.mark.parametrize("value", ["text", 5, None, True, {}, {"count": 1}, []])
def test_a_header_that_is_no_list_of_deaths(amqp: Amqp, value: object) -> None:
    """It is replaced, and nothing is said of a first death."""
    dying = Dying(amqp)
    letter = dying.reject(with_headers(x__death=value, own=1))
    assert deaths(letter) == [death(dying.queue, "rejected")]
    assert sorted(headers_of(letter)) == ["own", "x-death"]


def test_deaths_that_a_publisher_made_up_count(amqp: Amqp) -> None:
    dying = Dying(amqp)
    queue = dying.queue.decode()
    made_up: list[dict[str, object]] = [
        {"queue": "elsewhere", "reason": "expired", "count": 7},
        {"queue": queue, "reason": "rejected", "count": 41, "own": 1},
        {"queue": queue, "reason": "maxlen"},
    ]
    properties = with_headers(x__death=made_up, x__first__death__queue="made up")
    headers = headers_of(dying.reject(properties))
    assert headers == {
        "x-death": [{**made_up[1], "count": 42}, {**made_up[2], "count": 1}, made_up[0]],
        "x-first-death-queue": "made up",
    }


# -- circles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{"x__message__ttl": 1}, {"x__max__length": 0}])
@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
def test_a_circle_without_a_reject_ends(
    amqp: Amqp, rule: dict[str, object], properties: bytes
) -> None:
    """The message does not come again to a queue where it died; other queues get it."""
    dying = Dying(amqp, True, rule)
    dying.channel.bind(dying.queue, dying.exchange)
    dying.publish(b"1", b"2", properties=properties)
    assert dying.letters.bodies(2) == [b"1", b"2"]
    amqp.pause(20)
    dying.letters.quiet()
    assert dying.channel.count(dying.queue) == 0
    dying.delete()


def test_a_circle_of_two_queues_ends(amqp: Amqp) -> None:
    first, second = (Dying(amqp, False, {"x__message__ttl": 1}) for _ in range(2))
    first.channel.bind(first.queue, second.exchange)
    second.channel.bind(second.queue, first.exchange)
    first.publish(b"x")
    assert deaths(first.letters.message()) == [death(first.queue, "expired")]
    assert deaths(second.letters.message()) == [
        death(second.queue, "expired", 1, first.exchange, first.queue),
        death(first.queue, "expired"),
    ]
    amqp.pause(20)
    first.letters.quiet()
    second.letters.quiet()


def test_a_circle_with_rejects_goes_on(amqp: Amqp) -> None:
    dying = Dying(amqp)
    dying.channel.bind(dying.queue, dying.exchange)
    dying.channel.consume(dying.queue)
    dying.publish(b"x")
    for count in range(1, 6):
        dying.channel.reject(dying.channel.message().deliver.delivery_tag, requeue=False)
        (item,) = deaths(dying.letters.message())
        assert item["count"] == count


# -- policies --------------------------------------------------------------------------------------


def test_a_policy_lets_expired_messages_die(amqp: Amqp) -> None:
    dying = Dying(amqp)

    def expires() -> bool:
        dying.publish(b"x")
        dying.channel.quiet()
        amqp.pause(10)
        return dying.channel.drain(dying.queue) == []

    assert not expires()
    amqp.set_policy(dying.queue, message__ttl=1)
    amqp.eventually(expires)
    assert deaths(dying.letters.message()) == [death(dying.queue, "expired")]


def test_a_lower_limit_of_a_policy_kills_at_once(amqp: Amqp) -> None:
    dying = Dying(amqp)
    dying.publish(b"1", b"2", b"3")
    amqp.set_policy(dying.queue, max__length=1)
    found = [dying.letters.message() for _ in range(2)]
    assert [letter.body for letter in found] == [b"1", b"2"]
    assert all(deaths(letter) == [death(dying.queue, "maxlen")] for letter in found)


def test_the_exchange_of_a_policy(amqp: Amqp) -> None:
    """A new, changed or cleared policy counts for a queue in use, and for what waits in it."""
    channel = amqp.channel()
    queue = channel.declare(amqp.name(), exclusive=True).queue
    graves = [channel.declare(amqp.name("grave"), exclusive=True).queue for _ in range(2)]
    exchange = amqp.name("dlx")
    channel.exchange(exchange, b"fanout", auto_delete=True)
    channel.bind(graves[0], exchange)

    def died_to() -> list[int]:
        """Where the dead letter of a message is that waited already."""
        channel.publish(queue, b"x")
        reject_head(channel, queue)
        channel.quiet()
        return [len(channel.drain(grave)) for grave in graves]

    channel.publish_each(queue, b"x", b"x")
    assert died_to() == [0, 0]
    amqp.set_policy(queue, dead__letter__exchange=exchange.decode())
    amqp.eventually(lambda: died_to() == [1, 0])
    key = graves[1].decode()
    amqp.set_policy(queue, dead__letter__exchange="", dead__letter__routing__key=key)
    amqp.eventually(lambda: died_to() == [0, 1])
    amqp.clear_policy(queue)
    amqp.eventually(lambda: died_to() == [0, 0])


def test_arguments_come_before_a_policy(amqp: Amqp) -> None:
    """Each of the two says what it says: a policy may add the key to an argument's exchange."""
    dying = Dying(amqp)
    other = Dying(amqp, False, {"x__dead__letter__routing__key": "argument"})
    for each in (dying, other):
        amqp.set_policy(
            each.queue,
            dead__letter__exchange="amq.fanout",
            dead__letter__routing__key="policy",
        )
    amqp.eventually(lambda: dying.reject().deliver.routing_key == b"policy")
    assert other.reject().deliver.routing_key == b"argument"


def test_a_message_that_circles_among_full_queues_holds_nobody_up(amqp: Amqp) -> None:
    """After a reject no cycle is cut. The message goes on until one of the queues has room."""
    channel = amqp.channel()
    one, two = amqp.name(), amqp.name()
    for queue, other in ((one, two), (two, one)):
        arguments = {
            "x__max__length": 1,
            "x__overflow": "reject-publish-dlx",
            "x__dead__letter__exchange": "",
            "x__dead__letter__routing__key": other.decode(),
        }
        channel.declare(queue, exclusive=True, arguments=table(**arguments))
        channel.publish_each(queue, b"full")
    amqp.eventually(lambda: [channel.count(queue) for queue in (one, two)] == [1, 1])
    arguments = {"x__dead__letter__exchange": "", "x__dead__letter__routing__key": one.decode()}
    source = channel.declare(amqp.name(), exclusive=True, arguments=table(**arguments)).queue
    channel.publish_each(source, b"rejected")
    reject_head(channel, source)
    assert channel.get(two, no_ack=True).body == b"full"
    amqp.eventually(lambda: channel.count(two) == 1)
    assert channel.drain(two) == [b"rejected"] and channel.drain(one) == [b"full"]
