"""The definitions of one vhost as exact JSON: argument tables and non-UTF-8 names are bytes.

Users are those with permissions in the vhost, with the hashes of their passwords. Reader groups are
left out: their positions belong to the store that they read.
"""

from typing import Any

import msgspec

from warrenmq.broker.definitions import metadata
from warrenmq.offline.data_directory import ToolError
from warrenmq.wire.errors import AmqpError
from warrenmq.wire.field_table import decode_table

NAME_BYTES_MAX = 255
QUEUE_ID_END = 1 << 32


class RawName(msgspec.Struct, frozen=True):
    """The bytes of a name that is not UTF-8."""

    base64: bytes


Name = str | RawName


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """A durable exchange. `arguments` is the declared table; `shown` (in all types) is its JSON."""

    name: Name
    type: str
    auto_delete: bool
    internal: bool
    arguments: bytes
    shown: Any = None


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A durable queue."""

    id: int
    name: Name
    auto_delete: bool
    arguments: bytes
    shown: Any = None


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding of a queue or an exchange to the exchange `source`."""

    source: Name
    destination: Name
    destination_is_queue: bool
    routing_key: Name
    arguments: bytes
    shown: Any = None


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user with permissions in the vhost, and these permissions."""

    name: Name
    password_hash: bytes
    hashing: str
    tags: list[str]
    configure: str
    write: str
    read: str


class QueuePart(msgspec.Struct, frozen=True, kw_only=True):
    """A level of a priority queue, or a bucket of delayed messages, with its id in the store.

    `owner` is the id of the queue and `number` the priority; of a bucket, `owner` is 0 and `number`
    says when its messages are due.
    """

    id: int
    owner: int
    number: int


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The definitions of one vhost. Backups made before `parts` was there have no parts."""

    vhost: Name
    vhost_id: int
    exchanges: list[Exchange]
    queues: list[Queue]
    bindings: list[Binding]
    users: list[User]
    parts: list[QueuePart] = []


def name_of(raw: bytes) -> Name:
    """The name for JSON: text when it is UTF-8, else its bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return RawName(raw)


def bytes_of(name: Name) -> bytes:
    """The bytes of a name. ToolError when it is too long."""
    raw = name.encode() if isinstance(name, str) else name.base64
    if len(raw) > NAME_BYTES_MAX:
        raise ToolError(f"the name {raw[:40]!r}... is longer than {NAME_BYTES_MAX} bytes")
    return raw


def topology_of(definitions: metadata.Definitions, vhost: metadata.PutVhost) -> Topology:
    """The part of `definitions` that belongs to `vhost`."""
    users = {user.name: user for user in definitions.users}
    return Topology(
        vhost=name_of(vhost.name),
        vhost_id=vhost.id,
        exchanges=[
            Exchange(
                name=name_of(exchange.name),
                type=exchange.type.decode(),
                auto_delete=exchange.auto_delete,
                internal=exchange.internal,
                arguments=exchange.arguments,
                shown=_shown(exchange.arguments),
            )
            for exchange in definitions.exchanges
            if exchange.vhost == vhost.name
        ],
        queues=[
            Queue(
                id=queue.id,
                name=name_of(queue.name),
                auto_delete=queue.auto_delete,
                arguments=queue.arguments,
                shown=_shown(queue.arguments),
            )
            for queue in definitions.queues
            if queue.vhost == vhost.name
        ],
        bindings=[
            Binding(
                source=name_of(binding.source),
                destination=name_of(binding.destination),
                destination_is_queue=binding.destination_is_queue,
                routing_key=name_of(binding.key),
                arguments=binding.arguments,
                shown=_shown(binding.arguments),
            )
            for binding in definitions.bindings
            if binding.vhost == vhost.name
        ],
        users=[
            User(
                name=name_of(permission.user),
                password_hash=users[permission.user].password_hash,
                hashing=users[permission.user].hashing,
                tags=users[permission.user].tags,
                configure=permission.configure,
                write=permission.write,
                read=permission.read,
            )
            for permission in definitions.permissions
            if permission.vhost == vhost.name and permission.user in users
        ],
        parts=[
            QueuePart(id=part.id, owner=part.owner, number=part.number)
            for part in definitions.queue_parts
            if part.vhost == vhost.name
        ],
    )


def _shown(arguments: bytes) -> Any:
    from warrenmq.tables.columns import table_as_json

    return table_as_json(arguments) if arguments else None


def definitions_of(topology: Topology) -> metadata.Definitions:
    """The definitions of a node with only this vhost. ToolError when they are invalid."""
    found = metadata.Definitions()
    vhost = bytes_of(topology.vhost)
    found.vhosts.append(metadata.PutVhost(vhost, topology.vhost_id))
    for user in topology.users:
        name = bytes_of(user.name)
        found.users.append(metadata.PutUser(name, user.password_hash, user.hashing, user.tags))
        found.permissions.append(
            metadata.PutPermission(vhost, name, user.configure, user.write, user.read)
        )
    for exchange in topology.exchanges:
        found.exchanges.append(
            metadata.PutExchange(
                vhost,
                bytes_of(exchange.name),
                exchange.type.encode(),
                exchange.auto_delete,
                exchange.internal,
                _table(exchange.arguments),
            )
        )
    for id in [queue.id for queue in topology.queues] + [part.id for part in topology.parts]:
        if not 0 < id < QUEUE_ID_END:
            raise ToolError(f"{id} is not a valid queue id")
    for part in topology.parts:
        found.queue_parts.append(metadata.PutQueuePart(vhost, part.id, part.owner, part.number))
    for queue in topology.queues:
        arguments = _table(queue.arguments)
        found.queues.append(
            metadata.PutQueue(
                vhost, queue.id, bytes_of(queue.name), True, queue.auto_delete, arguments
            )
        )
    for binding in topology.bindings:
        found.bindings.append(
            metadata.PutBinding(
                vhost,
                bytes_of(binding.source),
                bytes_of(binding.destination),
                binding.destination_is_queue,
                bytes_of(binding.routing_key),
                _table(binding.arguments),
            )
        )
    return found


def _table(raw: bytes) -> bytes:
    try:
        decode_table(raw)
    except AmqpError as error:
        raise ToolError(f"arguments are not a valid table: {error}") from None
    return raw
