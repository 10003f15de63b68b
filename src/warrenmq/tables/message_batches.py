"""Makes record batches of bounded size from messages.

Columns are made of whole arrays: names, properties and bodies are slices of the bytes that were
read, so a message costs no Python object and no step in Python. In one batch some contents may be
embedded in their records and others in content files or logs; the batch combines them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warrenmq.store.records.log_places import PLACES
from warrenmq.store.records.record import FLAG_REDELIVERED, PUBLISH_REF
from warrenmq.tables.columns import as_strings, slices, timestamps, what_is_not_text
from warrenmq.tables.contents import ContentReader
from warrenmq.tables.file_scan import Array, Piece
from warrenmq.tables.parts import VERIFY_CRC, FilePart, Partition, QueuePart
from warrenmq.tables.property_columns import FROM_PROPERTIES, property_columns
from warrenmq.tables.rows import is_in_runs, is_in_time, queue_places
from warrenmq.tables.scan import checksums

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 * 1024 * 1024

# End of each part of a message: the part that follows, and the bytes of the length field before it.
_PARTS: Final = {
    "exchange": ("routing_key", 1),
    "routing_key": ("properties", 4),
    "properties": ("body", 4),
}
# Columns with the exact bytes of a name that is not UTF-8, by the name they belong to.
_RAW: Final = {"exchange_raw": "exchange", "routing_key_raw": "routing_key"}
_PROPERTIES: Final = {"properties_raw"} | FROM_PROPERTIES
# Columns that a record with a reference to a large content has, but an entry for a log has not.
_FROM_LOG: Final = {"enqueued_at", "persistent"}
_FROM_CONTENT: Final = {"exchange", "routing_key", "body", "checksum", *_RAW, *_PROPERTIES}


@dataclass
class _Rows:
    """The rows of a batch: positions of one piece in order, with their records and contents."""

    part: FilePart
    positions: Array
    # Record of each position.
    records: Array
    # Record that has the content of each position: the same one, or one of a content file or log.
    messages: Array
    # Bytes that the parts of messages point into, where `is_stored` is false.
    data: Any
    # True for contents that were read from content files and logs.
    is_stored: Array
    # Bytes that the parts of messages point into, where `is_stored` is true.
    stored_data: Any


class MessageBatches:
    """Makes the batches of one partition."""

    def __init__(self, partition: Partition, schema: Any) -> None:
        self._partition = partition
        self._schema = schema
        self._names = set(schema.names)
        self._verifies = partition.options.verify == VERIFY_CRC
        self._contents = ContentReader(partition.contents, self._verifies)
        # A position counts only if its content can be read. With checksums on, contents are
        # therefore read even when no column needs them.
        self._reads_contents = self._verifies or bool(self._names & _FROM_CONTENT)
        options = partition.options
        self._has_times = options.enqueued_from_ms is not None or options.enqueued_to_ms is not None
        self._reads_logs = self._reads_contents or self._has_times or bool(self._names & _FROM_LOG)

    def of(self, part: FilePart, piece: Piece, wanted: Array) -> Iterator[Any]:
        """Record batches of the messages at the positions `wanted` of a piece.

        Of entries for logs, only those in the time range of the options are taken.
        """
        positions = piece.positions if wanted.all() else piece.positions[wanted]
        records = piece.records_at(positions["record"])
        is_stored = self._is_read(records)
        for start, end in cuts(self._weights(records, is_stored)):
            rows = self._rows(
                part, piece, positions[start:end], records[start:end], is_stored[start:end]
            )
            if len(rows.positions):
                arrays = self._arrays(rows)
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def whole(self, part: FilePart, piece: Piece) -> Any:
        """All messages of a small piece, as one batch."""
        records = piece.records_at(piece.positions["record"])
        rows = self._rows(part, piece, piece.positions, records, self._is_read(records))
        return pa.RecordBatch.from_arrays(self._arrays(rows), schema=self._schema)

    def _weights(self, records: Array, is_stored: Array) -> Array:
        """Estimate of the bytes that each message takes in a batch, or in memory beside it."""
        weights = np.full(len(records), 128)
        embedded = np.zeros(len(records), np.int64)
        if "body" in self._names:
            embedded += records["body_bytes"]
        if self._names & _PROPERTIES:
            embedded += 2 * (records["body"] - records["properties"])
        weights += np.where(is_stored, records["content_bytes"], embedded)
        return weights

    def _is_read(self, records: Array) -> Array:
        """Whether the content of each record is read from another file."""
        is_read = np.zeros(len(records), bool)
        if self._reads_contents:
            is_read |= records["kind"] == PUBLISH_REF
        if self._reads_logs:
            is_read |= records["kind"] == PLACES
        return is_read

    def _rows(
        self, part: FilePart, piece: Piece, positions: Array, records: Array, is_stored: Array
    ) -> _Rows:
        if not is_stored.any():
            return _Rows(
                part, positions, records, records, piece.data, np.zeros(len(records), bool), b""
            )
        contents = self._contents.fetch(records[is_stored])
        messages = records.copy()
        stored = np.flatnonzero(is_stored)
        is_there = contents.rows >= 0
        messages[stored[is_there]] = contents.records[contents.rows[is_there]]
        kept = np.ones(len(records), bool)
        kept[stored[~is_there]] = False
        is_in_log = records["kind"] == PLACES
        if is_in_log.any():
            records = records.copy()
            for name in ("timestamp", "persistent"):
                records[name][is_in_log] = messages[name][is_in_log]
            kept &= ~is_in_log | is_in_time(self._partition.options, records["timestamp"])
        return _Rows(
            part,
            positions[kept],
            records[kept],
            messages[kept],
            piece.data,
            is_stored[kept],
            contents.data,
        )

    def _arrays(self, rows: _Rows) -> list[Any]:
        if self._names & FROM_PROPERTIES:
            from_properties = property_columns(_slices(rows, "properties"), self._schema)
        else:
            from_properties = {}
        return [
            from_properties[column.name]
            if column.name in from_properties
            else self._column(column.name, rows)
            for column in self._schema
        ]

    def _column(self, name: str, rows: _Rows) -> Any:
        positions, records = rows.positions, rows.records
        match name:
            case "vhost":
                return pa.repeat(pa.scalar(self._partition.vhost), len(positions))
            case "queue":
                names = pa.array([queue.name for queue in rows.part.queues], pa.string())
                return names.take(pa.array(queue_places(rows.part.queues, positions["queue_id"])))
            case "seq":
                return _numbers(positions["seq"])
            case "exchange" | "routing_key":
                return as_strings(_slices(rows, name))
            case "enqueued_at":
                return timestamps(records["timestamp"])
            case "expires_at":
                return timestamps(positions["expiry"], positions["expiry"] == 0)
            case "redelivered":
                return pa.array(_redelivered(rows.part.queues, positions))
            case "persistent":
                return pa.array(records["persistent"] != 0)
            case "size":
                return pa.array(records["body_bytes"].astype(np.int32))
            case "body":
                return _slices(rows, name)
            case "exchange_raw" | "routing_key_raw":
                return what_is_not_text(_slices(rows, _RAW[name]))
            case "properties_raw":
                return _slices(rows, "properties")
        return self._storage_column(name, rows)

    def _storage_column(self, name: str, rows: _Rows) -> Any:
        messages, records = rows.messages, rows.records
        is_large = records["kind"] == PUBLISH_REF
        is_stored = is_large | (records["kind"] == PLACES)
        match name:
            case "file":
                # 0 stands for the file of the position, n + 1 for the content file n, and -(n + 1)
                # for the log n.
                numbers = np.where(
                    is_stored, (records["content_file"] + 1) * np.where(is_large, 1, -1), 0
                )
                distinct, places = np.unique(numbers, return_inverse=True)
                names = [self._name(number, rows.part) for number in distinct.tolist()]
                return pa.array(names, pa.string()).take(pa.array(places))
            case "offset":
                return _numbers(np.where(is_stored, records["content_offset"], messages["offset"]))
            case "stored_bytes":
                return _numbers(np.where(is_stored, records["content_bytes"], messages["length"]))
            case "crc_ok":
                # Null: not checked. A damaged record gives no message, but a row of the table
                # `damage`.
                return pa.repeat(
                    pa.scalar(True if self._verifies else None, pa.bool_()), len(records)
                )
            case "queue_id":
                return _numbers(rows.positions["queue_id"])
            case "content_id":
                return _numbers(records["content_id"], ~is_large)
            case "references":
                return _numbers(records["references"].astype(np.int32), ~is_large)
            case "checksum":
                return _numbers(_checksums(rows))
        raise ValueError(f"no column '{name}' in the table of messages")

    def _name(self, number: int, part: FilePart) -> str:
        if number == 0:
            return part.path
        table = self._partition.contents
        path = table.path_of(number - 1) if number > 0 else table.log_path_of(-number - 1)
        return path.relative_to(self._partition.vhost_path).as_posix()


def _numbers(values: Array, nulls: Array | None = None) -> Any:
    # Values of one field are not adjacent in the array of records, but Arrow needs them adjacent.
    return pa.array(np.ascontiguousarray(values), mask=nulls)


def _redelivered(queues: tuple[QueuePart, ...], positions: Array) -> Array:
    """Whether the message at each position was delivered before, or may have been."""
    places = queue_places(queues, positions["queue_id"])
    seqs = positions["seq"]
    upto = np.array([queue.delivered_upto for queue in queues])
    found: Array = ((positions["flags"] & FLAG_REDELIVERED) != 0) | (seqs <= upto[places])
    for place, queue in enumerate(queues):
        if len(queue.delivered):
            found |= (places == place) & is_in_runs(queue.delivered, seqs)
    return found


def _checksums(rows: _Rows) -> Array:
    found = np.empty(len(rows.messages), np.int64)
    # Embedded contents lie in `data`, contents that were read elsewhere in `stored_data`.
    for data, mask in ((rows.data, ~rows.is_stored), (rows.stored_data, rows.is_stored)):
        messages = rows.messages[mask]
        # The address begins one byte earlier, with the length of the exchange's name.
        bounds = np.column_stack(
            [messages["exchange"] - 1, messages["body"] + messages["body_bytes"]]
        )
        found[mask] = np.frombuffer(checksums(data, bounds.astype("<i8").tobytes()), np.int64)
    return found


def _slices(rows: _Rows, name: str) -> Any:
    """The part `name` of each message, as a binary array."""
    if not rows.is_stored.any():
        return slices(rows.data, *_bounds(rows.messages, name))
    stored = slices(rows.stored_data, *_bounds(rows.messages[rows.is_stored], name))
    if rows.is_stored.all():
        return stored
    embedded = slices(rows.data, *_bounds(rows.messages[~rows.is_stored], name))
    places = np.empty(len(rows.messages), np.int64)
    places[~rows.is_stored] = np.arange(len(embedded))
    places[rows.is_stored] = len(embedded) + np.arange(len(stored))
    return pa.concat_arrays([embedded, stored]).take(pa.array(places))


def _bounds(messages: Array, name: str) -> tuple[Array, Array]:
    starts = messages[name]
    if name == "body":
        return starts, starts + messages["body_bytes"]
    following, length_bytes = _PARTS[name]
    return starts, messages[following] - length_bytes


def cuts(weights: Array) -> Iterator[tuple[int, int]]:
    """Start and end of each batch: up to BATCH_ROWS rows and BATCH_BYTES, or one larger message."""
    ends = np.cumsum(weights)
    start = 0
    while start < len(weights):
        before = int(ends[start - 1]) if start else 0
        end = int(np.searchsorted(ends, before + BATCH_BYTES, "right"))
        end = min(max(end, start + 1), start + BATCH_ROWS)
        yield start, end
        start = end
