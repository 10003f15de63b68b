"""Merges small files of an archive into larger ones, during a run and at its end.

A stream writes files as large as its batches. Within a partition (queue and day), files of about
the same size are merged as soon as they are many or fill a large file. So a message is rewritten
only a few times, however small the batches are.

Readers of a Parquet archive see a partition either before the merge or after it, never both or
neither. The merger makes a second directory (the merged file, and links to all files that stay),
and one system call exchanges the names of the two. A crash before the exchange leaves the second
directory, a crash after it leaves the first one; either is in CHECKPOINT/merging, which the next
start deletes. In a Delta table one log entry removes the small files and adds the large one.
"""

import ctypes
import errno
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from warrenmq.pipeline.archives.directory import ArchiveDirectory, Commit, parquet_figures
from warrenmq.pipeline.result import JobError
from warrenmq.store.disk.files import sync_directory, sync_file

# Files of about one size that are worth a merge, ...
FILES_MIN: Final = 8
# ... where sizes are about the same when they differ by less than this factor.
TIER_FACTOR: Final = 8
_TIER_BYTES_MIN: Final = 1 << 12
_RENAME_EXCHANGE: Final = 2
_AT_FDCWD: Final = -100
_NAME: Final = re.compile(r"(part-.*?)(?:-m(\d+))?\.parquet")


@dataclass(frozen=True)
class SmallFile:
    """A file's name below the target, and its size in bytes."""

    path: str
    bytes: int


