"""Delayed exchanges: when a message leaves one, where it goes then, and what it looks like.

RabbitMQ has them in a plug-in that does not come with it. What warren decides otherwise stands in
`docs/differences.md`.
"""

import pytest

from tests.support.brokers.amqp_frames import PERSISTENT, table
from tests.support.brokers.amqp_peer import ChannelPeer, Message
from tests.support.brokers.dying_queue import Dying, deaths, reject_head
from tests.support.brokers.fixtures import Amqp
from warrenmq.wire.field_table import Field, decode_table, encode_table
from warrenmq.wire.methods import (
    BasicAck,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeDeleteOk,
    QueueBind,
    QueueBindOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from warrenmq.wire.properties import NO_PROPERTIES, Properties

DELAYED = b"x-delayed-message"
DELAY_MS_MAX = 4294967295
# A delay that leaves time for a few requests.
CHANGE_MS = 400
# A delay that no test waits for.
LONG_MS = 3_600_000


@pytest.fixture(autouse=True)
def warren_only(amqp: Amqp) -> None:
    amqp.departure("the plug-in does not come with RabbitMQ")


class Delay:
    """A delayed exchange with a queue, bound with the key `k`, that a second channel consumes."""

    def __init__(self, amqp: Amqp, inner: str = "direct") -> None:
        self.channel = amqp.channel()
        self.arrived = amqp.channel()
        self.exchange = amqp.name("delayed")
        self.declare(inner)
        self.queue = self.arrived.declare(amqp.name(), exclusive=True).queue
        self.arrived.bind(self.queue, self.exchange, b"k")
        self.arrived.consume(self.queue, no_ack=True)

    def declare(self, inner: str) -> None:
        arguments = table(x__delayed__type=inner)
        self.channel.exchange(self.exchange, DELAYED, auto_delete=True, arguments=arguments)

    def delete(self) -> None:
        self.channel.send(ExchangeDelete(self.exchange))
        self.channel.expect(ExchangeDeleteOk)

    def publish(
        self,
        body: bytes,
        delay_ms: int,
        key: bytes = b"k",
        mandatory: bool = False,
        mode: int | None = None,
    ) -> None:
        properties = delayed(delay_ms, delivery_mode=mode).encode()
        self.channel.publish(key, body, properties, self.exchange, mandatory)

    def has_no_more(self) -> None:
        """Assert it by a message that waits longer than all others, and comes next."""
        self.publish(b"the last", 60)
        assert self.arrived.message().body == b"the last"


def delayed(delay_ms: int, delivery_mode: int | None = None) -> Properties:
    return Properties(headers=table(x__delay=delay_ms), delivery_mode=delivery_mode)


def x_delay(message: Message) -> Field:
    headers = message.properties.headers
    assert headers is not None
    return decode_table(headers)["x-delay"]


def select_transactions(channel: ChannelPeer) -> None:
    channel.send(TxSelect())
    channel.expect(TxSelectOk)


def commit(channel: ChannelPeer) -> None:
    channel.send(TxCommit())
    channel.expect(TxCommitOk)


# -- declaring -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        *[
            (value, "Invalid argument, 'x-delayed-type' must be an existing exchange type")
            for value in (1, None, True, ["direct"])
        ],
        (
            "x-delayed-message",
            "Invalid argument, 'x-delayed-message' can't be used for 'x-delayed-type'",
        ),
    ],
)
def test_the_type_is_checked(amqp: Amqp, inner: object, text: str) -> None:
    channel, exchange = amqp.channel(), amqp.name("x")
    arguments = table(x__delayed__type=inner)
    channel.refused(ExchangeDeclare(exchange, DELAYED, arguments=arguments), 406, text)
    missing = ExchangeDeclare(exchange, DELAYED, passive=True)
    text = f"no exchange '{exchange.decode()}' in vhost '/'"
    amqp.channel().refused(missing, 404, text)


