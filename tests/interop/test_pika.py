"""Unmodified pika works, with its blocking and its asyncio connection."""

import asyncio

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAuthenticationError,
    UnroutableError,
)

from tests.support.awaiting import PATIENCE_S, eventually

pytestmark = pytest.mark.interop

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@pytest.fixture
def channel(broker_uri: str):  # type: ignore[no-untyped-def]  # pika has no types
    connection = pika.BlockingConnection(pika.URLParameters(broker_uri))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(got[2])
    return bodies


def test_publish_and_get(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    properties = pika.BasicProperties(
        content_type="text/plain", headers={"a": 1, "b": ["x", {"c": True}], "n": None, "big": 2**40},
        delivery_mode=2, priority=3, correlation_id="c", reply_to="r", expiration="60000", message_id="m",
        timestamp=1_700_000_000, type="t", user_id="guest", app_id="app",
    )  # fmt: skip
    channel.basic_publish("", name, b"body", properties)
    method, got, body = channel.basic_get(name)
    assert (body, got, method.message_count) == (b"body", properties, 0)
    channel.basic_ack(method.delivery_tag)
    channel.queue_delete(name)


def test_confirms_mandatory_and_unroutable(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", name, str(number).encode(), PERSISTENT, mandatory=True)
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", name + "-missing", b"lost", mandatory=True)
    assert [returned.body for returned in caught.value.messages] == [b"lost"]
    assert drain(channel, name) == [str(number).encode() for number in range(20)]
    channel.queue_delete(name)


def test_consume_with_prefetch_and_ack_multiple(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    for number in range(50):
        channel.basic_publish("", name, str(number).encode())
    channel.basic_qos(prefetch_count=10)
    seen = []
    for method, _, body in channel.consume(name, inactivity_timeout=PATIENCE_S):
        assert method is not None
        seen.append(int(body))
        if method.delivery_tag % 10 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if len(seen) == 50:
            break
    assert seen == list(range(50))
    assert channel.cancel() == 0


def test_consumer_callback_and_requeue(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"again")
    seen = []

    def on_message(channel: BlockingChannel, method, properties, body) -> None:  # type: ignore[no-untyped-def]  # pika
        seen.append((method.redelivered, body))
        if method.redelivered:
            channel.basic_ack(method.delivery_tag)
            channel.stop_consuming()
        else:
            channel.basic_nack(method.delivery_tag)

    channel.basic_consume(name, on_message)
    channel.start_consuming()
    assert seen == [(False, b"again"), (True, b"again")]


def test_a_large_body(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    body = bytes(range(256)) * 20_000
    channel.basic_publish("", name, body)
    assert channel.basic_get(name, auto_ack=True)[2] == body


def test_topology(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.exchange_declare(name + "-inner", "headers")
    channel.exchange_bind(name + "-inner", name, "a.#")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, name + "-inner", arguments={"x-match": "any", "kind": "wanted"})
    channel.basic_publish(name, "a.b", b"yes", pika.BasicProperties(headers={"kind": "wanted"}))
    channel.basic_publish(name, "a.b", b"no", pika.BasicProperties(headers={"kind": "other"}))
    channel.basic_publish(name, "b", b"no", pika.BasicProperties(headers={"kind": "wanted"}))
    assert drain(channel, queue) == [b"yes"]
    channel.exchange_unbind(name + "-inner", name, "a.#")
    channel.exchange_delete(name + "-inner")


def test_channel_errors_spare_the_connection(channel: BlockingChannel, name: str) -> None:
    connection = channel.connection
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_code == 404
    assert caught.value.reply_text == f"NOT_FOUND - no queue '{name}' in vhost '/'"
    again = connection.channel()
    again.queue_declare(name, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as caught:
        again.queue_declare(name, durable=True, exclusive=True, auto_delete=True)
    assert "inequivalent arg 'auto_delete'" in caught.value.reply_text


def test_connection_errors(channel: BlockingChannel, name: str) -> None:
    with pytest.raises(ConnectionClosedByBroker) as caught:
        channel.exchange_declare(name, "nonsense")
    assert caught.value.reply_code == 503


def test_transactions(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    channel.tx_select()
    channel.basic_publish("", name, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", name, b"committed")
    channel.tx_commit()
    assert drain(channel, name) == [b"committed"]


def test_wrong_password(broker_uri: str) -> None:
    parameters = pika.URLParameters(broker_uri)
    parameters.credentials = pika.PlainCredentials("guest", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_missing_vhost(broker_uri: str) -> None:
    parameters = pika.URLParameters(broker_uri)
    parameters.virtual_host = "missing"
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(parameters)


def test_heartbeats_keep_an_idle_connection(broker_uri: str, name: str) -> None:
    parameters = pika.URLParameters(broker_uri)
    # A client that is not scheduled for one interval of 2 s stays connected.
    parameters.heartbeat = 2
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)
    connection.sleep(5.5)
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    connection.close()


def test_consumer_is_told_of_a_deleted_queue(
    broker_uri: str, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(name, lambda *_: None)
    other = pika.BlockingConnection(pika.URLParameters(broker_uri))
    other.channel().queue_delete(name)
    other.close()

    def is_told() -> bool:
        channel.connection.process_data_events(0.1)
        return len(cancelled) > 0

    eventually(is_told, "cancelled")
    assert cancelled == [tag]


def test_direct_reply_to(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True)
    answers: list[bytes] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda *got: answers.append(got[3]), auto_ack=True
    )
    channel.basic_publish(
        "", name, b"question", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    )
    _, properties, _ = channel.basic_get(name, auto_ack=True)
    channel.basic_publish("", properties.reply_to, b"answer")

    def is_answered() -> bool:
        channel.connection.process_data_events(0.1)
        return len(answers) > 0

    eventually(is_answered, "an answer")
    assert answers == [b"answer"]


def test_asyncio_adapter(broker_uri: str, name: str) -> None:
    async def run() -> tuple[list[bytes], int]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        bodies: list[bytes] = []
        acked = 0

        def on_message(channel, method, properties, body) -> None:  # type: ignore[no-untyped-def]  # pika
            bodies.append(body)
            channel.basic_ack(method.delivery_tag)
            check()

        def on_confirm(frame) -> None:  # type: ignore[no-untyped-def]  # pika
            nonlocal acked
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            acked = max(acked, frame.method.delivery_tag)
            check()

        def check() -> None:
            if len(bodies) == 200 and acked == 200 and not done.done():
                done.set_result(None)

        def on_declared(channel, frame) -> None:  # type: ignore[no-untyped-def]  # pika
            channel.basic_qos(prefetch_count=20)
            channel.basic_consume(name, on_message)
            for number in range(200):
                channel.basic_publish("", name, str(number).encode(), PERSISTENT)

        def on_channel(channel) -> None:  # type: ignore[no-untyped-def]  # pika
            channel.confirm_delivery(on_confirm)
            channel.queue_declare(
                name, durable=True, callback=lambda frame: on_declared(channel, frame)
            )

        connection = AsyncioConnection(
            pika.URLParameters(broker_uri),
            on_open_callback=lambda connection: connection.channel(on_open_callback=on_channel),
            on_open_error_callback=lambda _, error: done.set_exception(error),
        )
        await asyncio.wait_for(done, PATIENCE_S)
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.add_on_close_callback(lambda *_: closed.set_result(None))
        connection.close()
        await asyncio.wait_for(closed, PATIENCE_S)
        return bodies, acked

    bodies, acked = asyncio.run(run())
    assert bodies == [str(number).encode() for number in range(200)]
    assert acked == 200
