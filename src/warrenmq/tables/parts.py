"""What a partition consists of: files of a vhost, with what is known of them. All of it can be pickled."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from warrenmq.tables.contents import ContentTable
from warrenmq.tables.file_scan import Array

INDEX: Final = "index"
JOURNAL_FILE: Final = "journal"
CONTENT_FILE: Final = "content"
OTHER: Final = "other"

VERIFY_CRC: Final = "crc"
VERIFY_NONE: Final = "none"


@dataclass(frozen=True)
class ReadOptions:
    """What of a table is wanted. Ranges are [from, to); times in milliseconds since 1970.

    With `verify` "none" the checksums of bodies are not compared, and contents that no column asks for are not read.
    """

    vhost: str | None = None
    # None: all.
    queues: tuple[str, ...] | None = None
    seq_from: int | None = None
    seq_to: int | None = None
    enqueued_from_ms: int | None = None
    enqueued_to_ms: int | None = None
    verify: str = VERIFY_CRC


@dataclass(frozen=True)
class QueuePart:
    """A queue in a file. `name` is None when no definition names it; then its messages are nobody's."""

    id: int
    name: str | None
    # Highest seq id that was ever delivered; positions below `indexed_upto` are in the index or settled.
    delivered_upto: int
    indexed_upto: int
    # In a segment: inclusive runs of settled seq ids, two columns. In a journal file: the seq ids alive in it, ascending.
    seqs: Array


@dataclass(frozen=True)
class FilePart:
    """One file. `size` are the bytes of it that count; `number` seeds its checksums."""

    kind: str
    # Relative to the vhost's directory.
    path: str
    number: int
    size: int
    queues: tuple[QueuePart, ...] = ()
    # Seq ids that this part is about, when a segment was split.
    seq_from: int = 0
    seq_to: int = 1 << 62
    # Of a content file: the ids with references left, ascending.
    live_ids: Any = None
    live_bytes: int = 0


@dataclass(frozen=True)
class Partition:
    """What one task reads."""

    table: str
    options: ReadOptions
    directory: Path
    vhost_path: Path
    vhost: str
    store_id: bytes
    contents: ContentTable
    parts: tuple[FilePart, ...] = ()
    # Rows that were found in planning.
    rows: tuple[dict[str, Any], ...] = field(default=(), repr=False)
