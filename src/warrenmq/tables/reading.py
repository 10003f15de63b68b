"""Reads a partition: record batches with exactly the columns of the requested schema."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warrenmq.offline.data_directory import ToolError, locked
from warrenmq.store.records import record
from warrenmq.store.records.log_places import PLACES
from warrenmq.tables.columns import timestamps
from warrenmq.tables.contents import ContentReader
from warrenmq.tables.file_scan import Array, FileChangedError, OpenFile, Piece, scan_file
from warrenmq.tables.message_batches import MessageBatches, cuts
from warrenmq.tables.parts import (
    CONTENT_FILE,
    INDEX,
    VERIFY_CRC,
    FilePart,
    Partition,
)
from warrenmq.tables.repair import NOWHERE, repaired_segment
from warrenmq.tables.rows import (
    ALIVE,
    NOT_COUNTED,
    STATE_NAMES,
    JournalStates,
    SegmentStates,
    is_in_seqs,
    is_in_time,
    is_wanted,
    queue_places,
)
from warrenmq.tables.scan import MALFORMED, RecordScan
from warrenmq.tables.schemas import COLUMNS, DAMAGE, FILES, JOURNAL, MESSAGES, POSITIONS

BATCH_ROWS: Final = 10_000

_MAGIC: Final = {INDEX: record.INDEX_MAGIC, CONTENT_FILE: record.CONTENT_MAGIC}
KIND_NAMES: Final = {
    record.PUBLISH: "publish",
    record.PUBLISH_REF: "publish_ref",
    record.ACK: "ack",
    record.RELEASE: "release",
    record.RETRACT: "retract",
    record.QUEUE_STATE: "queue_state",
    record.CLEAN_STOP: "clean_stop",
    record.PREDECESSOR: "predecessor",
    record.EPOCH: "epoch",
    record.CONTENT: "content",
}


class ReadError(Exception):
    """A partition cannot be read as it was planned; the text says why in one line."""


def read(partition: Partition, schema: Any) -> Iterator[Any]:
    """Record batches of the rows of a partition; each batch has `schema`, columns of its table.

    No node can open the directory before the last batch. Raises ReadError when the store has
    changed since planning, and OSError when a file cannot be read.
    """
    for name in schema.names:
        if name not in COLUMNS[partition.table]:
            raise ValueError(f"table '{partition.table}' has no column '{name}'")
    try:
        with locked(partition.directory):
            yield from _read(partition, schema)
    except (ToolError, FileChangedError) as error:
        raise ReadError(str(error)) from None


def _read(partition: Partition, schema: Any) -> Iterator[Any]:
    yield from _batches_of(list(partition.rows), schema)
    if partition.table == MESSAGES:
        batches = MessageBatches(partition, schema)
        for part in partition.parts:
            yield from _messages(partition, part, batches)
        return
    if partition.table in (FILES, DAMAGE):
        for part in partition.parts:
            rows = (
                _file_rows(partition, part)
                if partition.table == FILES
                else _damage_rows(partition, part)
            )
            yield from _batches_of(rows, schema)
        return
    times = _LogTimes(partition, "enqueued_at" in schema.names)
    for part in partition.parts:
        states = _states(part)
        for piece in _repaired_pieces(partition, part):
            if partition.table == POSITIONS:
                piece = times.complete(piece)
                columns = _position_columns(partition, part, piece, states.of(piece))
            else:
                assert partition.table == JOURNAL
                columns = _journal_columns(partition, part, piece)
            table = pa.table(
                {column.name: columns[column.name] for column in schema}, schema=schema
            )
            yield from table.to_batches(max_chunksize=BATCH_ROWS)


def _batches_of(rows: list[dict[str, Any]], schema: Any) -> Iterator[Any]:
    for start in range(0, len(rows), BATCH_ROWS):
        yield pa.RecordBatch.from_pylist(rows[start : start + BATCH_ROWS], schema=schema)


def _states(part: FilePart) -> SegmentStates | JournalStates:
    return SegmentStates(part) if part.kind == INDEX else JournalStates(part)


def _pieces(
    partition: Partition, part: FilePart, scan: RecordScan | None = None
) -> Iterator[Piece]:
    with OpenFile(partition.vhost_path / part.path) as file:
        file.must_have(part.size)
        if scan is None:
            scan = _scan_of(partition, part)
        yield from scan_file(file.read, part.size, scan)


def _repaired_pieces(partition: Partition, part: FilePart) -> Iterator[Piece]:
    """The pieces of a file; damage in a segment is repaired as far as a start would do that.

    Positions of pieces before the damage may come once more: their states skip them (`rows.py`).
    """
    if part.is_repaired:
        yield repaired_segment(partition, part)
        return
    scan = _scan_of(partition, part)
    for piece in _pieces(partition, part, scan):
        if scan.damage and len(part.referred):
            yield repaired_segment(partition, part)
            return
        yield piece


def _scan_of(partition: Partition, part: FilePart) -> RecordScan:
    return RecordScan(
        record.crc_seed(partition.store_id, part.number), partition.options.verify == VERIFY_CRC
    )


# -- messages --------------------------------------------------------------------------------------


def _messages(partition: Partition, part: FilePart, batches: MessageBatches) -> Iterator[Any]:
    states = _states(part)
    for piece in _repaired_pieces(partition, part):
        positions = piece.positions
        seqs = positions["seq"]
        wanted = states.of(piece) == ALIVE
        wanted &= is_in_seqs(partition.options, seqs)
        records = piece.records_at(positions["record"])
        # Only the log knows the time of an entry: the batches look at it.
        wanted &= (records["kind"] == PLACES) | is_in_time(partition.options, records["timestamp"])
        wanted &= (seqs >= part.seq_from) & (seqs < part.seq_to)
        if wanted.any():
            yield from batches.of(part, piece, wanted)


# -- positions and the journal ---------------------------------------------------------------------


class _LogTimes:
    """Reads from logs when the messages were published that a segment's entries refer to."""

    def __init__(self, partition: Partition, is_shown: bool) -> None:
        options = partition.options
        self._is_needed = (
            is_shown or options.enqueued_from_ms is not None or options.enqueued_to_ms is not None
        )
        self._contents = ContentReader(partition.contents, False)

    def complete(self, piece: Piece) -> Piece:
        """The piece with the times of its entries; 0 where the log has no such record."""
        entries = np.flatnonzero((piece.records["kind"] == PLACES) & (piece.records["ok"] == 1))
        if not self._is_needed or not len(entries):
            return piece
        records = piece.records.copy()
        for start, end in cuts(records["content_bytes"][entries]):
            some = entries[start:end]
            contents = self._contents.fetch(records[some])
            is_there = contents.rows >= 0
            found = contents.records[contents.rows[is_there]]
            records["timestamp"][some[is_there]] = found["timestamp"]
        return Piece(piece.data, records, piece.positions)


