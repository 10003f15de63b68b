"""Framing of the records in every file of the store; the only module that knows the layout.

File header, 40 bytes:
    magic 8 · format version u32 · store id 16 · file number u64 · crc u32 (of the 36 before it)
Record header, 16 bytes:
    magic 0x5752 u16 · type u8 · version u8 · body length u32 · header crc u32 · body crc u32

All integers are big-endian. The CRC-32C of the header covers store id, file number and the first 8
header bytes; the CRC of the body continues from the header's CRC over the body. A flipped bit
anywhere in a record is therefore detected (W2). The store id is random and never leaves the disk,
so a record of another store or file is never accepted, and neither are bytes that a publisher made
to look like a record. Readers trust the length before they have read the body: they find the end of
a damaged body, and a body full of false headers does not make recovery read it once for each of
them. Bodies:

PUBLISH      position count u32 · per position: queue id u32, seq u64, expiry ms u64, flags u8
             (1 = redelivered, 2 = does not outlive a restart) ·
             timestamp ms u64 · flags u8 (1 = persistent) · exchange shortstr ·
             routing key shortstr · properties u32 + bytes · body u32 + bytes
ACK          queue id u32 · run count u32 · per run: first seq u64, last seq u64 (inclusive)
RETRACT      the body of an ACK: the publishes of these positions before it are void. It says
             nothing about what is in the queue's index
QUEUE_STATE  queue id u32 · next seq u64 · delivered-up-to seq u64 · run count u32 · per run: first
             seq u64, last seq u64 (inclusive; delivered too). Format 1 has no runs, nor their count
EPOCH        queue id u32 · epoch u64 · first seq u64
CLEAN_STOP   empty; the last record of a journal that was closed in order
PREDECESSOR  number u64 of the journal file before this one and u64 bytes of it that count;
             the first record of every journal file but the first
PUBLISH_HEAD a PUBLISH that ends with the length of the message's body, without its bytes;
             only in the admin protocol (`queues/readers/record_block.py`), never in a file
MOVE         queue id u32 · seq u64 (the place of the original) · the body of a PUBLISH. The record
             says that the message at this place was handed over: a reader of a MOVE must not
             publish it again
MOVE_REF     queue id u32 · seq u64 · the body of a PUBLISH_REF; says the same as a MOVE
PUBLISH_REF, CONTENT, RELEASE   see `content.py`
PLACES       see `log_places.py`

A record names the queues and sequences it belongs to, so any file can be read without the others.
"""

from typing import Final

from crc32c import crc32c
from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from warrenmq.store.model.message import (
    WRITTEN,
    JournalFile,
    Message,
    MovedMessage,
    Position,
    QueueLedger,
)
from warrenmq.store.model.runs import Runs

FILE_MAGIC: Final = b"WARRENWL"
CONTENT_MAGIC: Final = b"WARRENRD"
INDEX_MAGIC: Final = b"WARRENIX"
CHECKPOINT_MAGIC: Final = b"WARRENCP"
# The version of new files. Readers know all versions from 1 on: format 2 has added EPOCH, and more
# fields to QUEUE_STATE and CHECKPOINT_QUEUE; format 3 has added PLACES and what CHECKPOINT_QUEUE
# says about it, and RETRACT.
FORMAT_VERSION: Final = 3
FILE_HEADER_BYTES: Final = 40
STORE_ID_BYTES: Final = 16

RECORD_MAGIC: Final = 0x5752
RECORD_HEADER_BYTES: Final = 16
RECORD_VERSION: Final = 1
PUBLISH: Final = 1
ACK: Final = 2
QUEUE_STATE: Final = 3
CLEAN_STOP: Final = 4
PUBLISH_REF: Final = 5
CONTENT: Final = 6
RELEASE: Final = 7
PREDECESSOR: Final = 12
PUBLISH_HEAD: Final = 16
MOVE: Final = 13
MOVE_REF: Final = 14
EPOCH: Final = 15
RETRACT: Final = 18

POSITION_BYTES: Final = 21
# The largest i64.
_SEQ_MAX: Final = (1 << 63) - 1
# Bytes that MOVE and MOVE_REF have in front of the body of a PUBLISH or PUBLISH_REF.
MOVE_HEAD_BYTES: Final = 12
RUN_BYTES: Final = 16
# Body length of a QUEUE_STATE of format 1; in format 2, runs follow.
QUEUE_STATE_BYTES: Final = 20
EPOCH_BYTES: Final = 20
# Body length of a PUBLISH with one position, less the message's address, properties and body.
ONE_POSITION_BYTES: Final = 42
FLAG_PERSISTENT: Final = 1
FLAG_REDELIVERED: Final = 1
FLAG_TRANSIENT: Final = 2

