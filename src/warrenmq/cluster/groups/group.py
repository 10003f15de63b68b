"""The record of a mirrored queue's group: members in ring order, master, copies in sync (M46).

The record is part of the queue's definition in the store of the cluster. `transitions.py` makes
every change of it; the store refuses a change that was made from an older record.
"""

from __future__ import annotations

import functools
import itertools
from typing import Final

import msgspec

from warrenmq.broker.definitions.metadata import MetadataDamaged
from warrenmq.cluster.ring.view import MemberId

# Versions, epochs and sequence numbers stay below it.
_NUMBER_LIMIT: Final = 1 << 63


class Copy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A copy of a queue: in directory `replica_id` of `node`, in one run of the node (I6).

    A new data directory has another `replica_id`. `incarnation` changes at each start: persistent
    messages outlive a restart, transient ones do not.
    """

    node: bytes
    replica_id: str
    incarnation: str


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A member of the ring; a dead one keeps its place until the ring has erased it."""

    id: MemberId
    replica_id: str
    incarnation: str
    is_alive: bool

    @property
    def copy(self) -> Copy:
        """The copy that the member serves."""
        return Copy(self.id.node, self.replica_id, self.incarnation)


class EpochStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first sequence number that the master of an epoch gives out."""

    epoch: int
    first_seq: int


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The group of a mirrored queue.

    `version` rises with every change, `epoch` with every change of the master. `members`: in ring
    order, dead ones included. `master` may name a dead or an erased member; then the group is down,
    and the master's node is the queue's home. `slaves`: the other living members, in the order in
    which they joined. `sync`: the copies with every confirmed message, at most one of a node, the
    master's among them. `recoverable`: the nodes that have or had a copy. `prev`: the latest
    epochs; one without a start had a home only. `reason`: why the master is master, or why there is
    none (the constants of `transitions.py`).
    """

    version: int
    epoch: int
    members: tuple[Member, ...]
    master: MemberId
    slaves: tuple[MemberId, ...]
    sync: tuple[Copy, ...]
    recoverable: tuple[bytes, ...]
    prev: tuple[EpochStart, ...]
    reason: str

    # -- members -----------------------------------------------------------------------------------

    @property
    def master_node(self) -> bytes:
        """The node of the master, or the home of a group that is down."""
        return self.master.node

    @property
    def is_down(self) -> bool:
        """Whether the group waits for a promotion."""
        return self.master_member is None

    @property
    def master_member(self) -> Member | None:
        """The master, None if the group is down."""
        found = self.member(self.master)
        return found if found is not None and found.is_alive else None

    @property
    def living(self) -> tuple[Member, ...]:
        """The living members, in ring order."""
        return tuple(member for member in self.members if member.is_alive)

    @property
    def mirrors(self) -> tuple[Member, ...]:
        """The living members but for the master, oldest first."""
        by_id = {member.id: member for member in self.members}
        return tuple(by_id[id] for id in self.slaves)

    def member(self, id: MemberId) -> Member | None:
        """The member `id`, living or not; None if the group has none."""
        return next((member for member in self.members if member.id == id), None)

    def member_of(self, node: bytes) -> Member | None:
        """The living member on `node`, None if there is none."""
        return next(
            (member for member in self.members if member.id.node == node and member.is_alive), None
        )

    # -- copies in sync ----------------------------------------------------------------------------

    @property
    def synced_mirrors(self) -> tuple[Member, ...]:
        """The mirrors that are in sync for all messages, oldest first."""
        return tuple(member for member in self.mirrors if member.copy in self.sync)

    def synced_copy(self, node: bytes, replica_id: str) -> Copy | None:
        """The copy in sync of this data directory; its incarnation may be an earlier one."""
        return next(
            (each for each in self.sync if (each.node, each.replica_id) == (node, replica_id)), None
        )

    def is_synced(self, node: bytes, replica_id: str) -> bool:
        """Whether this data directory has at least every confirmed persistent message (I6)."""
        return self.synced_copy(node, replica_id) is not None


def encode_group(group: Group) -> bytes:
    """The JSON text of a group; names of nodes are base64 in it, as in other definitions."""
    return msgspec.json.encode(group)


# A change of a group is decoded several times, by who follows it and by who proposes the next.
@functools.lru_cache(maxsize=1024)
def decode_group(value: bytes) -> Group:
    """The group in a JSON text. Raises MetadataDamaged if it is none."""
    try:
        group = msgspec.json.decode(value, type=Group)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataDamaged(f"the group of a mirrored queue: {error}") from None
    fault = fault_of(group)
    if fault:
        raise MetadataDamaged(f"the group of a mirrored queue: {fault}")
    return group


def fault_of(group: Group) -> str:
    """The fault of a group that no transition can have made; "" if it has none."""
    return _fault_of_numbers(group) or _fault_of_members(group) or _fault_of_copies(group)


def _fault_of_numbers(group: Group) -> str:
    if not (0 < group.version < _NUMBER_LIMIT and 0 < group.epoch <= group.version):
        return "a version or an epoch out of range"
    starts = group.prev
    if not starts or not (starts[0].epoch > 0 and starts[-1].epoch <= group.epoch):
        return "epochs that do not lead to its own"
    if not (starts[0].first_seq >= 0 and starts[-1].first_seq < _NUMBER_LIMIT):
        return "a sequence number out of range"
    for one, other in itertools.pairwise(starts):
        if one.epoch >= other.epoch or one.first_seq > other.first_seq:
            return "epochs out of order"
    return ""


def _fault_of_members(group: Group) -> str:
    versions = {member.id.version for member in group.members}
    if len(versions) < len(group.members):
        return "two members that joined with one version"
    if any(not 0 < version <= group.version for version in {*versions, group.master.version}):
        return "a member of a later version"
    nodes = [member.id.node for member in group.living]
    if len(set(nodes)) < len(nodes):
        return "two living members on one node"
    if group.slaves != slaves_of(group.members, group.master):
        return "other slaves than its living mirrors"
    return ""


def _fault_of_copies(group: Group) -> str:
    nodes = [each.node for each in group.sync]
    if len(set(nodes)) < len(nodes):
        return "two copies in sync on one node"
    if len(set(group.recoverable)) < len(group.recoverable):
        return "a recoverable node twice"
    with_copies = {*nodes, *(member.id.node for member in group.living), group.master.node}
    if b"" in with_copies or not with_copies <= set(group.recoverable):
        return "a copy on a node that is not recoverable"
    master = group.master_member
    if master is not None and master.copy not in group.sync:
        return "a master that is not in sync"
    if group.master.node not in nodes:
        return "a home without a copy in sync"
    return ""


def slaves_of(members: tuple[Member, ...], master: MemberId) -> tuple[MemberId, ...]:
    """The living members but for the master, in the order in which they joined."""
    return tuple(sorted(member.id for member in members if member.is_alive and member.id != master))
