"""A channel's open transaction (protocol section 6, "Transactions").

Publishes are checked and routed to names of queues when they arrive; the commit looks the names up and enqueues, so a queue
that was deleted meanwhile gets nothing, and one that was declared under its name does. Acks leave the unacked window when they
arrive and take effect at commit, after the publishes. Rollback drops the first and returns the second.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.memory_account import MESSAGE_BYTES
from warrenmq.queues.queue import Queue
from warrenmq.store.message import Message, QueueLedger

# Memory of a publish (bytes) beside address, properties and body: its message, this object and its list entry.
_PUBLISH_BYTES: Final = MESSAGE_BYTES + 80


def routed_names(is_default: bool, keys: list[bytes], queues: list[Queue]) -> list[bytes]:
    """Names of the queues that a publish goes to if they are there at the commit (P25).

    `queues` are those of its route now. The default exchange (`is_default`) routes to names, `keys`, without a look at the queues.
    """
    if is_default:
        return sorted(set(keys))
    return [queue.name for queue in queues]


class TransactionPublish:
    """A routed publish waiting for the commit: returned (mandatory) or dropped when no queue has any of the names then."""

    def __init__(
        self, message: Message, queue_names: list[bytes], expiration_ms: i64, mandatory: bool
    ) -> None:
        self.message: Message = message
        self.queue_names: list[bytes] = queue_names
        self.expiration_ms: i64 = expiration_ms
        self.mandatory: bool = mandatory


class TransactionSettle:
    """Entries acked or rejected together. Without `requeue` they leave their queues for `reason`."""

    def __init__(self, entries: list[Entry], requeue: bool, reason: i64) -> None:
        self.entries: list[Entry] = entries
        self.requeue: bool = requeue
        self.reason: i64 = reason


class Transaction:
    """What commit will do, in order of arrival."""

    def __init__(self) -> None:
        self.publishes: list[TransactionPublish] = []
        self.settles: list[TransactionSettle] = []
        # Bytes of the publishes in memory.
        self.size_bytes: i64 = 0

    def is_empty(self) -> bool:
        """Is there nothing to commit?"""
        return len(self.publishes) == 0 and len(self.settles) == 0

    def add(self, publish: TransactionPublish) -> i64:
        """Keep a publish for the commit; returns its size in memory (bytes)."""
        message = publish.message
        size: i64 = (
            len(message.body) + len(message.properties) + len(message.address) + _PUBLISH_BYTES
        )
        self.publishes.append(publish)
        self.size_bytes += size
        return size

    def collect(self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]) -> None:
        """Add the entries of a queue with seq ids in [first, end) that it settles to `found`."""
        for settle in self.settles:
            for entry in settle.entries:
                if entry.ledger is ledger and first <= entry.seq < end:
                    found.append(entry)

    def take_entries(self) -> list[Entry]:
        """All entries whose settling is undone by a rollback; the transaction starts over."""
        entries: list[Entry] = []
        for settle in self.settles:
            entries.extend(settle.entries)
        self.publishes = []
        self.settles = []
        self.size_bytes = 0
        return entries
