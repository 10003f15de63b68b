"""How large a workload is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class WorkloadSettings:
    """The size of a workload; its queues are named PREFIX-0 and so on, and deleted at the end.

    rate: messages per second of each publisher. consumers: of each queue, but for the last
    `idle_queues`, whose messages wait for the end. drain_limit_s: how long the end may take, with
    nodes that come back late.
    """

    uris: tuple[str, ...]
    history: Path
    seconds: float = 20.0
    queues: int = 4
    idle_queues: int = 1
    publishers: int = 2
    consumers: int = 2
    rate: float = 200.0
    # Messages of a publisher that wait for their confirm at most.
    window: int = 200
    prefetch: int = 20
    drain_limit_s: float = 60.0
    prefix: str = "workload"
    seed: int = 1

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The names of the queues."""
        return tuple(f"{self.prefix}-{number}" for number in range(self.queues))

    @property
    def consumed_queues(self) -> tuple[str, ...]:
        """The names of the queues that have consumers."""
        return self.queue_names[: self.queues - self.idle_queues]

    @property
    def exchange(self) -> str:
        """The exchange whose key N leads to the queues N and N + 1."""
        return f"{self.prefix}-pairs"

    def pair(self, number: int) -> tuple[str, ...]:
        """The queues behind the key `number`, each once."""
        names = self.queue_names
        both = (names[number], names[(number + 1) % len(names)])
        return both if both[0] != both[1] else both[:1]
