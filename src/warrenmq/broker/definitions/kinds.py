"""All kinds of definitions: how stores keep each, and whose deletion takes it away.

Stores are derived from this table. A node's own store is SQLite: a kind has a table there, with its
columns in the order of `metadata_schema.py`. A cluster's store is etcd: of the kinds that nodes
share, each definition has a key (`cluster/metadata/keys.py`) and a value (`values.py` beside it).
A new attribute needs an argument of the Put... and a place here; a new column needs a version of
the schema too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from warrenmq.broker.definitions import metadata

_Put = TypeVar("_Put", bound=metadata.Change)
# Attributes with their types.
Fields = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of SQLite: the columns that find a row, and the others, which a write replaces.

    Together they are the first arguments of the Put..., in order.
    """

    name: str
    key: Fields
    others: Fields = field(default_factory=dict)


@dataclass(frozen=True)
class Keys:
    """The keys and the values of a kind in etcd.

    `parts` are the columns that make a key. A value has the attributes in `value`, each with its
    type, or with the default that is left out. `revisions` are attributes that etcd keeps by
    itself: the revision that created the key, and that of its last write.
    """

    name: str = ""
    parts: tuple[str, ...] = ()
    value: Fields = field(default_factory=dict)
    revisions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Kind(Generic[_Put]):
    """A kind of definitions.

    `put` writes one, and its arguments are the columns, then what only a cluster has. `delete`
    deletes the one with the key of the table, and `listed` has those that were loaded. `keys` have
    no name if nodes do not share the kind. A definition goes with that of another kind, its owner,
    if the columns given in `owners` have the owner's key.
    """

    put: type[_Put]
    delete: type[metadata.Change]
    listed: Callable[[metadata.Definitions], list[_Put]]
    table: Table
    keys: Keys = Keys()
    owners: "dict[Kind[Any], tuple[str, ...]]" = field(default_factory=dict)

    @cached_property
    def columns(self) -> Fields:
        """All columns of the table."""
        return self.table.key | self.table.others

    def owned(self) -> "list[tuple[Kind[Any], tuple[str, ...]]]":
        """The kinds that go with a definition of this one, with the columns that name it."""
        return [(kind, kind.owners[self]) for kind in KINDS if self in kind.owners]


VHOSTS: Final = Kind(
    metadata.PutVhost, metadata.DeleteVhost, lambda found: found.vhosts,
    Table(
        "vhosts", {"name": bytes},
        {"id": int, "description": str, "tags": list[str], "default_queue_type": str, "is_tracing": bool},
    ),
    Keys(
        "vhosts", ("name",),
        {"description": "", "tags": [], "default_queue_type": "", "is_tracing": False}, ("birth",),
    ),
)  # fmt: skip

USERS: Final = Kind(
    metadata.PutUser, metadata.DeleteUser, lambda found: found.users,
    Table(
        "users", {"name": bytes},
        {"password_hash": bytes, "hashing": str, "tags": list[str], "max_connections": int, "max_channels": int},
    ),
    Keys(
        "users", ("name",),
        {"password_hash": bytes, "hashing": str, "tags": [], "max_connections": metadata.NO_LIMIT, "max_channels": metadata.NO_LIMIT},
    ),
)  # fmt: skip

PERMISSIONS: Final = Kind(
    metadata.PutPermission, metadata.DeletePermission, lambda found: found.permissions,
    Table(
        "permissions", {"vhost": bytes, "user": bytes},
        {"configure": str, "write": str, "read": str},
    ),
    Keys("perms", ("vhost", "user"), {"configure": str, "write": str, "read": str}),
    {VHOSTS: ("vhost",), USERS: ("user",)},
)  # fmt: skip

TOPIC_PERMISSIONS: Final = Kind(
    metadata.PutTopicPermission, metadata.DeleteTopicPermission, lambda found: found.topic_permissions,
    Table(
        "topic_permissions", {"vhost": bytes, "user": bytes, "exchange": bytes},
        {"write": str, "read": str},
    ),
    Keys("tperms", ("vhost", "user", "exchange"), {"write": str, "read": str}),
    {VHOSTS: ("vhost",), USERS: ("user",)},
)  # fmt: skip

# Global parameters have no vhost and no component; in etcd they have a kind of their own.
PARAMETERS: Final = Kind(
    metadata.PutParameter, metadata.DeleteParameter, lambda found: found.parameters,
    Table("parameters", {"vhost": bytes, "component": str, "name": str}, {"value": str}),
    Keys("params", ("vhost", "component", "name"), {"value": str}),
    {VHOSTS: ("vhost",)},
)  # fmt: skip

EXCHANGES: Final = Kind(
    metadata.PutExchange, metadata.DeleteExchange, lambda found: found.exchanges,
    Table(
        "exchanges", {"vhost": bytes, "name": bytes},
        {"type": bytes, "auto_delete": bool, "internal": bool, "arguments": bytes},
    ),
    Keys(
        "x", ("vhost", "name"),
        {"type": bytes, "durable": False, "auto_delete": False, "internal": False, "arguments": b""}, ("birth",),
    ),
    {VHOSTS: ("vhost",)},
)  # fmt: skip

