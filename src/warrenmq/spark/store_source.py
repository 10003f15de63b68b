"""The data source "warren_store": the files of a stopped node, or of a backup, as tables.

Spark finds it by `.format("warren_store")` through the top-level package `pyspark_warren_store`.
warrenmq.tables plans and reads; this module connects it to Spark. Modules that need pyarrow are
imported at their first use.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.spark.columns import check_columns
from warrenmq.spark.large_bodies import READ_CHOICES, usable
from warrenmq.spark.local.worker import settle
from warrenmq.spark.retry import SourceError
from warrenmq.spark.store_options import StoreOptions, parse_store_options

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from warrenmq.tables.parts import Partition


class WarrenStoreDataSource(DataSource):
    """The format "warren_store" of `spark.read`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = parse_store_options(options)

    @classmethod
    def name(cls) -> str:
        """The name for `.format()`."""
        return "warren_store"

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        from warrenmq.tables.schemas import EXACT_COLUMNS, MESSAGES

        left_out = set() if self._options.include_body else {"body"}
        if self._options.table == MESSAGES:
            left_out |= EXACT_COLUMNS.keys()
        columns = _columns(self._options.table)
        return StructType([column for column in columns if column.name not in left_out])

    def reader(self, schema: StructType) -> "StoreReader":
        """A reader of the table that the options name, in the directory as it is now."""
        known = {column.name: column.dataType for column in _columns(self._options.table)}
        check_columns(
            schema, known, f'format "warren_store" has in the table {self._options.table}'
        )
        return StoreReader(self._options, schema)


def _columns(table: str) -> list[Any]:
    from warrenmq.tables.schemas import schema_of

    return list(from_arrow_schema(schema_of(table)).fields)


@dataclass
class StorePartition(InputPartition):
    """The group of files that one task reads."""

    partition: "Partition"


class StoreReader(DataSourceReader):
    """The reader of one `load()`."""

    def __init__(self, options: StoreOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The groups of files to read, one for each task."""
        from warrenmq.tables.planning import PlanError, plan

        try:
            found = plan(
                Path(self._options.path), self._options.table, self._options.read_options()
            )
        except (PlanError, OSError) as error:
            raise SourceError(str(error)) from None
        return [StorePartition(partition) for partition in found]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of the rows of one group; runs in a worker."""
        from warrenmq.tables.reading import ReadError, read

        # Spark passes a partition of its own class when there is nothing to read.
        if not isinstance(partition, StorePartition):
            return
        settle()
        schema = to_arrow_schema(self._schema, timezone="UTC")
        try:
            batches = read(partition.partition, schema)
            yield from usable(batches, self._options.large_bodies, READ_CHOICES)
        except (ReadError, OSError) as error:
            raise SourceError(str(error)) from None
