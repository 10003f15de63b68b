"""Reader groups: named, durable readers that take messages of queues by position, in ranges that can be read again.

A consumer is given messages once and answers for each; a program such as Spark wants the opposite: name a range, read
it as often as its own crashes demand, and only then let it go. A reader group gives that. Two numbers per queue:

    ... released ...  acked  ... held: may be fetched any number of times ...  reserved  ... ready, anybody's ...

`reserve` moves `reserved` up and takes the messages out of the queue's ready ones, as a delivery would; `ack` moves
`acked` up and settles them. Both only grow. The caller makes a change durable before it answers, in this order:
reserve: the messages (also transient ones, which are journaled for it), then the definition, then the answer, so that
whoever remembers a range finds it held, even after a crash of the broker (`attach`). Ack: the journal's acks, then
the definition; a definition whose `acked` lags is harmless, one that leads would strand messages below it.

This module has a group's part in one queue; what binds several queues together is in reader_groups.py.

Invariants, `check()`: `acked <= reserved`; every held message lies in [acked, reserved); held is in seq order; no
other consumer has an unacked message in [acked, reserved). The last one is why a reserve stops before a message that
a consumer has not settled: if it came back inside a range that was handed out, the range would change between two
reads, and acking it would lose the message.

The incarnation of a queue is its id, which is never used twice: a queue deleted and declared again is another one.
No clock, no I/O; the long poll and the waiting for the journal are the caller's (admin/group_calls.py).
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.entry import ALPHA, GAMMA, Entry
from warrenmq.queues.leave_reason import ACKED
from warrenmq.queues.loading import EntryContents, IndexCopies, RangeLoad, peek_anywhere
from warrenmq.queues.paging import journal_alone
from warrenmq.queues.queue import Queue
from warrenmq.queues.reservation import Reservation
from warrenmq.store.index_load import RECORD_OVERHEAD_BYTES
from warrenmq.store.message import NOT_JOURNALED

# Codes of GroupError; part of the admin protocol.
FENCED: Final = "fenced"
DATA_LOSS: Final = "data_loss"
NOT_FOUND: Final = "not_found"
PRECONDITION: Final = "precondition"

# Messages reserved or acked in one step; bounds how long everything else on the loop waits.
GROUP_SLICE_MESSAGES: Final = 2048
# What held messages that were read from disk may keep in memory (bytes of content); more is read again for a fetch.
HELD_BYTES_MAX: Final = 16777216
# Above every position and count; fits an i64 with room to add to it.
EVERYTHING: Final = 1 << 62

# How a slice of a reserve ended.
ENOUGH: Final = 0  # limits are reached, or nothing more is there
MORE: Final = 1  # call again
LOADING: Final = 2  # what is next is on its way from disk; the callback tells when to call again


class GroupError(Exception):
    """A call a group refuses. `code` is one of the constants above, `text` says it in words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code: str = code
        self.text: str = text


