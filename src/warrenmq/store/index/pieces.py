"""The pieces of index segments that loads have read further than they needed.

Entries that name places take 32 bytes, so one read of a segment has those of many loads. The next
load of the queue finds them here, and need not wait for a read of the index before it can ask for
contents. The disk can also be told of the contents that the loads after it will want.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.log_places import (
    PLACES,
    PlaceEntry,
    entry_count,
)
from warrenmq.store.records.record import RECORD_HEADER_BYTES, record_length

# Pieces that are kept, each of ENTRIES_BYTES (`load.py`) at most: those of the queues that
# were read last.
PIECES_MAX: Final = 16
# How far ahead of a load contents are read, in seq ids: as many as three loads have.
SEQS_AHEAD: Final = 1536
# Places in a file with at most this gap (bytes) between them are one range.
GAP_BYTES: Final = 16384


class IndexPiece:
    """The bytes `data` of `segment` from `offset` on; `begin` and `end` are places in `data`.

    Whole PLACES records begin at `begin`, and end at `end`. Only these are kept: their contents
    must be read, so that a load of them ends later. A message in the segment would be there at
    once, amid the work that asked for it.
    """

    def __init__(self, segment: Segment, offset: i64, data: bytes, begin: i64, seed: int) -> None:
        self.segment: Segment = segment
        # Number of rewrites of the segment before the read; a rewrite changes its offsets.
        self.rewrites: i64 = segment.rewrites
        self.offset: i64 = offset
        self.begin: i64 = begin
        self.end: i64 = _end_of_places(data, begin, seed)
        self.data: bytes = data[: self.end]
        self._seed: int = seed
        # The contents of the records before this place in `data` were asked for.
        self._asked_upto: i64 = begin
        # The last seq id in the records whose contents were asked for.
        self._asked_seq: i64 = -1

    def places_ahead(self, next_seq: i64) -> list[tuple[i64, i64, i64]]:
        """Where messages from `next_seq` on have their contents, if not asked for before.

        Returns ranges (file number, offset, size in bytes) in journal files for SEQS_AHEAD seq ids,
        and for the rest of the record in which these end. The bodies of the records are not
        checked: a range may be wrong, or of a message that was settled.
        """
        ranges: list[tuple[i64, i64, i64]] = []
        entry = PlaceEntry(0, 0)
        number: i64 = -1
        start: i64 = 0
        end: i64 = 0
        while self._asked_upto < self.end and self._asked_seq < next_seq + SEQS_AHEAD:
            body = self._asked_upto + RECORD_HEADER_BYTES
            self._asked_upto += record_length(self.data, self._asked_upto, self._seed)
            count = entry_count(self.data, body, self._asked_upto)
            place: i64 = 0
            while place < count:
                entry.read(self.data, body, place)
                place += 1
                self._asked_seq = entry.seq
                if entry.seq < next_seq:
                    continue
                if entry.file_number != number or not start <= entry.offset <= end + GAP_BYTES:
                    if number >= 0:
                        ranges.append((number, start, end - start))
                    number = entry.file_number
                    start = entry.offset
                    end = start
                end = max(end, entry.offset + entry.stored_bytes)
        if number >= 0:
            ranges.append((number, start, end - start))
        return ranges


class IndexPieces:
    """The pieces of one vhost's indexes, at most one for each queue."""

    def __init__(self) -> None:
        # By queue id, the oldest first.
        self._pieces: dict[int, IndexPiece] = {}

    def keep(self, queue_id: i64, piece: IndexPiece) -> None:
        """Keep `piece` for the next load of the queue, instead of the one before."""
        self._pieces.pop(queue_id, None)
        if piece.begin >= piece.end:
            return
        if len(self._pieces) >= PIECES_MAX:
            del self._pieces[next(iter(self._pieces))]
        self._pieces[queue_id] = piece

    def take(self, queue_id: i64, segment: Segment, offset: i64) -> IndexPiece | None:
        """The kept piece of `segment` if it goes on at `offset`; it is forgotten here."""
        piece = self._pieces.pop(queue_id, None)
        if (
            piece is None
            or piece.segment is not segment
            or piece.rewrites != segment.rewrites
            or piece.offset + piece.begin != offset
        ):
            return None
        return piece


def _end_of_places(data: bytes, begin: i64, seed: int) -> i64:
    at = begin
    while True:
        length = record_length(data, at, seed)
        if length < 0 or at + length > len(data) or i64(data[at + 2]) != PLACES:
            return at
        at += length
