"""Parquet files that keep each message exactly, and the figures of such a file.

Rows of a queue ascend by seq id within a file, unless the store they come from has another order.
The rows of a queue are summarized by their count and a *digest*: the sum, modulo 2^64, of a number
that is made of a row's position and of the checksum of its content. Digests of parts add up to the
digest of the whole in any order, so a writer and a reader of the same messages can compare them
without exchanging messages.
"""

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from warrenmq.tables.file_figures import DataFile, QueueRows
from warrenmq.tables.file_scan import Array
from warrenmq.tables.schemas import COLUMNS, MESSAGES

_EXACT: Final = (
    "queue",
    "queue_id",
    "seq",
    "exchange",
    "routing_key",
    "exchange_raw",
    "routing_key_raw",
    "enqueued_at",
    "expires_at",
    "redelivered",
    "persistent",
    "size",
    "content_id",
    "references",
    "checksum",
    "properties_raw",
    "body",
)
# Schema of a file of messages: a subset of the table `messages`.
DATA_SCHEMA: Final = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in _EXACT])
# Columns that the digest of a row is made of.
DIGEST_COLUMNS: Final = ("queue_id", "seq", "enqueued_at", "expires_at", "persistent", "checksum")
DIGEST_SCHEMA: Final = pa.schema([DATA_SCHEMA.field(name) for name in DIGEST_COLUMNS])

# Schema of runs of seq ids that are alive; `first` and `last` are inclusive.
ALIVE_SCHEMA: Final = pa.schema(
    [
        ("queue_id", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("redelivered", pa.bool_()),
    ]
)

ROW_GROUP_ROWS: Final = 65536
ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
_ZSTD_LEVEL: Final = 3
_U64_MAX: Final = (1 << 64) - 1
# Factors of the digest, one a column: odd and without a pattern, so that each turns its column into
# a different number.
_FACTORS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)


class QueueSums:
    """Adds up the row counts, seq id bounds and digests of each queue."""

    def __init__(self) -> None:
        self._known: dict[int, list[int]] = {}

    def add(self, batch: Any) -> None:
        """Add the rows of `batch`, which has DIGEST_COLUMNS."""
        if batch.num_rows == 0:
            return
        queue_ids, seqs, digests = _digests(batch)
        order = np.argsort(queue_ids, kind="stable")
        ids, starts, counts = np.unique(queue_ids[order], return_index=True, return_counts=True)
        sums = np.add.reduceat(digests[order], starts)
        lows = np.minimum.reduceat(seqs[order], starts)
        highs = np.maximum.reduceat(seqs[order], starts)
        columns = (ids, counts, lows, highs, sums)
        for queue_id, *figures in zip(*(column.tolist() for column in columns), strict=True):
            self._add(queue_id, *figures)

    def add_rows(self, rows: Iterable[QueueRows]) -> None:
        """Add sums of other rows."""
        for row in rows:
            self._add(row.queue_id, row.rows, row.first_seq, row.last_seq, int(row.digest, 16))

    def _add(self, queue_id: int, rows: int, first: int, last: int, digest: int) -> None:
        known = self._known.get(queue_id)
        if known is None:
            self._known[queue_id] = [rows, first, last, digest & _U64_MAX]
            return
        known[0] += rows
        known[1] = min(known[1], first)
        known[2] = max(known[2], last)
        known[3] = (known[3] + digest) & _U64_MAX

    def by_queue(self) -> list[QueueRows]:
        """The sums of each queue, in the order of queue ids."""
        return [
            QueueRows(
                queue_id=queue_id,
                rows=rows,
                first_seq=first,
                last_seq=last,
                digest=f"{digest:016x}",
            )
            for queue_id, (rows, first, last, digest) in sorted(self._known.items())
        ]


def _digests(batch: Any) -> tuple[Array, Array, Array]:
    queue_ids, seqs, checksums = (
        batch.column(name).to_numpy(zero_copy_only=False)
        for name in ("queue_id", "seq", "checksum")
    )
    enqueued, expires = (
        batch.column(name).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for name in ("enqueued_at", "expires_at")
    )
    persistent = batch.column("persistent").to_numpy(zero_copy_only=False)
    mixed = checksums.astype(np.uint64) | persistent.astype(np.uint64) << np.uint64(32)
    digests = np.zeros(len(seqs), np.uint64)
    for column, factor in zip((seqs, enqueued, expires, mixed), _FACTORS, strict=True):
        digests ^= column.astype(np.uint64)
        digests *= np.uint64(factor)
        digests ^= digests >> np.uint64(32)
    return queue_ids, seqs, digests


class DataFileWriter:
    """Writes one file, which gets its name in `finish`.

    As a context manager it removes an unfinished file.
    """

    def __init__(self, path: Path, schema: Any) -> None:
        self.rows = 0
        self._path = path
        self._schema = schema
        # The temporary name is random, because two attempts of one task may run at once.
        self._new = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
        self._file = _ChecksumFile(self._new)
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            # No dictionary for columns whose values hardly repeat: building it would be wasted
            # work.
            use_dictionary=[
                column.name for column in schema if column.name not in ("body", "checksum", "seq")
            ],
            write_statistics=[column.name for column in schema if column.name != "body"],
        )
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._sums = QueueSums()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._file.closed:
            # Close the Parquet writer first: left open, it writes the file's footer later, and its
            # error would be lost.
            with contextlib.suppress(OSError, ValueError):
                self._writer.close()
            self._file.close()
            self._new.unlink(missing_ok=True)

    def write(self, batch: Any) -> None:
        """Append the rows of `batch`."""
        if batch.num_rows == 0:
            return
        if set(DIGEST_COLUMNS) <= set(self._schema.names):
            self._sums.add(batch)
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        self._waiting_bytes += batch.nbytes
        if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def finish(self) -> DataFile:
        """Make the file durable under its name, and return its figures."""
        self._flush()
        self._writer.close()
        os.fsync(self._file.fileno())
        self._file.close()
        self._new.rename(self._path)
        return DataFile(
            name=self._path.name,
            bytes=self._file.size,
            crc32c=f"{self._file.crc:08x}",
            rows=self.rows,
            queues=self._sums.by_queue(),
        )

    def _flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting, schema=self._schema)
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
            self._waiting = []
            self._waiting_rows = self._waiting_bytes = 0


class _ChecksumFile:
    """A new file, written from start to end, with the CRC-32C of the bytes written so far."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        os.chmod(path, 0o640)
        self.size = 0
        self.crc = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all of `data`."""
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += self._file.write(view[written:])
        self.crc = crc32c(view, self.crc)
        self.size += len(view)
        return len(view)

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""

    def tell(self) -> int:
        """The offset of the next write."""
        return self.size

    def fileno(self) -> int:
        """The file descriptor, for fsync."""
        return self._file.fileno()

    def readable(self) -> bool:
        """False: the file is only written."""
        return False

    def writable(self) -> bool:
        """True: the file is only written."""
        return True

    def seekable(self) -> bool:
        """False: the file is written from start to end."""
        return False

    def close(self) -> None:
        """Close the file without a sync."""
        self.closed = True
        self._file.close()
