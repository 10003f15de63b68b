"""Applies the operations of a queue on another node to a copy of its messages, by seq id.

A mirror keeps every live message of its master ready, the unacked ones too: it has no consumers, so
it never delivers. The state of a seq id only rises (published, delivered, settled), so applying an
operation twice changes nothing, and a promotion has nothing to requeue. A returned message needs no
operation: it never left the mirror.

The master alone decides when a message expires, so nothing here asks for a timer.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.entry import ALPHA, Entry, QueueEnd
from warrenmq.queues.paged_queue import PagedQueue
from warrenmq.store.message import Message
from warrenmq.store.runs import Runs, add_run, contains, index_of_run, subtract


class MirrorBacking:
    """The messages of `backing`, changed only by operations of their master.

    `end`: the queue end that takes them back after a promotion.
    """

    def __init__(self, backing: PagedQueue, end: QueueEnd) -> None:
        self.backing: PagedQueue = backing
        self._end: QueueEnd = end

    def publish_at(
        self, seq: i64, message: Message, expiry_ms: i64, is_redelivered: bool, now_ms: i64
    ) -> None:
        """Append `message` as `seq`; journal a persistent one of a durable queue.

        Skips a seq id that was published or settled before. `expiry_ms`: milliseconds since 1970, 0
        for never.
        """
        backing = self.backing
        ledger = backing.ledger
        if seq < ledger.next_seq:
            return
        ledger.next_seq = seq + 1
        backing.memory.touch()
        backing.counters.published += 1
        backing.host.arrived_count += 1
        entry = Entry(message, ledger, seq, expiry_ms, self._end)
        entry.redelivered = is_redelivered
        if not entry.persistent and backing.is_durable:
            ledger.add_transient(entry)
        if expiry_ms != 0:
            # The queue that takes over starts the timer; `append` would ask for it now.
            backing.has_expiring = True
        backing.append(entry, now_ms)

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

    def unmark_delivered(self, seq: i64) -> None:
        """Take back the mark of a message whose only delivery reached nobody."""
        backing = self.backing
        ready = backing.ready
        place = ready.index_of_seq(seq)
        if place < ready.entry_count and ready.at(place).seq == seq:
            ready.at(place).redelivered = False
        backing.ledger.delivered.spare(seq)

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
        for first, last in runs:
            new = subtract(first, last, dropped)
            add_run(dropped, first, last)
            self._close_gap_at(first)
            ledger.delivered.forget_spared(first, last)
            for new_first, new_last in new:
                self._drop_from_memory(new_first, new_last, now_ms)
                self._drop_from_delta(new_first, new_last)
            if last >= ledger.next_seq:
                ledger.next_seq = last + 1

    def delete(self, now_ms: i64) -> None:
        """Drop all content: the master's queue was deleted."""
        self.backing.delete(now_ms)

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

    def _close_gap_at(self, seq: i64) -> None:
        """Join the runs of delivered messages around `seq`, if it is settled."""
        dropped = self.backing.loader.dropped
        place = index_of_run(dropped, seq)
        if place < len(dropped) and dropped[place][0] <= seq:
            ledger = self.backing.ledger
            first, last = dropped[place]
            ledger.delivered_upto = ledger.delivered.close_gap(first, last, ledger.delivered_upto)

    def _drop_from_memory(self, first: i64, last: i64, now_ms: i64) -> None:
        backing = self.backing
        ready = backing.ready
        place = ready.index_of_seq(first)
        count: i64 = 0
        while place + count < ready.entry_count and ready.at(place + count).seq <= last:
            count += 1
        if count == 0:
            return
        backing.counters.settled += count
        for entry in ready.take_range(place, count):
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
