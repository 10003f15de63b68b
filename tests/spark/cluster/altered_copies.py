"""Alters the files of a store as a mistake of a broker might: the checksums are right again."""

from collections.abc import Callable
from pathlib import Path

from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RecordWriter,
    crc_seed,
    file_header_number,
    record_length,
)

# What becomes of the body of a record; None: the record goes.
Edit = Callable[[bytes], bytes | None]


def edit_records(path: Path, edit: Edit) -> int:
    """Write a file of records anew with edited bodies; returns how many were changed or dropped."""
    data = path.read_bytes()
    store_id, number = data[12:28], file_header_number(data)
    writer = RecordWriter(store_id)
    writer.start_file(data[:8], number)
    at = FILE_HEADER_BYTES
    count = 0
    while at < len(data):
        length = record_length(data, at, crc_seed(store_id, number))
        assert length > 0, path
        body = data[at + RECORD_HEADER_BYTES : at + length]
        edited = edit(body)
        count += edited != body
        if edited is not None:
            writer.raw_record(data[at + 2], edited, b"")
        at += length
    path.write_bytes(b"".join(writer.take()))
    return count


def replacing(old: bytes, new: bytes) -> Edit:
    """An edit of the records that contain `old`; `new` is as long."""
    assert len(old) == len(new)
    return lambda body: body.replace(old, new)


def dropping(part: bytes) -> Edit:
    """An edit that drops the records that contain `part`."""
    return lambda body: None if part in body else body
