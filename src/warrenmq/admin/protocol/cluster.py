"""Requests and replies of the admin protocol about the cluster of a node.

`control.py` has the other operations, and says which tag each of them needs. A node that
runs alone carries out DescribeCluster, DescribeMember and SetDraining, and refuses the others.
"""

from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(max_length=255)]


class _Request(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Base of the requests: unknown fields are errors."""


class DescribeCluster(_Request, tag="describe_cluster", frozen=True):
    """The cluster, with what each of its nodes says of itself. Reply: ClusterStatus.

    Takes some seconds when etcd or a node does not answer.
    """


class DescribeMember(_Request, tag="describe_member", frozen=True):
    """This node as a part of its cluster. Reply: MemberDescription."""


class ForgetNode(_Request, tag="forget_node", frozen=True):
    """Remove a member that does not run from the cluster.

    Refused (`not_found`) for a node that is no member, and (`precondition`) for one that runs, or
    that has durable queues: their messages are on its disk only, and with `is_forced` they go.
    """

    node: Name
    is_forced: bool = False


class JoinCluster(_Request, tag="join_cluster", frozen=True):
    """Let the node, whose broker is stopped, become a member of the cluster it is configured for.

    `seed` must run in that cluster (`unreachable`). `exists`: the node is a member already.
    """

    seed: Name


class RotateSecret(_Request, tag="rotate_secret", frozen=True, omit_defaults=True):
    """Give the nodes a new secret to prove to each other; the one before stays in use.

    `is_end`: put the one before out of use. Refused (`precondition`) if a rotation is under way, or
    for `is_end` if none is, or if a running node is not known to have heard of the new one.
    """

    is_end: bool = False


class SetDraining(_Request, tag="set_draining", frozen=True, omit_defaults=True):
    """Take the node into maintenance mode, or out of it.

    A node in maintenance mode has no clients, and new queues go to other nodes. A start of its
    broker ends the mode. `node`: which one, "" is that of the session, as for a node of an earlier
    version. Refused (`unreachable`) without a link to it.
    """

    is_on: bool
    node: Name = ""


class ListenerStatus(Struct, frozen=True):
    """A listening socket; `protocol` is "amqp", "amqp/ssl" or "clustering"."""

    protocol: str
    interface: str
    port: int


class LinkStatus(Struct, frozen=True):
    """A link that is up. `followed`: the last decision that the other node has in force."""

    node: str
    up_ms: int
    unsent_bytes: int
    followed: int


class MemberDescription(Struct, tag="member_description", frozen=True):
    """A running node of the cluster.

    Without an answer of the node (`is_reachable`) it is what the node has announced: `python` is ""
    then, and there are neither alarms nor links. `followed`: the last decision in force on it.
    `is_draining`: whether it is in maintenance mode.
    """

    node: str
    version: str
    python: str
    is_reachable: bool
    is_listening: bool
    listeners: list[ListenerStatus]
    alarms: list[str]
    followed: int
    links: list[LinkStatus]
    # Nodes of an earlier version do not say it.
    is_draining: bool = False


class EtcdMemberStatus(Struct, frozen=True):
    """A member of etcd, with its URLs for clients."""

    name: str
    urls: list[str]


class EtcdStatus(Struct, frozen=True):
    """The store of the cluster; `failure`: why it does not answer, or "".

    `last_failure`: why the last transaction of the node has failed, "" if it succeeded.
    """

    failure: str
    last_failure: str
    version: str
    db_size_bytes: int
    members: list[EtcdMemberStatus]
    alarms: list[str]


class ClusterStatus(Struct, tag="cluster_status", frozen=True):
    """The cluster, as `node` knows it.

    `cluster` is its name, "" if the node runs alone; `etcd` is None then. `members` have joined,
    `running` nodes are described in `nodes`. `partitions`: by node, the running nodes to which it
    has no link.
    """

    cluster: str
    node: str
    members: list[str]
    running: list[str]
    nodes: list[MemberDescription]
    partitions: dict[str, list[str]]
    etcd: EtcdStatus | None


ClusterRequest = (
    DescribeCluster | DescribeMember | ForgetNode | JoinCluster | RotateSecret | SetDraining
)
ClusterReply = ClusterStatus | MemberDescription
