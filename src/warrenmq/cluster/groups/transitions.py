"""The changes of a group, one function each.

Each function takes a group and returns the changed one, or None if the change is not allowed in
that state. Several make one change when they are chained (`chained`). The caller writes the result
on condition that the store still has the group that it started from; whoever loses that race reads
the group again and decides anew.

A change that only a master may make takes `by`, and is refused to any other: so a deposed master
cannot shrink the set of copies that its confirms wait for (I2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from warrenmq.cluster.groups.group import (
    Copy,
    EpochStart,
    Group,
    Member,
    slaves_of,
)
from warrenmq.cluster.groups.succession import successor, unsynced_successor
from warrenmq.cluster.ring.view import MemberId

# Values of `Group.reason`: why the master is master.
DECLARED: Final = "declared"
PROMOTED: Final = "promoted"
UNSYNCED: Final = "unsynced"
TRANSFERRED: Final = "transferred"
# Why the group is down.
DIED: Final = "died"
STOPPED: Final = "stopped"
RESTARTED: Final = "restarted"
FORGOTTEN: Final = "forgotten"

# Epochs that a group remembers; a copy of an earlier epoch is copied anew.
EPOCHS_KEPT: Final = 64

Transition = Callable[[Group], Group | None]


class Mastership(NamedTuple):
    """A node that acts as the master of an epoch."""

    node: bytes
    epoch: int


def chained(group: Group | None, *transitions: Transition) -> Group | None:
    """The group after all transitions, None if one of them is not allowed."""
    for transition in transitions:
        if group is None:
            return None
        group = transition(group)
    return group


# -- members ---------------------------------------------------------------------------------------


def create(master: Copy, mirrors: Sequence[Copy] = (), first_seq: int = 0, epoch: int = 1) -> Group:
    """The group of a new queue; its `mirrors`, on other nodes, are in sync: the queue is empty.

    The members have joined one after the other: the version is their number, or `epoch` if that is
    higher. A queue that was mirrored before begins above the last epoch that its copy has seen.
    """
    copies = (master, *mirrors)
    members = tuple(_member(number, copy) for number, copy in enumerate(copies, 1))
    first = members[0].id
    return Group(
        version=max(len(members), epoch),
        epoch=epoch,
        members=members,
        master=first,
        slaves=slaves_of(members, first),
        sync=copies,
        recoverable=tuple(copy.node for copy in copies),
        prev=(EpochStart(epoch, first_seq),),
        reason=DECLARED,
    )


def join(group: Group, copy: Copy, right_of: MemberId | None = None) -> Group | None:
    """Add a mirror to the right of a living member, not in sync (M48, M50).

    `right_of`: by default the master, or the youngest mirror of a group that is down. Refused while
    the node has a living member, or if the chosen member is dead.
    """
    if group.member_of(copy.node) is not None:
        return None
    place = _place(group, right_of)
    if place is None:
        return None
    member = _member(group.version + 1, copy)
    return _changed(
        group,
        members=(*group.members[:place], member, *group.members[place:]),
        recoverable=(*_without(group.recoverable, copy.node), copy.node),
    )


def rejoin(group: Group, copy: Copy, right_of: MemberId | None = None) -> Group | None:
    """Add a new member for a node that has restarted; its member of the earlier run is dead.

    A copy of the earlier run that is in sync stays so, for persistent messages (I6), until the
    master records otherwise. Refused to a node whose copy the group has given up: the node deletes
    it; and to a copy that is a living member already.
    """
    if copy.node not in group.recoverable:
        return None
    earlier = group.member_of(copy.node)
    if earlier is None:
        return join(group, copy, right_of)
    if earlier.copy == copy:
        return None
    reason = RESTARTED if earlier.id == group.master else group.reason
    buried = _changed(group, members=_buried(group, copy.node), reason=reason)
    return join(buried, copy, right_of)


def died(group: Group, member: MemberId, reason: str = DIED) -> Group | None:
    """Record the death of a living member; its copy stays in sync, as it may come back (M53).

    The death of the master takes the group down, for `reason`.
    """
    found = group.member(member)
    if found is None or not found.is_alive:
        return None
    reason = reason if member == group.master else group.reason
    return _changed(group, members=_buried(group, member.node), reason=reason)


def bury(group: Group, by: Mastership, member: MemberId) -> Group | None:
    """Record the death of a mirror that its master does not hear any more.

    Refused to a deposed master: coming back, it may reach the store before the other nodes, which
    it takes for dead.
    """
    return died(group, member) if _is_master(group, by) else None


def erase(group: Group, member: MemberId) -> Group | None:
    """Remove a dead member: nothing of it is in flight any more on the ring."""
    found = group.member(member)
    if found is None or found.is_alive:
        return None
    return _changed(group, members=tuple(each for each in group.members if each.id != member))


def drop(group: Group, by: Mastership, node: bytes) -> Group | None:
    """Give up the copy on `node`, running or not: the policy does not want it any more.

    Its member is dead, and the node deletes the copy. Refused for the master's own copy.
    """
    if not _is_master(group, by) or node == by.node or node not in group.recoverable:
        return None
    return _given_up(group, node)


# -- copies in sync --------------------------------------------------------------------------------


def in_sync(group: Group, by: Mastership, copy: Copy) -> Group | None:
    """Record that a living mirror has everything that the master has (I3)."""
    member = group.member_of(copy.node)
    if not _is_master(group, by) or copy in group.sync:
        return None
    if member is None or member.copy != copy:
        return None
    return _changed(group, sync=(*_others(group.sync, copy.node), copy))


def out_of_sync(group: Group, by: Mastership, copy: Copy) -> Group | None:
    """Record that confirms no longer wait for a copy other than the master's (I2)."""
    if not _is_master(group, by) or copy not in group.sync or copy.node == by.node:
        return None
    return _changed(group, sync=_others(group.sync, copy.node))


