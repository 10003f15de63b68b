"""Mirrored queues of a cluster at rest: what must be true of groups and of copies."""

from __future__ import annotations

import zlib
from typing import Final

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group import Group, Member
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import next_step, rank_of
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.replicas import MirrorPlace
from warrenmq.cluster.mirrors.sync_reader import FoundMessage, SyncReader
from warrenmq.testing.checker.events import CopyMessage
from warrenmq.testing.cluster.member import Member as Node
from warrenmq.testing.cluster.recording import life_name, message_name
from warrenmq.testing.cluster.world import World
from warrenmq.testing.models.messages import Violation

# Messages that one read brings at most.
_BATCH: Final = 64
_STEP_MS: Final = 5
# Steps in which a copy must be read.
_STEPS_MAX: Final = 2000


def mirror_unrest(world: World) -> str:
    """What mirrored queues are not done with, while all nodes run; "" if they are at rest."""
    if len(world.members) < len(world.names):
        # Copies that are needed may be on the nodes that do not run.
        return ""
    nodes = KnownNodes()
    nodes.set_running({name.decode(): run.record for name, run in world.model.running.items()})
    for put in world.model.load().queues:
        group = group_of(put)
        unrest = "" if group is None else _unrest_of(world, put, group, nodes)
        if unrest:
            return f"{life_name(put.name, put.birth)}: {unrest}"
    return ""


def _unrest_of(world: World, put: PutQueue, group: Group, nodes: KnownNodes) -> str:
    if group.is_down:
        return f"has no master ({group.reason})"
    if len(group.members) > len(group.living):
        return "the ring has dead members"
    home = world.members[group.master_node.decode()]
    policy = policy_of(home.vhost, put)
    step = next_step(policy, group, nodes.by_name, rank_of(put.vhost, put.name))
    if step is not None or not policy.is_mirrored:
        return f"{step} is not done"
    for member in group.members:
        place = place_of(world.members[member.id.node.decode()], put)
        unrest = _unrest_of_copy(place, place_of(home, put), group, member, policy.is_automatic)
        if unrest:
            return f"the copy on {member.id.node.decode()} {unrest}"
    return ""


def _unrest_of_copy(
    place: MirrorPlace | None,
    home: MirrorPlace | None,
    group: Group,
    member: Member,
    must_be_in_sync: bool,
) -> str:
    if place is None or place.replica.group != group or place.replica.me != member.copy:
        return "has not followed its group"
    master = None if home is None else home.replica.master
    if master is None:
        return "has no master"
    if member.copy not in group.sync:
        source = master.sources.get(member.id.node)
        is_cancelled = source is not None and source.is_waiting and not source.is_automatic
        return "is not in sync" if must_be_in_sync and not is_cancelled else ""
    mirror = place.replica.mirror
    if place is not home and (
        mirror is None or mirror.marks.durable_upto != master.feed.taken_count
    ):
        return "lacks something of its master"
    return ""


def place_of(node: Node, put: PutQueue) -> MirrorPlace | None:
    """The place of a mirrored queue on a node."""
    return node.mirroring.replicas.places.get(place_key(put))


def report_copies(world: World) -> None:
    """Record what all copies in sync have; nothing may change meanwhile."""
    for put in world.model.load().queues:
        group = group_of(put)
        if group is not None:
            life = life_name(put.name, put.birth)
            for member in sorted(group.living, key=lambda each: each.id != group.master):
                if member.copy in group.sync:
                    name = member.id.node.decode()
                    place = place_of(world.members[name], put)
                    assert place is not None
                    world.recording.copied(life, name, _read(world, place))


def _read(world: World, place: MirrorPlace) -> tuple[CopyMessage, ...]:
    """All messages of a copy, in order."""
    copy = place.replica.copy
    assert copy is not None
    found: list[FoundMessage] = []
    for backing in copy.queue.backings():
        reader = SyncReader(backing, 1, backing.ledger.next_seq, _BATCH)
        for _ in range(_STEPS_MAX):
            if not reader.is_loading:
                if reader.is_over():
                    break
                reader.read(found.extend)
            world.advance(_STEP_MS, _STEP_MS)
        else:
            raise Violation("stuck", f"{place.name.decode()} cannot be read")
    return tuple(
        CopyMessage(
            int(one.seq),
            message_name(one.message.body),
            zlib.crc32(one.message.body),
            one.is_redelivered,
        )
        for one in found
    )
