"""Steps through a whole journal file: its records, and the stretches that are no record.

A damaged record costs only itself: the scan goes on as recovery does (`index.behind_damage`).
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i64_le
from mypy_extensions import i64

from warrenmq.store.records import record
from warrenmq.store.records.index import behind_damage
from warrenmq.store.records.publish_body import message_bounds


class LogScan:
    """The journal file `data`; the result of a step is data[start:end], and what it is.

    `seed` is that of the file (`record.crc_seed`).
    """

    def __init__(self, data: bytes, seed: int) -> None:
        self.start: i64 = record.FILE_HEADER_BYTES
        self.end: i64 = record.FILE_HEADER_BYTES
        # A record; else no record begins at `start`.
        self.is_valid: bool = False
        # Where the PUBLISH body of a record with a message begins; -1: the record has none.
        self.body: i64 = -1
        # Number of positions in that body, which follow each other from `first_position` on.
        self.position_count: i64 = 0
        self._data: bytes = data
        self._seed: int = seed
        # Zeros at the end are space that was allocated ahead.
        self._size: i64 = len(data.rstrip(b"\0"))

    @property
    def first_position(self) -> i64:
        """Offset of the first position."""
        return self.body + 4

    def advance(self) -> bool:
        """Go to the next record, or to a stretch that is none; False at the end of the file."""
        start = self.end
        if start >= self._size:
            return False
        data = self._data
        length = record.record_length(data, start, self._seed)
        self.start = start
        self.is_valid = length >= 0 and record.body_is_valid(data, start, length)
        self.body = -1
        self.position_count = 0
        if not self.is_valid:
            self.end = behind_damage(data, start, length, self._seed, True)
            return True
        end: i64 = start + length
        self.end = end
        kind: i64 = i64(data[start + 2])
        if kind == record.PUBLISH:
            body: i64 = start + record.RECORD_HEADER_BYTES
        elif kind == record.MOVE:
            body = start + record.RECORD_HEADER_BYTES + record.MOVE_HEAD_BYTES
        else:
            return True
        self.body = body
        if message_bounds(data, body, end)[0] >= 0:
            self.position_count = record.read_u32(data, body)
        return True


def rows_of_log(data: bytes, seed: int) -> bytes:
    """What is in a journal file, as rows of five 64-bit integers, little-endian.

    start, end, 1 for a record and 0 for a stretch that is none, queue id, seq id: a row for each
    position of a record, or one with queue id -1 for what has none.
    """
    out = BytesWriter()
    scan = LogScan(data, seed)
    while scan.advance():
        is_valid: i64 = 1 if scan.is_valid else 0
        count = scan.position_count
        if count == 0:
            _write_row(out, scan, is_valid, -1, 0)
            continue
        at = scan.first_position
        while count > 0:
            _write_row(
                out, scan, is_valid, record.read_u32(data, at), record.read_u64(data, at + 4)
            )
            at += record.POSITION_BYTES
            count -= 1
    return out.getvalue()


def _write_row(out: BytesWriter, scan: LogScan, is_valid: i64, queue_id: i64, seq: i64) -> None:
    write_i64_le(out, scan.start)
    write_i64_le(out, scan.end)
    write_i64_le(out, is_valid)
    write_i64_le(out, queue_id)
    write_i64_le(out, seq)
