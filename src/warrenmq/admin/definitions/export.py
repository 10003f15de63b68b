"""Exports the definitions of a node, or of one vhost, in RabbitMQ's JSON.

Sections and keys are in the order of RabbitMQ's management plug-in; rows are in order of vhosts and
names, so that two exports of the same definitions are equal. Left out are, as there: predeclared
exchanges and bindings of the default exchange, and exclusive queues with their bindings. Transient
exchanges and queues are exported.
"""

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

import warrenmq
from warrenmq.admin.definitions.document import SLICE_ROWS
from warrenmq.admin.definitions.json_values import json_of, text_of
from warrenmq.admin.protocol.schedules import PIPELINE_RUN
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import NO_LIMIT, PutUser
from warrenmq.broker.policies.policy import POLICY
from warrenmq.broker.vhost.pauses import QUEUE_PAUSE
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.queues.queue import Queue
from warrenmq.routing.exchange import Binding, Exchange
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.rabbitmq_version import RABBITMQ_VERSION

# The global parameter with the hash of what a start imported; it says nothing about another node.
IMPORTED_HASH: Final = "imported_definition_hash_value"

_Rows = Iterable[dict[str, Any]]


def export_pieces(broker: Broker, vhost: Vhost | None = None) -> Iterator[bytes]:
    """The definitions of `broker`, or of one of its vhosts, as pieces of JSON.

    Each piece is short work, so that a loop may pause between two.
    Each section shows the definitions at the time at which it begins.
    """
    vhosts = [vhost] if vhost is not None else _in_order(broker)
    about = {"rabbit_version": RABBITMQ_VERSION}
    if vhost is None:
        about |= {
            "rabbitmq_version": RABBITMQ_VERSION,
            "product_name": "warren",
            "product_version": warrenmq.__version__,
        }
    yield msgspec.json.encode(about)[:-1]
    if vhost is None:
        yield from _section("users", _users(broker))
        yield from _section("vhosts", map(_vhost, vhosts))
        yield from _section("permissions", _permissions(broker))
        yield from _section("topic_permissions", _topic_permissions(broker))
    yield from _section("parameters", _parameters(broker, vhost))
    if vhost is None:
        yield from _section("global_parameters", _global_parameters(broker))
    yield from _section("policies", _policies(broker, vhost))
    named = vhost is None
    yield from _section("queues", (row for each in vhosts for row in _queues(each, named)))
    yield from _section("exchanges", (row for each in vhosts for row in _exchanges(each, named)))
    yield from _section("bindings", (row for each in vhosts for row in _bindings(each, named)))
    yield b"}\n"


def _section(name: str, rows: _Rows) -> Iterator[bytes]:
    yield b"," + msgspec.json.encode(name) + b":["
    built: list[bytes] = []
    separator = b""
    for row in rows:
        built.append(msgspec.json.encode(row))
        if len(built) == SLICE_ROWS:
            yield separator + b",".join(built)
            separator = b","
            built = []
    yield (separator if built else b"") + b",".join(built) + b"]"


def _in_order(broker: Broker) -> list[Vhost]:
    return [broker.vhosts[name] for name in sorted(broker.vhosts)]


# -- of the node -----------------------------------------------------------------------------------


def _users(broker: Broker) -> _Rows:
    for user in sorted(broker.access.users.values(), key=lambda each: each.name):
        yield {
            "name": text_of(user.name),
            "password_hash": base64.b64encode(user.password_hash).decode(),
            "hashing_algorithm": user.hashing,
            "tags": user.tags,
            "limits": user_limits(user),
        }


def user_limits(user: PutUser) -> dict[str, int]:
    """The limits of a user, as RabbitMQ names them."""
    limits = {"max-connections": user.max_connections, "max-channels": user.max_channels}
    return {key: value for key, value in limits.items() if value != NO_LIMIT}


def _vhost(vhost: Vhost) -> dict[str, Any]:
    definition = vhost.definition
    metadata: dict[str, Any] = {"description": definition.description, "tags": definition.tags}
    if definition.default_queue_type:
        metadata["default_queue_type"] = definition.default_queue_type
    return {"name": text_of(vhost.name), "metadata": metadata}


