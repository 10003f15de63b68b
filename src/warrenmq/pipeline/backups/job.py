"""`backup`: writes a vhost as Parquet files with a manifest, which keep each message as it was.

The source is a running node (through a snapshot, which the node makes of hard links), the data
directory of a stopped node, or a backup of files that `warren backup` has made. With `base`, a
backup has only the messages that came after an earlier backup, and a list of the older messages
that are still alive.

The target is on a disk, or elsewhere (places.py): unfinished.py has the difference.
"""

import contextlib
import dataclasses
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

import warrenmq
from warrenmq.admin.client.client import RETRY_TIMEOUT_S, NodeAddress, NodeUnreachableError
from warrenmq.offline.backup_files import must_be_outside, now_text
from warrenmq.offline.data_directory import VHOSTS_PATH, ToolError, locked, opened
from warrenmq.offline.queue_copies import lacks_definitions
from warrenmq.pipeline.backups import cluster_definitions
from warrenmq.pipeline.backups.manifest import (
    ALIVE_PATH,
    DATA_PATH,
    FORMAT,
    KIND,
    BaseBackup,
    Manifest,
    QueueEntry,
    keep_only,
    read_manifest,
    write_manifest,
    write_topology,
)
from warrenmq.pipeline.backups.topology import Topology, topology_of
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.places import LocalPlace, Place, RemotePlace, path_between, place_of
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobResult
from warrenmq.pipeline.sharing import Sharing
from warrenmq.pipeline.state_files import fingerprint
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.pipeline.unfinished import Unfinished, absolute, unfinished
from warrenmq.store.disk.files import make_directories
from warrenmq.tables.file_figures import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.admin.protocol.requests import BackupStatus
    from warrenmq.tables.parts import FilePart, Partition
    from warrenmq.tables.queue_states import VhostState

_RESULTS: Final = "results"
_SNAPSHOT: Final = "files"
# The file with the definitions of a running node's cluster, in the directory of its snapshot. It is
# written last: where it is, the snapshot is complete. It is empty for a node that runs alone.
_EXPORT: Final = "definitions.json"
_PURPOSE: Final = "warren pipeline backup"


