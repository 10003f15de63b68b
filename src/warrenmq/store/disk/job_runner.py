"""Runs the jobs of `store/jobs.py` on a file system, one at a time per lane, on whichever thread calls.

What a power failure or a failed call may leave is the old state or the new one, whole: everything that replaces
something is written beside it, synced, and put in its place by a rename. Only then is anything deleted.

A sync that fails has lost what it was about, and the next one would not say so (W27). So a path whose sync failed fails
every checkpoint that names it, until the engine has had it rewritten from what can still be read of it. A directory sync
that fails after a rename is made up for before the next checkpoint, which is the first that relies on it.
"""

import contextlib
import errno
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from warrenmq.store.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.content_scan import Source, compact_contents, find_contents
from warrenmq.store.disk.append_files import AppendFiles, FileGoneError
from warrenmq.store.disk.files import begin_new, keep_damage, put_aside, remove_if_there, write_new
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index_records import LiveRanges
from warrenmq.store.jobs import (
    AppendFile,
    CompactContents,
    FindContents,
    KeepDamage,
    PutAside,
    ReadRanges,
    RewriteSegment,
    StoreJob,
    WriteCheckpoint,
)
from warrenmq.store.record import FILE_HEADER_BYTES, body_is_valid, crc_seed, record_length

logger = logging.getLogger("warren.disk")

# Above this many files one call syncs the whole file system.
SYNC_EACH_MAX: Final = 64
# Compaction reads and writes no faster, so that disk and processor have time for others (W24); it rests after each of
# these pieces. In debt it is to come to an end sooner.
COMPACT_BYTES_PER_S: Final = 268435456
URGENT_BYTES_PER_S: Final = 1073741824
_COMPACT_PIECE_BYTES: Final = 1048576
# Records of a segment that are looked at in one go, less than a millisecond's worth.
_REWRITE_RECORDS: Final = 1024
# A range that gives one of these is lost; any other error may be over at the next try.
_UNREADABLE: Final = (errno.ENOENT, errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA)


