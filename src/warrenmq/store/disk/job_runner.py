"""Runs the jobs of `store/jobs/job.py` on a file system, on the thread that calls.

A power failure or a failed call leaves the old state or the new one, whole: a file that replaces
another is written beside it, synced, and put in its place by a rename. Only then are files deleted.

A failed sync may have lost bytes, and the next sync would not report that (W27). So a path whose
sync failed fails every checkpoint that names it, until the engine has had the file rewritten from
the bytes that can still be read. When a directory sync fails after a rename, the next checkpoint
repeats it, since no earlier step relies on the name.
"""

import contextlib
import errno
import logging
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

from warrenmq.store.contents.scan import Source, compact_contents, find_contents
from warrenmq.store.disk.append_files import AppendFiles, FileGoneError
from warrenmq.store.disk.files import begin_new, keep_damage, put_aside, remove_if_there, write_new
from warrenmq.store.disk.line_limit import LineLimit
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.entry_search import SegmentRepair
from warrenmq.store.index.segment_copy import SegmentCopy, places_in
from warrenmq.store.jobs.job import (
    AppendFile,
    CompactContents,
    FindContents,
    KeepDamage,
    PutAside,
    ReadAheadRanges,
    ReadRanges,
    RepairSegment,
    RewriteSegment,
    StoreJob,
    WriteCheckpoint,
)
from warrenmq.store.model.layout import JOURNAL_NAME, PERSISTENT_NAME
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.records.record import FILE_HEADER_BYTES, body_is_valid, crc_seed, record_length

logger = logging.getLogger("warren.disk")

# More files than this are synced by one call for the whole file system.
SYNC_EACH_MAX: Final = 64
# Compaction reads and writes no faster than this, to leave disk and processor to others (W24).
COMPACT_BYTES_PER_S: Final = 268435456
# Limit of an urgent compaction: while the store is in debt, it must end sooner.
URGENT_BYTES_PER_S: Final = 1073741824
# Compaction pauses after each piece of this size.
_COMPACT_PIECE_BYTES: Final = 1048576
# Records of a journal file with at most this gap (bytes) between them are read together.
NEAR_BYTES: Final = 16384
# Records of a segment that one step of a rewrite scans; a step takes less than a millisecond.
_REWRITE_RECORDS: Final = 1024
# Errors that mean a range cannot be read; after any other error a retry may succeed.
_UNREADABLE: Final = (errno.ENOENT, errno.EIO, errno.EUCLEAN, errno.EBADMSG, errno.ENODATA)


