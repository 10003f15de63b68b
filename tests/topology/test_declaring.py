"""Topologies are declared at a real broker over pika, aio-pika and a URI, and again without change.

A refusal says what was declared before it, and leaves the caller's channels open.
"""

import asyncio
import datetime
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aio_pika
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.brokers.tls_process import TlsBroker
from warrenmq.topology import (
    AnonymousQueue,
    DeclarationRefusedError,
    Declared,
    DirectExchange,
    Exchange,
    FanoutExchange,
    Finding,
    HeadersExchange,
    Message,
    MessageBuilder,
    Queue,
    TopicExchange,
    Topology,
    bind,
    declare,
    declare_async,
    plan,
)

pytestmark = pytest.mark.interop

# A way to a broker: declares a topology at a URI.
Declares = Callable[[Topology, str], Declared]


def over_pika(topology: Topology, uri: str) -> Declared:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        return declare(topology, connection)


def over_a_channel_of_pika(topology: Topology, uri: str) -> Declared:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        return declare(topology, connection.channel())


def over_aio_pika(topology: Topology, uri: str) -> Declared:
    async def run() -> Declared:
        async with await aio_pika.connect_robust(uri) as connection:
            return await declare_async(topology, connection)

    return asyncio.run(run())


def over_a_channel_of_aio_pika(topology: Topology, uri: str) -> Declared:
    async def run() -> Declared:
        async with await aio_pika.connect(uri) as connection:
            return await declare_async(topology, await connection.channel())

    return asyncio.run(run())


WAYS = [declare, over_pika, over_a_channel_of_pika, over_aio_pika, over_a_channel_of_aio_pika]