@dataclass
class BackupResult(JobResult):
    """The figures of the new backup.

    `messages` are all alive messages of the backup and its bases. `lost` messages could not be
    read; `losses` has them by queue. `waiting` messages, by sink, are committed but in no queue
    yet. `damage` lists losses that could not be counted, `left_out` definitions that the backup
    lacks.
    """

    # A path, or a URI.
    backup: str
    id: str
    vhost: str
    base: str | None = None
    queues: int = 0
    messages: int = 0
    written_messages: int = 0
    bytes: int = 0
    lost: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when the backup lacks definitions, or messages: unreadable ones, or those of a sink."""
        is_lacking = self.lost or self.waiting or self.damage or self.left_out
        return FOUND_EXIT if is_lacking else OK_EXIT


def backup(
    source: str | Path,
    target: str | Path,
    *,
    vhost: str | None = None,
    base: str | Path | None = None,
    work: Path | None = None,
    snapshot_directory: Path | None = None,
    definitions: Path | None = None,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> BackupResult:
    """Write the new backup `target` from one vhost of `source`, a directory or a node's URI.

    `target` and `base` are paths or URIs (places.py). With a URI as its target the job needs
    `work`, a new directory of this machine for its progress, which is removed at the end.

    Without `vhost` the backup has the vhost that the URI names, or the vhost "/" of a directory.

    A running node makes a snapshot below `snapshot_directory`, on its own machine, by default
    beside `target` or in `work`; on the file system of the node's data directory a snapshot takes
    no space. A directory of a node of a cluster lacks all definitions but its queues: `definitions`
    is an export of them, and a running node makes it.

    A call with the same arguments resumes an interrupted backup. A backup waits up to
    `retry_timeout_s` seconds while the node does not answer. Raises ToolError, JobError, and
    refusals of the node.
    """
    require_engine(engine, master, spark)
    progress = progress or Silent()
    place = place_of(target)
    if isinstance(place, LocalPlace):
        place = LocalPlace(absolute(place.path))
    older = None if base is None else place_of(base)
    name = vhost if vhost is not None else _vhost_of(str(source))
    of = {
        "source": _without_password(str(source)),
        "vhost": name,
        "base": "" if older is None else str(older),
    }
    if definitions is not None:
        of["definitions"] = str(definitions)
    if work is not None:
        of["target"] = str(place)
    with unfinished(place, "backup", of, work) as begun:
        if begun.result is not None:
            if snapshot := begun.fact("snapshot"):
                shutil.rmtree(snapshot, ignore_errors=True)
            return BackupResult(**(begun.result | {"backup": str(place)}))
        job = _Job(
            str(source),
            begun,
            name,
            older,
            snapshot_directory,
            definitions,
            retry_timeout_s,
            progress,
        )
        with job.directory() as directory, locked(directory):
            # Survey first: an error here must not cost the start of a JVM.
            survey = job.survey(directory)
            with sharing_for("backup", engine, master, spark, progress) as sharing:
                return job.run(sharing, directory, survey)


@dataclass(frozen=True)
class BackupTask:
    """A task: writes the messages of `new`, and lists the alive messages of `older`."""

    number: int
    work: Place
    new: "Partition | None"
    older: "Partition | None"


class BackupPart(msgspec.Struct, frozen=True):
    """The files that a task has written. `alive_rows` counts older messages by queue id."""

    data: DataFile | None = None
    alive: DataFile | None = None
    alive_rows: dict[int, int] = {}


@dataclass(frozen=True)
class _Survey:
    """State and definitions of the source, the base with its checksum, and the tasks by name."""

    state: "VhostState"
    topology: Topology
    # Definitions that the backup will lack, in words.
    left_out: list[str]
    older: Manifest | None
    base_crc32c: str
    tasks: dict[str, BackupTask]


@dataclass
class _Job:
    source: str
    begun: Unfinished
    vhost: str
    base: LocalPlace | RemotePlace | None
    snapshot_directory: Path | None
    export: Path | None
    retry_timeout_s: float
    progress: Progress

    def __post_init__(self) -> None:
        self.work = self.begun.work
        self.results = self.begun.path / _RESULTS

    # -- the source --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def directory(self) -> Iterator[Path]:
        """Yield the directory to read. A node's snapshot stays until the backup is finished."""
        if "://" not in self.source:
            directory = Path(self.source)
            if not directory.is_dir():
                raise ToolError(f"{directory} is not a directory")
            if isinstance(self.begun.place, LocalPlace):
                must_be_outside(directory, self.begun.target)
            yield directory
            return
        if self.export is not None:
            raise ToolError("a running node tells its definitions itself: leave --definitions out")
        known = self.begun.fact("snapshot")
        snapshot = Path(known) / _SNAPSHOT if known else None
        if snapshot is None or not (snapshot.parent / _EXPORT).exists():
            if known:
                shutil.rmtree(known, ignore_errors=True)
            snapshot = self._make_snapshot()
        try:
            yield snapshot
        except BaseException:
            if not self.results.exists():
                # No task has read the snapshot: another call has no use for it.
                self._forget(snapshot)
            raise
        shutil.rmtree(snapshot.parent, ignore_errors=True)

    def _make_snapshot(self) -> Path:
        from warrenmq.admin.client.backup import BackupFailedError, back_up_node
        from warrenmq.pipeline.broker import RETRY_OPTION, as_job_error, reach
        from warrenmq.spark.retry import Retry
        from warrenmq.spark.waits import waiting

        place = self.snapshot_directory if self.snapshot_directory is not None else self.begun.path
        snapshot = absolute(place) / f"warren-snapshot-{secrets.token_hex(4)}" / _SNAPSHOT
        # Store the place before anything is made there, so that a resumed call can remove it.
        self.begun.store_facts(snapshot=str(snapshot.parent))
        self.progress.show(Step("snapshot", 0, None, "bytes"))
        try:
            snapshot.parent.mkdir(0o700)
            where = NodeAddress(self.source).where
            with as_job_error(), Retry(where, self.retry_timeout_s, RETRY_OPTION) as retry:
                while True:
                    with reach(self.source, _PURPOSE, self.retry_timeout_s) as client:
                        retry.succeeded()
                        try:
                            with waiting(f"the snapshot of {where}"):
                                back_up_node(client, str(snapshot), self._show_snapshot)
                                export = cluster_definitions.export_of(client)
                            part = snapshot.parent / f"{_EXPORT}.part"
                            part.write_bytes(export)
                            part.rename(snapshot.parent / _EXPORT)
                            break
                        except NodeUnreachableError as error:
                            # The node has died, and its unfinished snapshot with it.
                            retry.failed(error)
                            shutil.rmtree(snapshot, ignore_errors=True)
        except BaseException as error:
            self._forget(snapshot)
            if isinstance(error, BackupFailedError | ValueError):
                raise ToolError(str(error)) from None
            raise
        return snapshot

    def _show_snapshot(self, status: "BackupStatus") -> None:
        name = f"snapshot: {status.step}"
        self.progress.show(Step(name, status.done_bytes, status.total_bytes, "bytes"))

    def _forget(self, snapshot: Path) -> None:
        shutil.rmtree(snapshot.parent, ignore_errors=True)
        self.begun.drop()

    # -- the work ----------------------------------------------------------------------------------

    def survey(self, directory: Path) -> "_Survey":
        """Read the source's state and plan the tasks. ToolError when no backup is possible."""
        from warrenmq.tables.planning import PlanError
        from warrenmq.tables.queue_states import vhost_state

        try:
            state = vhost_state(directory, self.vhost)
            older, crc = read_manifest(self.base) if self.base is not None else (None, "")
            if older is not None and older.store_id != state.store_id.hex():
                raise ToolError(
                    f"{self.base} is a backup of another store: it cannot be the base of this one"
                )
            if older is not None:
                self._must_not_be_newer(older, state)
            topology, left_out = self._topology(directory)
            tasks = self._tasks(directory, state, older)
            return _Survey(state, topology, left_out, older, crc, tasks)
        except PlanError as error:
            raise ToolError(str(error)) from None

    def _must_not_be_newer(self, older: Manifest, state: "VhostState") -> None:
        """ToolError when the source was restored from before the base: it reuses old seq ids."""
        for queue in older.queues:
            now = state.queues.get(queue.id)
            if now is not None and now.next_seq < queue.end_seq:
                raise ToolError(
                    f"{self.base} is newer than {self.source}: it knows messages of queue '{queue.name}' up to "
                    f"seq id {queue.end_seq - 1}, and the next one there is {now.next_seq}; make a backup without --base"
                )

    def run(self, sharing: Sharing, directory: Path, survey: "_Survey") -> BackupResult:
        """Run the tasks and write the backup; files in `directory` must not change meanwhile."""
        state, older = survey.state, survey.older
        self._begin(directory, state)
        topology = survey.topology
        runner = TaskRunner(sharing, self.progress)
        parts = runner.run(self.results, survey.tasks, write_backup_part, BackupPart, "backup")
        base = None
        if older is not None and self.base is not None:
            base = BaseBackup(
                id=older.id,
                crc32c=survey.base_crc32c,
                path=path_between(self.begun.place, self.base),
            )
        manifest = Manifest(
            format=FORMAT,
            kind=KIND,
            id=os.urandom(16).hex(),
            warren=warrenmq.__version__,
            created=now_text(),
            source=_without_password(self.source),
            vhost=self.vhost,
            store_id=state.store_id.hex(),
            base=base,
            topology_crc32c=write_topology(self.work, topology),
            queues=_entries(state, older, list(parts.values())),
            data=[part.data for part in parts.values() if part.data is not None],
            alive=[part.alive for part in parts.values() if part.alive is not None],
        )
        queues = len(topology.queues)
        result = _result(str(self.begun.place), manifest, state, queues, survey.left_out)
        self.begun.keep_result(result)
        keep_only(self.work, manifest)
        write_manifest(self.work, manifest)
        self.begun.finish()
        return result

    def _topology(self, directory: Path) -> tuple[Topology, list[str]]:
        """The definitions of the vhost, and in words what is lacking."""
        with opened(directory) as data:
            vhost = next(found.definition for found in data.vhosts if found.name == self.vhost)
            assert vhost is not None
            own, is_lacking = data.definitions, lacks_definitions(data)
        export = self.export
        if "://" in self.source:
            beside = directory.parent / _EXPORT
            is_lacking = beside.stat().st_size > 0
            export = beside if is_lacking else None
        left_out: list[str] = []
        if export is not None:
            document = cluster_definitions.read_export(export)
            own = cluster_definitions.completed(own, document, self.vhost, left_out)
        elif is_lacking:
            left_out.append(cluster_definitions.MISSING)
        return topology_of(own, vhost), left_out

    def _tasks(
        self, directory: Path, state: "VhostState", older: Manifest | None
    ) -> dict[str, BackupTask]:
        from warrenmq.tables.parts import ReadOptions
        from warrenmq.tables.planning import plan
        from warrenmq.tables.schemas import MESSAGES

        # Leave out queues that lost messages in the earlier backup: it lacks messages that are
        # alive, so such a queue is written whole again.
        floors = (
            {queue.id: queue.end_seq for queue in older.queues if not queue.lost} if older else {}
        )
        tasks = {}
        options = ReadOptions(vhost=self.vhost, queue_ids=tuple(state.queues))
        for number, partition in enumerate(plan(directory, MESSAGES, options)):
            new = _part_of(partition, floors, is_older=False)
            known = _part_of(partition, floors, is_older=True) if floors else None
            tasks[f"{number:06d}"] = BackupTask(number, self.work, new, known)
        return tasks

    def _begin(self, directory: Path, state: "VhostState") -> None:
        """Make the work directories; delete results of another state of the source."""
        found = fingerprint(directory / VHOSTS_PATH / str(state.id))
        self.begun.begin_work()
        places = (self.work.joined(DATA_PATH), self.work.joined(ALIVE_PATH))
        if self.begun.fact("fingerprint") not in ("", found):
            for place in places:
                place.clear()
            shutil.rmtree(self.results, ignore_errors=True)
        self.begun.store_facts(fingerprint=found)
        for place in places:
            place.make()
        make_directories(self.results)


