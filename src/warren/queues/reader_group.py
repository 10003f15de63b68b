"""Reader groups: named, durable readers that take messages of a queue by position, in ranges that can be read again.

A consumer is given messages once and answers for each; a program such as Spark wants the opposite: name a range, read
it as often as its own crashes demand, and only then let it go. A reader group gives that. Three numbers per queue:

    ... released ...  acked  ... held: may be fetched any number of times ...  reserved  ... ready, anybody's ...

`reserve` moves `reserved` up and takes the messages out of the queue's ready ones, as a delivery would; `ack` moves
`acked` up and settles them. Both only grow. The caller makes a change durable before it answers, in this order:
reserve: the messages (also transient ones, which are journaled for it), then the definition, then the answer, so that
whoever remembers a range finds it held, even after a crash of the broker (`recover`). Ack: the journal's acks, then
the definition; a definition whose `acked` lags is harmless, one that leads would strand messages below it.

Invariants, `check()`: `acked <= reserved`; every held message lies in [acked, reserved); held is in seq order; no
other consumer has an unacked message in [acked, reserved). The last one is why a reserve stops before a message that
a consumer has not settled: if it came back inside a range that was handed out, the range would change between two
reads, and acking it would lose the message.

Fencing: every `open` raises the epoch and every other call names the epoch it was given. The newest opener wins, so a
crashed program goes on at once, and what is left of an older one is refused instead of acking behind its back.

The incarnation of a queue is its id, which is never used twice: a queue deleted and declared again is another one.
No clock, no I/O; the long poll and the waiting for the journal are the caller's (admin/group_calls.py).
"""

from typing import Final, final

from mypy_extensions import i64

from warren.queues.entry import Entry
from warren.queues.queue import Queue
from warren.store.message import NOT_JOURNALED

# Codes of GroupError; part of the admin protocol.
FENCED: Final = "fenced"
DATA_LOSS: Final = "data_loss"
NOT_FOUND: Final = "not_found"
PRECONDITION: Final = "precondition"

# Messages reserved or acked in one step; bounds how long everything else on the loop waits.
SLICE_MESSAGES: Final = 2048
# Above every position and count; fits an i64 with room to add to it.
EVERYTHING: Final = 1 << 62