def shop(name: str) -> Topology:
    """Exchanges of each type, a queue with arguments, and bindings of each kind."""
    orders = TopicExchange(f"{name}-orders", alternate_exchange=f"{name}-lost")
    lost = FanoutExchange(f"{name}-lost", internal=True)
    headers = HeadersExchange(f"{name}-headers", durable=False)
    billing = Queue(f"{name}-billing", message_ttl=60_000, arguments={"x-comment": ["é", 1, None]})
    plain = Queue(f"{name}-plain", durable=False, auto_delete=True, lazy=True)
    return Topology(
        orders, lost, headers, billing, plain,
        bind(billing).to(orders).with_("order.#"),
        bind(plain).to(lost),
        bind(plain).to(headers).where_any({"a": 1, "b": True}),
        bind(headers).to(orders).with_("headers.*"),
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_declared_twice_is_declared_once(broker_uri: str, name: str, way: Declares) -> None:
    topology = shop(name)
    assert way(topology, broker_uri).declarations == tuple(topology)
    with pika.BlockingConnection(pika.URLParameters(broker_uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key in ("order.new", "headers.x", "nowhere"):
            properties = pika.BasicProperties(headers={"b": True})
            channel.basic_publish(f"{name}-orders", key, key.encode(), properties)
        assert way(topology, broker_uri).declarations == tuple(topology)
        assert bodies(channel, f"{name}-billing") == [b"order.new"]
        assert bodies(channel, f"{name}-plain") == [b"headers.x", b"nowhere"]


def bodies(channel: BlockingChannel, queue: str) -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_tells_what_was_declared(broker_uri: str, name: str, way: Declares) -> None:
    declare(Topology(Queue(name, message_ttl=1000)), broker_uri)
    first, bad, last = DirectExchange(name), Queue(name, message_ttl=2000), Queue(f"{name}-2")
    with pytest.raises(DeclarationRefusedError) as caught:
        way(Topology(last, bad, first), broker_uri)
    error = caught.value
    text = (
        f"PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue '{name}' in vhost '/': "
        "received '2000' but current is '1000'"
    )
    assert (error.code, error.text) == (406, text)
    assert (error.declaration, error.done, error.left) == (bad, (first, last), ())
    assert str(error) == (
        f"the broker refused queue '{name}': 406 {text}; "
        f"declared before it: exchange '{name}', queue '{name}-2'"
    )
    with pika.BlockingConnection(pika.URLParameters(broker_uri)) as connection:
        assert plan(Topology(first, last), connection).of(Finding.EXISTS) == [first, last]


@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_may_close_the_connection(broker_uri: str, name: str, way: Declares) -> None:
    unknown = Exchange(name, type="no-such-type")
    with pytest.raises(DeclarationRefusedError) as caught:
        way(Topology(unknown, Queue(name)), broker_uri)
    assert caught.value.code == 503
    assert caught.value.text == "COMMAND_INVALID - unknown exchange type 'no-such-type'"
    assert caught.value.left == (Queue(name),)


def test_a_refusal_leaves_the_callers_channel_open(
    connection: pika.BlockingConnection, broker_uri: str, name: str
) -> None:
    topology = Topology(Queue(f"amq.{name}"))
    channel = connection.channel()
    with pytest.raises(DeclarationRefusedError, match="403 ACCESS_REFUSED"):
        declare(topology, channel)
    assert channel.is_open

    async def is_open() -> bool:
        async with await aio_pika.connect_robust(broker_uri) as other:
            channel = await other.channel()
            with pytest.raises(DeclarationRefusedError, match="403 ACCESS_REFUSED"):
                await declare_async(topology, channel)
            return not channel.is_closed

    assert asyncio.run(is_open())


def test_a_queue_for_one_connection(connection: pika.BlockingConnection, name: str) -> None:
    """An anonymous queue keeps its name; a queue without a name gets one at each declaration."""
    exchange, anonymous, nameless = FanoutExchange(name), AnonymousQueue(), Queue(exclusive=True)
    topology = Topology(
        exchange, anonymous, nameless, bind(anonymous).to(exchange), bind(nameless).to(exchange)
    )
    first, second = declare(topology, connection), declare(topology, connection)
    assert first.name_of(anonymous) == second.name_of(anonymous) == anonymous.name
    assert first.name_of(nameless) != second.name_of(nameless)
    channel = connection.channel()
    channel.basic_publish(name, "", b"x")
    for queue in (anonymous.name, first.name_of(nameless), second.name_of(nameless)):
        assert bodies(channel, queue) == [b"x"]


def test_messages_are_what_their_properties_say(
    connection: pika.BlockingConnection, broker_uri: str, name: str
) -> None:
    """pika and aio-pika publish the same message."""
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    message = (
        MessageBuilder.with_text("text")
        .set(timestamp=at, expiration=60_000, correlation_id="c", type="order", app_id="shop")
        .header("a", ["x", {"n": 1}])
        .build()
    )
    plain = Message(b"bytes")
    declare(Topology(Queue(name)), connection)
    channel = connection.channel()

    async def publish() -> None:
        async with await aio_pika.connect(broker_uri) as other:
            exchange = (await other.channel()).default_exchange
            for each in (message, plain):
                await exchange.publish(each.to_aio_pika(), name)

    for each in (message, plain):
        channel.basic_publish("", name, each.body, each.to_pika())
    asyncio.run(publish())
    got = [channel.basic_get(name, auto_ack=True)[1:] for _ in range(4)]
    for properties, body in (got[0], got[2]):
        assert body == b"text"
        assert (properties.delivery_mode, properties.priority) == (2, 0)
        assert (properties.content_type, properties.content_encoding) == ("text/plain", "UTF-8")
        assert (properties.timestamp, properties.expiration) == (int(at.timestamp()), "60000")
        assert (properties.correlation_id, properties.type, properties.app_id) == (
            "c",
            "order",
            "shop",
        )
        assert properties.headers == {"a": ["x", {"n": 1}]}
    for properties, body in (got[1], got[3]):
        assert body == b"bytes"
        assert (properties.delivery_mode, properties.priority) == (2, 0)
        assert properties.content_type == "application/octet-stream"
        assert not properties.headers


def test_over_tls(tmp_path: Path) -> None:
    """The parameters of the URI count, for both protocols."""
    broker = TlsBroker(tmp_path)
    broker.start()
    try:
        topology = Topology(Queue("q"))
        declare(topology, broker.tls_uri)
        assert plan(topology, broker.tls_uri).is_done
        distrusting = broker.tls_uri.partition("?")[0]
        for ask in (declare, plan):
            with pytest.raises(ConnectionError, match=r"no (TLS )?connection to .* certificate"):
                ask(topology, distrusting)
    finally:
        broker.kill()


def test_a_closed_connection(broker_uri: str) -> None:
    async def run() -> None:
        connection = await aio_pika.connect_robust(broker_uri)
        await connection.close()
        with pytest.raises(ConnectionError, match="the connection is closed"):
            await declare_async(Topology(), connection)

    asyncio.run(run())


def test_only_the_client_in_use_is_loaded() -> None:
    program = (
        "import sys, warrenmq.topology\n"
        "names = ('pika', 'aio_pika', 'yaml', 'asyncio', 'warrenmq.admin', 'warrenmq.wire')\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_no_broker_and_no_login(broker_uri: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for ask in (declare, plan):
            with pytest.raises(ConnectionError, match=f"^no connection to 127.0.0.1:{port}: "):
                ask(Topology(), f"amqp://127.0.0.1:{port}")
    refused = broker_uri.replace("guest:guest", "guest:secret")
    for ask in (declare, plan):
        with pytest.raises(ConnectionError, match="ACCESS_REFUSED") as caught:
            ask(Topology(), refused)
        assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="the URI must begin with amqp"):
        declare(Topology(), "http://127.0.0.1")


def test_what_is_no_target(broker_uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = AnonymousQueue("warren.gen-x")
    for ask in (declare, plan):
        with pytest.raises(
            ValueError, match=r"queue 'warren\.gen-x' is exclusive: it would be del"
        ):
            ask(Topology(queue), broker_uri)
        with pytest.raises(TypeError, match="is no blocking connection or channel of pika"):
            ask(Topology(), object())
    monkeypatch.setitem(sys.modules, "warrenmq.topology.pika_link", None)
    with pytest.raises(ImportError, match=r"a URI needs .*: install warrenmq\[topology\]"):
        declare(Topology(), broker_uri)
