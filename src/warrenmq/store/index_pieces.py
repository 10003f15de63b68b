"""The pieces of index segments that loads have read further than they needed.

Entries that name places take 32 bytes, so one read of a segment has those of several loads. The
next load of the queue finds them here, and need not wait for a read of the index before it can ask
for contents. The disk can also be told of the contents that it will want.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from warrenmq.store.log_places import (
    PLACES,
    PlaceEntry,
    entry_count,
)
from warrenmq.store.queue_index import Segment
from warrenmq.store.record import RECORD_HEADER_BYTES, record_length

# Pieces that are kept, each of ENTRIES_BYTES (`index_load.py`) at most: those of the queues that
# were read last.
PIECES_MAX: Final = 16
# Entries whose places are told the disk, as many as one load reads ahead.
ENTRIES_AHEAD: Final = 512
# Places in a file with at most this gap (bytes) between them are one range.
GAP_BYTES: Final = 16384


class IndexPiece:
    """The bytes `data` of `segment` from `offset` on, where a record begins."""

    def __init__(self, segment: Segment, offset: i64, data: bytes) -> None:
        self.segment: Segment = segment
        # Number of rewrites of the segment before the read; a rewrite changes its offsets.
        self.rewrites: i64 = segment.rewrites
        self.offset: i64 = offset
        self.data: bytes = data


class IndexPieces:
    """The pieces of one vhost's indexes, at most one for each queue."""

    def __init__(self) -> None:
        # By queue id, the oldest first.
        self._pieces: dict[int, IndexPiece] = {}

    def keep(self, queue_id: i64, piece: IndexPiece) -> None:
        """Keep `piece` for the next load of the queue, instead of the one before."""
        self._pieces.pop(queue_id, None)
        if len(piece.data) == 0:
            return
        if len(self._pieces) >= PIECES_MAX:
            del self._pieces[next(iter(self._pieces))]
        self._pieces[queue_id] = piece

    def take(self, queue_id: i64, segment: Segment, offset: i64) -> bytes:
        """The kept bytes of `segment` from `offset` on, which are forgotten; none if not there."""
        piece = self._pieces.pop(queue_id, None)
        if (
            piece is None
            or piece.segment is not segment
            or piece.rewrites != segment.rewrites
            or piece.offset != offset
        ):
            return b""
        return piece.data


def places_bytes(data: bytes, seed: int) -> i64:
    """Size in bytes of the PLACES records that `data` begins with.

    Only these may be kept: their contents must be read, so that a load of them ends later. A
    message in the segment would be there at once, amid the work that asked for it.
    """
    at: i64 = 0
    while True:
        length = record_length(data, at, seed)
        if length < 0 or at + length > len(data) or i64(data[at + 2]) != PLACES:
            return at
        at += length


def places_ahead(data: bytes, seed: int, next_seq: i64) -> list[tuple[i64, i64, i64]]:
    """Where the next entries of `data`, records of a segment, have their contents.

    Returns ranges (file number, offset, size in bytes) in journal files for at most ENTRIES_AHEAD
    entries of seq ids from `next_seq` on. The bodies of the records are not checked: a range may
    be wrong, or of a message that was settled.
    """
    ranges: list[tuple[i64, i64, i64]] = []
    entry = PlaceEntry(0, 0)
    number: i64 = -1
    start: i64 = 0
    end: i64 = 0
    left: i64 = ENTRIES_AHEAD
    at: i64 = 0
    while left > 0:
        length = record_length(data, at, seed)
        if length < 0 or at + length > len(data) or i64(data[at + 2]) != PLACES:
            break
        body = at + RECORD_HEADER_BYTES
        count = entry_count(data, body, at + length)
        at += length
        place: i64 = 0
        while place < count and left > 0:
            entry.read(data, body, place)
            place += 1
            if entry.seq < next_seq:
                continue
            left -= 1
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
