"""Reads a Parquet backup with those it is based on: opens, checks, and yields rows by queue."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warrenmq.offline.data_directory import ToolError
from warrenmq.pipeline.backups.manifest import (
    ALIVE_PATH,
    DATA_PATH,
    Manifest,
    file_problem,
    read_manifest,
)
from warrenmq.pipeline.places import LocalPlace, Place, RemotePlace, place_from, place_of
from warrenmq.pipeline.tasks import TaskRunner, numbered
from warrenmq.tables.data_files import ALIVE_SCHEMA, DATA_SCHEMA
from warrenmq.tables.file_figures import DataFile
from warrenmq.tables.file_scan import Array

# Columns that decide whether a row is alive; read even when the caller's schema lacks them.
ROW_COLUMNS = ("queue_id", "seq", "redelivered")


@dataclass(frozen=True)
class ChainFile:
    """A file of messages. `is_older`: an older backup's, so not all of its messages are alive."""

    place: LocalPlace | RemotePlace
    file: DataFile
    is_older: bool

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The file as a ParquetFile."""
        with self.place.input(self.file.name) as source, pq.ParquetFile(source) as file:
            yield file

    def has_of(self, queue_id: int, first_seq: int, end_seq: int) -> bool:
        """Whether the file may have rows of the queue in [first_seq, end_seq)."""
        return any(
            rows.queue_id == queue_id and rows.first_seq < end_seq and rows.last_seq >= first_seq
            for rows in self.file.queues
        )


@dataclass(frozen=True)
class Chain:
    """The backups of a chain, oldest first: their places and manifests. Can be pickled."""

    places: tuple[LocalPlace | RemotePlace, ...]
    manifests: tuple[Manifest, ...]

    @property
    def last(self) -> Manifest:
        """The manifest of the last backup, the one that is restored."""
        return self.manifests[-1]

    def files(self) -> list[ChainFile]:
        """All files of messages, in the order of their backups."""
        return [
            ChainFile(place.joined(DATA_PATH), file, manifest is not self.last)
            for place, manifest in zip(self.places, self.manifests, strict=True)
            for file in manifest.data
        ]

    @property
    def alive_place(self) -> LocalPlace | RemotePlace:
        """Where the last backup lists which messages of older backups are alive (`last.alive`)."""
        return self.places[-1].joined(ALIVE_PATH)

    def all_files(self) -> list[tuple[Place, DataFile]]:
        """All files that have a checksum, each with its place and its manifest entry."""
        return [
            (place.joined(name), file)
            for place, manifest in zip(self.places, self.manifests, strict=True)
            for name, files in ((DATA_PATH, manifest.data), (ALIVE_PATH, manifest.alive))
            for file in files
        ]


def open_chain(backup: str | Path, bases: Iterable[str | Path] = ()) -> Chain:
    """Open the backup and the backups it is based on, given in `bases` or at their original places.

    A backup is named by a path or a URI. Raises ToolError and JobError.
    """
    given = {}
    for place in map(place_of, bases):
        manifest, crc = read_manifest(place)
        given[manifest.id, crc] = place
    places = [place_of(backup)]
    manifests = [read_manifest(places[0])[0]]
    while (base := manifests[0].base) is not None:
        place = given.get((base.id, base.crc32c)) or place_from(places[0], base.path)
        if place in places:
            raise ToolError(f"{place} is based on itself")
        try:
            manifest, crc = read_manifest(place)
        except ToolError as error:
            raise ToolError(
                f"{places[0]} is based on backup {base.id}; name it with --base, since {error}"
            ) from None
        if (manifest.id, crc) != (base.id, base.crc32c) or manifest.store_id != manifests[
            0
        ].store_id:
            raise ToolError(
                f"{place} is not the backup that {places[0]} is based on ({base.id}); name it with --base"
            )
        places.insert(0, place)
        manifests.insert(0, manifest)
    return Chain(tuple(places), tuple(manifests))


def damage_in(chain: Chain, tasks: TaskRunner, results: Path) -> str:
    """Check all files of a backup: the text that says why it is damaged, or ""."""
    checks = numbered(chain.all_files())
    problems = tasks.run(results, checks, check_file, str, "check the backup")
    found = [text for text in problems.values() if text]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"the backup is damaged: {found[0]}{more}" if found else ""


def check_file(task: tuple[Place, DataFile]) -> str:
    """In a worker: the text of what is wrong with a file, or ""."""
    return file_problem(*task)


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AliveRuns:
    """The older messages of a queue that are alive: inclusive runs of seq ids, ascending."""

    firsts: Array
    lasts: Array
    redelivered: Array

    def find(self, seqs: Array) -> Array:
        """For each of `seqs` the index of the run that contains it, or -1."""
        if len(self.firsts) == 0:
            return np.full(len(seqs), -1)
        place = np.searchsorted(self.firsts, seqs, "right") - 1
        return np.where((place >= 0) & (seqs <= self.lasts[place]), place, -1)


def alive_runs(chain: Chain, queue_ids: Iterable[int] | None = None) -> dict[int, AliveRuns]:
    """The alive runs of the given queues, or of all queues, by queue id."""
    wanted = None if queue_ids is None else [("queue_id", "in", list(queue_ids))]
    tables = []
    for file in chain.last.alive:
        with chain.alive_place.input(file.name) as source:
            tables.append(pq.read_table(source, schema=ALIVE_SCHEMA, filters=wanted))
    if not tables:
        return {}
    columns = [column.to_numpy() for column in pa.concat_tables(tables).columns]
    order = np.lexsort((columns[1], columns[0]))
    ids, firsts, lasts, redelivered = (column[order] for column in columns)
    found = {}
    for queue_id in np.unique(ids).tolist():
        some = slice(*np.searchsorted(ids, [queue_id, queue_id + 1]))
        found[queue_id] = AliveRuns(firsts[some], lasts[some], redelivered[some])
    return found


def only_alive(batch: Any, runs: dict[int, AliveRuns]) -> Any:
    """Keep the alive rows of an older backup, with the redelivered flags of the last backup."""
    queue_ids = batch.column("queue_id").to_numpy()
    seqs = batch.column("seq").to_numpy()
    kept = np.zeros(len(seqs), bool)
    redelivered = np.zeros(len(seqs), bool)
    for queue_id in np.unique(queue_ids).tolist():
        known = runs.get(queue_id)
        if known is None:
            continue
        mine = np.flatnonzero(queue_ids == queue_id)
        places = known.find(seqs[mine])
        mine, places = mine[places >= 0], places[places >= 0]
        kept[mine] = True
        redelivered[mine] = known.redelivered[places]
    batch = batch.set_column(
        batch.schema.get_field_index("redelivered"), "redelivered", pa.array(redelivered)
    )
    return batch.filter(pa.array(kept))


def rows_of_queue(
    chain: Chain, queue_id: int, first_seq: int, end_seq: int, schema: Any = DATA_SCHEMA
) -> Iterator[Any]:
    """Yield a queue's alive messages in [first_seq, end_seq), by seq id, as batches of `schema`."""
    files = [found for found in chain.files() if found.has_of(queue_id, first_seq, end_seq)]
    runs = alive_runs(chain, [queue_id]) if any(found.is_older for found in files) else {}
    if _is_in_order(files, queue_id, first_seq, end_seq):
        for found in files:
            yield from _rows_in(found, runs, queue_id, first_seq, end_seq, schema)
        return
    # A failed batch that was written again after later ones leaves rows out of order. Sort them in
    # memory, since a range has the size that fits a task.
    rows = [
        batch
        for found in files
        for batch in _rows_in(found, runs, queue_id, first_seq, end_seq, schema)
    ]
    yield from (
        pa.Table.from_batches(rows, schema=schema)
        .sort_by("seq")
        .combine_chunks()
        .to_batches(10_000)
    )


