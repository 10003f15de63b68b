"""Which nodes should have copies of a mirrored queue, and the next step to that (M27-M29).

All functions are pure, and every node that knows the same comes to the same result. So a policy
that was set and cleared while queues were declared ends where it would have begun.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.mirror_policy import ALL, EXACTLY, NODES, MirrorPolicy

# The preference of a queue for a node: of two nodes, the one with the lower number comes first.
Rank = Callable[[bytes], int]

_RANK_BYTES = 8


@dataclass(frozen=True)
class ClusterNode:
    """A member of the cluster.

    A draining node gets no new copy and keeps its copies until there are enough on other nodes; its
    masters move away.
    """

    is_running: bool = True
    is_draining: bool = False


@dataclass(frozen=True)
class AddMirror:
    """Make a mirror on `node`."""

    node: bytes


@dataclass(frozen=True)
class DropCopy:
    """Give up the copy on `node`, which may be down."""

    node: bytes


@dataclass(frozen=True)
class MoveMaster:
    """Hand mastership over to the mirror on `node`, which is in sync."""

    node: bytes


Step = AddMirror | DropCopy | MoveMaster
Nodes = Mapping[bytes, ClusterNode]


def rank_of(vhost: bytes, queue: bytes) -> Rank:
    """The preferences of a queue; those of many queues spread copies evenly over the nodes."""
    key = b"\0".join((vhost, queue, b""))

    def rank(node: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(key + node, digest_size=_RANK_BYTES).digest())

    return rank


def first_nodes(policy: MirrorPolicy, master: bytes, nodes: Nodes, rank: Rank) -> tuple[bytes, ...]:
    """The nodes for the copies of a new queue, its master's first.

    `master`: the node that the queue's locator has chosen. The master is on another one only if the
    policy wants no copy there, or if that node drains.
    """
    present = () if master in nodes and nodes[master].is_draining else (master,)
    wanted = _chosen(policy, present, master, nodes, rank)
    first = master if master in wanted else wanted[0]
    return (first, *(node for node in wanted if node != first))


def wanted_nodes(policy: MirrorPolicy, group: Group, nodes: Nodes, rank: Rank) -> tuple[bytes, ...]:
    """The running nodes that should have living members, in order of preference.

    Present copies come before new ones, so that nothing is copied without need. There is always one
    node: the master's, if the policy wants none of the running ones.
    """
    synced = {member.id for member in group.synced_mirrors}
    mirrors = sorted(
        group.mirrors, key=lambda each: (each.id not in synced, _order(each.id.node, rank))
    )
    present = [group.master_node, *(each.id.node for each in mirrors)]
    return _chosen(policy, present, group.master_node, nodes, rank)


def next_step(policy: MirrorPolicy, group: Group, nodes: Nodes, rank: Rank) -> Step | None:
    """The next change that the master should propose; None if the copies are where they should be.

    New mirrors come first, then a move of the master, then superfluous copies. The last superfluous
    mirror in sync stays until a wanted one is in sync. None for a group that is down.
    """
    if group.is_down:
        return None
    wanted = wanted_nodes(policy, group, nodes, rank)
    for node in wanted:
        if group.member_of(node) is None:
            return AddMirror(node)
    master = _better_master(group, wanted, nodes)
    if master is not None:
        return MoveMaster(master)
    superfluous = _superfluous(policy, group, wanted, nodes, rank)
    return None if superfluous is None else DropCopy(superfluous)


def _chosen(
    policy: MirrorPolicy, present: Sequence[bytes], master: bytes, nodes: Nodes, rank: Rank
) -> tuple[bytes, ...]:
    """The nodes for copies, at least one; `present` ones in this order, others by rank.

    The master's node runs, whatever `nodes` knows of it by now.
    """
    running = {node for node in nodes if nodes[node].is_running} | {master}
    calm = {node for node in running if not _is_draining(node, nodes)}
    kept = [node for node in present if node in calm]
    new = sorted(calm.difference(present), key=lambda node: _order(node, rank))
    drained = [node for node in present if node in running - calm]
    if policy.mode == EXACTLY:
        wanted = [*kept, *new, *drained][: policy.copies]
    elif policy.mode == ALL:
        wanted = [*kept, *drained, *new]
    elif policy.mode == NODES:
        wanted = [node for node in (*kept, *drained, *new) if node in policy.nodes]
    else:
        wanted = [*kept, *drained][:1]
    return tuple(wanted) or (master,)


def _better_master(group: Group, wanted: Sequence[bytes], nodes: Nodes) -> bytes | None:
    """The node to move the master to; None if it is well where it is, or cannot move yet."""
    master = group.master_node
    if master in wanted and not _is_draining(master, nodes):
        return None
    synced = [each.id.node for each in group.synced_mirrors if each.id.node in wanted]
    calm = [node for node in synced if not _is_draining(node, nodes)]
    if master not in wanted:
        calm.extend(synced)
    return calm[0] if calm else None


def _superfluous(
    policy: MirrorPolicy, group: Group, wanted: Sequence[bytes], nodes: Nodes, rank: Rank
) -> bytes | None:
    """The node whose copy is given up next, None if there is none.

    Copies that are not in sync go first. One on a node that is down stays if the policy may want it
    when the node is back.
    """
    synced = {each.id.node for each in group.synced_mirrors}
    found = sorted(
        (
            node
            for node in group.recoverable
            if node not in (*wanted, group.master_node)
            and (_has_running_member(group, node, nodes) or not _may_return(policy, node))
        ),
        key=lambda node: (node in synced, _order(node, rank)),
    )
    if not found:
        return None
    mirrors = set(wanted) - {group.master_node}
    is_last = found[0] in synced and len(found) == 1
    return None if is_last and mirrors and not mirrors & synced else found[0]


def _has_running_member(group: Group, node: bytes, nodes: Nodes) -> bool:
    return group.member_of(node) is not None and node in nodes and nodes[node].is_running


def _may_return(policy: MirrorPolicy, node: bytes) -> bool:
    return policy.mode in (ALL, EXACTLY) or node in policy.nodes


def _is_draining(node: bytes, nodes: Nodes) -> bool:
    return node in nodes and nodes[node].is_draining


def _order(node: bytes, rank: Rank) -> tuple[int, bytes]:
    return rank(node), node
