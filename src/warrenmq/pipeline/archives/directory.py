"""The books of an archive: each batch counts once, whichever process is killed when.

An archive is two directories on one file system. TARGET contains only finished files:

    queue=orders/date=2026-01-31/part-1f0c83aa-00000012-0001.parquet

CHECKPOINT (TARGET.checkpoint) contains everything else: `archive.json` identifies the archive,
`staging/` has batches that are being written, `committed.json` is the last batch that counts,
`lock` belongs to the one process that writes. So any tool that reads TARGET sees each message once,
without a log that only Spark understands.

A batch goes through these steps, each durable before the next:

1. Spark's tasks write the batch to files in `staging/`, in a directory of this run. After a crash
   the next start deletes them.
2. The driver replaces `committed.json`. It names the batch, its files, their places in TARGET, and
   the offsets up to which the queues were read. This is the commit.
3. The driver moves the files to TARGET (and adds them to the log of a Delta table). After a crash
   in between, the next start resumes the moves.
4. The driver acks the batch in the broker, which releases the messages only then.

A start resumes at the offsets of the last commit. The reader group in the broker keeps the messages
after them reserved, so messages that were read but not committed are read again, in the same
batches or in others. The archive's id and a number that ascends by one identify a batch.
"""

import contextlib
import os
import re
import shutil
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from warrenmq.pipeline.result import JobError, must_have_parent
from warrenmq.pipeline.state_files import locked, read_state, write_state
from warrenmq.store.disk.files import sync_directory

ARCHIVE_VERSION: Final = 2
Format = Literal["parquet", "delta"]


class ArchiveIdentity(msgspec.Struct, frozen=True):
    """The permanent properties of an archive. Its random id is part of the names of its files."""

    version: int
    format: Format
    vhost: str
    group: str
    # Empty in archives of version 1, which had no id.
    id: str = ""


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file of the archive: its path below the target, its staging path, and its figures."""

    path: str
    staged: str
    bytes: int
    rows: int
    seq_first: int
    seq_last: int

    @property
    def partition(self) -> dict[str, str]:
        """The values of the partition columns, decoded from the file's name."""
        return partition_of(self.path)


class Commit(msgspec.Struct, frozen=True):
    """The last batch that counts, and the totals of all batches up to it."""

    batch: int
    files: list[ArchivedFile]
    # Offsets up to which the queues were read (spark/streams/offsets.py).
    offset: dict[str, Any]
    total_rows: int
    total_bytes: int


