"""What a queue asks of the vhost it is in: settings, shares of its turns, and who else has to do with its messages.

A queue is named by its log: the vhost finds the queue of a log, and the parts of a queue need not know it as a whole.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry
from warrenmq.queues.memory_account import MemoryAccount, MemoryUser
from warrenmq.queues.turn import TurnShares
from warrenmq.store.message import QueueLedger
from warrenmq.store.queue_store import QueueStore

LOAD_BYTES: Final = 4194304
AHEAD_BYTES: Final = 1048576


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost(TurnShares):
    """The surroundings that the queues of one vhost share.

    `embed_below`: messages of this size (bytes) and more have their content in a content store, not in the index.
    `page_batch`: how many messages move between memory and disk together (C4).
    `segment_entries`: seq ids of one segment of an index.
    """

    def __init__(
        self, memory: MemoryAccount, embed_below: i64, page_batch: i64, segment_entries: i64
    ) -> None:
        super().__init__()
        self.embed_below: i64 = embed_below
        self.page_batch: i64 = page_batch
        self.segment_entries: i64 = segment_entries
        self.memory: MemoryAccount = memory
        # Content (bytes) that one load brings a reader group.
        self.load_bytes: i64 = LOAD_BYTES
        # Content (bytes) that one load reads ahead for consumers: everything else on the loop waits while it is decoded.
        self.ahead_bytes: i64 = AHEAD_BYTES
        # Queues in which something has happened in this turn, each once.
        self.changed: list[MemoryUser] = []

    def end_turn(self, now_ms: i64) -> None:
        """The queues work, and those that have changed tell what they hold in memory."""
        self.work_off(now_ms)
        changed = self.changed
        self.changed = []
        for user in changed:
            user.is_changed = False
            user.report(now_ms)

    def open_store(self, ledger: QueueLedger, is_durable: bool) -> QueueStore:
        """The store of a new queue."""
        raise RuntimeError("abstract")

    def expect_timer(self, ledger: QueueLedger) -> None:
        """The broker's timer must look at the queue of `log` from now on: messages in it expire."""
        raise RuntimeError("abstract")

    def on_out_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """The contents of these unacked entries cannot be had; they are settled, and a reader group that has them forgets
        them."""
        raise RuntimeError("abstract")

    def find_out(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue with seq ids in [first, end), whoever has them, in any order."""
        raise RuntimeError("abstract")