def choose(files: list[SmallFile], target_bytes: int) -> list[SmallFile]:
    """The files of a partition to merge next, in order of names; empty when it is not worth it."""
    tiers: dict[int, list[SmallFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.bytes < target_bytes // 2:
            tiers.setdefault(_tier(file.bytes), []).append(file)
    for tier in sorted(tiers):
        chosen: list[SmallFile] = []
        size = 0
        for file in tiers[tier]:
            if size + file.bytes > target_bytes:
                break
            chosen.append(file)
            size += file.bytes
        if len(chosen) >= FILES_MIN or (len(chosen) >= 2 and size >= target_bytes // 2):
            return chosen
    return []


def _tier(size: int) -> int:
    tier = 0
    while size > _TIER_BYTES_MIN:
        size //= TIER_FACTOR
        tier += 1
    return tier


def merged_name(first: str) -> str:
    """The name of the merge of `first` and the files after it; the name sorts in their place."""
    directory, _, name = first.rpartition("/")
    found = _NAME.fullmatch(name)
    if found is None:
        raise ValueError(f"'{first}' is not the name of an archive's file")
    return f"{directory}/{found[1]}-m{int(found[2] or 0) + 1:02d}.parquet"


def write_merged(sources: list[Path], goal: Path) -> None:
    """Write the rows of `sources` in order to a new file, durably; has one row group in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from warrenmq.pipeline.archives.files import ROW_GROUP_BYTES, parquet_writer

    schema = pq.read_schema(sources[0])
    expected = 0
    with parquet_writer(goal, schema) as writer:
        waiting: list[Any] = []
        for source in sources:
            with pq.ParquetFile(source) as file:
                expected += file.metadata.num_rows
                for index in range(file.num_row_groups):
                    waiting.append(file.read_row_group(index))
                    if sum([table.nbytes for table in waiting]) >= ROW_GROUP_BYTES:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    sync_file(goal)
    rows, _, _ = parquet_figures(goal)
    if rows != expected:
        raise JobError(f"{goal} has {rows} rows of {expected}: nothing was merged")


class FilesGoneError(Exception):
    """Another program removed or replaced files of a partition, so they must not be merged."""


def merge_those_there(target: Path, chosen: list[SmallFile], goal: Path) -> None:
    """Merge `chosen` into the file `goal` (`write_merged`). FilesGoneError when one is missing."""
    sources = [target / file.path for file in chosen]
    try:
        write_merged(sources, goal)
    except FileNotFoundError:
        if all([source.exists() for source in sources]):
            raise
        raise FilesGoneError from None


# Replaces some files of one partition by the file named last; returns its size in bytes. Raises
# FilesGoneError, with nothing changed, when one of the files does not count any more.
Replace: TypeAlias = Callable[[str, list[SmallFile], str], int]


class Merger:
    """Merges files of an archive; remembers the files, so that searching for work reads no disk."""

    def __init__(self, files: list[SmallFile], target_bytes: int, replace: Replace) -> None:
        self._target_bytes = target_bytes
        self._replace = replace
        self._partitions: dict[str, list[SmallFile]] = {}
        self.add(files)

    def add(self, files: list[SmallFile]) -> None:
        """Add files that came to the archive."""
        for file in files:
            self._partitions.setdefault(file.path.rpartition("/")[0], []).append(file)

    def merge(self, merges_max: int) -> int:
        """Merge while it is worth it, at most `merges_max` times; returns the decrease in files."""
        gone = 0
        for partition in list(self._partitions):
            while merges_max > 0:
                chosen = choose(self._partitions[partition], self._target_bytes)
                if not chosen:
                    break
                merges_max -= 1
                name = merged_name(chosen[0].path)
                try:
                    size = self._replace(partition, chosen, name)
                except FilesGoneError:
                    # Forget the partition: the next run sees the files that are left.
                    del self._partitions[partition]
                    break
                gone += len(chosen) - 1
                left = [file for file in self._partitions[partition] if file not in chosen]
                self._partitions[partition] = [*left, SmallFile(name, size)]
        return gone


class ParquetFiles:
    """The files of an archive in plain Parquet: every file in the target counts."""

    def __init__(self, directory: ArchiveDirectory) -> None:
        self._directory = directory
        # Locked while files of the target change, because a merge runs beside the stream.
        self.changing = threading.Lock()
        self._scratch = directory.checkpoint / "merging"
        # Remove the leftovers of a crash.
        shutil.rmtree(self._scratch, ignore_errors=True)

    def commit(self, commit: Commit) -> None:
        """Do nothing: a file counts as soon as it is in its place."""

    def files(self) -> list[SmallFile]:
        """All files of the archive."""
        target = self._directory.target
        return [
            SmallFile(path.relative_to(target).as_posix(), path.stat().st_size)
            for path in target.rglob("part-*.parquet")
        ]

    def newest_batch(self) -> int:
        """Always -1: the names of the files have said already which batches are here."""
        return -1

    def replace(self, partition: str, chosen: list[SmallFile], name: str) -> int:
        """Replace the files `chosen` by one merged file; returns its size in bytes.

        Readers see the one or the others. Raises FilesGoneError.
        """
        target = self._directory.target
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        goal = self._scratch / name.rpartition("/")[2]
        merge_those_there(target, chosen, goal)
        size = goal.stat().st_size
        replaced = {file.path.rpartition("/")[2] for file in chosen}
        # Lock out the stream: a file that it adds between the listing and the exchange would be
        # lost.
        with self.changing:
            names = set(os.listdir(target / partition)) if (target / partition).is_dir() else set()
            if not replaced <= names:
                raise FilesGoneError
            for file_name in names - replaced:
                os.link(target / partition / file_name, self._scratch / file_name)
            sync_directory(self._scratch)
            exchange(self._scratch, target / partition)
            sync_directory((target / partition).parent)
            sync_directory(self._scratch.parent)
        shutil.rmtree(self._scratch)
        return size

    def finish(self) -> None:
        """Do nothing: no files are left over."""


def exchange(one: Path, other: Path) -> None:
    """Exchange two directories atomically. JobError when the file system cannot do that."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.renameat2(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )
    if result != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.EXDEV):
            raise JobError(
                f"the file system of {other} cannot exchange two directories: archive without merging, or as a Delta table"
            )
        raise OSError(number, os.strerror(number), str(other))