# Small records are joined up to this size (bytes) before they become one part of the writev list: a
# buffer of this size stays in the processor's cache.
_JOINED_BYTES: Final = 65536
# Record lengths whose CRC constants are remembered for one file, at most.
_ALIKES_MAX: Final = 1024
# Bodies of this size (bytes) or more go to the writev list as they are; smaller ones are cheaper to
# copy than to carry as parts of their own.
_BODY_BY_REFERENCE_BYTES: Final = 4096


class _Alike:
    """CRC constants of records of one kind and length in the file that is being written.

    For PUBLISH records of one position, `source` and `difference` relate them to the records in one
    file of the journal.
    """

    def __init__(self, kind: i64, length: i64, header_crc: int) -> None:
        self.kind: i64 = kind
        self.length: i64 = length
        self.header_crc: int = header_crc
        self.signed_header_crc: i32 = i32(_signed(header_crc))
        # Number of the journal file that `difference` is for; -1: not known.
        self.source: i64 = -1
        # Bits in which the CRC of a record in file `source` and the CRC of the same record here
        # differ. They are the same for every content: two CRCs of the same bytes that started from
        # different values differ by bits that depend only on those values and the length.
        self.difference: i32 = 0


class RecordWriter:
    """Encodes records into a list of byte strings, ready for one writev."""

    def __init__(self, store_id: bytes) -> None:
        self.parts: list[bytes] = []
        self.store_id: bytes = store_id
        self._file_number: i64 = -1
        self._seed: int = 0
        # CRC constants for the file that is being written, by kind and length.
        self._alikes: dict[int, _Alike] = {}
        # Entry of `_alikes` that the last record used.
        self._alike: _Alike = _Alike(0, -1, 0)
        self.size_bytes: i64 = 0
        # CRC of the last record's body, signed.
        self._crc: i32 = 0
        self._buffer: BytesWriter = BytesWriter()
        self._scratch: BytesWriter = BytesWriter()

    def start_file(self, magic: bytes, file_number: i64) -> None:
        """Write the header of a file of the kind `magic`; later records belong to this file."""
        self.continue_file(file_number)
        header = self._scratch
        header.write(magic)
        write_i32_be(header, i32(FORMAT_VERSION))
        header.write(self.store_id)
        write_i64_be(header, file_number)
        raw = self._take_scratch()
        self._buffer.write(raw)
        write_i32_be(self._buffer, i32(_signed(crc32c(raw))))
        self.size_bytes += FILE_HEADER_BYTES

    def continue_file(self, file_number: i64) -> None:
        """Append later records to a file that has its header already."""
        if file_number != self._file_number:
            self._file_number = file_number
            self._seed = crc_seed(self.store_id, file_number)
            self._alikes = {}
            self._alike = _Alike(0, -1, 0)

    def add_publish(
        self,
        message: Message,
        positions: list[Position],
        first: i64,
        last: i64,
        moved: MovedMessage | None = None,
    ) -> i64:
        """Write a PUBLISH of `message` for its `positions[first:last]`; returns the record's size.

        The size is in bytes. The caller must have left out positions that are not PENDING any more.
        With `moved`, which is the same message, the record is a MOVE.
        """
        scratch = self._scratch
        kind = start_publish(scratch, moved, PUBLISH, MOVE)
        write_publish_head(scratch, message, positions, first, last)
        body = message.body
        if len(body) < _BODY_BY_REFERENCE_BYTES:
            # Copying a small body costs less than a CRC of its own.
            scratch.write(body)
            body = b""
        index = first
        while index < last:
            positions[index].journal_state = WRITTEN
            positions[index].is_summed = False
            index += 1
        size = self.raw_record(kind, self._take_scratch(), body)
        if kind == PUBLISH and last - first == 1:
            position = positions[first]
            position.crc = self._crc
            # Queue id, seq id and expiry do not change, so the CRC stays valid while the flags are
            # those of a persistent position that was not redelivered.
            position.is_summed = position.persistent and not position.redelivered
        return size

    def add_publish_copy(
        self, message: Message, position: Position, source: JournalFile | None
    ) -> None:
        """Write `message` for `position` as `add_publish` would, but cheaper when `source` helps.

        When `add_publish` has written the same record to the journal file `source`, the CRC is
        derived from the CRC there.
        """
        length: i64 = ONE_POSITION_BYTES + position.content_bytes
        if (
            source is None
            or not position.is_summed
            or position.redelivered
            or not position.persistent
            or len(message.body) >= _BODY_BY_REFERENCE_BYTES
        ):
            self.add_publish(message, [position], 0, 1)
            return
        alike = self._alike_of(PUBLISH, length)
        crc = position.crc
        if source.number != alike.source:
            self.add_publish(message, [position], 0, 1)
            position.is_summed = False
            alike.source = source.number
            alike.difference = crc ^ self._crc
            return
        buffer = self._buffer
        _write_header(buffer, PUBLISH, length, alike.signed_header_crc, crc ^ alike.difference)
        write_i32_be(buffer, 1)
        _write_position(buffer, position)
        _write_message_head(buffer, message)
        buffer.write(message.body)
        position.journal_state = WRITTEN
        self._on_record(length)

    def raw_record(self, kind: i64, head: bytes, body: bytes) -> i64:
        """Write a record with the body `head + body`; returns the record's size in bytes.

        A large `body` is not copied.
        """
        length: i64 = len(head) + len(body)
        alike = self._alike_of(kind, length)
        crc: int = crc32c(head, alike.header_crc)
        if len(body) > 0:
            crc = crc32c(body, crc)
        self._crc = i32(_signed(crc))
        buffer = self._buffer
        _write_header(buffer, kind, length, alike.signed_header_crc, self._crc)
        buffer.write(head)
        if len(body) >= _BODY_BY_REFERENCE_BYTES:
            self._flush_buffer()
            self.parts.append(body)
        else:
            buffer.write(body)
        self._on_record(length)
        return RECORD_HEADER_BYTES + length

    def ack(self, queue_id: i64, runs: Runs) -> None:
        """Write an ACK: the seq ids in `runs` (inclusive) of one queue are settled."""
        self._runs_record(ACK, queue_id, runs)

    def retract(self, queue_id: i64, runs: Runs) -> None:
        """Write that the publishes of `runs` (inclusive) of one queue so far are void (RETRACT)."""
        self._runs_record(RETRACT, queue_id, runs)

    def queue_state(self, ledger: QueueLedger) -> None:
        """Write the numbering of a queue and what it has handed out (QUEUE_STATE)."""
        body = self._scratch
        upto, runs = ledger.delivered.without_spared(ledger.delivered_upto)
        write_i32_be(body, i32(ledger.queue_id))
        write_i64_be(body, ledger.next_seq)
        write_i64_be(body, upto)
        write_runs(body, runs)
        self._small_record(QUEUE_STATE)

    def epoch(self, queue_id: i64, epoch: i64, first_seq: i64) -> None:
        """Write that a queue has begun `epoch`, whose first message has seq id `first_seq`."""
        body = self._scratch
        write_i32_be(body, i32(queue_id))
        write_i64_be(body, epoch)
        write_i64_be(body, first_seq)
        self._small_record(EPOCH)

    def clean_stop(self) -> None:
        """Write the mark of an orderly stop (CLEAN_STOP)."""
        self._small_record(CLEAN_STOP)

    def predecessor(self, file_number: i64, size_bytes: i64) -> None:
        """Write the number of the journal file before this one, and how many bytes of it count."""
        body = self._scratch
        write_i64_be(body, file_number)
        write_i64_be(body, size_bytes)
        self._small_record(PREDECESSOR)

    def take(self) -> list[bytes]:
        """Return the encoded parts, ready for writev, and start over with an empty list."""
        self._flush_buffer()
        parts = self.parts
        self.parts = []
        self.size_bytes = 0
        return parts

    def _runs_record(self, kind: i64, queue_id: i64, runs: Runs) -> None:
        body = self._scratch
        write_i32_be(body, i32(queue_id))
        write_runs(body, runs)
        self._small_record(kind)

    def _small_record(self, kind: i64) -> None:
        self.raw_record(kind, self._take_scratch(), b"")

    def _alike_of(self, kind: i64, length: i64) -> _Alike:
        alike = self._alike
        if alike.length != length or alike.kind != kind:
            key: int = length << 8 | kind
            found = self._alikes.get(key)
            if found is None:
                _write_header_start(self._scratch, kind, length)
                if len(self._alikes) >= _ALIKES_MAX:
                    self._alikes = {}
                found = _Alike(kind, length, crc32c(self._take_scratch(), self._seed))
                self._alikes[key] = found
            alike = found
            self._alike = alike
        return alike

    def _on_record(self, length: i64) -> None:
        self.size_bytes += RECORD_HEADER_BYTES + length
        if len(self._buffer) >= _JOINED_BYTES:
            self._flush_buffer()

    def _take_scratch(self) -> bytes:
        raw = self._scratch.getvalue()
        self._scratch.truncate(0)
        return raw

    def _flush_buffer(self) -> None:
        if len(self._buffer) > 0:
            self.parts.append(self._buffer.getvalue())
            self._buffer.truncate(0)