class JobRunner:
    """Runs the jobs of one vhost, whose directory `files` is.

    `pause(seconds)` makes a compaction take its time; it may raise to end it.
    """

    def __init__(
        self,
        files: FileSystem,
        store_id: bytes,
        pause: Callable[[float], None] | None = None,
        reserve: SpaceReserve | None = None,
    ) -> None:
        self._files = files
        self._store_id = store_id
        self._pause = pause
        self._reserve = reserve
        self._appends = AppendFiles(files)
        # Paths whose sync failed, directories whose sync failed after a rename.
        self._doubtful: set[str] = set()
        self._unsynced_directories: set[str] = set()
        # A sync of everything failed when no checkpoint was at stake.
        self._is_sync_lost = False
        self._lines = LineLimit()

    def run(self, job: StoreJob) -> None:
        """Do the job; `job.error` says why not."""
        job.error = None
        try:
            self._run(job)
        except Exception as error:  # Whatever it was, the engine decides what a failed job means.
            job.error = error
            if self._reserve is not None:
                self._reserve.on_error(error)

    def close(self) -> None:
        """Close the files that are kept open."""
        self._appends.close_all()

    def _run(self, job: StoreJob) -> None:
        if isinstance(job, AppendFile):
            self._append(job)
        elif isinstance(job, ReadRanges):
            self._read_ranges(job)
        elif isinstance(job, WriteCheckpoint):
            self._write_checkpoint(job)
        elif isinstance(job, RewriteSegment):
            self._rewrite_segment(job)
        elif isinstance(job, FindContents):
            read, size, seed = self._source(job.path)
            job.found = find_contents(read, size, seed, job.wanted)
        elif isinstance(job, CompactContents):
            self._compact_contents(job)
        elif isinstance(job, KeepDamage):
            keep_damage(self._files, job.name, job.data)
        elif isinstance(job, PutAside):
            self._put_aside(job.path)
        else:
            raise TypeError(f"no such job: {job!r}")

    def _append(self, job: AppendFile) -> None:
        job.is_gone = False
        try:
            self._appends.append(job.path, job.offset, job.parts, job.is_new, job.may_fill)
        except FileGoneError as error:
            job.is_gone = True
            job.found_bytes = error.found_bytes
            raise

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read_ranges(self, job: ReadRanges) -> None:
        results: list[bytes | None] = []
        job.is_missing = False
        for path, offset, size in job.ranges:
            try:
                results.append(self._files.read(path, offset, size))
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                if self._lines.allows(path):
                    logger.error("%s cannot be read: %s", path, error)
                results.append(None)
                job.is_missing = job.is_missing or error.errno == errno.ENOENT
        job.results = results

    def _source(self, path: str) -> Source:
        return (
            partial(self._files.read, path),
            self._files.size(path),
            crc_seed(self._store_id, _file_number(path)),
        )

    # -- checkpoints -----------------------------------------------------------------------------------------------

    def _write_checkpoint(self, job: WriteCheckpoint) -> None:
        job.undeleted = []
        job.unsynced = []
        job.gone = []
        # The directory of a queue may be new as well. When everything was synced, so were the names.
        new: set[str] = set()
        if not self._sync_files(job):
            new = {_directory_of(path) for path in job.new_paths}
        for directory in sorted(self._unsynced_directories.union(new, map(_directory_of, new))):
            with contextlib.suppress(FileNotFoundError):
                self._files.sync_directory(directory)
        self._unsynced_directories.clear()
        while job.encode():
            # Others have their turn.
            time.sleep(0)
        self._put_checkpoint(job.content)
        self._delete(job)

    def _sync_files(self, job: WriteCheckpoint) -> bool:
        # True: not only those of the job, but everything there is.
        paths = list(dict.fromkeys(job.sync_paths))
        job.gone = [path for path in paths if self._appends.is_gone(path)]
        if self._is_sync_lost:
            self._is_sync_lost = False
            self._doubtful.update(paths)
        job.unsynced = [path for path in paths if path in self._doubtful]
        if job.unsynced:
            raise OSError(errno.EIO, "a sync failed before", job.unsynced[0])
        if len(paths) > SYNC_EACH_MAX or self._appends.has_closed_dirty:
            if self._sync_all(job, paths):
                return True
        failure: OSError | None = None
        for path in paths:
            try:
                handle, is_mine = self._appends.handle_to_sync(path)
            except FileNotFoundError:
                job.gone.append(path)
                continue
            try:
                handle.sync()
                self._appends.on_synced(path)
            except OSError as error:
                job.unsynced.append(path)
                failure = error
            finally:
                if is_mine:
                    with contextlib.suppress(OSError):
                        handle.close()
        if failure is not None:
            self._doubtful.update(job.unsynced)
            raise failure
        self._appends.has_closed_dirty = False
        return False

    def _sync_all(self, job: WriteCheckpoint, paths: list[str]) -> bool:
        try:
            is_done = self._files.sync_all()
        except OSError:
            job.unsynced = paths
            self._doubtful.update(paths)
            raise
        if is_done:
            self._appends.on_all_synced()
        return is_done

    def _put_checkpoint(self, content: bytes) -> None:
        files = self._files
        new_path = write_new(files, CHECKPOINT_NAME, [content])
        try:
            if files.exists(CHECKPOINT_NAME):
                # From here to the next rename the old one is to be found under its second name only.
                files.rename(CHECKPOINT_NAME, PREVIOUS_NAME)
            files.rename(new_path, CHECKPOINT_NAME)
        except OSError:
            remove_if_there(files, new_path)
            raise
        files.sync_directory("")

    def _delete(self, job: WriteCheckpoint) -> None:
        deleted: dict[str, list[str]] = {}
        for path in job.delete_paths:
            self._appends.close(path)
            self._doubtful.discard(path)
            try:
                self._files.unlink(path)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("%s cannot be deleted, it is tried again later: %s", path, error)
                job.undeleted.append(path)
                continue
            deleted.setdefault(_directory_of(path), []).append(path)
        is_durable = len(deleted) > SYNC_EACH_MAX and self._sync_deletions()
        for directory, paths in deleted.items():
            try:
                if not is_durable:
                    self._files.sync_directory(directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                logger.warning("deletions in %s are not durable: %s", directory or "/", error)
                job.undeleted.extend(paths)
                continue
            self._remove_if_empty(directory)

    def _sync_deletions(self) -> bool:
        try:
            return self._files.sync_all()
        except OSError:
            # It may have been about what the next checkpoint relies on, and is told only once (W27).
            self._is_sync_lost = True
            return False

    def _remove_if_empty(self, directory: str) -> None:
        # The directory of a queue goes with its last segment; it comes back with the next one.
        if _directory_of(directory).rpartition("/")[2] == "queues":
            with contextlib.suppress(OSError):
                if not self._files.list_names(directory):
                    self._files.remove_tree(directory)

    # -- copies ----------------------------------------------------------------------------------------------------

    def _rewrite_segment(self, job: RewriteSegment) -> None:
        files = self._files
        path = job.path
        data = files.read(path, 0, job.size)
        seed = crc_seed(self._store_id, _file_number(path))
        # One that was rewritten before a crash that no checkpoint came before is shorter, and whole.
        if len(data) < job.size and not _is_whole(data, seed):
            raise OSError(errno.EIO, f"{len(data)} bytes are left of {job.size}", path)
        if path in self._doubtful and not _is_whole(data, seed):
            raise OSError(errno.EIO, "what could not be synced cannot be read any more", path)
        live = LiveRanges(data, seed, job.settled, job.settled_transient)
        while live.step(_REWRITE_RECORDS):
            # Compiled code keeps the interpreter to itself: others have their turn here.
            time.sleep(0)
        parts = [data[offset : offset + length] for offset, length in live.ranges]
        new_path = write_new(files, path, parts)
        self._appends.close(path)
        directory = _directory_of(path)
        try:
            files.rename(new_path, path)
        except OSError:
            if files.exists(new_path):
                remove_if_there(files, new_path)
                raise
            # It was done, whatever was wrong: who takes the old one to be there would look in the wrong places.
        job.new_size = sum(map(len, parts))
        self._doubtful.discard(path)
        try:
            files.sync_directory(directory)
        except OSError as error:
            # The new file is in its place and is read from there; which of them a power failure leaves does not matter
            # before a checkpoint speaks of the new one.
            logger.warning("a rename in %s is not durable yet: %s", directory, error)
            self._unsynced_directories.add(directory)

    def _put_aside(self, path: str) -> None:
        self._appends.close(path)
        self._doubtful.discard(path)
        with contextlib.suppress(FileNotFoundError):
            logger.error("%s is given up; it is %s now", path, put_aside(self._files, path))

    def _compact_contents(self, job: CompactContents) -> None:
        files = self._files
        if files.exists(job.target_path):
            raise FileExistsError(
                errno.EEXIST, "the target of a compaction is in the way", job.target_path
            )
        pace = _Pace(self._pause, URGENT_BYTES_PER_S if job.is_urgent else COMPACT_BYTES_PER_S)
        sources = [pace.source(self._source(path)) for path in job.source_paths]
        new_path, handle = begin_new(files, job.target_path)
        end = 0

        def write(parts: list[bytes]) -> None:
            nonlocal end
            size = sum(map(len, parts))
            handle.write(end, parts)
            # One sync of all of it in the end would keep the journal's waiting.
            handle.write_back(end, size)
            end += size
            pace.spend(size)

        try:
            try:
                copied, damaged = compact_contents(
                    sources, job.live_ids, self._store_id, job.target_number, write
                )
                handle.sync()
            finally:
                with contextlib.suppress(OSError):
                    handle.close()
            files.rename(new_path, job.target_path)
            files.sync_directory(_directory_of(job.target_path))
        except Exception:  # Whatever it was, half a copy is of no use to anybody.
            remove_if_there(files, new_path)
            remove_if_there(files, job.target_path)
            raise
        job.copied = copied
        job.damaged = damaged


class _Pace:
    """Rests after what was read and written, so that it is no faster than `bytes_per_s`."""

    def __init__(self, pause: Callable[[float], None] | None, bytes_per_s: int) -> None:
        self._pause = pause
        self._bytes_per_s = bytes_per_s
        self._owed_bytes = 0

    def spend(self, size: int) -> None:
        """So many bytes were read or written."""
        self._owed_bytes += size
        if self._owed_bytes >= _COMPACT_PIECE_BYTES and self._pause is not None:
            self._pause(self._owed_bytes / self._bytes_per_s)
            self._owed_bytes = 0

    def source(self, source: Source) -> Source:
        """The same, at this pace."""
        read, size, seed = source

        def read_slowly(offset: int, length: int) -> bytes:
            data = read(offset, length)
            self.spend(len(data))
            return data

        return read_slowly, size, seed


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _file_number(path: str) -> int:
    """What the header of the content file or segment `path` says, which may be damaged; the name is not."""
    directory, _, name = path.rpartition("/")
    stem, _, kind = name.partition(".")
    number = int(stem)
    if kind == "idx":
        number |= int(directory.rpartition("/")[2]) << 32
    return number


def _is_whole(data: bytes, seed: int) -> bool:
    """Is every record of a file as it was written?"""
    at = FILE_HEADER_BYTES
    while at < len(data):
        length = record_length(data, at, seed)
        if length < 0 or not body_is_valid(data, at, length):
            return False
        at += length
    return True
