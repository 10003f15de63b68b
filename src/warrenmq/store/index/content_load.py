"""Loading the contents of positions: from segments, journal files and content stores.

Places are hints, since a segment may have been rewritten and a content moved by compaction. A load
compares the bytes it has read with those it wanted, and searches for them when they differ.
`load.py` finds the positions.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.index.segment_files import SegmentFiles
from warrenmq.store.index.segment_loss import SegmentLoss
from warrenmq.store.index.waiting_loads import READ_TRIES, WaitingLoad
from warrenmq.store.jobs.job import FindContents, LoadDone, ReadRanges
from warrenmq.store.model.message import ABSENT, Message, Position, QueueLedger
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.content import decode_content
from warrenmq.store.records.index import IndexScan, find_messages
from warrenmq.store.records.log_places import file_of, message_at, offset_of, read_bytes_of
from warrenmq.store.records.record import (
    CONTENT,
    RECORD_HEADER_BYTES,
    body_is_valid,
    crc_seed,
    record_length,
)
from warrenmq.store.records.run_check import RunCheck

# Bytes of an index record beside its content; see `store/records/record.py`.
RECORD_OVERHEAD_BYTES: Final = 64
# Records in a journal file with at most this gap (bytes) between them are read together.
LOG_GAP_BYTES: Final = 16384
# The most bytes of a journal file that are read together.
LOG_READ_BYTES: Final = 4194304


class _Read(ReadRanges):
    def __init__(self, owner: ContentLoad, ranges: list[tuple[str, i64, i64]]) -> None:
        super().__init__(ranges, owner.ledger.queue_id)
        self.load: ContentLoad = owner

    def finished(self) -> None:
        self.load.on_read(self)


class _Find(FindContents):
    def __init__(self, owner: ContentLoad, path: str, wanted: list[i64]) -> None:
        super().__init__(path, wanted, owner.ledger.queue_id)
        self.load: ContentLoad = owner

    def finished(self) -> None:
        self.load.on_searched(self)


class ContentLoad(WaitingLoad):
    """Fills in the contents of positions that are in the index or in a content store."""

    def __init__(
        self,
        files: SegmentFiles,
        loss: SegmentLoss,
        ledger: QueueLedger,
        positions: list[Position],
        done: LoadDone,
    ) -> None:
        super().__init__()
        self.files: SegmentFiles = files
        self.loss: SegmentLoss = loss
        self.ledger: QueueLedger = ledger
        self.positions: list[Position] = positions
        self.done: LoadDone = done
        # Positions that the read or search under way is for.
        self._asked: list[Position] = []
        # For each of `_asked` the range that has its record.
        self._range_numbers: list[int] = []
        # The last range, of a journal file, which may grow: its number, offset and size in bytes.
        self._log_number: i64 = -1
        self._log_offset: i64 = 0
        self._log_bytes: i64 = 0
        # Positions whose place was out of date, to be searched for.
        self._misplaced: list[Position] = []
        # Positions whose content was not found.
        self._lost: list[Position] = []
        # The load is past the first reads and searches for misplaced contents.
        self._is_searching: bool = False
        self._failures: i64 = 0

    def start(self) -> None:
        """Read each content from its last known place; wait first for contents not written yet."""
        self.read_on()

    def read_on(self) -> None:
        """Read all contents again, after an append that was waited for or after a pause."""
        self._lost = []
        self._misplaced = []
        for position in self.positions:
            if not self._is_written(position):
                self.files.wait_for_append(self)
                return
        ranges: list[tuple[str, i64, i64]] = []
        self._asked = []
        self._range_numbers = []
        self._log_number = -1
        for position in self.positions:
            if position.has_content or _is_given_up(position):
                continue
            content = position.content_ref
            if content is None and position.place < -1:
                self._ask_log(position, ranges)
                continue
            if content is None:
                segment = self._segment_of(position)
                if segment is None:
                    self._lost.append(position)
                    continue
                size: i64 = position.content_bytes + RECORD_OVERHEAD_BYTES
                size = min(size, segment.written_bytes - position.place)
                self._end_log(ranges)
                if size <= 0:
                    # The segment was rewritten and is shorter than before.
                    self._misplaced.append(position)
                    continue
                ranges.append((self._path_of(segment), position.place, size))
            else:
                self._end_log(ranges)
                contents = self.files.contents.store_of(content)
                if not contents.is_current_location(content):
                    self._misplaced.append(position)
                    continue
                ranges.append(
                    (contents.path_of(content.file), content.offset, content.stored_bytes)
                )
            self._ask(position, len(ranges) - 1)
        self._end_log(ranges)
        if len(ranges) > 0:
            self.files.jobs.submit(_Read(self, ranges))
        else:
            self._search()

    def _ask(self, position: Position, range_number: i64) -> None:
        self._asked.append(position)
        self._range_numbers.append(range_number)

    def _ask_log(self, position: Position, ranges: list[tuple[str, i64, i64]]) -> None:
        """Ask for a record in a journal file, together with the one before it if that is near."""
        place = position.place
        number = file_of(place)
        offset = offset_of(place)
        end: i64 = offset + read_bytes_of(place, position.content_bytes)
        start = offset - self._log_offset
        if (
            number != self._log_number
            or start < 0
            or start > self._log_bytes + LOG_GAP_BYTES
            or end - self._log_offset > LOG_READ_BYTES
        ):
            self._end_log(ranges)
            self._log_number = number
            self._log_offset = offset
            self._log_bytes = 0
        self._log_bytes = max(self._log_bytes, end - self._log_offset)
        # The range is added when it is complete.
        self._ask(position, len(ranges))

    def _end_log(self, ranges: list[tuple[str, i64, i64]]) -> None:
        if self._log_number >= 0:
            path = self.files.logs.path_of(self._log_number)
            ranges.append((path, self._log_offset, self._log_bytes))
            self._log_number = -1

    def on_read(self, job: ReadRanges) -> None:
        """Take the contents from the records that were read."""
        if job.error is not None:
            self._is_searching = False
            self.files.retry_load(self, 0)
            return
        if self._is_searching:
            self._on_segment_read(job)
            return
        if None in job.results and self._failures < READ_TRIES and not job.is_missing:
            self.files.retry_load(self, self._failures)
            self._failures += 1
            return
        store_id = self.files.store_id
        queue_id = self.ledger.queue_id
        log_number: i64 = -1
        taken: i64 = -1
        data: bytes | None = None
        check: RunCheck | None = None
        range_offset: i64 = 0
        for index in range(len(self._asked)):
            position = self._asked[index]
            range_number: i64 = self._range_numbers[index]
            if range_number != taken:
                # Most ranges have the records of many positions.
                taken = range_number
                data = job.results[taken] if taken < len(job.results) else None
                range_offset = job.ranges[taken][1]
                check = None
            if _is_given_up(position):
                continue
            if data is None:
                self._misplaced.append(position)
            elif position.content_ref is None and position.place < -1:
                number = file_of(position.place)
                if check is None or number != log_number:
                    log_number = number
                    check = RunCheck(data, crc_seed(store_id, number))
                start = offset_of(position.place) - range_offset
                message = message_at(check, start, queue_id, position.seq)
                if message is None:
                    self._misplaced.append(position)
                else:
                    self._fill(position, message)
            elif not self._take(position, data):
                self._misplaced.append(position)
        self._search()

    def on_searched(self, job: FindContents) -> None:
        """Take the contents that a search of a content file has found."""
        if job.error is not None and not isinstance(job.error, FileNotFoundError):
            self._is_searching = False
            self.files.retry_load(self, 0)
            return
        for position in self._asked:
            content = position.content_ref
            if content is None:
                # The position was settled meanwhile.
                continue
            found = job.found.get(content.id)
            message = None if found is None else _content_in(found[1], content.id)
            if message is None:
                self._lost.append(position)
            else:
                self._fill(position, message)
        self._search()

    def _on_segment_read(self, job: ReadRanges) -> None:
        data = job.results[0] if len(job.results) == 1 else None
        if data is None and self._failures < READ_TRIES and not job.is_missing:
            self._is_searching = False
            self.files.retry_load(self, self._failures)
            self._failures += 1
            return
        segment = self._segment_of(self._asked[0])
        if data is None and segment is not None:
            self._failures = 0
            self._is_searching = False
            self.loss.replace_segment(self.ledger, segment)
            self.files.wait_for_append(self)
            return
        index = self.ledger.index
        found: dict[int, Message] = {}
        if data is not None and index is not None:
            number: i64 = self._asked[0].seq // index.segment_entries
            seed = crc_seed(self.files.store_id, index.file_number(number))
            found = find_messages(data, seed, {position.seq for position in self._asked})
        for position in self._asked:
            message = found.get(position.seq)
            if message is None:
                self._lost.append(position)
            elif not _is_given_up(position):
                self._fill(position, message)
        self._search()

    def _search(self) -> None:
        """Search for misplaced contents, one file after the other; finish when none is left."""
        self._is_searching = True
        while len(self._misplaced) > 0:
            position = self._misplaced.pop(0)
            if _is_given_up(position):
                continue
            content = position.content_ref
            if content is None:
                segment = self._segment_of(position)
                if segment is not None:
                    self._ask_segment(position, segment)
                    return
            else:
                located = self.files.contents.store_of(content).locate(content.id)
                if located is not None:
                    self._ask_together(position, located[0])
                    return
            self._lost.append(position)
        # A position that was settled during the search is gone, not lost.
        lost = [position for position in self._lost if not _is_given_up(position)]
        self.done.on_contents(self.positions, lost)

    def _ask_segment(self, position: Position, segment: Segment) -> None:
        self._asked = [position]
        rest: list[Position] = []
        for other in self._misplaced:
            if other.content_ref is None and self._segment_of(other) is segment:
                self._asked.append(other)
            else:
                rest.append(other)
        self._misplaced = rest
        self.files.jobs.submit(_Read(self, [(self._path_of(segment), 0, segment.written_bytes)]))

    def _ask_together(self, position: Position, path: str) -> None:
        self._asked = [position]
        rest: list[Position] = []
        for other in self._misplaced:
            content = other.content_ref
            located = (
                self.files.contents.store_of(content).locate(content.id)
                if content is not None
                else None
            )
            if located is not None and located[0] == path:
                self._asked.append(other)
            else:
                rest.append(other)
        self._misplaced = rest
        wanted: list[i64] = []
        for asked in self._asked:
            assert asked.content_ref is not None
            wanted.append(asked.content_ref.id)
        self.files.jobs.submit(_Find(self, path, wanted))

    def _take(self, position: Position, data: bytes) -> bool:
        content = position.content_ref
        if content is None:
            return self._scan(position, data)
        seed = crc_seed(self.files.store_id, content.file)
        length = record_length(data, 0, seed)
        if length < 0 or not body_is_valid(data, 0, length):
            return False
        message = _content_in(data, content.id)
        if message is None:
            return False
        self._fill(position, message)
        return True

    def _scan(self, position: Position, data: bytes) -> bool:
        index = self.ledger.index
        assert index is not None
        seed = crc_seed(
            self.files.store_id, index.file_number(position.seq // index.segment_entries)
        )
        scan = IndexScan(self.ledger, seed, position.place, position.seq, position.seq + 1)
        scan.feed(data, True, 1, 1 << 62)
        if len(scan.found) == 0:
            return False
        self._fill(position, scan.found[0].message)
        return True

    def _fill(self, position: Position, message: Message) -> None:
        if position.message is ABSENT:
            position.message = message
        else:
            # Keep the message object: the journal's record of it still counts with this object.
            position.message.address = message.address
            position.message.properties = message.properties
            position.message.body = message.body
        position.has_content = True

    def _is_written(self, position: Position) -> bool:
        content = position.content_ref
        if content is not None:
            return self.files.contents.is_written(content)
        if position.place < -1:
            return True
        segment = self._segment_of(position)
        if segment is None:
            return True
        if segment.is_rewriting:
            return False
        # A place behind the end of a completely written segment comes from a longer copy: no append
        # will bring it.
        return (
            segment.written_bytes == segment.size_bytes
            or position.place + RECORD_HEADER_BYTES <= segment.written_bytes
        )

    def _segment_of(self, position: Position) -> Segment | None:
        index = self.ledger.index
        if index is None or position.place == -1:
            return None
        return index.find(position.seq // index.segment_entries)

    def _path_of(self, segment: Segment) -> str:
        index = self.ledger.index
        assert index is not None
        return index.path_of(segment)


def _is_given_up(position: Position) -> bool:
    """True when the position was settled during the load, so that its content is gone."""
    return position.content_ref is None and position.place == -1


def _content_in(record: bytes, content_id: i64) -> Message | None:
    """The message of a checked CONTENT record, or None: not the record of `content_id`."""
    if len(record) < RECORD_HEADER_BYTES or record[2] != CONTENT:
        return None
    stored = decode_content(record, RECORD_HEADER_BYTES, len(record))
    return stored.message if stored is not None and stored.id == content_id else None
