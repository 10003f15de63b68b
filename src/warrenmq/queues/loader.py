"""The loads of one queue from its store: one under way at a time, the others wait their turn."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from warrenmq.queues.entry import EntryLedger
from warrenmq.queues.transit import Transit
from warrenmq.queues.variable_queue import VariableQueue
from warrenmq.store.jobs import LoadDone
from warrenmq.store.queue_store import QueueStore
from warrenmq.store.runs import Runs


@mypyc_attr(allow_interpreted_subclasses=True)
class Load(LoadDone):
    """One thing that a queue asks of its store."""

    def __init__(self) -> None:
        # The messages it is about were purged, or the queue is deleted.
        self.is_stale: bool = False
        # Seq ids that were settled while it was under way.
        self.settled: set[int] = set()
        # Bytes that `transit.py` counts for this load on its way to a consumer.
        self.transit_bytes: i64 = 0

    def begin(self) -> bool:
        """Ask the store; False when there is nothing to ask for any more."""
        raise RuntimeError("abstract")

    def leave_out(self, purged: VariableQueue) -> None:
        """What is in `purged` is nobody's."""


class Loader:
    """The loads of the queue of `log`, one after the other."""

    def __init__(self, ledger: EntryLedger, store: QueueStore, transit: Transit) -> None:
        self.current: Load | None = None
        # Seq id at which the current range load began.
        self.first_seq: i64 = 0
        # While a read-ahead is under way delta must keep its start: the loaded messages join in front of it.
        self.is_reading_ahead: bool = False
        # Seq ids that this queue dropped as a mirror (`mirror_backing.py`). Loads skip them: their records may still be there.
        self.dropped: Runs = []
        # Fetches until the next look at what should be read ahead.
        self.fetches_until_read_ahead: i64 = 0
        self._ledger: EntryLedger = ledger
        self._store: QueueStore = store
        self._transit: Transit = transit
        self._waiting: list[Load] = []
        self._is_going: bool = False
        # The queue is deleted.
        self._is_ended: bool = False

    def submit(self, load: Load) -> None:
        """Begin `load`, or let it wait its turn."""
        self._waiting.append(load)
        self.start_next()

    def ask_range(
        self, load: Load, first: i64, end: i64, max_messages: i64, max_bytes: i64
    ) -> None:
        """For `Load.begin`: messages of the index with seq ids in [first, end)."""
        self.first_seq = first
        self._store.load(first, end, max_messages, max_bytes, load)

    def end(self, load: Load) -> None:
        """`load` is here."""
        if self.current is load:
            self.current = None
        if load.transit_bytes > 0:
            size = load.transit_bytes
            load.transit_bytes = 0
            self._transit.change(-size)
        if self._is_ended:
            self.unlink()

    def unlink(self) -> None:
        """The queue is deleted. Cut the cycle through its log unless a load needs it: else it waits for the collector."""
        self._is_ended = True
        if self.current is None and len(self._waiting) == 0:
            self._ledger.queue = None

    def start_next(self) -> None:
        """Begin the next one that still has something to ask for. A store may answer at once."""
        if self._is_going:
            return
        self._is_going = True
        while self.current is None and len(self._waiting) > 0:
            load = self._waiting.pop(0)
            self.current = load
            if not load.begin():
                self.end(load)
        self._is_going = False

    def make_stale(self, purged: VariableQueue) -> None:
        """The messages of delta as it is are gone, and all others in `purged`."""
        if self.current is not None:
            self.current.is_stale = True
            self.current.leave_out(purged)
        for load in self._waiting:
            load.leave_out(purged)