def _position_columns(
    partition: Partition, part: FilePart, piece: Piece, states: Array
) -> dict[str, Any]:
    wanted = states != NOT_COUNTED
    wanted &= is_wanted(
        partition.options,
        piece.positions["seq"],
        piece.records["timestamp"][piece.positions["record"]],
    )
    positions = piece.positions[wanted]
    records = piece.records[positions["record"]]
    is_large = records["kind"] == record.PUBLISH_REF
    is_in_log = records["kind"] == PLACES
    is_stored = is_large | is_in_log
    names = pa.array([queue.name for queue in part.queues], pa.string())
    in_queues = pa.array(queue_places(part.queues, positions["queue_id"]))
    return {
        "vhost": _same(partition.vhost, len(positions)),
        "queue": names.take(in_queues),
        "queue_id": _numbers(positions["queue_id"]),
        "seq": _numbers(positions["seq"]),
        "state": pa.array(STATE_NAMES, pa.string()).take(pa.array(states[wanted])),
        "location": _same(part.kind, len(positions)),
        "file": _same(part.path, len(positions)),
        "offset": _numbers(records["offset"], records["offset"] == NOWHERE),
        "record_bytes": _numbers(records["length"], records["offset"] == NOWHERE),
        "persistent": pa.array(records["persistent"] != 0),
        "enqueued_at": timestamps(records["timestamp"], is_in_log & (records["timestamp"] == 0)),
        "expires_at": timestamps(positions["expiry"], positions["expiry"] == 0),
        "size": pa.array(records["body_bytes"].astype(np.int32)),
        "stored": pa.array(is_stored),
        "content_id": _numbers(records["content_id"], ~is_large),
        "content_file": _content_files(partition, records, is_in_log, is_stored),
        "content_offset": _numbers(records["content_offset"], ~is_stored),
        "content_bytes": _numbers(records["content_bytes"], ~is_stored),
        "references": pa.array(records["references"].astype(np.int32), mask=~is_large),
    }