def _is_in_order(files: list[ChainFile], queue_id: int, first_seq: int, end_seq: int) -> bool:
    before = 0
    for found in files:
        for batch in _rows_in(
            found, None, queue_id, first_seq, end_seq, pa.schema([DATA_SCHEMA.field("seq")])
        ):
            seqs = batch.column("seq").to_numpy()
            if len(seqs) and (seqs[0] <= before or np.any(np.diff(seqs) <= 0)):
                return False
            before = int(seqs[-1]) if len(seqs) else before
    return True


def _rows_in(
    found: ChainFile,
    runs: dict[int, AliveRuns] | None,
    queue_id: int,
    first_seq: int,
    end_seq: int,
    schema: Any,
) -> Iterator[Any]:
    """Yield a queue's rows of a range in one file, alive or not if `runs` is None."""
    names = list(dict.fromkeys([*schema.names, *ROW_COLUMNS]))
    with found.opened() as file:
        groups = _row_groups(file, queue_id, first_seq, end_seq)
        for batch in file.iter_batches(10_000, row_groups=groups, columns=names) if groups else ():
            seqs = batch.column("seq").to_numpy()
            kept = (
                (batch.column("queue_id").to_numpy() == queue_id)
                & (seqs >= first_seq)
                & (seqs < end_seq)
            )
            if not kept.all():
                batch = batch.filter(pa.array(kept))
            if found.is_older and runs is not None:
                batch = only_alive(batch, runs)
            if batch.num_rows:
                yield batch.select(schema.names).cast(schema)


def _row_groups(file: Any, queue_id: int, first_seq: int, end_seq: int) -> list[int]:
    """The numbers of the row groups that may have rows of the range."""
    names = [file.schema_arrow.get_field_index(name) for name in ("queue_id", "seq")]
    found = []
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        ids, seqs = (group.column(index).statistics for index in names)
        if ids is not None and seqs is not None and ids.has_min_max and seqs.has_min_max:
            if not ids.min <= queue_id <= ids.max or seqs.max < first_seq or seqs.min >= end_seq:
                continue
        found.append(number)
    return found
