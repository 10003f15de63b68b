"""The definitions of a cluster as keys and values of etcd.

A key is `/warren/CLUSTER/KIND/PART/...`. Each part is percent-encoded, so it may have any bytes,
and `/` only separates. Kinds and their parts:

    vhosts      VHOST
    users       USER
    perms       VHOST USER
    tperms      VHOST USER EXCHANGE
    params      VHOST COMPONENT NAME      policies and operator policies are components
    globals     NAME                      global parameters
    x           VHOST EXCHANGE
    q           VHOST QUEUE
    b           VHOST SOURCE KIND DESTINATION ROUTING_KEY ARGUMENTS      KIND is `q` or `x`

A key tells all that identifies a definition, so a deletion can be followed without the value that
the key had. (A watch can tell the values before deletions too, but etcd takes 15 s to find those of
10,000 keys.) Values are JSON, see `values.py`; the birth of a vhost, a queue or an exchange is its
key's create revision.

Keys of other kinds are *records*: they belong to other parts of the cluster.
"""

from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteParameter,
    DeletePermission,
    DeleteQueue,
    DeleteTopicPermission,
    DeleteUser,
    DeleteVhost,
    MetadataDamaged,
    PutBinding,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.metadata import values

VHOSTS: Final = "vhosts"
USERS: Final = "users"
PERMISSIONS: Final = "perms"
TOPIC_PERMISSIONS: Final = "tperms"
PARAMETERS: Final = "params"
GLOBAL_PARAMETERS: Final = "globals"
EXCHANGES: Final = "x"
QUEUES: Final = "q"
BINDINGS: Final = "b"

# Kinds of definitions, each after the kinds that it needs.
KINDS: Final = (
    VHOSTS, USERS, PERMISSIONS, TOPIC_PERMISSIONS, PARAMETERS, GLOBAL_PARAMETERS, EXCHANGES, QUEUES, BINDINGS,
)  # fmt: skip
# Kinds whose first part is a vhost: they go with it.
KINDS_OF_VHOST: Final = (
    PERMISSIONS, TOPIC_PERMISSIONS, PARAMETERS, EXCHANGES, QUEUES, BINDINGS,
)  # fmt: skip

# The deletions that a cluster shares.
Deletion = (
    DeleteVhost | DeleteUser | DeletePermission | DeleteTopicPermission | DeleteParameter
    | DeleteExchange | DeleteQueue | DeleteBinding
)  # fmt: skip

# The numeric ids of vhosts and queues are a node's own; definitions of a cluster have this one.
NO_ID: Final = 0


def prefix_of(cluster: str, kind: str = "", *parts: bytes) -> bytes:
    """The beginning of all keys of the cluster, of one kind, or of one kind below `parts`."""
    names = ["", "warren", quote(cluster, safe="")]
    if kind:
        names.append(kind)
    return "/".join([*names, *(quote(part, safe="") for part in parts), ""]).encode()


def record_key(cluster: str, kind: str, *parts: bytes) -> bytes:
    """The key of a record, such as ("nodes", NAME); ("meta",) has no parts."""
    return prefix_of(cluster, kind, *parts)[:-1]


def key_of(cluster: str, change: Change) -> bytes:
    """The key that `change` writes or deletes.

    Raises TypeError for a change that a cluster does not share, ValueError for the deletion of a
    queue without a name.
    """
    kind, *parts = _place(change)
    return record_key(cluster, kind, *parts)