# -- the delay -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    [*[Field(ord(tag), 25) for tag in "bBsuIilL"], Field(ord("S"), b"25"), Field(ord("d"), 25.9)],
)
def test_a_message_waits(amqp: Amqp, field: Field) -> None:
    """It comes with the negative of its delay in a header, else as it was published."""
    delay = Delay(amqp)
    headers = {"a": Field(ord("I"), 1), "x-delay": field, "b": Field(ord("I"), 2)}
    properties = Properties(
        b"text/plain", None, encode_table(headers), 2, 3, b"correlation", None, b"60000", b"id"
    )
    started_ms = amqp.now_ms()
    delay.channel.publish(b"k", b"body", properties.encode(), delay.exchange)
    message = delay.arrived.message()
    assert amqp.has_passed(25, started_ms)
    deliver = message.deliver
    assert (deliver.exchange, deliver.routing_key) == (delay.exchange, b"k")
    assert message.body == b"body" and not deliver.redelivered
    properties.headers = encode_table({**headers, "x-delay": Field(ord("I"), -25)})
    assert message.raw == properties.encode()


@pytest.mark.parametrize(
    "value",
    [0, -1, -LONG_MS, DELAY_MS_MAX + 1, "soon", "", "-50", "1.5", "4294967296", 4294967296.0, True,
     None, [LONG_MS], {"x-delay": LONG_MS}],
)  # fmt: skip
def test_no_delay(amqp: Amqp, value: object) -> None:
    """The message finds its queue at once, so it is not returned, and is left as it is."""
    delay = Delay(amqp)
    properties = Properties(headers=table(a=1, x__delay=value)).encode()
    delay.channel.publish(b"k", b"x", properties, delay.exchange, mandatory=True)
    assert delay.arrived.message().raw == properties
    delay.channel.quiet()


def test_the_longest_delay(amqp: Amqp) -> None:
    """49 days pass at once: the clock of the engine is set forward."""
    engine = amqp.engine()
    delay = Delay(amqp)
    delay.publish(b"x", DELAY_MS_MAX)
    engine.now_ms += DELAY_MS_MAX - 100
    engine.advance(50)
    delay.arrived.quiet()
    message = delay.arrived.message()
    assert x_delay(message) == Field(ord("l"), -DELAY_MS_MAX)


def test_the_order_is_that_of_the_due_times(amqp: Amqp) -> None:
    """Those of one time keep the order of their publishes; a commit gives all the same start."""
    delay = Delay(amqp)
    select_transactions(delay.channel)
    for number, delay_ms in enumerate((90, 30, 60, 30, 1, 90)):
        delay.publish(b"%d" % number, delay_ms, mode=1 + number % 2)
    commit(delay.channel)
    assert delay.arrived.bodies(6) == [b"4", b"1", b"3", b"2", b"0", b"5"]


def test_many_of_one_time_keep_their_order(amqp: Amqp) -> None:
    """They are more than one turn of the broker publishes."""
    delay = Delay(amqp)
    numbers = range(2500)
    select_transactions(delay.channel)
    for number in numbers:
        delay.publish(b"%d" % number, 50)
    commit(delay.channel)
    assert delay.arrived.bodies(len(numbers)) == [b"%d" % number for number in numbers]


def test_a_rolled_back_message_does_not_wait(amqp: Amqp) -> None:
    delay = Delay(amqp)
    select_transactions(delay.channel)
    delay.publish(b"1", 1)
    delay.channel.send(TxRollback())
    delay.channel.expect(TxRollbackOk)
    delay.publish(b"2", 1)
    commit(delay.channel)
    assert delay.arrived.message().body == b"2"


# -- the publisher ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [1, 2])
def test_a_confirm_does_not_wait(amqp: Amqp, mode: int) -> None:
    delay = Delay(amqp)
    delay.channel.confirm_select()
    delay.publish(b"1", LONG_MS, mode=mode)
    assert isinstance(delay.channel.event(), BasicAck)
    delay.arrived.quiet()


def test_a_confirm_waits_for_the_disk(amqp: Amqp) -> None:
    """A persistent message outlives a crash while it waits, whether a queue is durable or not."""
    engine = amqp.engine()
    delay = Delay(amqp)
    delay.channel.confirm_select()
    engine.holds_commits = True
    delay.publish(b"1", LONG_MS, mode=2)
    delay.channel.quiet()
    engine.holds_commits = False
    assert isinstance(delay.channel.event(), BasicAck)


