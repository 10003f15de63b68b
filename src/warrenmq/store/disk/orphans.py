"""Makes the segments of a queue that no definition names complete, before they are put aside.

Its contents in journal files are copied into its segments: the files go when no other queue needs
them any more.
"""

import logging

from warrenmq.store.disk.files import put_whole, read_whole
from warrenmq.store.disk.index_rebuild import SEGMENT_NAME
from warrenmq.store.disk.log_reader import LogReader
from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.layout import QUEUES_NAME
from warrenmq.store.model.message import ABSENT, INDEXED, Position, QueueLedger
from warrenmq.store.records import record
from warrenmq.store.records.index import behind_damage
from warrenmq.store.records.log_places import (
    PLACES,
    PlaceEntry,
    PlacesWriter,
    entry_count,
    place_of,
    read_entry,
)

logger = logging.getLogger("warren.disk")


def embed_contents(files: FileSystem, store_id: bytes, queue_id: int) -> None:
    """Write segments of a queue that refer to journal files again, with the contents in them."""
    directory = f"{QUEUES_NAME}/{queue_id}"
    logs = LogReader(files, store_id)
    for name in files.list_names(directory):
        match = SEGMENT_NAME.fullmatch(name)
        path = f"{directory}/{name}"
        if match is None or not files.is_file(path):
            continue
        try:
            data = read_whole(files, path)
            parts = _embedded(data, store_id, queue_id << 32 | int(match.group(1)), logs)
            if parts is not None:
                put_whole(files, path, b"".join(parts))
        except OSError as error:
            logger.error("contents for %s stay in journal files: %s", path, error)


def _embedded(data: bytes, store_id: bytes, number: int, logs: LogReader) -> list[bytes] | None:
    """The segment with its contents; None if it refers to no journal file."""
    seed = record.crc_seed(store_id, number)
    writer = record.RecordWriter(store_id)
    writer.continue_file(number)
    parts: list[bytes] = []
    kept_from = 0
    at: int = record.FILE_HEADER_BYTES
    while at < len(data):
        length = record.record_length(data, at, seed)
        if length < 0 or not record.body_is_valid(data, at, length):
            at = behind_damage(data, at, length, seed, True)
            continue
        if data[at + 2] == PLACES:
            parts.append(data[kept_from:at])
            _write(data, at, at + length, logs, writer)
            parts += writer.take()
            kept_from = at + length
        at += length
    if not parts:
        return None
    parts.append(data[kept_from:])
    return parts


def _write(data: bytes, start: int, end: int, logs: LogReader, writer: record.RecordWriter) -> None:
    """Write the messages of one PLACES record; one that cannot be read keeps its entry."""
    body = start + record.RECORD_HEADER_BYTES
    ledger = QueueLedger(int.from_bytes(data[body : body + 4], "big"))
    entries = [read_entry(data, body, place) for place in range(entry_count(data, body, end))]
    positions = [_position(ledger, entry) for entry in entries]
    logs.fill(positions)
    places = PlacesWriter()
    for entry, position in zip(entries, positions, strict=True):
        if position.has_content:
            places.flush(ledger.queue_id, writer)
            writer.add_publish(position.message, [position], 0, 1)
        else:
            places.add_found(ledger.queue_id, entry, writer)
    places.flush(ledger.queue_id, writer)


def _position(ledger: QueueLedger, entry: PlaceEntry) -> Position:
    position = Position(ABSENT, ledger, entry.seq, entry.expiry_ms)
    position.has_content = False
    position.persistent = True
    position.redelivered = (entry.flags & record.FLAG_REDELIVERED) != 0
    position.content_bytes = entry.content_bytes
    position.body_bytes = entry.body_bytes
    position.journal_state = INDEXED
    position.place = place_of(
        entry.file_number, entry.offset, entry.stored_bytes, entry.content_bytes
    )
    return position
