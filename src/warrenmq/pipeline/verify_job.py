"""`verify`: checks every checksum and every count of a store, with the reading spread over workers.

It finds the same problems as `warren store check`, because the same code judges
(`offline/check.py`). Workers read segments, content files and logs and leave their contents as
numbers; the driver checks that they fit together. Each problem is a row of a table, which can be
written as Parquet.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warrenmq.offline.check import (
    FoundContent,
    SegmentFindings,
    VhostCheck,
    check_definition,
    check_names,
    references_of,
)
from warrenmq.offline.data_directory import ToolError, VhostDirectory, files_of, opened
from warrenmq.offline.problems import (
    MISSING_FILE,
    CheckResult,
    Problem,
)
from warrenmq.pipeline.engine import Engine, require_engine, sharing_for
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobResult, must_have_parent
from warrenmq.pipeline.sharing import Sharing
from warrenmq.pipeline.state_files import fingerprint
from warrenmq.pipeline.tasks import TaskRunner
from warrenmq.store.contents.file import ContentFile
from warrenmq.store.disk.files import make_directories
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.log_reader import LogReader, LogRows, is_referred
from warrenmq.store.disk.snapshot import NoStore, SegmentPlace, VhostSnapshot, positions_in_segment
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.model.runs import Runs, add_run
from warrenmq.store.records.log_places import file_of, offset_of
from warrenmq.store.recovery import RecoveredQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Approximate bytes of files that one task reads.
TASK_BYTES: Final = 128 * 1024 * 1024
# Most problems listed in a result; further ones are only counted.
DAMAGE_LISTED_MAX: Final = 1_000_000
# Listed problems that are printed and part of the result as JSON.
SHOWN_MAX: Final = 1000
_SOURCE_NAME: Final = "source"


@dataclass
class VerifyResult(JobResult):
    """The problems of a store and its figures.

    `damage` has a row for each problem; `counts` has, by kind, how many messages, records or files
    are affected.
    """

    source: Path
    clean: bool
    counts: dict[str, int]
    vhosts: int
    queues: int
    messages: int
    contents: int
    bytes_read: int
    damage: list[Problem] = field(default_factory=list, repr=False)
    notes: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when there are problems."""
        return OK_EXIT if self.clean else FOUND_EXIT

    def as_json(self) -> dict[str, Any]:
        """The figures and the first SHOWN_MAX problems."""
        return super().as_json() | {"damage": [vars(row) for row in self.damage[:SHOWN_MAX]]}

    def lines(self) -> list[str]:
        """The problems, the notes and the figures as text."""
        rows = [
            f"{row.kind}: vhost '{row.vhost}': {row.text}"
            + (f" ({row.count})" if row.count != 1 else "")
            for row in self.damage[:SHOWN_MAX]
        ]
        if len(self.damage) > SHOWN_MAX:
            rows.append(f"and {len(self.damage) - SHOWN_MAX} more")
        rows += [f"note: {note}" for note in self.notes]
        rows.append(
            f"{self.queues} queues, {self.messages} messages, {self.contents} large contents; {self.bytes_read} bytes read"
        )
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(self.counts.items()))
        return [*rows, f"problems: {counts}" if counts else "no problems"]

    def table(self) -> Any:
        """The problems as a pyarrow Table, which `spark.createDataFrame` accepts."""
        import pyarrow as pa

        number = pa.int64()
        schema = pa.schema(
            [
                ("kind", pa.string()),
                ("vhost", pa.string()),
                ("text", pa.string()),
                ("count", number),
                ("path", pa.string()),
                ("start", number),
                ("end", number),
                ("queue_id", number),
                ("seq", number),
            ]
        )
        return pa.Table.from_pylist([vars(row) for row in self.damage], schema=schema)