@final
class GroupMember:
    """The part of the group called `group_name` in one queue, for as long as that queue is there."""

    def __init__(
        self, group_name: bytes, queue_name: bytes, queue_id: i64, acked: i64, reserved: i64
    ) -> None:
        self.group_name: bytes = group_name
        self.queue_name: bytes = queue_name
        self.queue_id: i64 = queue_id
        # None: the queue is deleted (or was not found by recovery).
        self.queue: Queue | None = None
        # It was deleted when nothing in it was left to read.
        self.is_ended: bool = False
        self.acked: i64 = acked
        self.reserved: i64 = reserved
        # `acked` as far as its journal acks are known durable: what the definition may say.
        self.acked_durable: i64 = acked
        # What the definition that is on disk says; -1: there is none.
        self.stored_acked: i64 = -1
        self.stored_reserved: i64 = -1
        self.held: list[Entry] = []
        # The oldest message that is not acked, when it had to be read from disk: seq id, and when it arrived (ms).
        self.oldest_seq: i64 = -1
        self.oldest_ms: i64 = 0
        # After a start, until everything it holds has been read from disk; who waits for that.
        self.is_attaching: bool = False
        self.attach_watchers: list[Callable[[], None]] = []
        # Brings messages from disk.
        self._load: RangeLoad | None = None

    @property
    def is_lost(self) -> bool:
        """Is the queue deleted with messages that were not read?"""
        return self.queue is None and not self.is_ended

    @property
    def is_stored(self) -> bool:
        """Is the definition on disk as it may be?"""
        return self.stored_acked == self.acked_durable and self.stored_reserved == self.reserved

    # -- the calls, in the order a reader makes them -----------------------------------------------------------

    def expect_queue(self, now_ms: i64) -> Queue:
        """The queue, if it is there. It counts as use of it: a queue does not expire under a reader."""
        queue = self.queue
        if queue is None:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{text(self.group_name)}': queue '{text(self.queue_name)}' "
                f"(incarnation {self.queue_id}) is deleted",
            )
        queue.last_used_ms = now_ms
        return queue

    def check_start(self, start: i64) -> None:
        """GroupError unless a reserve may begin at `start`."""
        if start < self.acked:
            raise GroupError(DATA_LOSS, self._acked_text(start))
        if start > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(start))

    def lag(self) -> i64:
        """Messages from `acked` on: what lies below was left to others. Those on disk are counted as if none was missing."""
        queue = self.queue
        if queue is None:
            return 0
        ready = queue.backing.ready
        on_disk: i64 = min(ready.delta.count, max(i64(0), ready.delta.end - self.reserved))
        return len(self.held) + ready.entry_count - ready.index_of_seq(self.reserved) + on_disk

    def check_end(self, end: i64) -> None:
        """GroupError unless everything below `end` may be acked, or is already."""
        if end > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(end))
        # Of a queue that has ended nothing was left; that much may still be said to be done.
        if end > self.acked and not self.is_ended and self.queue is None:
            self.expect_queue(0)

    def lag_since_ms(self) -> i64:
        """When the oldest message that is not acked arrived (ms since 1970); -1: it must be looked for (`find_oldest`)."""
        queue = self.queue
        if queue is None:
            return -1
        ready = queue.backing.ready
        oldest: Entry | None = None
        if len(self.held) > 0:
            oldest = self.held[0]
        elif not ready.is_on_disk(self.reserved) and self.lag() > 0:
            oldest = ready.at(ready.index_of_seq(self.reserved))
        if oldest is not None and oldest.has_content:
            return oldest.message.timestamp_ms
        first: i64 = (
            max(self.reserved, queue.backing.first_ready_seq) if oldest is None else oldest.seq
        )
        return self.oldest_ms if self.oldest_seq >= first else -1

    def find_oldest(self, done: Callable[[], None]) -> None:
        """Read the oldest message that is not acked, which is on disk; `done` is called, at once or later."""
        queue = self.queue
        assert queue is not None

        def on_entries(entries: list[Entry]) -> None:
            if len(entries) > 0:
                self.oldest_seq = entries[0].seq
                self.oldest_ms = entries[0].message.timestamp_ms
            done()

        if len(self.held) == 0:
            peek_anywhere(queue.backing, self.reserved, queue.ledger.next_seq, 1, 1, on_entries)
        elif not self.load_contents(self.held[:1], done):
            done()

    def available(self, start: i64) -> i64:
        """How many messages a reserve from `start` on might find."""
        return self.lag() - self._index_of(start)

    def reserve_slice(
        self,
        reservation: Reservation,
        takes_more: bool,
        barrier: i64,
        now_ms: i64,
        on_loaded: Callable[[], None],
    ) -> i64:
        """Take the next at most GROUP_SLICE_MESSAGES messages into `reservation`: ENOUGH, MORE or LOADING.

        What is taken is given to the journal unless it is on disk: transient messages, those whose batch failed.

        Without `takes_more` these are messages that it holds already. `barrier` is the lowest seq id >= `reserved` that somebody else has unacked, a consumer or another group, or EVERYTHING.
        What an earlier reserve holds from `start` on comes first: its answer may have been lost on the way. After
        LOADING, `on_loaded` is called once.
        """
        queue = self.queue
        assert queue is not None
        may_be_more = True
        has_all = self._index_of(reservation.end) == i64(len(self.held))
        if takes_more and has_all and not reservation.is_full():
            end: i64 = min(barrier, reservation.until)
            queue.drop_expired_head(now_ms)
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
        """Does a crash leave the whole range? Asked after the commit: an earlier batch with some of it may have failed."""
        queue = self.queue
        if queue is None:
            return False
        index = self._index_of(reservation.start)
        end = self._index_of(reservation.end)
        while index < end:
            if not queue.backing.store.is_kept(self.held[index]):
                return False
            index += 1
        return True

    def slices(
        self, start: i64, end: i64, slice_size: i64, is_lenient: bool
    ) -> list[tuple[i64, i64, i64, i64]]:
        """[start, end) cut at multiples of `slice_size`: (from, to, messages, bytes) of those with messages in them.

        The same range has the same slices whenever it is asked for, also after a restart. `is_lenient` cuts off
        what is acked already instead of refusing the range.
        """
        if is_lenient:
            start = min(max(start, self.acked), self.reserved)
            end = max(min(end, self.reserved), start)
        self._check_range(start, end)
        found: list[tuple[i64, i64, i64, i64]] = []
        index = self._index_of(start)
        stop = self._index_of(end)
        while index < stop:
            slice_end: i64 = (self.held[index].seq // slice_size + 1) * slice_size
            messages: i64 = 0
            total_bytes: i64 = 0
            while index < stop and self.held[index].seq < slice_end:
                messages += 1
                total_bytes += self.held[index].content_bytes
                index += 1
            found.append(
                (max(start, slice_end - slice_size), min(end, slice_end), messages, total_bytes)
            )
        return found

    def fetch(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Messages of [start, end) from its beginning, at least one if there is one. May be asked again and again.

        Some may be without content: see `load_contents`.
        """
        self._check_range(start, end)
        found: list[Entry] = []
        index = self._index_of(start)
        stop = self._index_of(end)
        total_bytes: i64 = 0
        while index < stop and i64(len(found)) < max_messages and total_bytes < max_bytes:
            entry = self.held[index]
            total_bytes += entry.content_bytes
            if total_bytes > max_bytes and len(found) > 0:
                break
            found.append(entry)
            index += 1
        return found

    def load_contents(self, entries: list[Entry], on_loaded: Callable[[], None]) -> bool:
        """False when all of `entries`, which are held, have their content; else `on_loaded` is called when they have.

        Damaged ones are held no longer then.
        """
        absent = [entry for entry in entries if entry.form != ALPHA]
        queue = self.queue
        if len(absent) == 0 or queue is None:
            return False

        def on_contents(lost: list[Entry]) -> None:
            # Those have been forgotten, like any that somebody else asked for.
            on_loaded()

        queue.backing.loader.submit(EntryContents(queue.backing, absent, self.holds, on_contents))
        return True

    def load_copies(self, entries: list[Entry], done: Callable[[list[Entry]], None]) -> bool:
        """Read messages that it holds, all of them paged out, side by side instead of one by one; False: not these.

        `done` is called with copies for `matched`.
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
        """The copies of as many of `entries`, from the beginning, as there are. Both ascend by seq id."""
        found: list[Entry] = []
        for copy in copies:
            place = len(found)
            if place == len(entries) or copy.seq > entries[place].seq:
                break
            if copy.seq == entries[place].seq:
                copy.redelivered = entries[place].redelivered
                found.append(copy)
        return found

    def holds(self, entry: Entry) -> bool:
        """Has it got this one?"""
        index = self._index_of(entry.seq)
        return index < len(self.held) and self.held[index] is entry

    def reserved_between(self, first: i64, end: i64) -> list[Entry]:
        """What it holds of [first, end)."""
        return self.held[self._index_of(first) : self._index_of(end)]

    def first_reserved(self, from_seq: i64) -> i64:
        """The lowest seq id >= `from_seq` that it holds; EVERYTHING when there is none."""
        index = self._index_of(from_seq)
        return self.held[index].seq if index < len(self.held) else EVERYTHING

    def ack_slice(self, end: i64, now_ms: i64) -> bool:
        """Let go of at most GROUP_SLICE_MESSAGES messages below `end`; True when there are more. May be repeated.

        `end` at or below `acked` is nothing to do, above `reserved` an error. Half done is a sound state, too.
        """
        self.check_end(end)
        if end <= self.acked:
            return False
        count = self._index_of(end)
        if count > GROUP_SLICE_MESSAGES:
            count = GROUP_SLICE_MESSAGES
            self.acked = self.held[count].seq
        else:
            self.acked = end
        done = self.held[:count]
        del self.held[:count]
        queue = self.queue
        if queue is not None:
            for entry in done:
                queue.leave(entry, ACKED, now_ms)
        return self.acked < end

    # -- life of the group -------------------------------------------------------------------------------------

    def attach(self, queue: Queue) -> None:
        """The queue is there: hold what is alive of [acked, reserved) (recovery, before anything is delivered).

        What is on disk only is read first; meanwhile the queue hands nothing out, and `is_attaching` is set.
        """
        self.queue = queue
        queue.backing.journals_transient = True
        reserved = self.reserved
        # Transient messages were numbered, too, but no journal knows: what comes next must not lie behind the group.
        if queue.ledger.next_seq < reserved:
            queue.ledger.next_seq = reserved
        self._attach_rest(queue, self.acked)

    def _attach_rest(self, queue: Queue, next_seq: i64) -> None:
        while next_seq < self.reserved:
            if queue.backing.ready.is_on_disk(next_seq):
                self.is_attaching = True
                queue.demand.is_paused = True
                self._load_rest(queue, next_seq)
                return
            ready = queue.backing.peek(next_seq, GROUP_SLICE_MESSAGES, EVERYTHING)
            count: i64 = 0
            for entry in ready:
                if entry.seq < self.reserved:
                    count += 1
            if count == 0:
                break
            taken = queue.backing.reserve(next_seq, count, EVERYTHING)
            self.held.extend(taken)
            next_seq = taken[-1].seq + 1
        if self.is_attaching:
            queue.resume_deliveries()
            self._end_attaching()

    def _end_attaching(self) -> None:
        self.is_attaching = False
        watchers = self.attach_watchers
        self.attach_watchers = []
        for watcher in watchers:
            watcher()

    def _load_rest(self, queue: Queue, next_seq: i64) -> None:
        def on_range(entries: list[Entry]) -> None:
            self._keep_loaded(queue, entries)
            if queue.is_deleted:
                self._end_attaching()
            elif len(entries) > 0:
                self._attach_rest(queue, entries[-1].seq + 1)
            else:
                # Nothing alive is in delta from there on.
                self._attach_rest(queue, max(next_seq, queue.backing.ready.delta.end))

        queue.backing.loader.submit(
            RangeLoad(
                queue.backing,
                next_seq,
                self.reserved,
                GROUP_SLICE_MESSAGES,
                queue.backing.host.load_bytes,
                True,
                on_range,
            )
        )

    def detach(self, now_ms: i64) -> None:
        """The queue is deleted: the messages that are out belong to nobody, and the journal need not keep them."""
        self._cancel_load()
        queue = self.queue
        self.queue = None
        if queue is not None:
            for entry in self.held:
                queue.leave(entry, ACKED, now_ms)
        self.held = []

    def end(self) -> None:
        """The queue is about to be deleted, and nothing in it is left to read: no loss."""
        self.is_ended = True
        self.acked_durable = self.acked

    def release(self, now_ms: i64) -> None:
        """The group is deleted or reads the queue no more: what it holds goes back to its places."""
        self._cancel_load()
        held = self.held
        self.held = []
        self.reserved = self.acked
        queue = self.queue
        if queue is not None:
            queue.requeue(held, now_ms)

    def check(self) -> None:
        """The invariants of the module's docstring."""
        assert self.acked_durable <= self.acked <= self.reserved
        previous: i64 = -1
        for entry in self.held:
            assert previous < entry.seq
            previous = entry.seq
        if len(self.held) > 0:
            assert self.held[0].seq >= self.acked and self.held[-1].seq < self.reserved

    def forget(self, lost: list[Entry]) -> None:
        """Those of `lost` that it holds are held no longer: their contents cannot be had, and they are settled."""
        for entry in lost:
            if self.holds(entry):
                del self.held[self._index_of(entry.seq)]

    # -- parts -------------------------------------------------------------------------------------------------

    def _add_reserved(
        self, queue: Queue, reservation: Reservation, now_ms: i64, on_loaded: Callable[[], None]
    ) -> i64:
        """Count what is held behind `reservation.end` in, and make it durable."""
        first = self._index_of(reservation.end)
        stop: i64 = min(first + GROUP_SLICE_MESSAGES, i64(len(self.held)))
        index = first
        absent: list[Entry] = []
        size: i64 = 0
        while index < stop and size < reservation.max_bytes - reservation.bytes:
            entry = self.held[index]
            if entry.journal_state == NOT_JOURNALED and entry.form != ALPHA:
                absent.append(entry)
            size += entry.content_bytes
            index += 1
        if self.load_contents(absent, on_loaded):
            # To be journaled, they must be in memory.
            return LOADING
        index = first
        while (
            index < stop and not reservation.is_full() and self.held[index].seq < reservation.until
        ):
            reservation.add(self.held[index])
            index += 1
        _make_durable(queue, self.held[first:index], now_ms)
        return ENOUGH if index < stop or reservation.is_full() or index == first else MORE

    def _take_ready(self, queue: Queue, reservation: Reservation, end: i64) -> bool:
        """Hold the next messages that are in memory; False when no more can follow."""
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
            self.held.extend(taken)
            self.reserved = taken[-1].seq + 1
            reservation.is_dry = False
        return count == wanted or (
            queue.backing.ready.is_on_disk(self.reserved) and not reservation.is_dry
        )

    def _load_ready(
        self, queue: Queue, reservation: Reservation, end: i64, on_loaded: Callable[[], None]
    ) -> None:
        """Hold the next messages that are on disk only."""
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
        # What it would bring stays in the queue.
        load = self._load
        if load is not None:
            load.is_stale = True

    def _keep_loaded(self, queue: Queue, entries: list[Entry]) -> None:
        self.held.extend(entries)
        for entry in entries:
            if queue.backing.out.content_bytes > HELD_BYTES_MAX:
                queue.backing.out.drop_content(entry)

    def _index_of(self, seq: i64) -> i64:
        """How many held messages lie below `seq`."""
        held = self.held
        low: i64 = 0
        high: i64 = len(held)
        while low < high:
            middle = (low + high) // 2
            if held[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        return low

    def _check_range(self, start: i64, end: i64) -> None:
        if start > end:
            raise GroupError(PRECONDITION, f"range [{start}, {end}) ends before it begins")
        if start < self.acked and start < end:
            raise GroupError(DATA_LOSS, self._acked_text(start))
        if end > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(end))

    def _acked_text(self, start: i64) -> str:
        return (
            f"reader group '{text(self.group_name)}' has acked everything of queue '{text(self.queue_name)}' below "
            f"position {self.acked}; position {start} is gone (is the caller's checkpoint an old copy?)"
        )

    def _beyond_text(self, position: i64) -> str:
        return (
            f"reader group '{text(self.group_name)}' has reserved up to position {self.reserved} of queue "
            f"'{text(self.queue_name)}'; position {position} is above it (is the group a new one of that name, or the "
            "broker's data directory an old copy?)"
        )


def _make_durable(queue: Queue, entries: list[Entry], now_ms: i64) -> None:
    """Journal the entries that are not on disk yet (transient ones in a range that must survive).

    Their content is in memory. Transient ones, and those whose batch had failed, that paging moved to the index before
    the queue had any reader group are there for this life of the node only.
    """
    for entry in entries:
        if entry.journal_state == NOT_JOURNALED:
            journal_alone(queue.backing, entry, now_ms)


def text(name: bytes) -> str:
    """A name as it appears in messages to people."""
    return name.decode("utf-8", "replace")