# -- the master ------------------------------------------------------------------------------------


def promote(
    group: Group, candidate: MemberId, first_seq: int, reachable: Collection[bytes]
) -> Group | None:
    """Make a mirror the master of a group that is down (I4).

    Refused to all but the `successor` on the `reachable` nodes. The other copies stay in sync: no
    message is confirmed without them until the new master records otherwise. `first_seq`: the first
    sequence number of the new epoch; refused if the last epoch began above it. A copy that force
    takes for complete (`forget_node`) stays UNSYNCED: it may lack messages.
    """
    member = successor(group, reachable)
    if not group.is_down or member is None or member.id != candidate:
        return None
    sync = (*_others(group.sync, candidate.node), member.copy)
    reason = UNSYNCED if group.reason == UNSYNCED else PROMOTED
    return _crowned(group, candidate, first_seq, sync, reason)


def promote_unsafe(
    group: Group, candidate: MemberId, first_seq: int, reachable: Collection[bytes]
) -> Group | None:
    """Make a mirror that is not in sync the master: messages of the other copies are lost.

    The caller has made sure that none of `fenced_nodes` runs. Refused to all but the
    `unsynced_successor` on the `reachable` nodes. `first_seq` is as for `promote`.
    """
    member = unsynced_successor(group, reachable)
    if not group.is_down or member is None or member.id != candidate:
        return None
    return _crowned(group, candidate, first_seq, (member.copy,), UNSYNCED)


def transfer(
    group: Group, by: Mastership, to: MemberId, first_seq: int, is_level: bool
) -> Group | None:
    """Hand mastership over to a mirror in sync; the old master becomes a mirror.

    `is_level`: the old master has nothing that the new one lacks, so its copy stays in sync.
    `first_seq` is as for `promote`.
    """
    if not _is_master(group, by):
        return None
    if all(member.id != to for member in group.synced_mirrors):
        return None
    sync = group.sync if is_level else _others(group.sync, by.node)
    return _crowned(group, to, first_seq, sync, TRANSFERRED)