QUEUES: Final = Kind(
    metadata.PutQueue, metadata.DeleteQueue, lambda found: found.queues,
    Table(
        "queues", {"vhost": bytes, "id": int},
        {"name": bytes, "durable": bool, "auto_delete": bool, "arguments": bytes, "birth": int},
    ),
    Keys(
        "q", ("vhost", "name"),
        {
            "node": b"", "durable": False, "auto_delete": False, "is_exclusive": False, "arguments": b"",
            "group": b"",
        },
        ("birth", "revision"),
    ),
    {VHOSTS: ("vhost",)},
)  # fmt: skip

QUEUE_PARTS: Final = Kind(
    metadata.PutQueuePart, metadata.DeleteQueuePart, lambda found: found.queue_parts,
    Table("queue_parts", {"vhost": bytes, "id": int}, {"owner": int, "number": int}),
    owners={VHOSTS: ("vhost",), QUEUES: ("vhost", "owner")},
)  # fmt: skip

# Queues and exchanges do not own their bindings, whose deletions are changes of their own.
BINDINGS: Final = Kind(
    metadata.PutBinding, metadata.DeleteBinding, lambda found: found.bindings,
    Table(
        "bindings",
        {
            "vhost": bytes, "source": bytes, "destination": bytes, "destination_is_queue": bool, "key": bytes,
            "arguments": bytes,
        },
    ),
    Keys(
        "b", ("vhost", "source", "destination_is_queue", "destination", "key", "arguments"),
        {"source_birth": metadata.NO_BIRTH, "destination_birth": metadata.NO_BIRTH},
    ),
    {VHOSTS: ("vhost",)},
)  # fmt: skip

READER_GROUPS: Final = Kind(
    metadata.PutReaderGroup, metadata.DeleteReaderGroup, lambda found: found.reader_groups,
    Table("reader_groups", {"vhost": bytes, "name": bytes}, {"epoch": int, "pattern": str}),
    owners={VHOSTS: ("vhost",)},
)  # fmt: skip

GROUP_MEMBERS: Final = Kind(
    metadata.PutGroupMember, metadata.DeleteGroupMember, lambda found: found.group_members,
    Table(
        "reader_group_members", {"vhost": bytes, "group": bytes, "queue_id": int},
        {
            "queue_name": bytes, "acked": int, "reserved": int, "is_ended": bool, "incarnation": int,
            "has_lapsed": bool,
        },
    ),
    owners={VHOSTS: ("vhost",), READER_GROUPS: ("vhost", "group")},
)  # fmt: skip

STAGES: Final = Kind(
    metadata.PutStage, metadata.DeleteStage, lambda found: found.stages,
    Table(
        "stages", {"vhost": bytes, "id": int},
        {
            "sink": bytes, "batch": int, "finished_ms": int, "message_count": int, "unroutable_count": int,
            "unroutable": bytes, "target": bytes,
        },
    ),
    owners={VHOSTS: ("vhost",)},
)  # fmt: skip

SINKS: Final = Kind(
    metadata.PutSink, metadata.DeleteSink, lambda found: found.sinks,
    Table("sinks", {"vhost": bytes, "name": bytes}, {"batch": int, "stages": list[int]}),
    Keys(
        "sinks", ("vhost", "name"),
        {
            "batch": int, "before_first": 0, "message_count": 0, "copies": b"", "mover": b"", "epoch": 0,
        },
        ("birth", "revision"),
    ),
    {VHOSTS: ("vhost",)},
)  # fmt: skip

# A book goes with its queue or its sink, by changes of its own.
RECEIPTS: Final = Kind(
    metadata.PutReceipts, metadata.DeleteReceipts, lambda found: found.receipts,
    Table(
        "receipts", {"vhost": bytes, "id": int},
        {"sink": bytes, "queue_id": int, "floor": int, "runs": list[int], "shared": list[int]},
    ),
    owners={VHOSTS: ("vhost",)},
)  # fmt: skip

# Each kind comes after the kinds that it needs.
KINDS: Final[tuple[Kind[Any], ...]] = (
    VHOSTS, USERS, PERMISSIONS, TOPIC_PERMISSIONS, PARAMETERS, EXCHANGES, QUEUES, QUEUE_PARTS, BINDINGS,
    READER_GROUPS, GROUP_MEMBERS, STAGES, SINKS, RECEIPTS,
)  # fmt: skip
# The kinds that the nodes of a cluster share.
SHARED: Final = tuple(kind for kind in KINDS if kind.keys.name)
# The kind of the definition that a change writes or deletes.
KIND_OF: Final[dict[type[metadata.Change], Kind[Any]]] = {
    change: kind for kind in KINDS for change in (kind.put, kind.delete)
}


def as_changes(definitions: metadata.Definitions) -> list[metadata.Change]:
    """The changes that write `definitions` to an empty store, each after what it needs."""
    return [change for kind in KINDS for change in kind.listed(definitions)]


def getter(names: Iterable[str]) -> Callable[[metadata.Change], tuple[Any, ...]]:
    """A function that returns the attributes `names` of a change, all at once."""
    first, *others = names
    get = attrgetter(first, *others)
    return get if others else lambda change: (get(change),)
