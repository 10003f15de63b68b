"""The fields of internal events, as RabbitMQ names and orders them.

Addresses, pids and tables of arguments look as in the JSON of listings.
"""

from __future__ import annotations

from typing import Any, Final

from warrenmq.admin.definitions.events import definition_fields
from warrenmq.admin.listings.columns import table_value
from warrenmq.admin.listings.connections import CONNECTION_COLUMNS, ListedConnection
from warrenmq.admin.listings.pids import channel_pid, connection_pid
from warrenmq.broker.broker import Broker
from warrenmq.broker.channel.channel import Channel, ChannelConsumer
from warrenmq.broker.connection.connection import Connection
from warrenmq.queues.queue import Queue
from warrenmq.routing.exchange import Binding, Exchange
from warrenmq.vocabulary.names import name_text

Fields = dict[str, Any]

_CREATED: Final = (
    "connected_at", "client_properties", "channel_max", "frame_max", "timeout", "vhost", "user",
    "protocol", "ssl_hash", "ssl_cipher", "ssl_key_exchange", "ssl_protocol", "auth_mechanism",
    "peer_cert_validity", "peer_cert_issuer", "peer_cert_subject", "ssl", "peer_host", "host",
    "peer_port", "port", "name", "pid",
)  # fmt: skip
_LOGIN: Final = ("ssl", "auth_mechanism", "protocol", "peer_port", "peer_host")
# Events that nobody has asked for.
_WITHOUT_USER: Final = (
    "alarm.cleared", "alarm.set", "checkpoint.completed", "connection.closed", "mirror.added",
    "mirror.promoted", "mirror.removed", "mirror.synchronised", "mirror.unsynchronised",
    "user.authentication.failure", "user.authentication.success",
)  # fmt: skip


def event_fields(broker: Broker, name: str, subject: object, vhost: bytes, user: bytes) -> Fields:
    """The fields of an event; `broker.events` explains the arguments."""
    found = _fields(broker, name, subject)
    if name not in _WITHOUT_USER:
        found = {"user_who_performed_action": name_text(user), **found}
    if vhost:
        found["vhost"] = name_text(vhost)
    return found


def _fields(broker: Broker, name: str, subject: object) -> Fields:
    match subject:
        case Connection():
            return _connection(ListedConnection(broker, subject), name)
        case Channel():
            return _channel(broker, subject, name)
        case ChannelConsumer():
            return _consumer(broker, subject, name)
        case Queue():
            return _queue(broker, subject, name)
        case Exchange():
            return _exchange(subject, name)
        case Binding():
            return _binding(subject)
        case str():
            return {"node": broker.settings.node_name, "source": subject}
        case dict():
            return subject
    return definition_fields(name, subject)


# -- clients ---------------------------------------------------------------------------------------


def _columns(listed: ListedConnection, names: tuple[str, ...]) -> Fields:
    values = {name: CONNECTION_COLUMNS[name](listed) for name in names}
    return {name: "" if value is None else value for name, value in values.items()}


def _connection(listed: ListedConnection, name: str) -> Fields:
    node = {"node": listed.broker.settings.node_name}
    client_name = listed.connection.client.name
    given = {"user_provided_name": client_name} if client_name else {}
    if name == "connection.created":
        return {**node, **_columns(listed, _CREATED), "type": "network", **given}
    if name == "connection.closed":
        return {
            **_columns(listed, ("client_properties",)), **node,
            **_columns(listed, ("pid", "name")), **given,
        }  # fmt: skip
    fault = listed.connection.handshake.login_fault
    return {
        **({"error": fault} if fault else {}),
        **_columns(listed, _LOGIN),
        "connection_name": listed.connection.peer,
        **_columns(listed, ("host",)),
        "name": name_text(listed.connection.handshake.login_name),
        "connection_type": "network",
    }


def _channel(broker: Broker, channel: Channel, name: str) -> Fields:
    pid = {"pid": channel_pid(broker, channel)}
    if name == "channel.closed":
        return pid
    connection = channel.connection
    assert isinstance(connection, Connection)
    return {
        "user": name_text(connection.client.user_name),
        "number": channel.number,
        "connection": connection_pid(broker, connection),
        "name": f"{connection.peer} ({channel.number})",
        **pid,
    }


def _consumer(broker: Broker, consumer: ChannelConsumer, name: str) -> Fields:
    where = {
        "queue": name_text(consumer.queue.name),
        "channel": channel_pid(broker, consumer.channel),
    }
    tag = {"consumer_tag": name_text(consumer.tag)}
    if name == "consumer.deleted":
        return {**where, **tag}
    return {
        "arguments": table_value(consumer.arguments),
        "prefetch_count": consumer.prefetch_count,
        **where,
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        **tag,
    }


# -- topology --------------------------------------------------------------------------------------


def _queue(broker: Broker, queue: Queue, name: str) -> Fields:
    shown = {"name": name_text(queue.name)}
    if name == "queue.deleted":
        return shown
    owner = queue.definition.owner
    return {
        "exclusive": owner is not None,
        "owner_pid": connection_pid(broker, owner) if isinstance(owner, Connection) else "",
        "arguments": table_value(queue.definition.arguments),
        "auto_delete": queue.definition.auto_delete,
        "durable": queue.durable,
        **shown,
    }


def _exchange(exchange: Exchange, name: str) -> Fields:
    shown = {"name": name_text(exchange.name)}
    if name == "exchange.deleted":
        return shown
    return {
        "arguments": table_value(exchange.arguments),
        "internal": exchange.internal,
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "type": exchange.type.decode(),
        **shown,
    }


def _binding(binding: Binding) -> Fields:
    return {
        "arguments": table_value(binding.arguments),
        "routing_key": name_text(binding.key),
        "destination_kind": "queue" if binding.destination.is_queue else "exchange",
        "destination_name": name_text(binding.destination.name),
        "source_kind": "exchange",
        "source_name": name_text(binding.source.name),
    }
