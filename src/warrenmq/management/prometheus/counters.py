"""The metrics of what a node has done: RabbitMQ's global counters, and its churn."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from warrenmq.admin.protocol.counters import NodeCounters
from warrenmq.admin.protocol.figures import VhostStatus
from warrenmq.admin.protocol.totals import ClientSums
from warrenmq.management.prometheus.metrics import RABBITMQ, Family, family

_PROTOCOL: Final = {"protocol": "amqp091"}
# Mirrored queues are classic ones in RabbitMQ's eyes, and warren counts quorum queues with them.
_QUEUE_TYPE: Final = {**_PROTOCOL, "queue_type": "rabbit_classic_queue"}
# Reasons for dead letters, with the type of queue that RabbitMQ has each for.
_DEAD_LETTERED: Final = {
    "expired": "rabbit_classic_queue",
    "maxlen": "rabbit_classic_queue",
    "rejected": "rabbit_classic_queue",
    "delivery_limit": "rabbit_quorum_queue",
}
# The meaning of each counter by its name.
_INCOMING: Final = {
    "received": "Messages received from publishers",
    "received_confirm": "Messages received from publishers that expect confirms",
    "confirmed": "Messages confirmed to publishers",
    "routed": "Messages routed to queues: one counts for each of its queues",
    "unroutable_dropped": "Messages published as non-mandatory into an exchange and dropped",
    "unroutable_returned": "Messages published as mandatory into an exchange and returned",
}
_OUTGOING: Final = {
    "delivered_consume_auto_ack": "Messages delivered to consumers with automatic ack",
    "delivered_consume_manual_ack": "Messages delivered to consumers with manual ack",
    "delivered_get_auto_ack": "Messages fetched with basic.get and automatic ack",
    "delivered_get_manual_ack": "Messages fetched with basic.get and manual ack",
    "get_empty": "basic.get that found no message",
    "redelivered": "Messages redelivered to consumers",
    "acknowledged": "Messages acknowledged by consumers",
}
_DELIVERED: Final = tuple(name for name in _OUTGOING if name.startswith("delivered_"))
# RabbitMQ's counters of all channels, with the counter that has the same messages.
_OF_CHANNELS: Final = {
    "channel_messages_published": "received",
    "channel_messages_confirmed": "confirmed",
    "channel_messages_unroutable_returned": "unroutable_returned",
    "channel_messages_unroutable_dropped": "unroutable_dropped",
    "channel_messages_delivered": "delivered_consume_auto_ack",
    "channel_messages_delivered_ack": "delivered_consume_manual_ack",
    "channel_get": "delivered_get_auto_ack",
    "channel_get_ack": "delivered_get_manual_ack",
    "channel_get_empty": "get_empty",
    "channel_messages_redelivered": "redelivered",
    "channel_messages_acked": "acknowledged",
    "queue_messages_published": "routed",
}
_CHURN: Final = {
    "connections_opened": "Connections opened",
    "connections_closed": "Connections closed or terminated",
    "channels_opened": "Channels opened",
    "channels_closed": "Channels closed",
    "queues_declared": "Successful declarations of queues, new or existing",
    "queues_created": "Queues created, or restored at the start of the node",
    "queues_deleted": "Queues deleted",
}


def global_counters(reading: NodeCounters) -> Iterator[Family]:
    """Messages by what became of them; only pages without an infix show them."""
    messages = reading.messages
    for name, text in _INCOMING.items():
        yield _counter(f"global_messages_{name}", text, getattr(messages, name), _PROTOCOL)
    for name, text in _OUTGOING.items():
        yield _counter(f"global_messages_{name}", text, getattr(messages, name), _QUEUE_TYPE)
    delivered = sum(getattr(messages, name) for name in _DELIVERED)
    text = "Messages delivered to consumers and to basic.get"
    yield _counter("global_messages_delivered", text, delivered, _QUEUE_TYPE)


def channel_sums(infix: str, reading: NodeCounters) -> Iterator[Family]:
    """The counters of all channels that there were; only pages of sums show them."""
    for name, counter in _OF_CHANNELS.items():
        text = (_INCOMING | _OUTGOING)[counter]
        yield _counter(f"{infix}{name}", text, getattr(reading.messages, counter), {})


def queue_sums(infix: str, reading: NodeCounters) -> Iterator[Family]:
    """Messages on disk of all queues that there were; other pages have each queue's."""
    for name, text, value in (
        ("reads", "Messages read from disk", reading.read_messages),
        ("writes", "Messages written to disk", reading.written_messages),
    ):
        yield _counter(f"{infix}queue_disk_{name}", text, value, {})


def global_dead_letters(vhosts: list[VhostStatus]) -> Iterator[Family]:
    """Dead letters by reason, with the labels that RabbitMQ has for queues of each type."""
    counts = Counter[str]()
    for vhost in vhosts:
        counts.update(vhost.dead_letters)
    for reason, queue_type in _DEAD_LETTERED.items():
        labels = {"queue_type": queue_type, "dead_letter_strategy": "at_most_once"}
        text = f"Messages dead-lettered: {reason}"
        yield _counter(f"global_messages_dead_lettered_{reason}", text, counts[reason], labels)


def global_clients(clients: ClientSums) -> Iterator[Family]:
    """The consumers of clients of this node, and the channels on which they have published."""
    for name, text, value in (
        ("consumers", "Consumers of clients", clients.consumer_count),
        ("publishers", "Channels on which clients have published", clients.publishers),
    ):
        samples = [(tuple(_PROTOCOL.values()), float(value))]
        yield family(f"{RABBITMQ}_global_{name}", "gauge", text, tuple(_PROTOCOL), samples)


def socket_bytes(infix: str, reading: NodeCounters) -> Iterator[Family]:
    """Bytes of all connections that there were; pages of single connections have each one's."""
    for name, text, value in (
        ("incoming", "Bytes received", reading.received_bytes),
        ("outgoing", "Bytes sent", reading.sent_bytes),
    ):
        yield _counter(f"{infix}connection_{name}_bytes", text, value, {})


def churn(infix: str, reading: NodeCounters) -> Iterator[Family]:
    """Connections, channels and queues that have come and gone."""
    for name, text in _CHURN.items():
        yield _counter(f"{infix}{name}", text, getattr(reading.churn, name), {})


def _counter(name: str, text: str, value: int, labels: dict[str, str]) -> Family:
    samples = [(tuple(labels.values()), float(value))]
    return family(f"{RABBITMQ}_{name}", "counter", text, tuple(labels), samples)
