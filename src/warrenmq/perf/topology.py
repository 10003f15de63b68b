"""Declares the exchanges and queues of a run, and pairs queues with the routes to them."""

from warrenmq.perf.client import Client
from warrenmq.perf.errors import PerfError
from warrenmq.perf.options import PerfOptions
from warrenmq.wire.field_table import encode_table, fields_from_python
from warrenmq.wire.methods import ExchangeDeclare, QueueBind, QueueDeclare, QueueDeclareOk
from warrenmq.wire.properties import Properties


class Target:
    """One queue of the run, with the exchange and routing key that reach it."""

    def __init__(self, queue: bytes, exchange: bytes, routing_key: bytes) -> None:
        self.queue: bytes = queue
        self.exchange: bytes = exchange
        self.routing_key: bytes = routing_key


def declare(client: Client, options: PerfOptions) -> list[Target]:
    """The targets of the run in order, declared unless they are predeclared.

    Through the default exchange (no --exchange) a message reaches the queue by its name. Through a
    named one it does by --routing-key, or by the queue's name when several queues share the
    exchange.
    """
    exchange = options.exchange.encode()
    is_default = not exchange
    if not is_default and not options.predeclared and not options.exchange.startswith("amq."):
        client.request(
            ExchangeDeclare(
                exchange=exchange, type=options.exchange_type.encode(), durable=options.persistent
            )
        )
    targets = []
    for name in options.queue_names():
        queue = name.encode()
        if not options.predeclared:
            queue = declare_queue(client, options, queue)
        key = (
            options.routing_key.encode()
            if options.routing_key and not options.queue_pattern
            else queue
        )
        targets.append(Target(queue, exchange, key))
        if not is_default and not options.predeclared:
            client.request(QueueBind(queue=queue, exchange=exchange, routing_key=key))
    return targets


def declare_queue(client: Client, options: PerfOptions, name: bytes) -> bytes:
    """Declare one queue and return its name; durable when the messages are persistent."""
    reply = client.request(
        QueueDeclare(
            queue=name,
            durable=options.persistent,
            auto_delete=options.auto_delete,
            arguments=encode_table(fields_from_python(options.queue_args)),
        )
    )
    if not isinstance(reply, QueueDeclareOk):
        raise PerfError("the broker did not answer queue.declare")
    return reply.queue


def basic_properties(persistent: bool, priority: int | None = None) -> bytes:
    """The properties of a message: delivery_mode, priority, and the content_type of PerfTest."""
    return Properties(
        content_type=b"application/octet-stream",
        delivery_mode=2 if persistent else 1,
        priority=priority,
    ).encode()