def forget_node(group: Group, node: bytes, is_forced: bool = False) -> Group | None:
    """Give up the copy on a node that leaves the cluster and does not run.

    If it was the home of the group, another node with a copy in sync becomes the home of a group
    that is down; the copy there is promoted as after a death. The new home counts as an epoch.
    Refused if no other copy is complete (`is_only_complete_copy`). `is_forced` then takes the best
    remaining copy for complete; None means that there is none, and the queue cannot be kept. Also
    refused if the group knows no copy on the node.
    """
    if node not in group.recoverable:
        return None
    rest = _given_up(group, node)
    if node != group.master.node:
        return rest
    heir = successor(rest, rest.recoverable)
    sync, reason = rest.sync, FORGOTTEN
    if heir is not None:
        home = heir.id.node
    elif sync:
        home = sync[0].node
    else:
        copy = _best_copy(rest) if is_forced else None
        if copy is None:
            return None
        home, sync, reason = copy.node, (copy,), UNSYNCED
    # The id is no member's, so that the group is down.
    master = MemberId(rest.version, home)
    return replace(
        rest,
        epoch=rest.epoch + 1,
        master=master,
        slaves=slaves_of(rest.members, master),
        sync=sync,
        reason=reason,
    )


# -- parts of transitions --------------------------------------------------------------------------


def _is_master(group: Group, by: Mastership) -> bool:
    return not group.is_down and by == (group.master.node, group.epoch)


def _changed(
    group: Group,
    members: tuple[Member, ...] | None = None,
    sync: tuple[Copy, ...] | None = None,
    recoverable: tuple[bytes, ...] | None = None,
    reason: str | None = None,
) -> Group:
    members = group.members if members is None else members
    return replace(
        group,
        version=group.version + 1,
        members=members,
        slaves=slaves_of(members, group.master),
        sync=group.sync if sync is None else sync,
        recoverable=group.recoverable if recoverable is None else recoverable,
        reason=group.reason if reason is None else reason,
    )


def _crowned(
    group: Group, master: MemberId, first_seq: int, sync: tuple[Copy, ...], reason: str
) -> Group | None:
    if first_seq < group.prev[-1].first_seq:
        return None
    epoch = group.epoch + 1
    return replace(
        group,
        version=group.version + 1,
        epoch=epoch,
        master=master,
        slaves=slaves_of(group.members, master),
        sync=sync,
        prev=(*group.prev, EpochStart(epoch, first_seq))[-EPOCHS_KEPT:],
        reason=reason,
    )


def _given_up(group: Group, node: bytes) -> Group:
    return _changed(
        group,
        members=_buried(group, node),
        sync=_others(group.sync, node),
        recoverable=_without(group.recoverable, node),
    )


def _best_copy(group: Group) -> Copy | None:
    """The copy of the oldest mirror, or of the dead member that joined last."""
    if group.slaves:
        return group.mirrors[0].copy
    dead = [each for each in group.members if each.id.node in group.recoverable]
    return max(dead, key=lambda each: each.id).copy if dead else None


def _member(version: int, copy: Copy) -> Member:
    return Member(MemberId(version, copy.node), copy.replica_id, copy.incarnation, True)


def _place(group: Group, right_of: MemberId | None) -> int | None:
    """The index for a newcomer, None if the member to its left is dead.

    The dead members between two living ones are aliases of the right one, so a newcomer stands
    directly to the right of a living member.
    """
    if right_of is None:
        living = group.living
        if not living:
            return len(group.members)
        right_of = group.slaves[-1] if group.is_down else group.master
    for index, member in enumerate(group.members):
        if member.id == right_of:
            return index + 1 if member.is_alive else None
    return None


def _buried(group: Group, node: bytes) -> tuple[Member, ...]:
    return tuple(
        replace(member, is_alive=False) if member.id.node == node and member.is_alive else member
        for member in group.members
    )


def _others(sync: tuple[Copy, ...], node: bytes) -> tuple[Copy, ...]:
    return tuple(each for each in sync if each.node != node)


def _without(nodes: tuple[bytes, ...], node: bytes) -> tuple[bytes, ...]:
    return tuple(each for each in nodes if each != node)
