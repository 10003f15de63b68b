"""Requests and replies of the admin protocol about stores; `control.py` has the others."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from warrenmq.admin.protocol.fields import Position, ShortStr

Name = Annotated[str, Meta(max_length=255)]
SegmentCount = Annotated[int, Meta(ge=1, le=4096)]
# The content stores of a vhost.
StoreName = Literal["persistent", "transient"]


class CompactStores(Struct, tag="compact_stores", forbid_unknown_fields=True, frozen=True):
    """Copy the content files with garbage, though they may have too little to be due.

    None: all vhosts, both stores, the node of the session. Reply: CompactionBegun, at once; the
    node copies one file of a store after the other (`ContentStatus.wanted_files`).
    """

    vhost: Name | None = None
    store: StoreName | None = None
    node: Name | None = None


class StoreCompaction(Struct, frozen=True):
    """What is to be copied of one content store: files, and the bytes of garbage in them."""

    vhost: str
    store: StoreName
    files: int
    garbage_bytes: int


class CompactionBegun(Struct, tag="compaction_begun", frozen=True):
    """What `node` is about to copy; nothing of a store without files worth it."""

    node: str
    stores: list[StoreCompaction]


class DescribeFiles(Struct, tag="describe_files", forbid_unknown_fields=True, frozen=True):
    """The files of a vhost's store at the node of the session. Reply: StoreFiles."""

    vhost: Name


class StoreFile(Struct, array_like=True, frozen=True):
    """A file: its number, its bytes, and those of them that some queue needs.

    `is_current`: more is being written to it. `is_copied`: what is needed of it is being copied.
    `is_pinned`: a backup takes it. `readers`: the queues whose messages are being read from it.
    """

    number: int
    size_bytes: int
    valid_bytes: int
    is_current: bool
    is_copied: bool
    is_pinned: bool = False
    readers: list[str] = []


class StoreFiles(Struct, tag="store_files", frozen=True):
    """The first files of each kind, in their order; `left_off` counts those behind them.

    `logs`: journal files that stay for the contents in them. `is_backed_up`: a backup is being
    taken, until whose end nothing is deleted; `pinned` counts files that nothing else needs any
    more.
    """

    journal: list[StoreFile]
    logs: list[StoreFile]
    persistent: list[StoreFile]
    transient: list[StoreFile]
    left_off: int
    is_backed_up: bool
    pinned: int = 0


class DescribeCompactions(
    Struct, tag="describe_compactions", forbid_unknown_fields=True, frozen=True
):
    """The last compactions of a vhost's store at the node of the session. Reply: Compactions."""

    vhost: Name


class CompactionRun(Struct, frozen=True):
    """A compaction that has ended: `files` were copied to the file `target`. Times: ms since 1970.

    `freed_bytes` of `size_bytes` go with the next checkpoint. `is_asked`: the files had too little
    garbage for a compaction without a request. `is_failed`: nothing has changed.
    """

    store: StoreName
    files: list[int]
    target: int
    began_ms: int
    ended_ms: int
    size_bytes: int
    freed_bytes: int
    is_asked: bool
    is_failed: bool


class Compactions(Struct, tag="compactions", frozen=True):
    """Compactions since the start of the node, the last one last; earlier ones are forgotten.

    `now_ms` is the node's time.
    """

    now_ms: int
    runs: list[CompactionRun]


class DescribeSegments(Struct, tag="describe_segments", forbid_unknown_fields=True, frozen=True):
    """Segments of the index of a queue at the node of the session. Reply: QueueSegments.

    `skip` of them are left out, those of the lowest positions first.
    """

    vhost: Name
    queue: ShortStr
    skip: Position = 0
    count: SegmentCount = 1000


class QueueSegment(Struct, array_like=True, frozen=True):
    """A segment: positions from `number` times the `entries` of a full one on.

    `level` is the priority of the part of the queue that has it. `entries` counts the messages that
    were written to it, `pending` those of them that nobody has acked. `is_full`: nothing more is
    written to it. `is_rewritten`: a copy without what is acked is being made.
    """

    level: int
    number: int
    entries: int
    pending: int
    size_bytes: int
    is_full: bool
    is_rewritten: bool


class QueueSegments(Struct, tag="queue_segments", frozen=True):
    """Some of the `total` segments of a queue, and what is in none of them yet.

    `unindexed` messages are in the journal alone, or in memory if they need not outlive the node.
    """

    total: int
    segment_entries: int
    segments: list[QueueSegment]
    unindexed: int
