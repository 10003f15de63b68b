"""`import_rabbitmq`: turns a stopped RabbitMQ 3.x node's data into a data directory or Parquet.

Messages keep their order, properties and bodies. They get seq ids from 1 on, so an unreadable
message leaves a gap. In Parquet each vhost becomes a backup, from which `restore` makes a data
directory.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import warrenmq
from warrenmq.broker.definitions.metadata import PutVhost
from warrenmq.offline.backup_files import must_be_outside, now_text, remove_unfinished
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.part_writer import PLAN_NAME, PartWriter
from warrenmq.offline.store_plan import Part, PartManifest, QueueExtent
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.pipeline.backups.manifest import (
    ALIVE_PATH,
    DATA_PATH,
    FORMAT,
    KIND,
    Manifest,
    QueueEntry,
    keep_only,
    write_manifest,
    write_topology,
)
from warrenmq.pipeline.backups.topology import topology_of
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.places import LocalPlace
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.rabbitmq.imported_definitions import ImportedDefinitions, defined_queues
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobError, JobResult
from warrenmq.pipeline.state_files import fingerprint
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.pipeline.unfinished import Unfinished, absolute, unfinished
from warrenmq.store.disk.files import make_directories, sync_directory
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES
from warrenmq.tables.file_figures import DataFile, QueueRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.tables.rabbitmq.damage import Damage
    from warrenmq.tables.rabbitmq.import_plan import ImportPlan, Partition, PlannedQueue

# Messages of one queue that one task reads; a whole number of segments.
PART_MESSAGES: Final = 4 * SEGMENT_ENTRIES
# Most lines of damage in a result.
DAMAGE_LISTED_MAX: Final = 1000


@dataclass
class ImportResult(JobResult):
    """The figures of the new directory.

    `damage` has a line for each unreadable place, which lost `lost` messages in all. `left_out`
    lists definitions that warren does not support. `transient` messages are not imported, as a
    restart of RabbitMQ drops them too.
    """

    directory: Path
    source: Path
    vhosts: int = 0
    queues: int = 0
    messages: int = 0
    message_bytes: int = 0
    transient: int = 0
    lost: int = 0
    damage: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when something was left out."""
        return FOUND_EXIT if self.damage or self.left_out else OK_EXIT


class ImportedPart(msgspec.Struct, frozen=True):
    """The output of a task: a part of a store, or a file. `damage` has lines for people."""

    rows: list[QueueRows]
    damage: list[str]
    lost: int
    manifest: PartManifest | None = None
    data: DataFile | None = None


@dataclass(frozen=True)
class ImportTask:
    """Messages of one queue, saved in the files `partitions`; they get seq ids from `first_seq` on.

    The task writes them to `part` of the store in `work`, or, without a part, to the file `number`
    in `target`.
    """

    partitions: tuple[Path, ...]
    queue_id: int
    first_seq: int
    enqueued_ms: int
    work: Path
    part: Part | None = None
    target: LocalPlace | None = None
    number: int = 0