def _content_files(partition: Partition, records: Array, is_in_log: Array, is_stored: Array) -> Any:
    # Numbers of logs are negative here: -(n + 1) stands for the log n.
    files = np.where(is_in_log, -records["content_file"] - 1, records["content_file"])
    numbers, places = np.unique(files, return_inverse=True)
    table = partition.contents
    paths = [
        table.path_of(number) if number >= 0 else table.log_path_of(-number - 1)
        for number in numbers.tolist()
    ]
    names = [path.relative_to(partition.vhost_path).as_posix() for path in paths]
    return pa.array(names, pa.string()).take(pa.array(places, mask=~is_stored))


def _journal_columns(partition: Partition, part: FilePart, piece: Piece) -> dict[str, Any]:
    records = piece.records
    kinds, places = np.unique(records["kind"], return_inverse=True)
    names = [KIND_NAMES.get(kind, f"unknown ({kind})") for kind in kinds.tolist()]
    is_publish = (records["kind"] == record.PUBLISH) | (records["kind"] == record.PUBLISH_REF)
    is_publish &= records["ok"] == 1
    has_queue = (records["ok"] == 1) & ~np.isin(
        records["kind"], (record.CLEAN_STOP, record.PREDECESSOR)
    )
    is_reference = is_publish & (records["kind"] == record.PUBLISH_REF)
    ok = records["ok"] == 1
    is_checked = partition.options.verify == VERIFY_CRC
    return {
        "vhost": _same(partition.vhost, len(records)),
        "file": _same(part.path, len(records)),
        "offset": _numbers(records["offset"]),
        "stored_bytes": _numbers(records["length"]),
        "kind": pa.array(names, pa.string()).take(pa.array(places)),
        "crc_ok": pa.array(ok, mask=None if is_checked else np.ones(len(ok), bool)),
        "queue_id": _numbers(records["queue_id"], ~has_queue),
        "first_seq": _numbers(records["first"], ~has_queue),
        "last_seq": _numbers(records["last"], ~has_queue),
        "positions": _numbers(records["positions"], ~ok),
        "enqueued_at": timestamps(records["timestamp"], ~is_publish),
        "size": pa.array(records["body_bytes"].astype(np.int32), mask=~is_publish),
        "content_id": _numbers(records["content_id"], ~is_reference),
    }


def _numbers(values: Array, nulls: Array | None = None) -> Any:
    return pa.array(np.ascontiguousarray(values), mask=nulls)


def _same(value: str, count: int) -> Any:
    return pa.repeat(pa.scalar(value, pa.string()), count)


# -- files and damage ------------------------------------------------------------------------------


def _file_rows(partition: Partition, part: FilePart) -> list[dict[str, Any]]:
    count = 0
    live = part.live_bytes
    states = None if part.kind == CONTENT_FILE else _states(part)
    for piece in _pieces(partition, part):
        count += int(np.count_nonzero(piece.records["ok"]))
        if states is not None:
            alive = np.unique(piece.positions["record"][states.of(piece) == ALIVE])
            live += int(piece.records["length"][alive].sum())
    return [
        {
            "vhost": partition.vhost,
            "path": part.path,
            "kind": part.kind,
            "bytes": part.size,
            "live_bytes": live,
            "garbage_bytes": max(part.size - live, 0),
            "records": count,
        }
    ]


