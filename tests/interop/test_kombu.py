"""Unmodified kombu works: messages, prefetch, SimpleQueue, confirms, heartbeats."""

import queue as queues
import socket
from collections.abc import Iterator

import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.message import Message
from kombu.pools import producers

from tests.support.awaiting import PATIENCE_S

pytestmark = pytest.mark.interop


@pytest.fixture
def connection(broker_uri: str) -> Iterator[Connection]:
    with Connection(broker_uri) as connection:
        yield connection


def test_it_is_taken_for_rabbitmq(connection: Connection) -> None:
    # kombu chooses its way to change the prefetch count by product and version.
    connection.connect()
    properties = connection.connection.server_properties
    assert properties["product"] == "RabbitMQ"
    assert connection.qos_semantics_matches_spec is False


def test_simple_queue(connection: Connection, name: str) -> None:
    with connection.SimpleQueue(name) as simple:
        for number in range(20):
            simple.put({"number": number}, serializer="json", compression="zlib")
        for number in range(20):
            message = simple.get(timeout=PATIENCE_S)
            assert message.payload == {"number": number}
            message.ack()
        with pytest.raises(queues.Empty):
            simple.get(block=False)
    connection.channel().queue_delete(name)


def test_producer_and_consumer(connection: Connection, name: str) -> None:
    exchange = Exchange(name, "topic", durable=True)
    queue = Queue(name, exchange, routing_key="a.#", durable=True)
    seen: list[dict[str, object]] = []

    def on_message(body: dict[str, object], message: Message) -> None:
        seen.append(body)
        message.ack()

    with producers[connection].acquire(block=True) as producer:
        for number in range(30):
            producer.publish(
                {"number": number}, exchange=exchange, routing_key="a.b", declare=[queue], delivery_mode=2,
                headers={"h": [1, 2.5, None, {"x": "y"}]}, expiration=60, retry=True,
            )  # fmt: skip
    with connection.Consumer(queue, callbacks=[on_message], prefetch_count=5):
        while len(seen) < 30:
            connection.drain_events(timeout=PATIENCE_S)
    assert seen == [{"number": number} for number in range(30)]
    channel = connection.default_channel
    queue(channel).delete()
    exchange(channel).delete()


def test_confirms(broker_uri: str, name: str) -> None:
    with Connection(broker_uri, transport_options={"confirm_publish": True}) as connection:
        queue = Queue(name, durable=True)
        producer = connection.Producer()
        for number in range(20):
            producer.publish({"n": number}, routing_key=name, declare=[queue], delivery_mode=2)
        assert queue(connection.default_channel).purge() == 20
        queue(connection.default_channel).delete()


def test_requeue_and_reject(connection: Connection, name: str) -> None:
    queue = Queue(name, exclusive=True)
    seen: list[bool] = []

    def on_message(body: object, message: Message) -> None:
        redelivered = bool(message.delivery_info["redelivered"])
        seen.append(redelivered)
        if redelivered:
            message.reject()
        else:
            message.requeue()

    with connection.Consumer(queue, callbacks=[on_message]):
        connection.Producer().publish("x", routing_key=name)
        while len(seen) < 2:
            connection.drain_events(timeout=PATIENCE_S)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
    assert seen == [False, True]


def test_fanout_and_server_named_queues(connection: Connection, name: str) -> None:
    exchange = Exchange(name, "fanout", durable=False, auto_delete=True)
    bound = [Queue("", exchange, exclusive=True)(connection.default_channel) for _ in range(3)]
    for queue in bound:
        queue.declare()
    connection.Producer(exchange=exchange).publish("everybody")
    for queue in bound:
        message = queue.get(no_ack=True)
        assert message is not None
        assert message.payload == "everybody"


def test_heartbeats(broker_uri: str, name: str) -> None:
    # Run longer than two intervals. A client that is not scheduled for one interval stays
    # connected.
    with Connection(broker_uri, heartbeat=2) as connection:
        connection.connect()
        for _ in range(14):
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.4)
            connection.heartbeat_check(rate=2)
        Queue(name, exclusive=True)(connection.default_channel).declare()
