"""The index of one queue: its segments, the live entries of each, and the settled seq ids.

Segment k holds the records of the seq ids [k * segment_entries, (k + 1) * segment_entries) (S40),
in ascending order. Memory holds a few numbers for each segment (S42), whatever the number of
messages, and settled seq ids as runs, which are few when a queue is consumed more or less in order.
The counts of live entries are updated from the runs at each seal of a journal batch, so that a
checkpoint and the journal behind it fit together.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.model.runs import (
    Runs,
    add_run,
    add_runs,
    check_runs,
    contains,
    covers,
    subtract,
)
from warrenmq.store.model.stretches import Stretches

SEGMENT_ENTRIES: Final = 16384
# A segment is rewritten when at most a quarter of its entries is live and it has at least this many
# bytes (W24). While the store is in debt, it is rewritten when less than half of its entries is
# live, whatever its size (G8).
REWRITE_MIN_BYTES: Final = 1048576


class Segment:
    """One segment file `<number>.idx`. Sizes in bytes."""

    def __init__(self, number: i64) -> None:
        self.number: i64 = number
        # Bytes appended, written or not.
        self.size_bytes: i64 = 0
        # Bytes of records in journal files that entries refer to, settled or not.
        self.referred_bytes: i64 = 0
        # Bytes of the segment that are written: only these may be read.
        self.written_bytes: i64 = 0
        # Records in the segment, settled or not.
        self.entries: i64 = 0
        # Persistent entries that are not settled.
        self.live_persistent: i64 = 0
        # Transient entries that are not settled.
        self.live_transient: i64 = 0
        # The segment holds, or has held, positions whose content is in a content store.
        self.has_references: bool = False
        # The segment has entries whose contents are in journal files.
        self.has_places: bool = False
        # The segment was appended to since the last checkpoint.
        self.is_dirty: bool = False
        # The file was made since the last checkpoint.
        self.is_new: bool = False
        # The file is being rewritten or replaced.
        self.is_rewriting: bool = False
        # How often the file was rewritten or replaced: offsets of records hold for one such copy
        # only.
        self.rewrites: i64 = 0
        # Whether the last rewrite failed: other segments come first then.
        self.was_refused: bool = False
        # The live entries wait to be counted anew: a stretch of the segment is no record, or is
        # gone.
        self.is_damaged: bool = False
        # `is_damaged` is set because the file was abandoned or is gone.
        self.is_lost: bool = False
        # How often entries that were lost with damaged bytes were searched for in journal files.
        self.repairs: i64 = 0
        # How often the file could not be read since it is damaged, to repair it or to count it.
        self.failed_reads: i64 = 0
        # Bytes of a file that was cut off that are still there and count; -1: not known.
        self.left_bytes: i64 = -1

    @property
    def live(self) -> i64:
        """Entries that are not settled."""
        return self.live_persistent + self.live_transient

    @property
    def garbage_bytes(self) -> i64:
        """Estimated bytes of settled entries, as if all entries were of one size."""
        return (
            self.size_bytes * (self.entries - self.live) // self.entries if self.entries > 0 else 0
        )


class LoadCursor:
    """Where the last load of a queue's index ended, and the next one resumes."""

    def __init__(self) -> None:
        # Number of the segment; -1: none.
        self.segment: i64 = -1
        self.seq: i64 = 0
        # Offset of the record in the segment.
        self.offset: i64 = 0

    def forget(self) -> None:
        """Have the next load begin at the segment's first record: offsets in it have changed."""
        self.segment = -1


