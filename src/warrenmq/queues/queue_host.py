"""A queue's view of its vhost: settings, shares of its turns, and the holders of its messages.

A ledger names a queue: the vhost finds the queue of a ledger, so the parts of a queue need not know
the queue as a whole.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import Entry, EntryLedger, QueueEnd
from warrenmq.queues.memory.account import MemoryAccount, MemoryUser
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.receipts import ReceiptHost
from warrenmq.queues.settings import DeadLetterRule
from warrenmq.queues.turn import TurnShare, TurnShares
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.model.message import Message, QueueLedger

LOAD_BYTES: Final = 4194304
AHEAD_BYTES: Final = 1048576


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueHost(TurnShares):
    """The settings and services that the queues of one vhost share.

    `embed_below`: messages of this size (bytes) and more have their content in a content store, not
    in the index. `page_batch`: messages that move between memory and disk together (C4).
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
        # What queues have got of sinks; set once, with the vhost. None: there are no sinks.
        self.receipts: ReceiptHost | None = None
        # The most content (bytes) that one load brings a reader group.
        self.load_bytes: i64 = LOAD_BYTES
        # The most content (bytes) that one load reads ahead for consumers, as decoding stops
        # the loop.
        self.ahead_bytes: i64 = AHEAD_BYTES
        # Queues that have changed in this turn, each once; they report at its end.
        self.changed: list[MemoryUser] = []
        # Messages of all queues, deleted ones too, whose content was read from disk.
        self.read_messages: i64 = 0

    def end_turn(self, now_ms: i64) -> None:
        """Run the queues' slices, then let the changed queues report the memory they hold."""
        self.run_slices(now_ms)
        changed = self.changed
        self.changed = []
        for user in changed:
            user.is_changed = False
            user.report(now_ms)

    def open_store(self, ledger: EntryLedger, is_durable: bool) -> QueueStore:
        """Open the store of a new queue."""
        raise RuntimeError("abstract")

    def expect_timer(self, ledger: QueueLedger) -> None:
        """Let the broker's timer check the queue of `ledger`, in which messages expire."""
        raise RuntimeError("abstract")

    def new_level(self, ledger: QueueLedger, priority: i64) -> i64:
        """The id of a new ledger: the queue of `ledger` begins a level of `priority`."""
        raise RuntimeError("abstract")

    def admits_dead_letter(self, share: TurnShare) -> bool:
        """Whether there is room for dead letters; if not, `share` gets a turn when there is."""
        raise RuntimeError("abstract")

    def dead_letter(self, entry: Entry, reason: i64, rule: DeadLetterRule) -> None:
        """Hand an unacked entry over as a dead letter by `rule`, later; then call its `let_go`.

        `reason`: why it leaves its queue (`leave_reason.py`).
        """
        raise RuntimeError("abstract")

    def dead_letter_refused(self, queue: QueueEnd, message: Message, rule: DeadLetterRule) -> None:
        """Publish `message`, for which `queue` has no room, as a dead letter by `rule`, later."""
        raise RuntimeError("abstract")

    def on_unacked_lost(self, ledger: QueueLedger, lost: list[Entry]) -> None:
        """Let reader groups forget unacked entries: contents are lost, entries settled."""
        raise RuntimeError("abstract")

    def find_unacked(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The unacked entries of a queue in [first, end), of all holders, in any order."""
        raise RuntimeError("abstract")

    def reader_parts(self, ledger: QueueLedger) -> list[ReaderPart]:
        """The parts of reader groups in the queue of `ledger`, for its copies on other nodes."""
        raise RuntimeError("abstract")

    def take_reader_parts(self, ledger: QueueLedger, parts: list[ReaderPart]) -> bool:
        """Let the hidden copy of `ledger` have these parts, and no others, as its master has.

        True: that is new, and stored with the batch that gathers.
        """
        raise RuntimeError("abstract")
