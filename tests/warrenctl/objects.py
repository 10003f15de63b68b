"""The objects that the golden outputs show, made over AMQP alike on both brokers."""

from contextlib import suppress

import pika
from pika.exceptions import AMQPError

PERSISTENT = pika.BasicProperties(delivery_mode=2, timestamp=1_700_000_000)
_HEADERS = {
    "x-match": "all",
    "number": 1,
    "yes": True,
    "text": 'a "b"',
    "list": [1, "two"],
    "table": {"inner": "v"},
}


class Objects:
    """Exchanges, queues, bindings, a consumer and two connections; close them with `close`."""

    def __init__(self, port: int) -> None:
        self._connections = [_connection(port, "first"), _connection(port, "second")]
        channel = self._connections[0].channel()
        _topology(channel)
        for index in range(3):
            channel.basic_publish("", "orders", b"body %d" % index, PERSISTENT)
            channel.basic_publish("", "with-messages", b"body", PERSISTENT)
            channel.basic_publish("", "full", b"12345")
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(
            "orders", lambda *_: None, consumer_tag="tag-1", arguments={"x-priority": 5}
        )
        other = self._connections[1].channel()
        other.confirm_delivery()
        other.queue_declare("mine", exclusive=True, auto_delete=True)
        # A reply to a synchronous method: everything before it has happened.
        channel.queue_declare("orders", passive=True)

    def process(self) -> int:
        """Answer what the node has sent; returns how many connections are open."""
        for connection in self._open():
            with suppress(AMQPError):
                connection.process_data_events(0)
        return len(self._open())

    def close(self) -> None:
        """Close the connections that the node has not closed."""
        for connection in self._open():
            # The scenario closes connections and stops the broker.
            with suppress(AMQPError):
                connection.close()

    def _open(self) -> list[pika.BlockingConnection]:
        return [connection for connection in self._connections if connection.is_open]


def _connection(port: int, name: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", port, heartbeat=0, client_properties={"connection_name": name}
        )
    )


def _topology(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    declare = channel.queue_declare
    declare("orders", durable=True)
    declare("lazy work", durable=True, arguments={"x-queue-mode": "lazy", "x-expires": 3600000})
    declare("gr\u00fc\u00dfe", durable=True, arguments={"x-message-ttl": 60000})
    declare('a "quoted", name', durable=True, arguments={"x-note": 'say "hi"', "x-flag": True})
    for name in ("with-messages", "full", "empty"):
        declare(name, durable=True)
    channel.exchange_declare("topics", "topic", durable=True)
    channel.exchange_declare("inner", "fanout", internal=True)
    channel.exchange_declare(
        "alternates", "direct", durable=True, arguments={"alternate-exchange": "amq.fanout"}
    )
    channel.exchange_declare("by-headers", "headers", durable=True)
    channel.queue_bind("orders", "topics", "order.*.created")
    channel.queue_bind("orders", "by-headers", "", _HEADERS)
    channel.exchange_bind("inner", "topics", "#")
