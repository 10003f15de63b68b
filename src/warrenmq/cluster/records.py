"""The records of a cluster in its store: the cluster itself, its members, its running nodes.

`meta` names the cluster for good: a store with another id, or with none, is not the one that a node
has joined. `members/NODE` is written when a node joins and stays until it is forgotten.
`nodes/NODE` is there while the node runs: it goes with the node's lease, and its create revision
(the *birth* of the node) tells one run from the next.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from warrenmq.broker.definitions.metadata import MetadataDamaged
from warrenmq.cluster.metadata.keys import record_key
from warrenmq.cluster.metadata.values import NewerFormat

META: Final = "meta"
MEMBERS: Final = "members"
NODES: Final = "nodes"

FORMAT: Final = 1


class ClusterMeta(msgspec.Struct, frozen=True):
    """The cluster: its id, and the secret of its nodes.

    `secret_number` counts the rotations of the secret. `previous_secret`: the one before, which
    nodes take as well while a rotation is under way; "": there is none.
    """

    id: str
    secret: str
    created_ms: int
    secret_number: int = 0
    previous_secret: str = ""
    format: int = FORMAT


class Member(msgspec.Struct, frozen=True):
    """A member of the cluster; `replica_id` names its data directory.

    `incarnation`: the number of its latest run. A directory that has seen fewer runs is an older
    one that was put in place again.
    """

    replica_id: str
    joined_ms: int
    incarnation: int = 0
    format: int = FORMAT


class RunningNode(msgspec.Struct, frozen=True):
    """A running node: where other nodes dial it, and its listeners for clients.

    `incarnation`: the number of the run. `restored`: see DirectoryIdentity. `listeners`: (protocol,
    interface, port). `is_draining`: the node is in maintenance mode until the run ends, and takes
    no new queues.
    """

    replica_id: str
    incarnation: int
    host: str
    port: int
    version: str
    listeners: tuple[tuple[str, str, int], ...] = ()
    is_draining: bool = False
    restored: int = 0
    format: int = FORMAT

    @property
    def copies_id(self) -> str:
        """The id of the data directory in groups of mirrored queues (I6)."""
        return copies_id(self.replica_id, self.restored)


def copies_id(replica_id: str, restored: int) -> str:
    """The id of a data directory in groups: a new one once older content was put in its place.

    Records about the copies of before then do not count for the older ones.
    """
    return f"{replica_id}+{restored}" if restored else replica_id


_Record = TypeVar("_Record", ClusterMeta, Member, RunningNode)


def meta_key(cluster: str) -> bytes:
    """The key of the cluster's record."""
    return record_key(cluster, META)


def member_key(cluster: str, node: str) -> bytes:
    """The key of a member."""
    return record_key(cluster, MEMBERS, node.encode())


def node_key(cluster: str, node: str) -> bytes:
    """The key of a running node."""
    return record_key(cluster, NODES, node.encode())


def encode_record(record: ClusterMeta | Member | RunningNode) -> bytes:
    """The value of a record."""
    return msgspec.json.encode(record)


def decode_record(value: bytes, type: type[_Record]) -> _Record:
    """The record in `value`. Raises NewerFormat, or MetadataDamaged if it is none."""
    try:
        record = msgspec.json.decode(value, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataDamaged(f"a record of the cluster: {error}") from None
    if record.format > FORMAT:
        raise NewerFormat(
            f"a record of the cluster has format {record.format}; this warren reads {FORMAT}"
        )
    return record
