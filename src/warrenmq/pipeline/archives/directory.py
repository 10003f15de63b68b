"""The books of an archive: each batch counts once, whichever process is killed when.

An archive is two directories. TARGET contains only finished files; it may be in another file
system, such as an object store (places.py):

    queue=orders/date=2026-01-31/part-1f0c83aa-00000012-0001.parquet

CHECKPOINT (TARGET.checkpoint) is on a disk of this machine and contains everything else:
`archive.json` identifies the archive, `staging/` has batches that are being written,
`committed.json` is the last batch that counts, `lock` belongs to the one process that writes. So
any tool that reads TARGET sees each message once, without a log that only Spark understands.

A batch goes through these steps, each durable before the next:

1. Spark's tasks write the batch to files in a directory of this run. After a crash the next start
   deletes them.
2. The driver replaces `committed.json`. It names the batch, its files, their places in TARGET, and
   the offsets up to which the queues were read. This is the commit.
3. The driver makes the files count (below). After a crash in between, the next start resumes this.
4. The driver acks the batch in the broker, which releases the messages only then.

How the files come to count depends on where they are and who reads them:

* On a disk they are staged in CHECKPOINT/staging, and step 3 renames them. A Delta table then gets
  an entry in its log.
* Parquet files elsewhere are staged in TARGET.staging. In step 3 the store copies each of them, and
  deletes the staged one.
* Those of a Delta table elsewhere, and of an Iceberg table, are written in TARGET itself, which
  readers do not list. Step 3 is one entry in the table's log.

A start resumes at the offsets of the last commit. The reader group in the broker keeps the messages
after them reserved, so messages that were read but not committed are read again, in the same
batches or in others. The archive's id and a number that ascends by one identify a batch.
"""

import os
import re
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote

import msgspec

from warrenmq.pipeline.places import LocalPlace, Place, place_of
from warrenmq.pipeline.result import JobError, must_have_parent
from warrenmq.pipeline.state_files import locked, read_state, write_state

ARCHIVE_VERSION: Final = 2
Format = Literal["parquet", "delta", "iceberg"]
# Archives of earlier versions name staged files from the checkpoint on.
_STAGING_BEFORE: Final = "staging/"
# Where the data files of an Iceberg table are, below the table.
ICEBERG_DATA: Final = "data"


class ArchiveIdentity(msgspec.Struct, frozen=True):
    """The permanent properties of an archive. Its random id is part of the names of its files."""

    version: int
    format: Format
    vhost: str
    group: str
    # Empty in archives of version 1, which had no id.
    id: str = ""


class StagedFile(msgspec.Struct, frozen=True):
    """A file that a task has written: its name below the staging place, and its figures."""

    name: str
    bytes: int
    rows: int
    seq_first: int
    seq_last: int


