"""What the engine asks of the disk, as plain data.

The engine never waits: it hands a job out, a thread of the shell runs it (`store/disk/job_runner.py`), and `finished`
is called on the loop afterwards, also when it failed (`error` is set then). Paths are relative to the vhost's
directory. Jobs of one lane run in the order in which they were handed out; lanes do not wait for each other:

    WRITE     appends to segments and contents that nobody waits for, checkpoints, deletions, rewritten segments
    READ      loads
    COMPACT   copies of many megabytes: compaction of content files, backups
"""

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.message import Position

WRITE: Final = 0
READ: Final = 1
COMPACT: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreJob:
    """One piece of disk work."""

    def __init__(self, lane: i64) -> None:
        self.lane: i64 = lane
        self.error: Exception | None = None

    def finished(self) -> None:
        """The job has run or failed; called once, on the loop."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class AppendFile(StoreJob):
    """Write `parts` at `offset` of the file `path`. It is not synced.

    What lies behind `offset` is cut off first: the rest of an append that failed, or of a life before a crash. With
    `is_new` the file, and its directories, are made. A retry after a failure is the same job again.
    """

    def __init__(self, path: str, offset: i64, parts: list[bytes], is_new: bool) -> None:
        super().__init__(WRITE)
        self.path: str = path
        self.offset: i64 = offset
        self.parts: list[bytes] = parts
        self.size_bytes: i64 = 0
        for part in parts:
            self.size_bytes += len(part)
        self.is_new: bool = is_new
        # With it, a file that is shorter than `offset` is filled up with zeros.
        self.may_fill: bool = False
        # Set when that is why it failed: the file is gone or too short, and no further try will help. So many bytes are there.
        self.is_gone: bool = False
        self.found_bytes: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteCheckpoint(StoreJob):
    """Sync `sync_paths` (those that are gone are skipped, and told in `gone`) and the directories of `new_paths`, then put `content` in
    place of `checkpoint`, whose old content becomes `checkpoint.previous`; then delete `delete_paths`.

    A failure of the deletions alone is no failure: what could not be deleted is left in `undeleted`.
    """

    def __init__(
        self, content: bytes, sync_paths: list[str], new_paths: list[str], delete_paths: list[str]
    ) -> None:
        super().__init__(WRITE)
        self.content: bytes = content
        self.sync_paths: list[str] = sync_paths
        self.new_paths: list[str] = new_paths
        self.delete_paths: list[str] = delete_paths
        self.undeleted: list[str] = []
        # Those of `sync_paths` whose sync failed: what was written to them since the last one may be lost (W27).
        self.unsynced: list[str] = []
        # Those that are gone.
        self.gone: list[str] = []

    def encode(self) -> bool:
        """Go on with making `content`, some of it; called, before it is written, until it returns False."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class RewriteSegment(StoreJob):
    """Copy the records of segment `path` (its first `size` bytes) whose seq ids are in none of the inclusive
    `settled` runs, those of transient positions in none of `settled_transient`, to a new file, sync it and put it in the
    place of the old one.

    `new_size` is set to the new file's size in bytes. Records keep their bytes: the file number, and so every CRC, is
    the same. A damaged stretch is copied as it is, since what it was cannot be told. A file that is shorter than `size`
    was rewritten before a crash, if its records are whole; else the job fails.
    """

    def __init__(
        self,
        path: str,
        size: i64,
        settled: list[tuple[i64, i64]],
        settled_transient: list[tuple[i64, i64]],
    ) -> None:
        super().__init__(WRITE)
        self.path: str = path
        self.size: i64 = size
        self.settled: list[tuple[i64, i64]] = settled
        self.settled_transient: list[tuple[i64, i64]] = settled_transient
        self.new_size: i64 = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadRanges(StoreJob):
    """Read (path, offset, size in bytes) ranges; `results` gets the bytes of each, shorter at the end of a file, and
    None for a range that cannot be read (gone, EIO). `is_missing`: a file is gone, to try again is of no use."""

    def __init__(self, ranges: list[tuple[str, i64, i64]]) -> None:
        super().__init__(READ)
        self.ranges: list[tuple[str, i64, i64]] = ranges
        self.results: list[bytes | None] = []
        self.is_missing: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class FindContents(StoreJob):
    """Look for the content ids `wanted` in content file `path`; `found` maps an id to (offset, the record's bytes).

    For locations that turned out to be out of date; reads the whole file.
    """

    def __init__(self, path: str, wanted: list[i64]) -> None:
        super().__init__(READ)
        self.path: str = path
        self.wanted: list[i64] = wanted
        self.found: dict[int, tuple[int, bytes]] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class CompactContents(StoreJob):
    """Copy the contents `live_ids` (ascending) of the files `source_paths` (in order of their ids) to the new file
    `target_path` with file number `target_number`, and sync it.

    `copied` gets (id, offset in the target, record bytes) of each; ids whose record is damaged are left out and listed
    in `damaged`. The sources stay as they are. It takes its time, less when it `is_urgent`.
    """

    def __init__(
        self, source_paths: list[str], target_path: str, target_number: i64, live_ids: list[i64]
    ) -> None:
        super().__init__(COMPACT)
        self.source_paths: list[str] = source_paths
        self.target_path: str = target_path
        self.target_number: i64 = target_number
        self.live_ids: list[i64] = live_ids
        self.is_urgent: bool = False
        self.copied: list[tuple[i64, i64, i64]] = []
        self.damaged: list[i64] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class KeepDamage(StoreJob):
    """Put a copy of damaged bytes into lost+found, under `name`; not twice, and no stretch of zeros."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(WRITE)
        self.name: str = name
        self.data: bytes = data


@mypyc_attr(allow_interpreted_subclasses=True)
class PutAside(StoreJob):
    """Move the file `path` to lost+found, durably, since it is given up; one that is gone is no failure."""

    def __init__(self, path: str) -> None:
        super().__init__(WRITE)
        self.path: str = path


@mypyc_attr(allow_interpreted_subclasses=True)
class LoadDone:
    """Someone who has asked for messages from the disk."""

    def on_loaded(self, positions: list[Position], next_seq: i64, damaged: i64) -> None:
        """The live positions found, in order; the next load goes on at `next_seq`.

        They have their content, if it was asked for. Without it the content cannot be had any more: it is `QueueStore.lose`
        for who has no other position of the same message. `damaged` positions in between could not be read; the store
        has counted and reported them.
        """
        raise RuntimeError("abstract")

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        """`positions` have their content, but for those that were settled meanwhile; that of `lost` cannot be had any more:
        they are for `QueueStore.lose`."""
        raise RuntimeError("abstract")