class ArchiveDirectory:
    """The two directories of one archive, and the commits recorded in them."""

    def __init__(self, target: Path, checkpoint: Path) -> None:
        self.target = target
        self.checkpoint = checkpoint
        # The archive's id; empty until `open`.
        self.id = ""

    @property
    def staging(self) -> Path:
        """The directory of batches that are being written."""
        return self.checkpoint / "staging"

    def check_places(self) -> None:
        """JobError when these paths cannot become an archive. Creates nothing."""
        if self.target in (self.checkpoint, *self.checkpoint.parents):
            raise JobError(f"the checkpoint {self.checkpoint} must be outside of {self.target}")
        for place in (self.target, self.checkpoint):
            if place.exists() and not place.is_dir():
                raise JobError(f"{place} is no directory")
            must_have_parent(place)

    def open(self, format: Format, vhost: str, group: str) -> None:
        """Create the archive, or open the one that is there. JobError when something else is there.

        The caller holds `locked`.
        """
        known = self._identity()
        wanted = ArchiveIdentity(
            ARCHIVE_VERSION, format, vhost, group, uuid.uuid4().hex if known is None else known.id
        )
        if known is None and self.target.exists() and any(self.target.iterdir()):
            raise JobError(
                f"{self.target} is not empty and {self.checkpoint} is not its checkpoint: name an empty directory, or the right checkpoint"
            )
        committed = self.committed()
        if known is not None:
            self._must_be_newest(known.id, -1 if committed is None else committed.batch)
        self.target.mkdir(exist_ok=True)
        if known is None or committed is None:
            # An archive without a commit becomes what this run asks for: the first run may have
            # named a vhost that does not exist.
            write_state(self.checkpoint / "archive.json", wanted)
            known = wanted
        if known != wanted:
            raise JobError(
                f"{self.target} is an archive in format {known.format} of vhost '{known.vhost}' with the reader group "
                f"{known.group}; this run asks for {wanted.format}, '{wanted.vhost}' and {wanted.group}"
            )
        if os.stat(self.target).st_dev != os.stat(self.checkpoint).st_dev:
            raise JobError(f"{self.target} and {self.checkpoint} must be on one file system")
        self.id = known.id

    def _must_be_newest(self, archive_id: str, batch: int) -> None:
        """JobError when the target has files of later batches: their names would be used again."""
        name = re.compile(rf"part-{archive_id[:8]}-(\d+)-.*\.parquet")
        found = [name.fullmatch(path.name) for path in self.target.rglob("part-*.parquet")]
        newest = max([int(each[1]) for each in found if each is not None], default=-1)
        if newest > batch:
            raise JobError(
                f"{self.target} has batch {newest}, and the last one that {self.checkpoint} knows of is "
                f"{'none' if batch < 0 else batch}: the checkpoint is an older copy, or damaged"
            )

    def _identity(self) -> ArchiveIdentity | None:
        found = read_state(self.checkpoint / "archive.json", ArchiveIdentity)
        if found is not None and found.version != ARCHIVE_VERSION:
            raise JobError(f"{self.target} was made by another version of warren ({found.version})")
        return found

    def locked(self) -> AbstractContextManager[None]:
        """Hold the write lock of this archive. JobError when another process holds it."""
        return locked(self.checkpoint, f"another process writes to {self.target}")

    def committed(self) -> Commit | None:
        """The last batch that counts; None before the first commit."""
        return read_state(self.checkpoint / "committed.json", Commit)

    def new_staging(self) -> Path:
        """Create the staging directory of this run and delete those of earlier runs.

        Each run has a directory of its own, because tasks of a killed driver may write to theirs
        for a moment longer.
        """
        shutil.rmtree(self.staging, ignore_errors=True)
        place = self.staging / uuid.uuid4().hex
        place.mkdir(parents=True)
        return place

    def commit(self, staged: list[Path], offset: dict[str, Any]) -> Commit:
        """Commit `staged`, durable files below a `new_staging` directory, as the next batch."""
        before = self.committed()
        batch = before.batch + 1 if before else 0
        files = self._staged_files(batch, staged)
        for directory in {self.checkpoint / Path(file.staged).parent for file in files}:
            sync_directory(directory)
        commit = Commit(
            batch=batch,
            files=files,
            offset=offset,
            total_rows=(before.total_rows if before else 0) + sum([file.rows for file in files]),
            total_bytes=(before.total_bytes if before else 0) + sum([file.bytes for file in files]),
        )
        write_state(self.checkpoint / "committed.json", commit)
        return commit

    def _staged_files(self, batch: int, staged: list[Path]) -> list[ArchivedFile]:
        found = []
        for path in staged:
            # The path below the run's directory is QUEUE/DATE/NAME.
            partition = "/".join(path.relative_to(self.staging).parts[1:-1])
            found.append((partition, parquet_figures(path), path))
        # Sort, so that the files of a partition are numbered in the order of their messages.
        found.sort(key=lambda file: (file[0], file[1][1]))
        return [
            ArchivedFile(
                path=f"{partition}/part-{self.id[:8]}-{batch:08d}-{number:04d}.parquet",
                staged=str(path.relative_to(self.checkpoint)),
                bytes=path.stat().st_size,
                rows=rows,
                seq_first=seq_first,
                seq_last=seq_last,
            )
            for number, (partition, (rows, seq_first, seq_last), path) in enumerate(found)
        ]

    def move(self, commit: Commit) -> None:
        """Move the files of a commit to the target. May be repeated: moved files are skipped."""
        parents = set()
        for file in commit.files:
            goal = self.target / file.path
            goal.parent.mkdir(parents=True, exist_ok=True)
            # A missing file was moved before a crash, and may have been merged into another file
            # since.
            with contextlib.suppress(FileNotFoundError):
                os.rename(self.checkpoint / file.staged, goal)
            parents |= {goal.parent, goal.parent.parent}
        for directory in parents:
            sync_directory(directory)
        sync_directory(self.target)


def partition_of(path: str) -> dict[str, str]:
    """Partition values in a path: `queue=a%2Fb/date=2026-01-31/x` has queue a/b and that date."""
    values = {}
    for part in path.split("/")[:-1]:
        name, _, value = part.partition("=")
        values[name] = unquote(value)
    return values


def parquet_figures(path: Path) -> tuple[int, int, int]:
    """The number of rows of a Parquet file, its lowest and its highest seq, from the footer."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path)
    column = footer.schema.names.index("seq")
    statistics = [
        footer.row_group(index).column(column).statistics for index in range(footer.num_row_groups)
    ]
    lowest = [int(found.min) for found in statistics if found is not None and found.has_min_max]
    highest = [int(found.max) for found in statistics if found is not None and found.has_min_max]
    return footer.num_rows, min(lowest, default=0), max(highest, default=0)
