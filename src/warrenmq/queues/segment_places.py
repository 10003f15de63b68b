"""The places of messages in the segments of a queue's index, for readers on the same disk."""

from typing import Final, final

from mypy_extensions import i64

from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.store.message import INDEXED
from warrenmq.store.record import FILE_HEADER_BYTES

# Bytes of a PUBLISH record with one position (store/record.py) beside its content: the header, the
# position with its count, time and flags, the lengths of properties and body. The lengths of the
# two names count as content.
_OVERHEAD_BYTES: Final = 16 + 4 + 21 + 9 + 4 + 4
# Messages in more runs than this are not worth describing.
_RUNS_MAX: Final = 1000


@final
class SegmentPlaces:
    """The places of some messages of a queue, in order of seq ids.

    `find` says whether they can be given.
    """

    def __init__(self) -> None:
        # Seq ids of the messages, as inclusive ascending runs.
        self.runs: list[tuple[i64, i64]] = []
        # Byte ranges of files: (path below the vhost's directory, first byte, end).
        self.files: list[tuple[str, i64, i64]] = []
        self.is_redelivered: bool = False

    def find(self, queue: Queue, entries: list[Entry]) -> bool:
        """Fill in the places of `entries`; False when a reader could not use them.

        The reasons: an entry is not in the index or not written, has its content elsewhere, or
        differs from the first one in being redelivered; or the messages have too many gaps.
        """
        index = queue.ledger.index
        if index is None or len(entries) == 0:
            return False
        self.is_redelivered = entries[0].redelivered
        place: i64 = 0
        while place < len(entries):
            number: i64 = entries[place].seq // index.segment_entries
            segment = index.find(number)
            if segment is None or segment.is_rewriting:
                return False
            below: i64 = (number + 1) * index.segment_entries
            first: i64 = segment.written_bytes
            end: i64 = 0
            while place < len(entries) and entries[place].seq < below:
                entry = entries[place]
                if (
                    entry.journal_state != INDEXED
                    or entry.content_ref is not None
                    or entry.place < 0
                ):
                    return False
                if entry.redelivered != self.is_redelivered:
                    return False
                first = min(first, entry.place)
                end = max(end, entry.place + _OVERHEAD_BYTES + entry.content_bytes)
                self._add(entry.seq)
                place += 1
            if segment.rewrites > 0:
                # The entries' places are those of an earlier copy: give the whole file.
                first = FILE_HEADER_BYTES
                end = segment.written_bytes
            if end > segment.written_bytes or len(self.runs) > _RUNS_MAX:
                return False
            self.files.append((index.path_of(segment), first, end))
        return True

    def _add(self, seq: i64) -> None:
        if len(self.runs) > 0:
            first, last = self.runs[-1]
            if last + 1 == seq:
                self.runs[-1] = (first, seq)
                return
        self.runs.append((seq, seq))
