"""How large a workload is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from simulator.workload.kinds import KINDS, QueueKind


@dataclass(frozen=True)
class WorkloadSettings:
    """The size of a workload; its queues are named PREFIX-0 and so on, and deleted at the end.

    rate: messages per second of each publisher. consumers: of each queue, but for the last
    `idle_queues`, whose messages wait for the end. drain_limit_s: how long the end may take, with
    nodes that come back late. kinds: names of `KINDS`, of the first queues; the others are classic.
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
    kinds: tuple[str, ...] = ()

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The names of the queues."""
        return tuple(f"{self.prefix}-{number}" for number in range(self.queues))

    @property
    def consumed_queues(self) -> tuple[str, ...]:
        """The names of the queues that have consumers."""
        consumed = self.queue_names[: self.queues - self.idle_queues]
        return (*consumed, self.letters) if self.has_letters else consumed

    @property
    def drained_queues(self) -> tuple[str, ...]:
        """The names of all queues, that of dead letters last, as the others add to it."""
        return (*self.queue_names, self.letters) if self.has_letters else self.queue_names

    @property
    def letters(self) -> str:
        """The queue of dead letters."""
        return f"{self.prefix}-letters"

    @property
    def has_letters(self) -> bool:
        """Whether the queue of dead letters is there."""
        return any(self.kind(queue).reject_share for queue in self.queue_names)

    def kind(self, queue: str) -> QueueKind:
        """The kind of a queue."""
        number = queue.removeprefix(f"{self.prefix}-")
        if number.isdecimal() and int(number) < len(self.kinds):
            return KINDS[self.kinds[int(number)]]
        return KINDS["classic"]

    def arguments(self, queue: str) -> dict[str, object]:
        """The arguments of the queue's declaration."""
        found = dict(self.kind(queue).arguments)
        if self.kind(queue).reject_share:
            found |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self.letters}
        return found

    def numbers(self, has_stock: bool) -> list[int]:
        """The numbers of the queues that only have a stock, or of those that are published to."""
        return [
            number
            for number, queue in enumerate(self.queue_names)
            if bool(self.kind(queue).stock) == has_stock
        ]

    @property
    def exchange(self) -> str:
        """The exchange whose key N leads to the queues N and N + 1."""
        return f"{self.prefix}-pairs"

    def pair(self, number: int) -> tuple[str, ...]:
        """The queues behind the key `number`, each once; a stock is none of them."""
        first, second = (self.queue_names[each % self.queues] for each in (number, number + 1))
        return (first,) if second == first or self.kind(second).stock else (first, second)
