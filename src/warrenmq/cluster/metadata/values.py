"""The JSON values of definitions in etcd.

Each has the number of its format. A value of a later format is refused (NewerFormat), because what
this warren does not know may matter. A value that is not such JSON raises msgspec.DecodeError.

Format 2 is that of a mirrored queue, which has a group. Everything else is written in format 1, so
that an older warren reads it.
"""

from typing import Final, TypeVar

import msgspec

from warrenmq.broker.definitions.metadata import (
    NO_LIMIT,
    Change,
    MetadataError,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutTopicPermission,
    PutUser,
    PutVhost,
)

# The latest format that this warren reads.
FORMAT: Final = 2
_WITHOUT_GROUP: Final = 1
_WITH_GROUP: Final = 2


class NewerFormat(MetadataError):
    """A definition was written by a later warren than this one."""


class _Format(msgspec.Struct):
    format: int


class _Vhost(msgspec.Struct, omit_defaults=True):
    format: int
    description: str = ""
    tags: list[str] = []
    default_queue_type: str = ""
    is_tracing: bool = False


class _User(msgspec.Struct, omit_defaults=True):
    format: int
    password_hash: bytes
    hashing: str
    tags: list[str] = []
    max_connections: int = NO_LIMIT
    max_channels: int = NO_LIMIT


class _Permission(msgspec.Struct):
    format: int
    configure: str
    write: str
    read: str


class _TopicPermission(msgspec.Struct):
    format: int
    write: str
    read: str


class _Parameter(msgspec.Struct):
    format: int
    value: str


class _Exchange(msgspec.Struct, omit_defaults=True):
    format: int
    type: bytes
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    arguments: bytes = b""


class _Queue(msgspec.Struct, omit_defaults=True):
    format: int
    node: bytes = b""
    durable: bool = False
    auto_delete: bool = False
    is_exclusive: bool = False
    arguments: bytes = b""
    group: bytes = b""


class _Binding(msgspec.Struct, omit_defaults=True):
    format: int
    source_birth: int = 0
    destination_birth: int = 0


_Value = TypeVar("_Value", bound=msgspec.Struct)


def value_of(change: Change) -> bytes:
    """The value that `change`, which is a Put..., writes; raises TypeError for any other."""
    return msgspec.json.encode(_struct_of(change))


def _struct_of(change: Change) -> msgspec.Struct:
    match change:
        case PutQueue():
            return _Queue(
                _WITH_GROUP if change.group else _WITHOUT_GROUP, change.node, change.durable,
                change.auto_delete, change.is_exclusive, change.arguments, change.group,
            )  # fmt: skip
        case PutBinding():
            return _Binding(_WITHOUT_GROUP, change.source_birth, change.destination_birth)
        case PutExchange():
            return _Exchange(
                _WITHOUT_GROUP, change.type, change.durable, change.auto_delete, change.internal, change.arguments,
            )  # fmt: skip
        case PutVhost():
            return _Vhost(
                _WITHOUT_GROUP, change.description, change.tags, change.default_queue_type, change.is_tracing,
            )  # fmt: skip
        case PutUser():
            return _User(
                _WITHOUT_GROUP, change.password_hash, change.hashing, change.tags, change.max_connections,
                change.max_channels,
            )  # fmt: skip
        case PutPermission():
            return _Permission(_WITHOUT_GROUP, change.configure, change.write, change.read)
        case PutTopicPermission():
            return _TopicPermission(_WITHOUT_GROUP, change.write, change.read)
        case PutParameter():
            return _Parameter(_WITHOUT_GROUP, change.value)
    raise TypeError(f"{type(change).__name__} is no change that writes to a cluster")


def vhost(value: bytes, name: bytes, birth: int) -> PutVhost:
    """The vhost `name`; its id is 0, as each node has ids of its own."""
    found = _decode(value, _Vhost)
    return PutVhost(
        name, 0, found.description, found.tags, found.default_queue_type, found.is_tracing, birth
    )


def user(value: bytes, name: bytes) -> PutUser:
    """The user `name`."""
    found = _decode(value, _User)
    return PutUser(
        name, found.password_hash, found.hashing, found.tags, found.max_connections, found.max_channels
    )  # fmt: skip


def permission(value: bytes, vhost: bytes, user: bytes) -> PutPermission:
    """The permissions of `user` in `vhost`."""
    found = _decode(value, _Permission)
    return PutPermission(vhost, user, found.configure, found.write, found.read)


def topic_permission(
    value: bytes, vhost: bytes, user: bytes, exchange: bytes
) -> PutTopicPermission:
    """The permissions of `user` at the topic exchange `exchange`."""
    found = _decode(value, _TopicPermission)
    return PutTopicPermission(vhost, user, exchange, found.write, found.read)


def parameter(value: bytes, vhost: bytes, component: str, name: str) -> PutParameter:
    """The parameter `name`."""
    return PutParameter(vhost, component, name, _decode(value, _Parameter).value)


def exchange(value: bytes, vhost: bytes, name: bytes, birth: int) -> PutExchange:
    """The exchange `name`."""
    found = _decode(value, _Exchange)
    return PutExchange(
        vhost, name, found.type, found.auto_delete, found.internal, found.arguments, found.durable, birth
    )  # fmt: skip


def queue(value: bytes, vhost: bytes, name: bytes, birth: int, revision: int) -> PutQueue:
    """The queue `name`, as it was written at `revision`; its id is 0, as each node has its own."""
    found = _decode(value, _Queue)
    return PutQueue(
        vhost, 0, name, found.durable, found.auto_delete, found.arguments, found.node, found.is_exclusive,
        birth, found.group, revision,
    )  # fmt: skip


def births(value: bytes) -> tuple[int, int]:
    """The births of the source and of the destination for which a binding was made."""
    found = _decode(value, _Binding)
    return found.source_birth, found.destination_birth


def _decode(value: bytes, type: type[_Value]) -> _Value:
    format = msgspec.json.decode(value, type=_Format).format
    if format > FORMAT:
        raise NewerFormat(
            f"etcd has definitions of format {format}; this warren reads up to format {FORMAT}"
        )
    return msgspec.json.decode(value, type=type)
