"""Describes the messages that differ between copies: rows of the table of differences.

The table has a row for each copy and each message in which it differs from another copy.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warrenmq.pipeline.mirrors.comparing import DIFFERS, KIND_NAMES
from warrenmq.pipeline.mirrors.stretches import Stretch
from warrenmq.tables.columns import MESSAGE_COLUMNS
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, MESSAGES

# `copy` lacks, has settled or has another message than `other`, whose message the last columns
# describe. `differs` names the columns of `warren_store` in which the two messages differ.
DIFFERENCES: Final = pa.schema(
    [
        ("vhost", pa.string()),
        ("queue", pa.string()),
        ("priority", pa.int32()),
        ("seq", pa.int64()),
        ("kind", pa.string()),
        ("copy", pa.string()),
        ("other", pa.string()),
        ("differs", pa.list_(pa.string())),
        *[
            (name, MESSAGE_COLUMNS[name])
            for name in ("exchange", "routing_key", "message_id", "enqueued_at", "size")
        ],
    ]
)
# Columns of no meaning for a comparison, or that others stand for.
_LEFT_OUT: Final = ("vhost", "queue", "redelivered", "persistent", "headers")
_READ: Final = (
    *[name for name in MESSAGE_COLUMNS if name not in _LEFT_OUT],
    "exchange_raw",
    "routing_key_raw",
    "properties_raw",
)
# Names for people of columns with exact bytes.
_NAMES: Final = {"headers_raw": "headers", "properties_raw": "properties"}
_EXACT: Final = ("exchange_raw", "routing_key_raw", "properties_raw")


@dataclass(frozen=True)
class DescribeTask:
    """Rows of differences in `stretches`: an array with ROW_FIELDS, in the numpy file `rows`.

    Their description goes to the Parquet file `table`. `names` are those of the copies.
    """

    stretches: tuple[Stretch, ...]
    rows: Path
    table: Path
    vhost: str
    queue: str
    names: tuple[str, ...]


def describe(task: DescribeTask) -> int:
    """In a worker: write the differing messages as a table, and return how many rows it has.

    Raises ReadError and OSError.
    """
    rows = np.load(task.rows)
    described: list[dict[str, Any]] = []
    for stretch in task.stretches:
        is_here = (rows[:, 0] == stretch.priority) & (rows[:, 1] >= stretch.seq_from)
        here = rows[is_here & (rows[:, 1] < stretch.seq_to)]
        wanted: dict[int, set[int]] = {}
        for _, seq, kind, copy, other in here.tolist():
            wanted.setdefault(other, set()).add(seq)
            if kind == DIFFERS:
                wanted.setdefault(copy, set()).add(seq)
        messages = {place: _messages(stretch, place, seqs) for place, seqs in wanted.items()}
        for priority, seq, kind, copy, other in here.tolist():
            message = messages[other][seq]
            described.append(
                {
                    "vhost": task.vhost,
                    "queue": task.queue,
                    "priority": priority,
                    "seq": seq,
                    "kind": KIND_NAMES[kind],
                    "copy": task.names[copy],
                    "other": task.names[other],
                    "differs": _fields(messages[copy][seq], message) if kind == DIFFERS else [],
                }
                | {name: message[name] for name in DIFFERENCES.names[8:]}
            )
    described.sort(key=lambda row: (row["priority"], row["seq"], row["copy"]))
    pq.write_table(
        pa.Table.from_pylist(described, schema=DIFFERENCES), task.table, compression="zstd"
    )
    return len(described)


def _messages(stretch: Stretch, place: int, seqs: set[int]) -> dict[int, dict[str, Any]]:
    """The messages `seqs` of one copy by seq id, with digests for their bodies."""
    partition = stretch.sides[place].partition
    assert partition is not None
    schema = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in _READ])
    wanted = pa.array(sorted(seqs), pa.int64())
    found = {}
    for batch in read(partition, schema):
        for row in batch.filter(pc.is_in(batch.column("seq"), wanted)).to_pylist():
            row["body"] = hashlib.blake2b(row["body"]).digest()
            found[row["seq"]] = row
    return found


def _fields(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The fields in which two messages differ."""
    names = [name for name in _READ if name not in _EXACT and one[name] != other[name]]
    if not names:
        # Only bytes that no other column shows.
        names = [name for name in _EXACT if one[name] != other[name]]
    return [_NAMES.get(name, name.removesuffix("_raw")) for name in names]
