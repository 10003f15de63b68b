"""The messages of one queue behind one interface, whether in memory, index or content store (S48).

Every change of a queue's messages is one of the operations here: a message arrives and waits
(`append`) or goes straight to a consumer (`pass_by`), is delivered (`hand_out`), reserved for a
reader group, settled, requeued, dropped, or purged. `Queue` decides which operation, and for whom;
this module knows neither consumers nor the time of expiry. Each operation notifies the queue's feed
(`operation_feed.py`), if it has one.

A persistent message in a durable queue is given to the journal when it arrives, except for a no-ack
consumer: that message is gone when it is handed over and needs no record.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.queues.backing.contents import QueueContents
from warrenmq.queues.backing.head_demand import HeadDemand
from warrenmq.queues.backing.paging import Progress, index_slice, page_slice
from warrenmq.queues.backing.purging import Purge, Purges
from warrenmq.queues.entry import ALPHA, Entry, EntryLedger, QueueEnd
from warrenmq.queues.leave_reason import HANDED_OVER
from warrenmq.queues.queue_host import QueueHost
from warrenmq.queues.turn import DONE, MORE
from warrenmq.store.model.epochs import Epochs
from warrenmq.store.model.message import INDEXED, NOT_JOURNALED, Message, Position


class PagedQueue(QueueContents):
    """The messages of the queue of `ledger`, with every operation that changes them."""

    def __init__(
        self,
        ledger: EntryLedger,
        demand: HeadDemand,
        is_durable: bool,
        is_lazy: bool,
        host: QueueHost,
    ) -> None:
        super().__init__(ledger, demand, is_durable, is_lazy, host)
        self._progress: Progress = Progress()
        self.purges: Purges = Purges()

    # -- arrival -----------------------------------------------------------------------------------

    def make_entry(self, queue: QueueEnd, message: Message, expiry_ms: i64) -> Entry:
        """Make a published message's entry, with the next seq id: for `append`, `pass_by`, `drop`.

        `queue`: the queue end to which holders return the entry. `expiry_ms`: when it expires (ms
        since 1970; 0: never).
        """
        if not self.memory.is_changed:
            self.memory.touch()
        ledger = self.ledger
        seq = ledger.next_seq
        ledger.next_seq = seq + 1
        self.counters.published += 1
        self.host.arrived_count += 1
        entry = Entry(message, ledger, seq, expiry_ms, queue)
        if not message.persistent and self.is_durable:
            ledger.add_transient(entry)
        return entry

    def append(self, entry: Entry, now_ms: i64) -> None:
        """Enqueue `entry` behind all ready messages; journal it when it must outlive a restart."""
        if entry.expiry_ms != 0:
            self.expect_expiry()
        if self.is_durable and (entry.persistent or self.journals_transient):
            self.store.append(entry, now_ms)
        self.ready.append(entry)
        if self.feed is not None:
            self.feed.published(entry)
        if self.memory.pages and not self.is_listed:
            self.memory.expect_paging()

    def pass_by(self, entry: Entry, no_ack: bool, now_ms: i64) -> None:
        """Count `entry` as delivered on arrival, without queueing it.

        With `no_ack` the entry is settled too.
        """
        counters = self.counters
        if entry.redelivered:
            counters.redelivered += 1
        ledger = self.ledger
        if entry.seq > ledger.delivered_upto:
            ledger.delivered_upto = entry.seq
        if no_ack:
            counters.handed_settled += 1
            if not entry.persistent and self.is_durable:
                ledger.remove_transient(entry)
        else:
            counters.handed_unacked += 1
            if self.is_durable and (entry.persistent or self.journals_transient):
                self.store.append(entry, now_ms)
            self.unacked.add(entry)
        if self.feed is not None:
            if no_ack:
                self.feed.settled(entry.seq, HANDED_OVER)
            else:
                self.feed.published(entry)
                self.feed.delivered(entry.seq)

    # -- leaving -----------------------------------------------------------------------------------

    def hand_out(self, entry: Entry, no_ack: bool, now_ms: i64) -> None:
        """Count `entry`, which was the head, as delivered: unacked, or settled with `no_ack`."""
        counters = self.counters
        if entry.redelivered:
            counters.redelivered += 1
        ledger = self.ledger
        if entry.seq > ledger.delivered_upto:
            ledger.delivered_upto = entry.seq
        if len(ledger.delivered.spared) > 0:
            ledger.delivered.forget_spared(entry.seq, entry.seq)
        if no_ack:
            counters.handed_settled += 1
            self.settle_record(entry, now_ms)
        else:
            counters.handed_unacked += 1
            self.unacked.add(entry)
        if self.feed is not None:
            if no_ack:
                self.feed.settled(entry.seq, HANDED_OVER)
            else:
                self.feed.delivered(entry.seq)

    def reserve(self, from_seq: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Reserve ready entries in memory from `from_seq` on for a reader group.

        Reserved entries count as unacked.
        """
        if self.ready.is_on_disk(from_seq):
            return []
        index = self.ready.index_of_seq(from_seq)
        entries = self.ready.take_range(index, self.count_within(index, max_messages, max_bytes))
        self.take_reserved(entries)
        return entries

    def settle(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle an unacked entry for `reason` (`queues/leave_reason.py`)."""
        if not self.memory.is_changed:
            self.memory.touch()
        is_indexed = self.unacked.remove(entry)
        self.counters.settled += 1
        entry.form = ALPHA
        if not entry.persistent and self.is_durable:
            self.ledger.remove_transient(entry)
        if not is_indexed:
            if entry.journal_state != NOT_JOURNALED or entry.content_ref is not None:
                self.store.settle(entry, now_ms)
        elif not self.is_deleted:
            load = self.loader.current
            if load is not None:
                load.settled.add(entry.seq)
            self.store.settle(entry, now_ms)
        if self.feed is not None:
            self.feed.settled(entry.seq, reason)

    def drop(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle `entry`, just arrived or just the head, for `reason`; no consumer has had it."""
        self.memory.touch()
        # A load of this content may be under way: ALPHA keeps it from taking the entry for unacked.
        entry.form = ALPHA
        self.settle_record(entry, now_ms)
        if self.feed is not None:
            self.feed.settled(entry.seq, reason)

    def begin_leaving(self, entry: Entry, now_ms: i64) -> None:
        """Count `entry`, just arrived or just the head, as unacked: it becomes a dead letter.

        One that arrived is journaled like any other, so that no crash finds it nowhere.
        """
        self.memory.touch()
        if (
            self.is_durable
            and (entry.persistent or self.journals_transient)
            and entry.journal_state == NOT_JOURNALED
            and entry.content_ref is None
        ):
            self.store.append(entry, now_ms)
            # A head whose batch has failed is journaled once more, and was published before.
            if self.feed is not None and entry.seq > self.ledger.failed.retracted_upto:
                self.feed.published(entry)
        self.unacked.add(entry)
        self.unacked.leaving_count += 1
        if not entry.redelivered:
            self.spare(entry)
        if self.feed is not None:
            self.feed.leaving(entry.seq)

    def end_leaving(self, entry: Entry, reason: i64, now_ms: i64) -> None:
        """Settle an entry that was leaving for `reason`: it is handed over."""
        self.unacked.leaving_count -= 1
        self.ledger.delivered.forget_spared(entry.seq, entry.seq)
        self.settle(entry, reason, now_ms)

    def requeue(self, entries: list[Entry], now_ms: i64, is_unseen: bool = False) -> None:
        """Return unacked entries to their original places, marked redelivered.

        `is_unseen`: no client has had them, so their mark stays as it was before they were handed
        out, unless a later message was handed out: only what is marked may come out of order.
        Entries of a deleted queue are settled instead.
        """
        if not self.memory.is_changed:
            self.memory.touch()
        entries.sort()
        for entry in entries:
            self.counters.requeued += 1
            self.unacked.remove(entry)
        if self.is_deleted:
            for entry in entries:
                if entry.journal_state != INDEXED:
                    self.settle_record(entry, now_ms)
            return
        if is_unseen:
            self._spare_last(entries)
        for entry in entries:
            entry.consumer = None
            if not is_unseen:
                entry.redelivered = True
            if entry.expiry_ms != 0:
                self.expect_expiry()
        self.ready.requeue(entries)
        if self.feed is not None:
            for entry in entries:
                if entry.redelivered:
                    self.feed.returned(entry.seq)
                else:
                    self.feed.put_back(entry.seq)

    def _spare_last(self, entries: list[Entry]) -> None:
        """Spare those of `entries` behind which nothing was handed out; mark the others."""
        for entry in entries:
            if not entry.redelivered:
                self.spare(entry)
        ledger = self.ledger
        last = ledger.delivered.last(ledger.delivered_upto)
        for entry in entries:
            if entry.seq < last and not entry.redelivered:
                entry.redelivered = True
                ledger.delivered.forget_spared(entry.seq, entry.seq)

    # -- epochs ------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: i64) -> bool:
        """Begin `epoch` with the next message; False, and nothing happens, unless it is higher.

        In a durable queue the journal writes it at once (`Journal.when_durable` tells when it is
        on disk). Forgets epochs without a live message.
        """
        ledger = self.ledger
        if epoch <= ledger.epoch:
            return False
        self.store.begin_epoch(epoch)
        if self.purges.is_empty():
            # A crash could bring messages back that a purge has not settled yet.
            kept: Epochs = []
            rows = ledger.epochs
            for place in range(len(rows) - 1):
                if self.has_live(rows[place][1], rows[place + 1][1]):
                    kept.append(rows[place])
            kept.append(rows[-1])
            ledger.epochs = kept
        return True

    def skip_to(self, seq: i64) -> None:
        """Use no seq id below `seq` for further messages."""
        self.ledger.next_seq = max(self.ledger.next_seq, seq)

    # -- ends --------------------------------------------------------------------------------------

    def purge(self, now_ms: i64) -> Purge:
        """Drop every ready message.

        The messages are gone when this returns, and are settled a slice at a time.
        """
        self.memory.touch()
        return self.purges.begin(self, False, now_ms)

    def delete(self, now_ms: i64) -> None:
        """Drop all messages, as the queue is deleted."""
        self.is_deleted = True
        self.memory.end()
        self.purges.begin(self, True, now_ms)
        self.feed = None

    # -- start-up ----------------------------------------------------------------------------------

    def restore_delta(
        self, start: i64, end: i64, count: i64, size_bytes: i64, may_expire: bool
    ) -> None:
        """Take over `count` messages of [start, end) in the index.

        Called after a start, before `restore`. `size_bytes` is an estimate for all of them.
        """
        self.ready.restore_delta(start, end, count, size_bytes)
        if count > 0 and may_expire:
            self.expect_expiry()

    def restore(self, queue: QueueEnd, positions: list[Position], is_clean: bool) -> None:
        """Take over live positions (ascending) that only the journal has, after a start.

        `ledger` must be restored before. After an unclean stop it is unknown which messages were
        delivered, so all count as redelivered (W29).
        """
        ledger = self.ledger
        if len(positions) > 0:
            self.memory.touch()
        if not is_clean:
            ledger.delivered_upto = max(ledger.delivered_upto, ledger.next_seq - 1)
        for position in positions:
            entry = Entry(position.message, ledger, position.seq, position.expiry_ms, queue)
            entry.journal_state = position.journal_state
            # A message in the journal outlives restarts, even if its publisher did not ask for it.
            entry.persistent = True
            entry.has_content = position.has_content
            entry.content_ref = position.content_ref
            entry.body_bytes = position.body_bytes
            entry.content_bytes = position.content_bytes
            entry.redelivered = position.redelivered or ledger.was_delivered(position.seq)
            if entry.expiry_ms != 0:
                self.expect_expiry()
            self.ready.restore(entry)

    # -- invariants --------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert the invariants between two operations, for tests and the simulator.

        Visits every entry in memory.
        """
        if self.is_deleted:
            return
        self.ready.check()
        ledger = self.ledger
        mark = ledger.indexed_upto
        assert 0 < mark <= ledger.next_seq
        out = self.find_unacked(0, ledger.next_seq)
        assert self.unacked.count == len(out)
        assert self.unacked.paged_count == len([entry for entry in out if entry.form != ALPHA])
        assert self.unacked.content_bytes == sum(
            [int(one.content_bytes) for one in out if one.form == ALPHA]
        )
        assert ledger.unindexed_unacked == len([entry for entry in out if entry.seq >= mark])
        ready = self.ready
        present = out + [ready.at(place) for place in range(ready.entry_count)]
        transient = [one for one in present if self.is_durable and not one.persistent]
        assert ledger.transient_count == len(transient)
        assert ledger.transient_bytes == sum([int(one.body_bytes) for one in transient])
        for entry in present:
            # The index has every live position below its mark, and none from there on.
            assert (entry.journal_state == INDEXED) == (entry.seq < mark)
            assert entry.form != ALPHA or entry.has_content
            assert entry.seq < ledger.next_seq
        # The account must know every change of the memory in use by the end of the turn.
        memory = self.memory
        assert memory.is_changed or self.is_listed or memory.ram_bytes == memory.current_bytes()

    # -- slices ------------------------------------------------------------------------------------

    def index_upto(self, seq: i64, limit: i64) -> bool:
        """Index at most `limit` live positions below `seq`; True when none is left.

        Contents stay in memory.
        """
        return self.is_deleted or index_slice(self, self._progress, seq, limit) == DONE

    def run_slice(self, now_ms: i64) -> i64:
        """Run the queue's share of a turn: serve loads that have arrived, settle purges, page.

        Purging and paging stop after a slice each; returns how the slice ended.
        """
        self.is_listed = False
        self.steps_used = 0
        self.demand.now_ms = now_ms
        outcome: i64 = MORE if self.purges.settle_slice(self, now_ms) else DONE
        if self.has_arrivals:
            self.has_arrivals = False
            queue = self.ledger.queue
            if queue is not None:
                queue.serve(now_ms)
        memory = self.memory
        if memory.pages and not self.is_deleted:
            paged = page_slice(self, self._progress)
            if outcome == DONE or paged == MORE:
                outcome = paged
        if memory.ram_bytes != memory.current_bytes():
            # Report what paging freed: otherwise the monitor would ask for it again.
            memory.touch()
        return outcome
