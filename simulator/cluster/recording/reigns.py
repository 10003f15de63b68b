"""Who reigned over each mirrored queue of a simulated cluster, and what that must have kept.

A reign begins with the decision of an epoch and ends with that of the next one. A master is *well*
while its node runs, has its lease, gets answers of etcd, and its disk works. One that is well for
KEPT_MS after an ack has seen to it that no copy without that ack takes over, so the ack is *firm*.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from simulator.checker.facts import NEVER
from simulator.cluster.etcd_model import EtcdModel
from simulator.models.messages import Violation
from warrenmq.broker.definitions.metadata import DeleteQueue, PutQueue
from warrenmq.cluster.groups.group_change import group_of

# An ack may be undone while it is younger than this (ms): a mirror that reports nothing for 3 s,
# or is 8 s behind, counts as in sync so long, and its master has to record that it does not.
KEPT_MS: Final = 10_000
# A master may hand out messages so long (ms) after a later one has begun to.
OVERLAP_MS: Final = 200
_MS_US: Final = 1000


class Reign(NamedTuple):
    """A master: its epoch, its node, and when that was decided (us)."""

    epoch: int
    node: str
    from_us: int


class Reigns:
    """The reigns that `model` has decided, by queue (its name with its birth)."""

    def __init__(self, model: EtcdModel) -> None:
        self._model = model
        # Decisions of the model that were looked at.
        self._followed = 0
        self._reigns: dict[str, list[Reign]] = {}
        # How many copies each queue had in sync: (since when (us), how many).
        self._in_sync: dict[str, list[tuple[int, int]]] = {}
        # The births of queues, by name; and what hears of queues that are deleted.
        self._births: dict[bytes, int] = {}
        self.on_deleted: Callable[[str], None] | None = None
        # When each node was well: its beginnings and ends (us); the last end may be open.
        self._well: dict[str, list[tuple[int, int]]] = {}
        # When the master of each epoch has handed out its first message (ms), by queue and epoch.
        self._begun_ms: dict[tuple[str, int], int] = {}

    # -- what happens ------------------------------------------------------------------------------

    def follow(self, at_us: int) -> None:
        """Take over what was decided."""
        history = self._model.history
        while self._followed < len(history):
            for change in history[self._followed][1]:
                if isinstance(change, PutQueue):
                    self._births[change.name] = change.birth
                if isinstance(change, PutQueue) and change.group:
                    self._follow_group(change, at_us)
                elif isinstance(change, PutQueue):
                    # The queue is mirrored no more: its node goes on without an epoch.
                    self._reigns.pop(f"{change.name.decode()}#{change.birth}", None)
                    self._in_sync.pop(f"{change.name.decode()}#{change.birth}", None)
                elif isinstance(change, DeleteQueue):
                    birth = self._births.pop(change.name, 0)
                    if birth and self.on_deleted is not None:
                        self.on_deleted(f"{change.name.decode()}#{birth}")
            self._followed += 1

    def _follow_group(self, put: PutQueue, at_us: int) -> None:
        group = group_of(put)
        assert group is not None
        reigns = self._reigns.setdefault(f"{put.name.decode()}#{put.birth}", [])
        if not reigns or group.epoch > reigns[-1].epoch:
            reigns.append(Reign(group.epoch, group.master_node.decode(), at_us))
        sizes = self._in_sync.setdefault(f"{put.name.decode()}#{put.birth}", [])
        sizes.append((at_us, len(group.sync)))

    def note(self, node: str, is_well: bool, at_us: int) -> None:
        """Note whether a node is well."""
        known = self._well.setdefault(node, [])
        was_well = bool(known) and known[-1][1] == NEVER
        if is_well and not was_well:
            known.append((at_us, NEVER))
        elif was_well and not is_well:
            known[-1] = (known[-1][0], at_us)

    def hands_out(self, queue: str, epoch: int, now_ms: int) -> None:
        """The master of `epoch` hands out messages; Violation if it does so beside a later one."""
        self._begun_ms.setdefault((queue, epoch), now_ms)
        for later in reversed(self._reigns.get(queue, ())):
            if later.epoch <= epoch:
                break
            since_ms = now_ms - self._begun_ms.get((queue, later.epoch), now_ms)
            if since_ms > OVERLAP_MS:
                text = (
                    f"{queue} is handed out in epoch {epoch}, and by {later.node} for {since_ms} ms"
                )
                raise Violation("two masters", text)

    # -- what follows ------------------------------------------------------------------------------

    def changes(self, queue: str) -> int:
        """How often another node became the master of a queue."""
        nodes = [reign.node for reign in self._reigns.get(queue, ())]
        return sum(one != other for one, other in pairwise(nodes))

    def most_in_sync(self, queue: str, from_us: int, until_us: int) -> int | None:
        """The most copies in sync that a queue had in a time; None if it had no mirrors before."""
        sizes = self._in_sync.get(queue, [])
        before = [size for at_us, size in sizes if at_us <= from_us]
        if not before:
            return None
        return max(before[-1], *(size for at_us, size in sizes if from_us < at_us <= until_us), 0)

    def is_firm(self, queue: str, epoch: int, settled_us: int) -> bool:
        """Whether an ack that the master of `epoch` had by `settled_us` must not be undone."""
        until_us = settled_us + KEPT_MS * _MS_US
        for place, reign in enumerate(reigns := self._reigns.get(queue, [])):
            if reign.epoch == epoch:
                is_over = place + 1 < len(reigns) and reigns[place + 1].from_us < until_us
                return not is_over and any(
                    begins_us <= settled_us and until_us <= ends_us
                    for begins_us, ends_us in self._well.get(reign.node, ())
                )
        return False
