"""The data source "warren": a queue of a warren broker, as a stream or as a table.

Found by `.format("warren")` without registration, through the top-level package `pyspark_warren`. Options are in
options.py, columns in columns.py; both are tables in docs/spark.md. There is no `pushFilters`: in PySpark 4.3 a source
that takes filters returns wrong rows when a DataFrame is used twice.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from warren.spark.batch_reader import WarrenBatchReader
from warren.spark.columns import check_schema, default_schema
from warren.spark.options import parse_options
from warren.spark.stream_reader import WarrenStreamReader


class WarrenDataSource(DataSource):
    """`spark.read.format("warren")` and `spark.readStream.format("warren")`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = parse_options(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "warren"

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        return default_schema(self._options.include_body, self._options.include_headers)

    def reader(self, schema: StructType) -> WarrenBatchReader:
        """The ready messages of the queue, which stay there."""
        check_schema(schema)
        return WarrenBatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> WarrenStreamReader:  # noqa: N802 - Spark's name
        """The messages of the queue, acked when Spark has committed them."""
        check_schema(schema)
        return WarrenStreamReader(self._options, schema)