class JobRunner:
    """Runs the jobs of one vhost; `files` is its directory.

    `pause(seconds)` slows down a compaction; it may raise to abort it.
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
        # Paths whose sync failed and that were not rewritten since.
        self._doubtful: set[str] = set()
        # Directories whose sync failed after a rename.
        self._unsynced_directories: set[str] = set()
        # A sync of the whole file system failed after a checkpoint: the next checkpoint takes all
        # its paths for doubtful.
        self._is_sync_lost = False
        self._lines = LineLimit()

    def run(self, job: StoreJob) -> None:
        """Run the job; sets `job.error` when it fails."""
        job.error = None
        try:
            self._run(job)
        except Exception as error:  # The engine decides for any error what a failed job means.
            job.error = error
            if self._reserve is not None:
                self._reserve.on_error(error)

    def run_cached(self, job: ReadRanges) -> bool:
        """Run a read if the system has all of it in memory; False: it must `run`, and may wait."""
        results: list[bytes | None] = []
        for path, ranges in groupby(job.ranges, itemgetter(0)):
            pieces = [(int(offset), int(size)) for _, offset, size in ranges]
            found = self._files.read_cached(path, pieces)
            if found is None:
                return False
            results += found
        job.error = None
        job.is_missing = False
        job.results = results
        return True

    def close(self) -> None:
        """Close the segment files that are kept open."""
        self._appends.close_all()

    def _run(self, job: StoreJob) -> None:
        if isinstance(job, AppendFile):
            self._append(job)
        elif isinstance(job, ReadRanges):
            self._read_ranges(job)
        elif isinstance(job, ReadAheadRanges):
            self._read_ahead(job)
        elif isinstance(job, WriteCheckpoint):
            self._write_checkpoint(job)
        elif isinstance(job, RewriteSegment):
            self._rewrite_segment(job)
        elif isinstance(job, RepairSegment):
            self._repair_segment(job)
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

    # -- reading -----------------------------------------------------------------------------------

    def _read_ranges(self, job: ReadRanges) -> None:
        results: list[bytes | None] = []
        job.is_missing = False
        for path, ranges in groupby(job.ranges, itemgetter(0)):
            pieces = [(int(offset), int(size)) for _, offset, size in ranges]
            try:
                results += self._read_pieces(path, pieces)
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                if len(pieces) == 1 or error.errno == errno.ENOENT:
                    results += [None] * len(pieces)
                    self._on_unreadable(job, path, error)
                else:
                    results += [self._read_one(job, path, piece) for piece in pieces]
        job.results = results

    def _read_ahead(self, job: ReadAheadRanges) -> None:
        for path, ranges in groupby(job.ranges, itemgetter(0)):
            self._files.will_read(path, [(int(offset), int(size)) for _, offset, size in ranges])

    def _read_one(self, job: ReadRanges, path: str, piece: tuple[int, int]) -> bytes | None:
        try:
            return self._read_pieces(path, [piece])[0]
        except OSError as error:
            if error.errno not in _UNREADABLE:
                raise
            self._on_unreadable(job, path, error)
            return None

    def _on_unreadable(self, job: ReadRanges, path: str, error: OSError) -> None:
        if self._lines.allows(path):
            logger.error("%s cannot be read: %s", path, error)
        job.is_missing = job.is_missing or error.errno == errno.ENOENT

    def _read_pieces(self, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        try:
            return self._files.read_pieces(path, pieces)
        except FileNotFoundError:
            directory, _, name = path.partition("/")
            if directory != JOURNAL_NAME:
                raise
            # A checkpoint has moved the file out of the journal since the job was made.
            return self._files.read_pieces(f"{PERSISTENT_NAME}/{name}", pieces)

    def _read_whole(self, path: str) -> bytes:
        """All bytes of a journal file, which may have left the journal since the job was made."""
        if not self._files.exists(path):
            path = f"{PERSISTENT_NAME}/{path.rpartition('/')[2]}"
        return self._files.read(path, 0, self._files.size(path))

    def _read_records(self, path: str, places: list[tuple[int, int]]) -> dict[int, bytes]:
        """The bytes at each (offset, size) of a journal file, by offset; near ones in one read."""
        ranges: list[tuple[int, int]] = []
        for offset, size in sorted(places):
            start, length = ranges[-1] if ranges else (0, -NEAR_BYTES - 1)
            if offset - start - length <= NEAR_BYTES:
                ranges[-1] = (start, max(length, offset + size - start))
            else:
                ranges.append((offset, size))
        parts = self._read_pieces(path, ranges) if ranges else []
        found: dict[int, bytes] = {}
        number = -1
        end = 0
        for offset, size in sorted(places):
            if number < 0 or offset >= end:
                number += 1
                end = sum(ranges[number])
            start = offset - ranges[number][0]
            found[offset] = parts[number][start : start + size]
        return found

    def _source(self, path: str) -> Source:
        return (
            partial(self._files.read, path),
            self._files.size(path),
            crc_seed(self._store_id, _file_number(path)),
        )

    # -- checkpoints -------------------------------------------------------------------------------

    def _write_checkpoint(self, job: WriteCheckpoint) -> None:
        job.undeleted = []
        job.unsynced = []
        job.gone = []
        # The directory of a queue may be new as well. A sync of the whole file system has synced
        # the names too.
        new: set[str] = set()
        if not self._sync_files(job):
            new = {_directory_of(path) for path in job.new_paths}
        for directory in sorted(self._unsynced_directories.union(new, map(_directory_of, new))):
            with contextlib.suppress(FileNotFoundError):
                self._files.sync_directory(directory)
        self._unsynced_directories.clear()
        while job.encode():
            # Let other threads run.
            time.sleep(0)
        self._put_checkpoint(job.parts)
        self._move_logs(job)
        self._delete(job)

    def _sync_files(self, job: WriteCheckpoint) -> bool:
        # Returns True when the whole file system was synced, not only the files of the job.
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

    def _put_checkpoint(self, parts: list[bytes]) -> None:
        files = self._files
        new_path = write_new(files, CHECKPOINT_NAME, parts)
        try:
            if files.exists(CHECKPOINT_NAME):
                # From here to the next rename only `checkpoint.previous` exists.
                files.rename(CHECKPOINT_NAME, PREVIOUS_NAME)
            files.rename(new_path, CHECKPOINT_NAME)
        except OSError:
            remove_if_there(files, new_path)
            raise
        files.sync_directory("")

    def _move_logs(self, job: WriteCheckpoint) -> None:
        """Take files out of the journal, oldest first; the first that stays keeps all later ones.

        The journal remains without gaps then, whenever the node ends.
        """
        job.unmoved = []
        done = 0
        try:
            for log in job.leaving:
                with contextlib.suppress(FileNotFoundError):
                    if log.is_needed:
                        self._move(log.path, log.target)
                    else:
                        self._files.unlink(log.path)
                done += 1
        except OSError as error:
            logger.warning("%s cannot leave the journal yet: %s", job.leaving[done].path, error)
            job.unmoved = job.leaving[done:]
        if done == 0:
            return
        try:
            self._files.sync_directory(PERSISTENT_NAME)
            self._files.sync_directory(JOURNAL_NAME)
        except OSError as error:
            logger.warning("files that have left the journal may come back: %s", error)
            self._unsynced_directories.update((PERSISTENT_NAME, JOURNAL_NAME))

    def _move(self, path: str, target: str) -> None:
        """Rename a file, or copy it if an administrator has put its new directory elsewhere."""
        files = self._files
        try:
            files.rename(path, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            files.rename(write_new(files, target, [self._read_whole(path)]), target)
            files.sync_directory(PERSISTENT_NAME)
            files.unlink(path)

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
            # The lost bytes may be some that the next checkpoint counts, and no later sync reports
            # the loss (W27).
            self._is_sync_lost = True
            return False

    def _remove_if_empty(self, directory: str) -> None:
        # A queue's directory is removed with its last segment; the next segment creates it again.
        if _directory_of(directory).rpartition("/")[2] == "queues":
            with contextlib.suppress(OSError):
                if not self._files.list_names(directory):
                    self._files.remove_tree(directory)

    # -- copies ------------------------------------------------------------------------------------

    def _rewrite_segment(self, job: RewriteSegment) -> None:
        files = self._files
        path = job.path
        data = files.read(path, 0, job.size)
        seed = crc_seed(self._store_id, _file_number(path))
        # A file that was rewritten before a crash, with no checkpoint in between, is shorter and
        # whole.
        if len(data) < job.size and not _is_whole(data, seed):
            raise OSError(errno.EIO, f"{len(data)} bytes are left of {job.size}", path)
        job.was_shorter = len(data) < job.size
        if path in self._doubtful and not _is_whole(data, seed):
            raise OSError(errno.EIO, "what could not be synced cannot be read any more", path)
        places = places_in(data, seed, job.settled, [number for number, _ in job.emptied])
        logs = {int(number): self._read_records(log, places[number]) for number, log in job.emptied}
        copy = SegmentCopy(
            data,
            self._store_id,
            _file_number(path),
            job.settled,
            job.settled_transient,
            logs,
            job.wanted,
        )
        while copy.step(_REWRITE_RECORDS):
            # Compiled code does not release the interpreter by itself: let other threads run here.
            time.sleep(0)
        job.referred_bytes = copy.referred_bytes
        job.missing = copy.missing
        new_path = write_new(files, path, copy.parts)
        self._appends.close(path)
        directory = _directory_of(path)
        try:
            files.rename(new_path, path)
        except OSError:
            if files.exists(new_path):
                remove_if_there(files, new_path)
                raise
            # The rename was done in spite of the error. The engine must learn of the new file, or
            # it would read at the offsets of the old one.
        job.new_size = sum(map(len, copy.parts))
        self._doubtful.discard(path)
        try:
            files.sync_directory(directory)
        except OSError as error:
            # Reads already find the new file. A power failure may leave either file until a
            # checkpoint counts the new one.
            logger.warning("a rename in %s is not durable yet: %s", directory, error)
            self._unsynced_directories.add(directory)

    def _repair_segment(self, job: RepairSegment) -> None:
        files = self._files
        path = job.path
        number = _file_number(path)
        try:
            segment = files.read(path, 0, job.size)
        except OSError as error:
            job.is_unreadable = error.errno in _UNREADABLE
            raise
        repair = SegmentRepair(segment, self._store_id, number, job.settled)
        for log in job.logs:
            if not repair.lacks(log.first, log.last):
                continue
            try:
                data = self._read_whole(log.path)
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                # Skip the unreadable file: other files may have the missing entries.
                continue
            repair.search(data, log.number, job.queue_id, log.first, log.last)
        parts = repair.content(job.queue_id)
        new_path = write_new(files, path, parts)
        self._appends.close(path)
        files.rename(new_path, path)
        job.new_size = sum(map(len, parts))
        self._doubtful.discard(path)
        files.sync_directory(_directory_of(path))

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
            # A single sync of the whole copy at the end would delay the journal's syncs.
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
        except Exception:  # Half a copy is of no use, after any error.
            remove_if_there(files, new_path)
            remove_if_there(files, job.target_path)
            raise
        job.copied = copied
        job.damaged = damaged


class _Pace:
    """Pauses a copy so that it reads and writes no more than `bytes_per_s`."""

    def __init__(self, pause: Callable[[float], None] | None, bytes_per_s: int) -> None:
        self._pause = pause
        self._bytes_per_s = bytes_per_s
        self._owed_bytes = 0

    def spend(self, size: int) -> None:
        """Count bytes that were read or written; pauses after each piece."""
        self._owed_bytes += size
        if self._owed_bytes >= _COMPACT_PIECE_BYTES and self._pause is not None:
            self._pause(self._owed_bytes / self._bytes_per_s)
            self._owed_bytes = 0

    def source(self, source: Source) -> Source:
        """Wrap `source` so that its reads keep this pace."""
        read, size, seed = source

        def read_slowly(offset: int, length: int) -> bytes:
            data = read(offset, length)
            self.spend(len(data))
            return data

        return read_slowly, size, seed


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _file_number(path: str) -> int:
    """The file number of a content file or segment, from its name: its header may be damaged."""
    directory, _, name = path.rpartition("/")
    stem, _, kind = name.partition(".")
    number = int(stem)
    if kind == "idx":
        number |= int(directory.rpartition("/")[2]) << 32
    return number


def _is_whole(data: bytes, seed: int) -> bool:
    """Whether every record of a file is valid."""
    at = FILE_HEADER_BYTES
    while at < len(data):
        length = record_length(data, at, seed)
        if length < 0 or not body_is_valid(data, at, length):
            return False
        at += length
    return True
