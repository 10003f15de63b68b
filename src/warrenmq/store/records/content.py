"""Records about large messages, whose content is in a content store (`.rdq`), not in the journal.

Bodies, behind the record header of `record.py`; all integers are big-endian:

PUBLISH_REF  content id u64 · .rdq file u32 · offset u32 · size of the CONTENT record u32 ·
             size of the message's body u32 · references u16 ·
             flags u8 (1 = persistent, 2 = in the transient store) · timestamp ms u64 ·
             position count u32 · positions as in PUBLISH
MOVE_REF     a message that was handed over, see `record.py`: queue id and seq of its original,
             then the body of a PUBLISH_REF
CONTENT      content id u64 · references u16 · the body of a PUBLISH record with as many
             positions as references
RELEASE      serial u64 · count u32 · per content: id u64, references u16, size of its record
             u32 · the body of an ACK record: the positions that released these references

A PUBLISH_REF stands in the journal and in the index. File and offset are where the content was when
the record was written; compaction moves the content, the id stays. A CONTENT names the positions
that shared it from the start, so messages can be read and saved from a `.rdq` file without any
other file. A RELEASE releases one reference to each content it lists; its serial keeps it from
being counted twice. The same record is the ack of the positions, so that no crash leaves one
without the other.
"""

from typing import Final

from librt.strings import BytesWriter, read_i16_be, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i16, i32, i64

from warrenmq.store.model.message import WRITTEN, ContentRef, Message, MovedMessage, Position
from warrenmq.store.model.runs import Runs
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import (
    CONTENT,
    FLAG_PERSISTENT,
    FLAG_REDELIVERED,
    FLAG_TRANSIENT,
    MOVE_REF,
    POSITION_BYTES,
    PUBLISH_REF,
    RECORD_HEADER_BYTES,
    RELEASE,
    RUN_BYTES,
    RecordWriter,
    are_runs,
    read_u32,
    read_u64,
    start_publish,
    write_publish_head,
)

# Positions that may share a content. A message routed to more queues is stored more than once.
REFERENCES_MAX: Final = 65535
FLAG_IN_TRANSIENT_STORE: Final = 2

_PUBLISH_REF_HEAD_BYTES: Final = 39
_RELEASE_ENTRY_BYTES: Final = 14
_RELEASE_FIXED_BYTES: Final = 20
CONTENT_HEAD_BYTES: Final = 10
# Size in bytes of the smallest possible CONTENT record.
CONTENT_RECORD_MIN_BYTES: Final = (
    RECORD_HEADER_BYTES + CONTENT_HEAD_BYTES + 4 + POSITION_BYTES + 9 + 2 + 8
)


class PublishRef:
    """A decoded PUBLISH_REF; its positions begin at `positions_start`."""

    def __init__(
        self,
        content: ContentRef,
        body_bytes: i64,
        persistent: bool,
        timestamp_ms: i64,
        position_count: i64,
        positions_start: i64,
    ) -> None:
        self.content: ContentRef = content
        self.body_bytes: i64 = body_bytes
        self.persistent: bool = persistent
        self.timestamp_ms: i64 = timestamp_ms
        self.position_count: i64 = position_count
        self.positions_start: i64 = positions_start


class StoredContent:
    """A decoded CONTENT; the positions that shared it from the start begin at `positions_start`."""

    def __init__(
        self, content_id: i64, references: i64, message: Message, positions_start: i64
    ) -> None:
        self.id: i64 = content_id
        self.references: i64 = references
        self.message: Message = message
        self.positions_start: i64 = positions_start


class Release:
    """Settled positions of a queue, as `runs`, and the contents that lost one reference each.

    A decoded Release knows the id, the references and the size of each content, but not its place.
    """

    def __init__(self, serial: i64, queue_id: i64, runs: Runs, contents: list[ContentRef]) -> None:
        self.serial: i64 = serial
        self.queue_id: i64 = queue_id
        self.runs: Runs = runs
        self.contents: list[ContentRef] = contents


# -- writing ---------------------------------------------------------------------------------------


def write_content(
    writer: RecordWriter,
    content_id: i64,
    message: Message,
    positions: list[Position],
    first: i64,
    last: i64,
) -> i64:
    """Write a CONTENT of `message` for `positions[first:last]`; returns its size in bytes."""
    head = BytesWriter()
    write_i64_be(head, content_id)
    _write_u16(head, last - first)
    write_publish_head(head, message, positions, first, last)
    return writer.raw_record(CONTENT, head.getvalue(), message.body)


def write_publish_ref(
    writer: RecordWriter,
    content: ContentRef,
    message: Message,
    positions: list[Position],
    first: i64,
    last: i64,
    moved: MovedMessage | None = None,
) -> i64:
    """Write a PUBLISH_REF for `positions[first:last]`, which share `content`; returns its size.

    The size is in bytes. The positions are WRITTEN afterwards. The record takes only the timestamp
    from `message`, which may be ABSENT. With `moved`, which is the same message, the record is a
    MOVE_REF.
    """
    position = positions[first]
    flags: i64 = FLAG_PERSISTENT if position.persistent else 0
    if content.transient:
        flags |= FLAG_IN_TRANSIENT_STORE
    body = BytesWriter()
    kind = start_publish(body, moved, PUBLISH_REF, MOVE_REF)
    write_i64_be(body, content.id)
    _write_u32(body, content.file)
    _write_u32(body, content.offset)
    _write_u32(body, content.stored_bytes)
    _write_u32(body, position.body_bytes)
    _write_u16(body, content.references)
    body.append(flags)
    write_i64_be(body, message.timestamp_ms)
    _write_u32(body, last - first)
    index = first
    while index < last:
        position = positions[index]
        _write_u32(body, position.ledger.queue_id)
        write_i64_be(body, position.seq)
        write_i64_be(body, position.expiry_ms)
        position_flags: i64 = FLAG_REDELIVERED if position.redelivered else 0
        body.append(position_flags if position.persistent else position_flags | FLAG_TRANSIENT)
        position.journal_state = WRITTEN
        index += 1
    return writer.raw_record(kind, body.getvalue(), b"")


