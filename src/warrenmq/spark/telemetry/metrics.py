"""The data source "warren_metrics": figures of nodes, queues and reader groups over time.

Spark finds it by `.format("warren_metrics")` through the top-level package
`pyspark_warren_metrics`. docs/spark/telemetry.md has tables of options, columns and metrics.
"""

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from warrenmq.spark.columns import check_columns
from warrenmq.spark.telemetry.metric_columns import METRIC_COLUMNS, metric_schema
from warrenmq.spark.telemetry.metric_options import parse_metric_options
from warrenmq.spark.telemetry.metric_reader import MetricBatchReader, MetricStreamReader
from warrenmq.spark.unusable_reader import UnusableStreamReader


class WarrenMetricsDataSource(DataSource):
    """The format "warren_metrics" of `spark.read` and `spark.readStream`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = options

    @classmethod
    def name(cls) -> str:
        """The name for `.format()`."""
        return "warren_metrics"

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        return metric_schema()

    def reader(self, schema: StructType) -> MetricBatchReader:
        """A batch reader: the samples that the nodes keep, and a fresh one."""
        check_columns(schema, METRIC_COLUMNS, 'format "warren_metrics" has')
        return MetricBatchReader(parse_metric_options(self._given), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - of Spark
        """A stream reader of samples, from the oldest ones that the nodes keep."""
        try:
            check_columns(schema, METRIC_COLUMNS, 'format "warren_metrics" has')
            return MetricStreamReader(parse_metric_options(self._given), schema)
        except Exception as error:  # whatever it is: Spark would lose it
            return UnusableStreamReader(error)
