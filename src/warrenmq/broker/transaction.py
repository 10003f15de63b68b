"""A channel's open transaction (protocol section 6, "Transactions").

A publish is checked and routed to queue names when it arrives; the commit looks up the names and
enqueues the message. So a queue deleted before the commit gets nothing, and a queue declared again
under the same name gets the message. An acked message leaves the unacked window when the ack
arrives; the ack takes effect at the commit, after the publishes. A rollback drops the publishes and
returns the acked messages to the unacked window.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.memory.account import MESSAGE_BYTES
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.stale_entry import StaleEnd, StaleEntry
from warrenmq.routing.exchange import Exchange
from warrenmq.store.journal.confirm_run import ConfirmWaiter
from warrenmq.store.model.message import Message, QueueLedger

# Memory of a publish (bytes) beside address, properties and body: the `Message`, the
# `TransactionPublish` and its list entry.
_PUBLISH_BYTES: Final = MESSAGE_BYTES + 80


def routed_names(is_default: bool, keys: list[bytes], queues: list[MessageTaker]) -> list[bytes]:
    """Names of the queues that get a publish if they exist at the commit (P25).

    `queues` is the route at the time of the publish. The default exchange (`is_default`) routes to
    the names in `keys`, whether or not such queues exist.
    """
    if is_default:
        return sorted(set(keys))
    return [queue.name for queue in queues]


class TransactionPublish:
    """A routed publish that waits for the commit.

    If no queue has any of the names at the commit, a mandatory message is returned and any other is
    dropped.
    """

    def __init__(
        self,
        message: Message,
        queue_names: list[bytes],
        expiration_ms: i64,
        priority: i64,
        mandatory: bool,
    ) -> None:
        self.message: Message = message
        self.queue_names: list[bytes] = queue_names
        self.expiration_ms: i64 = expiration_ms
        self.priority: i64 = priority
        # The delayed exchanges at which the message has to wait, and the body of its headers table.
        self.waits: list[Exchange] = []
        self.headers: bytes = b""
        self.mandatory: bool = mandatory
        # Memory that it takes (bytes).
        self.size_bytes: i64 = (
            len(message.body) + len(message.properties) + len(message.address) + _PUBLISH_BYTES
        )


class TransactionSettle:
    """Entries acked or rejected together: requeued, or without `requeue` leaving for `reason`."""

    def __init__(self, entries: list[Entry], requeue: bool, reason: i64) -> None:
        self.entries: list[Entry] = entries
        self.requeue: bool = requeue
        self.reason: i64 = reason


class Transaction:
    """The publishes and settles that the commit will apply, each in order of arrival."""

    def __init__(self) -> None:
        self.publishes: list[TransactionPublish] = []
        self.settles: list[TransactionSettle] = []
        # Memory that the publishes take (bytes).
        self.size_bytes: i64 = 0
        # Steps of a commit: a queue or a message is one (`flow/publish_turns.py`).
        self.steps: i64 = 0
        # What the commit waits for, once it has applied some of the publishes.
        self.wait: ConfirmWaiter | None = None

    def is_empty(self) -> bool:
        """True while there is nothing to commit."""
        return len(self.publishes) == 0 and len(self.settles) == 0

    def add(self, publish: TransactionPublish) -> i64:
        """Add a publish for the commit; returns its size in memory (bytes)."""
        self.publishes.append(publish)
        self.size_bytes += publish.size_bytes
        self.steps += 1 + len(publish.queue_names)
        return publish.size_bytes

    def take_publishes(self, steps: i64) -> list[TransactionPublish]:
        """Remove and return the first publishes: of more than `steps`, or all."""
        count: i64 = 0
        taken: i64 = 0
        while taken <= steps and count < len(self.publishes):
            taken += 1 + len(self.publishes[count].queue_names)
            count += 1
        first = self.publishes[:count]
        self.publishes = self.publishes[count:]
        self.steps -= taken
        for publish in first:
            self.size_bytes -= publish.size_bytes
        return first

    def collect(self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]) -> None:
        """Add settled entries of the queue of `ledger` with seq ids in [first, end) to `found`."""
        for settle in self.settles:
            for entry in settle.entries:
                if entry.ledger is ledger and first <= entry.seq < end:
                    found.append(entry)

    def replace(self, ledger: QueueLedger, level: i64, end: StaleEnd) -> None:
        """Put stale entries in the place of settled entries of the queue of `ledger`."""
        for settle in self.settles:
            entries = settle.entries
            for place in range(len(entries)):
                entry = entries[place]
                if entry.ledger is ledger:
                    entries[place] = StaleEntry(entry, level, end)

    def take_entries(self) -> list[Entry]:
        """Return all settled entries, for a rollback, and empty the transaction."""
        entries: list[Entry] = []
        for settle in self.settles:
            entries.extend(settle.entries)
        self.publishes = []
        self.settles = []
        self.size_bytes = 0
        self.steps = 0
        return entries