def test_a_mandatory_message_comes_back_at_once(amqp: Amqp) -> None:
    """While it waits it has no queue yet; it is delivered nevertheless. Later nobody is told."""
    delay = Delay(amqp)
    delay.channel.confirm_select()
    for key in (b"k", b"nowhere"):
        delay.publish(b"x", 20, key, mandatory=True)
        returned = delay.channel.message()
        assert (returned.returned.reply_code, returned.returned.reply_text) == (312, b"NO_ROUTE")
        # Its delay has not passed.
        assert x_delay(returned) == Field(ord("I"), 20)
        assert isinstance(delay.channel.event(), BasicAck)
    delay.arrived.message()
    delay.has_no_more()
    delay.channel.event()
    delay.channel.quiet()


# -- routing at the due time -----------------------------------------------------------------------


def test_the_bindings_of_the_due_time_count(amqp: Amqp) -> None:
    delay = Delay(amqp)
    channel, exchange = delay.channel, delay.exchange
    added, removed, deleted = (channel.declare(exclusive=True).queue for _ in range(3))
    for queue in (removed, deleted):
        channel.bind(queue, exchange, b"k")
    # Nothing is awaited in between, so that the time does not come before the changes.
    delay.publish(b"1", CHANGE_MS)
    channel.send(QueueBind(added, exchange, b"k"))
    channel.send(QueueUnbind(removed, exchange, b"k", b""))
    channel.send(QueueDelete(deleted))
    channel.expect(QueueBindOk)
    channel.expect(QueueUnbindOk)
    assert channel.expect(QueueDeleteOk).message_count == 0
    assert delay.arrived.message().body == b"1"
    amqp.eventually(lambda: channel.count(added) == 1)
    assert channel.is_empty(removed)


@pytest.mark.parametrize("how", ["deleted", "unused"])
def test_the_messages_of_a_deleted_exchange_are_gone(amqp: Amqp, how: str) -> None:
    marker, other = Delay(amqp), Delay(amqp)
    channel, exchange = marker.channel, amqp.name("x")
    queue = channel.declare(exclusive=True).queue
    arguments = table(x__delayed__type="fanout")
    channel.exchange(exchange, DELAYED, auto_delete=True, arguments=arguments)
    channel.bind(queue, exchange)
    for mode in (1, 2):
        channel.publish(b"k", b"gone", delayed(CHANGE_MS, mode).encode(), exchange)
    if how == "deleted":
        channel.send(ExchangeDelete(exchange))
        channel.expect(ExchangeDeleteOk)
    else:
        channel.send(QueueUnbind(queue, exchange, b"", b""))
        channel.expect(QueueUnbindOk)
    # The marker is due after the messages above, which found no exchange or no binding.
    marker.publish(b"marker", CHANGE_MS)
    assert marker.arrived.message().body == b"marker"
    channel.exchange(exchange, DELAYED, auto_delete=True, arguments=arguments)
    channel.bind(queue, exchange)
    other.publish(b"another", 60)
    assert other.arrived.message().body == b"another"
    assert channel.is_empty(queue)


def test_an_exchange_that_is_declared_again_gets_its_messages(amqp: Amqp) -> None:
    """They are routed as its new type says."""
    delay = Delay(amqp)
    delay.publish(b"1", CHANGE_MS, b"other")
    delay.delete()
    delay.declare("fanout")
    delay.arrived.bind(delay.queue, delay.exchange)
    assert delay.arrived.message().body == b"1"


def test_extra_keys(amqp: Amqp) -> None:
    """Those of CC count after the delay, those of BCC are lost."""
    delay = Delay(amqp)
    blind = delay.channel.declare(exclusive=True).queue
    delay.channel.bind(blind, delay.exchange, b"blind")
    headers = table(x__delay=10, CC=["k"], BCC=["blind"])
    delay.channel.publish(b"nowhere", b"1", Properties(headers=headers).encode(), delay.exchange)
    message = delay.arrived.message()
    assert message.properties.headers == table(x__delay=-10, CC=["k"])
    assert delay.channel.is_empty(blind)


def test_the_expiration_counts_from_the_queue_on(amqp: Amqp) -> None:
    """With 0 a message goes to a consumer that waits, when its delay has passed."""
    delay = Delay(amqp)
    properties = delayed(30)
    properties.expiration = b"0"
    delay.channel.publish(b"k", b"1", properties.encode(), delay.exchange)
    assert delay.arrived.message().properties.expiration == b"0"


