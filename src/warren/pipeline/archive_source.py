"""The stream of an archive: format "warren", whose tasks write Parquet files and give Spark their names.

Spark plans the batches, shares them out, and repeats what failed; messages do not pass through its JVM, where each would
become a row and that row a column again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from warren.spark.columns import default_schema
from warren.spark.options import SourceOptions, parse_options
from warren.spark.stream_reader import WarrenStreamReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch

NAME: Final = "warren_archive"
# A row is a file that a task has written.
SCHEMA: Final = StructType([StructField("path", StringType())])


class ArchiveSource(DataSource):
    """Options are those of format "warren", and `staging`: the directory to write to."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        given = {name.lower(): value for name, value in options.items()}
        self._staging = Path(given.pop("staging"))
        self._options = parse_options(given)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """Names of files."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> "ArchiveReader":  # noqa: N802 - Spark's name
        """The files of batch after batch."""
        return ArchiveReader(self._options, self._staging)


class ArchiveReader(WarrenStreamReader):
    """Reads as format "warren" does, with all columns; what a task has read is in files when it ends."""

    def __init__(self, options: SourceOptions, staging: Path) -> None:
        super().__init__(options, default_schema(include_body=True, include_headers=True))
        self._staging = staging

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """In a worker: the names of the files with the messages of a partition."""
        import pyarrow as pa

        from warren.pipeline.archive_files import StagedFiles

        with StagedFiles(self._staging) as files:
            for batch in super().read(partition):
                files.write(batch)
        yield pa.RecordBatch.from_pydict(
            {"path": files.paths}, schema=to_arrow_schema(SCHEMA, timezone="UTC")
        )
