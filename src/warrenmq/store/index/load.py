"""Loading messages back: the positions of a queue's index, then contents that are elsewhere.

A load is a few reads one after another, each a job of the READ lane, with decisions in between on
the loop. A load never reads bytes that have not been written yet: it waits in the store until the
append is done. `content_load.py` has the second half, the contents.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.index.content_load import ContentLoad
from warrenmq.store.index.pieces import IndexPiece
from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.index.segment_loss import SegmentLoss
from warrenmq.store.index.waiting_loads import READ_TRIES, WaitingLoad
from warrenmq.store.jobs.job import LoadDone, ReadAheadRanges, ReadRanges
from warrenmq.store.model.message import Position, QueueLedger
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.index import IndexScan
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed

# Smallest read of a segment (bytes), so that small messages come in batches.
READ_BYTES_MIN: Final = 65536
# Size of a read (bytes) of a segment that mainly names places: the entries of many loads.
ENTRIES_BYTES: Final = 524288
# Loads of at least this many ranges tell the system which contents come next. Fewer ranges lie
# close to each other, and the system reads them ahead by itself.
SCATTERED_RANGES: Final = 4
# Size of a read (bytes) of a segment whose positions are to be settled.
POSITIONS_BYTES: Final = 196608


class _Read(ReadRanges):
    def __init__(self, owner: IndexLoad, ranges: list[tuple[str, i64, i64]]) -> None:
        super().__init__(ranges, owner.ledger.queue_id)
        self.load: IndexLoad = owner

    def finished(self) -> None:
        self.load.on_read(self)


class IndexLoad(WaitingLoad):
    """One load of a range of positions: at most `max_messages`, and `max_bytes` of content.

    With `with_contents` False the bound is a read of `max_bytes` of the index instead.
    """

    def __init__(
        self,
        files: SegmentFiles,
        loss: SegmentLoss,
        ledger: QueueLedger,
        from_seq: i64,
        end_seq: i64,
        max_messages: i64,
        max_bytes: i64,
        with_contents: bool,
        done: LoadDone,
    ) -> None:
        self.files: SegmentFiles = files
        self.loss: SegmentLoss = loss
        self.ledger: QueueLedger = ledger
        self.next_seq: i64 = from_seq
        self.end_seq: i64 = end_seq
        self.max_messages: i64 = max_messages
        self.max_bytes: i64 = max_bytes if with_contents else 1 << 62
        self.with_contents: bool = with_contents
        self.done: LoadDone = done
        self._segment: Segment | None = None
        self._scan: IndexScan | None = None
        # `Segment.rewrites` of the copy of the segment that the scan's offset is for.
        self._rewrites: i64 = 0
        # Segment whose damage was reported, repaired as far as possible, and counted; -1: none.
        self._repaired_segment: i64 = -1
        # Number of failed reads of the same piece in a row.
        self._failures: i64 = 0
        self._read_bytes: i64 = max(max_bytes, READ_BYTES_MIN)
        # Ranges (path, offset, size in bytes) of contents that the queue's next loads will read.
        self._ahead: list[tuple[str, i64, i64]] = []

    def start(self) -> None:
        """Begin to read the segment of `next_seq`; called again for each further segment."""
        index = self.ledger.index
        segment = index.first_live(self.next_seq) if index is not None else None
        if (
            index is None
            or segment is None
            or segment.number * index.segment_entries >= self.end_seq
        ):
            self.next_seq = self.end_seq
            self._deliver([])
            return
        first_of_segment: i64 = segment.number * index.segment_entries
        if self.next_seq < first_of_segment:
            self.next_seq = first_of_segment
        offset: i64 = FILE_HEADER_BYTES
        cursor = index.cursor
        if cursor.segment == segment.number and cursor.seq <= self.next_seq:
            offset = cursor.offset
        seed = crc_seed(self.files.store_id, index.file_number(segment.number))
        self._segment = segment
        self._rewrites = segment.rewrites
        self._scan = IndexScan(self.ledger, seed, offset, self.next_seq, self.end_seq)
        self.read_on()

    def read_on(self) -> None:
        """Read the next piece of the segment if it is written; else wait for the append."""
        segment = self._segment
        scan = self._scan
        index = self.ledger.index
        if scan is None:
            self.start()
            return
        assert segment is not None and index is not None
        if segment.rewrites != self._rewrites:
            # Records have other offsets in the new copy: begin again with the next position.
            self.next_seq = scan.next_seq
            self.start()
            return
        # Lost entries of a damaged segment may be found again, and the others are counted.
        is_changing = segment.is_rewriting or segment.is_damaged
        if scan.offset >= segment.size_bytes and not is_changing:
            self._leave_segment()
            return
        available = segment.written_bytes - scan.offset
        if is_changing or available <= 0 or available < scan.wanted_bytes:
            self.files.wait_for_append(self)
            return
        read_bytes = self._read_bytes
        if self._has_small_entries(segment):
            # Small messages: a read of `_read_bytes`, meant for contents, would bring thousands of
            # entries.
            read_bytes = ENTRIES_BYTES
            kept = self.files.pieces.take(self.ledger.queue_id, segment, scan.offset)
            if kept is not None and kept.end - kept.begin > scan.wanted_bytes:
                self._take(segment, scan, kept.data, kept.begin, False, kept)
                return
        size: i64 = min(max(read_bytes, scan.wanted_bytes), available)
        self.files.jobs.submit(_Read(self, [(index.path_of(segment), scan.offset, size)]))

    def on_read(self, job: ReadRanges) -> None:
        """Take the positions from a piece of the segment."""
        segment = self._segment
        scan = self._scan
        assert segment is not None and scan is not None
        if segment.is_rewriting or segment.rewrites != self._rewrites:
            # The bytes may be of the old copy or of the new one.
            self.read_on()
            return
        if job.error is not None:
            # The read failed, not the file: no descriptor, no memory.
            self.files.retry_load(self, 0)
            return
        index = self.ledger.index
        assert index is not None
        result = job.results[0]
        if result is None and index.find(segment.number) is not segment:
            # All positions of the segment were settled meanwhile, and its file was deleted.
            self._leave_segment()
            return
        if result is None and self._failures < READ_TRIES and not job.is_missing:
            self.files.retry_load(self, self._failures)
            self._failures += 1
            return
        self._failures = 0
        wanted = job.ranges[0][2]
        if result is None:
            # The file is gone or unreadable: the messages in it are lost.
            self.loss.replace_segment(self.ledger, segment)
            self.files.wait_for_append(self)
            return
        is_short = len(result) < wanted
        if is_short:
            # The file is cut off, or it was rewritten before a crash and is complete: the recount
            # tells which.
            self.files.damaged.add(self.ledger, segment)
            self.files.damaged.recount()
        self._take(segment, scan, result, 0, is_short, None)

    def _take(
        self,
        segment: Segment,
        scan: IndexScan,
        data: bytes,
        begin: i64,
        is_short: bool,
        kept: IndexPiece | None,
    ) -> None:
        """Take the positions from `data`; the record at which the scan stands begins at `begin`.

        `is_short`: it ends before the segment should. `kept`: the piece that it was kept in.
        """
        offset = scan.offset - begin
        at_end = is_short or offset + len(data) >= segment.size_bytes
        scan.feed(data, at_end, self.max_messages, self.max_bytes, begin)
        if self._repaired_segment == segment.number:
            # Damage that is left was reported before, and its messages were counted.
            scan.damaged = []
        elif len(scan.damaged) > 0 or is_short:
            # Begin again with the same positions when the segment is repaired and counted.
            for damage_at, damage in scan.damaged:
                self.files.damaged.report(self.ledger, segment, damage_at, damage)
            self._repaired_segment = segment.number
            self._scan = None
            self.files.wait_for_append(self)
            return
        if len(scan.found) > 0 or scan.is_over:
            if self._has_small_entries(segment) and not scan.is_over:
                rest = scan.offset - offset
                if kept is None:
                    kept = IndexPiece(segment, offset, data, rest, scan.seed)
                kept.begin = rest
                self._keep(kept, scan.next_seq)
            self._finish_scan()
        elif at_end:
            self._leave_segment()
        else:
            self.read_on()

    def _finish_scan(self) -> None:
        scan = self._scan
        index = self.ledger.index
        assert scan is not None and index is not None
        self.next_seq = self.end_seq if scan.is_over else scan.next_seq
        if self._segment is not None:
            index.cursor.segment = self._segment.number
        index.cursor.seq = scan.next_seq
        index.cursor.offset = scan.offset
        self._deliver(scan.found)

    def _has_small_entries(self, segment: Segment) -> bool:
        """Whether the segment mainly names places, of which the contents are wanted too."""
        return self.with_contents and segment.referred_bytes > segment.size_bytes

    def _keep(self, piece: IndexPiece, next_seq: i64) -> None:
        """Keep the rest of a piece for the next load, and note what the next ones will want."""
        self.files.pieces.keep(self.ledger.queue_id, piece)
        for number, offset, size in piece.places_ahead(next_seq):
            self._ahead.append((self.files.logs.path_of(number), offset, size))

    def _leave_segment(self) -> None:
        segment = self._segment
        index = self.ledger.index
        assert segment is not None and index is not None
        # The segment may have died while it was read, and the others as well.
        if len(index.segments) == 0 or segment.number >= index.segments[-1].number:
            self.next_seq = self.end_seq
        else:
            self.next_seq = (segment.number + 1) * index.segment_entries
        if self.next_seq >= self.end_seq:
            self.next_seq = self.end_seq
            self._deliver([])
        else:
            self.start()

    def _deliver(self, positions: list[Position]) -> None:
        before: i64 = -1
        for position in positions:
            # `QueueStore.index` wrote the positions in ascending order.
            assert before < position.seq < self.next_seq
            before = position.seq
        absent = [position for position in positions if not position.has_content]
        if len(absent) == 0 or not self.with_contents:
            self.done.on_loaded(positions, self.next_seq)
        else:
            ContentLoad(
                self.files, self.loss, self.ledger, absent, _Contents(self, positions)
            ).start()
            if len(self._ahead) >= SCATTERED_RANGES:
                self.files.jobs.submit(ReadAheadRanges(self._ahead))


class _Contents(LoadDone):
    """Connects the two halves of a load: waits for the contents of the positions found."""

    def __init__(self, load: IndexLoad, positions: list[Position]) -> None:
        self.load: IndexLoad = load
        self.positions: list[Position] = positions

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        load = self.load
        load.done.on_loaded(self.positions, load.next_seq)
