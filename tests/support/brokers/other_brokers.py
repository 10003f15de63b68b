"""Brokers that are spoken to through AMQP alone: a warren node and, where it is installed, the real RabbitMQ."""

import contextlib
import uuid
from collections.abc import Iterator

import pika
from pika.adapters.blocking_connection import BlockingChannel

from bench.brokers import RabbitmqBroker
from tests.support.brokers.process import BrokerProcess

OtherBroker = BrokerProcess | RabbitmqBroker


def running(broker: OtherBroker) -> OtherBroker:
    """The broker, started if a test has left it killed."""
    if broker.process is None:
        broker.start()
    return broker


@contextlib.contextmanager
def channel_to(broker: OtherBroker) -> Iterator[BlockingChannel]:
    """A confirming channel of pika."""
    with pika.BlockingConnection(pika.URLParameters(broker.uri + "?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@contextlib.contextmanager
def queue_on(broker: OtherBroker, prefix: str = "other") -> Iterator[str]:
    """A durable queue with a name of its own, deleted afterwards: the broker may be used for other tests."""
    name = f"{prefix}-{uuid.uuid4().hex[:12]}"
    with channel_to(broker) as channel:
        channel.queue_declare(name, durable=True)
    try:
        yield name
    finally:
        with channel_to(running(broker)) as channel:
            channel.queue_delete(name)


def fill(broker: OtherBroker, queue: str, count: int, first: int = 0) -> None:
    """Publish numbered messages; ids and bodies tell the number."""
    with channel_to(broker) as channel:
        for number in range(first, first + count):
            properties = pika.BasicProperties(
                delivery_mode=2, message_id=str(number), headers={"n": number}
            )
            channel.basic_publish("", queue, b"m%d" % number, properties)


def message_count(broker: OtherBroker, queue: str) -> int:
    """How many messages are ready."""
    with channel_to(broker) as channel:
        count: int = channel.queue_declare(queue, passive=True).method.message_count
        return count


def consumer_count(broker: OtherBroker, queue: str) -> int:
    """How many consumers it has."""
    with channel_to(broker) as channel:
        count: int = channel.queue_declare(queue, passive=True).method.consumer_count
        return count
