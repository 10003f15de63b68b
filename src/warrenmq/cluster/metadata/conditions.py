"""Conditions of a commit: what must be as its author knows it.

A commit whose outcome is unknown is repeated with the same conditions, and they make that safe. If
the first attempt was carried out, `Absent` and `Alive` no longer hold for what it made or deleted,
so the repetition is a conflict: its author reads again and finds its own work. A commit that only
overwrites has the same effect twice; with `LastWritten` or `Unchanged` it has none the second time.
"""

from dataclasses import dataclass

from warrenmq.broker.definitions.metadata import Change
from warrenmq.cluster.metadata.keys import key_of, record_key
from warrenmq.cluster.metadata.operations import Compare, exists, is_created, is_modified


@dataclass(frozen=True)
class Absent:
    """The object that `change` defines does not exist."""

    change: Change


@dataclass(frozen=True)
class Exists:
    """The object that `change` defines exists, whatever its birth."""

    change: Change


@dataclass(frozen=True)
class Alive:
    """The object that `change` defines exists and has this birth."""

    change: Change
    birth: int


@dataclass(frozen=True)
class LastWritten:
    """The object that `change` defines was last written at `mod_revision`."""

    change: Change
    mod_revision: int


@dataclass(frozen=True)
class Unchanged:
    """The record `key` was last written at `mod_revision`; 0: it does not exist."""

    key: bytes
    mod_revision: int


@dataclass(frozen=True)
class NodeIs:
    """The record of the running `node` was created at `birth`: its lease has not ended since.

    0: it has none, so the node does not run.
    """

    node: bytes
    birth: int


Condition = Absent | Exists | Alive | LastWritten | Unchanged | NodeIs


def compare_of(cluster: str, condition: Condition) -> Compare:
    """The comparison of etcd that checks `condition`."""
    match condition:
        case Absent():
            return is_created(key_of(cluster, condition.change), 0)
        case Exists():
            return exists(key_of(cluster, condition.change))
        case Alive():
            return is_created(key_of(cluster, condition.change), condition.birth)
        case LastWritten():
            return is_modified(key_of(cluster, condition.change), condition.mod_revision)
        case Unchanged():
            return is_modified(condition.key, condition.mod_revision)
        case NodeIs():
            return is_created(record_key(cluster, "nodes", condition.node), condition.birth)