def _damage_rows(partition: Partition, part: FilePart) -> list[dict[str, Any]]:
    """A row for each damaged stretch of a segment or a content file, and for each lost content.

    A segment that is missing or too short has a row too, with the number of lost messages.
    Of logs only those contents are read that a live position needs.

    An unfinished write at the end of a content file is no damage, unless a content is lost.
    """
    rows: list[dict[str, Any]] = []

    def add(offset: int | None, length: int | None, reason: str) -> None:
        rows.append(
            {
                "vhost": partition.vhost,
                "file": part.path,
                "offset": offset,
                "length": length,
                "reason": reason,
            }
        )

    is_missing = part.is_repaired and not (partition.vhost_path / part.path).is_file()
    if part.is_repaired:
        lost_count = part.live_count - _alive_count(partition, part)
        if is_missing or lost_count > 0:
            cause = "missing" if is_missing else "too short"
            add(None, None, f"{cause}: {lost_count} messages are lost")
    if is_missing:
        return rows
    scan = _scan_of(partition, part)
    seen = [np.empty(0, np.int64)]
    states = SegmentStates(part) if part.kind == INDEX else None
    with OpenFile(partition.vhost_path / part.path) as file:
        header = file.read(0, record.FILE_HEADER_BYTES)
    if (
        not record.file_header_is_valid(header, _MAGIC[part.kind], partition.store_id)
        or record.file_header_number(header) != part.number
    ):
        add(0, record.FILE_HEADER_BYTES, "damaged header")
    for piece in _pieces(partition, part, scan):
        records = piece.records
        seen.append(records["content_id"][records["ok"] == 1])
        if part.kind == INDEX:
            is_strange = (records["ok"] == 1) & (
                ~np.isin(records["kind"], (record.PUBLISH, record.PUBLISH_REF, PLACES))
                | (records["positions"] != 1)
            )
            for strange in records[is_strange]:
                add(int(strange["offset"]), int(strange["length"]), MALFORMED)
        if states is not None:
            rows += _lost_in_logs(partition, piece, states.of(piece))
    lost = np.empty(0, np.int64)
    if part.kind == CONTENT_FILE:
        lost = np.setdiff1d(part.live_ids, np.concatenate(seen))
    for start, end, reason in scan.damage:
        is_tail = end >= part.size and part.kind != INDEX and not len(lost)
        if not is_tail:
            add(start, end - start, reason)
    for content_id in lost.tolist():
        add(None, None, f"content {content_id} is missing")
    return rows


def _alive_count(partition: Partition, part: FilePart) -> int:
    """How many live positions a start would find in a segment."""
    states = SegmentStates(part)
    return sum(
        int(np.count_nonzero(states.of(piece) == ALIVE))
        for piece in _repaired_pieces(partition, part)
    )


def _lost_in_logs(partition: Partition, piece: Piece, states: Array) -> list[dict[str, Any]]:
    """A row for each content in a log that a live position needs and that is no record.

    A log that is missing as a whole has a row of its own (planning.py).
    """
    rows: list[dict[str, Any]] = []
    alive = piece.positions["record"][states == ALIVE]
    entries = piece.records_at(alive[piece.records["kind"][alive] == PLACES])
    reader = ContentReader(partition.contents, True)
    for start, end in cuts(entries["content_bytes"]):
        some = entries[start:end]
        for lost in some[reader.fetch(some).rows < 0]:
            path = partition.contents.log_path_of(int(lost["content_file"]))
            if path.is_file():
                rows.append(
                    {
                        "vhost": partition.vhost,
                        "file": path.relative_to(partition.vhost_path).as_posix(),
                        "offset": int(lost["content_offset"]),
                        "length": int(lost["content_bytes"]),
                        "reason": f"the content of message {int(lost['first'])} of queue {int(lost['queue_id'])} is missing",
                    }
                )
    return rows