def _vhost_of(source: str) -> str:
    if "://" not in source:
        return "/"
    try:
        return NodeAddress(source).vhost
    except ValueError as error:
        raise ToolError(str(error)) from None


def _without_password(source: str) -> str:
    if "://" not in source:
        return str(Path(source).resolve())
    scheme, _, rest = source.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


def _part_of(partition: "Partition", floors: dict[int, int], is_older: bool) -> "Partition | None":
    """The part of a partition below its queues' floors (`is_older`) or from them on, or None."""
    if not floors and not is_older:
        return partition
    parts = [
        part
        for found in partition.parts
        if (part := _file_part_of(found, floors, is_older)) is not None
    ]
    return dataclasses.replace(partition, parts=tuple(parts)) if parts else None


def _file_part_of(part: "FilePart", floors: dict[int, int], is_older: bool) -> "FilePart | None":
    from warrenmq.tables.parts import INDEX

    if part.kind == INDEX:
        floor = floors.get(part.queues[0].id, 0)
        if is_older:
            part = dataclasses.replace(part, seq_to=min(part.seq_to, floor))
        else:
            part = dataclasses.replace(part, seq_from=max(part.seq_from, floor))
        return part if part.seq_from < part.seq_to else None
    queues = []
    for queue in part.queues:
        below = queue.seqs < floors.get(queue.id, 0)
        seqs = queue.seqs[below if is_older else ~below]
        if len(seqs):
            queues.append(dataclasses.replace(queue, seqs=seqs))
    return dataclasses.replace(part, queues=tuple(queues)) if queues else None