def write_runs(out: BytesWriter, runs: Runs) -> None:
    """Append `runs` with their number in front."""
    write_i32_be(out, i32(len(runs)))
    for first, last in runs:
        write_i64_be(out, first)
        write_i64_be(out, last)


def start_publish(out: BytesWriter, moved: MovedMessage | None, kind: i64, moved_kind: i64) -> i64:
    """Append the place of the original of `moved` and return `moved_kind`; if None, `kind`."""
    if moved is None:
        return kind
    write_i32_be(out, i32(moved.origin_id))
    write_i64_be(out, moved.origin_seq)
    return moved_kind


def write_publish_head(
    out: BytesWriter, message: Message, positions: list[Position], first: i64, last: i64
) -> None:
    """Append the body of a PUBLISH record up to and including the length of the message's body."""
    write_i32_be(out, i32(last - first))
    index = first
    while index < last:
        _write_position(out, positions[index])
        index += 1
    _write_message_head(out, message)


def _write_position(out: BytesWriter, position: Position) -> None:
    write_i32_be(out, i32(position.ledger.queue_id))
    write_i64_be(out, position.seq)
    write_i64_be(out, position.expiry_ms)
    flags: i64 = FLAG_REDELIVERED if position.redelivered else 0
    out.append(flags if position.persistent else flags | FLAG_TRANSIENT)


