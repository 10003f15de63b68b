"""The events that gather for the node of the clients, and the messages that its link holds."""

from __future__ import annotations

from collections.abc import Callable

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.remote.link_records import DONE, FAILED, FINISHED
from warrenmq.queues.remote.queue_link import EVENTS, FRAME_BYTES, QueueLink
from warrenmq.store.journal.confirm_run import ConfirmParty, ConfirmRun, ConfirmWaiter
from warrenmq.store.model.message import QueueLedger
from warrenmq.vocabulary.fail_points import fail_point


class LinkEvents:
    """Gathers events for `link`; calls `wake` for a turn, whose end sends them."""

    def __init__(self, link: QueueLink, wake: Callable[[], None]) -> None:
        self.out: BytesWriter = BytesWriter()
        self.is_over: bool = False
        self._link: QueueLink = link
        # The link had room when it was asked last; it is asked once a frame.
        self._has_room: bool = True
        self._wake: Callable[[], None] = wake

    def begin(self) -> BytesWriter:
        """Prepare for a record, which the caller writes to the result at once."""
        if len(self.out) == 0:
            self._wake()
        elif len(self.out) >= FRAME_BYTES:
            self.send()
        return self.out

    def has_room(self) -> bool:
        """Whether the link takes more deliveries."""
        if not self._has_room:
            self._has_room = self._link.has_room()
        return self._has_room

    def send(self) -> None:
        """Send what has gathered."""
        if len(self.out) > 0:
            frame = self.out.getvalue()
            self.out.truncate(0)
            if not self.is_over:
                self._link.send(EVENTS, frame)
                fail_point("events.queued")
        self._has_room = self._link.has_room()


class PartyOutcomes(ConfirmWaiter):
    """Reports which of the other node's parties are finished.

    Parties that wait for the same batch of a journal wait together.
    """

    def __init__(self, events: LinkEvents) -> None:
        self._events: LinkEvents = events
        self._newest: ConfirmRun | None = None

    def wait_for(self, batch: ConfirmParty, number: i64) -> None:
        """Report the party `number` as finished when `batch` is."""
        newest = self._newest
        if newest is not None and newest.party is batch and newest.last == number - 1:
            newest.last = number
            return
        run = ConfirmRun(self, number, 1)
        run.party = batch
        batch.runs.append(run)
        self._newest = run

    def on_decided(self, run: ConfirmRun) -> None:
        self.report(run.first, run.last, DONE if run.ok else FAILED)

    def report(self, first: i64, last: i64, outcome: i64) -> None:
        """Report the parties from `first` to `last` as finished, with this outcome."""
        out = self._events.begin()
        out.append(FINISHED)
        write_i64_be(out, first)
        write_i64_be(out, last)
        out.append(outcome)
        fail_point("outcome.reported")


class LinkUnacked:
    """The unacked messages that one link has delivered, by ledger and seq id."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, Entry]] = {}

    def add(self, entry: Entry) -> None:
        """Add a message that is delivered."""
        number = entry.ledger.queue_id
        entries = self._entries.get(number)
        if entries is None:
            entries = {}
            self._entries[number] = entries
        entries[entry.seq] = entry

    def take(self, ledger: QueueLedger, first: i64, last: i64) -> list[Entry]:
        """Remove and return the messages with seq ids in [first, last], in order."""
        taken: list[Entry] = []
        entries = self._entries.get(ledger.queue_id)
        if entries is None:
            return taken
        if last - first >= len(entries):
            # A run names messages that this link has: a longer one is a fault of the other node.
            last = first + len(entries)
        seq = first
        while seq <= last:
            entry = entries.pop(seq, None)
            if entry is not None:
                taken.append(entry)
            seq += 1
        return taken

    def take_all(self, ledger: QueueLedger) -> list[Entry]:
        """Remove and return all messages of one ledger, in order."""
        entries = self._entries.pop(ledger.queue_id, None)
        if entries is None:
            return []
        taken = list(entries.values())
        taken.sort()
        return taken

    def take_rest(self) -> list[list[Entry]]:
        """Remove and return all messages, in order for each ledger that has some."""
        rest: list[list[Entry]] = []
        for entries in self._entries.values():
            if len(entries) > 0:
                taken = list(entries.values())
                taken.sort()
                rest.append(taken)
        self._entries = {}
        return rest

    def find(self, ledger: QueueLedger, first: i64, end: i64) -> list[Entry]:
        """The messages of the queue of `ledger` with seq ids in [first, end), in any order."""
        entries = self._entries.get(ledger.queue_id)
        if entries is None:
            return []
        return [entry for seq, entry in entries.items() if first <= seq < end]

    def forget_lost(self, _ledger: QueueLedger, lost: list[Entry]) -> None:
        """Forget messages whose contents are lost; their queue has settled them."""
        for entry in lost:
            entries = self._entries.get(entry.ledger.queue_id)
            if entries is not None and entries.get(entry.seq) is entry:
                del entries[entry.seq]
