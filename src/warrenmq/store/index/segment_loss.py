"""Replaces segment files that are gone or cannot be read at all.

An existing file is moved to lost+found first, since an operator may still get something out of it.
The new file gets the positions that the queue has in memory, except those whose content was in the
old file only, and then the appends that were on their way into the old file. Then the segment is
counted anew like a damaged one (`repair.py`): messages that are not in the new file are lost,
counted and reported. A start with a checkpoint from before the replacement finds a segment that is
shorter than the checkpoint says, or none.
"""

from __future__ import annotations

from mypy_extensions import i64

from warrenmq.store.index.repair import REPAIRS_MAX
from warrenmq.store.index.segment_files import Append, SegmentFiles
from warrenmq.store.index.waiting_loads import READ_TRIES
from warrenmq.store.jobs.job import AppendFile, PutAside, ReadRanges, RepairSegment, SearchedLog
from warrenmq.store.model.message import INDEXED, Position, QueueLedger
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.model.runs import Runs, overlapping
from warrenmq.store.model.store_host import StoreHost
from warrenmq.store.records.content import write_publish_ref
from warrenmq.store.records.index import end_below, first_seq
from warrenmq.store.records.record import FILE_HEADER_BYTES, INDEX_MAGIC, RecordWriter, crc_seed


class _PutAside(PutAside):
    def __init__(self, loss: SegmentLoss, ledger: QueueLedger, segment: Segment, path: str) -> None:
        super().__init__(path)
        self.loss: SegmentLoss = loss
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment
        # Records that were on their way into the old file.
        self.kept: list[bytes] = []
        # The first seq id in `kept`, or the segment's end.
        self.upto: i64 = 0

    def finished(self) -> None:
        self.loss.on_put_aside(self)


class _FindEnd(ReadRanges):
    """Finds the end of a cut-off segment: the end of its last whole record before seq id `upto`."""

    def __init__(self, append: Append, ledger: QueueLedger, segment: Segment, upto: i64) -> None:
        super().__init__([(append.path, 0, append.found_bytes)], ledger.queue_id)
        self.store_id: bytes = append.files.store_id
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment
        self.upto: i64 = upto

    def finished(self) -> None:
        index = self.ledger.index
        data = self.results[0] if len(self.results) == 1 else None
        if self.error is not None or index is None:
            # The read failed without a fault of the file: the append fails again and repeats the
            # search.
            return
        self.segment.left_bytes = 0
        if data is not None:
            seed = crc_seed(self.store_id, index.file_number(self.segment.number))
            self.segment.left_bytes = end_below(data, seed, self.upto)


class _Repair(RepairSegment):
    def __init__(
        self,
        loss: SegmentLoss,
        ledger: QueueLedger,
        segment: Segment,
        path: str,
        settled: Runs,
        logs: list[SearchedLog],
    ) -> None:
        super().__init__(path, segment.size_bytes, ledger.queue_id, settled, logs)
        self.loss: SegmentLoss = loss
        self.ledger: QueueLedger = ledger
        self.segment: Segment = segment

    def finished(self) -> None:
        self.loss.on_repaired(self)


