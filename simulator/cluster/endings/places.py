"""Finds a mirrored queue that a history disturbs at its end, alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simulator.cluster.recording.recording import life_name
from simulator.cluster.world import World
from simulator.leaving.histories import QueueRules
from warrenmq.cluster.groups.group_change import group_of


class Place(NamedTuple):
    """A queue: its name, that of its life, its master's node, and that of a mirror in sync."""

    queue: bytes
    life: str
    master: str
    mirror: str


def find_place(world: World, is_fit: Callable[[QueueRules], bool]) -> Place | None:
    """A durable queue with a mirror in sync, whose rules fit; None if there is none."""
    found = []
    for put in world.model.load().queues:
        group = group_of(put)
        rules = world.recording.promises.of(put.name.decode())
        if rules.expires_ms or not is_fit(rules):
            continue
        if group is not None and put.durable and group.synced_mirrors:
            found.append((put, group))
    if not found:
        return None
    put, group = world.rng.choice(found)
    mirror = world.rng.choice(group.synced_mirrors)
    life = life_name(put.name, put.birth)
    return Place(put.name, life, group.master_node.decode(), mirror.id.node.decode())
