"""The parts that decisions of the cluster need of their node: the store, the clock, the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from warrenmq.broker.definitions.metadata import Change
from warrenmq.cluster.metadata.conditions import Condition

# How long a proposal is repeated while the store of the cluster does not answer (ms).
DECIDE_MS: Final = 5_000
# Pause before a proposal is repeated (ms).
RETRY_MS: Final = 250
# After a conflict the proposer looks again when this node has followed something, or after this
# time (ms): what it collided with may have been followed already.
LOOK_AGAIN_MS: Final = 25


# A lease that nobody ends.
LEASE_FOR_EVER_MS: Final = 1 << 40


class CommitResult:
    """The outcome of a transaction.

    `revision`: the decision, 0 if there is none. `failure`: why the store did not answer, or "";
    without it and without a revision a condition did not hold.
    """

    def __init__(self, revision: int, failure: str = "") -> None:
        self.revision = revision
        self.failure = failure


class DecisionStore(ABC):
    """The store in which the nodes of the cluster decide. All callbacks come on the loop."""

    @abstractmethod
    def commit(
        self,
        conditions: list[Condition],
        changes: list[Change],
        done: Callable[[CommitResult], None],
    ) -> None:
        """Make `changes`, all or none, if all `conditions` hold; then call `done`."""

    def lease_left_ms(self) -> int:
        """For how long (ms) nobody can decide something on condition that this node does not run.

        0 or less: the lease may have ended. A store without leases never forgets a node.
        """
        return LEASE_FOR_EVER_MS

    def lease_birth(self) -> int:
        """The decision since which this node has its lease; 0: it has always had it."""
        return 0

    def contact_ms(self) -> int:
        """For how long (ms) the store has answered this node at once, without a break."""
        return LEASE_FOR_EVER_MS


class ClusterClock(ABC):
    """The time and the timers of the node."""

    @abstractmethod
    def now_ms(self) -> int:
        """The time in ms since 1970."""

    @abstractmethod
    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        """Call `callback` once, in `delay_ms`."""
