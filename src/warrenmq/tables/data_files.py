"""The columns of Parquet files that keep each message exactly, and the sums of their rows.

Rows of a queue ascend by seq id within a file, unless the store they come from has another order.
The rows of a queue are summarized by their count and a *digest*: the sum, modulo 2^64, of a number
that is made of a row's position and of the checksum of its content. Digests of parts add up to the
digest of the whole in any order, so a writer and a reader of the same messages can compare them
without exchanging messages.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from warrenmq.tables.file_figures import QueueRows
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
