"""Disturbs a mirrored queue that is only consumed, with consumers on all sides.

The cluster is at rest when it begins. A fault may change the master once, whatever its clients do
meanwhile. What they were handed, and by whom, is judged as in the whole history: no firm ack is
undone, no two masters hand out side by side, nothing comes twice unmarked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.cluster.endings.places import Place, find_place
from simulator.cluster.endings.rest import rest
from simulator.cluster.recording.features import (
    DEAD_MIRRORS,
    DEAF_MASTER,
    ETCD_PAUSE,
    FROZEN_MASTER,
    HAND_OVERS,
    HEAL_ETCD_FIRST,
    HEAL_LINKS_FIRST,
    KILLED_MASTER,
    LOST_LEASE,
    MUTE_MASTER,
    PARTED_MASTER,
    QUIET_RETURN,
    SILENT_MASTER,
    TWO_DEATHS,
)
from simulator.cluster.spark.feeding import Feeding
from simulator.cluster.world import World
from simulator.leaving.histories import QueueRules
from simulator.models.messages import Violation
from simulator.simulated.file_system import KILL, POWER

# Messages that the queue has at the beginning.
_MESSAGES: Final = 150
# How long the consumers work before the fault, and when all is well again (ms).
_BEFORE_MS: Final = 1000
_AFTER_MS: Final = 4000


class Act(NamedTuple):
    """Something that happens while the consumers work, who then go on for a time (ms).

    `is_quiet`: they do nothing in this time. Before they come first, no copy can miss anything.
    """

    run: Callable[[World, Place], None]
    then_ms: tuple[int, ...]
    is_quiet: bool = False


class Script(NamedTuple):
    """The acts of a fault, and how often it may change the master."""

    changes_max: int
    acts: tuple[Act, ...]


def run_parting(world: World, kind: str) -> None:
    """Run a fault while clients consume; Violation if the master has changed too often."""
    place = find_place(world, keeps_all)
    if place is None:
        return
    recording, script = world.recording, SCRIPTS[kind]
    recording.tell(f"parting: {kind}, {place}")
    feeding = Feeding(world, place.queue, "party")
    feeding.publish(place.master, _MESSAGES)
    rest(world)
    feeding.run(_BEFORE_MS, script.acts[0].is_quiet)
    if not world.members[place.master].vhost.queues[place.queue].ready_count:
        # Another consumer has had all: no copy misses anything, and each of them may lead.
        feeding.end()
        rest(world)
        return
    before = recording.reigns.changes(place.life)
    name = recording.fault(kind, place.master)
    for act in script.acts:
        recording.tell(f"{world.now_ms % 10_000_000} {act.run.__name__.lstrip('_')}")
        act.run(world, place)
        world.pump()
        feeding.run(world.rng.choice(act.then_ms), act.is_quiet)
    for each in world.names:
        world.start(each)
    feeding.run(_AFTER_MS)
    rest(world)
    recording.fault_over(name)
    feeding.end()
    rest(world)
    changes = recording.reigns.changes(place.life) - before
    if changes > script.changes_max and not world.mirrors.has_unsafe_policy:
        raise Violation("flip-flop", f"{place.life} has changed its master {changes} times")
    recording.counts["partings"] += 1


def keeps_all(rules: QueueRules) -> bool:
    """Whether messages stay in a queue until they are consumed."""
    return not rules.has_limit() and not rules.ttl_ms


def _others(world: World, name: str) -> list[str]:
    return [other for other in world.names if other != name]


def _cut(world: World, sender: str, receiver: str) -> None:
    path = world.network.path(sender, receiver)
    path.is_cut[path.names.index(sender)] = True


def _mute(world: World, place: Place) -> None:
    for other in _others(world, place.master):
        _cut(world, place.master, other)


def _deafen(world: World, place: Place) -> None:
    for other in _others(world, place.master):
        _cut(world, other, place.master)


def _part(world: World, place: Place) -> None:
    _mute(world, place)
    _deafen(world, place)


def _isolate(world: World, place: Place) -> None:
    _part(world, place)
    _cut_from_etcd(world, place)


def _isolate_mirror(world: World, place: Place) -> None:
    _isolate(world, place._replace(master=place.mirror))


def _heal_links(world: World, _place: Place) -> None:
    for path in world.network.paths.values():
        path.heal()


def _cut_from_etcd(world: World, place: Place) -> None:
    world.cut_from_etcd.add(place.master)


def _heal_etcd(world: World, _place: Place) -> None:
    world.cut_from_etcd.clear()


def _pause_etcd(world: World, _place: Place) -> None:
    world.model.is_paused = True


def _resume_etcd(world: World, _place: Place) -> None:
    world.resume_etcd()


def _freeze_master(world: World, place: Place) -> None:
    world.members[place.master].is_frozen = True


def _wake_master(world: World, place: Place) -> None:
    member = world.members[place.master]
    member.is_frozen = False
    member.has_news = True


def _kill(world: World, place: Place) -> None:
    world.crash(place.master, KILL, False)


def _silence(world: World, place: Place) -> None:
    world.crash(place.master, POWER, True)


def _kill_mirrors(world: World, place: Place) -> None:
    for other in _others(world, place.master):
        world.crash(other, KILL, False)


def _start_mirror(world: World, place: Place) -> None:
    world.start(place.mirror)


def _start_master(world: World, place: Place) -> None:
    world.start(place.master)


def _kill_next_master(world: World, place: Place) -> None:
    for name, member in list(world.members.items()):
        if place.queue in member.vhost.queues:
            world.crash(name, KILL, False)


def _hand_over(world: World, place: Place) -> None:
    """Let the master hand over to a mirror in sync."""
    for member in world.members.values():
        for each in member.mirroring.replicas.places.values():
            master, group = each.replica.master, each.replica.group
            if each.name == place.queue and master is not None and group is not None:
                mirrors = group.synced_mirrors
                if mirrors:
                    master.hand_over(world.rng.choice(mirrors).id.node)
                    member.has_news = True


# Longer than the silence after which a mirror takes over; longer than a lease too.
_SILENCE_MS: Final = (6000, 9000)
_LONG_MS: Final = (12_000, 18_000)
_LAG_MS: Final = (500, 3000, 7000)
# By kind.
SCRIPTS: Final = {
    PARTED_MASTER: Script(1, (Act(_part, (8000, 25_000)), Act(_heal_links, _LAG_MS))),
    HEAL_ETCD_FIRST: Script(
        1, (Act(_isolate, _LONG_MS), Act(_heal_etcd, _LAG_MS), Act(_heal_links, _LAG_MS))
    ),
    HEAL_LINKS_FIRST: Script(
        1, (Act(_isolate, _LONG_MS), Act(_heal_links, _LAG_MS), Act(_heal_etcd, _LAG_MS))
    ),
    MUTE_MASTER: Script(1, (Act(_mute, _SILENCE_MS), Act(_heal_links, _LAG_MS))),
    DEAF_MASTER: Script(1, (Act(_deafen, _SILENCE_MS), Act(_heal_links, _LAG_MS))),
    LOST_LEASE: Script(1, (Act(_cut_from_etcd, _LONG_MS), Act(_heal_etcd, _LAG_MS))),
    ETCD_PAUSE: Script(0, (Act(_pause_etcd, _LONG_MS), Act(_resume_etcd, _LAG_MS))),
    FROZEN_MASTER: Script(1, (Act(_freeze_master, (5000, 15_000)), Act(_wake_master, _LAG_MS))),
    KILLED_MASTER: Script(1, (Act(_kill, _LAG_MS), Act(_start_master, _LAG_MS))),
    SILENT_MASTER: Script(1, (Act(_silence, _SILENCE_MS), Act(_start_master, _LAG_MS))),
    DEAD_MIRRORS: Script(
        0,
        (
            Act(_kill_mirrors, _LONG_MS),
            Act(_kill, (500,)),
            # Longer than the lease of the master, which is dead then for sure.
            Act(_start_mirror, _LONG_MS),
            Act(_start_master, (2000,)),
        ),
    ),
    TWO_DEATHS: Script(
        2,
        (Act(_kill, (300, 2000)), Act(_kill_next_master, _LAG_MS), Act(_start_master, _LAG_MS)),
    ),
    # The mirror lacks nothing, so it is in sync when it comes back.
    QUIET_RETURN: Script(
        0,
        (
            Act(_isolate_mirror, _LONG_MS, is_quiet=True),
            Act(_heal_etcd, (7000,), is_quiet=True),
            Act(_heal_links, _LAG_MS),
        ),
    ),
    HAND_OVERS: Script(3, (Act(_hand_over, (1000,)),) * 3),
}
