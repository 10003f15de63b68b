"""The log of an archive that is a Delta table: files in the target count once the log names them.

PySpark has no jars that write Delta tables, so Spark's tasks write the Parquet files and
`deltalake` writes the log, on a disk or in an object store. Each log entry carries the archive's id
and the batch number as the application's transaction. deltalake stores these but does not enforce
them, so they are compared before an entry is made.
"""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from warrenmq.pipeline.archives.directory import (
    ArchivedFile,
    ArchiveDirectory,
    Commit,
    parquet_figures,
    partition_of,
)
from warrenmq.pipeline.archives.merge import FilesGoneError, SmallFile, merge_those_there
from warrenmq.pipeline.result import JobError

PARTITION_COLUMNS: Final = ["queue", "date"]


def require_deltalake() -> None:
    """JobError when the library deltalake is not installed."""
    try:
        import deltalake  # noqa: F401 - imported only to see whether it is installed
    except ImportError:
        raise JobError("deltalake is not installed: pip install 'warrenmq[delta]'") from None


class DeltaFiles:
    """The files of an archive that is a Delta table: those that its log names."""

    def __init__(self, directory: ArchiveDirectory) -> None:
        self._directory = directory
        self.changing = threading.Lock()

    def commit(self, commit: Commit) -> None:
        """Add a commit's files, already moved to the target, to the log unless it has them."""
        from deltalake.transaction import AddAction, CommitProperties, Transaction

        if not commit.files:
            return
        table = self._table(commit.files[0])
        application = f"warren-archive-{self._directory.id}"
        last = table.transaction_version(application)
        if last is not None and last >= commit.batch:
            return
        now_ms = round(time.time() * 1000)
        actions = [
            AddAction(
                path=file.path,
                size=file.bytes,
                partition_values=file.partition,
                modification_time=now_ms,
                data_change=True,
                stats=_statistics(file.rows, file.seq_first, file.seq_last),
            )
            for file in commit.files
        ]
        with _refusing():
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=PARTITION_COLUMNS,
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(application, commit.batch)]
                ),
            )

    def newest_batch(self) -> int:
        """The number of the last batch that the log has; -1 when it has none."""
        if not self._is_there():
            return -1
        last = self._opened().transaction_version(f"warren-archive-{self._directory.id}")
        return -1 if last is None else int(last)

    def files(self) -> list[SmallFile]:
        """The files that the log names and that this archive has written."""
        if not self._is_there():
            return []
        ours = f"part-{self._directory.id[:8]}-"
        found = _files_of(self._opened())
        return [file for file in found if file.path.rpartition("/")[2].startswith(ours)]

    def replace(self, partition: str, chosen: list[SmallFile], name: str) -> int:
        """Replace the files `chosen` by a merged one in one log entry; returns its size in bytes.

        The old files stay on disk until `finish` finds them old enough. Raises FilesGoneError.
        """
        from deltalake.transaction import AddAction, RemoveAction

        target = self._directory.target
        goal = target / name
        merge_those_there(target, chosen, goal)
        size = goal.stat().st_size
        now_ms = round(time.time() * 1000)
        values: dict[str, str | None] = dict(partition_of(name))
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, False, now_ms, file.bytes, values) for file in chosen
        ]
        statistics = _statistics(*parquet_figures(goal))
        actions.append(AddAction(name, size, values, now_ms, False, statistics))
        with self.changing:
            table = self._opened()
            # Check that all chosen files still count: other programs may write to the table, and
            # rows that they have merged or deleted would come back. deltalake itself detects only
            # conflicts between here and the entry.
            if not {file.path for file in chosen} <= {file.path for file in _files_of(table)}:
                goal.unlink()
                raise FilesGoneError
            with _refusing():
                table.create_write_transaction(
                    actions, mode="append", schema=table.schema(), partition_by=PARTITION_COLUMNS
                )
        return size

    def finish(self) -> None:
        """Delete files that left the log longer ago than readers need (Delta's default: a week).

        Elsewhere than on a disk nothing leaves the log, and this is for the lake's own tools.
        """
        if self._directory.is_local and self._is_there():
            with _refusing():
                self._opened().vacuum(dry_run=False)

    def _is_there(self) -> bool:
        from deltalake import DeltaTable

        return bool(DeltaTable.is_deltatable(str(self._directory.place)))

    def _opened(self) -> Any:
        from deltalake import DeltaTable

        with _refusing():
            return DeltaTable(str(self._directory.place))

    def _table(self, sample: ArchivedFile) -> Any:
        """The table; created empty with the columns of `sample` when it does not exist.

        An older table gets the columns of `sample` that it lacks.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from deltalake import DeltaTable, Schema

        with self._directory.place.input(sample.path) as file:
            columns = pq.read_schema(file).remove_metadata()
        if not self._is_there():
            schema = columns.append(pa.field("queue", pa.string())).append(
                pa.field("date", pa.date32())
            )
            target = str(self._directory.place)
            with _refusing():
                DeltaTable.create(target, schema, mode="ignore", partition_by=PARTITION_COLUMNS)
        table = self._opened()
        known = {field.name for field in table.schema().fields}
        lacking = [field for field in columns if field.name not in known]
        if lacking:
            with _refusing():
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(lacking)).fields))
            table = self._opened()
        return table


def _files_of(table: Any) -> list[SmallFile]:
    actions = table.get_add_actions(flatten=True)
    paths, sizes = actions.column("path").to_pylist(), actions.column("size_bytes").to_pylist()
    # deltalake URL-encodes the paths it is given and returns them as they are in the log.
    return [SmallFile(unquote(path), size) for path, size in zip(paths, sizes, strict=True)]


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn errors of the Delta library into JobError."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        raise JobError(f"the Delta table cannot be used: {' '.join(str(error).split())}") from error


def _statistics(rows: int, seq_first: int, seq_last: int) -> str:
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {"seq": seq_first},
            "maxValues": {"seq": seq_last},
            "nullCount": {"seq": 0},
        }
    )
