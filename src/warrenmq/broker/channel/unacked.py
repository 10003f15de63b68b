"""The unsettled deliveries of one channel, in order of delivery tag.

Tags ascend, so a list ordered by tag serves single acks (the oldest, or a binary search) and
multiple acks (a prefix). A settled entry in the middle leaves a gap; gaps are closed when they are
the majority. So closing them costs an ack amortised constant time, and one message that is never
acked keeps no others in memory.

`is_overdue` finds a channel that leaves a delivery unacked for too long. A delivery costs nothing
more for it: the window notes now and then how far the tags have come, not when each was delivered.
`age_ms` tells from these notes how old a delivery is.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry, QueueEnd
from warrenmq.queues.stale_entry import StaleEnd, StaleEntry
from warrenmq.store.model.message import QueueLedger
from warrenmq.wire.errors import PRECONDITION_FAILED, ChannelException
from warrenmq.wire.primitives import unsigned64

_GAPS_MIN: Final = 64
# Notes of time and tag within one timeout. A delivery is found at most 1/32 of the timeout late.
_MARKS: Final = 32
# The longest time between the youngest _MARKS notes, and between older ones (ms): a timeout may be
# very long, or missing.
_YOUNG_MS: Final = 60_000
_OLD_MS: Final = 3_600_000


class _Marks:
    """Notes of how far the tags had come, oldest first."""

    def __init__(self) -> None:
        # Times (ms) and the highest tag at each.
        self.times: list[int] = []
        self.tags: list[int] = []

    def thin(self, apart_ms: i64) -> None:
        """Forget one note if its two neighbours are close enough to each other.

        It is the youngest one behind the _MARKS newest. `apart_ms`: the most time between the two.
        """
        place: i64 = len(self.times) - _MARKS - 1
        if place > 0:
            between_ms = self.times[place + 1] - self.times[place - 1]
            if between_ms <= apart_ms:
                self.times.pop(place)
                self.tags.pop(place)


class UnackedWindow:
    """The unsettled entries of a channel by `delivery_tag`; `count` is their number."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._entries: list[Entry | None] = []
        self._tags: list[int] = []
        self._head: i64 = 0
        # None while there is nothing to note: most channels of a node are idle.
        self._marks: _Marks | None = None
        # The time (ms) of the last call of `is_overdue`.
        self._clock_ms: i64 = 0
        # All deliveries up to this tag are older than the timeout.
        self._overdue_tag: i64 = 0

    def append(self, entry: Entry) -> None:
        """Add a delivery; its tag must be higher than all earlier ones."""
        self._entries.append(entry)
        self._tags.append(entry.delivery_tag)
        self.count += 1

    def take(self, tag: i64) -> Entry | None:
        """Remove and return the entry with `tag`; None when no entry has it."""
        head = self._head
        size: i64 = len(self._tags)
        if head < size and self._tags[head] == tag:
            place = head
        else:
            place = self._find(tag)
            if place == size or self._tags[place] != tag:
                return None
        entry = self._entries[place]
        if entry is None:
            return None
        self._entries[place] = None
        self.count -= 1
        self._close_gaps()
        return entry

    def take_upto(self, tag: i64) -> list[Entry] | None:
        """Remove and return all entries up to `tag`, oldest first; None when no entry has `tag`.

        Tag 0 means all entries, even when there are none (P1).
        """
        if tag == 0:
            return self.take_all()
        place = self._find(tag)
        if place == len(self._tags) or self._tags[place] != tag or self._entries[place] is None:
            return None
        taken: list[Entry] = []
        index = self._head
        while index <= place:
            entry = self._entries[index]
            if entry is not None:
                taken.append(entry)
                self._entries[index] = None
            index += 1
        self._head = place + 1
        self.count -= len(taken)
        self._close_gaps()
        return taken

    def take_oldest(self, upto: i64, limit: i64) -> list[Entry]:
        """Remove and return at most `limit` entries with tags up to `upto`, the oldest first."""
        taken: list[Entry] = []
        index = self._head
        while index < len(self._tags) and self._tags[index] <= upto and len(taken) < limit:
            entry = self._entries[index]
            if entry is not None:
                taken.append(entry)
                self._entries[index] = None
            index += 1
        self._head = index
        self.count -= len(taken)
        self._close_gaps()
        return taken

    def take_named(self, tag: i64, multiple: bool) -> list[Entry]:
        """Remove and return the entry with `tag`, or all up to it; raises if no entry has it."""
        if multiple:
            entries = self.take_upto(tag)
            if entries is None:
                raise unknown_tag(tag)
            return entries
        entry = self.take(tag)
        if entry is None:
            raise unknown_tag(tag)
        return [entry]

    def take_all(self) -> list[Entry]:
        """Remove and return all entries, oldest first."""
        taken = self.all()
        self._entries = []
        self._tags = []
        self._head = 0
        self.count = 0
        return taken

    def all(self) -> list[Entry]:
        """All unsettled entries, oldest first."""
        return [entry for entry in self._entries[self._head :] if entry is not None]

    def has(self, tag: i64) -> bool:
        """Whether an entry has `tag`; tag 0 means all entries."""
        place = self._find(tag)
        return tag == 0 or (
            place < len(self._tags)
            and self._tags[place] == tag
            and self._entries[place] is not None
        )

    def last_tag(self) -> i64:
        """The highest tag that an entry has had; there must have been one."""
        return self._tags[-1]

    def queues_upto(self, tag: i64) -> list[QueueEnd]:
        """The queues of the entries up to `tag`."""
        queues: dict[int, QueueEnd] = {}
        last: QueueEnd | None = None
        for entry in self._entries[self._head :]:
            if entry is None or entry.queue is last:
                continue
            if entry.delivery_tag > tag:
                break
            last = entry.queue
            queues[id(last)] = last
        return list(queues.values())

    def is_overdue(self, clock_ms: i64, timeout_ms: i64) -> bool:
        """True if an entry has been unsettled for longer than `timeout_ms`.

        To be called about once a second, with a clock that only rises.
        """
        self._clock_ms = clock_ms
        if self.count == 0:
            self._marks = None
            return False
        marks = self._marks
        if marks is None:
            marks = _Marks()
            self._marks = marks
        times = marks.times
        tags = marks.tags
        while len(times) > 0 and clock_ms - times[0] > timeout_ms:
            self._overdue_tag = tags.pop(0)
            times.pop(0)
        if len(times) == 0 or (
            (clock_ms - times[-1]) * _MARKS >= min(timeout_ms, _MARKS * _YOUNG_MS)
            and tags[-1] != self._tags[-1]
        ):
            times.append(clock_ms)
            tags.append(self._tags[-1])
            marks.thin(min(timeout_ms // _MARKS, _OLD_MS))
        return self._tags[self._head] <= self._overdue_tag

    def age_ms(self, tag: i64) -> i64:
        """For how long (ms, by the clock of `is_overdue`) the delivery `tag` waits at least.

        The true age is higher by up to 1/32 of the timeout, and a second. Within half an hour it is
        higher by a minute at most, within a day by an hour, however long the timeout is.
        """
        marks = self._marks
        if marks is not None:
            for place in range(len(marks.tags)):
                if marks.tags[place] >= tag:
                    return self._clock_ms - marks.times[place]
        return 0

    def oldest(self, most: i64) -> list[Entry]:
        """The oldest unsettled entries, at most `most` of them; looks at `most` places."""
        return [
            entry for entry in self._entries[self._head : self._head + most] if entry is not None
        ]

    def check(self, next_tag: i64) -> None:
        """Assert that tags ascend below `next_tag`, and that the count is right."""
        assert len(self._entries) == len(self._tags)
        before: i64 = -1
        count: i64 = 0
        for place in range(len(self._tags)):
            tag = self._tags[place]
            assert before < tag < next_tag
            before = tag
            entry = self._entries[place]
            if entry is not None:
                assert entry.delivery_tag == tag
                count += 1
        assert self.count == count

    def collect(self, ledger: QueueLedger, first: i64, end: i64, found: list[Entry]) -> None:
        """Add to `found` the entries of the queue of `ledger` with seq ids in [first, end)."""
        for entry in self._entries:
            if entry is not None and entry.ledger is ledger and first <= entry.seq < end:
                found.append(entry)

    def replace(self, ledger: QueueLedger, level: i64, end: StaleEnd) -> None:
        """Put stale entries in the place of entries of the queue of `ledger`."""
        entries = self._entries
        for place in range(len(entries)):
            entry = entries[place]
            if entry is not None and entry.ledger is ledger:
                entries[place] = StaleEntry(entry, level, end)

    def restore(self, entries: list[Entry]) -> None:
        """Put taken entries back, after a rollback."""
        if len(entries) == 0:
            return
        merged = self.take_all() + entries
        merged.sort(key=_tag_of)
        for entry in merged:
            self.append(entry)

    def _find(self, tag: i64) -> i64:
        low = self._head
        high: i64 = len(self._tags)
        while low < high:
            middle = (low + high) >> 1
            if self._tags[middle] < tag:
                low = middle + 1
            else:
                high = middle
        return low

    def _close_gaps(self) -> None:
        entries = self._entries
        head = self._head
        size: i64 = len(entries)
        while head < size and entries[head] is None:
            head += 1
        self._head = head
        if size - self.count > self.count + _GAPS_MIN:
            kept = [entry for entry in entries[head:] if entry is not None]
            self._entries = list(kept)
            self._tags = [entry.delivery_tag for entry in kept]
            self._head = 0


def _tag_of(entry: Entry) -> int:
    return entry.delivery_tag


def unknown_tag(tag: i64) -> ChannelException:
    """The refusal of a method that settles a delivery which is not unsettled."""
    return ChannelException(PRECONDITION_FAILED, f"unknown delivery tag {unsigned64(tag)}")
