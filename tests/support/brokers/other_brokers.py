"""Brokers that tests reach through AMQP alone: a warren node and, if installed, RabbitMQ."""

import contextlib
import uuid
from collections.abc import Iterator

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.brokers import RabbitmqBroker
from tests.support.brokers.process import BrokerProcess

OtherBroker = BrokerProcess | RabbitmqBroker


def running(broker: OtherBroker) -> OtherBroker:
    """The broker, started again if a test has killed it."""
    if broker.process is None:
        broker.start()
    return broker


@contextlib.contextmanager
def channel_to(broker: OtherBroker) -> Iterator[BlockingChannel]:
    """A channel of pika in confirm mode."""
    with pika.BlockingConnection(pika.URLParameters(broker.uri + "?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@contextlib.contextmanager
def queue_on(broker: OtherBroker, prefix: str = "other") -> Iterator[str]:
    """A durable queue with a unique name, deleted afterwards, since tests share the broker."""
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    with channel_to(broker) as channel:
        channel.queue_declare(name, durable=True)
    try:
        yield name
    finally:
        with channel_to(running(broker)) as channel:
            channel.queue_delete(name)


def fill(broker: OtherBroker, queue: str, count: int, first: int = 0) -> None:
    """Publish numbered messages, with the number in id, header and body."""
    with channel_to(broker) as channel:
        for number in range(first, first + count):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number), headers={"n": number}
            )
            channel.basic_publish("", queue, b"m%d" % number, properties)


def message_count(broker: OtherBroker, queue: str) -> int:
    """Number of ready messages."""
    with channel_to(broker) as channel:
        count: int = channel.queue_declare(queue, passive=True).method.message_count
        return count


def consumer_count(broker: OtherBroker, queue: str) -> int:
    """Number of consumers of the queue."""
    with channel_to(broker) as channel:
        count: int = channel.queue_declare(queue, passive=True).method.consumer_count
        return count
