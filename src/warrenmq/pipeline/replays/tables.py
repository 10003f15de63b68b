"""The files of a table that a replay reads, wherever it is: names, and values of partitions.

Spark reads files on disks of its machines itself (source.py). Files in an object store are read by
Spark's workers through pyarrow, since PySpark has no classes for object stores.
"""

import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from warrenmq.pipeline.places import LocalPlace, Place, RemotePlace, place_of
from warrenmq.pipeline.result import JobError
from warrenmq.spark.reason import reason_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

DELTA_LOG: Final = "_delta_log"
ICEBERG_HINT: Final = "version-hint.text"
# An escaped byte in a directory name.
ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
# Delta features that change the meaning of a table's files; a table with another feature is read as
# it is.
_DELTA_NOT_READ: Final = {"deletionVectors", "columnMapping"}
# Footers that are read at the same time.
_FOOTERS_AT_ONCE: Final = 16
# Files of a task when there are many, the tasks when there are few, and the most tasks.
_TASK_FILES_MIN: Final = 8
_TASKS_MIN: Final = 4
_TASKS_MAX: Final = 64
# Bytes of a batch that goes to Spark at once.
_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True)
class TableFile:
    """A file below its table, and the values of columns that are only in names or in a log."""

    name: str
    values: dict[str, Any]


def table_files(place: LocalPlace | RemotePlace) -> list[TableFile]:
    """The files that count in a table. JobError when there are none."""
    if is_iceberg(place):
        return iceberg_files(place)
    if is_delta(place):
        return delta_files(place)
    found = [
        TableFile(file.name, partition_values(file.name))
        for file in place.files()
        if file.name.endswith(".parquet")
        and not any(part.startswith(("_", ".")) for part in file.name.split("/"))
    ]
    if not found:
        raise JobError(
            f"{place} is no table: it has no Parquet files, no Delta log and no versions"
        )
    return found


def is_delta(place: LocalPlace | RemotePlace) -> bool:
    """Whether a Delta log is there."""
    if isinstance(place, LocalPlace):
        return (place.path / DELTA_LOG).is_dir()
    return bool(place.joined(DELTA_LOG).files())


def is_iceberg(place: LocalPlace | RemotePlace) -> bool:
    """Whether an Iceberg table is there, as a Hadoop catalog lays it out."""
    return place.joined("metadata").exists(ICEBERG_HINT)


def delta_files(place: LocalPlace | RemotePlace) -> list[TableFile]:
    """The files of a Delta table, with the values of its partition columns."""
    from warrenmq.pipeline.archives.delta import require_deltalake

    require_deltalake()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(place))
        not_read = _DELTA_NOT_READ & set(table.protocol().reader_features or ())
        partitioned_by = table.metadata().partition_columns
        actions = table.get_add_actions(flatten=True)
    except DeltaError as error:
        raise JobError(
            f"{place} is no Delta table that can be read: {reason_of(error).rstrip(';')}"
        ) from None
    if not_read:
        raise JobError(
            f"{place} is a Delta table with {', '.join(sorted(not_read))}, which is not read here"
        )
    paths = [unquote(path) for path in actions.column("path").to_pylist()]
    if not paths:
        raise JobError(f"{place} is a Delta table without data")
    columns = {name: actions.column(f"partition.{name}").to_pylist() for name in partitioned_by}
    return [
        TableFile(path, {name: values[number] for name, values in columns.items()})
        for number, path in enumerate(paths)
    ]


def iceberg_files(place: LocalPlace | RemotePlace) -> list[TableFile]:
    """The files of an Iceberg table; all columns are in the files, by their names."""
    from warrenmq.pipeline.archives.iceberg import require_pyiceberg

    require_pyiceberg()
    from warrenmq.pipeline.archives.iceberg_table import TableDirectory

    table = TableDirectory(place).load_table()
    base = f"{table.location()}/"
    found = []
    for task in table.scan().plan_files():
        if task.delete_files:
            raise JobError(
                f"{place} is an Iceberg table with files of deleted rows, which are not read here: rewrite its data files"
            )
        path = task.file.file_path
        if not path.startswith(base):
            raise JobError(f"{place} has a file elsewhere, {path}, which is not read here")
        found.append(TableFile(path.removeprefix(base), {}))
    if not found:
        raise JobError(f"{place} is an Iceberg table without data")
    return sorted(found, key=lambda file: file.name)


