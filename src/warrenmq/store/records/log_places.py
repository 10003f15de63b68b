"""Places of contents in journal files, and the PLACES records of segments that name them.

A persistent message that stays is written once: its content stays in the journal file that the
publish was written to, and its queue's index gets an entry of 32 bytes that names the place. A
PLACES record holds up to 64 entries of one queue and one file under one CRC:

PLACES       queue id u32 · journal file u64 · first seq u64 · per entry, 32 bytes: seq - first seq
             u32, offset u32 of the record in the file, size u32 of the record, size u32 of
             address, properties and body, size u32 of the body, expiry ms u64, flags u8 (as in
             PUBLISH), 3 zero bytes

In memory a place is one negative integer (`Position.place`), so that a position with its content on
disk only costs no further object.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from warrenmq.store.model.message import Message, Position
from warrenmq.store.records import record
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.run_check import RunCheck

PLACES: Final = 17
PLACES_HEAD_BYTES: Final = 20
ENTRY_BYTES: Final = 32
# The most entries in one PLACES record: one damaged record costs as many searches.
ENTRIES_MAX: Final = 64

# A place is -2 - (file << 35 | offset << 7 | extra), with `extra` in units of 16 bytes.
_OFFSET_END: Final = 1 << 28
_EXTRA_END: Final = 1 << 7
_FILE_END: Final = 1 << 27
_EXTRA_UNIT: Final = 16
# The flags of an entry as the first byte of a 32-bit integer; three zero bytes follow.
_FLAG_UNIT: Final = 1 << 24


def may_refer_to(message: Message) -> bool:
    """Whether the place of the message's record, which is in a journal file, fits an entry."""
    file = message.file
    return file is not None and may_encode(
        file.number, message.offset, message.stored_bytes, message.content_bytes
    )


def may_encode(file_number: i64, offset: i64, stored_bytes: i64, content_bytes: i64) -> bool:
    """Whether `place_of` has a place for such a record."""
    extra: i64 = (
        stored_bytes - content_bytes - record.RECORD_HEADER_BYTES - record.ONE_POSITION_BYTES
    )
    return (
        file_number < _FILE_END and offset < _OFFSET_END and extra <= (_EXTRA_END - 1) * _EXTRA_UNIT
    )


def place_of(file_number: i64, offset: i64, stored_bytes: i64, content_bytes: i64) -> i64:
    """The place of a record as one integer below -1."""
    extra: i64 = (
        stored_bytes - content_bytes - record.RECORD_HEADER_BYTES - record.ONE_POSITION_BYTES
    )
    units: i64 = (extra + _EXTRA_UNIT - 1) // _EXTRA_UNIT
    return -2 - (((file_number << 28 | offset) << 7) | units)


def file_of(place: i64) -> i64:
    """Number of the journal file that `place` names."""
    return (-2 - place) >> 35


def offset_of(place: i64) -> i64:
    """Offset of the record in that file."""
    return ((-2 - place) >> 7) & (_OFFSET_END - 1)


def read_bytes_of(place: i64, content_bytes: i64) -> i64:
    """Bytes to read from that offset for the whole record; a few more than it has."""
    units: i64 = (-2 - place) & (_EXTRA_END - 1)
    return (
        content_bytes + record.RECORD_HEADER_BYTES + record.ONE_POSITION_BYTES + units * _EXTRA_UNIT
    )


class PlaceEntry:
    """One entry of a PLACES record."""

    def __init__(self, seq: i64, file_number: i64) -> None:
        self.seq: i64 = seq
        self.file_number: i64 = file_number
        self.offset: i64 = 0
        self.stored_bytes: i64 = 0
        self.content_bytes: i64 = 0
        self.body_bytes: i64 = 0
        self.expiry_ms: i64 = 0
        self.flags: i64 = 0

    def read(self, data: bytes, body: i64, number: i64) -> None:
        """Become entry `number` of the PLACES body that begins at `body` (`entry_count`)."""
        at = body + PLACES_HEAD_BYTES + number * ENTRY_BYTES
        self.seq = record.read_u64(data, body + 12) + record.read_u32(data, at)
        self.file_number = record.read_u64(data, body + 4)
        self.offset = record.read_u32(data, at + 4)
        self.stored_bytes = record.read_u32(data, at + 8)
        self.content_bytes = record.read_u32(data, at + 12)
        self.body_bytes = record.read_u32(data, at + 16)
        self.expiry_ms = record.read_u64(data, at + 20)
        self.flags = i64(data[at + 28])


