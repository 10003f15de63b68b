"""Parquet files below queue and day, in which a task of an archive writes the messages it reads."""

import os
import uuid
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warrenmq.pipeline.archives.directory import StagedFile
from warrenmq.pipeline.places import Place

ROW_GROUP_BYTES: Final = 32 << 20
# Most files that a task has open; before it opens another, it finishes all of them.
OPEN_FILES_MAX: Final = 8
# Columns without a dictionary: their values are all different, so a dictionary would be wasted
# work.
PLAIN_COLUMNS: Final = ("body", "headers_raw")
_DAY_US: Final = 86_400_000_000
# Characters that Hive and Spark write as %XX in directory names.
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{}[]^\x7f" + "".join([chr(code) for code in range(32)]))


# Name under which Hive and Spark store a null partition value.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


def escaped(value: str) -> str:
    """A partition value, escaped for the name of its directory."""
    if value == _NULL:
        return f"%{ord(value[0]):02X}{value[1:]}"
    return "".join([f"%{ord(each):02X}" if each in _ESCAPED else each for each in value])


def queue_directory(queue: str) -> str:
    """The name of the directory for a queue's messages."""
    return f"queue={escaped(queue)}"


class StagedFiles:
    """Writes batches of messages to files below `staging`; `close` makes them durable.

    `schema` has the columns of the files; None: those of the messages without `queue`. After
    `close`, `done` has the files.
    """

    def __init__(self, staging: Place, schema: Any = None) -> None:
        self._staging = staging
        self._schema = schema
        self._open: dict[tuple[str, str], _OpenFile] = {}
        self.done: list[StagedFile] = []

    def __enter__(self) -> "StagedFiles":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Leave the files of a failed task: no commit names them, and they are deleted with the
        # staging directory.
        if kind is None:
            self.close()

    def write(self, batch: Any) -> None:
        """Write a record batch whose messages are all of one queue."""
        if batch.num_rows == 0:
            return
        queue = batch.column("queue")[0].as_py()
        days = pc.divide(batch.column("enqueued_at").cast(pa.int64()), _DAY_US)
        rows = batch.drop_columns(["queue"]) if self._schema is None else batch.cast(self._schema)
        found = pc.unique(days).to_pylist()
        for day in found:
            self._file(queue, day).write(
                rows if len(found) == 1 else rows.filter(pc.equal(days, day))
            )

    def close(self) -> None:
        """Finish all open files, durably, and add them to `done`."""
        for file in self._open.values():
            self.done.append(file.close())
        self._open = {}

    def _file(self, queue: str, day: int) -> "_OpenFile":
        date = pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat()
        file = self._open.get((queue, date))
        if file is None:
            if len(self._open) == OPEN_FILES_MAX:
                self.close()
            name = f"{queue_directory(queue)}/date={date}/{uuid.uuid4().hex}.parquet"
            file = self._open[queue, date] = _OpenFile(self._staging, name)
        return file


class _OpenFile:
    """A file being written; gathers rows until they fill a row group."""

    def __init__(self, place: Place, name: str) -> None:
        self._place = place
        self._name = name
        self._sink: Any = None
        self._writer: Any = None
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._rows = 0
        self._seqs: list[int] = []

    def write(self, rows: Any) -> None:
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> StagedFile:
        """Finish the file, durably."""
        if self._waiting:
            self._flush()
        self._writer.close()
        self._sink.close()
        self._place.sync(self._name)
        size = self._place.size(self._name)
        return StagedFile(self._name, size, self._rows, min(self._seqs), max(self._seqs))

    def _flush(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            self._sink = self._place.output(self._name)
            self._writer = parquet_writer(self._sink, table.schema)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows
        self._seqs += pc.min_max(table["seq"]).as_py().values()
        self._waiting = []
        self._waiting_bytes = 0


def parquet_writer(where: str | os.PathLike[str] | Any, schema: Any) -> Any:
    """A Parquet writer with the settings of archives, to a path or an open file."""
    dictionaries = [name for name in schema.names if name not in PLAIN_COLUMNS]
    return pq.ParquetWriter(where, schema, compression="zstd", use_dictionary=dictionaries)
