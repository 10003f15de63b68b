"""The interface of a channel to its connection's throttle, its vhost and its backlog."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.transaction import Transaction
from warrenmq.queues.entry import Entry
from warrenmq.queues.stale_entry import StaleEnd
from warrenmq.store.model.message import QueueLedger


class FlowHost:
    """A channel as throttle, vhost and backlog see it; `number` is its number in the connection."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # True while frames are kept instead of handled.
        self.is_suspended: bool = False
        self.transaction: Transaction | None = None

    def suspend(self) -> None:
        """Keep all further frames until `resume`."""
        self.is_suspended = True

    def resume(self, now_ms: i64) -> None:
        """End the suspension at time `now_ms` and handle the kept frames."""
        raise RuntimeError("abstract")

    def collect_unacked(
        self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]
    ) -> None:
        """Add the unacked entries of a queue with seq ids in [first, end) to `found`.

        Entries that an open transaction has settled count as unacked.
        """
        raise RuntimeError("abstract")

    def replace_unacked(self, ledger: QueueLedger, level: i64, end: StaleEnd) -> None:
        """Keep stale entries instead of the unacked entries of `ledger`, a level of a queue.

        The queue takes the messages back, as another node is its master.
        """
        raise RuntimeError("abstract")

    def set_tracing(self, is_on: bool) -> None:
        """Begin or end to copy all messages to the trace exchange."""
        raise RuntimeError("abstract")

    def check(self) -> None:
        """Assert the invariants that hold between two operations; for tests and the simulator."""
        raise RuntimeError("abstract")

    def take_reply(self, address: bytes, properties: bytes, body: bytes) -> None:
        """Deliver a direct reply, or drop it if the connection has too many unread ones."""
        raise RuntimeError("abstract")
