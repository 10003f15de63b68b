"""A channel, as those below it see it: its connection's brakes, its vhost, and whoever makes it wait."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.broker.transaction import Transaction
from warrenmq.queues.entry import Entry
from warrenmq.store.message import QueueLedger


class ChannelSide:
    """The interface of a channel for backlog, brakes and vhost; `number` is its number in the connection."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # Frames are kept, not handled.
        self.is_suspended: bool = False
        self.transaction: Transaction | None = None

    def suspend(self) -> None:
        """Handle no further frame until `resume`."""
        self.is_suspended = True

    def resume(self, now_ms: i64) -> None:
        """What was waited for has happened, by now (ms): go on with the kept frames."""
        raise RuntimeError("abstract")

    def collect_out(self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]) -> None:
        """Add the unacked entries of a queue with seq ids in [first, end) to `found`, those in a transaction too."""
        raise RuntimeError("abstract")

    def check(self) -> None:
        """Assert what holds between two operations; for tests and the simulator."""
        raise RuntimeError("abstract")

    def take_reply(self, address: bytes, properties: bytes, body: bytes) -> None:
        """Deliver a direct reply, unless its connection has too many that are not read."""
        raise RuntimeError("abstract")
