"""The operations on messages that a master tells its mirrors, encoded without objects.

A payload is the epoch of the master (i64) and a sequence of records, handled in order. The first
byte of a record is its kind. Integers are big-endian: u8, u32, i64; a `message` is that of
`queues/remote/link_records.py`. A `level` (u8) is a priority: the ledgers of the levels have other
numbers on each node. `runs` are a count (u32) and as many pairs (first i64, last i64) of inclusive
seq ids, which ascend and neither touch nor overlap.

    EPOCH         epoch i64, count u32, (level u8, next seq i64) * count
                  the master begins its epoch; its next message in the level gets the next seq
    LEVEL         level u8                     a level begins
    PUBLISH       level u8, first seq i64, count u32, published * count
                  messages with consecutive seq ids, behind all others of the level
    DELIVERED     level u8, runs               delivered or reserved, and not settled yet
    SPARED        level u8, runs               the only delivery of each reached nobody
    SETTLED       level u8, reason u8, runs    gone (`queues/leave_reason.py`), published before or
                                               not
    RETURN_COUNT  count u32, (seq i64, returns u32) * count    of a quorum queue: it has one level
    READERS       count u32, (group name, epoch i64, pattern text, acked i64, reserved i64,
                  has lapsed u8) * count
                  the parts of all reader groups in the queue; any other part is gone
    RECEIVED      level u8, sink text, first seq i64, count u32, (position i64, published) * count
                  PUBLISH of messages of a sink, with their positions there
    RECEIPTS      count u32, (sink text, floor i64, runs of positions) * count
                  what the queue has got of all sinks (`queues/receipts.py`); any other book is gone

A `published` is flags u8, time of the publish i64 (ms since 1970), with the flag EXPIRES the time
of expiry i64 (ms since 1970), and a message.

A message that becomes a dead letter needs no record before it is settled, nor does one that
returns to its place: a copy has both among its messages all the time.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.receipts import POSITIONS_MAX, SinkReceipts
from warrenmq.queues.remote.link_records import (
    MalformedRecordError,
    RecordReader,
    write_message,
    write_name,
    write_text,
)
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs

EPOCH: Final = 1
LEVEL: Final = 2
PUBLISH: Final = 3
DELIVERED: Final = 4
SPARED: Final = 5
SETTLED: Final = 6
RETURN_COUNT: Final = 7
READERS: Final = 8
RECEIVED: Final = 9
RECEIPTS: Final = 10

# Flags of a published message.
PERSISTENT: Final = 1
# A consumer may have had the message before.
REDELIVERED: Final = 2
EXPIRES: Final = 4

# Positions in a sink are below this.
POSITION_END: Final = 1 << 60
# Seq ids are below this: the number of a queue's segment file has 32 bits.
SEQ_END: Final = 1 << 46
# Bytes in front of the records of a payload.
HEAD_BYTES: Final = 8


def write_epoch(out: BytesWriter, epoch: i64, starts: list[tuple[i64, i64]]) -> None:
    """Append EPOCH; `starts`: (level, next seq) of each level."""
    out.append(EPOCH)
    write_i64_be(out, epoch)
    count: i64 = len(starts)
    write_i32_be(out, i32(count))
    for level, seq in starts:
        out.append(level)
        write_i64_be(out, seq)


def write_level(out: BytesWriter, level: i64) -> None:
    """Append LEVEL."""
    out.append(LEVEL)
    out.append(level)


def write_publish(out: BytesWriter, level: i64, first_seq: i64, count: i64) -> None:
    """Append PUBLISH up to its messages; `write_published` appends each of them."""
    out.append(PUBLISH)
    out.append(level)
    write_i64_be(out, first_seq)
    write_i32_be(out, i32(count))


def write_received(out: BytesWriter, level: i64, sink: bytes, first_seq: i64, count: i64) -> None:
    """Append RECEIVED up to its messages: of each the position, then `write_published`."""
    out.append(RECEIVED)
    out.append(level)
    write_text(out, sink)
    write_i64_be(out, first_seq)
    write_i32_be(out, i32(count))


def write_published(
    out: BytesWriter, message: Message, persistent: bool, redelivered: bool, expiry_ms: i64
) -> None:
    """Append one message of PUBLISH; `expiry_ms` 0: it never expires."""
    flags: i64 = 0
    if persistent:
        flags |= PERSISTENT
    if redelivered:
        flags |= REDELIVERED
    if expiry_ms != 0:
        flags |= EXPIRES
    out.append(flags)
    write_i64_be(out, message.timestamp_ms)
    if expiry_ms != 0:
        write_i64_be(out, expiry_ms)
    write_message(out, message)


def write_handled(out: BytesWriter, kind: i64, level: i64, runs: Runs) -> None:
    """Append DELIVERED or SPARED."""
    out.append(kind)
    out.append(level)
    write_runs(out, runs)


def write_settled(out: BytesWriter, level: i64, reason: i64, runs: Runs) -> None:
    """Append SETTLED."""
    out.append(SETTLED)
    out.append(level)
    out.append(reason)
    write_runs(out, runs)


def write_return_counts(out: BytesWriter, counts: list[tuple[i64, i64]]) -> None:
    """Append RETURN_COUNT; `counts`: (seq, how often the message was returned)."""
    out.append(RETURN_COUNT)
    size: i64 = len(counts)
    write_i32_be(out, i32(size))
    for seq, count in counts:
        write_i64_be(out, seq)
        write_i32_be(out, i32(count))


def write_readers(out: BytesWriter, parts: list[ReaderPart]) -> None:
    """Append READERS."""
    out.append(READERS)
    count: i64 = len(parts)
    write_i32_be(out, i32(count))
    for part in parts:
        write_name(out, part.group)
        write_i64_be(out, part.epoch)
        write_text(out, part.pattern.encode())
        write_i64_be(out, part.acked)
        write_i64_be(out, part.reserved)
        out.append(1 if part.has_lapsed else 0)


def write_receipts(out: BytesWriter, books: list[SinkReceipts]) -> None:
    """Append RECEIPTS."""
    out.append(RECEIPTS)
    count: i64 = len(books)
    write_i32_be(out, i32(count))
    for book in books:
        write_text(out, book.sink)
        write_i64_be(out, book.floor)
        write_runs(out, book.runs)


def write_runs(out: BytesWriter, runs: Runs) -> None:
    """Append runs with their count."""
    count: i64 = len(runs)
    write_i32_be(out, i32(count))
    for first, last in runs:
        write_i64_be(out, first)
        write_i64_be(out, last)


def read_seq(reader: RecordReader) -> i64:
    """The next seq id."""
    seq = reader.integer()
    if seq < 1 or seq >= SEQ_END:
        raise MalformedRecordError("a seq id is out of range")
    return seq


def read_position(reader: RecordReader) -> i64:
    """The next position in a sink."""
    position = reader.integer()
    if position < 0 or position >= POSITION_END:
        raise MalformedRecordError("a position in a sink is out of range")
    return position


def read_runs(reader: RecordReader, is_of_positions: bool = False) -> Runs:
    """The next runs, of seq ids or of positions in a sink."""
    left = reader.number()
    runs: Runs = []
    # A run that began where another one ended would be part of that one.
    lowest: i64 = 0
    while left > 0:
        first = read_position(reader) if is_of_positions else read_seq(reader)
        last = read_position(reader) if is_of_positions else read_seq(reader)
        if first < lowest or last < first:
            raise MalformedRecordError("runs do not ascend")
        runs.append((first, last))
        lowest = last + 2
        left -= 1
    return runs


def read_readers(reader: RecordReader) -> list[ReaderPart]:
    """The parts of READERS, whose kind has been read."""
    left = reader.number()
    parts: list[ReaderPart] = []
    while left > 0:
        group = reader.name()
        epoch = reader.integer()
        try:
            pattern = reader.text().decode()
        except UnicodeDecodeError:
            raise MalformedRecordError("the pattern of a reader group is no text") from None
        acked = reader.integer()
        reserved = reader.integer()
        has_lapsed = reader.octet()
        if has_lapsed > 1 or epoch < 0 or acked < 0 or reserved < acked or reserved >= SEQ_END:
            raise MalformedRecordError("the part of a reader group is out of range")
        parts.append(ReaderPart(group, epoch, pattern, acked, reserved, has_lapsed == 1))
        left -= 1
    return parts


def read_receipts(reader: RecordReader) -> list[SinkReceipts]:
    """The books of RECEIPTS, whose kind has been read."""
    left = reader.number()
    books: list[SinkReceipts] = []
    while left > 0:
        sink = reader.text()
        floor = read_position(reader)
        runs = read_runs(reader, True)
        if len(runs) > 0 and (runs[0][0] < floor or runs[-1][1] >= floor + POSITIONS_MAX):
            raise MalformedRecordError("a receipt is too far from its floor")
        books.append(SinkReceipts(sink, floor, runs))
        left -= 1
    return books


class PublishedReader:
    """Reads the messages of PUBLISH; its attributes belong to the message that it read last."""

    def __init__(self) -> None:
        self.redelivered: bool = False
        # Milliseconds since 1970; 0: never.
        self.expiry_ms: i64 = 0

    def read(self, reader: RecordReader) -> Message:
        """The next message."""
        flags = reader.octet()
        if flags > (PERSISTENT | REDELIVERED | EXPIRES):
            raise MalformedRecordError("a message has unknown flags")
        timestamp_ms = reader.integer()
        self.redelivered = (flags & REDELIVERED) != 0
        self.expiry_ms = 0
        if (flags & EXPIRES) != 0:
            self.expiry_ms = reader.integer()
            if self.expiry_ms <= 0:
                raise MalformedRecordError("a time of expiry is out of range")
        return reader.message((flags & PERSISTENT) != 0, timestamp_ms)