def _permissions(broker: Broker) -> _Rows:
    for each in sorted(broker.access.permissions(), key=lambda each: (each.vhost, each.user)):
        yield {
            "user": text_of(each.user),
            "vhost": text_of(each.vhost),
            "configure": each.configure,
            "write": each.write,
            "read": each.read,
        }


def _topic_permissions(broker: Broker) -> _Rows:
    found = broker.access.topic_permissions()
    for each in sorted(found, key=lambda each: (each.vhost, each.user, each.exchange)):
        yield {
            "user": text_of(each.user),
            "vhost": text_of(each.vhost),
            "exchange": text_of(each.exchange),
            "write": each.write,
            "read": each.read,
        }


# -- parameters ------------------------------------------------------------------------------------


def _parameters(broker: Broker, vhost: Vhost | None) -> _Rows:
    for vhost_name, component, name, value in _in_order_of_names(broker, vhost):
        if component not in ("", POLICY, QUEUE_PAUSE, PIPELINE_RUN):
            yield {
                "value": json.loads(value),
                "vhost": text_of(vhost_name),
                "component": component,
                "name": name,
            }


def _global_parameters(broker: Broker) -> _Rows:
    for _, component, name, value in _in_order_of_names(broker, None):
        if not component and name != IMPORTED_HASH:
            yield {"name": name, "value": json.loads(value)}


def _policies(broker: Broker, vhost: Vhost | None) -> _Rows:
    for vhost_name, component, name, text in _in_order_of_names(broker, vhost):
        if component == POLICY:
            value = json.loads(text)
            yield {
                "vhost": text_of(vhost_name),
                "name": name,
                "pattern": value["pattern"],
                "apply-to": value.get("apply-to", "all"),
                "definition": value["definition"],
                "priority": value["priority"],
            }


def _in_order_of_names(broker: Broker, vhost: Vhost | None) -> list[tuple[bytes, str, str, str]]:
    """The parameters as (vhost, component, name, value)."""
    return sorted(
        (*key, value)
        for key, value in broker.parameters.items()
        if vhost is None or key[0] == vhost.name
    )


# -- of the vhosts ---------------------------------------------------------------------------------


def _with_vhost(row: dict[str, Any], vhost: Vhost, named: bool, position: int) -> dict[str, Any]:
    """The row with its vhost after `position` keys, if the rows are named."""
    if not named:
        return row
    items = list(row.items())
    items.insert(position, ("vhost", text_of(vhost.name)))
    return dict(items)


def _queues(vhost: Vhost, named: bool) -> _Rows:
    for name in sorted(vhost.router.queues):
        queue = vhost.taker(name)
        if queue is not None and queue.definition.owner is None:
            row = {
                "name": text_of(name),
                "durable": queue.durable,
                "auto_delete": queue.definition.auto_delete,
                "arguments": json_of(queue.definition.arguments),
            }
            yield _with_vhost(row, vhost, named, 1)


def _exchanges(vhost: Vhost, named: bool) -> _Rows:
    for name in sorted(vhost.router.exchanges):
        exchange = vhost.router.exchanges.get(name)
        if exchange is not None and name and not name.startswith(b"amq."):
            row = {
                "name": text_of(name),
                "type": name_text(exchange.type),
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
                "arguments": json_of(exchange.arguments),
            }
            yield _with_vhost(row, vhost, named, 1)


def _bindings(vhost: Vhost, named: bool) -> _Rows:
    for name in sorted(vhost.router.exchanges):
        exchange = vhost.router.exchanges.get(name)
        for binding in _in_order_of_keys(exchange):
            destination = binding.destination
            if isinstance(destination, Queue) and destination.definition.owner is not None:
                continue
            row = {
                "source": text_of(name),
                "destination": text_of(destination.name),
                "destination_type": "queue" if destination.is_queue else "exchange",
                "routing_key": text_of(binding.key),
                "arguments": json_of(binding.arguments),
            }
            yield _with_vhost(row, vhost, named, 1)


def _in_order_of_keys(exchange: Exchange | None) -> list[Binding]:
    if exchange is None:
        return []
    return sorted(
        exchange.outgoing.values(),
        key=lambda each: (
            each.key,
            each.destination.is_queue,
            each.destination.name,
            each.arguments,
        ),
    )
