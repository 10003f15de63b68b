"""The jobs that the engine gives to the disk, as plain data.

The engine never waits: it hands out a job, a thread of the shell runs it
(`store/disk/job_runner.py`), and the loop calls `finished` afterwards, even when the job failed
(`error` is set then). Paths are relative to the vhost's directory. Jobs of one lane start in the
order in which they were handed out; lanes do not wait for each other:

    WRITE     appends to segments and to the transient content store, checkpoints, deletions,
              rewritten segments, copies of damage
    READ      loads
    COMPACT   copies of many megabytes: compaction of content files, backups
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64, mypyc_attr

from warrenmq.store.model.message import Position

WRITE: Final = 0
READ: Final = 1
COMPACT: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class StoreJob:
    """One piece of disk work. `error` says why it failed; None when it succeeded.

    `run_ns`: how long its last run took.
    """

    def __init__(self, lane: i64) -> None:
        self.lane: i64 = lane
        self.error: Exception | None = None
        self.run_ns: i64 = 0

    def finished(self) -> None:
        """Take over the result; called on the loop each time the job has run or failed."""
        raise RuntimeError("abstract")


@mypyc_attr(allow_interpreted_subclasses=True)
class AppendFile(StoreJob):
    """Write `parts` at `offset` of the file `path`, without a sync.

    Bytes behind `offset` are cut off first: they are the rest of a failed append, or older than the
    last crash. With `is_new` the file and its directories are created. A retry runs the same job
    again.
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
        # Fill a file that is shorter than `offset` with zeros instead of failing.
        self.may_fill: bool = False
        # Set by the runner: the file is gone or shorter than `offset`, so a retry cannot help.
        self.is_gone: bool = False
        # Bytes that are left of a file that `is_gone`.
        self.found_bytes: i64 = 0

    def join(self, following: AppendFile) -> bool:
        """Write the bytes of `following` too; False: it is not the next append to the same file."""
        if (
            following.path != self.path
            or following.offset != self.offset + self.size_bytes
            or following.may_fill
        ):
            return False
        self.parts = self.parts + following.parts
        self.size_bytes += following.size_bytes
        return True


class LeavingFile:
    """A file that leaves the journal: to `target` if its contents are needed, else for good."""

    def __init__(self, number: i64, path: str, target: str, is_needed: bool) -> None:
        self.number: i64 = number
        self.path: str = path
        self.target: str = target
        self.is_needed: bool = is_needed


@mypyc_attr(allow_interpreted_subclasses=True)
class WriteCheckpoint(StoreJob):
    """Put a checkpoint in place after syncing what it counts, then delete the files nothing needs.

    In this order: sync `sync_paths` (paths that are gone are skipped and listed in `gone`) and the
    directories of `new_paths`; rename the old checkpoint to `checkpoint.previous`; put `parts` in
    place as `checkpoint`; take `leaving` out of the journal, oldest first; delete `delete_paths`. A
    failed move or deletion does not fail the job: `unmoved` gets the rest of `leaving`, `undeleted`
    the path.
    """

    def __init__(
        self,
        parts: list[bytes],
        sync_paths: list[str],
        new_paths: list[str],
        delete_paths: list[str],
    ) -> None:
        super().__init__(WRITE)
        # The bytes of the checkpoint, in order.
        self.parts: list[bytes] = parts
        self.sync_paths: list[str] = sync_paths
        self.new_paths: list[str] = new_paths
        self.delete_paths: list[str] = delete_paths
        self.undeleted: list[str] = []
        self.leaving: list[LeavingFile] = []
        self.unmoved: list[LeavingFile] = []
        # Paths of `sync_paths` whose sync failed: bytes written since the sync before may be lost
        # (W27).
        self.unsynced: list[str] = []
        # Paths of `sync_paths` whose file is gone.
        self.gone: list[str] = []

    def encode(self) -> bool:
        """Encode some more of `parts`; called before the write until it returns False."""
        return False