class GroupError(Exception):
    """A call a group refuses. `code` is one of the constants above, `text` says it in words."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code: str = code
        self.text: str = text


@final
class Reservation:
    """A reserve on its way: what was asked, and how far it got."""

    def __init__(self, start: i64, until: i64, max_messages: i64, max_bytes: i64) -> None:
        self.start: i64 = start
        # Never past this position (the target of a run that reads what is there now).
        self.until: i64 = until
        self.max_messages: i64 = max_messages
        self.max_bytes: i64 = max_bytes
        self.end: i64 = start
        self.message_count: i64 = 0
        self.bytes: i64 = 0

    def is_full(self) -> bool:
        """Has a limit been reached?"""
        return self.message_count >= self.max_messages or self.bytes >= self.max_bytes

    def add(self, entry: Entry) -> None:
        """Count one message in."""
        self.end = entry.seq + 1
        self.message_count += 1
        self.bytes += content_bytes(entry)


@final
class ReaderGroup:
    """One group on one queue. Several queues will mean several of (queue, acked, reserved, held) under one epoch."""

    def __init__(self, name: bytes, epoch: i64, queue_id: i64, acked: i64, reserved: i64) -> None:
        self.name: bytes = name
        self.epoch: i64 = epoch
        # Who opened this epoch, for the message to those it fenced off; "" after a restart.
        self.opener: str = ""
        self.queue_id: i64 = queue_id
        # None: the queue is deleted (or was not found by recovery).
        self.queue: Queue | None = None
        self.acked: i64 = acked
        self.reserved: i64 = reserved
        # `acked` as far as its journal acks are known durable: what the definition may say.
        self.acked_durable: i64 = acked
        self.held: list[Entry] = []
        self.is_deleted: bool = False

    # -- the calls, in the order a reader makes them -----------------------------------------------------------

    def expect(self, epoch: i64, queue_id: i64, now_ms: i64) -> Queue:
        """The queue, if the caller's epoch is the newest and its incarnation of the queue is there.

        Every call begins with it; it counts as use of the queue, which does not expire under a reader.
        """
        if self.is_deleted:
            raise GroupError(NOT_FOUND, f"reader group '{text(self.name)}' is deleted")
        if epoch != self.epoch:
            raise GroupError(
                FENCED,
                f"reader group '{text(self.name)}' was taken over by {self.opener or 'another opener'} "
                f"(epoch {self.epoch}); the caller's epoch {epoch} is over",
            )
        queue = self.queue
        if queue is None or queue_id != self.queue_id:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{text(self.name)}': the queue it was reading (incarnation {queue_id}) is deleted",
            )
        queue.last_used_ms = now_ms
        return queue

    def reserve_slice(self, reservation: Reservation, barrier: i64, now_ms: i64) -> bool:
        """Take the next at most SLICE_MESSAGES messages into `reservation`; True when there may be more to take.

        What is taken is given to the journal unless it is there: transient messages, those whose batch failed.

        `barrier` is the lowest seq id >= `reserved` that somebody else has unacked, or EVERYTHING.
        What an earlier reserve holds from `start` on comes first: its answer may have been lost on the way.
        """
        queue = self.queue
        assert queue is not None
        if reservation.end == reservation.start:
            self._check_start(reservation.start)
        first = self._index_of(reservation.end)
        index = first
        stop: i64 = min(index + SLICE_MESSAGES, i64(len(self.held)))
        while index < stop and not reservation.is_full() and self.held[index].seq < reservation.until:
            reservation.add(self.held[index])
            index += 1
        queue.make_durable(self.held[first:index], now_ms)
        if index < stop:
            return False
        if index < i64(len(self.held)):
            return True
        if reservation.is_full():
            return False
        return self._take_ready(queue, reservation, min(barrier, reservation.until), now_ms)

    def is_journaled(self, reservation: Reservation) -> bool:
        """Is the whole range written? Asked after the commit: an earlier batch with some of it may have failed."""
        index = self._index_of(reservation.start)
        end = self._index_of(reservation.end)
        while index < end:
            if self.held[index].journal_state == NOT_JOURNALED:
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
                total_bytes += content_bytes(self.held[index])
                index += 1
            found.append((max(start, slice_end - slice_size), min(end, slice_end), messages, total_bytes))
        return found

    def fetch(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Entry]:
        """Messages of [start, end) from its beginning, at least one if there is one. May be asked again and again."""
        self._check_range(start, end)
        found: list[Entry] = []
        index = self._index_of(start)
        stop = self._index_of(end)
        total_bytes: i64 = 0
        while index < stop and i64(len(found)) < max_messages and total_bytes < max_bytes:
            entry = self.held[index]
            total_bytes += content_bytes(entry)
            if total_bytes > max_bytes and len(found) > 0:
                break
            found.append(entry)
            index += 1
        return found

    def ack_slice(self, end: i64, now_ms: i64) -> bool:
        """Let go of at most SLICE_MESSAGES messages below `end`; True when there are more. May be repeated.

        `end` at or below `acked` is nothing to do, above `reserved` an error. Half done is a sound state, too.
        """
        if end > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(end))
        if end <= self.acked:
            return False
        count = self._index_of(end)
        if count > SLICE_MESSAGES:
            count = SLICE_MESSAGES
            self.acked = self.held[count].seq
        else:
            self.acked = end
        done = self.held[:count]
        del self.held[:count]
        queue = self.queue
        if queue is not None:
            queue.settle_held(done, now_ms)
        return self.acked < end

    # -- life of the group -------------------------------------------------------------------------------------

    def attach(self, queue: Queue) -> None:
        """The queue is there: hold what is alive of [acked, reserved) (recovery, before anything is delivered)."""
        self.queue = queue
        reserved = self.reserved
        # Transient messages were numbered, too, but no journal knows: what comes next must not lie behind the group.
        if queue.log.next_seq < reserved:
            queue.log.next_seq = reserved
        next_seq = self.acked
        while next_seq < reserved:
            ready = queue.peek(next_seq, SLICE_MESSAGES, EVERYTHING)
            count: i64 = 0
            for entry in ready:
                if entry.seq < reserved:
                    count += 1
            if count == 0:
                break
            taken = queue.hold(next_seq, count, EVERYTHING)
            self.held.extend(taken)
            next_seq = taken[-1].seq + 1

    def detach(self, now_ms: i64) -> None:
        """The queue is deleted: the messages that are out belong to nobody, and the journal need not keep them."""
        queue = self.queue
        self.queue = None
        if queue is not None:
            queue.settle_held(self.held, now_ms)
        self.held = []

    def release(self, now_ms: i64) -> None:
        """The group is deleted: what it holds goes back to its places."""
        self.is_deleted = True
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

    # -- parts -------------------------------------------------------------------------------------------------

    def _take_ready(self, queue: Queue, reservation: Reservation, barrier: i64, now_ms: i64) -> bool:
        queue.drop_expired_head(now_ms)
        wanted: i64 = min(reservation.max_messages - reservation.message_count, i64(SLICE_MESSAGES))
        ready = queue.peek(self.reserved, wanted, reservation.max_bytes - reservation.bytes)
        count: i64 = 0
        for entry in ready:
            if entry.seq >= barrier:
                break
            count += 1
        if count == 0:
            return False
        taken = queue.hold(self.reserved, count, EVERYTHING)
        for entry in taken:
            reservation.add(entry)
        queue.make_durable(taken, now_ms)
        self.held.extend(taken)
        self.reserved = reservation.end
        return count == wanted and not reservation.is_full()

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

    def _check_start(self, start: i64) -> None:
        if start < self.acked:
            raise GroupError(DATA_LOSS, self._acked_text(start))
        if start > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(start))

    def _check_range(self, start: i64, end: i64) -> None:
        if start > end:
            raise GroupError(PRECONDITION, f"range [{start}, {end}) ends before it begins")
        if start < self.acked and start < end:
            raise GroupError(DATA_LOSS, self._acked_text(start))
        if end > self.reserved:
            raise GroupError(DATA_LOSS, self._beyond_text(end))

    def _acked_text(self, start: i64) -> str:
        return (
            f"reader group '{text(self.name)}' has acked everything below position {self.acked}; "
            f"position {start} is gone (is the caller's checkpoint an old copy?)"
        )

    def _beyond_text(self, position: i64) -> str:
        return (
            f"reader group '{text(self.name)}' has reserved up to position {self.reserved}; position {position} "
            "is above it (is the broker's data directory an old copy?)"
        )


@final
class ReaderGroups:
    """The reader groups of one vhost, by name."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, ReaderGroup] = {}

    def open(
        self, name: bytes, opener: str, queue: Queue, from_latest: bool, may_rebind: bool
    ) -> ReaderGroup:
        """Create the group or take it over; its epoch is a new one. The caller makes the definition durable.

        A group of an earlier incarnation of the queue is refused unless `may_rebind`: then it begins anew at the
        first message of this one. `from_latest` counts only when the group is created.
        """
        if not queue.durable:
            raise GroupError(
                PRECONDITION,
                f"queue '{text(queue.name)}' is not durable: a reader group needs a durable queue, "
                "because what it reserves must outlive a restart",
            )
        self._refuse_second_holder(name, queue)
        group = self.by_name.get(name)
        if group is None:
            start: i64 = queue.next_seq if from_latest else 0
            group = ReaderGroup(name, 1, queue.id, start, start)
            group.queue = queue
            self.by_name[name] = group
        else:
            if group.queue_id != queue.id:
                self._rebind(group, queue, may_rebind)
            group.epoch += 1
        group.opener = opener
        return group

    def get(self, name: bytes) -> ReaderGroup:
        """The group called `name`; GroupError when there is none."""
        group = self.by_name.get(name)
        if group is None:
            raise GroupError(NOT_FOUND, f"no reader group '{text(name)}'")
        return group

    def recover(
        self, name: bytes, epoch: i64, queue_id: i64, acked: i64, reserved: i64, queue: Queue | None
    ) -> None:
        """Put a group back from its definition; `queue` is the one with that id, None when it is gone."""
        group = ReaderGroup(name, epoch, queue_id, acked, max(acked, reserved))
        self.by_name[name] = group
        if queue is not None:
            group.attach(queue)

    def delete(self, name: bytes, now_ms: i64) -> None:
        """Forget the group; what it holds is ready again."""
        self.get(name).release(now_ms)
        del self.by_name[name]

    def all_held(self) -> list[Entry]:
        """What groups hold, for whoever needs all live entries (relocation of journal files)."""
        held: list[Entry] = []
        for group in self.by_name.values():
            held.extend(group.held)
        return held

    def on_queue_deleted(self, queue: Queue, now_ms: i64) -> None:
        """A queue is gone. Its groups stay, so that their readers learn of it instead of starting over silently."""
        for group in self.by_name.values():
            if group.queue is queue:
                group.detach(now_ms)

    def _refuse_second_holder(self, name: bytes, queue: Queue) -> None:
        # It could not get past the first message the other one holds, and would wait for it in silence.
        for group in self.by_name.values():
            if group.name != name and group.queue is queue and len(group.held) > 0:
                raise GroupError(
                    PRECONDITION,
                    f"reader group '{text(group.name)}' holds {len(group.held)} messages of queue "
                    f"'{text(queue.name)}'; go on with that group or delete it",
                )

    def _rebind(self, group: ReaderGroup, queue: Queue, may_rebind: bool) -> None:
        if group.queue is not None:
            raise GroupError(
                PRECONDITION,
                f"reader group '{text(group.name)}' reads queue '{text(group.queue.name)}'; "
                "another queue needs a group of its own",
            )
        if not may_rebind:
            raise GroupError(
                DATA_LOSS,
                f"reader group '{text(group.name)}' was reading an earlier queue (incarnation {group.queue_id}) that "
                f"is deleted; queue '{text(queue.name)}' is a new one (incarnation {queue.id})",
            )
        group.queue = queue
        group.queue_id = queue.id
        group.held = []
        group.acked = 0
        group.acked_durable = 0
        group.reserved = 0


def content_bytes(entry: Entry) -> i64:
    """What a message counts against a limit in bytes."""
    message = entry.message
    return i64(len(message.body)) + len(message.properties) + len(message.address)


def text(name: bytes) -> str:
    """A name as it appears in messages to people."""
    return name.decode("utf-8", "replace")
