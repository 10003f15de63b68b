"""The steps of a history in which faults hit a queue while a reader group reads it."""

from __future__ import annotations

from typing import Final

from simulator.cluster.spark.group_reader import GroupReader
from simulator.cluster.spark.spark_steps import SparkSteps
from simulator.cluster.world import World
from simulator.leaving.histories import Step

_STEP_MS: Final = 100
_FINE_MS: Final = 20
# The chances of a reader to reserve, to ack, and to read a batch again, in a step.
_READ_SHARE: Final = 0.4
_ACK_SHARE: Final = 0.25
_AGAIN_SHARE: Final = 0.1
_LATE_SHARE: Final = 0.05
_MANY: Final = 100


def read_on(world: World, reader: GroupReader, ms: int) -> None:
    """Let a reader work for a time."""
    rng = world.rng
    for _ in range(ms // _STEP_MS):
        reader.take_answers()
        draw = rng.random()
        if draw < _READ_SHARE:
            reader.read(rng.choice((1, 3, _MANY)))
        elif draw < _READ_SHARE + _ACK_SHARE:
            reader.ack(rng.choice((1, 3, _MANY)))
        elif draw < _READ_SHARE + _ACK_SHARE + _AGAIN_SHARE:
            reader.read_again()
        elif draw < _READ_SHARE + _ACK_SHARE + _AGAIN_SHARE + _LATE_SHARE:
            reader.call_late()
        world.pump()
        world.advance(_STEP_MS, _FINE_MS)
    reader.take_answers()


class ReadingFaults(SparkSteps):
    """Runs these steps."""

    def _two_deaths(self, step: Step) -> None:
        """Kill the master of a queue, then the next one: when the first is back, or before."""
        queue, rule = step.number(0), step.text(1)
        self._read_on(queue, step.number(2))
        first = self._kill_masters(queue, rule)
        self._read_on(queue, step.number(3))
        if step.number(4):
            for name in first:
                self._start(name)
            self._read_on(queue, step.number(5))
        self._kill_masters(queue, rule)
        self._read_on(queue, step.number(2))

    def _kill_masters(self, queue: int, rule: str) -> list[str]:
        names = [each.name for each in self._masters(queue)]
        for name in names:
            self.world.crash(name, rule, False)
        return names

    def _part_master(self, step: Step) -> None:
        """Cut the master of a queue off from the other nodes, from etcd, or from both."""
        queue = step.number(0)
        self._read_on(queue, _STEP_MS)
        world = self.world
        names = [each.name for each in self._masters(queue)]
        faults = [world.recording.fault("parted", name) for name in names]
        paths = [
            path
            for name in names
            for other in world.names
            if other != name and step.number(1)
            for path in [world.network.path(name, other)]
        ]
        for path in paths:
            path.is_cut = [True, True]
        if step.number(2):
            world.cut_from_etcd.update(names)
        self._read_on(queue, step.number(3))
        world.cut_from_etcd.difference_update(names)
        self._read_on(queue, step.number(4))
        for path in paths:
            path.is_cut = [False, False]
        for fault in faults:
            world.recording.fault_over(fault)
        self._read_on(queue, _STEP_MS)

    def _read_on(self, queue: int, ms: int) -> None:
        """Let the group of a queue read; without one the time passes."""
        reader = self._reader(queue)
        if reader is None:
            self.world.advance(ms, _STEP_MS)
        else:
            read_on(self.world, reader, ms)
