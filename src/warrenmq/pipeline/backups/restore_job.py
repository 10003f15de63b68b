"""`restore`: writes a new data directory from a backup in Parquet.

First all files are read and compared with the manifests. Then the store is written part by part
(`offline/store_writer.py`), read back and compared with the contents of the backup. Only then does
it get its name.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.backup_files import remove_unfinished
from warrenmq.offline.data_directory import ToolError
from warrenmq.offline.part_writer import PLAN_NAME, PartWriter, Sharer
from warrenmq.offline.store_plan import Part, PartManifest, QueueExtent, WriterSettings
from warrenmq.offline.store_writer import StoreWriter
from warrenmq.pipeline.backups.manifest import Manifest, read_topology
from warrenmq.pipeline.backups.topology import definitions_of
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.places import LocalPlace, place_of
from warrenmq.pipeline.progress import Progress, Silent
from warrenmq.pipeline.result import JobError, JobResult
from warrenmq.pipeline.tasks import TaskRunner, numbered
from warrenmq.pipeline.unfinished import Unfinished, absolute, unfinished
from warrenmq.store.disk.files import make_directories
from warrenmq.tables.file_figures import QueueRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.pipeline.backups.chain import Chain
    from warrenmq.pipeline.backups.shared_contents import SharedList
    from warrenmq.tables.parts import Partition

# Approximate bytes of messages in one part of the new store.
PART_BYTES: Final = 128 * 1024 * 1024
_RESULTS: Final = "results"
_SHARED: Final = "shared"


@dataclass
class RestoreResult(JobResult):
    """The figures of the new data directory, which was read back and compared as a whole."""

    directory: Path
    # A path, or a URI.
    backup: str
    id: str
    vhost: str
    chain: int = 1
    queues: int = 0
    messages: int = 0
    message_bytes: int = 0
    shared_contents: int = 0


def restore(
    backup: str | Path,
    directory: str | Path,
    *,
    bases: Sequence[str | Path] = (),
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> RestoreResult:
    """Make `directory`, which must be missing or empty, the data directory of a vhost's backup.

    An incremental backup needs the backups it is based on: in `bases`, or at their original places.
    Backups are named by paths or URIs (places.py); `directory` is on a disk. Another call resumes
    an interrupted restore. Raises ToolError and JobError, and leaves nothing at `directory` then.
    """
    require_engine(engine, master, spark)
    from warrenmq.pipeline.backups.chain import open_chain

    progress = progress or Silent()
    directory = absolute(directory)
    for place in map(place_of, (backup, *bases)):
        if isinstance(place, LocalPlace):
            if directory.resolve().is_relative_to(place.path.resolve()):
                raise ToolError(f"{directory} lies in the backup {place}")
    chain = open_chain(backup, bases)
    definitions = definitions_of(read_topology(chain.places[-1], chain.last))
    _must_be_defined(chain.last, definitions)
    of = {"chain": " ".join(manifest.id for manifest in chain.manifests)}
    with unfinished(directory, "restore", of) as begun:
        if begun.result is not None:
            now = {"directory": directory, "backup": str(chain.places[-1])}
            return RestoreResult(**(begun.result | now))
        with sharing_for("restore", engine, master, spark, progress) as sharing:
            return _Restore(chain, begun, definitions, TaskRunner(sharing, progress)).run()


def _must_be_defined(manifest: Manifest, definitions: Definitions) -> None:
    """ToolError when a queue of the backup is missing in its definitions."""
    defined = {int(queue.id) for queue in definitions.queues}
    defined |= {int(part.id) for part in definitions.queue_parts}
    for queue in manifest.queues:
        if queue.id not in defined:
            raise ToolError(
                f"queue id {queue.id} ('{queue.name}') of the backup is not in its definitions"
            )


def _extents(chain: "Chain", vhost_id: int) -> list[QueueExtent]:
    """The queues' extents. Each starts at its first message: many may have gone before it."""
    from warrenmq.pipeline.backups.chain import alive_runs

    firsts = {queue_id: int(runs.firsts[0]) for queue_id, runs in alive_runs(chain).items()}
    for file in chain.last.data:
        for rows in file.queues:
            firsts[rows.queue_id] = min(rows.first_seq, firsts.get(rows.queue_id, rows.first_seq))
    return [
        QueueExtent(
            vhost_id=vhost_id,
            queue_id=queue.id,
            first_seq=firsts.get(queue.id, 1) if queue.messages else 1,
            end_seq=queue.end_seq if queue.messages else 1,
            next_seq=max(queue.next_seq, queue.end_seq),
        )
        for queue in chain.last.queues
    ]


