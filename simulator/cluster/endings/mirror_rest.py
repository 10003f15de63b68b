"""Mirrored queues of a cluster at rest: what must be true of groups and of copies."""

from __future__ import annotations

import zlib
from typing import Final

from simulator.checker.events import CopyMessage
from simulator.cluster.member import Member as Node
from simulator.cluster.recording.letters import message_name
from simulator.cluster.recording.recording import life_name
from simulator.cluster.world import World
from simulator.models.messages import Violation
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group import Group, Member
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import next_step, rank_of
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.cluster.mirrors.place import MirrorPlace
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.sync.reader import FoundMessage, SyncReader

# Messages that one read brings at most.
_BATCH: Final = 64
_STEP_MS: Final = 5
# Steps in which a copy must be read.
_STEPS_MAX: Final = 2000
# Messages whose time ends within this (ms) may leave while the copies are read.
_SOON_MS: Final = 60_000
# The seq ids of a level are its own.
_LEVEL_SHIFT: Final = 56


def mirror_unrest(world: World) -> str:
    """The work that mirrored queues still have while all nodes run; "" if they are at rest."""
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
    """Record the messages of all copies in sync, without those that expire soon.

    Only dead letters may arrive meanwhile: messages that come while a queue's copies are read are
    left out as well. Violation if copies differ in the time of a message.
    """
    soon_ms = world.now_ms + _SOON_MS
    for put in world.model.load().queues:
        group = group_of(put)
        if group is not None:
            life = life_name(put.name, put.birth)
            times: dict[int, int] = {}
            settled = _settled_ends(world, put)
            if settled is None:
                continue
            group, ends = settled
            for member in sorted(group.living, key=lambda each: each.id != group.master):
                if member.copy in group.sync:
                    name = member.id.node.decode()
                    place = place_of(world.members[name], put)
                    assert place is not None
                    found = _read(world, place, ends)
                    for seq, one in found.items():
                        if times.setdefault(seq, int(one.expiry_ms)) != one.expiry_ms:
                            text = f"{one.expiry_ms} on {name}, and {times[seq]} on the master"
                            raise Violation("timers", f"message {seq} of {life} ends at {text}")
                    messages = tuple(
                        _reported(seq, one)
                        for seq, one in found.items()
                        if not 0 < one.expiry_ms < soon_ms
                    )
                    world.recording.copied(life, name, messages)


def _reported(seq: int, one: FoundMessage) -> CopyMessage:
    message = one.message
    name = message_name(message.properties, message.body)
    return CopyMessage(seq, name, zlib.crc32(message.body), one.is_redelivered)


def _settled_ends(world: World, put: PutQueue) -> tuple[Group, dict[int, int]] | None:
    """Await the moment when all copies in sync are alike; returns the group and the levels' ends.

    The ends are the seq ids behind the last messages of the master. Dead letters of another queue
    may arrive at any time, and a mirror has them a little later. None: the queue expires meanwhile.
    """
    for _ in range(_STEPS_MAX):
        now = next((each for each in world.model.load().queues if each.birth == put.birth), None)
        if now is None:
            return None
        group = group_of(now)
        assert group is not None
        home = place_of(world.members[group.master_node.decode()], put)
        if not any(
            _unrest_of_copy(
                place_of(world.members[member.id.node.decode()], put), home, group, member, True
            )
            for member in group.members
            if member.copy in group.sync
        ):
            assert home is not None and home.replica.copy is not None
            queue = home.replica.copy.queue
            return group, {
                int(queue.level_of(each.ledger)): int(each.ledger.next_seq)
                for each in queue.backings()
            }
        world.advance(_STEP_MS, _STEP_MS)
    raise Violation("stuck", f"the copies of {put.name.decode()} do not become alike")


def _read(world: World, place: MirrorPlace, ends: dict[int, int]) -> dict[int, FoundMessage]:
    """Messages of a copy below the `ends` of its levels, in order, by level and seq id."""
    copy = place.replica.copy
    assert copy is not None
    all_found: dict[int, FoundMessage] = {}
    for backing in copy.queue.backings():
        found: list[FoundMessage] = []
        level = int(copy.queue.level_of(backing.ledger))
        # A level may have had its first message since.
        reader = SyncReader(backing, 1, ends.get(level, 0), _BATCH)
        for _ in range(_STEPS_MAX):
            if not reader.is_loading:
                if reader.is_over():
                    break
                reader.read(found.extend)
            world.advance(_STEP_MS, _STEP_MS)
        else:
            raise Violation("stuck", f"{place.name.decode()} cannot be read")
        all_found.update({(level << _LEVEL_SHIFT) + int(one.seq): one for one in found})
    return all_found
