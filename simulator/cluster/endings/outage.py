"""Disturbs one mirrored queue of a cluster that is at rest, and judges for how long it is away.

A publisher at a node that is not disturbed publishes at a steady pace. The longest time between two
confirms must be within the limit of the fault (C10; rule 10 of the checker).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from simulator.cluster.clients import Publisher
from simulator.cluster.endings.places import Place, find_place
from simulator.cluster.endings.rest import rest
from simulator.cluster.recording.features import (
    CUT,
    FREEZE_MASTER,
    FREEZE_MIRROR,
    HANG_MASTER,
    HANG_MIRROR,
    ISOLATE_MASTER,
    ISOLATE_MIRROR,
    KILL_MASTER,
    KILL_MIRROR,
    ONE_WAY_CUT,
    SILENCE_MASTER,
)
from simulator.cluster.world import World
from simulator.leaving.histories import DROP_HEAD, QueueRules
from simulator.simulated.file_system import KILL, POWER

# Time between two publishes, in which the world takes some steps: short for limits below a second.
_PACE_MS: Final = 20
_LONG_PACE_MS: Final = 100
_STEPS: Final = 2
# Bytes of each message.
_SIZE: Final = 20
# How long the publisher works before the fault, and after the limit of the fault.
_BEFORE_MS: Final = 200
_AFTER_MS: Final = 500


class _Fault(NamedTuple):
    """A fault: the longest gap in confirms that it may cause (ms), its begin and its end."""

    limit_ms: int
    begin: Callable[[World, Place], None]
    end: Callable[[World, Place], None]


def run_outage(world: World, kind: str) -> None:
    """Disturb a queue and heal it; Violation if the disturbance was too long."""
    # A queue that needs several copies refuses publishes for as long as it has one.
    place = None if world.needs_copies else find_place(world, _takes_all)
    if place is None:
        return
    fault = _FAULTS[kind]
    recording = world.recording
    recording.tell(f"outage: {kind}, {place}")
    home = place.master if kind in _SPARE_MASTERS else place.mirror
    others = [name for name in world.names if name not in (place.master, place.mirror)]
    client = Publisher(world.members[world.rng.choice([home, *others])], recording, "pulse")
    world.clients.append(client)
    world.pump()
    first = recording.event_count
    pace_ms = _PACE_MS if fault.limit_ms < 1000 else _LONG_PACE_MS
    _publish(world, client, place.queue, _BEFORE_MS, pace_ms)
    name = recording.outage(kind, place.master, fault.limit_ms)
    fault.begin(world, place)
    _publish(world, client, place.queue, fault.limit_ms + _AFTER_MS, pace_ms)
    recording.judge_gap(first)
    recording.fault_over(name)
    fault.end(world, place)
    rest(world)


def _takes_all(rules: QueueRules) -> bool:
    return not rules.has_limit() or rules.overflow == DROP_HEAD


def _publish(world: World, client: Publisher, queue: bytes, ms: int, pace_ms: int) -> None:
    """Publish at a steady pace for a time."""
    for _ in range(ms // pace_ms):
        client.publish(b"", queue, _SIZE, True, False)
        world.pump()
        world.advance(pace_ms, pace_ms // _STEPS)


def _freeze(world: World, name: str, is_frozen: bool) -> None:
    world.members[name].is_frozen = is_frozen
    world.members[name].has_news = True


def _hang(world: World, name: str, is_hanging: bool) -> None:
    world.members[name].is_stalled = is_hanging
    world.note_disks()


def _isolate(world: World, name: str) -> None:
    world.cut_from_etcd.add(name)
    for other in world.names:
        if other != name:
            world.network.path(*sorted((name, other))).is_cut = [True, True]


def _heal(world: World, _place: Place) -> None:
    world.cut_from_etcd.clear()
    for path in world.network.paths.values():
        path.heal()


def _cut(world: World, place: Place, is_one_way: bool) -> None:
    one, other = sorted((place.master, place.mirror))
    # From the master to the mirror, if it is one way.
    is_first = one == place.master
    is_cut = [is_first, not is_first] if is_one_way else [True, True]
    world.network.path(one, other).is_cut = is_cut


# Faults through which a publisher at the master's node can work.
_SPARE_MASTERS: Final = frozenset(
    (KILL_MIRROR, FREEZE_MIRROR, ISOLATE_MIRROR, HANG_MIRROR, CUT, ONE_WAY_CUT)
)
_FAULTS: Final = {
    KILL_MASTER: _Fault(
        500, lambda w, p: w.crash(p.master, KILL, False), lambda w, p: w.start(p.master)
    ),
    KILL_MIRROR: _Fault(
        500, lambda w, p: w.crash(p.mirror, KILL, False), lambda w, p: w.start(p.mirror)
    ),
    FREEZE_MASTER: _Fault(
        4000, lambda w, p: _freeze(w, p.master, True), lambda w, p: _freeze(w, p.master, False)
    ),
    FREEZE_MIRROR: _Fault(
        4000, lambda w, p: _freeze(w, p.mirror, True), lambda w, p: _freeze(w, p.mirror, False)
    ),
    ISOLATE_MASTER: _Fault(5000, lambda w, p: _isolate(w, p.master), _heal),
    ISOLATE_MIRROR: _Fault(5000, lambda w, p: _isolate(w, p.mirror), _heal),
    CUT: _Fault(5000, lambda w, p: _cut(w, p, False), _heal),
    ONE_WAY_CUT: _Fault(5000, lambda w, p: _cut(w, p, True), _heal),
    HANG_MASTER: _Fault(
        10_000, lambda w, p: _hang(w, p.master, True), lambda w, p: _hang(w, p.master, False)
    ),
    HANG_MIRROR: _Fault(
        10_000, lambda w, p: _hang(w, p.mirror, True), lambda w, p: _hang(w, p.mirror, False)
    ),
    SILENCE_MASTER: _Fault(
        5000, lambda w, p: w.crash(p.master, POWER, True), lambda w, p: w.start(p.master)
    ),
}