def write_release(writer: RecordWriter, release: Release) -> i64:
    """Write a RELEASE: positions are settled and contents released; returns its size in bytes.

    The record releases one reference to each content in `release.contents`.
    """
    body = BytesWriter()
    write_i64_be(body, release.serial)
    _write_u32(body, len(release.contents))
    for content in release.contents:
        write_i64_be(body, content.id)
        _write_u16(body, content.references)
        _write_u32(body, content.stored_bytes)
    _write_u32(body, release.queue_id)
    _write_u32(body, len(release.runs))
    for first, last in release.runs:
        write_i64_be(body, first)
        write_i64_be(body, last)
    return writer.raw_record(RELEASE, body.getvalue(), b"")


def _write_u16(out: BytesWriter, value: i64) -> None:
    # `write_i16_be` takes signed integers.
    if value >= 0x8000:
        value -= 0x10000
    write_i16_be(out, i16(value))


def _write_u32(out: BytesWriter, value: i64) -> None:
    if value >= 0x80000000:
        value -= 0x100000000
    write_i32_be(out, i32(value))


# -- reading ---------------------------------------------------------------------------------------
# `start` and `end` bound the body of a record in `data`; None: the body is not well-formed.


def decode_publish_ref(data: bytes, start: i64, end: i64) -> PublishRef | None:
    """Decode the body of a PUBLISH_REF record."""
    positions_start = start + _PUBLISH_REF_HEAD_BYTES
    if positions_start > end:
        return None
    references = _read_u16(data, start + 24)
    flags: i64 = i64(data[start + 26])
    count = read_u32(data, start + 35)
    if positions_start + count * POSITION_BYTES != end or references == 0:
        return None
    content = ContentRef(
        read_u64(data, start),
        read_u32(data, start + 8),
        read_u32(data, start + 12),
        read_u32(data, start + 16),
        references,
        (flags & FLAG_IN_TRANSIENT_STORE) != 0,
    )
    return PublishRef(
        content,
        read_u32(data, start + 20),
        (flags & FLAG_PERSISTENT) != 0,
        read_u64(data, start + 27),
        count,
        positions_start,
    )


def content_bytes_of(content: ContentRef) -> i64:
    """Bytes of a stored message: address, properties and body together."""
    fixed: i64 = RECORD_HEADER_BYTES + CONTENT_HEAD_BYTES + 4 + 9 + 8
    return content.stored_bytes - fixed - content.references * POSITION_BYTES


def content_id_of(data: bytes, start: i64, end: i64) -> i64:
    """The content id at the head of a CONTENT record's body, or -1: too short."""
    if start + CONTENT_HEAD_BYTES > end:
        return -1
    return read_u64(data, start)


def references_of(data: bytes, start: i64) -> i64:
    """The references at the head of a CONTENT record's body; `content_id_of` checks the length."""
    return _read_u16(data, start + 8)


def decode_content(data: bytes, start: i64, end: i64) -> StoredContent | None:
    """Decode the body of a CONTENT record."""
    positions_start = start + CONTENT_HEAD_BYTES + 4
    if positions_start > end:
        return None
    references = _read_u16(data, start + 8)
    message = decode_message(data, start + CONTENT_HEAD_BYTES, end)
    if message is None or references == 0 or read_u32(data, positions_start - 4) != references:
        return None
    return StoredContent(read_u64(data, start), references, message, positions_start)


def decode_release(data: bytes, start: i64, end: i64) -> Release | None:
    """Decode the body of a RELEASE record."""
    if end - start < _RELEASE_FIXED_BYTES:
        return None
    at = start + 12
    runs_start = at + read_u32(data, start + 8) * _RELEASE_ENTRY_BYTES + 8
    if runs_start > end or runs_start + read_u32(data, runs_start - 4) * RUN_BYTES != end:
        return None
    if not are_runs(data, runs_start, end):
        return None
    contents: list[ContentRef] = []
    while at < runs_start - 8:
        references = _read_u16(data, at + 8)
        contents.append(
            ContentRef(read_u64(data, at), -1, -1, read_u32(data, at + 10), references, False)
        )
        at += _RELEASE_ENTRY_BYTES
    runs: Runs = []
    at = runs_start
    while at < end:
        runs.append((read_u64(data, at), read_u64(data, at + 8)))
        at += RUN_BYTES
    return Release(read_u64(data, start), read_u32(data, runs_start - 8), runs, contents)


def _read_u16(data: bytes, start: i64) -> i64:
    return i64(read_i16_be(data, start)) & 0xFFFF
