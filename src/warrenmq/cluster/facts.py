"""The state of the cluster as one node knows it, for status and listings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

# RabbitMQ's text for a node that is no member.
NO_MEMBER: Final = "{:not_a_cluster_node, 'The node selected is not in the cluster.'}"


@dataclass(frozen=True)
class LinkFacts:
    """A link that is up. `followed`: the last decision that the other node has told to follow."""

    peer: str
    up_ms: int
    unsent_bytes: int
    followed: int


@dataclass(frozen=True)
class EtcdFacts:
    """The store of the cluster, as a member of etcd answers; `failure`: why none does, or ""."""

    failure: str
    version: str = ""
    db_size_bytes: int = 0
    # The URLs for clients of each member of etcd.
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    # The failure of the last transaction or renewal of the lease, "" if it succeeded.
    last_failure: str = ""


@dataclass(frozen=True)
class RunningFacts:
    """A running node, as it has announced itself.

    `host` and `port`: where other nodes dial it. `listeners`: (protocol, interface, port).
    `is_draining`: whether it is in maintenance mode.
    """

    version: str
    host: str
    port: int
    listeners: tuple[tuple[str, str, int], ...]
    is_draining: bool


@dataclass(frozen=True)
class ClusterFacts:
    """The cluster, as one node knows it.

    `members` have joined, sorted. `running`: those with a record in etcd. `followed`: the last
    decision that is in force on this node.
    """

    name: str
    members: tuple[str, ...]
    running: dict[str, RunningFacts]
    followed: int
    links: tuple[LinkFacts, ...]
    etcd: EtcdFacts