def partition_values(name: str) -> dict[str, Any]:
    """The values in the directory names of a file, as text: `queue=a%2Fb/x` has queue a/b."""
    values: dict[str, Any] = {}
    for part in PurePosixPath(name).parts[:-1]:
        column, equals, text = part.partition("=")
        if equals:
            text = ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)
            values[column] = None if text == _NULL_PARTITION else text
    return values


def read_elsewhere(
    spark: "SparkSession", place: LocalPlace | RemotePlace, files: Sequence[TableFile]
) -> "DataFrame":
    """The rows of a table's files as a DataFrame that Spark's workers read through pyarrow.

    The columns are those of all files; a file that lacks one has nulls. Values of partitions are
    text.
    """
    spark.dataSource.register(PlacedFiles)
    reader = spark.read.format(PlacedFiles.name()).schema(_schema(place, files))
    listed = json.dumps([[file.name, _as_text(file.values)] for file in files])
    return reader.option("place", str(place)).option("files", listed).load()


def _as_text(values: dict[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in values.items()}


def _schema(place: Place, files: Sequence[TableFile]) -> "StructType":
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql.pandas.types import from_arrow_schema

    def columns(file: TableFile) -> Any:
        with place.input(file.name) as source:
            found = pq.read_schema(source).remove_metadata()
        for name in file.values:
            if name not in found.names:
                found = found.append(pa.field(name, pa.string()))
        return found

    try:
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "warren-footers") as threads:
            whole = pa.unify_schemas(list(threads.map(columns, files)))
    except pa.ArrowException as error:
        raise JobError(f"{place} cannot be read as one table: {reason_of(error)}") from None
    return from_arrow_schema(whole)


@dataclass
class _Files(InputPartition):
    """The files that one task reads."""

    place: str
    files: list[tuple[str, dict[str, str | None]]]


class PlacedFiles(DataSource):
    """Spark's view of files at a place; options `place` and `files`, and a schema."""

    @classmethod
    def name(cls) -> str:
        """The name for `.format()`."""
        return "warren_placed_files"

    def reader(self, schema: "StructType") -> DataSourceReader:
        """A reader of the files that the options name."""
        return _PlacedFilesReader(self.options["place"], json.loads(self.options["files"]), schema)


class _PlacedFilesReader(DataSourceReader):
    def __init__(self, place: str, files: list[Any], schema: "StructType") -> None:
        self._place = place
        self._files = files
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        several = max(len(self._files) // _TASK_FILES_MIN, _TASKS_MIN)
        count = min(several, len(self._files), _TASKS_MAX)
        return [_Files(self._place, self._files[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from warrenmq.spark.local.worker import settle

        assert isinstance(partition, _Files)
        settle()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        place = place_of(partition.place)
        for name, values in partition.files:
            for batch in file_batches(place, name):
                yield conformed(batch, values, schema)


def file_batches(place: Place, name: str) -> Iterator[Any]:
    """The rows of a file as batches of bounded size."""
    import pyarrow.parquet as pq

    with place.input(name) as source, pq.ParquetFile(source) as file:
        for group in range(file.num_row_groups):
            figures = file.metadata.row_group(group)
            size = max(figures.total_byte_size // max(figures.num_rows, 1), 1)
            yield from file.iter_batches(max(_BATCH_BYTES // size, 1), row_groups=[group])


def conformed(batch: Any, values: dict[str, str | None], schema: Any) -> Any:
    """The rows of a file with all columns of its table; `values` come before those of the file."""
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name in values:
            columns.append(pa.repeat(pa.scalar(values[field.name], field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