class ArchivedFile(msgspec.Struct, frozen=True):
    """A file of the archive: its path below the target, its staging path, and its figures.

    The staging path is empty when the file was written in its place.
    """

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

    def __init__(self, target: str | Path, checkpoint: Path) -> None:
        self.place = place_of(target)
        self.checkpoint = checkpoint
        # The archive's id and format; set by `open`.
        self.id = ""
        self.format: Format = "parquet"
        # Where the tasks of this run write; set by `new_staging`.
        self._staged_in = self._staging

    @property
    def target(self) -> Path:
        """The target on a disk of this machine. JobError when it is elsewhere."""
        if not isinstance(self.place, LocalPlace):
            raise JobError(f"{self.place} is not on a disk of this machine")
        return self.place.path

    @property
    def is_local(self) -> bool:
        """Whether the target is on a disk of this machine."""
        return isinstance(self.place, LocalPlace)

    @property
    def is_in_place(self) -> bool:
        """Whether tasks write the files where they stay, because a log names those that count."""
        return self.format == "iceberg" or (self.format == "delta" and not self.is_local)

    @property
    def _staging(self) -> Place:
        """The place of batches that are being written, one directory for each run."""
        if self.is_local:
            return LocalPlace(self.checkpoint / "staging")
        return place_of(f"{self.place}.staging")

    def check_places(self) -> None:
        """JobError when these places cannot become an archive. Creates nothing."""
        if self.is_local:
            if self.target in (self.checkpoint, *self.checkpoint.parents):
                raise JobError(f"the checkpoint {self.checkpoint} must be outside of {self.target}")
            if self.target.exists() and not self.target.is_dir():
                raise JobError(f"{self.target} is no directory")
            must_have_parent(self.target)
        if self.checkpoint.exists() and not self.checkpoint.is_dir():
            raise JobError(f"{self.checkpoint} is no directory")
        must_have_parent(self.checkpoint)

    def open(self, format: Format, vhost: str, group: str) -> None:
        """Create the archive, or open the one that is there. JobError when something else is there.

        The caller holds `locked`.
        """
        known = self._identity()
        wanted = ArchiveIdentity(
            ARCHIVE_VERSION, format, vhost, group, uuid.uuid4().hex if known is None else known.id
        )
        committed = self.committed()
        # A run without a commit may have left an empty table, which is no place for another format.
        is_new = known is None or (committed is None and known.format != format)
        if is_new and self.place.files():
            raise JobError(
                f"{self.place} is not empty and {self.checkpoint} is not its checkpoint: name an empty directory, or the right checkpoint"
            )
        if known is not None:
            self._must_be_newest(known.id, -1 if committed is None else committed.batch)
        if self.is_local:
            self.target.mkdir(exist_ok=True)
        if known is None or committed is None:
            # An archive without a commit becomes what this run asks for: the first run may have
            # named a vhost that does not exist.
            write_state(self.checkpoint / "archive.json", wanted)
            known = wanted
        if known != wanted:
            raise JobError(
                f"{self.place} is an archive in format {known.format} of vhost '{known.vhost}' with the reader group "
                f"{known.group}; this run asks for {wanted.format}, '{wanted.vhost}' and {wanted.group}"
            )
        self.id = known.id
        self.format = format
        is_moved = self.is_local and not self.is_in_place
        if is_moved and os.stat(self.target).st_dev != os.stat(self.checkpoint).st_dev:
            raise JobError(f"{self.target} and {self.checkpoint} must be on one file system")

    def _must_be_newest(self, archive_id: str, batch: int) -> None:
        """JobError when the target has files of later batches: their names would be used again."""
        name = re.compile(rf"(?:.*/)?part-{archive_id[:8]}-(\d+)-.*\.parquet")
        found = [name.fullmatch(file.name) for file in self.place.files()]
        newest = max([int(each[1]) for each in found if each is not None], default=-1)
        self.must_know(newest, batch)

    def must_know(self, newest: int, batch: int) -> None:
        """JobError when the target has a later batch, `newest`, than `batch` of the checkpoint."""
        if newest > batch:
            raise JobError(
                f"{self.place} has batch {newest}, and the last one that {self.checkpoint} knows of is "
                f"{'none' if batch < 0 else batch}: the checkpoint is an older copy, or damaged"
            )

    def _identity(self) -> ArchiveIdentity | None:
        found = read_state(self.checkpoint / "archive.json", ArchiveIdentity)
        if found is not None and found.version != ARCHIVE_VERSION:
            raise JobError(f"{self.place} was made by another version of warren ({found.version})")
        return found

    def locked(self) -> AbstractContextManager[None]:
        """Hold the write lock of this archive. JobError when another process holds it."""
        return locked(self.checkpoint, f"another process writes to {self.place}")

    def committed(self) -> Commit | None:
        """The last batch that counts; None before the first commit."""
        return read_state(self.checkpoint / "committed.json", Commit)

    def new_staging(self) -> Place:
        """The place where tasks of this run write; deletes what earlier runs have staged.

        Each run has a directory of its own, because tasks of a killed driver may write to theirs
        for a moment longer. Files in their final place need none: their names are random.
        """
        if not self.is_in_place:
            self._staging.clear()
            self._staged_in = self._staging.joined(uuid.uuid4().hex)
        elif self.format == "iceberg":
            self._staged_in = self.place.joined(ICEBERG_DATA)
        else:
            self._staged_in = self.place
        self._staged_in.make()
        return self._staged_in

    def commit(self, staged: list[StagedFile], offset: dict[str, Any]) -> Commit:
        """Commit `staged`, durable files in the place of `new_staging`, as the next batch."""
        before = self.committed()
        batch = before.batch + 1 if before else 0
        files = self._archived_files(batch, staged)
        self._staged_in.sync_names([file.name for file in staged])
        commit = Commit(
            batch=batch,
            files=files,
            offset=offset,
            total_rows=(before.total_rows if before else 0) + sum([file.rows for file in files]),
            total_bytes=(before.total_bytes if before else 0) + sum([file.bytes for file in files]),
        )
        write_state(self.checkpoint / "committed.json", commit)
        return commit

    def _archived_files(self, batch: int, staged: list[StagedFile]) -> list[ArchivedFile]:
        # Sort, so that the files of a partition are numbered in the order of their messages.
        found = sorted(staged, key=lambda file: (file.name.rpartition("/")[0], file.seq_first))
        run = str(self._staged_in).rpartition("/")[2]
        return [
            ArchivedFile(
                path=self._final_name(file.name, batch, number),
                staged="" if self.is_in_place else f"{run}/{file.name}",
                bytes=file.bytes,
                rows=file.rows,
                seq_first=file.seq_first,
                seq_last=file.seq_last,
            )
            for number, file in enumerate(found)
        ]

    def _final_name(self, name: str, batch: int, number: int) -> str:
        if self.is_in_place:
            return f"{ICEBERG_DATA}/{name}" if self.format == "iceberg" else name
        partition = name.rpartition("/")[0]
        return f"{partition}/part-{self.id[:8]}-{batch:08d}-{number:04d}.parquet"

    def move(self, commit: Commit) -> None:
        """Move the files of a commit to the target. May be repeated: moved files are skipped."""
        # A missing file was moved before a crash, and may have been merged into another file since.
        moves = [
            (file.staged.removeprefix(_STAGING_BEFORE), file.path)
            for file in commit.files
            if file.staged
        ]
        if moves:
            self.place.take(self._staging, moves)


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
