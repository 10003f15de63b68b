"""The parts of a partition: files of a vhost, with the facts that planning found. All picklable."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from warrenmq.tables.contents import ContentTable
from warrenmq.tables.file_scan import Array

INDEX: Final = "index"
JOURNAL_FILE: Final = "journal"
CONTENT_FILE: Final = "content"
# A journal file that has left the journal, and stays as a file of contents.
LOG: Final = "log"
OTHER: Final = "other"

VERIFY_CRC: Final = "crc"
VERIFY_NONE: Final = "none"


@dataclass(frozen=True)
class ReadOptions:
    """The rows of a table to read. Ranges are [from, to); times are in milliseconds since 1970.

    `queue_ids` names queues, levels of queues and stages by their ids in the store, in place of
    `queues`: levels have no names of their own. With `verify` "none" the checksums of bodies are
    not compared, and contents that no column needs are not read. None means no limit.
    """

    vhost: str | None = None
    queues: tuple[str, ...] | None = None
    queue_ids: tuple[int, ...] | None = None
    seq_from: int | None = None
    seq_to: int | None = None
    enqueued_from_ms: int | None = None
    enqueued_to_ms: int | None = None
    verify: str = VERIFY_CRC


def no_runs() -> Array:
    """An empty table of runs of seq ids."""
    return np.empty((0, 2), np.int64)


def no_stretches() -> Array:
    """An empty table of logs and seq ids."""
    return np.empty((0, 3), np.int64)


@dataclass(frozen=True)
class QueuePart:
    """A queue in a file; `name` is None without a definition: no client can get its messages."""

    id: int
    name: str | None
    # Messages at or below this seq id were delivered.
    delivered_upto: int
    # Positions below this seq id are in the index or settled.
    indexed_upto: int
    # For a segment: inclusive runs of settled seq ids, in two columns. For a journal file: the seq
    # ids that are alive in it, ascending.
    seqs: Array
    # Inclusive runs of delivered seq ids above `delivered_upto`, in two columns.
    delivered: Array = field(default_factory=no_runs)
    # For a journal file or a log: inclusive runs of seq ids whose contents in it the index may
    # need, in two columns; only for the table `files`.
    referred: Array = field(default_factory=no_runs)


@dataclass(frozen=True)
class FilePart:
    """One file, or one range of seq ids of a segment that was split."""

    kind: str
    # Path relative to the vhost's directory.
    path: str
    # Number that seeds the checksums of the file.
    number: int
    # Bytes of the file that are valid.
    size: int
    queues: tuple[QueuePart, ...] = ()
    # First seq id of this part.
    seq_from: int = 0
    # Seq id behind the last one of this part.
    seq_to: int = 1 << 62
    # For a segment: the logs that may have contents of it, in three columns: number of the log,
    # first and last seq id.
    referred: Array = field(default_factory=no_stretches)
    # For a segment: live positions in it, by the accounts of the store.
    live_count: int = 0
    # The segment lacks bytes, or a start would write it anew: `repair.py` reads it.
    is_repaired: bool = False
    # Content ids with references left, ascending; only for a content file.
    live_ids: Any = None
    # Bytes of contents with references left; only for a content file.
    live_bytes: int = 0


@dataclass(frozen=True)
class Partition:
    """The files and rows that one task reads."""

    table: str
    options: ReadOptions
    directory: Path
    vhost_path: Path
    vhost: str
    store_id: bytes
    contents: ContentTable
    parts: tuple[FilePart, ...] = ()
    # Rows that planning has found, ready to be returned.
    rows: tuple[dict[str, Any], ...] = field(default=(), repr=False)
