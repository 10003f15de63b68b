"""Segments whose file is gone or cannot be read at all: another file takes its place, with what is left to write there.

A file that is there is moved to lost+found first: an operator may still get something out of it. What goes into the new
one are the positions that the queue has in memory, but for those whose content was in the file only, and what was on its
way into the old one. Then the segment is counted anew like a damaged one (`index_repair.py`): what is not in the new
file is lost, counted and reported. A start that finds a checkpoint from before sees a segment that is shorter than it
should be, or one that is missing.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.content_records import write_publish_ref
from warrenmq.store.index_records import end_below, first_seq
from warrenmq.store.jobs import AppendFile, PutAside, ReadRanges
from warrenmq.store.loads import WaitingLoad
from warrenmq.store.message import INDEXED, Position, QueueLedger
from warrenmq.store.queue_access import QueueAccess
from warrenmq.store.queue_index import QueueIndex, Segment
from warrenmq.store.record import FILE_HEADER_BYTES, INDEX_MAGIC, RecordWriter, crc_seed
from warrenmq.store.segment_files import Append, GoneSegments, SegmentFiles


class _PutAside(PutAside):
    def __init__(self, loss: SegmentLoss, ledger: QueueLedger, segment: Segment, path: str) -> None:
        super().__init__(path)
        self.loss: SegmentLoss = loss
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment
        self.load: WaitingLoad | None = None
        # Records that were on their way into the old file, and the first seq id of them.
        self.kept: list[bytes] = []
        self.upto: i64 = 0

    def finished(self) -> None:
        self.loss.on_put_aside(self)


class _FindEnd(ReadRanges):
    """Finds the end of a segment that was cut off: the last whole record before seq id `upto`."""

    def __init__(self, append: Append, ledger: QueueLedger, segment: Segment, upto: i64) -> None:
        super().__init__([(append.path, 0, append.found_bytes)])
        self.store_id: bytes = append.files.store_id
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment
        self.upto: i64 = upto

    def finished(self) -> None:
        index = self.ledger.index
        data = self.results[0] if len(self.results) == 1 else None
        if self.error is not None or index is None:
            # The read failed, not the file: the append fails once more and leads here again.
            return
        self.segment.left_bytes = 0
        if data is not None:
            seed = crc_seed(self.store_id, index.file_number(self.segment.number))
            self.segment.left_bytes = end_below(data, seed, self.upto)


class SegmentLoss(GoneSegments):
    """Replaces lost segments of one vhost. Without an `owner` no position is in memory."""

    def __init__(self, files: SegmentFiles) -> None:
        self.queue_access: QueueAccess | None = None
        self._files: SegmentFiles = files

    def give_up(self, ledger: QueueLedger, segment: Segment, load: WaitingLoad | None) -> None:
        """Replace the file of a segment that cannot be read, or is gone. Loads resume when the new file is in its place;
        if it cannot be made, they read the old one once more. `load` counts what is lost."""
        index = ledger.index
        assert index is not None
        if segment.is_rewriting:
            return
        segment.is_rewriting = True
        path = index.path_of(segment)
        job = _PutAside(self, ledger, segment, path)
        job.load = load
        lane = self._files.jobs.lane
        appends = lane.appends_of(path)
        job.upto = _first_seq_of(index, segment, appends)
        for append in appends:
            job.kept.extend(append.parts)
        lane.push(job)

    def give_up_gone(self, dirty: list[tuple[QueueLedger, Segment]], gone: list[str]) -> None:
        """Replace those of the segments `dirty` whose files a checkpoint found deleted (`gone`) when it synced them."""
        for ledger, segment in dirty:
            index = ledger.index
            if index is None or index.find(segment.number) is not segment:
                continue
            path = index.path_of(segment)
            # An append to it would notice by itself.
            if path in gone and len(self._files.jobs.lane.appends_of(path)) == 0:
                self.give_up(ledger, segment, None)

    def replace(self, append: Append) -> None:
        """The file of an append that has failed is deleted, or shorter than it was. Its lane is at rest.

        What is left of a segment stays; without anything left another file takes its place. Of the transient content
        store, or of a segment that nobody needs any more, a file of zeros does: what was in it is missed content by
        content.
        """
        segment = append.segment
        ledger = append.ledger
        appends = self._files.jobs.lane.appends_of(append.path)
        begin = appends[0]
        if begin.is_new:
            # An earlier append had the file replaced, or the file is to be written anew anyway.
            return
        index = ledger.index if ledger is not None else None
        if (
            ledger is None
            or index is None
            or segment is None
            or index.find(segment.number) is not segment
        ):
            begin.is_new = True
            begin.may_fill = True
        elif append.found_bytes < FILE_HEADER_BYTES or segment.left_bytes == 0:
            segment.left_bytes = -1
            self._renew(ledger, segment, _first_seq_of(index, segment, appends), [])
        elif segment.left_bytes < 0:
            # The appends fail once more, and by then the end is known.
            self._files.jobs.submit(
                _FindEnd(append, ledger, segment, _first_seq_of(index, segment, appends))
            )
        else:
            _move_appends(segment, appends, segment.left_bytes)
            segment.written_bytes = segment.left_bytes
            segment.left_bytes = -1
            self._count_anew(ledger, index, segment)

    def on_put_aside(self, job: _PutAside) -> None:
        """Begin a new file once the old one is in lost+found; keep the old one if it could not be moved."""
        files = self._files
        files.jobs.lane.on_other()
        job.segment.is_rewriting = False
        if job.error is None:
            lost = self._renew(job.ledger, job.segment, job.upto, job.kept)
            if job.load is not None:
                job.load.damaged_count += lost
        files.resume_loads()

    def _renew(self, ledger: QueueLedger, segment: Segment, upto: i64, kept: list[bytes]) -> i64:
        """Begin the file of a segment anew: what is in memory below seq id `upto`, then `kept`, then what is to be
        appended. Returns how many messages are lost that were on disk only, or a few more."""
        index = ledger.index
        if index is None or index.find(segment.number) is not segment:
            # The segment died meanwhile, or its queue did.
            return 0
        path = index.path_of(segment)
        first: i64 = segment.number * index.segment_entries
        positions: list[Position] = []
        if self.queue_access is not None:
            positions = self.queue_access.indexed_in_memory(ledger.queue_id, first, upto)
        prefix = _encode(self._files.writer, index, segment, positions)
        prefix.extend(kept)
        prefix_bytes: i64 = 0
        for part in prefix:
            prefix_bytes += len(part)
        lane = self._files.jobs.lane
        appends = lane.appends_of(path)
        segment.size_bytes = 0
        segment.written_bytes = 0
        if len(appends) == 0:
            self._files.append(ledger, segment, path, prefix, True)
            segment.size_bytes = prefix_bytes
        else:
            _move_appends(segment, appends, prefix_bytes)
            begin = appends[0]
            begin.parts = prefix + begin.parts
            begin.offset = 0
            begin.is_new = True
            begin.size_bytes += prefix_bytes
            lane.waiting_bytes += prefix_bytes
        segment.is_new = True
        self._count_anew(ledger, index, segment)
        on_their_way: i64 = max(0, ledger.indexed_upto - upto)
        return max(0, segment.live - i64(len(positions)) - on_their_way)

    def _count_anew(self, ledger: QueueLedger, index: QueueIndex, segment: Segment) -> None:
        """Have the records of `segment` counted again: some moved, some are lost."""
        segment.rewrites += 1
        segment.is_dirty = True
        index.has_dirty = True
        index.forget_cursor()
        index.version += 1
        segment.is_lost = True
        self._files.damaged.add(ledger, segment)


def _move_appends(segment: Segment, appends: list[AppendFile], offset: i64) -> None:
    """Move waiting appends to `offset` in the file."""
    shift = appends[0].offset - offset
    segment.size_bytes = offset
    for append in appends:
        append.offset -= shift
        segment.size_bytes += append.size_bytes


def _encode(
    writer: RecordWriter, index: QueueIndex, segment: Segment, positions: list[Position]
) -> list[bytes]:
    """The beginning of a segment: a header, and the `positions` whose content is stored elsewhere or in memory."""
    writer.start_file(INDEX_MAGIC, index.file_number(segment.number))
    for position in positions:
        place = writer.size_bytes
        content = position.content_ref
        if content is not None:
            write_publish_ref(writer, content, position.message, [position], 0, 1)
        elif position.has_content:
            writer.add_publish(position.message, [position], 0, 1)
        else:
            continue
        position.place = place
        position.journal_state = INDEXED
    return writer.take()


def _first_seq_of(index: QueueIndex, segment: Segment, appends: list[AppendFile]) -> i64:
    """Seq id of the first position that is on its way into a segment, or the segment's end."""
    if len(appends) > 0:
        return first_seq(b"".join(appends[0].parts))
    return (segment.number + 1) * index.segment_entries
