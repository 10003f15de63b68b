"""Etcd's key-value store in its own words: keys, comparisons, operations, and what they give.

Revisions count the transactions of the whole store. A key's `create_revision` is that of the
transaction that made it, its `mod_revision` that of its last write.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

# Etcd's limits on a transaction: comparisons, and operations of either branch.
OPERATIONS_MAX: Final = 128

EQUAL: Final = "EQUAL"
GREATER: Final = "GREATER"
LESS: Final = "LESS"


class KeyValue(msgspec.Struct, frozen=True):
    """A key as stored; `lease` is 0 for none. A deleted key has its deletion as `mod_revision`."""

    key: bytes
    value: bytes = b""
    create_revision: int = 0
    mod_revision: int = 0
    lease: int = 0


class Event(msgspec.Struct, frozen=True):
    """A write of a key, or its deletion: then `kv` has the key and the revision only."""

    kv: KeyValue
    type: Literal["PUT", "DELETE"] = "PUT"


@dataclass(frozen=True)
class Compare:
    """A comparison; one with a `range_end` must hold for every key of the range, if there is any.

    A missing key has create and mod revision 0.
    """

    key: bytes
    target: Literal["CREATE", "MOD", "LEASE", "VALUE"]
    result: Literal["EQUAL", "GREATER", "LESS"]
    operand: int | bytes
    range_end: bytes = b""

    def as_json(self) -> dict[str, object]:
        """The comparison as etcd's gateway wants it."""
        return {
            "key": self.key,
            "range_end": self.range_end,
            "target": self.target,
            "result": self.result,
            _OPERANDS[self.target]: self.operand,
        }


_OPERANDS: Final = {
    "CREATE": "create_revision",
    "MOD": "mod_revision",
    "LEASE": "lease",
    "VALUE": "value",
}


def is_created(key: bytes, revision: int) -> Compare:
    """Holds if `key` was created at `revision`; 0: if there is no such key."""
    return Compare(key, "CREATE", EQUAL, revision)


def exists(key: bytes) -> Compare:
    """Holds if there is a `key`."""
    return Compare(key, "CREATE", GREATER, 0)


def has_none(prefix: bytes) -> Compare:
    """Holds if no key has the `prefix`."""
    return Compare(prefix, "CREATE", EQUAL, 0, end_of(prefix))


def is_modified(key: bytes, revision: int) -> Compare:
    """Holds if the last write of `key` was at `revision`."""
    return Compare(key, "MOD", EQUAL, revision)


@dataclass(frozen=True)
class RawPut:
    """Writes `key`; with a `lease` the key goes with it."""

    key: bytes
    value: bytes
    lease: int = 0

    def as_json(self) -> dict[str, object]:
        """The operation as etcd's gateway wants it."""
        return {"request_put": {"key": self.key, "value": self.value, "lease": self.lease}}


@dataclass(frozen=True)
class RawDelete:
    """Deletes `key`, or all keys from it to before `range_end`."""

    key: bytes
    range_end: bytes = b""

    def as_json(self) -> dict[str, object]:
        """The operation as etcd's gateway wants it."""
        return {"request_delete_range": {"key": self.key, "range_end": self.range_end}}


@dataclass(frozen=True)
class RawGet:
    """Reads `key`, in a transaction."""

    key: bytes

    def as_json(self) -> dict[str, object]:
        """The operation as etcd's gateway wants it."""
        return {"request_range": {"key": self.key}}


Operation = RawPut | RawDelete | RawGet


@dataclass(frozen=True)
class OperationResult:
    """The keys that a RawGet found, or the number of keys that a RawDelete deleted."""

    found: tuple[KeyValue, ...] = ()
    deleted_count: int = 0


@dataclass(frozen=True)
class TxnResult:
    """`succeeded`: the comparisons held; `responses` are those of the branch that ran.

    `revision` is the store's after the transaction; one that changed a key has made it.
    """

    succeeded: bool
    revision: int
    responses: tuple[OperationResult, ...]


@dataclass(frozen=True)
class EtcdMember:
    """A member of the etcd cluster; `name` is empty until it has started for the first time."""

    name: str
    client_urls: tuple[str, ...] = ()


@dataclass(frozen=True)
class EtcdStatus:
    """The status that a member reports of itself and of its cluster."""

    cluster_id: int
    version: str
    db_size_bytes: int
    # Without a leader the cluster has no majority, or is about to elect one.
    has_leader: bool
    members: tuple[EtcdMember, ...]
    # The alarms in etcd's words, such as one that its space is used up.
    alarms: tuple[str, ...] = field(default=())


def end_of(prefix: bytes) -> bytes:
    """The first key after all keys with `prefix`, which must not end in 0xFF."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