def _write_message_head(out: BytesWriter, message: Message) -> None:
    properties = message.properties
    write_i64_be(out, message.timestamp_ms)
    out.append(FLAG_PERSISTENT if message.persistent else 0)
    out.write(message.address)
    write_i32_be(out, i32(len(properties)))
    out.write(properties)
    write_i32_be(out, i32(len(message.body)))


def _write_header_start(out: BytesWriter, kind: i64, length: i64) -> None:
    write_i16_be(out, i16(RECORD_MAGIC))
    out.append(kind)
    out.append(RECORD_VERSION)
    write_i32_be(out, i32(length))


def _write_header(out: BytesWriter, kind: i64, length: i64, header_crc: i32, crc: i32) -> None:
    _write_header_start(out, kind, length)
    write_i32_be(out, header_crc)
    write_i32_be(out, crc)


def _signed(crc: int) -> int:
    # `write_i32_be` takes signed 32-bit integers.
    return crc - 0x100000000 if crc >= 0x80000000 else crc


def file_header_is_valid(data: bytes, magic: bytes, store_id: bytes) -> bool:
    """True when `data` begins with the header of a file of kind `magic` of this store.

    An empty `store_id` accepts the file of any store. A version that this warren does not know is
    not valid.
    """
    if len(data) < FILE_HEADER_BYTES or data[:8] != magic:
        return False
    if not 1 <= file_format_version(data) <= FORMAT_VERSION:
        return False
    if (i64(read_i32_be(data, 36)) & 0xFFFFFFFF) != crc32c(data[:36]):
        return False
    if file_header_number(data) < 0:
        return False
    return not store_id or data[12:28] == store_id


def file_header_is_whole(data: bytes) -> bool:
    """True when `data` begins with an intact file header of any kind, version and store."""
    if len(data) < FILE_HEADER_BYTES:
        return False
    return (i64(read_i32_be(data, 36)) & 0xFFFFFFFF) == crc32c(data[:36])


def file_format_version(data: bytes) -> i64:
    """The format version in a whole file header."""
    return i64(read_i32_be(data, 8))


def file_header_number(data: bytes) -> i64:
    """The file number in a valid file header."""
    return read_i64_be(data, 28)


def crc_seed(store_id: bytes, file_number: i64) -> int:
    """The value from which the header CRC of every record of one file starts."""
    number: int = file_number
    return crc32c(number.to_bytes(8, "big"), crc32c(store_id))


