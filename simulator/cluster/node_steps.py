"""The steps of a history that concern disks, etcd, policies and the copies of mirrored queues."""

from __future__ import annotations

from typing import Final

from simulator.cluster.member import Member
from simulator.cluster.world import World
from simulator.leaving.histories import Step
from simulator.models.messages import Violation
from simulator.simulated.file_system import Crash
from simulator.simulated.node import VHOST

# After this time (ms) the lease of a dead node has ended, and all other nodes know it.
DEAD_MS: Final = 15_000
# The step of time while nobody does anything (ms).
IDLE_MS: Final = 250


def queue_name(index: int) -> bytes:
    """The name of the queue `index`."""
    return b"q%d" % index


class NodeSteps:
    """Runs these steps in `world`."""

    world: World

    def _stall(self, step: Step) -> None:
        member = self.world.members.get(self.world.names[step.number(0)])
        if member is not None:
            member.is_stalled = bool(step.number(1))
        self.world.note_disks()

    def _disk_full(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        if name in self.world.members:
            self.world.fill_disk(name, step.number(1))
            self.world.recording.fault("disk full", name)

    def _disk_alarm(self, step: Step) -> None:
        self.world.alarm_disk(self.world.names[step.number(0)], bool(step.number(1)))

    def _disk_slow(self, step: Step) -> None:
        self.world.slow_disks[self.world.names[step.number(0)]] = step.number(1) / 100
        self.world.note_disks()

    def _disk_well(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        self.world.slow_disks.pop(name, None)
        self.world.fill_disk(name, -1)
        self.world.alarm_disk(name, False)

    def _restart(self, step: Step) -> None:
        self._start(self.world.names[step.number(0)])

    def _start(self, name: str) -> None:
        if name not in self.world.members:
            # Whoever starts a node has made room for it.
            self.world.fill_disk(name, -1)
        try:
            self.world.start(name)
        except Crash:
            # A start has only few calls of the disk that can be cut off.
            raise Violation("start", f"{name} crashed at its start") from None

    # -- etcd --------------------------------------------------------------------------------------

    def _etcd_cut(self, step: Step) -> None:
        index = step.number(0)
        names = self.world.names if index < 0 else [self.world.names[index]]
        self.world.cut_from_etcd.update(names)

    def _etcd_heal(self, step: Step) -> None:
        index = step.number(0)
        names = self.world.names if index < 0 else [self.world.names[index]]
        self.world.cut_from_etcd.difference_update(names)

    def _etcd_loses(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        if step.number(1):
            self.world.loses_answers.add(name)
        else:
            self.world.loses_answers.discard(name)

    def _etcd_pause(self, step: Step) -> None:
        if step.number(0):
            self.world.model.is_paused = True
        else:
            self.world.resume_etcd()

    def _lease(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        member = self.world.members.get(name)
        if member is not None:
            self.world.recording.fault("lease", name)
            member.lose_lease()

    def _compact(self, step: Step) -> None:
        name = self.world.names[step.number(0)]
        member = self.world.members.get(name)
        if member is not None and member.etcd.has_answers:
            member.catch_up()

    # -- mirrors -----------------------------------------------------------------------------------

    def _policy(self, step: Step) -> None:
        self.world.put_policy(step.text(0), step.text(1))

    def _abandon(self, step: Step) -> None:
        """Crash all nodes with copies in sync of a queue, and let their leases end."""
        name = queue_name(step.number(0))
        group = self.world.model.group(VHOST, name)
        nodes = {copy.node.decode() for copy in group.sync} if group is not None else set()
        for node in nodes & set(self.world.members):
            self.world.crash(node, step.text(1), False)
        if nodes:
            self.world.advance(DEAD_MS, IDLE_MS)

    def _masters(self, queue: int) -> list[Member]:
        """The running nodes that serve a queue, as far as they know."""
        name = queue_name(queue)
        members = self.world.members.values()
        return [each for each in members if name in each.vhost.queues and not each.is_frozen]

    def _synchronise(self, step: Step) -> None:
        for member in self._masters(step.number(0)):
            if member.broker.mirrors is not None:
                member.broker.mirrors.synchronise(VHOST, queue_name(step.number(0)))
                member.has_news = True

    def _cancel_sync(self, step: Step) -> None:
        for member in self._masters(step.number(0)):
            if member.broker.mirrors is not None:
                member.broker.mirrors.cancel_sync(VHOST, queue_name(step.number(0)))
                member.has_news = True

    def _rebalance(self, step: Step) -> None:
        member = self.world.members.get(self.world.names[step.number(0)])
        if member is not None and not member.is_frozen and member.broker.mirrors is not None:
            member.broker.mirrors.rebalance(lambda _vhost, _queue: True, lambda _failure: None)
            member.has_news = True
