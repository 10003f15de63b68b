"""A reserved range of a queue as the tasks of its reader group are about to read it."""

from typing import final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.leave_reason import REJECTED
from warrenmq.queues.readers.group import GroupMember


@final
class PlannedRange:
    """Seq ids [start, end) of the queue of `member`; GroupError unless they may be read.

    `is_lenient` cuts off the acked part of the range instead of refusing the range.
    """

    def __init__(self, member: GroupMember, start: i64, end: i64, is_lenient: bool) -> None:
        if is_lenient:
            start = min(max(start, member.acked), member.reserved)
            end = max(min(end, member.reserved), start)
        member.check_range(start, end)
        self.start: i64 = start
        self.end: i64 = end
        self._member: GroupMember = member

    def slices(self, slice_size: i64) -> list[tuple[i64, i64, i64, i64]]:
        """Cut the range at multiples of `slice_size`: (from, to, messages, bytes) a slice.

        Slices without messages are left out. The same range always has the same slices, also after
        a restart.
        """
        entries = self._member.reserved_between(self.start, self.end)
        found: list[tuple[i64, i64, i64, i64]] = []
        index: i64 = 0
        while index < len(entries):
            slice_end: i64 = (entries[index].seq // slice_size + 1) * slice_size
            messages: i64 = 0
            total_bytes: i64 = 0
            while index < len(entries) and entries[index].seq < slice_end:
                messages += 1
                total_bytes += entries[index].content_bytes
                index += 1
            first: i64 = max(self.start, slice_end - slice_size)
            found.append((first, min(self.end, slice_end), messages, total_bytes))
        return found

    def larger(self, body_bytes_max: i64) -> list[Entry]:
        """The messages of the range with bodies of more bytes."""
        entries = self._member.reserved_between(self.start, self.end)
        return [entry for entry in entries if entry.body_bytes > body_bytes_max]

    def reject(self, entries: list[Entry], now_ms: i64) -> None:
        """Let messages of the range go as rejected; a crash before they have left undoes it."""
        queue = self._member.queue
        assert queue is not None
        self._member.forget(entries)
        for entry in entries:
            queue.leave(entry, REJECTED, now_ms)