class QueueIndex:
    """Segments and settled seq ids of one queue. `path`: its directory, below the vhost's."""

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
        # Settled seq ids of persistent positions. May include seq ids that were never in the index.
        self.settled: Runs = []
        # Settled seq ids of transient positions, since the last start. May include seq ids that
        # were never in the index.
        self.settled_transient: Runs = []
        # The journal files that hold contents of the index.
        self.stretches: Stretches = Stretches()
        # Number of the segment that was not full at the start, until the queue has left it: a crash
        # may have left more bytes in its file. -1: none.
        self.open_at_start: i64 = -1
        # Counts up with every change that a checkpoint must see.
        self.version: i64 = 0
        self.cursor: LoadCursor = LoadCursor()
        # Paths of segments without live entries, to be deleted after the next checkpoint.
        self.dead_paths: list[str] = []
        # Bytes of the segments in `dead_paths`.
        self.dead_bytes: i64 = 0
        # A segment was appended to since the last checkpoint.
        self.has_dirty: bool = False
        # A full segment exists in which few live entries keep many bytes on disk (W24).
        self.has_stragglers: bool = False
        # Messages that counts of damaged segments found lost, and that the queue still counts.
        self.lost_count: i64 = 0
        # `indexed_upto` in the checkpoint that is under way. Positions below the `indexed_upto` of
        # a checkpoint are never appended again after a crash.
        self.snapshot_upto: i64 = 0
        # `indexed_upto` in the last checkpoint.
        self.checkpointed_upto: i64 = 0
        # `indexed_upto` in the checkpoint before the last one.
        self.previous_upto: i64 = 0

    def check(self, indexed_upto: i64) -> None:
        """Assert the invariants that hold between two operations; for tests and the simulator.

        `indexed_upto` is that of the queue's ledger.
        """
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
        self.stretches.check(self.settled)

    def path_of(self, segment: Segment) -> str:
        """Path of a segment, relative to the vhost's directory."""
        return f"{self.path}/{segment.number}.idx"

    def file_number(self, segment_number: i64) -> i64:
        """File number in the header of a segment, unique in the vhost."""
        return (self.queue_id << 32) | segment_number

    def find(self, number: i64) -> Segment | None:
        """Segment `number`, or None: not in the index."""
        place = self._place_of(number)
        if place < len(self.segments) and self.segments[place].number == number:
            return self.segments[place]
        return None

    def note_open_segment(self, indexed_upto: i64) -> None:
        """Note which segment, if any, a start finds not full; see `QueueStore.end_left_segment`."""
        if len(self.segments) > 0:
            last = self.segments[-1].number
            if (last + 1) * self.segment_entries > indexed_upto:
                self.open_at_start = last

    def segment_for_append(self, seq: i64) -> Segment:
        """The segment that takes `seq`, made when `seq` is its first. Seq ids only ascend."""
        number = seq // self.segment_entries
        if len(self.segments) > 0 and self.segments[-1].number == number:
            return self.segments[-1]
        segment = Segment(number)
        segment.is_new = True
        self.segments.append(segment)
        return segment

    def first_live(self, from_seq: i64) -> Segment | None:
        """The first segment at or behind that of `from_seq` with a live entry; None: none."""
        place = self._place_of(from_seq // self.segment_entries)
        while place < len(self.segments):
            if self.segments[place].live > 0:
                return self.segments[place]
            place += 1
        return None

    def settle(self, runs: Runs, indexed_upto: i64) -> None:
        """Settle the persistent positions in ascending `runs`; those settled before count once.

        When a segment is settled from its beginning to its end or to `indexed_upto`, nothing in it
        is live, however many of its seq ids ever were in the index.
        """
        self.version += 1
        new_runs: Runs = []
        for first, last in runs:
            new_runs.extend(subtract(first, last, self.settled))
        add_runs(self.settled, new_runs)
        for first, last in new_runs:
            self._count_settled(first, last, indexed_upto)
            self.stretches.settle(first, last)

    def settle_transient(self, seq: i64, indexed_upto: i64) -> None:
        """Settle a transient position: a start ignores it, but a load before may find it.

        The position counts once, although a load that misses its content may settle it again.
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
        """Settle all transient positions of the segments that begin in [first, end)."""
        if first < end:
            add_run(self.settled_transient, first, end - 1)
        for segment in self.segments:
            if first <= segment.number * self.segment_entries < end:
                segment.live_transient = 0

    def drop_dead_segments(self, indexed_upto: i64) -> None:
        """Drop the segments that have no live entry and that will get no further entries."""
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

    def referred_record_bytes(self) -> i64:
        """Average size in bytes of the records that entries refer to, where it is largest.

        A segment that also has embedded contents would make the average smaller than it is.
        """
        largest: i64 = 0
        for segment in self.segments:
            if segment.entries > 0:
                largest = max(largest, segment.referred_bytes // segment.entries)
        return largest

    def may_rewrite(self, segment: Segment, upto: i64) -> bool:
        """True when `segment` is live, complete and written, and no job is at work on it.

        Live: it has live entries. Complete: all its seq ids lie below `upto`, the seq id up to
        which the index has all positions, so that nothing is appended to it any more.
        """
        return (
            (segment.number + 1) * self.segment_entries <= upto
            and segment.written_bytes == segment.size_bytes
            and segment.live > 0
            and not segment.is_rewriting
        )

    def is_worth_rewriting(self, segment: Segment, is_in_debt: bool) -> bool:
        """True when so little of the segment is live that it should be rewritten."""
        if is_in_debt and segment.live > 0 and segment.live * 2 < segment.entries:
            return True
        return self._is_straggler(segment)

    def has_wasteful_tail(self, dead_tail_bytes: i64) -> bool:
        """True when less than half of the last segment is live, at `dead_tail_bytes` or more."""
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
        """Note that the checkpoint that was under way is on disk."""
        self.previous_upto = self.checkpointed_upto
        self.checkpointed_upto = self.snapshot_upto

    def live_count(self, first: i64, end: i64) -> i64:
        """Number of live entries in all segments that overlap [first, end)."""
        count: i64 = 0
        place = self._place_of(first // self.segment_entries)
        while (
            place < len(self.segments) and self.segments[place].number * self.segment_entries < end
        ):
            count += self.segments[place].live
            place += 1
        return count

    def has_references(self, first: i64, end: i64) -> bool:
        """True when a live position of [first, end) may have its content in a content store."""
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
                    # The count may be too low for the subtraction: a segment that could not be read
                    # counts no live entries, but positions of it may still be in memory.
                    segment.live_persistent = max(0, segment.live_persistent - (end - first + 1))
            first = end + 1

    def _forget_settled_below(self, indexed_upto: i64) -> None:
        # Seq ids before the first segment are settled or were never in the index: one run covers
        # them.
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