def verify(
    source: Path,
    *,
    damage_to: Path | None = None,
    work: Path | None = None,
    spark: "SparkSession | None" = None,
    master: str | None = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> VerifyResult:
    """Check a stopped node's data directory, or a backup of files; nothing in it is changed.

    The table of problems goes to the Parquet file `damage_to`. With `work`, a directory, an
    interrupted call can be resumed; the directory is removed at the end. Raises ToolError and
    JobError.
    """
    require_engine(engine, master, spark)
    progress = progress or Silent()
    if damage_to is not None and not damage_to.absolute().parent.is_dir():
        # Fail before hours of work.
        raise ToolError(
            f"{damage_to} cannot be written: there is no directory {damage_to.absolute().parent}"
        )
    with opened(source) as directory, _scratch(source, work) as scratch:
        result = CheckResult(listed_max=DAMAGE_LISTED_MAX)
        check_names(directory, result)
        with sharing_for("verify", engine, master, spark, progress) as sharing:
            for vhost in directory.vhosts:
                check_definition(directory, vhost, result)
                with files_of(vhost) as files:
                    progress.show(Step("read checkpoint and journal", 0, None))
                    try:
                        snapshot = VhostSnapshot(files, has_moved=True)
                    except NoStore as error:
                        if any(vhost.path.iterdir()):
                            result.add(Problem(MISSING_FILE, vhost.name, str(error)))
                        continue
                    known = _read_files(sharing, vhost, snapshot, scratch / str(vhost.id), progress)
                    _Verify(directory.definitions, vhost, snapshot, result, known).run()
        found = VerifyResult(
            source=source,
            clean=result.is_clean,
            counts=dict(result.problem_counts),
            vhosts=len(directory.vhosts),
            queues=result.queues,
            messages=result.messages,
            contents=result.contents,
            bytes_read=result.bytes_read,
            damage=result.problems,
            notes=result.notes,
        )
        if damage_to is not None:
            import pyarrow.parquet as pq

            try:
                pq.write_table(found.table(), damage_to, compression="zstd")
            except OSError as error:
                raise ToolError(f"{damage_to} cannot be written: {error}") from None
        return found


@contextlib.contextmanager
def _scratch(source: Path, work: Path | None) -> Iterator[Path]:
    """Yield the directory for the results of tasks.

    ToolError when `work` has results of other files, or anything else.
    """
    if work is None:
        with tempfile.TemporaryDirectory(prefix="warren-verify-") as name:
            yield Path(name)
        return
    path = work / _SOURCE_NAME
    found = f"{source.resolve()} {fingerprint(source)}"
    if path.exists():
        if path.read_text() != found:
            raise ToolError(
                f"{work} belongs to a verify of another directory, or of another state of this one; remove it"
            )
    elif work.exists() and any(work.iterdir()):
        raise ToolError(f"{work} is not empty and does not belong to an interrupted verify")
    else:
        must_have_parent(work)
        make_directories(work)
        path.write_text(found)
    yield work
    shutil.rmtree(work)


# -- work of the workers --------------------------------------------------------------------------


@dataclass(frozen=True)
class SegmentFile:
    """A segment file, and the ranges of its seq ids that are settled."""

    path: str
    place: SegmentPlace
    settled: list[tuple[int, int]]


@dataclass(frozen=True)
class LogFile:
    """A journal file that has contents of indexes."""

    path: str
    number: int


@dataclass(frozen=True)
class ReadTask:
    """Files of a vhost that one task reads.

    The names of the numpy files with its findings begin with `target`.
    """

    vhost: Path
    store_id: bytes
    segments: tuple[SegmentFile, ...]
    # Content files: path and file number.
    contents: tuple[tuple[str, int], ...]
    logs: tuple[LogFile, ...]
    target: Path


class FileFindings(msgspec.Struct, frozen=True):
    """Findings in one file. `array` names the numpy file of its rows.

    Rows of a segment are references (content id, seq); rows of a content file are fields of
    FoundContent. A record of a log has a row for each of its positions, or one with queue id -1:
    start, end, is valid, queue id, seq. Of a segment, `referred` names the file of its rows of
    `Referred`, and `seqs` that of the runs of live seq ids.
    """

    path: str
    array: str
    bytes: int
    live: int = 0
    damaged: list[tuple[int, int]] = []
    referred: str = ""
    seqs: str = ""


def read_files(task: ReadTask) -> list[FileFindings]:
    """In a worker: read segments, content files and logs and check all checksums."""
    import numpy as np

    files = LocalFileSystem(task.vhost)
    found: list[FileFindings] = []

    def save(kind: str, rows: Any, columns: int) -> str:
        name = f"{task.target.name}-{len(found)}{kind}.npy"
        np.save(task.target.with_name(name), np.array(rows, np.int64).reshape(-1, columns))
        return name

    def keep(path: str, rows: Any, columns: int, size: int, **more: Any) -> None:
        found.append(FileFindings(path, save("", rows, columns), size, **more))

    try:
        for segment in task.segments:
            live = 0
            damaged: list[tuple[int, int]] = []
            references: list[tuple[int, int]] = []
            referred: list[tuple[int, int, int]] = []
            seqs: Runs = []

            def on_damage(_: str, offset: int, data: bytes, damaged: Any = damaged) -> None:
                damaged.append((offset, offset + len(data)))

            for position in positions_in_segment(
                files, segment.path, segment.place, segment.settled, on_damage
            ):
                live += 1
                if position.content_ref is not None:
                    references.append((position.content_ref.id, position.seq))
                elif is_referred(position):
                    place = position.place
                    referred.append((file_of(place), offset_of(place), position.seq))
                add_run(seqs, position.seq, position.seq)
            size = segment.place.size
            keep(
                segment.path,
                references,
                2,
                size,
                live=live,
                damaged=damaged,
                referred=save("-logs", referred, 3) if referred else "",
                seqs=save("-seqs", seqs, 2) if damaged else "",
            )
        for path, number in task.contents:
            scan = _content_scan(files, path, number, task.store_id)
            rows = []
            while scan.advance():
                end = scan.offset + scan.length
                references_count = references_of(scan) if scan.is_valid else 0
                rows.append(
                    (scan.offset, end, scan.content_id, references_count, int(scan.is_valid))
                )
            keep(path, rows, 5, files.size(path))
        for log in task.logs:
            # The driver counts the bytes.
            packed = LogReader(files, task.store_id).packed_rows(log.path, log.number)
            keep(log.path, np.frombuffer(packed, np.int64), len(LogRows._fields), 0)
    finally:
        files.release()
    return found


def _content_scan(files: LocalFileSystem, path: str, number: int, store_id: bytes) -> Any:
    from functools import partial

    from warrenmq.store.contents.scan import ContentScan
    from warrenmq.store.records.record import crc_seed

    return ContentScan(partial(files.read, path), files.size(path), crc_seed(store_id, number))


# -- work of the driver ---------------------------------------------------------------------------


def _read_files(
    sharing: Sharing, vhost: VhostDirectory, snapshot: VhostSnapshot, work: Path, progress: Progress
) -> dict[str, tuple[Path, FileFindings]]:
    """Have all these files read by tasks; returns the findings by file path."""
    arrays = work / "found"
    make_directories(arrays)
    tasks: dict[str, ReadTask] = {}
    gathered: list[SegmentFile | LogFile | tuple[str, int]] = []
    size = 0

    def end_task() -> None:
        name = f"{len(tasks):06d}"
        segments = tuple(one for one in gathered if isinstance(one, SegmentFile))
        contents = tuple(one for one in gathered if isinstance(one, tuple))
        logs = tuple(one for one in gathered if isinstance(one, LogFile))
        tasks[name] = ReadTask(
            vhost.path, snapshot.store_id, segments, contents, logs, arrays / name
        )
        gathered.clear()

    for one, weight in _files_to_read(snapshot):
        if gathered and size + weight > TASK_BYTES:
            end_task()
            size = 0
        gathered.append(one)
        size += weight
    if gathered:
        end_task()
    runner = TaskRunner(sharing, progress)
    done = runner.run(work / "results", tasks, read_files, list[FileFindings], "read")
    return {found.path: (arrays, found) for files in done.values() for found in files}


def _files_to_read(
    snapshot: VhostSnapshot,
) -> Iterator[tuple[SegmentFile | LogFile | tuple[str, int], int]]:
    """Yield the segments, content files and logs that exist, each with its size in bytes."""
    for queue in snapshot.queues():
        index = queue.ledger.index
        for segment in snapshot.segments(queue):
            path = snapshot.path_of(queue, segment)
            if index is None or not snapshot.files.is_file(path):
                continue
            first = segment.number * index.segment_entries
            end = first + index.segment_entries
            settled = [(int(a), int(b)) for a, b in index.settled if b >= first and a < end]
            place = SegmentPlace(
                snapshot.store_id,
                int(queue.ledger.queue_id),
                int(segment.number),
                int(segment.size_bytes),
                int(index.segment_entries),
            )
            yield SegmentFile(path, place, settled), place.size
    for file in snapshot.content_files:
        if snapshot.files.is_file(file.path):
            yield (str(file.path), int(file.number)), int(snapshot.files.size(file.path))
    for number in sorted(snapshot.replay.logs):
        log = snapshot.logs.path_of(number)
        if log is not None:
            yield LogFile(log, int(number)), int(snapshot.files.size(log))


class _Verify(VhostCheck):
    """The check of one vhost, with the findings of workers instead of files."""

    def __init__(
        self,
        definitions: Any,
        vhost: VhostDirectory,
        snapshot: VhostSnapshot,
        result: CheckResult,
        known: dict[str, tuple[Path, FileFindings]],
    ) -> None:
        self._known = known

        def count_bytes(size: int) -> None:
            result.bytes_read += size

        super().__init__(definitions, vhost, snapshot, result, count_bytes)

    def scan_segment(self, queue: RecoveredQueue, segment: Segment) -> SegmentFindings:
        """The findings of a worker in the segment."""
        path = self.snapshot.path_of(queue, segment)
        columns, found = self._columns(path)
        return SegmentFindings(
            found.live,
            list(zip(*columns, strict=True)),
            found.damaged,
            list(self._more(path, found.referred)),
            list(self._more(path, found.seqs)),
        )

    def scan_contents(self, file: ContentFile) -> Iterator[FoundContent]:
        """The findings of a worker in the content file; nothing for a file that is missing."""
        if file.path not in self._known:
            # A missing file was reported before.
            return
        columns, _ = self._columns(file.path)
        for offset, end, content_id, references, is_valid in zip(*columns, strict=True):
            yield FoundContent(offset, end, content_id, references, bool(is_valid))

    def scan_log(self, path: str, number: int) -> LogRows:
        """The findings of a worker in the log."""
        if path not in self._known:
            # Only an entry that no checkpoint counts refers to the file.
            return super().scan_log(path, number)
        return LogRows(*self._columns(path)[0])

    def _more(self, path: str, name: str) -> Iterator[Any]:
        """Rows of another file of findings; none without a name."""
        import numpy as np

        return (
            zip(*np.load(self._known[path][0] / name).T.tolist(), strict=True) if name else iter(())
        )

    def _columns(self, path: str) -> tuple[list[list[int]], FileFindings]:
        # Columns become lists much faster than rows.
        import numpy as np

        directory, found = self._known[path]
        self.on_bytes(found.bytes)
        return np.load(directory / found.array).T.tolist(), found
