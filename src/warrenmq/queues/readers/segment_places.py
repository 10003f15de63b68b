"""The places of messages in a queue's index and in logs, for readers on the same disk."""

from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.model.content_log import ContentLogs
from warrenmq.store.model.message import INDEXED
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.log_places import file_of, offset_of, read_bytes_of
from warrenmq.store.records.record import FILE_HEADER_BYTES

# Bytes of a PUBLISH record with one position (store/records/record.py) beside its content: the
# header, the position with its count, time and flags, the lengths of properties and body. The
# lengths of the two names count as content.
_OVERHEAD_BYTES: Final = 16 + 4 + 21 + 9 + 4 + 4
# Messages in more runs, or in more byte ranges, than this are not worth describing.
_RUNS_MAX: Final = 1000
# Records in a log with at most this gap (bytes) between them are read together.
_LOG_GAP_BYTES: Final = 16384


@final
class SegmentPlaces:
    """The places of some messages of a queue, in order of seq ids.

    `find` says whether they can be given.
    """

    def __init__(self) -> None:
        # Seq ids of the messages, as inclusive ascending runs.
        self.runs: list[tuple[i64, i64]] = []
        # Byte ranges of files: (path below the vhost's directory, first byte, end). In a log, the
        # end is up to 15 bytes behind that of the last record.
        self.files: list[tuple[str, i64, i64]] = []
        self.is_redelivered: bool = False
        # The last range in a log: its file, first byte and end; no file: there is none.
        self._log: i64 = -1
        self._log_first: i64 = 0
        self._log_end: i64 = 0

    def find(self, queue: Queue, entries: list[Entry]) -> bool:
        """Fill in the places of `entries`; False when a reader could not use them.

        The reasons: an entry is not in the index or not written, has its content in a content
        store, or differs from the first one in being redelivered; or the messages have too many
        gaps, or lie in too many places.
        """
        index = queue.ledger.index
        if index is None or len(entries) == 0:
            return False
        self.is_redelivered = entries[0].redelivered
        logs = queue.backing.store.files.logs
        place: i64 = 0
        while place < len(entries):
            number: i64 = entries[place].seq // index.segment_entries
            segment = index.find(number)
            if segment is None or segment.is_rewriting:
                return False
            below: i64 = (number + 1) * index.segment_entries
            first: i64 = segment.written_bytes
            end: i64 = 0
            # Entries in logs may be before and behind those in the segment, not between them.
            is_past: bool = False
            while place < len(entries) and entries[place].seq < below:
                entry = entries[place]
                if (
                    entry.journal_state != INDEXED
                    or entry.content_ref is not None
                    or entry.place == -1
                    or entry.redelivered != self.is_redelivered
                ):
                    return False
                if entry.place < -1:
                    if end > 0 and not is_past:
                        if not self._add_segment(index.path_of(segment), segment, first, end):
                            return False
                        is_past = True
                    self._add_log(entry, logs)
                else:
                    if is_past:
                        return False
                    self._end_log(logs)
                    first = min(first, entry.place)
                    end = max(end, entry.place + _OVERHEAD_BYTES + entry.content_bytes)
                self._add(entry.seq)
                place += 1
            if end > 0 and not is_past:
                if not self._add_segment(index.path_of(segment), segment, first, end):
                    return False
            if len(self.runs) > _RUNS_MAX or len(self.files) > _RUNS_MAX:
                return False
        self._end_log(logs)
        return True

    def _add_segment(self, path: str, segment: Segment, first: i64, end: i64) -> bool:
        if segment.rewrites > 0:
            # The entries' places are those of an earlier copy: give the whole file.
            first = FILE_HEADER_BYTES
            end = segment.written_bytes
        if end > segment.written_bytes:
            return False
        self.files.append((path, first, end))
        return True

    def _add_log(self, entry: Entry, logs: ContentLogs) -> None:
        place = entry.place
        offset = offset_of(place)
        if (
            file_of(place) != self._log
            or offset < self._log_first
            or offset > self._log_end + _LOG_GAP_BYTES
        ):
            self._end_log(logs)
            self._log = file_of(place)
            self._log_first = offset
            self._log_end = offset
        self._log_end = max(self._log_end, offset + read_bytes_of(place, entry.content_bytes))

    def _end_log(self, logs: ContentLogs) -> None:
        if self._log >= 0:
            self.files.append((logs.path_of(self._log), self._log_first, self._log_end))
            self._log = -1

    def _add(self, seq: i64) -> None:
        if len(self.runs) > 0:
            first, last = self.runs[-1]
            if last + 1 == seq:
                self.runs[-1] = (first, seq)
                return
        self.runs.append((seq, seq))
