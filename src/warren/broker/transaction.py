"""A channel's open transaction (protocol section 6, "Transactions").

Publishes are checked and routed when they arrive and enqueued at commit; acks leave the unacked window when they
arrive and take effect at commit, after the publishes. Rollback drops the first and returns the second.
"""

from mypy_extensions import i64

from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.store.message import Message


class TransactionPublish:
    """A routed publish waiting for the commit; no queues means it is to be returned (mandatory) or dropped."""

    def __init__(self, message: Message, queues: list[Queue], expiration_ms: i64, mandatory: bool) -> None:
        self.message: Message = message
        self.queues: list[Queue] = queues
        self.expiration_ms: i64 = expiration_ms
        self.mandatory: bool = mandatory


class TransactionSettle:
    """Entries acked or rejected together."""

    def __init__(self, entries: list[Entry], requeue: bool) -> None:
        self.entries: list[Entry] = entries
        self.requeue: bool = requeue


class Transaction:
    """What commit will do, in order of arrival."""

    def __init__(self) -> None:
        self.publishes: list[TransactionPublish] = []
        self.settles: list[TransactionSettle] = []

    def take_entries(self) -> list[Entry]:
        """All entries whose settling is undone by a rollback; the transaction starts over."""
        entries: list[Entry] = []
        for settle in self.settles:
            entries.extend(settle.entries)
        self.publishes = []
        self.settles = []
        return entries
