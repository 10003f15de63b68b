"""Applies the operations of a queue on another node to a copy of its messages, by seq id.

A mirror keeps every live message of its master ready, the unacked ones too: it has no consumers, so
it never delivers. The state of a seq id only rises (published, delivered, settled), so applying an
operation twice changes nothing, and a promotion has nothing to requeue. A returned message needs no
operation: it never left the mirror.

The master alone decides when a message expires, so nothing here asks for a timer.

A copy grows at its end only, as the index of a queue takes ascending seq ids. A mirror that lacks
messages therefore gets them in order, those from its next seq id on (`fill`), while the operations
of the master go on. What the master publishes meanwhile is held in memory, neither journaled nor
paged, and joins the copy at the end (`end_sync`): journaled at once, it would keep the journal
files of the whole synchronisation on disk. Held messages have a bound in bytes. Beyond it the
mirror forgets all of them and holds what comes later; then the messages between are missing at the
end, and the master sends them in another pass. A mirror that lacks messages below its next seq id
cannot get them: its copy must begin anew, under new ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mypy_extensions import i64

from warrenmq.queues.backing.entry_deque import EntryDeque
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import ALPHA, Entry, QueueEnd
from warrenmq.queues.memory.account import ENTRY_BYTES, MESSAGE_BYTES
from warrenmq.queues.mirror.sliced_runs import subtracted
from warrenmq.queues.mirror.sliced_work import SlicedWork
from warrenmq.queues.mirror.snapshot import LiveScan, count_of
from warrenmq.store.model.epochs import Epochs
from warrenmq.store.model.message import PENDING, Message
from warrenmq.store.model.runs import Runs, add_run, add_runs, contains, index_of_run, subtract

# The most memory that the held messages of one level take (bytes).
HELD_BYTES: Final = 64 << 20


class MirrorBacking:
    """The messages of `backing`, changed only by operations of their master.

    `end`: the queue end that takes them back after a promotion.
    """

    def __init__(self, backing: PagedQueue, end: QueueEnd, held_bytes: i64 = HELD_BYTES) -> None:
        self.backing: PagedQueue = backing
        # The mirror may lack messages from its next seq id on, until `end_sync` returns True.
        self.is_syncing: bool = False
        # It had to forget held messages, as they were too many. Whoever notes that takes it back.
        self.has_forgotten: bool = False
        self._end: QueueEnd = end
        self._limit_bytes: i64 = held_bytes
        # Messages that wait for the end of the synchronisation.
        self._held: EntryDeque = EntryDeque()
        self._held_bytes: i64 = 0
        # All messages published from this seq id on are held; 0: none was published yet.
        self._held_from: i64 = 0
        # First message of this pass that came while it was held; 0: none.
        self._skipped_from: i64 = 0
        # Above every seq id that operations of the master have named during the synchronisation.
        self._named_below: i64 = 0
        # Called once, when the scan of `reopen` is over.
        self._on_reopened: Callable[[], None] | None = None

    # -- operations of the master ------------------------------------------------------------------

    def publish_at(
        self, seq: i64, message: Message, expiry_ms: i64, is_redelivered: bool, now_ms: i64
    ) -> bool:
        """Append `message` as `seq`; True: the journal has it, in the batch that gathers.

        Persistent messages of a durable queue are journaled. Skips a seq id that was published or
        settled before; seq ids between the last one and `seq` are gone. `expiry_ms`: milliseconds
        since 1970, 0 for never.
        """
        if not self.is_syncing:
            return self._append(seq, message, expiry_ms, is_redelivered, now_ms)
        if seq >= max(self.backing.ledger.next_seq, self._named_below):
            self._named_below = seq + 1
            self._hold(seq, message, expiry_ms, is_redelivered)
        return False

    def mark_delivered(self, runs: Runs) -> None:
        """Mark the messages of `runs` (inclusive seq ids) as delivered.

        Deliveries after a promotion are redeliveries.
        """
        ready = self.backing.ready
        for first, last in runs:
            # Messages in delta get their flag from the ledger when they are loaded.
            self.backing.store.note_delivered(first, last)
            self.backing.ledger.delivered.forget_spared(first, last)
            self._close_gap_at(first - 1)
            self._close_gap_at(last + 1)
            place = ready.index_of_seq(first)
            while place < ready.entry_count and ready.at(place).seq <= last:
                ready.at(place).redelivered = True
                place += 1
            place = self._held.index_of_seq(first)
            while place < self._held.count and self._held.at(place).seq <= last:
                self._held.at(place).redelivered = True
                place += 1

    def unmark_delivered(self, runs: Runs) -> None:
        """Take back the marks of messages of `runs` whose only deliveries reached nobody."""
        ledger = self.backing.ledger
        ready = self.backing.ready
        for first, last in runs:
            for spared_first, spared_last in subtract(first, last, self.backing.loader.dropped):
                add_run(ledger.delivered.spared, spared_first, spared_last)
            place = ready.index_of_seq(first)
            while place < ready.entry_count and ready.at(place).seq <= last:
                ready.at(place).redelivered = False
                place += 1
            place = self._held.index_of_seq(first)
            while place < self._held.count and self._held.at(place).seq <= last:
                self._held.at(place).redelivered = False
                place += 1

    def settle(self, runs: Runs, now_ms: i64) -> None:
        """Drop every message of `runs` (inclusive seq ids) from memory and disk.

        Skips seq ids that were settled before. A seq id that was never published counts as used:
        the master settled its message on arrival. Messages in delta stop counting at once; their
        records are settled in slices.
        """
        backing = self.backing
        backing.memory.touch()
        ledger = backing.ledger
        dropped = backing.loader.dropped
        parts: Runs = []
        for first, last in runs:
            parts.extend(subtract(first, last, dropped))
        if backing.ready.delta.count == 0:
            add_runs(dropped, parts)
        else:
            for first, last in parts:
                # One part after the other: delta ends at a message that is not dropped yet.
                add_run(dropped, first, last)
                self._drop_from_delta(first, last)
        for first, last in runs:
            self._close_gap_at(first)
            ledger.delivered.forget_spared(first, last)
            if self.is_syncing:
                # Messages below the run may be missing still.
                self._named_below = max(self._named_below, last + 1)
                self._drop_held(first, last)
            elif last >= ledger.next_seq:
                ledger.next_seq = last + 1
        self._drop_from_memory(parts, now_ms)

    def begin_epoch(self, epoch: i64, next_seq: i64, now_ms: i64) -> bool:
        """Begin `epoch`, in which the master's next message is `next_seq`.

        False, and nothing happens, unless the epoch is higher than all before. A mirror that is
        syncing does not pass over the seq ids below, as their messages may be missing.
        """
        backing = self.backing
        if epoch <= backing.ledger.epoch:
            return False
        if not self.is_syncing:
            self._pass_over(next_seq)
        return backing.begin_epoch(epoch)

    @property
    def held_from(self) -> i64:
        """The seq id from which on messages are held; 0: none is."""
        return self._held_from

    def is_settled(self, seq: i64) -> bool:
        """Whether the message `seq` is gone."""
        return contains(self.backing.loader.dropped, seq)

    # -- start and end of a copy -------------------------------------------------------------------

    def reopen(self, done: Callable[[], None]) -> None:
        """Take over what `backing` has, as after a restart; nothing in it may be unacked.

        Calls `done` at once or later; no operation may come before.
        """
        assert self.backing.unacked.count == 0
        self._on_reopened = done
        LiveScan(self.backing, self._take_live).start()

    def cut(self, first_seq: i64, now_ms: i64) -> None:
        """Drop every message from `first_seq` on, from memory and disk: no other copy has them.

        Their seq ids stay used. Forgets the epochs that began there, but not the highest epoch.
        """
        ledger = self.backing.ledger
        if first_seq < ledger.next_seq:
            self.settle([(first_seq, ledger.next_seq - 1)], now_ms)
        kept: Epochs = []
        rows = ledger.epochs
        for place in range(len(rows)):
            if rows[place][1] < first_seq or place == len(rows) - 1:
                kept.append(rows[place])
        ledger.epochs = kept

    # -- synchronisation ---------------------------------------------------------------------------

    def begin_sync(self) -> None:
        """Expect messages from the next seq id on by `fill`, until `end_sync` returns True.

        From now on `publish_at` must get every message that the master publishes. What was held
        before is forgotten: operations may have been missed since.
        """
        self.is_syncing = True
        self._forget_held()
        self._skipped_from = 0
        self._named_below = 0

    def fill(
        self, seq: i64, message: Message, expiry_ms: i64, is_redelivered: bool, now_ms: i64
    ) -> None:
        """Append a message of the master that this mirror may lack; see `publish_at`.

        They come in ascending order, all that the master has. Skips those that the mirror has, and
        those that operations have settled since the master sent them.
        """
        if self._skipped_from > 0 or contains(self.backing.loader.dropped, seq):
            return
        if self._held_from == 0 or seq < self._held_from:
            self._append(seq, message, expiry_ms, is_redelivered, now_ms)
        else:
            # The message is held. Should the held ones be forgotten, the pass ends here.
            self._skipped_from = seq

    def end_sync(self, upto: i64, now_ms: i64) -> bool:
        """End a pass that has brought every message below `upto`, the master's next seq id.

        True: no message is missing, and held ones are journaled in the batch that gathers. False:
        the master must send its messages from the next seq id on in another pass.
        """
        if self._skipped_from > 0:
            upto = self._skipped_from
            self._skipped_from = 0
        if self._held_from > upto:
            self._pass_over(upto)
            return False
        self._pass_over(upto if self._held_from == 0 else self._held_from)
        self.is_syncing = False
        for entry in self._held.take_all():
            self._append_entry(entry, now_ms)
        self._pass_over(self._named_below)
        self._forget_held()
        return True

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants of a mirror; for tests and the simulator."""
        backing = self.backing
        backing.check()
        assert backing.unacked.count == 0
        dropped = backing.loader.dropped
        ready = backing.ready
        for place in range(ready.entry_count):
            assert not contains(dropped, ready.at(place).seq)
        delta = ready.delta
        if delta.count > 0 and not delta.is_uncertain:
            # Delta begins and ends with a live message.
            assert not contains(dropped, delta.start) and not contains(dropped, delta.end - 1)
        deferred = self._held
        assert deferred.count == 0 or self.is_syncing
        assert self._held_bytes == sum(
            [int(_bytes(deferred.at(place))) for place in range(deferred.count)]
        )
        for place in range(deferred.count):
            assert deferred.at(place).seq >= self._held_from
            assert not contains(dropped, deferred.at(place).seq)

    # -- messages ----------------------------------------------------------------------------------

    def _append(
        self, seq: i64, message: Message, expiry_ms: i64, is_redelivered: bool, now_ms: i64
    ) -> bool:
        ledger = self.backing.ledger
        if seq < ledger.next_seq:
            return False
        entry = Entry(message, ledger, seq, expiry_ms, self._end)
        if is_redelivered or ledger.was_delivered(seq):
            # The master's flag may be older than the return of a delivery that reached nobody.
            entry.redelivered = not ledger.delivered.is_spared(seq)
        return self._append_entry(entry, now_ms)

    def _append_entry(self, entry: Entry, now_ms: i64) -> bool:
        backing = self.backing
        ledger = backing.ledger
        self._pass_over(entry.seq)
        ledger.next_seq = entry.seq + 1
        backing.memory.touch()
        backing.counters.published += 1
        backing.host.arrived_count += 1
        if not entry.persistent and backing.is_durable:
            ledger.add_transient(entry)
        if entry.redelivered:
            # Note the earlier delivery, or this copy would deny it once it is the master.
            backing.store.note_delivered(entry.seq, entry.seq)
        if entry.expiry_ms != 0:
            # The queue that takes over starts the timer; `append` would ask for it now.
            backing.has_expiring = True
        backing.append(entry, now_ms)
        return entry.journal_state == PENDING

    def _pass_over(self, seq: i64) -> None:
        """Note that no message from the next seq id on and below `seq` is alive."""
        ledger = self.backing.ledger
        first = ledger.next_seq
        if seq > first:
            add_run(self.backing.loader.dropped, first, seq - 1)
            ledger.delivered.forget_spared(first, seq - 1)
            self._close_gap_at(first)
            ledger.next_seq = seq

    # -- held messages -----------------------------------------------------------------------------

    def _hold(self, seq: i64, message: Message, expiry_ms: i64, is_redelivered: bool) -> None:
        entry = Entry(message, self.backing.ledger, seq, expiry_ms, self._end)
        entry.redelivered = is_redelivered
        size = _bytes(entry)
        if self._held_bytes + size > self._limit_bytes:
            self._forget_held()
            self.has_forgotten = True
        if self._held_from == 0:
            self._held_from = seq
        self._held.append(entry)
        self._held_bytes += size

    def _forget_held(self) -> None:
        self._held = EntryDeque()
        self._held_bytes = 0
        self._held_from = 0

    def _drop_held(self, first: i64, last: i64) -> None:
        for entry in self._held.take_seqs(first, last):
            self._held_bytes -= _bytes(entry)

    # -- messages that are settled -----------------------------------------------------------------

    def _take_live(self, runs: Runs) -> None:
        """Take `runs` for the messages that the copy has."""
        SlicedWork(self.backing.host, self._take_pieces(runs)).start()

    def _take_pieces(self, runs: Runs) -> Iterator[int]:
        backing = self.backing
        ledger = backing.ledger
        # Forget flags of messages that the copy never got: it may have missed later changes.
        ledger.delivered_upto = ledger.delivered.forget_from(ledger.next_seq, ledger.delivered_upto)
        dropped: Runs = []
        if ledger.next_seq > 1:
            yield from subtracted([(1, ledger.next_seq - 1)], [runs], dropped)
        backing.loader.dropped = dropped
        delta = backing.ready.delta
        if delta.count > 0:
            on_disk = runs[index_of_run(runs, delta.start) : index_of_run(runs, delta.end - 1) + 1]
            start: i64 = 0
            end: i64 = 0
            count = count_of(on_disk)
            if len(on_disk) > 0 and on_disk[-1][0] >= delta.end:
                count -= on_disk[-1][1] - on_disk[-1][0] + 1
                on_disk.pop()
            if len(on_disk) > 0:
                start = max(on_disk[0][0], delta.start)
                end = min(on_disk[-1][1] + 1, delta.end)
                count -= start - on_disk[0][0] + on_disk[-1][1] + 1 - end
            backing.memory.touch()
            backing.ready.shrink_delta(max(0, delta.count - count), start, end)
        done = self._on_reopened
        self._on_reopened = None
        if done is not None:
            done()

    def _close_gap_at(self, seq: i64) -> None:
        """Join the runs of delivered messages around `seq`, if it is settled."""
        dropped = self.backing.loader.dropped
        place = index_of_run(dropped, seq)
        if place < len(dropped) and dropped[place][0] <= seq:
            ledger = self.backing.ledger
            first, last = dropped[place]
            ledger.delivered_upto = ledger.delivered.close_gap(first, last, ledger.delivered_upto)

    def _drop_from_memory(self, runs: Runs, now_ms: i64) -> None:
        """Drop the entries of `runs`."""
        backing = self.backing
        for first, last in runs:
            for entry in backing.ready.take_seqs(first, last):
                backing.counters.settled += 1
                # A load of this content may be under way: ALPHA tells it that the entry has left.
                entry.form = ALPHA
                backing.settle_record(entry, now_ms)

    def _drop_from_delta(self, first: i64, last: i64) -> None:
        backing = self.backing
        delta = backing.ready.delta
        if delta.count == 0 or first >= delta.end or last < delta.start:
            return
        first = max(first, delta.start)
        end: i64 = min(last + 1, delta.end)
        backing.counters.settled += end - first
        dropped = backing.loader.dropped
        # Keep both ends of delta on live messages, so that reading starts where something is left.
        start = delta.start
        place = index_of_run(dropped, start)
        if dropped[place][0] <= start:
            start = dropped[place][1] + 1
        stop = delta.end
        place = index_of_run(dropped, stop - 1)
        if place < len(dropped) and dropped[place][0] < stop:
            stop = dropped[place][0]
        backing.ready.shrink_delta(end - first, start, stop)
        backing.purges.add_range(backing, first, end)


def _bytes(entry: Entry) -> i64:
    """Memory that a held message takes (bytes)."""
    return entry.content_bytes + ENTRY_BYTES + MESSAGE_BYTES
