"""Who becomes master of a group that is down, and who must not run when a copy is incomplete."""

from __future__ import annotations

from collections.abc import Collection

from warrenmq.cluster.groups.group import Group, Member


def successor(group: Group, reachable: Collection[bytes]) -> Member | None:
    """The mirror to promote: the oldest one in sync on a `reachable` node (M17, I4).

    A mirror whose node has restarted has persistent messages only, so it comes after all others
    (I6). None if no reachable mirror is in sync.
    """
    mirrors = [member for member in group.mirrors if member.id.node in reachable]
    for member in mirrors:
        if member.copy in group.sync:
            return member
    for member in mirrors:
        if group.is_synced(member.id.node, member.replica_id):
            return member
    return None


def unsynced_successor(group: Group, reachable: Collection[bytes]) -> Member | None:
    """The mirror to promote with messages missing: the oldest one on a `reachable` node.

    None if a mirror in sync is reachable, which comes first, or no mirror at all.
    """
    if successor(group, reachable) is not None:
        return None
    return next((member for member in group.mirrors if member.id.node in reachable), None)


def fenced_nodes(group: Group, candidate: Member) -> frozenset[bytes]:
    """The nodes that must not run while `candidate`, which is not in sync, is promoted.

    They are the home of the group and the nodes of all copies in sync. The candidate's own node is
    not among them: what it had before is gone, or the candidate would be in sync.
    """
    nodes = {group.master.node, *(each.node for each in group.sync)}
    return frozenset(nodes - {candidate.id.node})


def is_only_complete_copy(group: Group, node: bytes) -> bool:
    """Whether `node` has a copy in sync and no other node has one."""
    return {each.node for each in group.sync} == {node}
