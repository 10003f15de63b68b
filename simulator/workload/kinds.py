"""The kinds of queues that a workload may have, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True)
class QueueKind:
    """How a queue is declared, published to and consumed.

    arguments: of its declaration. levels: of priority, each with an order of its own. stock:
    messages that are published before all others, and then no more. pace_s: how long consumers keep
    each delivery. reject_share: of the deliveries, which become dead letters. is_polled: consumers
    take messages by basic.get.
    """

    arguments: Mapping[str, object] = field(default_factory=dict)
    levels: int = 1
    stock: int = 0
    pace_s: float = 0.0
    reject_share: float = 0.0
    is_polled: bool = False

    @property
    def is_single(self) -> bool:
        """Whether the queue feeds only one of its consumers at a time."""
        return "x-single-active-consumer" in self.arguments


KINDS: Final = {
    "classic": QueueKind(),
    "lazy": QueueKind({"x-queue-mode": "lazy"}),
    "priority": QueueKind({"x-max-priority": 3}, levels=4),
    "quorum": QueueKind({"x-queue-type": "quorum"}),
    "single": QueueKind({"x-single-active-consumer": True}, pace_s=0.05),
    "stock": QueueKind(stock=1500, pace_s=0.5),
    "single-stock": QueueKind({"x-single-active-consumer": True}, stock=1500, pace_s=0.2),
    "rejected": QueueKind(reject_share=0.3),
    "polled": QueueKind(is_polled=True),
}
