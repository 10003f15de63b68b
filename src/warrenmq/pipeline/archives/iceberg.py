"""The log of an archive that is an Iceberg table: data files count once a snapshot names them.

Tasks write the files where they stay (files.py), with the ids of the table's columns. The driver
enters a batch in one commit: a snapshot with its files, and a property of the table with the
batch's number. A batch that is committed again, after a crash, finds its number there. The property
stays when somebody expires old snapshots.
"""

import threading
from typing import TYPE_CHECKING, Any, Final

from warrenmq.pipeline.archives.directory import ArchivedFile, ArchiveDirectory, Commit
from warrenmq.pipeline.result import JobError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

# How often a commit is tried while other programs change the table.
_TRIES_MAX: Final = 20
# Bodies and raw headers have no useful least and greatest value.
_PROPERTIES: Final = {
    "write.parquet.compression-codec": "zstd",
    "write.metadata.metrics.column.body": "none",
    "write.metadata.metrics.column.headers_raw": "none",
    # A stream makes many versions; this many old ones are kept for readers.
    "write.metadata.previous-versions-max": "100",
}


def require_pyiceberg() -> None:
    """JobError when the library pyiceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401 - imported only to see whether it is installed
    except ImportError:
        raise JobError("pyiceberg is not installed: pip install 'warrenmq[iceberg]'") from None


class IcebergFiles:
    """The files of an archive that is an Iceberg table: those that its newest version names."""

    def __init__(self, directory: ArchiveDirectory) -> None:
        from warrenmq.pipeline.archives.iceberg_table import TableDirectory

        self._directory = directory
        self._catalog = TableDirectory(directory.place)
        self._property = f"warren.archive.{directory.id}.batch"
        self.changing = threading.Lock()

    @property
    def columns(self) -> Any:
        """The Arrow schema of files. Creates the table, or adds the columns that it lacks."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            return _arrow_schema(self._table().schema())
        except (CommitFailedException, ValueError) as error:
            raise JobError(f"the Iceberg table cannot be used: {_line(error)}") from error

    def _table(self) -> "Table":
        from pyiceberg.exceptions import NoSuchTableError

        try:
            table = self._catalog.load_table()
        except NoSuchTableError:
            return self._create()
        wanted = _columns()
        if {field.name for field in wanted.fields} - set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(wanted)
            table = self._catalog.load_table()
        return table

    def _create(self) -> "Table":
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform, IdentityTransform

        schema = _columns()
        spec = PartitionSpec(
            PartitionField(schema.find_field("queue").field_id, 1000, IdentityTransform(), "queue"),
            PartitionField(
                schema.find_field("enqueued_at").field_id, 1001, DayTransform(), "enqueued_at_day"
            ),
        )
        return self._catalog.create(schema, spec, _PROPERTIES)

    def newest_batch(self) -> int:
        """The number of the last batch that the table has; -1 when it has none."""
        from pyiceberg.exceptions import NoSuchTableError

        try:
            properties = self._catalog.load_table().properties
        except NoSuchTableError:
            return -1
        return int(properties.get(self._property, "-1"))

    def commit(self, commit: Commit) -> None:
        """Add a commit's files to the table unless it has them."""
        from pyiceberg.exceptions import CommitFailedException

        if not commit.files:
            return
        for number in range(_TRIES_MAX):
            table = self._catalog.load_table()
            if int(table.properties.get(self._property, "-1")) >= commit.batch:
                return
            files = [self._data_file(table, file) for file in commit.files]
            try:
                with table.transaction() as transaction:
                    with transaction.update_snapshot().fast_append() as append:
                        for file in files:
                            append.append_data_file(file)
                    transaction.set_properties({self._property: str(commit.batch)})
                return
            except CommitFailedException as error:
                # Somebody else has changed the table meanwhile: enter the batch in its new version.
                if number == _TRIES_MAX - 1:
                    raise JobError(f"the Iceberg table cannot be used: {_line(error)}") from error

    def _data_file(self, table: "Table", file: ArchivedFile) -> Any:
        """The entry of a file, with the statistics of its columns from its footer."""
        import datetime

        import pyarrow.parquet as pq
        from pyiceberg.io.pyarrow import (
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        from warrenmq.pipeline.archives.iceberg_table import location_of

        schema, spec = table.schema(), table.spec()
        if [field.name for field in spec.fields] != ["queue", "enqueued_at_day"]:
            raise JobError(
                f"the partitions of {self._directory.place} were changed, and an archive writes those of queue and day"
            )
        with self._directory.place.input(file.path) as source:
            footer = pq.read_metadata(source)
        statistics = data_file_statistics_from_parquet_metadata(
            footer,
            compute_statistics_plan(schema, table.properties),
            parquet_path_to_id_mapping(schema),
        )
        values = file.partition
        day = datetime.date.fromisoformat(values["date"]) - datetime.date(1970, 1, 1)
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{location_of(self._directory.place)}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(values["queue"], day.days),
            file_size_in_bytes=file.bytes,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    def finish(self) -> None:
        """Do nothing: old versions and files are left to the lake's own tools."""


def _columns() -> "Schema":
    """The columns of messages as Iceberg's, with ids in their order."""
    from pyiceberg import types as iceberg
    from pyiceberg.schema import Schema
    from pyspark.sql.types import MapType

    from warrenmq.spark.columns import COLUMNS

    kinds: dict[str, Any] = {
        "string": iceberg.StringType(),
        "bigint": iceberg.LongType(),
        "int": iceberg.IntegerType(),
        "boolean": iceberg.BooleanType(),
        "binary": iceberg.BinaryType(),
        "timestamp": iceberg.TimestamptzType(),
    }
    fields = []
    number = 0
    for name, kind in COLUMNS.items():
        number += 1
        if isinstance(kind, MapType):
            found = iceberg.MapType(
                number + 1, kinds["string"], number + 2, kinds["string"], value_required=False
            )
            fields.append(iceberg.NestedField(number, name, found, required=False))
            number += 2
        else:
            found = kinds[kind.simpleString()]
            fields.append(iceberg.NestedField(number, name, found, required=False))
    return Schema(*fields)


def _arrow_schema(schema: "Schema") -> Any:
    """The columns of messages as Arrow's, each with its id in the table."""
    import pyarrow as pa
    from pyiceberg.types import MapType
    from pyspark.sql.pandas.types import to_arrow_schema

    from warrenmq.spark.columns import default_schema

    def numbered(field: Any, number: int) -> Any:
        return field.with_metadata({"PARQUET:field_id": str(number)})

    fields = []
    for field in to_arrow_schema(default_schema(True, True), timezone="UTC"):
        column = schema.find_field(field.name)
        if isinstance(column.field_type, MapType):
            kind = pa.map_(
                numbered(field.type.key_field, column.field_type.key_id),
                numbered(field.type.item_field, column.field_type.value_id),
            )
            field = pa.field(field.name, kind, field.nullable)
        fields.append(numbered(field, column.field_id))
    return pa.schema(fields)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