class QueuePartResult(msgspec.Struct, frozen=True):
    """The manifest of a written part of the new store, and the sums of its rows by queue."""

    manifest: PartManifest
    rows: list[QueueRows]


class Sums(msgspec.Struct, frozen=True):
    """The sums of the rows read from a partition of the new store, by queue."""

    rows: list[QueueRows]


@dataclass(frozen=True)
class QueuePartTask:
    """A task that writes the messages of one part of the new store."""

    chain: "Chain"
    shared: "SharedList"
    work: Path
    part: Part


@dataclass
class _Restore:
    chain: "Chain"
    begun: Unfinished
    definitions: Definitions
    tasks: TaskRunner

    def run(self) -> RestoreResult:
        """Check the backup, write the store, read it back and put it in place."""
        from warrenmq.pipeline.backups.chain import damage_in
        from warrenmq.pipeline.backups.shared_contents import list_shared

        last = self.chain.last
        scratch = self.begun.path
        self.begun.store_facts()
        make_directories(scratch / _SHARED)
        damage = damage_in(self.chain, self.tasks, scratch / "check")
        if damage:
            self.begun.drop()
            raise ToolError(damage)
        self._find_shared(scratch)
        queue_ids = {queue.id for queue in last.queues}
        shared = list_shared(scratch / _SHARED, len(self.chain.files()), queue_ids)
        writer = self._writer(shared)
        manifests = self._write_shared(scratch, shared, writer)
        manifests += self._write_queues(scratch, shared, writer)
        result = RestoreResult(
            directory=self.begun.target,
            backup=str(self.chain.places[-1]),
            id=last.id,
            vhost=last.vhost,
            chain=len(self.chain.manifests),
            queues=len(self.definitions.queues),
            messages=sum(manifest.messages for manifest in manifests),
            message_bytes=sum(manifest.message_bytes for manifest in manifests),
            shared_contents=shared.count,
        )

        def compare_and_keep(data: Path) -> None:
            self._compare(scratch, data)
            self.begun.keep_result(result)

        writer.finish(manifests, compare_and_keep)
        return result

    def _writer(self, shared: "SharedList") -> StoreWriter:
        if (self.begun.incomplete / PLAN_NAME).exists():
            return StoreWriter.resume(self.begun.target)
        messages = max(self.chain.last.messages, 1)
        size = sum(file.bytes for _, file in self.chain.all_files())
        vhost_id = int(self.definitions.vhosts[0].id)
        # Remove the leftovers of an attempt that was killed before it had a plan.
        remove_unfinished(self.begun.incomplete)
        return StoreWriter.create(
            self.begun.target,
            self.definitions,
            _extents(self.chain, vhost_id),
            {vhost_id: shared.count} if shared.count else {},
            max(PART_BYTES * messages // max(size, 1), 1),
            WriterSettings(keep_transient=True),
        )

    # -- its steps ---------------------------------------------------------------------------------

    def _find_shared(self, scratch: Path) -> None:
        from warrenmq.pipeline.backups.shared_contents import FindTask, Found, find_shared

        shared = scratch / _SHARED
        tasks = numbered(FindTask(self.chain, n, shared) for n in range(len(self.chain.files())))
        self.tasks.run(scratch / "find", tasks, find_shared, Found, "find shared contents")

    def _write_shared(
        self, scratch: Path, shared: "SharedList", writer: StoreWriter
    ) -> list[PartManifest]:
        from warrenmq.pipeline.backups.shared_contents import (
            SharedTask,
            note_places,
            write_shared_part,
        )

        tasks = {}
        first = 0
        parts = [part for part in writer.plan.parts if part.queue_id == 0]
        for part in parts:
            end = first + part.end_content_id - part.first_content_id
            tasks[part.name] = SharedTask(
                self.chain, shared, writer.work_directory, part, first, end
            )
            first = end
        results = scratch / "contents"
        done = self.tasks.run(results, tasks, write_shared_part, PartManifest, "shared contents")
        note_places(shared, parts)
        return list(done.values())

    def _write_queues(
        self, scratch: Path, shared: "SharedList", writer: StoreWriter
    ) -> list[PartManifest]:
        from warrenmq.tables.data_files import QueueSums

        tasks = {
            part.name: QueuePartTask(self.chain, shared, writer.work_directory, part)
            for part in writer.plan.parts
            if part.queue_id
        }
        results = scratch / _RESULTS
        parts = self.tasks.run(results, tasks, write_queue_part, QueuePartResult, "restore")
        sums = QueueSums()
        for part in parts.values():
            sums.add_rows(part.rows)
        self.expected = {rows.queue_id: rows for rows in sums.by_queue()}
        for queue in self.chain.last.queues:
            rows = self.expected.get(queue.id)
            count = rows.rows if rows is not None else 0
            if count != queue.messages:
                raise JobError(
                    f"the backup has {count} messages of queue '{queue.name}'; its manifest says {queue.messages}"
                )
            is_whole = self.chain.last.base is None and rows is not None
            if is_whole and rows is not None and rows.digest != queue.digest:
                raise JobError(
                    f"the messages of queue '{queue.name}' differ from those that were backed up"
                )
        return [part.manifest for part in parts.values()]

    def _compare(self, scratch: Path, data: Path) -> None:
        """Read the new store back before it is named. JobError when it differs from the backup."""
        queue_ids = tuple(queue.id for queue in self.chain.last.queues)
        found = read_back(data, self.tasks, scratch / "compare", queue_ids)
        if {rows.queue_id: rows for rows in found} != self.expected:
            raise JobError(
                f"the store written for {self.begun.target} differs from the backup; it is not put in place"
            )


def write_queue_part(task: QueuePartTask) -> QueuePartResult:
    """In a worker: write the messages of a queue in the part's range of seq ids."""
    from warrenmq.pipeline.backups.chain import rows_of_queue
    from warrenmq.tables.data_files import QueueSums

    part = task.part
    sums = QueueSums()
    with PartWriter(task.work, part) as writer:
        for batch in rows_of_queue(task.chain, part.queue_id, part.first_seq, part.end_seq):
            sums.add(batch)
            _write_batch(writer, batch, task.shared)
        return QueuePartResult(writer.finish(), sums.by_queue())


def _write_batch(writer: PartWriter, batch: Any, shared: "SharedList") -> None:
    import numpy as np

    from warrenmq.pipeline.backups.shared_contents import content_at
    from warrenmq.tables.messages_to_write import columns_of

    rows = shared.find(batch.column("content_id").fill_null(0).to_numpy())
    is_shared = rows >= 0
    if not is_shared.any():
        writer.add_columns(columns_of(batch))
        return
    places = shared.places()
    # Cut the batch into runs of rows whose contents are all shared, or all not shared.
    bounds = [0, *(np.flatnonzero(np.diff(is_shared)) + 1).tolist(), len(rows)]
    for start, end in itertools.pairwise(bounds):
        columns = columns_of(batch.slice(start, end - start))
        if not is_shared[start]:
            writer.add_columns(columns)
            continue
        for place, row in enumerate(rows[start:end].tolist()):
            sharer = Sharer(
                writer.part.queue_id,
                columns.seqs[place],
                columns.expires_ms[place],
                columns.redelivered[place],
            )
            writer.add_shared(content_at(places, row), sharer)


def read_back(
    data: Path, tasks: TaskRunner, results: Path, queue_ids: tuple[int, ...] | None = None
) -> list[QueueRows]:
    """The sums of all messages of the new store `data`, by queue.

    `queue_ids`: only of these, which may be buckets of delayed messages.
    """
    from warrenmq.tables.data_files import QueueSums
    from warrenmq.tables.parts import ReadOptions
    from warrenmq.tables.planning import plan
    from warrenmq.tables.schemas import MESSAGES

    # Delete the results of an earlier call: the store may have been assembled again since.
    remove_unfinished(results)
    partitions = numbered(plan(data, MESSAGES, ReadOptions(queue_ids=queue_ids)))
    sums = QueueSums()
    for part in tasks.run(results, partitions, sum_up, Sums, "read the store back").values():
        sums.add_rows(part.rows)
    return sums.by_queue()


def sum_up(partition: "Partition") -> Sums:
    """In a worker: sum up the rows in a partition of the new store."""
    from warrenmq.tables.data_files import DIGEST_SCHEMA, QueueSums
    from warrenmq.tables.reading import read

    sums = QueueSums()
    for batch in read(partition, DIGEST_SCHEMA):
        sums.add(batch)
    return Sums(sums.by_queue())
