"""The index of one queue: which segments it has, how much in them is alive, and what of them is settled.

Segment k holds the records of the seq ids [k * segment_entries, (k + 1) * segment_entries) (S40), in ascending order.
Per segment a few numbers are in memory (S42), whatever the number of messages; settled seq ids are kept as runs, which
are few when a queue is consumed more or less in order. The accounts are kept from the runs at each seal of the
journal's batch, so that a checkpoint and the journal behind it fit together.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.runs import Runs, add_run, check_runs, contains, covers, subtract

SEGMENT_ENTRIES: Final = 16384
# A segment is rewritten when at most a quarter of its entries is alive and it has at least this many bytes (W24); while
# the store is in debt, when less than half is, whatever its size (G8).
REWRITE_MIN_BYTES: Final = 1048576


class Segment:
    """One `<number>.idx`."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # Bytes appended, and those of them that have been written (what may be read).
        self.size_bytes: i64 = 0
        self.written_bytes: i64 = 0
        self.entries: i64 = 0
        self.live_persistent: i64 = 0
        self.live_transient: i64 = 0
        # Does, or did, it hold positions whose content is in a content store?
        self.has_references: bool = False
        # Appended to since the last checkpoint, made since then, being rewritten.
        self.is_dirty: bool = False
        self.is_new: bool = False
        self.is_rewriting: bool = False
        # How often it was; offsets of its records are those of one copy. The last try failed: others come first.
        self.rewrites: i64 = 0
        self.was_refused: bool = False
        # A stretch of it was found to be no record, and its entries are to be counted anew.
        self.is_damaged: bool = False
        # So it is because its file was given up, or is gone.
        self.is_lost: bool = False
        # Of a file that turned out to be cut off: bytes that are there and count; -1: not looked at.
        self.left_bytes: i64 = -1

    @property
    def live(self) -> i64:
        """Entries that are not settled."""
        return self.live_persistent + self.live_transient

    @property
    def garbage_bytes(self) -> i64:
        """Bytes of its settled entries, as if all were of one size."""
        return (
            self.size_bytes * (self.entries - self.live) // self.entries if self.entries > 0 else 0
        )