def write_backup_part(task: BackupTask) -> BackupPart:
    """In a worker: write the files of one task."""
    from warrenmq.pipeline.backups.data_file import DataFileWriter
    from warrenmq.tables.data_files import ALIVE_SCHEMA, DATA_SCHEMA
    from warrenmq.tables.parts import VERIFY_NONE
    from warrenmq.tables.reading import read

    data = alive = None
    alive_rows: dict[int, int] = {}
    if task.new is not None:
        with DataFileWriter(task.work.joined(DATA_PATH), task.number, DATA_SCHEMA) as writer:
            for batch in read(task.new, DATA_SCHEMA):
                writer.write(batch)
            data = writer.finish() if writer.rows else None
    if task.older is not None:
        # Read without checking the contents: those of older messages are in earlier backups.
        options = dataclasses.replace(task.older.options, verify=VERIFY_NONE)
        partition = dataclasses.replace(task.older, options=options)
        with DataFileWriter(task.work.joined(ALIVE_PATH), task.number, ALIVE_SCHEMA) as writer:
            for batch in read(partition, _alive_columns()):
                writer.write(_runs(batch, alive_rows))
            alive = writer.finish() if writer.rows else None
    return BackupPart(data, alive, alive_rows)


def _alive_columns() -> Any:
    import pyarrow as pa

    from warrenmq.tables.data_files import DATA_SCHEMA

    return pa.schema([DATA_SCHEMA.field(name) for name in ("queue_id", "seq", "redelivered")])


