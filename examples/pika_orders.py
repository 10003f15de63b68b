"""Orders over AMQP with pika: a shop places them, a worker takes them, bad ones are set aside."""

import json
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel

EXCHANGE = "orders"
NEW = "orders.new"
SET_ASIDE = "orders.set-aside"
PERSISTENT = pika.BasicProperties(content_type="application/json", delivery_mode=2)


def connect(url: str) -> BlockingChannel:
    """A channel in confirm mode, with exchange and queues declared."""
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.confirm_delivery()
    channel.exchange_declare(EXCHANGE, "direct", durable=True)
    channel.queue_declare(SET_ASIDE, durable=True)
    # The default exchange routes dead letters by the name of their queue.
    dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": SET_ASIDE}
    channel.queue_declare(NEW, durable=True, arguments=dead_letters)
    channel.queue_bind(NEW, EXCHANGE, "new")
    return channel


def place(channel: BlockingChannel, order: dict[str, object]) -> None:
    """Place an order; once this returns, the broker keeps it whatever happens.

    Raises pika's UnroutableError or NackError when it does not.
    """
    channel.basic_publish(EXCHANGE, "new", json.dumps(order), PERSISTENT, mandatory=True)


def work(channel: BlockingChannel, handle: Callable[[dict[str, object]], None]) -> int:
    """Handle all orders that wait; returns how many were handled.

    An order that `handle` refuses with ValueError is set aside.
    """
    done = 0
    for method, _, body in channel.consume(NEW, inactivity_timeout=0.2):
        if method is None:
            break
        try:
            handle(json.loads(body))
        except ValueError:
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
            done += 1
    channel.cancel()
    return done