def _place(change: Change) -> tuple[str, *tuple[bytes, ...]]:
    """The kind of a change and the parts of its key."""
    match change:
        case PutQueue() | DeleteQueue():
            if isinstance(change, DeleteQueue) and not change.name:
                raise ValueError("a cluster finds a queue by its name")
            return QUEUES, change.vhost, change.name
        case PutExchange() | DeleteExchange():
            return EXCHANGES, change.vhost, change.name
        case PutBinding() | DeleteBinding():
            kind = b"q" if change.destination_is_queue else b"x"
            ends = (change.vhost, change.source, kind, change.destination)
            return BINDINGS, *ends, change.key, change.arguments
        case PutVhost() | DeleteVhost():
            return VHOSTS, change.name
        case PutUser() | DeleteUser():
            return USERS, change.name
        case PutPermission() | DeletePermission():
            return PERMISSIONS, change.vhost, change.user
        case PutTopicPermission() | DeleteTopicPermission():
            return TOPIC_PERMISSIONS, change.vhost, change.user, change.exchange
        case PutParameter() | DeleteParameter():
            name = change.name.encode()
            if not change.component:
                return GLOBAL_PARAMETERS, name
            return PARAMETERS, change.vhost, change.component.encode(), name
    raise TypeError(f"{type(change).__name__} is no change that a cluster shares")


def change_of(key: bytes, value: bytes, create_revision: int, mod_revision: int) -> Change | None:
    """The Put... that wrote `key`, with its birth and revision; None for a record.

    Ids are NO_ID. Raises NewerFormat for a value of a later warren, MetadataDamaged for a key or a
    value that no warren writes.
    """
    kind, parts = parts_of(key)
    if kind not in KINDS:
        return None
    try:
        return _put(kind, parts, value, create_revision, mod_revision)
    except (ValueError, msgspec.DecodeError) as error:
        raise _damage(key, error) from None


def deletion_of(key: bytes) -> Change | None:
    """The Delete... of `key`, None for a record; raises MetadataDamaged as `change_of`."""
    kind, parts = parts_of(key)
    if kind not in KINDS:
        return None
    try:
        return _deletion(kind, parts)
    except (ValueError, msgspec.DecodeError) as error:
        raise _damage(key, error) from None


def _damage(key: bytes, error: Exception) -> MetadataDamaged:
    return MetadataDamaged(f"etcd's key {key.decode(errors='replace')} is damaged: {error}")


def parts_of(key: bytes) -> tuple[str, list[bytes]]:
    """The kind and the parts of any key of a cluster."""
    kind, *parts = key.split(b"/")[3:]
    return kind.decode(errors="replace"), [unquote_to_bytes(part) for part in parts]


def _put(kind: str, parts: list[bytes], value: bytes, birth: int, revision: int) -> Change:
    match kind, parts:
        case "q", [vhost, name]:
            return values.queue(value, vhost, name, birth, revision)
        case "x", [vhost, name]:
            return values.exchange(value, vhost, name, birth)
        case "b", [vhost, source, end_kind, destination, key, arguments]:
            births = values.births(value)
            return PutBinding(vhost, source, destination, end_kind == b"q", key, arguments, *births)
        case "vhosts", [name]:
            return values.vhost(value, name, birth)
        case "users", [name]:
            return values.user(value, name)
        case "perms", [vhost, user]:
            return values.permission(value, vhost, user)
        case "tperms", [vhost, user, exchange]:
            return values.topic_permission(value, vhost, user, exchange)
        case "params", [vhost, component, name]:
            return values.parameter(value, vhost, component.decode(), name.decode())
        case "globals", [name]:
            return values.parameter(value, b"", "", name.decode())
    raise ValueError(f"{len(parts)} parts are not those of {kind}")


def _deletion(kind: str, parts: list[bytes]) -> Change:
    match kind, parts:
        case "q", [vhost, name]:
            return DeleteQueue(vhost, NO_ID, name)
        case "x", [vhost, name]:
            return DeleteExchange(vhost, name)
        case "b", [vhost, source, end_kind, destination, key, arguments]:
            return DeleteBinding(vhost, source, destination, end_kind == b"q", key, arguments)
        case "vhosts", [name]:
            return DeleteVhost(name)
        case "users", [name]:
            return DeleteUser(name)
        case "perms", [vhost, user]:
            return DeletePermission(vhost, user)
        case "tperms", [vhost, user, exchange]:
            return DeleteTopicPermission(vhost, user, exchange)
        case "params", [vhost, component, name]:
            return DeleteParameter(vhost, component.decode(), name.decode())
        case "globals", [name]:
            return DeleteParameter(b"", "", name.decode())
    raise ValueError(f"{len(parts)} parts are not those of {kind}")
