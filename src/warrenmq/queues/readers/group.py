"""Reader groups: named, durable readers that reserve ranges of a queue and can read them again.

A consumer gets each message once and settles each. A program such as Spark wants the opposite: name
a range, read it as often as its own crashes demand, and only then release it. A reader group gives
that, by two numbers per queue:

    ... released ...  acked  ... may be fetched any number of times ...  reserved  ... ready ...

`reserve` raises `reserved` and takes the messages out of the queue's ready ones, as a delivery
would; `ack` raises `acked` and settles them. Both numbers only grow. The caller makes a change
durable before it answers, in this order. Reserve: the messages (also transient ones, which are
journaled for it), then the definition, then the answer, so that a reader that remembers a range
finds it still reserved, even after a crash of the broker (`attach`). Ack: the journal's acks, then
the definition; a definition whose `acked` lags is harmless, one that leads would strand messages
below it. Not safe are messages that went to the index before the queue had a reader group and do
not outlive a crash: transient ones, and large ones whose batch had failed.

This module is a group's part in one queue; groups.py binds several queues together.

Invariants, `check()`: `acked <= reserved`; every reserved message lies in [acked, reserved);
`reserved_entries` is in seq order; no consumer has an unacked message in [acked, reserved). The
last one is why a reserve stops before a message that a consumer has not settled, or that is on its
way to another queue as a dead letter: requeued inside a reserved range, or back after a crash, it
would change the range between two reads, and an ack of the range would lose it.

The incarnation of a queue tells its lives apart (`Queue.incarnation`): a queue deleted and declared
again is another one. No clock, no I/O: the caller does the long poll and waits for the journal
(admin/readers/calls.py).

The copies of a mirrored queue have the group's part as well (`is_copy`), as its master tells them,
and journal the reserved messages before the reader gets its answer. So a reader goes on with the
next master: seq ids are the same there, and what was reserved is reserved again when the copy takes
over (`attach`).
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.backing.loading import EntryContents, IndexCopies, RangeLoad, peek_anywhere
from warrenmq.queues.backing.paging import journal_missing
from warrenmq.queues.entry import ALPHA, GAMMA, Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.readers.group_error import (
    GroupError,
    acked_text,
    beyond_text,
    gone_error,
    lapsed_error,
    leaving_error,
    moved_error,
)
from warrenmq.queues.readers.reservation import ENOUGH, EVERYTHING, LOADING, MORE, Reservation
from warrenmq.queues.readers.sliced_turns import SlicedTurns
from warrenmq.store.index.content_load import RECORD_OVERHEAD_BYTES
from warrenmq.store.model.message import NOT_JOURNALED
from warrenmq.vocabulary.error_codes import DATA_LOSS, PRECONDITION

# Messages reserved or acked in one step; the bound limits how long other work on the loop waits.
GROUP_SLICE_MESSAGES: Final = 2048
# Bytes of content that reserved messages read from disk may keep in memory; fetches read the rest.
RESERVED_BYTES_MAX: Final = 16777216


@final
class GroupMember:
    """The part of the group `group_name` in one queue, for as long as that queue exists."""

    def __init__(
        self,
        group_name: bytes,
        queue_name: bytes,
        queue_id: i64,
        incarnation: i64,
        acked: i64,
        reserved: i64,
    ) -> None:
        self.group_name: bytes = group_name
        self.queue_name: bytes = queue_name
        # The id of the queue on this node.
        self.queue_id: i64 = queue_id
        self.incarnation: i64 = incarnation
        # None: the queue is deleted, recovery did not find it, or it is a copy, or it has lapsed.
        self.queue: Queue | None = None
        # The queue is a copy whose master is another node, which serves the group.
        self.is_copy: bool = False
        # The queue goes on from a copy that may lack messages, and nobody has accepted that yet.
        self.has_lapsed: bool = False
        # `has_lapsed` of the definition on disk.
        self.stored_lapse: bool = False
        # The queue was deleted when it had nothing left to read, so nothing is lost.
        self.is_ended: bool = False
        self.acked: i64 = acked
        self.reserved: i64 = reserved
        # `acked` as far as the journal's acks are known to be durable; the limit of the definition.
        self.acked_durable: i64 = acked
        # `acked` as far as the copies of the queue that count are known to have it, too.
        self.acked_at_copies: i64 = acked
        # `acked` of the definition on disk; -1: there is none.
        self.stored_acked: i64 = -1
        # `reserved` of the definition on disk; -1: there is none.
        self.stored_reserved: i64 = -1
        # The reserved messages that are not acked, by ascending seq id.
        self.reserved_entries: list[Entry] = []
        # Seq id of the oldest message not acked, when it had to be read from disk; -1: not read.
        self.oldest_seq: i64 = -1
        # When the message `oldest_seq` arrived (ms since 1970).
        self.oldest_ms: i64 = 0
        # After a start, not all reserved messages have been read from disk yet.
        self.is_attaching: bool = False
        # Callbacks that wait for the end of `is_attaching`.
        self.attach_watchers: list[Callable[[], None]] = []
        # Everything of the range below it is reserved again.
        self._attach_next: i64 = 0
        # Counts the calls of `attach`: a load of an earlier one brings nothing.
        self._attach_number: i64 = 0
        # The turns in which `attach` goes on; None: none was needed so far.
        self._attach_turns: SlicedTurns | None = None
        # The load that brings messages from disk, for a reserve or for `attach`.
        self._load: RangeLoad | None = None

    @property
    def acked_for_good(self) -> i64:
        """The position whose acks are durable, here and at the copies of the queue that count."""
        queue = self.queue
        if queue is None or queue.confirm_source is None:
            return self.acked_durable
        return min(self.acked_durable, self.acked_at_copies)

    @property
    def birth(self) -> i64:
        """The birth of the queue in its cluster; 0: on a lone node, or the queue is gone."""
        return 0 if self.queue is None else self.queue.definition.birth

    @property
    def is_lost(self) -> bool:
        """Whether messages that the group had not read are lost, or the queue with all of them."""
        return self.queue is None and not self.is_ended and not self.is_copy

    @property
    def is_stored(self) -> bool:
        """Whether the definition on disk is up to date, as far as the durable acks allow."""
        return (
            self.stored_acked == self.acked_durable
            and self.stored_reserved == self.reserved
            and self.stored_lapse == self.has_lapsed
        )

    # -- the calls, in the order a reader makes them -----------------------------------------------

    def expect_queue(self, now_ms: i64) -> Queue:
        """The queue; GroupError when it is deleted or has moved.

        The call counts as use: a queue does not expire under a reader.
        """
        queue = self.queue
        if self.is_copy:
            raise moved_error(self.group_name, self.queue_name, self.incarnation)
        if self.has_lapsed:
            raise self.lapse()
        if queue is None:
            raise gone_error(self.group_name, self.queue_name, self.incarnation)
        source = queue.confirm_source
        if source is not None and source.is_leaving:
            raise leaving_error(self.group_name, self.queue_name, self.incarnation)
        queue.last_used_ms = now_ms
        return queue

    def lapse(self) -> GroupError:
        """The refusal of a queue that `has_lapsed`."""
        return lapsed_error(
            self.group_name, self.queue_name, self.incarnation, self.acked, self.reserved
        )

    def check_start(self, start: i64) -> None:
        """Raise GroupError unless a reserve may begin at `start`."""
        if self.is_copy or self.has_lapsed:
            self.expect_queue(0)
        if start < self.acked:
            raise GroupError(
                DATA_LOSS, acked_text(self.group_name, self.queue_name, self.acked, start)
            )
        if start > self.reserved:
            raise GroupError(
                DATA_LOSS, beyond_text(self.group_name, self.queue_name, self.reserved, start)
            )

    def lag(self) -> i64:
        """The number of messages from `acked` on; messages below were left to other readers.

        Messages on disk are counted as if none of their range was missing.
        """
        queue = self.queue
        if queue is None:
            return 0
        ready = queue.backing.ready
        on_disk: i64 = min(ready.delta.count, max(i64(0), ready.delta.end - self.reserved))
        return (
            len(self.reserved_entries)
            + ready.entry_count
            - ready.index_of_seq(self.reserved)
            + on_disk
        )

    def check_end(self, end: i64) -> None:
        """Raise GroupError unless everything below `end` may be acked, or is acked already."""
        if self.is_copy or self.has_lapsed:
            self.expect_queue(0)
        if end > self.reserved:
            raise GroupError(
                DATA_LOSS, beyond_text(self.group_name, self.queue_name, self.reserved, end)
            )
        # A queue that has ended had nothing left to read: acks up to `reserved` remain allowed.
        if end > self.acked and not self.is_ended and self.queue is None:
            self.expect_queue(0)

    def lag_since_ms(self) -> i64:
        """Arrival (ms since 1970) of the oldest message not acked; -1: call `find_oldest` first."""
        queue = self.queue
        if queue is None:
            return -1
        ready = queue.backing.ready
        oldest: Entry | None = None
        if len(self.reserved_entries) > 0:
            oldest = self.reserved_entries[0]
        elif not ready.is_on_disk(self.reserved) and self.lag() > 0:
            oldest = ready.at(ready.index_of_seq(self.reserved))
        if oldest is not None and oldest.has_content:
            return oldest.message.timestamp_ms
        first: i64 = max(self.reserved, queue.backing.first_ready_seq)
        if oldest is not None:
            first = oldest.seq
        return self.oldest_ms if self.oldest_seq >= first else -1

    def find_oldest(self, done: Callable[[], None]) -> None:
        """Read the oldest message that is not acked from disk. Calls `done`, at once or later."""
        queue = self.queue
        assert queue is not None

        def on_entries(entries: list[Entry]) -> None:
            if len(entries) > 0:
                self.oldest_seq = entries[0].seq
                self.oldest_ms = entries[0].message.timestamp_ms
            done()

        if len(self.reserved_entries) == 0:
            peek_anywhere(queue.backing, self.reserved, queue.ledger.next_seq, 1, 1, on_entries)
        elif not self.load_contents(self.reserved_entries[:1], done):
            done()

    def available(self, start: i64) -> i64:
        """An upper bound of the messages that a reserve from `start` on might find."""
        return self.lag() - self._index_of(start)

    def reserve_slice(
        self,
        reservation: Reservation,
        takes_more: bool,
        barrier: i64,
        now_ms: i64,
        on_loaded: Callable[[], None],
    ) -> i64:
        """Add at most GROUP_SLICE_MESSAGES messages to `reservation`; ENOUGH, MORE or LOADING.

        Messages that are not on disk are given to the journal: transient ones, and those whose
        batch failed. Messages that an earlier reserve has reserved from `start` on come first,
        since the answer to it may have been lost; without `takes_more` the slice takes no others.
        `barrier`: the lowest seq id >= `reserved` that a consumer or another group has unacked, or
        EVERYTHING. After LOADING, `on_loaded` is called once.
        """
        queue = self.queue
        assert queue is not None
        may_be_more = True
        has_all = self._index_of(reservation.end) == i64(len(self.reserved_entries))
        if (
            takes_more
            and has_all
            and not reservation.is_full()
            and not queue.demand.is_held(now_ms)
        ):
            end: i64 = min(barrier, reservation.until)
            queue.drop_expired_head(now_ms)
            if queue.backing.unacked.leaving_count > 0:
                # A crash may bring back a message that is on its way out of the queue.
                for leaving in queue.backing.find_unacked(self.reserved, end):
                    end = min(end, leaving.seq)
            if (
                not reservation.is_dry
                and self.reserved < end
                and queue.backing.ready.is_on_disk(self.reserved)
            ):
                self._load_ready(queue, reservation, end, on_loaded)
                return LOADING
            may_be_more = self._take_ready(queue, reservation, end)
        outcome = self._add_reserved(queue, reservation, now_ms, on_loaded)
        return outcome if may_be_more or outcome == LOADING else ENOUGH

    def is_kept(self, reservation: Reservation) -> bool:
        """Whether the whole range would survive a crash.

        To be asked after the commit, since an earlier batch with some of its messages may have
        failed.
        """
        queue = self.queue
        if queue is None:
            return False
        index = self._index_of(reservation.start)
        end = self._index_of(reservation.end)
        while index < end:
            if not queue.backing.store.survives_crash(self.reserved_entries[index]):
                return False
            index += 1
        return True

    def check_range(self, start: i64, end: i64) -> None:
        """Raise GroupError unless [start, end) is reserved and not acked."""
        if start > end:
            raise GroupError(PRECONDITION, f"range [{start}, {end}) ends before it begins")
        if start < self.acked and start < end:
            raise GroupError(
                DATA_LOSS, acked_text(self.group_name, self.queue_name, self.acked, start)
            )
        if end > self.reserved:
            raise GroupError(
                DATA_LOSS, beyond_text(self.group_name, self.queue_name, self.reserved, end)
            )

    def fetch(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Reserved messages of [start, end) from its beginning, at least one if there is one.

        The same range may be fetched again and again. Entries may lack their content: see
        `load_contents`.
        """
        self.check_range(start, end)
        found: list[Entry] = []
        index = self._index_of(start)
        stop = self._index_of(end)
        total_bytes: i64 = 0
        while index < stop and i64(len(found)) < max_messages and total_bytes < max_bytes:
            entry = self.reserved_entries[index]
            total_bytes += entry.content_bytes
            if total_bytes > max_bytes and len(found) > 0:
                break
            found.append(entry)
            index += 1
        return found

    def load_contents(self, entries: list[Entry], on_loaded: Callable[[], None]) -> bool:
        """Load missing contents of reserved `entries`, then call `on_loaded`; False: all are here.

        Before that call, entries whose content is damaged have left the reserved messages.
        """
        absent = [entry for entry in entries if entry.form != ALPHA]
        queue = self.queue
        if len(absent) == 0 or queue is None:
            return False

        def on_contents(lost: list[Entry]) -> None:
            # `forget` has removed the lost entries, as it does when another reader asks for them.
            on_loaded()

        queue.backing.loader.submit(
            EntryContents(queue.backing, absent, self.has_reserved, on_contents)
        )
        return True

    def load_copies(self, entries: list[Entry], done: Callable[[list[Entry]], None]) -> bool:
        """Read paged-out reserved messages as copies, in one range read; False: not these entries.

        `done` is called with the copies, for `matched`.
        """
        queue = self.queue
        if queue is None or len(entries) == 0:
            return False
        size: i64 = 0
        for entry in entries:
            if entry.form != GAMMA or entry.content_ref is not None:
                return False
            size += entry.content_bytes + RECORD_OVERHEAD_BYTES
        queue.backing.loader.submit(
            IndexCopies(queue.backing, entries[0].seq, entries[-1].seq + 1, size, done)
        )
        return True

    def matched(self, entries: list[Entry], copies: list[Entry]) -> list[Entry]:
        """The copies that match `entries`, from the first one up to the first gap.

        Both lists ascend by seq id.
        """
        found: list[Entry] = []
        for copy in copies:
            place = len(found)
            if place == len(entries) or copy.seq > entries[place].seq:
                break
            if copy.seq == entries[place].seq:
                copy.redelivered = entries[place].redelivered
                found.append(copy)
        return found

    def has_reserved(self, entry: Entry) -> bool:
        """Whether this very entry is reserved by the group."""
        index = self._index_of(entry.seq)
        return index < len(self.reserved_entries) and self.reserved_entries[index] is entry

    def reserved_between(self, first: i64, end: i64) -> list[Entry]:
        """The group's reserved messages in [first, end)."""
        return self.reserved_entries[self._index_of(first) : self._index_of(end)]

    def first_reserved(self, from_seq: i64) -> i64:
        """Lowest seq id >= `from_seq` of a reserved message; EVERYTHING when there is none."""
        index = self._index_of(from_seq)
        return (
            self.reserved_entries[index].seq if index < len(self.reserved_entries) else EVERYTHING
        )

    def ack_slice(self, end: i64, now_ms: i64) -> bool:
        """Ack at most GROUP_SLICE_MESSAGES messages below `end`; True when more are left.

        May be repeated: an `end` at or below `acked` does nothing. An `end` above `reserved` is an
        error. The state between two slices is sound.
        """
        self.check_end(end)
        if end <= self.acked:
            return False
        count = self._index_of(end)
        if count > GROUP_SLICE_MESSAGES:
            count = GROUP_SLICE_MESSAGES
            self.acked = self.reserved_entries[count].seq
        else:
            self.acked = end
        done = self.reserved_entries[:count]
        del self.reserved_entries[:count]
        queue = self.queue
        if queue is not None:
            for entry in done:
                queue.leave(entry, ACKED, now_ms)
        return self.acked < end

    # -- life of the group -------------------------------------------------------------------------

    def attach(self, queue: Queue) -> None:
        """Reserve the live messages of [acked, reserved) again, before the queue delivers any.

        Called in recovery, and when a copy has become the master. A large range takes several
        turns, and messages that are on disk only are read first. Meanwhile `is_attaching` is set,
        and the queue neither delivers nor drops anything.
        """
        self.queue = queue
        self.is_copy = False
        queue.backing.journals_transient = True
        reserved = self.reserved
        # Transient messages had seq ids that no journal records: the next message must not get one
        # below `reserved`.
        if queue.ledger.next_seq < reserved:
            queue.ledger.next_seq = reserved
        self._attach_number += 1
        self._attach_next = self.acked
        self._go_on_attaching(queue)

    def _go_on_attaching(self, queue: Queue) -> None:
        """Reserve a slice of the range now; others follow in later turns, or behind a load."""
        if self._attach_slice() > 0:
            self._begin_attaching(queue)
            if self._attach_turns is None:
                self._attach_turns = SlicedTurns(queue.backing.host, self._attach_slice)
            self._attach_turns.ask_for_turn()

    def _attach_slice(self) -> i64:
        """Reserve at most GROUP_SLICE_MESSAGES of the range again.

        Returns how many, if more are to follow; 0: the range is complete, or the member detached,
        or a load brings the next ones.
        """
        queue = self.queue
        if queue is None:
            return 0
        count: i64 = 0
        while self._attach_next < self.reserved:
            if count >= GROUP_SLICE_MESSAGES:
                return count
            if queue.backing.ready.is_on_disk(self._attach_next):
                self._begin_attaching(queue)
                self._load_rest(queue)
                return 0
            found = self._count_ready(queue, GROUP_SLICE_MESSAGES - count)
            if found == 0:
                break
            taken = queue.backing.reserve(self._attach_next, found, EVERYTHING)
            self.reserved_entries.extend(taken)
            self._attach_next = taken[-1].seq + 1
            count += found
        if self.is_attaching:
            queue.resume_deliveries()
            self._end_attaching()
        return 0

    def _count_ready(self, queue: Queue, most: i64) -> i64:
        """How many of the next `most` messages in memory belong to the range."""
        count: i64 = 0
        for entry in queue.backing.peek(self._attach_next, most, EVERYTHING):
            if entry.seq >= self.reserved:
                break
            count += 1
        return count

    def _begin_attaching(self, queue: Queue) -> None:
        if not self.is_attaching:
            self.is_attaching = True
            queue.demand.restoring_count += 1

    def _end_attaching(self) -> None:
        self.is_attaching = False
        watchers, self.attach_watchers = self.attach_watchers, []
        for watcher in watchers:
            watcher()

    def _load_rest(self, queue: Queue) -> None:
        number = self._attach_number

        def on_range(entries: list[Entry]) -> None:
            if self.queue is None or self._attach_number != number:
                # Detached meanwhile; the load is stale and has taken nothing.
                return
            self._load = None
            self._keep_loaded(queue, entries)
            if len(entries) > 0:
                self._attach_next = entries[-1].seq + 1
            else:
                # Delta has nothing alive from there on.
                self._attach_next = max(self._attach_next, queue.backing.ready.delta.end)
            self._go_on_attaching(queue)

        backing = queue.backing
        end, size, most = self.reserved, backing.host.load_bytes, GROUP_SLICE_MESSAGES
        self._load = load = RangeLoad(backing, self._attach_next, end, most, size, True, on_range)
        backing.loader.submit(load)

    def detach(self, now_ms: i64) -> None:
        """Let go of a queue that is deleted or hidden; settle what it has not taken back."""
        self._cancel_load()
        queue, self.queue = self.queue, None
        if queue is not None:
            self.is_copy = queue.is_hidden
            for entry in self.reserved_entries:
                queue.leave(entry, ACKED, now_ms)
        self.reserved_entries = []
        if self.is_attaching:
            if queue is not None:
                queue.demand.restoring_count -= 1
            self._end_attaching()

    def follow(self, part: ReaderPart) -> None:
        """Stand where the master of the queue, of which this is a copy, says that the group does.

        Another master may have said more: what only that one knew counts no more.
        """
        acked = part.acked
        self.is_copy = True
        self.acked = acked
        self.reserved = part.reserved
        self.has_lapsed = part.has_lapsed
        self.acked_durable = min(self.acked_durable, acked)
        self.acked_at_copies = min(self.acked_at_copies, acked)

    def take_over(self, queue: Queue, is_complete: bool) -> None:
        """Serve the group, as the copy `queue` has become the master.

        Unless the copy `is_complete`, the group has lost messages: calls are refused until an
        opener accepts that, also by further masters.
        """
        self.is_copy = False
        self.has_lapsed = self.has_lapsed or not is_complete
        if not self.has_lapsed:
            self.attach(queue)

    def end(self) -> None:
        """Note that the queue is about to be deleted with nothing left to read: no loss."""
        self.is_ended = True
        self.acked_durable = self.acked

    def release(self, now_ms: i64) -> None:
        """Requeue the reserved messages, as the group is deleted or reads the queue no more."""
        self._cancel_load()
        reserved_entries, self.reserved_entries = self.reserved_entries, []
        self.reserved = self.acked
        queue = self.queue
        if queue is not None:
            queue.requeue(reserved_entries, now_ms)

    def check(self) -> None:
        """Assert the invariants of the module's docstring."""
        assert self.acked_durable <= self.acked <= self.reserved
        previous: i64 = -1
        for entry in self.reserved_entries:
            assert previous < entry.seq
            previous = entry.seq
        if len(self.reserved_entries) > 0:
            assert (
                self.reserved_entries[0].seq >= self.acked
                and self.reserved_entries[-1].seq < self.reserved
            )

    def forget(self, lost: list[Entry]) -> None:
        """Remove reserved messages that are in `lost`: somebody else has settled or taken them."""
        for entry in lost:
            if self.has_reserved(entry):
                del self.reserved_entries[self._index_of(entry.seq)]

    # -- parts -------------------------------------------------------------------------------------

    def _add_reserved(
        self, queue: Queue, reservation: Reservation, now_ms: i64, on_loaded: Callable[[], None]
    ) -> i64:
        """Count reserved messages behind `reservation.end` in, and make them durable."""
        first = self._index_of(reservation.end)
        stop: i64 = min(first + GROUP_SLICE_MESSAGES, i64(len(self.reserved_entries)))
        index = first
        absent: list[Entry] = []
        size: i64 = 0
        while index < stop and size < reservation.max_bytes - reservation.bytes:
            entry = self.reserved_entries[index]
            if entry.journal_state == NOT_JOURNALED and entry.form != ALPHA:
                absent.append(entry)
            size += entry.content_bytes
            index += 1
        if self.load_contents(absent, on_loaded):
            # Only contents in memory can be journaled, so load the absent ones first.
            return LOADING
        index = first
        while (
            index < stop
            and not reservation.is_full()
            and self.reserved_entries[index].seq < reservation.until
        ):
            reservation.add(self.reserved_entries[index])
            index += 1
        if journal_missing(queue.backing, self.reserved_entries[first:index], now_ms):
            feed = queue.backing.feed
            if feed is not None:
                # The copies have to journal these messages as well, a slice at a time.
                feed.readers_changed()
        return ENOUGH if index < stop or reservation.is_full() or index == first else MORE

    def _take_ready(self, queue: Queue, reservation: Reservation, end: i64) -> bool:
        """Reserve the next messages that are in memory; False when no more can follow."""
        wanted: i64 = min(
            reservation.max_messages - reservation.message_count, i64(GROUP_SLICE_MESSAGES)
        )
        ready = queue.backing.peek(self.reserved, wanted, reservation.max_bytes - reservation.bytes)
        count: i64 = 0
        for entry in ready:
            if entry.seq >= end:
                break
            count += 1
        if count > 0:
            taken = queue.backing.reserve(self.reserved, count, EVERYTHING)
            self.reserved_entries.extend(taken)
            self.reserved = taken[-1].seq + 1
            reservation.is_dry = False
        return count == wanted or (
            queue.backing.ready.is_on_disk(self.reserved) and not reservation.is_dry
        )

    def _load_ready(
        self, queue: Queue, reservation: Reservation, end: i64, on_loaded: Callable[[], None]
    ) -> None:
        """Reserve the next messages that are on disk only."""
        wanted: i64 = min(
            reservation.max_messages - reservation.message_count, i64(GROUP_SLICE_MESSAGES)
        )
        size: i64 = min(reservation.max_bytes - reservation.bytes, queue.backing.host.load_bytes)

        def on_range(entries: list[Entry]) -> None:
            self._load = None
            if len(entries) > 0:
                self._keep_loaded(queue, entries)
                self.reserved = entries[-1].seq + 1
            else:
                reservation.is_dry = True
            on_loaded()

        load = RangeLoad(queue.backing, self.reserved, end, wanted, size, True, on_range)
        self._load = load
        queue.backing.loader.submit(load)

    def _cancel_load(self) -> None:
        # A stale load leaves its messages in the queue.
        if self._load is not None:
            self._load.is_stale = True

    def _keep_loaded(self, queue: Queue, entries: list[Entry]) -> None:
        self.reserved_entries.extend(entries)
        for entry in entries:
            if queue.backing.unacked.content_bytes > RESERVED_BYTES_MAX:
                queue.backing.unacked.drop_content(entry)

    def _index_of(self, seq: i64) -> i64:
        """The number of reserved messages below `seq`."""
        reserved_entries = self.reserved_entries
        low: i64 = 0
        high: i64 = len(reserved_entries)
        while low < high:
            middle = (low + high) // 2
            if reserved_entries[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        return low
