"""Reads the files of a spool, which have the messages of a queue of another broker, into Arrow.

`spark/amqp/spool.py` writes the files, in the format of the journal. A file is named `<first
seq>.wal`, and its header has that seq as its number. Each record is a PUBLISH with one position of
the queue QUEUE_ID. Seq ids have no gaps.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from warrenmq.store.records import record
from warrenmq.tables.contents import ContentTable
from warrenmq.tables.file_scan import FileChangedError, OpenFile, scan_file
from warrenmq.tables.message_batches import MessageBatches
from warrenmq.tables.parts import JOURNAL_FILE, FilePart, Partition, QueuePart, ReadOptions
from warrenmq.tables.scan import RecordScan
from warrenmq.tables.schemas import MESSAGES

QUEUE_ID: Final = 1
# A mark notes the offset of a message in a file; the next mark follows after this many messages, or
# after MARK_BYTES.
MARK_MESSAGES: Final = 128
MARK_BYTES: Final = 1024 * 1024


class SpoolError(Exception):
    """A spool is damaged or not readable; the text says how in one line."""


@dataclass
class SpoolFile:
    """One file: seq ids [first_seq, next_seq) in its first `size` bytes, with marks of some."""

    path: Path
    first_seq: int
    next_seq: int
    size: int = record.FILE_HEADER_BYTES
    # Seq id of each mark, ascending.
    mark_seqs: "array[int]" = field(default_factory=lambda: array("q"))
    # Offset in the file of the message of each mark.
    mark_offsets: "array[int]" = field(default_factory=lambda: array("q"))

    def add(self, seq: int, offset: int) -> None:
        """Add the message `seq` at `offset`, and a mark if one is due; messages come in order."""
        if (
            not self.mark_seqs
            or seq - self.mark_seqs[-1] >= MARK_MESSAGES
            or offset - self.mark_offsets[-1] >= MARK_BYTES
        ):
            self.mark_seqs.append(seq)
            self.mark_offsets.append(offset)
        self.next_seq = seq + 1


@dataclass(frozen=True)
class SpoolSlice:
    """Seq ids [start, end) of a file, all in its bytes [start_byte, end_byte). Picklable."""

    path: str
    first_seq: int
    store_id: bytes
    vhost: str
    queue: str
    start: int
    end: int
    start_byte: int
    end_byte: int


def read_spool_file(path: Path, store_id: bytes) -> tuple[SpoolFile, bool]:
    """The whole records of a file, and whether an unfinished write follows them.

    Raises SpoolError when the file is damaged before a valid record, where it was once finished.
    """
    with OpenFile(path) as opened:
        size = opened.size
        header = opened.read(0, record.FILE_HEADER_BYTES)
        first_seq = int(path.stem)
        file = SpoolFile(path, first_seq, first_seq)
        if (
            not record.file_header_is_valid(header, record.FILE_MAGIC, store_id)
            or record.file_header_number(header) != first_seq
        ):
            raise SpoolError(f"{path} is no file of this spool")
        scan = RecordScan(record.crc_seed(store_id, first_seq), True)
        for piece in scan_file(opened.read, size, scan):
            records = piece.records_at(piece.positions["record"])
            seqs = piece.positions["seq"]
            for seq, offset, length in zip(
                seqs.tolist(), records["offset"].tolist(), records["length"].tolist(), strict=True
            ):
                if seq != file.next_seq or offset != file.size:
                    raise SpoolError(
                        f"{path} is damaged before byte {offset}: message {file.next_seq} is missing"
                    )
                file.add(seq, offset)
                file.size = offset + length
    return file, file.size < size


def read_slice(part: SpoolSlice, schema: Any) -> Iterator[Any]:
    """Record batches of the messages of a slice; `schema` has columns of MESSAGE_COLUMNS.

    Raises SpoolError when the file is missing or lacks a message of the slice.
    """
    path = Path(part.path)
    queue = QueuePart(QUEUE_ID, part.queue, -1, 0, np.empty(0, np.int64))
    file_part = FilePart(JOURNAL_FILE, path.name, part.first_seq, part.end_byte, (queue,))
    contents = ContentTable(path.parent, part.store_id, (), ())
    options = ReadOptions(vhost=part.vhost)
    partition = Partition(
        MESSAGES,
        options,
        path.parent,
        path.parent,
        part.vhost,
        part.store_id,
        contents,
        (file_part,),
    )
    batches = MessageBatches(partition, schema)
    found = 0
    try:
        with OpenFile(path) as file:
            scan = RecordScan(record.crc_seed(part.store_id, part.first_seq), True)
            # The scan treats the slice as a whole file: its offsets are wrong, but no column has
            # them.
            shift = part.start_byte - record.FILE_HEADER_BYTES
            size = part.end_byte - shift
            for piece in scan_file(
                lambda offset, count: file.read(offset + shift, count), size, scan
            ):
                seqs = piece.positions["seq"]
                wanted = (seqs >= part.start) & (seqs < part.end)
                wanted &= piece.records_at(piece.positions["record"])["kind"] == record.PUBLISH
                if wanted.any():
                    found += int(np.count_nonzero(wanted))
                    yield from batches.of(file_part, piece, wanted)
    except FileChangedError:
        raise SpoolError(
            f"{path} is not there: executors must see the spool under the same name"
        ) from None
    if found != part.end - part.start:
        raise SpoolError(
            f"{path} has {found} of the {part.end - part.start} messages from {part.start} on: it is damaged"
        )