class SegmentLoss:
    """Replaces lost segments of one vhost. Without `store_host` no position is in memory."""

    def __init__(self, files: SegmentFiles) -> None:
        self.store_host: StoreHost | None = None
        self._files: SegmentFiles = files
        files.damaged.repair = self.repair

    def repair(self, ledger: QueueLedger, segment: Segment) -> None:
        """Write a segment again with entries that are found in the journal files of its contents.

        Loads of the segment wait until its entries are counted anew.
        """
        index = ledger.index
        assert index is not None
        first: i64 = segment.number * index.segment_entries
        last = first + index.segment_entries - 1
        logs = [
            SearchedLog(log.path, log.number, part_first, part_last)
            for log, part_first, part_last in index.stretches.parts_of(first, last)
        ]
        segment.is_rewriting = True
        settled = overlapping(index.settled, first, last)
        self._files.jobs.lane.push(
            _Repair(self, ledger, segment, index.path_of(segment), settled, logs)
        )

    def on_repaired(self, job: _Repair) -> None:
        """Account for a segment that was written again, or could not be."""
        files = self._files
        files.jobs.lane.on_other()
        segment = job.segment
        segment.is_rewriting = False
        if job.error is not None and job.is_unreadable and segment.failed_reads >= READ_TRIES:
            segment.repairs = REPAIRS_MAX
        elif job.error is not None:
            # Nothing is lost yet, so try again later: the cause may be a full disk, a lack of
            # descriptors or memory, or a read error that does not last.
            segment.repairs -= 1
            if job.is_unreadable:
                segment.failed_reads += 1
            files.damaged.pause()
        else:
            appends = files.jobs.lane.appends_of(job.path)
            if len(appends) > 0:
                _move_appends(segment, appends, job.new_size)
            segment.size_bytes = job.new_size
            files.jobs.lane.rewritten_bytes += job.new_size
            for append in appends:
                segment.size_bytes += append.size_bytes
            segment.written_bytes = job.new_size
            segment.rewrites += 1
            segment.is_dirty = True
            index = job.ledger.index
            if index is not None:
                index.has_dirty = True
                index.cursor.forget()
                index.version += 1
        files.resume_loads()

    def replace_segment(self, ledger: QueueLedger, segment: Segment) -> None:
        """Replace the file of a segment that cannot be read or is gone.

        Loads resume when the new file is in place. If the old file cannot be moved away, they read
        it once more.
        """
        index = ledger.index
        assert index is not None
        if segment.is_rewriting:
            return
        segment.is_rewriting = True
        path = index.path_of(segment)
        job = _PutAside(self, ledger, segment, path)
        lane = self._files.jobs.lane
        appends = lane.appends_of(path)
        job.upto = _first_seq_of(index, segment, appends)
        for append in appends:
            job.kept.extend(append.parts)
        lane.push(job)

    def replace_gone(self, dirty: list[tuple[QueueLedger, Segment]], gone: list[str]) -> None:
        """Replace the segments of `dirty` whose files a checkpoint found deleted (`gone`)."""
        for ledger, segment in dirty:
            index = ledger.index
            if index is None or index.find(segment.number) is not segment:
                continue
            path = index.path_of(segment)
            # A waiting append would find the file gone and have it replaced itself.
            if path in gone and len(self._files.jobs.lane.appends_of(path)) == 0:
                self.replace_segment(ledger, segment)

    def replace(self, append: Append) -> None:
        """Repair the file of a failed append: it was deleted, or is shorter than it was.

        The write lane is at rest. The rest of a cut-off segment stays; if nothing is left, a new
        file replaces it. For the transient content store, and for a segment that nothing needs any
        more, a file of zeros does: each load of a content that was in it finds that one lost.
        """
        segment = append.segment
        ledger = append.ledger
        appends = self._files.jobs.lane.appends_of(append.path)
        begin = appends[0]
        if begin.is_new:
            # An earlier append had the file replaced already, or this one creates the file anyway.
            return
        if append.found_bytes >= begin.offset:
            # The file is short because an append before this one has failed. All of them run again.
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
            # Find the segment's end first. The appends fail once more and come here again with the
            # end known.
            self._files.jobs.submit(
                _FindEnd(append, ledger, segment, _first_seq_of(index, segment, appends))
            )
        else:
            _move_appends(segment, appends, segment.left_bytes)
            segment.written_bytes = segment.left_bytes
            segment.left_bytes = -1
            self._count_anew(ledger, index, segment)

    def on_put_aside(self, job: _PutAside) -> None:
        """Begin a new file after the old one was moved to lost+found; on error keep the old one."""
        files = self._files
        files.jobs.lane.on_other()
        job.segment.is_rewriting = False
        if job.error is None:
            self._renew(job.ledger, job.segment, job.upto, job.kept)
        files.resume_loads()

    def _renew(self, ledger: QueueLedger, segment: Segment, upto: i64, kept: list[bytes]) -> None:
        """Begin the file of a segment anew.

        The file gets the queue's positions in memory below seq id `upto`, then `kept`, then the
        waiting appends. Messages that were on disk only are lost.
        """
        index = ledger.index
        if index is None or index.find(segment.number) is not segment:
            # The segment or its queue has died since.
            return
        path = index.path_of(segment)
        first: i64 = segment.number * index.segment_entries
        positions: list[Position] = []
        if self.store_host is not None:
            positions = self.store_host.indexed_in_memory(ledger.queue_id, first, upto)
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

    def _count_anew(self, ledger: QueueLedger, index: QueueIndex, segment: Segment) -> None:
        """Have the records of `segment` counted anew, since some moved and some are lost."""
        segment.rewrites += 1
        segment.is_dirty = True
        index.has_dirty = True
        index.cursor.forget()
        index.version += 1
        segment.is_lost = True
        self._files.damaged.add(ledger, segment)


def _move_appends(segment: Segment, appends: list[AppendFile], offset: i64) -> None:
    """Shift the waiting appends so that they begin at `offset` in the file."""
    shift = appends[0].offset - offset
    segment.size_bytes = offset
    for append in appends:
        append.offset -= shift
        segment.size_bytes += append.size_bytes


def _encode(
    writer: RecordWriter, index: QueueIndex, segment: Segment, positions: list[Position]
) -> list[bytes]:
    """Encode the beginning of a segment: a header and the `positions` that can be written again.

    A position can be written if its content is in a content store or in memory.
    """
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
    """The first seq id in the waiting appends of a segment; the segment's end when there is none.

    An append without records cuts off what a crash has left behind the segment.
    """
    for append in appends:
        if append.size_bytes > 0:
            return first_seq(b"".join(append.parts))
    return (segment.number + 1) * index.segment_entries