def record_length(data: bytes, start: i64, seed: int) -> i64:
    """Size in bytes (header and body) of the record whose valid header is at `start`, or -1: none.

    The record may reach past the end of `data`, and its body may be damaged (see `body_is_valid`).
    """
    if len(data) - start < RECORD_HEADER_BYTES or read_i16_be(data, start) != RECORD_MAGIC:
        return -1
    if data[start + 3] != RECORD_VERSION:
        return -1
    if read_u32(data, start + 8) != _header_crc(data, start, seed):
        return -1
    return RECORD_HEADER_BYTES + read_u32(data, start + 4)


def _crc_table() -> bytes:
    """The CRC-32C of each byte alone, 4 bytes each, for a CRC of a byte at a time."""
    table = BytesWriter()
    for byte in range(256):
        crc: i64 = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        write_i32_be(table, i32(_signed(crc)))
    return table.getvalue()


CRC_TABLE: Final = _crc_table()


def _header_crc(data: bytes, start: i64, seed: i64) -> i64:
    """The CRC of a record header's first 8 bytes, at `start`.

    Equal to `crc32c` of a copy of these bytes, whose call takes five times as long in compiled
    code. Loads and starts need it once a record.
    """
    crc = seed ^ 0xFFFFFFFF
    at = start
    while at < start + 8:
        crc = read_u32(CRC_TABLE, ((crc ^ i64(data[at])) & 0xFF) << 2) ^ crc >> 8
        at += 1
    return crc ^ 0xFFFFFFFF


def body_is_valid(data: bytes, start: i64, length: i64) -> bool:
    """True when the body of the record at `start` is whole and has its CRC.

    `length` is the result of `record_length`: header and body.
    """
    if length > len(data) - start:
        return False
    body = data[start + RECORD_HEADER_BYTES : start + length]
    header_crc: int = read_u32(data, start + 8)
    return read_u32(data, start + 12) == crc32c(body, header_crc)


def next_header(data: bytes, start: i64, seed: int) -> i64:
    """Offset of the next valid record header at or behind `start`, or the end of `data`: none."""
    position: i64 = data.find(b"\x57\x52", start)
    while position >= 0:
        if record_length(data, position, seed) >= 0:
            return position
        position = data.find(b"\x57\x52", position + 1)
    return len(data)


def moved_header(header: bytes, header_crc: int, body_crc: int) -> bytes:
    """Copy of record header `header` for another file: its first 8 bytes with these two CRCs."""
    return header[:8] + header_crc.to_bytes(4, "big") + body_crc.to_bytes(4, "big")


def queue_state_runs(data: bytes, start: i64, end: i64) -> i64:
    """How many runs the body of a QUEUE_STATE, [start, end) of `data`, has; -1: it is malformed."""
    tail: i64 = end - start - QUEUE_STATE_BYTES
    if tail == 0:
        return 0
    if tail < 4 or tail != 4 + read_u32(data, start + QUEUE_STATE_BYTES) * RUN_BYTES:
        return -1
    if not are_runs(data, start + QUEUE_STATE_BYTES + 4, end):
        return -1
    return (tail - 4) // RUN_BYTES


def read_runs(data: bytes, start: i64, count: i64) -> Runs:
    """Read `count` runs; the caller has checked the length, count * RUN_BYTES."""
    runs: Runs = []
    end: i64 = start + count * RUN_BYTES
    while start < end:
        runs.append((read_i64_be(data, start), read_i64_be(data, start + 8)))
        start += RUN_BYTES
    return runs


def are_runs(data: bytes, start: i64, end: i64) -> bool:
    """Whether no run in [start, end) of `data` has a negative seq id.

    The length of such a run may not fit into 64 bits. A run that ends before it begins is empty.
    """
    while start < end:
        if read_i64_be(data, start) < 0 or read_i64_be(data, start + 8) < 0:
            return False
        start += RUN_BYTES
    return True


def count_runs(data: bytes, start: i64, end: i64) -> i64:
    """Count the seq ids of the runs in [start, end) of `data`; -1: no such runs can be."""
    count: i64 = 0
    while start < end:
        first = read_i64_be(data, start)
        last = read_i64_be(data, start + 8)
        if first < 0 or last < first or last - first >= _SEQ_MAX - count:
            return -1
        count += last - first + 1
        start += RUN_BYTES
    return count


def read_u32(data: bytes, start: i64) -> i64:
    """Read the unsigned 32-bit integer at `start`; the caller has checked the length."""
    return i64(read_i32_be(data, start)) & 0xFFFFFFFF


def read_u64(data: bytes, start: i64) -> i64:
    """Read the 64-bit integer at `start`; the caller has checked the length."""
    return read_i64_be(data, start)
