"""Finds the entries of a segment again, in the journal files that hold their contents.

A PLACES record has up to 64 entries, so a damaged one would cost as many messages. Each of them has
a record of its own in a journal file, which says everything that the entry said.
"""

from typing import Final

from mypy_extensions import i64

from warrenmq.store.model.runs import Runs, add_run, contains, subtract
from warrenmq.store.records.index import behind_damage, first_seq
from warrenmq.store.records.log_places import (
    PLACES,
    PlaceEntry,
    PlacesWriter,
    entry_count,
    read_entry,
)
from warrenmq.store.records.publish_body import message_bounds
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FLAG_REDELIVERED,
    INDEX_MAGIC,
    MOVE,
    MOVE_HEAD_BYTES,
    POSITION_BYTES,
    PUBLISH,
    RECORD_HEADER_BYTES,
    RecordWriter,
    body_is_valid,
    crc_seed,
    read_u32,
    read_u64,
    record_length,
)

_NO_SEQ: Final = 1 << 62
_NO_FILE: Final = 1 << 62


class SegmentRepair:
    """The whole records of segment `data`, and entries that were found again.

    `number` is the file number in the header. Entries of `settled` seq ids are not looked for.
    """

    def __init__(self, data: bytes, store_id: bytes, number: i64, settled: Runs) -> None:
        self._store_id: bytes = store_id
        self._number: i64 = number
        # (first seq id, offset, bytes) of each whole record, in order.
        self._records: list[tuple[int, int, bytes]] = []
        # Seq ids that are settled or in a whole record.
        self._known: Runs = list(settled)
        # Where bytes are no records: (first, last) of the seq ids that may have been there, and the
        # first and last journal file that their contents may be in.
        self.gaps: list[tuple[int, int, int, int]] = []
        # Where each part of `content` was in the segment; -1: it is new.
        self.origins: list[int] = []
        self._found: dict[int, PlaceEntry] = {}
        self._read(data)

    def _read(self, data: bytes) -> None:
        seed = crc_seed(self._store_id, self._number)
        at: i64 = FILE_HEADER_BYTES
        last: i64 = -1
        file: i64 = 0
        is_gap = False
        # The gap is not all zeros, as space that was never written is.
        has_bytes = False
        while at < len(data):
            length = record_length(data, at, seed)
            if length < 0 or not body_is_valid(data, at, length):
                following = behind_damage(data, at, length, seed, True)
                has_bytes = has_bytes or len(data[at:following].strip(b"\0")) > 0
                at = following
                is_gap = True
                continue
            record = data[at : at + length]
            first = first_seq(record)
            self._records.append((first, at, record))
            at += length
            add_run(self._known, first, first)
            file_before = file
            if record[2] == PLACES:
                file = read_u64(record, RECORD_HEADER_BYTES + 4)
            if is_gap and first > last + 1:
                upto = file if record[2] == PLACES else i64(_NO_FILE)
                self.gaps.append((last + 1, first - 1, file_before, upto))
            is_gap = False
            has_bytes = False
            last = first
            if record[2] == PLACES:
                for place in range(entry_count(record, RECORD_HEADER_BYTES, length)):
                    seq = read_entry(record, RECORD_HEADER_BYTES, place).seq
                    add_run(self._known, seq, seq)
                    last = seq
        if is_gap and has_bytes:
            self.gaps.append((last + 1, _NO_SEQ, file, _NO_FILE))

    @property
    def has_found(self) -> bool:
        """Whether any entry was found again."""
        return len(self._found) > 0

    def lacks(self, first: i64, last: i64) -> bool:
        """Whether an unsettled seq id of [first, last] is in no whole record."""
        return len(subtract(first, last, self._known)) > 0

    def search(self, log: bytes, log_number: i64, queue_id: i64, first: i64, last: i64) -> None:
        """Look for entries of [first, last] in a journal file's bytes `log`."""
        seed = crc_seed(self._store_id, log_number)
        at: i64 = FILE_HEADER_BYTES
        while at < len(log):
            length = record_length(log, at, seed)
            if length < 0 or not body_is_valid(log, at, length):
                at = behind_damage(log, at, length, seed, True)
                continue
            kind: i64 = i64(log[at + 2])
            body = at + RECORD_HEADER_BYTES
            if kind == MOVE:
                body += MOVE_HEAD_BYTES
            if kind in (PUBLISH, MOVE):
                self._take(log, at, body, length, log_number, queue_id, first, last)
            at += length

    def _take(
        self,
        log: bytes,
        start: i64,
        body: i64,
        length: i64,
        log_number: i64,
        queue_id: i64,
        first: i64,
        last: i64,
    ) -> None:
        end = start + length
        timestamp_at, _, _, body_start = message_bounds(log, body, end)
        if timestamp_at < 0:
            return
        at: i64 = body + 4
        for _ in range(read_u32(log, body)):
            seq = read_u64(log, at + 4)
            if (
                first <= seq <= last
                and read_u32(log, at) == queue_id
                and not contains(self._known, seq)
            ):
                entry = PlaceEntry(seq, log_number)
                entry.offset = start
                entry.stored_bytes = length
                entry.body_bytes = end - body_start
                # Beside the content: timestamp and flags, and the lengths of properties and body.
                entry.content_bytes = end - timestamp_at - 17
                entry.expiry_ms = read_u64(log, at + 12)
                entry.flags = i64(log[at + 20]) & FLAG_REDELIVERED
                self._found[seq] = entry
            at += POSITION_BYTES

    def content(self, queue_id: i64) -> list[bytes]:
        """The bytes of the repaired segment, in parts; sets `origins`."""
        writer = RecordWriter(self._store_id)
        places = PlacesWriter()
        writer.start_file(INDEX_MAGIC, self._number)
        parts: list[bytes] = []
        self.origins = []
        seqs = sorted(self._found)
        place = 0
        for first, offset, record in self._records:
            while place < len(seqs) and seqs[place] < first:
                places.add_found(queue_id, self._found[seqs[place]], writer)
                place += 1
            places.flush(queue_id, writer)
            self._add_new(writer, parts)
            parts.append(record)
            self.origins.append(offset)
        while place < len(seqs):
            places.add_found(queue_id, self._found[seqs[place]], writer)
            place += 1
        places.flush(queue_id, writer)
        self._add_new(writer, parts)
        return parts

    def _add_new(self, writer: RecordWriter, parts: list[bytes]) -> None:
        for part in writer.take():
            parts.append(part)
            self.origins.append(-1)
