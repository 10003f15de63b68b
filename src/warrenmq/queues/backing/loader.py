"""The loads of one queue from its store: one is under way at a time, the others wait their turn."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.backing.variable_queue import VariableQueue
from warrenmq.queues.entry import EntryLedger
from warrenmq.queues.memory.transit import Transit
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.jobs.job import LoadDone
from warrenmq.store.model.runs import Runs


@mypyc_attr(allow_interpreted_subclasses=True)
class Load(LoadDone):
    """One request of a queue to its store."""

    def __init__(self) -> None:
        # The messages of the load were purged, or the queue is deleted.
        self.is_stale: bool = False
        # Seq ids that were settled while the load was under way.
        self.settled: set[int] = set()
        # Bytes that `queues/memory/transit.py` counts for this load on its way to a consumer.
        self.transit_bytes: i64 = 0

    def begin(self) -> bool:
        """Ask the store; False when nothing is left to ask for."""
        raise RuntimeError("abstract")

    def leave_out(self, purged: VariableQueue) -> None:
        """Forget the entries that are in `purged`: they left the queue."""


class Loader:
    """The loads of the queue of `ledger`, one after the other."""

    def __init__(self, ledger: EntryLedger, store: QueueStore, transit: Transit) -> None:
        self.current: Load | None = None
        # Seq id at which the current range load began.
        self.first_seq: i64 = 0
        # A read-ahead is under way: delta must keep its start, before which the messages will join.
        self.is_reading_ahead: bool = False
        # Seq ids that this queue dropped as a mirror (`queues/mirror/backing.py`). Loads skip them,
        # as their records may still exist.
        self.dropped: Runs = []
        # Somebody wanted the head while another load was under way (`want_head`).
        self.is_head_wanted: bool = False
        # Fetches until the queue checks again whether to read ahead.
        self.fetches_until_read_ahead: i64 = 0
        self._ledger: EntryLedger = ledger
        self._store: QueueStore = store
        self._transit: Transit = transit
        self._waiting: list[Load] = []
        self._is_starting: bool = False
        # The queue is deleted: cut `ledger.queue` after the last load.
        self._is_ended: bool = False

    def submit(self, load: Load) -> None:
        """Begin `load` at once, or after the loads that wait already."""
        self._waiting.append(load)
        self.start_next()

    def ask_range(
        self, load: Load, first: i64, end: i64, max_messages: i64, max_bytes: i64
    ) -> None:
        """Ask the store for indexed messages with seq ids in [first, end); for `Load.begin`."""
        self.first_seq = first
        self._store.load(first, end, max_messages, max_bytes, load)

    def end(self, load: Load) -> None:
        """Note that `load` has arrived, and release its bytes in transit."""
        if self.current is load:
            self.current = None
        if load.transit_bytes > 0:
            size = load.transit_bytes
            load.transit_bytes = 0
            self._transit.change(-size)
        if self._is_ended:
            self.unlink()

    def unlink(self) -> None:
        """Cut the cycle from the ledger to the deleted queue once no load needs it any more.

        Without the cut, the queue would stay in memory until the cycle collector runs.
        """
        self._is_ended = True
        if self.current is None and len(self._waiting) == 0:
            self._ledger.queue = None

    def start_next(self) -> None:
        """Begin the next load that still has something to ask for. The store may answer at once."""
        if self._is_starting:
            return
        self._is_starting = True
        while self.current is None and len(self._waiting) > 0:
            load = self._waiting.pop(0)
            self.current = load
            if not load.begin():
                self.end(load)
        self._is_starting = False

    def make_stale(self, purged: VariableQueue) -> None:
        """Tell all loads that the messages of delta and of `purged` have left the queue."""
        if self.current is not None:
            self.current.is_stale = True
            self.current.leave_out(purged)
        for load in self._waiting:
            load.leave_out(purged)
