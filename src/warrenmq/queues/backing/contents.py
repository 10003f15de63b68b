"""The contents of a queue: ready messages, unacked ones, and the parts that move both.

The parts that work in slices are files of their own, which take the contents as an argument:
`loading.py`, `read_ahead.py`, `paging.py`, `purging.py`. `paged_queue.py` has the operations that
change the contents.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.head_demand import HeadDemand
from warrenmq.queues.backing.loader import Loader
from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.backing.queue_counters import QueueCounters
from warrenmq.queues.backing.queue_memory import QueueMemory
from warrenmq.queues.backing.unacked_account import UnackedAccount
from warrenmq.queues.backing.variable_queue import VariableQueue
from warrenmq.queues.entry import Entry, EntryLedger
from warrenmq.queues.leave_reason import LOST
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.turn import TurnShare
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.model.message import NOT_JOURNALED
from warrenmq.store.model.runs import Runs

# Each time that a queue has so many more runs of spared messages, it forgets the settled ones.
SPARED_RUNS: Final = 64


class QueueContents(TurnShare):
    """The contents of the queue of `ledger`. `demand`: the consumers and readers that want them."""

    def __init__(
        self,
        ledger: EntryLedger,
        demand: HeadDemand,
        is_durable: bool,
        is_lazy: bool,
        host: QueueHost,
    ) -> None:
        super().__init__(host)
        self.host: QueueHost = host
        self.is_durable: bool = is_durable
        self.ledger: EntryLedger = ledger
        self.store: QueueStore = host.open_store(ledger, is_durable)
        self.ready: VariableQueue = VariableQueue()
        self.unacked: UnackedAccount = UnackedAccount(ledger)
        self.demand: HeadDemand = demand
        self.counters: QueueCounters = QueueCounters()
        self.memory: QueueMemory = QueueMemory(
            host, ledger, self.ready, self.unacked, self.counters, self, is_lazy
        )
        self.loader: Loader = Loader(ledger, self.store, host.memory.transit)
        # Receives every change of the messages, for a mirror; None: no mirror.
        self.feed: OperationFeed | None = None
        self.is_deleted: bool = False
        # A ready message may have a time of expiry.
        self.has_expiring: bool = False
        # Journal transient messages too: a reader group needs them to outlive a restart
        # (`queues/readers/group.py`).
        self.journals_transient: bool = False

    def is_wanted(self) -> bool:
        return self.demand.has_taker()

    # -- figures -----------------------------------------------------------------------------------

    @property
    def first_ready_seq(self) -> int:
        """Seq id of the oldest ready message, or of the next one published when none is ready.

        A lower bound when the oldest message is on disk only.
        """
        if self.ready.has_head_entry():
            return self.ready.head().seq
        return self.ready.delta.start if self.ready.count > 0 else self.ledger.next_seq

    def count_read(self, messages: i64) -> None:
        """Count messages whose content was read from disk."""
        self.counters.read += messages
        self.host.read_messages += messages

    def find_unacked(self, first: i64, end: i64) -> list[Entry]:
        """The unacked entries with seq ids in [first, end), of all holders, in any order."""
        return self.host.find_unacked(self.ledger, first, end)

    @property
    def transient_count(self) -> i64:
        """Ready and unacked messages of a durable queue that do not outlive a restart."""
        return self.ledger.transient_count + self.ready.delta.transient_count

    @property
    def transient_bytes(self) -> i64:
        """Bytes of the bodies of these messages."""
        return self.ledger.transient_bytes + self.ready.delta.transient_bytes

    # -- demand ------------------------------------------------------------------------------------

    def serve_demand(self) -> None:
        """Ask for a turn after a load if the head is wanted.

        While the load was under way, a consumer or reader that wanted the head, or a queue over its
        limit, could not begin a load of its own; and this load may have taken all that was ready.
        """
        loader = self.loader
        if loader.current is None and (loader.is_head_wanted or self.demand.exists()):
            loader.is_head_wanted = False
            self.on_arrival()

    # -- ranges ------------------------------------------------------------------------------------

    def peek(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Ready entries in memory from `from_seq` on, which stay; at least one if there is one.

        They end where delta begins. Returns none when the first one is on disk (`is_on_disk`).
        """
        if self.ready.is_on_disk(from_seq):
            return []
        index = self.ready.index_of_seq(from_seq)
        count = self.count_within(index, max_messages, max_bytes)
        return [self.ready.at(index + offset) for offset in range(count)]

    def count_within(self, index: i64, max_messages: i64, max_bytes: i64) -> i64:
        """The number of entries from place `index` on within both limits; at least 1 if any."""
        count: i64 = 0
        size_bytes: i64 = 0
        available: i64 = self.ready.run_length(index)
        while count < available and count < max_messages:
            size_bytes += self.ready.at(index + count).body_bytes
            if count > 0 and size_bytes > max_bytes:
                break
            count += 1
        return count

    def take_reserved(self, entries: list[Entry]) -> None:
        """Count consecutive ready messages, taken out by the caller, as unacked."""
        if len(entries) == 0:
            return
        self.memory.touch()
        # Whatever lies between them is gone, or was handed out or spared before.
        self.store.note_delivered(entries[0].seq, entries[-1].seq)
        delivered = self.ledger.delivered
        for entry in entries:
            self.unacked.add(entry)
            delivered.forget_spared(entry.seq, entry.seq)
        if self.feed is not None:
            for entry in entries:
                self.feed.delivered(entry.seq)

    def has_live(self, first: i64, end: i64) -> bool:
        """Whether a message of [first, end) is ready or unacked; True in doubt: on disk."""
        if first >= end:
            return False
        ready = self.ready
        place = ready.index_of_seq(first)
        if place < ready.entry_count and ready.at(place).seq < end:
            return True
        delta = ready.delta
        if delta.count > 0 and first < delta.end and delta.start < end:
            return True
        return self.unacked.count > 0 and len(self.find_unacked(first, end)) > 0

    def spare(self, entry: Entry) -> None:
        """Note that nobody has had `entry`, although later messages may have been handed out."""
        delivered = self.ledger.delivered
        before = len(delivered.spared)
        delivered.spare(entry.seq)
        count = len(delivered.spared)
        if count > before and count % SPARED_RUNS == 0:
            delivered.spared = [
                (first, last) for first, last in delivered.spared if self.has_live(first, last + 1)
            ]

    # -- expiry ------------------------------------------------------------------------------------

    def expect_expiry(self) -> None:
        """Start the broker's timer for this queue, as a message that expires becomes ready."""
        if not self.has_expiring:
            self.has_expiring = True
            self.host.expect_timer(self.ledger)

    # -- transient messages ------------------------------------------------------------------------

    def uncount_transient(self, entry: Entry) -> None:
        """Stop counting `entry`, which has left the queue, if it is counted as transient."""
        if not entry.persistent and self.is_durable:
            self.ledger.remove_transient(entry)

    def recount_transient(self) -> None:
        """Count the transient messages in memory after all ready ones have left the queue."""
        ledger = self.ledger
        if ledger.transient_count == 0:
            return
        ledger.transient_count = 0
        ledger.transient_bytes = 0
        if self.unacked.count > 0:
            for entry in self.find_unacked(0, ledger.next_seq):
                if not entry.persistent:
                    ledger.add_transient(entry)

    # -- loss --------------------------------------------------------------------------------------

    def notify_lost(self, entry: Entry) -> None:
        """Note that the content of `entry`, ready or unacked, is lost, and notify the feed."""
        self.ledger.delivered.forget_spared(entry.seq, entry.seq)
        if self.feed is not None:
            self.feed.settled(entry.seq, LOST)

    def notify_shrunk(self, start: i64, end: i64, taken: list[Entry]) -> None:
        """Notify the feed of the messages that a load found missing in delta.

        Delta was [start, end) before the load, and `taken` (ascending) have left it. In the part
        that delta covers no more, all other messages are unacked, settled, or could not be read.
        """
        feed = self.feed
        if feed is None:
            return
        delta = self.ready.delta
        gone: Runs = [(start, end - 1)]
        if delta.count > 0:
            gone = [(start, delta.start - 1), (delta.end, end - 1)]
        for first, last in gone:
            if first <= last:
                present = self.find_unacked(first, last + 1) + taken
                present.sort()
                feed.settled_runs(runs_between(first, last + 1, present), LOST)

    # -- the store ---------------------------------------------------------------------------------

    def settle_record(self, entry: Entry, now_ms: i64) -> None:
        """Settle in the store what it has of `entry`, which has left the queue."""
        if not entry.persistent and self.is_durable:
            self.ledger.remove_transient(entry)
        if entry.journal_state != NOT_JOURNALED or entry.content_ref is not None:
            self.store.settle(entry, now_ms)


def runs_between(first: i64, end: i64, present: list[Entry]) -> Runs:
    """The runs of [first, end) without the seq ids of `present`, which ascend.

    Some of `present` may lie outside the range.
    """
    runs: Runs = []
    start = first
    for entry in present:
        if start < entry.seq < end:
            runs.append((start, entry.seq - 1))
        start = max(start, entry.seq + 1)
    if start < end:
        runs.append((start, end - 1))
    return runs
