"""When a mirror proposes itself as the master, and how (I4)."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from warrenmq.cluster.groups.group import Group, Member
from warrenmq.cluster.groups.mirror_policy import MirrorPolicy
from warrenmq.cluster.groups.succession import fenced_nodes, successor, unsynced_successor
from warrenmq.cluster.groups.transitions import (
    STOPPED,
    Transition,
    died,
    promote,
    promote_unsafe,
)
from warrenmq.cluster.mirrors.replica.host import Fence, ReplicaHost
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.silences import MASTER_SILENT_MS, SILENT_MS


def may_be_unsafe(group: Group, policy: MirrorPolicy) -> bool:
    """Whether `policy` lets a mirror that lacks messages lead when no copy in sync can."""
    if group.is_down and group.reason == STOPPED:
        return policy.promotes_unsynced_on_shutdown
    return policy.promotes_unsynced_on_failure


class Candidacy(NamedTuple):
    """A change that makes this node's mirror the master, or that records the death of the master.

    `fence`: nodes that must not run.
    """

    transition: Transition
    fence: Fence | None


def candidacy(
    group: Group, member: Member, copy: MirrorCopy, host: ReplicaHost, policy: MirrorPolicy
) -> Candidacy | None:
    """What the mirror `member` of this node proposes; None while it is not its turn.

    If the policy allows it (`may_be_unsafe`), and no copy in sync is within reach, one that lacks
    messages may take over once all nodes with complete copies are known not to run. Otherwise the
    group is recorded as down when the master is known not to run, so that everybody sees it (F9).
    """
    master = group.master_member
    if master is not None and not _may_depose(host, master.id.node):
        return None
    down = group if master is None else died(group, master.id)
    if down is None or not copy.is_ready:
        return None
    reachable = _without_draining(
        host,
        down,
        frozenset(
            each.id.node
            for each in down.mirrors
            if each.id == member.id or not _is_gone(host, each.id.node, SILENT_MS)
        ),
    )
    heir = successor(down, reachable)
    is_safe = heir == member
    if not is_safe and not (
        may_be_unsafe(group, policy)
        and unsynced_successor(down, reachable) == member
        and all(host.is_dead(node) for node in fenced_nodes(down, member))
    ):
        if heir is None and master is not None and host.is_dead(master.id.node):
            return Candidacy(partial(died, member=master.id), None)
        return None
    first_seq = copy.next_start(group.prev[-1].first_seq)

    def take_over(newest: Group) -> Group | None:
        # The seq ids were chosen for the epoch after this one.
        if (newest.epoch, newest.master) != (group.epoch, group.master):
            return None
        left = newest if newest.is_down else died(newest, newest.master)
        if left is None:
            return None
        change = promote if is_safe else promote_unsafe
        return change(left, member.id, first_seq, reachable)

    return Candidacy(take_over, None if is_safe else lambda read: fenced_nodes(read, member))


def _without_draining(
    host: ReplicaHost, down: Group, reachable: frozenset[bytes]
) -> frozenset[bytes]:
    """The `reachable` nodes that do not drain, if the best copy there is as good as any other.

    A node that drains would hand the queue over at once.
    """
    staying = frozenset([node for node in reachable if not host.is_draining(node)])
    heir, best = successor(down, staying), successor(down, reachable)
    if heir is None or best is None or (best.copy in down.sync and heir.copy not in down.sync):
        return reachable
    return staying


def _may_depose(host: ReplicaHost, master: bytes) -> bool:
    """Whether the process of a master is dead, or it is silent and this node was not away itself.

    A node that comes back reaches the store, often, before its links are up. Then it finds everyone
    silent. A master that lives has had its time to leave out this node's mirror by the end of that
    of this node.
    """
    if host.is_dead(master):
        return True
    return min(host.silence_ms(master), host.contact_ms()) >= MASTER_SILENT_MS


def _is_gone(host: ReplicaHost, node: bytes, silent_ms: int) -> bool:
    return host.is_dead(node) or host.silence_ms(node) >= silent_ms