def import_rabbitmq(
    source: Path,
    directory: Path,
    *,
    definitions: Path | None = None,
    to_parquet: bool = False,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> ImportResult:
    """Make `directory`, which must be missing or empty, from the data in `source` (only read).

    `definitions` is an export of the node's definitions; without it the result has only queues with
    messages, and the user guest. Another call resumes an interrupted import. Raises ToolError and
    JobError.
    """
    require_engine(engine, master, spark)
    from warrenmq.admin.definitions.document import DefinitionsError, parse_document
    from warrenmq.tables.rabbitmq.import_plan import VHOSTS_PATH, NotADataDirectory, plan

    progress = progress or Silent()
    directory = absolute(directory)
    must_be_outside(source, directory)
    progress.show(Step("scan the directory", 0, None))
    try:
        export = parse_document(definitions.read_bytes()) if definitions is not None else None
        found = plan(source, defined_queues(export))
    except DefinitionsError as error:
        raise ToolError(f"{definitions}: {error}") from None
    except NotADataDirectory as error:
        raise ToolError(str(error)) from None
    # RabbitMQ keeps directories of queues that are not durable; nothing in them would survive a
    # restart.
    names = [
        (queue.vhost, queue.name) for queue in found.queues if queue.messages or export is None
    ]
    ours = ImportedDefinitions(export, names, found.vhosts)
    of = {
        "source": str(found.path.resolve()),
        "state": fingerprint(found.path / VHOSTS_PATH),
        "definitions": hashlib.sha256(definitions.read_bytes()).hexdigest()
        if definitions is not None
        else "",
        "format": "parquet" if to_parquet else "store",
    }
    with unfinished(directory, "import", of) as begun:
        if begun.result is not None:
            return ImportResult(**(begun.result | {"directory": directory, "source": found.path}))
        with sharing_for("import-rabbitmq", engine, master, spark, progress) as sharing:
            job = _Import(found, ours, begun, TaskRunner(sharing, progress))
            return job.to_parquet() if to_parquet else job.to_store()


class _Import:
    def __init__(
        self,
        found: "ImportPlan",
        ours: ImportedDefinitions,
        begun: Unfinished,
        tasks: TaskRunner,
    ) -> None:
        self.found = found
        self.ours = ours
        self.begun = begun
        self.directory = begun.target
        self.tasks = tasks
        # One queue has all levels of a priority queue, the highest first.
        self.queues: dict[int, list[PlannedQueue]] = {}
        for queue in found.queues:
            if (queue.vhost, queue.name) in ours.queue_ids:
                self.queues.setdefault(ours.queue_ids[queue.vhost, queue.name], []).append(queue)
        self.scratch = begun.path
        # Publish time of all imported messages, in ms since 1970; stored, so that a resumed call
        # uses the same.
        self.enqueued_ms = int(begun.fact("enqueued_ms") or time.time() * 1000)
        begun.store_facts(enqueued_ms=str(self.enqueued_ms))

    # -- a data directory --------------------------------------------------------------------------

    def to_store(self) -> ImportResult:
        """Write a store, read it back, and put it in place."""
        ids = self.ours.vhost_ids
        extents = [
            QueueExtent(
                vhost_id=ids[levels[0].vhost], queue_id=queue_id, end_seq=_count(levels) + 1
            )
            for queue_id, levels in self.queues.items()
        ]
        if (self.begun.incomplete / PLAN_NAME).exists():
            writer = StoreWriter.resume(self.directory)
        else:
            # Remove the leftovers of an attempt that was killed before it had a plan.
            remove_unfinished(self.begun.incomplete)
            writer = StoreWriter.create(
                self.directory, self.ours.definitions, extents, part_messages=PART_MESSAGES
            )
        tasks = {
            part.name: self._task(
                part.name, part.queue_id, part.first_seq, part.end_seq, writer.work_directory, part
            )
            for part in writer.plan.parts
        }
        parts = self._run(tasks)
        manifests = [part.manifest for part in parts.values() if part.manifest is not None]
        result = self._result(parts, sum(manifest.message_bytes for manifest in manifests))

        def compare_and_keep(data: Path) -> None:
            self._compare(data, parts)
            self.begun.keep_result(result)

        writer.finish(manifests, compare_and_keep)
        return result

    def _compare(self, data: Path, parts: dict[str, ImportedPart]) -> None:
        """Read the new store back before it is named. JobError when it differs from the source."""
        from warrenmq.pipeline.backups.restore_job import read_back
        from warrenmq.tables.data_files import QueueSums

        expected = QueueSums()
        for part in parts.values():
            expected.add_rows(part.rows)
        if read_back(data, self.tasks, self.scratch / "compare") != expected.by_queue():
            raise JobError(
                f"the store written for {self.directory} differs from its source; it is not put in place"
            )

    # -- Parquet -----------------------------------------------------------------------------------

    def to_parquet(self) -> ImportResult:
        """Write a backup of each vhost to the directory `vhost-N`."""
        work = self.begun.incomplete
        for vhost in self.ours.definitions.vhosts:
            for name in (DATA_PATH, ALIVE_PATH):
                make_directories(work / f"vhost-{vhost.id}" / name)
        tasks: dict[str, ImportTask] = {}
        for queue_id, levels in self.queues.items():
            vhost_id = self.ours.vhost_ids[levels[0].vhost]
            for first in range(1, _count(levels) + 1, PART_MESSAGES):
                end = min(first + PART_MESSAGES, _count(levels) + 1)
                target = LocalPlace(work / f"vhost-{vhost_id}" / DATA_PATH)
                number = len(tasks)
                tasks[f"{vhost_id}-{number}"] = self._task(
                    f"file-{number}", queue_id, first, end, work, target=target, number=number
                )
        parts = self._run(tasks)
        for vhost in self.ours.definitions.vhosts:
            mine = [part for name, part in parts.items() if name.startswith(f"{vhost.id}-")]
            self._finish_vhost(LocalPlace(work / f"vhost-{vhost.id}"), vhost, mine)
        sync_directory(work)
        result = self._result(
            parts, sum(part.data.bytes for part in parts.values() if part.data is not None)
        )
        self.begun.keep_result(result)
        self.begun.finish()
        return result

    def _finish_vhost(self, place: LocalPlace, vhost: PutVhost, parts: list[ImportedPart]) -> None:
        from warrenmq.tables.data_files import QueueSums

        sums = QueueSums()
        for part in parts:
            sums.add_rows(part.rows)
        rows = {row.queue_id: row for row in sums.by_queue()}
        entries = []
        for queue in self.ours.definitions.queues:
            if queue.vhost != vhost.name:
                continue
            row = rows.get(queue.id)
            end = row.last_seq + 1 if row is not None else 1
            entries.append(
                QueueEntry(
                    id=queue.id,
                    name=queue.name.decode(),
                    rows=row.rows if row is not None else 0,
                    older=0,
                    lost=0,
                    digest=row.digest if row is not None else f"{0:016x}",
                    end_seq=end,
                    next_seq=end,
                )
            )
        manifest = Manifest(
            format=FORMAT,
            kind=KIND,
            id=os.urandom(16).hex(),
            warren=warrenmq.__version__,
            created=now_text(),
            source=str(self.found.path),
            vhost=vhost.name.decode(),
            store_id=os.urandom(16).hex(),
            base=None,
            topology_crc32c=write_topology(place, topology_of(self.ours.definitions, vhost)),
            queues=entries,
            data=[part.data for part in parts if part.data is not None],
            alive=[],
        )
        keep_only(place, manifest)
        write_manifest(place, manifest)

    # -- both --------------------------------------------------------------------------------------

    def _task(
        self,
        name: str,
        queue_id: int,
        first_seq: int,
        end_seq: int,
        work: Path,
        part: Part | None = None,
        target: LocalPlace | None = None,
        number: int = 0,
    ) -> ImportTask:
        from warrenmq.tables.rabbitmq.import_plan import save_partition

        paths = []
        make_directories(self.scratch / "partitions")
        for index, piece in enumerate(_pieces(self.queues[queue_id], first_seq - 1, end_seq - 1)):
            paths.append(self.scratch / "partitions" / f"{name}-{index}.npz")
            save_partition(paths[-1], piece)
        return ImportTask(
            tuple(paths), queue_id, first_seq, self.enqueued_ms, work, part, target, number
        )

    def _run(self, tasks: dict[str, ImportTask]) -> dict[str, ImportedPart]:
        results = self.scratch / "results"
        return self.tasks.run(results, tasks, import_part, ImportedPart, "import")

    def _result(self, parts: dict[str, ImportedPart], size: int) -> ImportResult:
        damage = [_line(found) for found in self.found.damage]
        damage += [line for part in parts.values() for line in part.damage]
        return ImportResult(
            directory=self.directory,
            source=self.found.path,
            vhosts=len(self.ours.definitions.vhosts),
            queues=len(self.ours.definitions.queues),
            messages=sum(rows.rows for part in parts.values() for rows in part.rows),
            message_bytes=size,
            transient=sum(queue.transient for queue in self.found.queues),
            lost=sum(found.messages for found in self.found.damage)
            + sum(part.lost for part in parts.values()),
            damage=damage[:DAMAGE_LISTED_MAX],
            left_out=self.ours.left_out,
        )


def _count(levels: "list[PlannedQueue]") -> int:
    return sum(level.messages for level in levels)


def _pieces(levels: "list[PlannedQueue]", first: int, end: int) -> "Iterator[Partition]":
    """Yield the messages `first` to `end` of a queue, numbered from 0 on across its levels."""
    from warrenmq.tables.rabbitmq.import_plan import cut

    at = 0
    for level in levels:
        for partition in level.partitions:
            start, stop = max(first - at, 0), min(end - at, partition.messages)
            if start < stop:
                yield cut(partition, start, stop)
            at += partition.messages


def _line(found: "Damage") -> str:
    where = f"{found.path}, byte {found.offset}: " if found.path else ""
    queue = f"queue '{found.queue}' in vhost '{found.vhost}': " if found.queue else ""
    return f"{queue}{where}{found.reason}"


def import_part(task: ImportTask) -> ImportedPart:
    """In a worker: read the task's messages and write them to the store or a Parquet file."""
    from warrenmq.pipeline.backups.data_file import DataFileWriter
    from warrenmq.tables.data_files import DATA_SCHEMA, QueueSums
    from warrenmq.tables.messages_to_write import columns_of

    damage: list[Damage] = []
    sums = QueueSums()
    manifest = data = None
    if task.part is not None:
        with PartWriter(task.work, task.part) as part:
            for batch in _batches(task, damage):
                sums.add(batch)
                part.add_columns(columns_of(batch))
            manifest = part.finish()
    if task.target is not None:
        with DataFileWriter(task.target, task.number, DATA_SCHEMA) as file:
            for batch in _batches(task, damage):
                file.write(batch)
                sums.add(batch)
            data = file.finish() if file.rows else None
    lost = sum(found.messages for found in damage)
    return ImportedPart(sums.by_queue(), [_line(found) for found in damage], lost, manifest, data)


def _batches(task: ImportTask, damage: "list[Damage]") -> Iterator[Any]:
    """Yield the task's messages as batches of DATA_SCHEMA with their new seq ids."""
    import numpy as np
    import pyarrow as pa

    from warrenmq.tables.data_files import DATA_SCHEMA
    from warrenmq.tables.messages_to_write import checksums_of
    from warrenmq.tables.rabbitmq.import_plan import load_partition
    from warrenmq.tables.rabbitmq.reading import read

    first = task.first_seq
    for path in task.partitions:
        partition = load_partition(path)
        for batch in read(partition, damage.append):
            # Number messages by their place among RabbitMQ's seq ids, so that unreadable ones leave
            # a gap.
            places = np.searchsorted(partition.seqs, batch.column("seq").to_numpy())
            count = batch.num_rows
            made = {
                "queue_id": pa.repeat(pa.scalar(task.queue_id, pa.int64()), count),
                "seq": pa.array(first + places),
                "enqueued_at": pa.repeat(
                    pa.scalar(task.enqueued_ms * 1000, pa.int64()), count
                ).view(DATA_SCHEMA.field("enqueued_at").type),
                # A store has whole milliseconds only.
                "expires_at": batch.column("expires_at")
                .cast(pa.timestamp("ms", tz="UTC"), safe=False)
                .cast(DATA_SCHEMA.field("expires_at").type),
                "content_id": pa.nulls(count, pa.int64()),
                "references": pa.nulls(count, pa.int32()),
                "checksum": pa.array(checksums_of(batch), pa.int64()),
            }
            yield pa.RecordBatch.from_arrays(
                [made[name] if name in made else batch.column(name) for name in DATA_SCHEMA.names],
                schema=DATA_SCHEMA,
            )
        first += partition.messages
