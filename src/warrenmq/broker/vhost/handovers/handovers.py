"""Hand-overs: messages that leave one queue and enter others, and are never lost between the two.

A message that is handed over is unacked in its queue. Its copy goes to the other queues, with a
record of its own kind (MOVE, `store/journal/moves.py`). When the copy is durable, the message is
settled in its queue. A crash before that leaves the message in its queue, a crash after it leaves
both: the start finds the MOVE and settles the message (`restore_moved`). So a message may be
doubled only where the copy was delivered before the crash and the batch with it was not durable,
and where one of several queues has refused the copy: what becomes of that has records of its own.

What is handed over in one turn waits for the journal together. Copies for queues of other nodes,
and for mirrored ones, come first (`broker/vhost/remote/copies.py`): those for this node alone, and
the MOVE, follow when they have arrived.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.broker.vhost.handovers.taken_entries import TakenEntries
from warrenmq.broker.vhost.queues import VhostQueues
from warrenmq.broker.vhost.remote.copies import RemoteCopies
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import Entry
from warrenmq.queues.leveled_queue import LeveledQueue
from warrenmq.queues.mirror.backing import MirrorBacking
from warrenmq.queues.turn import TurnShare
from warrenmq.store.journal.journal import Journal
from warrenmq.store.model.message import JournalFile, MovedMessage, QueueLedger
from warrenmq.store.model.runs import Runs, add_run

# Content (bytes) and number of messages that may be on their way before queues have to wait.
OUT_BYTES_MAX: Final = 8 * 1024 * 1024
OUT_MESSAGES_MAX: Final = 16_384


class _Parcel:
    """Messages that are handed over in one turn, and settled when their copies are durable.

    It waits with a method of its own as callback; see `MoveSlice`.
    """

    def __init__(self, vhost: VhostQueues) -> None:
        self.entries: list[Entry] = []
        self.reasons: list[i64] = []
        self.copies: list[MovedMessage] = []
        self.size_bytes: i64 = 0
        self.is_durable: bool = False
        self._journal: Journal = vhost.journal
        self._vhost: VhostQueues = vhost

    def watch(self) -> None:
        """Wait for the journal, which has got all copies."""
        self._journal.when_durable(self.on_batch)
        self._vhost.node.wake()

    def on_batch(self, ok: bool, _now_ms: int) -> None:
        """Mark the parcel durable; if the batch failed, wait for the next one, which repeats it."""
        if ok:
            self.is_durable = True
            self._vhost.node.wake()
        else:
            self.watch()


class Handovers:
    """The messages of one vhost that are being handed over."""

    def __init__(self, vhost: VhostQueues) -> None:
        self._vhost: VhostQueues = vhost
        # Copies for queues of other nodes, and for mirrored ones.
        self.remote: RemoteCopies = RemoteCopies(vhost.node.wake)
        # Entries that are neither handed over nor settled yet.
        self._taken: TakenEntries = TakenEntries()
        self._gathering: _Parcel | None = None
        # Parcels that wait for the journal, oldest first.
        self._parcels: list[_Parcel] = []
        # Queues that wait for room.
        self._waiting: dict[TurnShare, None] = {}
        # After a start: levels whose messages of unfinished hand-overs are being settled, each with
        # the journal files that must stay until then.
        self._restoring: list[tuple[PagedQueue, list[JournalFile]]] = []
        vhost.host.unacked_finders.append(self._taken.find)
        vhost.host.loss_watchers.append(self.forget_lost)

    # -- a message ---------------------------------------------------------------------------------

    def admits(self, share: TurnShare) -> bool:
        """Whether there is room for more; if not, `share` gets a turn when there is."""
        taken = self._taken
        if taken.content_bytes < OUT_BYTES_MAX and taken.count < OUT_MESSAGES_MAX:
            return True
        self._waiting[share] = None
        return False

    def take(self, entry: Entry) -> None:
        """Take an unacked entry, which will be handed over or settled."""
        self._taken.add(entry)

    def has(self, entry: Entry) -> bool:
        """Whether a taken entry is still to be handed over: its content is not lost."""
        return self._taken.has(entry)

    def has_between(self, ledger: QueueLedger, first: i64, end: i64) -> bool:
        """Whether messages of the queue of `ledger` in [first, end) are still on their way."""
        return len(self._taken.find(ledger, first, end)) > 0

    def settle(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle a taken entry that needs no copy, or whose copy need not be durable."""
        self._taken.remove(entry)
        entry.queue.let_go(entry, reason, now_ms)

    def on_moved(self, entry: Entry, reason: i64, copy: MovedMessage) -> None:
        """Settle a taken entry when `copy`, which was published just now, is durable."""
        self._vhost.journal.moves.add(copy)
        parcel = self._gathering
        if parcel is None:
            parcel = _Parcel(self._vhost)
            self._gathering = parcel
        parcel.entries.append(entry)
        parcel.reasons.append(reason)
        parcel.copies.append(copy)

    # -- turns -------------------------------------------------------------------------------------

    def advance(self, now_ms: i64) -> None:
        """Let what was handed over in this turn wait for the journal; settle what is durable."""
        self.remote.advance(now_ms)
        parcel = self._gathering
        if parcel is not None:
            self._gathering = None
            self._parcels.append(parcel)
            parcel.watch()
        parcels = self._parcels
        moves = self._vhost.journal.moves
        while len(parcels) > 0 and parcels[0].is_durable:
            parcel = parcels.pop(0)
            for place in range(len(parcel.entries)):
                entry = parcel.entries[place]
                if self.has(entry):
                    self.settle(entry, parcel.reasons[place], now_ms)
            for copy in parcel.copies:
                if copy.pinned is not None:
                    moves.settled(copy.pinned)
        if len(self._waiting) > 0 and self._taken.count * 2 < OUT_MESSAGES_MAX:
            waiting = self._waiting
            self._waiting = {}
            for share in waiting:
                share.on_arrival()
        if len(self._restoring) > 0:
            self._end_restoring()

    def forget_lost(self, _ledger: QueueLedger, lost: list[Entry]) -> None:
        """Forget the entries `lost`: their contents are lost, and the queue has settled them."""
        for entry in lost:
            if self.has(entry):
                self._taken.remove(entry)
                queue = entry.queue
                if isinstance(queue, LeveledQueue):
                    queue.backing_of(entry.ledger).unacked.leaving_count -= 1

    # -- start -------------------------------------------------------------------------------------

    def restore_moved(self, ledger_id: i64, files: dict[int, JournalFile], now_ms: i64) -> None:
        """Settle the messages of one queue that were handed over before the start, by seq id.

        Call it when the queue has its messages. The journal's files with the MOVEs stay until all
        of these are settled.
        """
        backing = self._vhost.host.backing(ledger_id)
        queue = backing.ledger.queue if backing is not None else None
        if backing is None or queue is None:
            return
        runs: Runs = []
        for seq in sorted(files):
            add_run(runs, seq, seq)
        MirrorBacking(backing, queue).settle(runs, now_ms)
        pinned = list(files.values())
        for file in pinned:
            file.pins += 1
        self._restoring.append((backing, pinned))

    def _end_restoring(self) -> None:
        moves = self._vhost.journal.moves
        left: list[tuple[PagedQueue, list[JournalFile]]] = []
        for backing, files in self._restoring:
            if not backing.purges.is_empty():
                left.append((backing, files))
                continue
            for file in files:
                moves.settled(file)
        self._restoring = left
