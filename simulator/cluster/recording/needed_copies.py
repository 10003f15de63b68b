"""How many copies in sync a publish needs (`ha-min-sync`), and whether a confirmed one had them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from simulator.cluster.recording.reigns import Reigns
from simulator.models.messages import Violation


class _Publish(NamedTuple):
    """A publish: its moment (us), how often policies had changed, and copies needed, by queue."""

    at_us: int
    changes: int
    needed: dict[str, int]


class NeededCopies:
    """The publishes of one history whose queues need several copies in sync."""

    def __init__(self, reigns: Reigns) -> None:
        self._reigns = reigns
        # How many copies in sync all nodes agree that a queue needs; None: no policy says it.
        self.of: Callable[[str], int] | None = None
        # How often a policy was set.
        self.changes = 0
        self._publishes: dict[str, _Publish] = {}
        # Queues that have had a master. Until then a queue that a policy begins to mirror is a
        # plain one, and takes messages as such.
        self._led: set[str] = set()

    def led(self, queue: str) -> None:
        """A node has become the master of a queue."""
        self._led.add(queue)

    def published(self, message: str, queues: tuple[str, ...], at_us: int) -> None:
        """A message is sent to `queues`."""
        if self.of is not None:
            needed = {queue: self.of(queue) for queue in queues if queue in self._led}
            self._publishes[message] = _Publish(at_us, self.changes, needed)

    def confirmed(self, message: str, at_us: int) -> None:
        """A message is confirmed; Violation if its queues never had enough copies meanwhile."""
        publish = self._publishes.pop(message, None)
        if publish is None or self.of is None or publish.changes != self.changes:
            return
        for queue, needed in publish.needed.items():
            most = self._reigns.most_in_sync(queue, publish.at_us, at_us)
            if most is not None and most < min(needed, self.of(queue)):
                text = f"{message} is confirmed, and {queue} had {most} of {needed} copies in sync"
                raise Violation("min sync", text)
