"""Reads a slice of a queue from the files that a running node named for it.

queues/readers/segment_places.py finds the files for the node. The node may rewrite a file at any
time. The result of a read is therefore used only if every record was whole and the files had
exactly the messages that the node counted. Otherwise the caller fetches the messages from the node.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    INDEX_MAGIC,
    PUBLISH,
    crc_seed,
    file_header_is_valid,
    file_header_number,
)
from warrenmq.tables import file_scan
from warrenmq.tables.blocks import no_partition
from warrenmq.tables.message_batches import MessageBatches
from warrenmq.tables.parts import INDEX, FilePart, QueuePart
from warrenmq.tables.rows import is_in_runs
from warrenmq.tables.scan import RecordScan

_STORE_ID: Final = slice(12, 28)
# Most bytes of the files of a slice, which are in memory as a whole; a larger slice is fetched.
FILES_BYTES_MAX: Final = 128 * 1024 * 1024


@dataclass(frozen=True)
class SliceInFiles:
    """The node's description of a slice: its files and its messages. Picklable."""

    # (path, first byte, end) of stretches of segments and logs; each has whole records only, except
    # for a few bytes at the end of one in a log.
    files: Sequence[tuple[str, int, int]]
    # Inclusive runs of the seq ids of the slice, ascending.
    runs: Sequence[tuple[int, int]]
    # Number of seq ids in `runs`.
    message_count: int
    is_redelivered: bool
    queue_id: int = 0


class SliceReader:
    """Makes record batches of one schema from slices of one queue."""

    def __init__(
        self, schema: Any, vhost: str, queue: str, verify: bool = True, store_id: bytes = b""
    ) -> None:
        """`store_id`: id of the node's store; files of others are refused, and b"" accepts any."""
        self._verify = verify
        self._store_id = store_id
        self._queue = queue
        self._batches = MessageBatches(no_partition(vhost, verify), schema)

    def read(self, part: SliceInFiles) -> Iterator[Any] | None:
        """The messages of a slice; None when its files cannot be read or have other messages.

        The files are in memory until the last batch; a batch is made when it is wanted.
        """
        if not part.files or sum([end - first for _, first, end in part.files]) > FILES_BYTES_MAX:
            return None
        runs = np.array(part.runs, np.int64).reshape(-1, 2)
        pieces: list[tuple[file_scan.Piece, file_scan.Array]] = []
        count = 0
        for path, first, end in part.files:
            piece = self._piece(path, first, end)
            if piece is None:
                return None
            wanted = is_in_runs(runs, piece.positions["seq"])
            wanted &= piece.records["kind"][piece.positions["record"]] == PUBLISH
            wanted &= piece.positions["queue_id"] == part.queue_id
            # Records of a file ascend by seq id. Where one comes twice, the caller must ask the
            # node.
            if np.any(np.diff(piece.positions["seq"][wanted]) <= 0):
                return None
            count += int(np.count_nonzero(wanted))
            pieces.append((piece, wanted))
        if count != part.message_count:
            return None
        return self._batches_of(part, pieces)

    def _batches_of(
        self, part: SliceInFiles, pieces: Sequence[tuple[file_scan.Piece, file_scan.Array]]
    ) -> Iterator[Any]:
        upto = 1 << 62 if part.is_redelivered else -1
        queue = QueuePart(part.queue_id, self._queue, upto, 0, np.empty(0, np.int64))
        for piece, wanted in pieces:
            yield from self._batches.of(FilePart(INDEX, "", 0, 0, (queue,)), piece, wanted)

    def _piece(self, path: str, first: int, end: int) -> file_scan.Piece | None:
        """The records of a stretch; None unless each is whole and has one position in a segment."""
        try:
            with file_scan.OpenFile(Path(path)) as opened:
                header = opened.read(0, FILE_HEADER_BYTES)
                data = opened.read(first, end - first)
        except (OSError, file_scan.FileChangedError):
            return None
        is_log = file_header_is_valid(header, FILE_MAGIC, self._store_id)
        if not is_log and not file_header_is_valid(header, INDEX_MAGIC, self._store_id):
            return None
        scan = RecordScan(crc_seed(header[_STORE_ID], file_header_number(header)), self._verify)
        scan.feed(data, first, not is_log)
        records, positions = scan.take()
        piece = file_scan.Piece(
            data,
            np.frombuffer(records, file_scan.RECORD_TYPE),
            np.frombuffer(positions, file_scan.POSITION_TYPE),
        )
        if scan.damage or not len(piece.positions):
            return None
        if not is_log and len(piece.positions) != len(piece.records):
            return None
        return piece