class PlacesWriter:
    """Gathers the entries of one PLACES record and writes it to a segment's `writer`."""

    def __init__(self) -> None:
        self._file_number: i64 = 0
        self._first_seq: i64 = 0
        self._count: i64 = 0
        self._entries: BytesWriter = BytesWriter()

    def add(self, position: Position, message: Message, writer: record.RecordWriter) -> None:
        """Add an entry for `position`, whose message has a record in a journal file."""
        file = message.file
        assert file is not None
        queue_id = position.ledger.queue_id
        offset = message.offset
        stored_bytes = message.stored_bytes
        self.begin(queue_id, file.number, position.seq, writer)
        out = self._entries
        write_i32_be(out, i32(position.seq - self._first_seq))
        write_i32_be(out, i32(offset))
        write_i32_be(out, i32(stored_bytes))
        write_i32_be(out, i32(position.content_bytes))
        write_i32_be(out, i32(position.body_bytes))
        write_i64_be(out, position.expiry_ms)
        write_i32_be(out, _FLAG_UNIT * record.FLAG_REDELIVERED if position.redelivered else 0)
        position.place = place_of(file.number, offset, stored_bytes, position.content_bytes)

    def add_found(self, queue_id: i64, entry: PlaceEntry, writer: record.RecordWriter) -> None:
        """Add an entry that was found in its file."""
        self.begin(queue_id, entry.file_number, entry.seq, writer)
        out = self._entries
        write_i32_be(out, i32(entry.seq - self._first_seq))
        write_i32_be(out, i32(entry.offset))
        write_i32_be(out, i32(entry.stored_bytes))
        write_i32_be(out, i32(entry.content_bytes))
        write_i32_be(out, i32(entry.body_bytes))
        write_i64_be(out, entry.expiry_ms)
        write_i32_be(out, i32(entry.flags * _FLAG_UNIT))

    def begin(self, queue_id: i64, file_number: i64, seq: i64, writer: record.RecordWriter) -> None:
        """Begin an entry of `seq`: in a new record, if it cannot be in the same one."""
        if self._count == ENTRIES_MAX or (self._count > 0 and self._file_number != file_number):
            self.flush(queue_id, writer)
        if self._count == 0:
            self._file_number = file_number
            self._first_seq = seq
        self._count += 1

    def flush(self, queue_id: i64, writer: record.RecordWriter) -> None:
        """Write the gathered entries as one record, if there are any."""
        if self._count == 0:
            return
        entries = self._entries.getvalue()
        self._entries.truncate(0)
        writer.raw_record(
            PLACES, _head(queue_id, self._file_number, self._first_seq) + entries, b""
        )
        self._count = 0


def _head(queue_id: i64, file_number: i64, first_seq: i64) -> bytes:
    head = BytesWriter()
    write_i32_be(head, i32(queue_id))
    write_i64_be(head, file_number)
    write_i64_be(head, first_seq)
    return head.getvalue()


def read_entry(data: bytes, body: i64, number: i64) -> PlaceEntry:
    """Entry `number` of the PLACES body that begins at `body` (`entry_count`)."""
    entry = PlaceEntry(0, 0)
    entry.read(data, body, number)
    return entry


def entry_count(data: bytes, body: i64, end: i64) -> i64:
    """Number of entries in the PLACES body data[body:end]; -1: it is malformed."""
    size: i64 = end - body - PLACES_HEAD_BYTES
    if size <= 0 or size % ENTRY_BYTES != 0 or size > ENTRIES_MAX * ENTRY_BYTES:
        return -1
    return size // ENTRY_BYTES


def message_at(check: RunCheck, start: i64, queue_id: i64, seq: i64) -> Message | None:
    """The message of the record at `start`, if it is a whole publish of `seq` in the queue.

    `check` has the bytes. None: other bytes, damage, or another message.
    """
    data = check.data
    length = record.record_length(data, start, check.seed)
    if length < 0 or not check.is_whole(start, length):
        return None
    body: i64 = start + record.RECORD_HEADER_BYTES
    end: i64 = start + length
    kind: i64 = i64(data[start + 2])
    if kind == record.MOVE:
        body += record.MOVE_HEAD_BYTES
    elif kind != record.PUBLISH:
        return None
    if not has_position(data, body, end, queue_id, seq):
        return None
    return decode_message(data, body, end)


def has_position(data: bytes, body: i64, end: i64, queue_id: i64, seq: i64) -> bool:
    """Whether the publish whose positions begin at `body` is that of `seq` in the queue."""
    if end - body < 4:
        return False
    count = record.read_u32(data, body)
    at: i64 = body + 4
    if count * record.POSITION_BYTES > end - at:
        return False
    while count > 0:
        if record.read_u64(data, at + 4) == seq and record.read_u32(data, at) == queue_id:
            return True
        at += record.POSITION_BYTES
        count -= 1
    return False
