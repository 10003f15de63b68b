"""Unacked entries that the vhost itself has taken out of queues, by queue and seq id."""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.store.model.message import QueueLedger


class TakenEntries:
    """Entries of any number of queues; `count` of them, with `content_bytes` of content."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.content_bytes: i64 = 0
        self._entries: dict[int, dict[int, Entry]] = {}

    def add(self, entry: Entry) -> None:
        """Add an entry that is not among them."""
        self._entries.setdefault(entry.ledger.queue_id, {})[entry.seq] = entry
        self.count += 1
        self.content_bytes += entry.content_bytes

    def remove(self, entry: Entry) -> None:
        """Remove an entry that is among them."""
        ledger_id = entry.ledger.queue_id
        taken = self._entries[ledger_id]
        del taken[entry.seq]
        if len(taken) == 0:
            del self._entries[ledger_id]
        self.count -= 1
        self.content_bytes -= entry.content_bytes

    def has(self, entry: Entry) -> bool:
        """Whether this very entry is among them."""
        taken = self._entries.get(entry.ledger.queue_id)
        return taken is not None and taken.get(entry.seq) is entry

    def find(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The entries of the queue of `ledger` in [first, end), in any order."""
        taken = self._entries.get(ledger.queue_id)
        if taken is None:
            return []
        return [entry for seq, entry in taken.items() if first <= seq < end]