def _runs(batch: Any, counts: dict[int, int]) -> Any:
    """Combine neighbouring seq ids of a queue into runs; adds the messages to `counts` by queue."""
    import numpy as np
    import pyarrow as pa

    from warrenmq.tables.data_files import ALIVE_SCHEMA

    columns = [batch.column(name).to_numpy(zero_copy_only=False) for name in batch.schema.names]
    order = np.lexsort((columns[1], columns[0]))
    queue_ids, seqs, redelivered = (column[order] for column in columns)
    is_new = (
        (np.diff(queue_ids) != 0) | (np.diff(seqs) != 1) | (redelivered[1:] != redelivered[:-1])
    )
    starts = np.flatnonzero(np.append(True, is_new))
    ends = np.append(starts[1:], len(seqs)) - 1
    for queue_id, count in zip(*np.unique(queue_ids, return_counts=True), strict=True):
        counts[int(queue_id)] = counts.get(int(queue_id), 0) + int(count)
    runs = [queue_ids[starts], seqs[starts], seqs[ends], redelivered[starts]]
    return pa.RecordBatch.from_arrays([pa.array(run) for run in runs], schema=ALIVE_SCHEMA)


def _entries(
    state: "VhostState", older: Manifest | None, parts: list[BackupPart]
) -> list[QueueEntry]:
    from warrenmq.tables.data_files import QueueSums

    sums = QueueSums()
    alive: dict[int, int] = {}
    for part in parts:
        if part.data is not None:
            sums.add_rows(part.data.queues)
        for queue_id, count in part.alive_rows.items():
            alive[queue_id] = alive.get(queue_id, 0) + count
    written = {rows.queue_id: rows for rows in sums.by_queue()}
    ends = {queue.id: queue.end_seq for queue in older.queues} if older is not None else {}
    entries = []
    for queue_id, queue in sorted(state.queues.items()):
        rows = written.get(queue_id)
        count = rows.rows if rows is not None else 0
        entries.append(
            QueueEntry(
                id=queue_id,
                name=queue.name.decode("utf-8", "replace"),
                rows=count,
                older=alive.get(queue_id, 0),
                lost=max(queue.messages - count - alive.get(queue_id, 0), 0),
                digest=rows.digest if rows is not None else f"{0:016x}",
                end_seq=max(ends.get(queue_id, 1), rows.last_seq + 1 if rows is not None else 1),
                next_seq=queue.next_seq,
            )
        )
    return entries


def _result(
    target: str, manifest: Manifest, state: "VhostState", queues: int, left_out: list[str]
) -> BackupResult:
    losses: Counter[str] = Counter()
    for queue in manifest.queues:
        losses[queue.name] += queue.lost
    return BackupResult(
        backup=target,
        id=manifest.id,
        vhost=manifest.vhost,
        base=manifest.base.id if manifest.base is not None else None,
        queues=queues,
        messages=manifest.messages,
        written_messages=sum(queue.rows for queue in manifest.queues),
        bytes=sum(file.bytes for file in [*manifest.data, *manifest.alive]),
        lost=sum(queue.lost for queue in manifest.queues),
        losses=dict(+losses),
        waiting={name.decode("utf-8", "replace"): count for name, count in state.waiting.items()},
        damage=state.damage,
        left_out=left_out,
    )
