"""Disturbs a mirrored queue that a reader group alone reads, in the ways of `partings.py`.

The group reads through all of it. When the faults are over, it must get everything that is left,
and have had each message once (`spark/rows.py`).
"""

from __future__ import annotations

from typing import Final

from simulator.cluster.clients import Publisher
from simulator.cluster.endings.partings import SCRIPTS, keeps_all
from simulator.cluster.endings.places import find_place
from simulator.cluster.endings.rest import REST_MS_MAX, rest
from simulator.cluster.spark.group_reader import GroupReader
from simulator.cluster.spark.reading_faults import read_on
from simulator.cluster.world import World
from simulator.leaving.histories import QueueRules
from simulator.models.messages import Violation

# Messages that the queue has at the beginning, and that come after the faults.
_MESSAGES: Final = 60
_MORE: Final = 10
_SIZE: Final = 20
_BEFORE_MS: Final = 500
_AFTER_MS: Final = 1000


def run_reading(world: World, kind: str, readers: dict[bytes, GroupReader]) -> None:
    """Run the faults while a group reads; `readers`: those that read already, by queue."""
    place = find_place(world, _may_be_read)
    if place is None:
        return
    recording = world.recording
    recording.tell(f"reading: {kind}, {place}")
    reader = readers.get(place.queue)
    if reader is None:
        reader = GroupReader(world, f"end{place.queue.decode()}", place.queue)
        readers[place.queue] = reader
    _publish(world, place.queue, place.master, _MESSAGES)
    read_on(world, reader, _BEFORE_MS)
    name = recording.fault(kind, place.master)
    for act in SCRIPTS[kind].acts:
        recording.tell(f"{world.now_ms % 10_000_000} {act.run.__name__.lstrip('_')}")
        act.run(world, place)
        world.pump()
        read_on(world, reader, world.rng.choice(act.then_ms))
    for each in world.names:
        world.start(each)
    read_on(world, reader, _AFTER_MS)
    rest(world)
    recording.fault_over(name)
    _publish(world, place.queue, place.mirror, _MORE)
    deadline_ms = world.now_ms + REST_MS_MAX
    while not reader.has_all:
        if world.now_ms > deadline_ms:
            raise Violation("stuck", f"a group does not get the rest of {place.life}")
        read_on(world, reader, _BEFORE_MS)
    recording.counts["readings"] += 1


def _may_be_read(rules: QueueRules) -> bool:
    return keeps_all(rules) and not rules.max_priority


def _publish(world: World, queue: bytes, node: str, count: int) -> None:
    client = Publisher(world.members[node], world.recording, f"rows for {queue.decode()} at {node}")
    world.clients.append(client)
    world.pump()
    for _ in range(count):
        client.publish(b"", queue, _SIZE, True, False)
    rest(world)