def test_the_priority_counts(amqp: Amqp) -> None:
    channel = amqp.channel()
    delay = Delay(amqp, "fanout")
    queue = channel.declare(exclusive=True, arguments=table(x__max__priority=5)).queue
    channel.bind(queue, delay.exchange)
    properties = delayed(10)
    for priority in (1, 5, 3):
        properties.priority = priority
        delay.channel.publish(b"k", b"%d" % priority, properties.encode(), delay.exchange)
    amqp.eventually(lambda: channel.count(queue) == 3)
    assert channel.drain(queue) == [b"5", b"3", b"1"]


def test_an_alternate_exchange_gets_what_matches_nothing_then(amqp: Amqp) -> None:
    channel = amqp.channel()
    exchange, alternate = amqp.name("x"), amqp.name("x")
    queue = channel.declare(exclusive=True).queue
    channel.exchange(alternate, b"fanout", auto_delete=True)
    channel.bind(queue, alternate)
    channel.consume(queue, no_ack=True)
    arguments = table(x__delayed__type="direct", alternate__exchange=alternate.decode())
    channel.exchange(exchange, DELAYED, arguments=arguments)
    started_ms = amqp.now_ms()
    channel.publish(b"k", b"1", delayed(20).encode(), exchange)
    message = channel.message()
    assert amqp.has_passed(20, started_ms) and x_delay(message) == Field(ord("I"), -20)
    channel.send(ExchangeDelete(exchange))
    channel.expect(ExchangeDeleteOk)


def test_a_delayed_exchange_behind_another_exchange(amqp: Amqp) -> None:
    """The message waits there, and other queues have it already."""
    delay = Delay(amqp, "fanout")
    other = delay.channel.declare(exclusive=True).queue
    first = amqp.name("x")
    delay.channel.exchange(first, b"fanout", auto_delete=True)
    delay.channel.bind_exchange(delay.exchange, first)
    delay.channel.bind(other, first)
    started_ms = amqp.now_ms()
    delay.channel.publish(b"k", b"1", delayed(40).encode(), first, mandatory=True)
    message = delay.channel.get(other)
    assert x_delay(message) == Field(ord("I"), 40)
    assert x_delay(delay.arrived.message()) == Field(ord("I"), -40)
    assert amqp.has_passed(40, started_ms)
    delay.channel.quiet()


@pytest.mark.parametrize("properties", [NO_PROPERTIES, PERSISTENT], ids=["transient", "persistent"])
def test_dead_letters_wait_too(amqp: Amqp, properties: bytes) -> None:
    """A message with a delay that dies is tried again after it, once."""
    delay = Delay(amqp, "fanout")
    arguments = table(x__dead__letter__exchange=delay.exchange.decode())
    queue = delay.channel.declare(amqp.name(), True, arguments=arguments).queue
    mode = 2 if properties == PERSISTENT else 1
    delay.channel.publish(queue, b"1", delayed(30, mode).encode())
    started_ms = amqp.now_ms()
    reject_head(delay.channel, queue)
    message = delay.arrived.message()
    assert amqp.has_passed(30, started_ms)
    assert x_delay(message) == Field(ord("I"), -30)
    assert [item["queue"] for item in deaths(message)] == [queue.decode()]
    assert message.properties.delivery_mode == mode
    delay.channel.publish(queue, b"2", message.raw)
    reject_head(delay.channel, queue)
    (item,) = deaths(delay.arrived.message())
    assert item["count"] == 2
    delay.channel.delete(queue)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_queue_that_is_full_then_refuses_it(amqp: Amqp, overflow: str, mode: int) -> None:
    """The publisher had its ack, and nobody else is told; the dead-letter exchange may get it."""
    dying = Dying(amqp, True, {"x__max__length": 0, "x__overflow": overflow})
    delay = Delay(amqp)
    dying.channel.bind(dying.queue, delay.exchange, b"k")
    delay.channel.confirm_select()
    delay.publish(b"1", 20, mode=mode)
    assert isinstance(delay.channel.event(), BasicAck)
    assert delay.arrived.message().body == b"1"
    if overflow == "reject-publish-dlx":
        (item,) = deaths(dying.letters.message())
        assert (item["reason"], item["exchange"]) == ("maxlen", delay.exchange.decode())
    dying.letters.quiet()
    delay.channel.quiet()
    assert dying.channel.is_empty(dying.queue)
    dying.delete()
