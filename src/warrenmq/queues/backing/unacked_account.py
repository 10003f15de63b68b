"""The account of a queue's unacked messages: how many there are, and how much of them is in memory.

Channels, transactions and reader groups have the entries (`QueueHost.find_unacked`); the queue
counts.
"""

from mypy_extensions import i64

from warrenmq.queues.entry import ALPHA, Entry
from warrenmq.queues.memory.account import ENTRY_BYTES, MESSAGE_BYTES
from warrenmq.store.model.message import QueueLedger


class UnackedAccount:
    """Counts the unacked messages of the queue of `ledger`. Sizes in bytes."""

    def __init__(self, ledger: QueueLedger) -> None:
        self.count: i64 = 0
        # Unacked messages that leave the queue as dead letters, and are not handed over yet.
        self.leaving_count: i64 = 0
        # Unacked messages whose content was paged out.
        self.paged_count: i64 = 0
        # Bytes of the bodies of all unacked messages, in memory or not.
        self.body_bytes: i64 = 0
        # Bytes of unacked contents that are still in memory.
        self.content_bytes: i64 = 0
        # The highest seq id that was unacked since the start.
        self.highest_seq: i64 = 0
        self._ledger: QueueLedger = ledger

    @property
    def ram_count(self) -> i64:
        """Unacked messages whose content is in memory."""
        return self.count - self.paged_count

    @property
    def ram_bytes(self) -> i64:
        """Bytes of memory: content, ENTRY_BYTES a position, MESSAGE_BYTES a content in memory."""
        return self.content_bytes + ENTRY_BYTES * self.count + MESSAGE_BYTES * self.ram_count

    def add(self, entry: Entry) -> None:
        """Count `entry`, which has become unacked."""
        self.count += 1
        self.body_bytes += entry.body_bytes
        if entry.seq > self.highest_seq:
            self.highest_seq = entry.seq
        if entry.form == ALPHA:
            self.content_bytes += entry.content_bytes
        else:
            self.paged_count += 1
        ledger = self._ledger
        if entry.seq >= ledger.indexed_upto:
            ledger.unindexed_unacked += 1

    def remove(self, entry: Entry) -> bool:
        """Stop counting `entry`: settled, requeued or lost.

        Returns whether its position is in the index.
        """
        self.count -= 1
        self.body_bytes -= entry.body_bytes
        if entry.form == ALPHA:
            self.content_bytes -= entry.content_bytes
        else:
            self.paged_count -= 1
        ledger = self._ledger
        if entry.seq < ledger.indexed_upto:
            return True
        ledger.unindexed_unacked -= 1
        return False

    def drop_content(self, entry: Entry) -> None:
        """Drop the content of `entry` from memory, if a copy of it is on disk."""
        if entry.form == ALPHA and entry.is_on_disk():
            entry.drop_content()
            self.paged_count += 1
            self.content_bytes -= entry.content_bytes

    def take_content(self, entry: Entry) -> None:
        """Count the content of `entry` as in memory, after a load."""
        entry.form = ALPHA
        self.paged_count -= 1
        self.content_bytes += entry.content_bytes

    def on_indexed(self, entry: Entry) -> None:
        """Count `entry` as indexed, after its position and the index's mark have moved."""
        self._ledger.unindexed_unacked -= 1