@mypyc_attr(allow_interpreted_subclasses=True)
class RewriteSegment(StoreJob):
    """Replace segment `path` by a synced copy without its settled records.

    Copied are the records in the first `size` bytes whose seq ids are in none of the inclusive
    `settled` runs; records of transient positions, those in none of `settled_transient`. `new_size`
    gets the new file's size in bytes. Records keep their bytes: the file number, and so every CRC,
    stays the same. A damaged stretch is copied as it is, since nobody can know what it held. A file
    shorter than `size` was rewritten before a crash if its records are whole; otherwise the job
    fails (`was_shorter`: it may lack live records, if a repair wrote it). Contents in the journal
    files `emptied`, (number, path), are copied into the segment;
    `referred_bytes` gets the bytes of the records that entries refer to after that. `missing` gets
    the seq ids of the runs `wanted` that no whole record of the segment has.
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
        self.emptied: list[tuple[i64, str]] = []
        self.wanted: list[tuple[i64, i64]] = []
        self.new_size: i64 = 0
        self.missing: list[tuple[i64, i64]] = []
        self.referred_bytes: i64 = 0
        self.was_shorter: bool = False


class SearchedLog:
    """A journal file in which the entries of the seq ids [first, last] are to be found again."""

    def __init__(self, path: str, number: i64, first: i64, last: i64) -> None:
        self.path: str = path
        self.number: i64 = number
        self.first: i64 = first
        self.last: i64 = last


@mypyc_attr(allow_interpreted_subclasses=True)
class RepairSegment(StoreJob):
    """Replace segment `path` by a synced copy with the entries that its damage has taken.

    The entries of `queue_id` are found again in the journal files `logs`, except those of `settled`
    seq ids. Damaged bytes are left out, and so are bytes behind `size`. `new_size` gets the new
    file's size in bytes. `is_unreadable`: the segment itself could not be read.
    """

    def __init__(
        self,
        path: str,
        size: i64,
        queue_id: i64,
        settled: list[tuple[i64, i64]],
        logs: list[SearchedLog],
    ) -> None:
        super().__init__(WRITE)
        self.path: str = path
        self.size: i64 = size
        self.queue_id: i64 = queue_id
        self.settled: list[tuple[i64, i64]] = settled
        self.logs: list[SearchedLog] = logs
        self.new_size: i64 = 0
        self.is_unreadable: bool = False


@mypyc_attr(allow_interpreted_subclasses=True)
class ReadRanges(StoreJob):
    """Read (path, offset, size in bytes) ranges into `results`.

    A result is shorter where its file ends, and None when the range cannot be read (gone, EIO).
    `is_missing`: a file is gone, so a retry is of no use. `queue_id` says whose messages they are.
    """

    def __init__(self, ranges: list[tuple[str, i64, i64]], queue_id: i64) -> None:
        super().__init__(READ)
        self.queue_id: i64 = queue_id
        self.ranges: list[tuple[str, i64, i64]] = ranges
        self.results: list[bytes | None] = []
        self.is_missing: bool = False


class ReadAheadRanges(StoreJob):
    """Let the disk read (path, offset, size in bytes) ranges ahead: a later job will want them."""

    def __init__(self, ranges: list[tuple[str, i64, i64]]) -> None:
        super().__init__(READ)
        self.ranges: list[tuple[str, i64, i64]] = ranges

    def finished(self) -> None:
        """Do nothing: a later load reads what this job has not read ahead."""


@mypyc_attr(allow_interpreted_subclasses=True)
class FindContents(StoreJob):
    """Search content file `path` for the content ids `wanted`; their known locations are stale.

    Reads the whole file, for a message of the queue `queue_id`. `found` maps each id that was found
    to (offset, the record's bytes).
    """

    def __init__(self, path: str, wanted: list[i64], queue_id: i64) -> None:
        super().__init__(READ)
        self.queue_id: i64 = queue_id
        self.path: str = path
        self.wanted: list[i64] = wanted
        self.found: dict[int, tuple[int, bytes]] = {}


@mypyc_attr(allow_interpreted_subclasses=True)
class CompactContents(StoreJob):
    """Copy the live contents of one or more content files to a new, synced file.

    Copies the contents `live_ids` (ascending) of the files `source_paths` (in order of their ids)
    to `target_path`, whose file number is `target_number`. `copied` gets (id, offset in the target,
    size of the record in bytes) of each content. An id whose record is damaged is left out and
    listed in `damaged`. The sources stay as they are. The copy is slowed down, less so when it
    `is_urgent`.
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
    """Copy damaged bytes to lost+found as `name`; skips zeros and a name that exists already."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__(WRITE)
        self.name: str = name
        self.data: bytes = data


@mypyc_attr(allow_interpreted_subclasses=True)
class PutAside(StoreJob):
    """Move the unusable file `path` to lost+found, durably; a file that is gone is no failure."""

    def __init__(self, path: str) -> None:
        super().__init__(WRITE)
        self.path: str = path


@mypyc_attr(allow_interpreted_subclasses=True)
class LoadDone:
    """Receives the result of a load: the messages that were read from disk."""

    def on_loaded(self, positions: list[Position], next_seq: i64) -> None:
        """Take the live positions found, in order; the next load starts at `next_seq`.

        If contents were asked for, a position without content is lost: the receiver passes it to
        `QueueStore.lose`, unless it has another position of the same message. Positions whose
        records are damaged are not among them; `QueueStore.take_lost` counts these.
        """
        raise RuntimeError("abstract")

    def on_contents(self, positions: list[Position], lost: list[Position]) -> None:
        """Take `positions` with their contents, except those that were settled during the load.

        The contents of `lost` cannot be read any more: the receiver passes them to
        `QueueStore.lose`.
        """
        raise RuntimeError("abstract")