class QueueIndex:
    """Segments and settled seq ids of one queue. `path` is its directory, relative to the vhost's."""

    def __init__(
        self,
        queue_id: i64,
        path: str,
        segment_entries: i64,
        rewrite_min_bytes: i64 = REWRITE_MIN_BYTES,
    ) -> None:
        self.queue_id: i64 = queue_id
        self.path: str = path
        self.segment_entries: i64 = segment_entries
        self.rewrite_min_bytes: i64 = rewrite_min_bytes
        self.segments: list[Segment] = []
        self.settled: Runs = []
        # Of transient positions, in this life. Like `settled` it may say so of seq ids that never were there.
        self.settled_transient: Runs = []
        # Counts up with every change that a checkpoint must see.
        self.version: i64 = 0
        # Where the next load goes on: a segment, a seq id in it and the offset of its record.
        self.cursor_segment: i64 = -1
        self.cursor_seq: i64 = 0
        self.cursor_offset: i64 = 0
        # Paths of segments without live entries, to be deleted after the next checkpoint.
        self.dead_paths: list[str] = []
        self.dead_bytes: i64 = 0
        # Has a segment been appended to since the last checkpoint?
        self.has_dirty: bool = False
        # Is there a full segment in which few entries hold many bytes (W24)?
        self.has_stragglers: bool = False
        # `indexed_upto` in the checkpoint that is under way, in the last one and in the one before: what lies below is
        # never appended again after a crash.
        self.snapshot_upto: i64 = 0
        self.checkpointed_upto: i64 = 0
        self.previous_upto: i64 = 0

    def check(self, indexed_upto: i64) -> None:
        """Assert what holds between two operations, `indexed_upto` being the mark of the queue; for tests and the simulator."""
        check_runs(self.settled)
        check_runs(self.settled_transient)
        before: i64 = -1
        for segment in self.segments:
            assert segment.number > before
            before = segment.number
            assert segment.live_persistent >= 0 and segment.live_transient >= 0
            assert segment.live <= segment.entries or segment.is_damaged
            assert 0 <= segment.written_bytes <= segment.size_bytes
        assert before < 0 or before * self.segment_entries < indexed_upto
        assert self.dead_bytes >= 0
        assert self.previous_upto <= self.checkpointed_upto <= indexed_upto

    def path_of(self, segment: Segment) -> str:
        """Its path, relative to the vhost's directory."""
        return f"{self.path}/{segment.number}.idx"

    def file_number(self, segment_number: i64) -> i64:
        """What a segment's header says: unique in the vhost."""
        return (self.queue_id << 32) | segment_number

    def find(self, number: i64) -> Segment | None:
        """Segment `number`, if it is there."""
        place = self._place_of(number)
        if place < len(self.segments) and self.segments[place].number == number:
            return self.segments[place]
        return None

    def segment_for_append(self, seq: i64) -> Segment:
        """The segment of `seq`, made when it is the first of its segment. Seq ids only ascend."""
        number = seq // self.segment_entries
        if len(self.segments) > 0 and self.segments[-1].number == number:
            return self.segments[-1]
        segment = Segment(number)
        segment.is_new = True
        self.segments.append(segment)
        return segment

    def first_live(self, from_seq: i64) -> Segment | None:
        """The first segment at or behind that of `from_seq` with something alive in it."""
        place = self._place_of(from_seq // self.segment_entries)
        while place < len(self.segments):
            if self.segments[place].live > 0:
                return self.segments[place]
            place += 1
        return None

    def settle(self, runs: Runs, indexed_upto: i64) -> None:
        """Indexed positions in `runs` (persistent ones) are settled; what was settled before does not count again.

        When a segment is settled from its beginning to its end or `indexed_upto`, nothing in it is alive, however many
        of its seq ids ever were in the index.
        """
        self.version += 1
        for first, last in runs:
            new_runs = subtract(first, last, self.settled)
            add_run(self.settled, first, last)
            for new_first, new_last in new_runs:
                self._count_settled(new_first, new_last, indexed_upto)

    def settle_transient(self, seq: i64, indexed_upto: i64) -> None:
        """A transient position is settled. Nobody asks for it after a crash; a load in this life may come across it.

        It counts once, although a load that misses its content may say so again.
        """
        if contains(self.settled_transient, seq):
            return
        add_run(self.settled_transient, seq, seq)
        segment = self.find(seq // self.segment_entries)
        if segment is not None:
            segment.live_transient = max(0, segment.live_transient - 1)
            if segment.live == 0:
                self.drop_dead_segments(indexed_upto)

    def forget_transients(self, first: i64, end: i64) -> None:
        """All transient positions of the segments that begin in [first, end) are settled."""
        if first < end:
            add_run(self.settled_transient, first, end - 1)
        for segment in self.segments:
            if first <= segment.number * self.segment_entries < end:
                segment.live_transient = 0

    def drop_dead_segments(self, indexed_upto: i64) -> None:
        """Forget the segments in which nothing is alive and to which nothing will be appended."""
        kept: list[Segment] = []
        self.has_stragglers = False
        for segment in self.segments:
            is_full = (segment.number + 1) * self.segment_entries <= indexed_upto
            if segment.live == 0 and is_full and not segment.is_rewriting:
                self.dead_paths.append(self.path_of(segment))
                self.dead_bytes += segment.size_bytes
            else:
                kept.append(segment)
                if is_full and self._is_straggler(segment):
                    self.has_stragglers = True
        if len(kept) < len(self.segments):
            self.segments = kept
            self._forget_settled_below(indexed_upto)

    def may_rewrite(self, segment: Segment, upto: i64) -> bool:
        """Is nothing in `segment` to be appended any more, `upto` being what the index has, and nobody at work on it?"""
        return (
            (segment.number + 1) * self.segment_entries <= upto
            and segment.written_bytes == segment.size_bytes
            and segment.live > 0
            and not segment.is_rewriting
        )

    def is_worth_rewriting(self, segment: Segment, is_in_debt: bool) -> bool:
        """Is so little alive in it that it should be written anew?"""
        if is_in_debt and segment.live > 0 and segment.live * 2 < segment.entries:
            return True
        return self._is_straggler(segment)

    def has_wasteful_tail(self, dead_tail_bytes: i64) -> bool:
        """Has the segment that is appended to at least so many bytes, and less than half of it alive?"""
        if len(self.segments) == 0:
            return False
        tail = self.segments[-1]
        return (
            tail.size_bytes >= dead_tail_bytes
            and not tail.is_rewriting
            and tail.live * 2 < tail.entries
        )

    def _is_straggler(self, segment: Segment) -> bool:
        return (
            segment.live > 0
            and segment.live * 4 <= segment.entries
            and segment.size_bytes >= self.rewrite_min_bytes
        )

    def on_checkpoint(self) -> None:
        """The checkpoint that was under way is on disk."""
        self.previous_upto = self.checkpointed_upto
        self.checkpointed_upto = self.snapshot_upto

    def forget_cursor(self) -> None:
        """Offsets in a segment have changed."""
        self.cursor_segment = -1

    def live_count(self, first: i64, end: i64) -> i64:
        """Live entries of all segments that overlap [first, end)."""
        count: i64 = 0
        place = self._place_of(first // self.segment_entries)
        while (
            place < len(self.segments) and self.segments[place].number * self.segment_entries < end
        ):
            count += self.segments[place].live
            place += 1
        return count

    def has_references(self, first: i64, end: i64) -> bool:
        """Could a position of [first, end) have its content in a content store?"""
        place = self._place_of(first // self.segment_entries)
        while (
            place < len(self.segments) and self.segments[place].number * self.segment_entries < end
        ):
            if self.segments[place].has_references and self.segments[place].live > 0:
                return True
            place += 1
        return False

    def size_bytes(self) -> i64:
        """Bytes of all segments."""
        total: i64 = 0
        for segment in self.segments:
            total += segment.size_bytes
        return total

    def _count_settled(self, first: i64, last: i64, indexed_upto: i64) -> None:
        while first <= last:
            start = first // self.segment_entries * self.segment_entries
            end: i64 = min(last, start + self.segment_entries - 1)
            segment = self.find(first // self.segment_entries)
            if segment is not None:
                last_entry: i64 = min(start + self.segment_entries, indexed_upto) - 1
                if covers(self.settled, start, last_entry):
                    segment.live_persistent = 0
                else:
                    # Of a segment that could not be read nothing counts as alive, but something may be in memory.
                    segment.live_persistent = max(0, segment.live_persistent - (end - first + 1))
            first = end + 1

    def _forget_settled_below(self, indexed_upto: i64) -> None:
        # What lies before the first segment is settled or was never there; one run says so.
        first = indexed_upto
        if len(self.segments) > 0:
            first = self.segments[0].number * self.segment_entries
        if first > 0 and len(self.settled) > 1:
            add_run(self.settled, 0, first - 1)
        if first > 0 and len(self.settled_transient) > 1:
            add_run(self.settled_transient, 0, first - 1)

    def _place_of(self, number: i64) -> i64:
        low: i64 = 0
        high: i64 = len(self.segments)
        while low < high:
            middle = (low + high) >> 1
            if self.segments[middle].number < number:
                low = middle + 1
            else:
                high = middle
        return low
