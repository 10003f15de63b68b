"""The checkpoint: the state that a start needs besides the journal files that follow it.

A checkpoint is one file, written whole and put in place by a rename; its generation counts up. The
checkpoint before it stays as `checkpoint.previous`, and the journal keeps the files that one needs
as well. Its records have the form of every other file (`record.py`), in this order:

CHECKPOINT_HEAD     generation u64 · first journal file u64 · next content id u64 ·
                    release serial u64 · next content file u64 · journal file u64 ·
                    journal offset u64 · queue count u32 · content file count u32 ·
                    damage count u32, per damage: journal file u64, start u64, end u64 ·
                    published bytes u64 · written bytes u64. In formats 1 and 2 the record ends
                    before these two
CHECKPOINT_QUEUE    queue id u32 · next seq u64 · delivered-up-to u64 · indexed-up-to u64 ·
                    flags u8 (1 = deleted, its contents are being released) ·
                    run count u32, per run: first u64, last u64 ·
                    segment count u32, per segment: number u32, bytes u64, entries u32,
                    live persistent entries u32, flags u8 (1 = references, 2 = places), bytes u64 of
                    records in journal files that entries refer to ·
                    run count u32, per run of delivered seqs above delivered-up-to: first u64,
                    last u64 · epoch count u32, per epoch: epoch u64, first seq u64 ·
                    stretch count u32, per stretch: first seq u64, length u32, journal file u64.
                    In format 1 the record ends behind the segments, in format 2 behind the epochs;
                    both lack the last field of a segment
CHECKPOINT_CONTENT  see `store/contents/file.py`
CHECKPOINT_END      count of the records before it u32

A checkpoint is valid when every record is whole and CHECKPOINT_END has the right count. Nothing in
an invalid checkpoint is used.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from warrenmq.store.model.epochs import Epochs
from warrenmq.store.model.message import QueueLedger
from warrenmq.store.model.queue_index import QueueIndex, Segment
from warrenmq.store.model.runs import Runs
from warrenmq.store.model.stretches import Stretches
from warrenmq.store.records import record

CHECKPOINT_HEAD: Final = 8
CHECKPOINT_QUEUE: Final = 9
CHECKPOINT_CONTENT: Final = 10
CHECKPOINT_END: Final = 11

CHECKPOINT_NAME: Final = "checkpoint"
PREVIOUS_NAME: Final = "checkpoint.previous"

_HEAD_BYTES: Final = 68
_DAMAGE_BYTES: Final = 24
_WRITES_BYTES: Final = 16
_QUEUE_FIXED_BYTES: Final = 33
_SEGMENT_BYTES: Final = 29
# Bytes of a segment in formats 1 and 2.
_OLD_SEGMENT_BYTES: Final = 21
_STRETCH_BYTES: Final = 20
_NO_STRETCHES: Final = b"\0\0\0\0"
_FLAG_DELETED: Final = 1
_FLAG_REFERENCES: Final = 1
_FLAG_PLACES: Final = 2


class CheckpointHead:
    """The part of a checkpoint about the vhost as a whole: CHECKPOINT_HEAD."""

    def __init__(
        self,
        generation: i64,
        first_journal_file: i64,
        next_content_id: i64,
        release_serial: i64,
        next_content_file: i64,
        journal_file: i64,
        journal_offset: i64,
    ) -> None:
        self.generation: i64 = generation
        self.first_journal_file: i64 = first_journal_file
        self.next_content_id: i64 = next_content_id
        self.release_serial: i64 = release_serial
        self.next_content_file: i64 = next_content_file
        # The checkpoint counts the journal up to `journal_offset` (bytes) in this file.
        self.journal_file: i64 = journal_file
        self.journal_offset: i64 = journal_offset
        # Stretches of journal files, (file, start, end) in bytes, that the last start could not
        # read: the checkpoint does not count the records in them.
        self.damage: list[tuple[int, int, int]] = []
        # Bytes published and written since the store was made (`store/upkeep/write_figures.py`).
        self.published_bytes: i64 = 0
        self.written_bytes: i64 = 0


class CheckpointQueue:
    """The part of a checkpoint about one queue: CHECKPOINT_QUEUE."""

    def __init__(
        self, queue_id: i64, next_seq: i64, delivered_upto: i64, indexed_upto: i64, is_deleted: bool
    ) -> None:
        self.queue_id: i64 = queue_id
        self.next_seq: i64 = next_seq
        self.delivered_upto: i64 = delivered_upto
        self.indexed_upto: i64 = indexed_upto
        self.is_deleted: bool = is_deleted
        self.settled: Runs = []
        self.segments: list[Segment] = []
        # Seq ids above `delivered_upto` that were handed out.
        self.delivered: Runs = []
        self.epochs: Epochs = []
        # (first seq id, last seq id, journal file) of each stretch of the index.
        self.stretches: list[tuple[int, int, int]] = []


class Checkpoint:
    """A decoded checkpoint. `content_rows` are bodies of CHECKPOINT_CONTENT records."""

    def __init__(self, head: CheckpointHead) -> None:
        self.head: CheckpointHead = head
        self.queues: list[CheckpointQueue] = []
        self.content_rows: list[bytes] = []


def encode_queue(ledger: QueueLedger, is_deleted: bool) -> bytes:
    """The body of a CHECKPOINT_QUEUE record."""
    index = ledger.index
    row = BytesWriter()
    delivered_upto, delivered = ledger.delivered.without_spared(ledger.delivered_upto)
    write_i32_be(row, i32(ledger.queue_id))
    write_i64_be(row, ledger.next_seq)
    write_i64_be(row, delivered_upto)
    write_i64_be(row, ledger.indexed_upto)
    row.append(_FLAG_DELETED if is_deleted else 0)
    _write_index(row, index)
    record.write_runs(row, delivered)
    # A row of the table of epochs has the form of a run.
    record.write_runs(row, ledger.epochs)
    if index is None:
        row.write(_NO_STRETCHES)
    else:
        _write_stretches(row, index.stretches)
    return row.getvalue()


def _write_index(row: BytesWriter, index: QueueIndex | None) -> None:
    if index is None:
        write_i32_be(row, 0)
        write_i32_be(row, 0)
        return
    record.write_runs(row, index.settled)
    write_i32_be(row, i32(len(index.segments)))
    for segment in index.segments:
        write_i32_be(row, i32(segment.number))
        write_i64_be(row, segment.size_bytes)
        write_i32_be(row, i32(segment.entries))
        write_i32_be(row, i32(segment.live_persistent))
        flags: i64 = _FLAG_REFERENCES if segment.has_references else 0
        row.append(flags | _FLAG_PLACES if segment.has_places else flags)
        write_i64_be(row, segment.referred_bytes)


def _write_stretches(row: BytesWriter, stretches: Stretches) -> None:
    write_i32_be(row, i32(len(stretches.all)))
    for stretch in stretches.all:
        write_i64_be(row, stretch.first)
        write_i32_be(row, i32(stretch.last - stretch.first + 1))
        write_i64_be(row, stretch.log.number)


class CheckpointEncoder:
    """Encodes a checkpoint file a slice at a time, since with many queues it takes a while."""

    def __init__(
        self,
        store_id: bytes,
        head: CheckpointHead,
        queue_rows: list[bytes],
        content_rows: list[bytes],
    ) -> None:
        self._queue_rows: list[bytes] = queue_rows
        self._content_rows: list[bytes] = content_rows
        self._place: i64 = 0
        self._writer: record.RecordWriter = record.RecordWriter(store_id)
        self._writer.start_file(record.CHECKPOINT_MAGIC, head.generation)
        self._writer.raw_record(
            CHECKPOINT_HEAD, _encode_head(head, len(queue_rows), len(content_rows)), b""
        )

    def step(self, rows: i64) -> bool:
        """Encode the next `rows` rows; False when none is left."""
        queues: i64 = len(self._queue_rows)
        end: i64 = queues + len(self._content_rows)
        stop: i64 = min(self._place + rows, end)
        place = self._place
        while place < stop:
            if place < queues:
                self._writer.raw_record(CHECKPOINT_QUEUE, self._queue_rows[place], b"")
            else:
                self._writer.raw_record(CHECKPOINT_CONTENT, self._content_rows[place - queues], b"")
            place += 1
        self._place = place
        return place < end

    def parts(self) -> list[bytes]:
        """The bytes of the whole file, in order; call it once, when every row is encoded."""
        count: int = 1 + len(self._queue_rows) + len(self._content_rows)
        self._writer.raw_record(CHECKPOINT_END, count.to_bytes(4, "big"), b"")
        return self._writer.take()


def _encode_head(head: CheckpointHead, queue_count: i64, content_file_count: i64) -> bytes:
    row = BytesWriter()
    write_i64_be(row, head.generation)
    write_i64_be(row, head.first_journal_file)
    write_i64_be(row, head.next_content_id)
    write_i64_be(row, head.release_serial)
    write_i64_be(row, head.next_content_file)
    write_i64_be(row, head.journal_file)
    write_i64_be(row, head.journal_offset)
    write_i32_be(row, i32(queue_count))
    write_i32_be(row, i32(content_file_count))
    write_i32_be(row, i32(len(head.damage)))
    for file, start, end in head.damage:
        write_i64_be(row, file)
        write_i64_be(row, start)
        write_i64_be(row, end)
    write_i64_be(row, head.published_bytes)
    write_i64_be(row, head.written_bytes)
    return row.getvalue()


def decode_checkpoint(data: bytes, store_id: bytes) -> Checkpoint | None:
    """The checkpoint in `data`; None when it is not a whole checkpoint of this store."""
    if not record.file_header_is_valid(data, record.CHECKPOINT_MAGIC, store_id):
        return None
    seed = record.crc_seed(store_id, record.file_header_number(data))
    version = record.file_format_version(data)
    found: Checkpoint | None = None
    count: i64 = 0
    at: i64 = record.FILE_HEADER_BYTES
    while at < len(data):
        length = record.record_length(data, at, seed)
        if length < 0 or not record.body_is_valid(data, at, length):
            return None
        kind: i64 = i64(data[at + 2])
        body = data[at + record.RECORD_HEADER_BYTES : at + length]
        if kind == CHECKPOINT_HEAD and found is None:
            head = _decode_head(body, version)
            if head is None:
                return None
            found = Checkpoint(head)
        elif found is None:
            return None
        elif kind == CHECKPOINT_QUEUE:
            queue = _decode_queue(body, version)
            if queue is None:
                return None
            found.queues.append(queue)
        elif kind == CHECKPOINT_CONTENT:
            found.content_rows.append(body)
        elif kind == CHECKPOINT_END and len(body) == 4 and record.read_u32(body, 0) == count:
            return found
        else:
            return None
        count += 1
        at += length
    return None


def _decode_head(body: bytes, version: i64) -> CheckpointHead | None:
    if len(body) < _HEAD_BYTES:
        return None
    damage_count = record.read_u32(body, _HEAD_BYTES - 4)
    end: i64 = _HEAD_BYTES + damage_count * _DAMAGE_BYTES
    if len(body) != (end + _WRITES_BYTES if version > 2 else end):
        return None
    head = CheckpointHead(
        record.read_u64(body, 0),
        record.read_u64(body, 8),
        record.read_u64(body, 16),
        record.read_u64(body, 24),
        record.read_u64(body, 32),
        record.read_u64(body, 40),
        record.read_u64(body, 48),
    )
    at: i64 = _HEAD_BYTES
    for _ in range(damage_count):
        head.damage.append(
            (
                record.read_u64(body, at),
                record.read_u64(body, at + 8),
                record.read_u64(body, at + 16),
            )
        )
        at += _DAMAGE_BYTES
    if version > 2:
        head.published_bytes = record.read_u64(body, end)
        head.written_bytes = record.read_u64(body, end + 8)
    return head


def _decode_queue(body: bytes, version: i64) -> CheckpointQueue | None:
    if len(body) < _QUEUE_FIXED_BYTES:
        return None
    queue = CheckpointQueue(
        record.read_u32(body, 0),
        record.read_u64(body, 4),
        record.read_u64(body, 12),
        record.read_u64(body, 20),
        (body[28] & _FLAG_DELETED) != 0,
    )
    run_count = record.read_u32(body, 29)
    at: i64 = _QUEUE_FIXED_BYTES
    if len(body) < at + run_count * record.RUN_BYTES + 4:
        return None
    queue.settled = record.read_runs(body, at, run_count)
    at += run_count * record.RUN_BYTES
    segment_count = record.read_u32(body, at)
    at += 4
    segment_bytes: i64 = _SEGMENT_BYTES if version > 2 else _OLD_SEGMENT_BYTES
    end: i64 = at + segment_count * segment_bytes
    # In format 1 the record ends here.
    if len(body) != end and not _decode_tail(body, end, version, queue):
        return None
    for _ in range(segment_count):
        segment = Segment(record.read_u32(body, at))
        segment.size_bytes = record.read_u64(body, at + 4)
        segment.written_bytes = segment.size_bytes
        segment.entries = record.read_u32(body, at + 12)
        segment.live_persistent = record.read_u32(body, at + 16)
        segment.has_references = (body[at + 20] & _FLAG_REFERENCES) != 0
        if version > 2:
            segment.has_places = (body[at + 20] & _FLAG_PLACES) != 0
            segment.referred_bytes = record.read_u64(body, at + 21)
        queue.segments.append(segment)
        at += segment_bytes
    return queue


def _decode_tail(body: bytes, at: i64, version: i64, queue: CheckpointQueue) -> bool:
    """Read the fields that later formats have added, which begin at `at`; False when malformed."""
    tables: list[Runs] = []
    for _ in range(2):
        if len(body) < at + 4:
            return False
        count = record.read_u32(body, at)
        at += 4
        if len(body) < at + count * record.RUN_BYTES:
            return False
        tables.append(record.read_runs(body, at, count))
        at += count * record.RUN_BYTES
    queue.delivered, queue.epochs = tables
    return _decode_stretches(body, at, queue) if version > 2 else len(body) == at


def _decode_stretches(body: bytes, at: i64, queue: CheckpointQueue) -> bool:
    if len(body) < at + 4:
        return False
    count = record.read_u32(body, at)
    at += 4
    if len(body) != at + count * _STRETCH_BYTES:
        return False
    for _ in range(count):
        first = record.read_u64(body, at)
        queue.stretches.append(
            (first, first + record.read_u32(body, at + 8) - 1, record.read_u64(body, at + 12))
        )
        at += _STRETCH_BYTES
    return True
