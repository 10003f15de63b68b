"""The data source "warren": queues of a warren broker, as a stream or as a table.

Spark finds it by `.format("warren")` without registration, through the top-level package
`pyspark_warren`. Options are in options.py and columns in columns.py; docs/spark/options.md has
tables of both. There is no `pushFilters`: in PySpark 4.3 a source that takes filters returns wrong
rows when a DataFrame is used twice.
"""

from collections.abc import Mapping
from functools import cached_property

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from warrenmq.spark.amqp.source import other_broker
from warrenmq.spark.batch_reader import WarrenBatchReader
from warrenmq.spark.columns import check_schema, default_schema
from warrenmq.spark.options import OptionError, SourceOptions, parse_options
from warrenmq.spark.sinks.columns import check_sink_columns
from warrenmq.spark.sinks.options import (
    STREAM_OPTIONS_OF_SPARK,
    SinkOptions,
    parse_sink_options,
    without_options_of_spark,
)
from warrenmq.spark.sinks.sink import WarrenBatchWriter, WarrenStreamWriter
from warrenmq.spark.streams.reader import WarrenStreamReader
from warrenmq.spark.unusable_reader import UnusableStreamReader


class WarrenDataSource(DataSource):
    """Format "warren" of `spark.read` and `spark.readStream`, `df.write` and `df.writeStream`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # The source for `broker=amqp`; None: the broker is warren, and this class does the work.
        self._other = other_broker(options)
        self._given = options

    @classmethod
    def name(cls) -> str:
        """The name for `.format()`."""
        return "warren"

    @cached_property
    def _options(self) -> SourceOptions:
        # Parsed at first use: writing has other options, and the constructor does not learn whether
        # Spark is going to read or to write.
        return parse_options(self._given)

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        if self._other is not None:
            return self._other.schema()
        return default_schema(self._options.include_body, self._options.include_headers)

    def reader(self, schema: StructType) -> WarrenBatchReader:
        """A batch reader: reads the ready messages of the queues and leaves them there."""
        if self._other is not None:
            self._other.reader()
        self._check(schema)
        return WarrenBatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - of Spark
        """A stream reader: acks messages when Spark has committed them."""
        try:
            if self._other is not None:
                return self._other.stream_reader(schema)
            self._check(schema)
            return WarrenStreamReader(self._options, schema)
        except Exception as error:  # whatever it is: Spark would lose it
            return UnusableStreamReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A batch writer: publishes all rows as messages, or none of them."""
        if self._other is not None:
            return self._other.writer(schema, overwrite)
        return WarrenBatchWriter(_sink_options(self._given, schema, overwrite))

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """A stream writer: publishes each batch of rows exactly once."""
        if self._other is not None:
            return self._other.stream_writer(schema, overwrite)
        given = without_options_of_spark(self._given, STREAM_OPTIONS_OF_SPARK)
        return WarrenStreamWriter(_sink_options(given, schema, overwrite))

    def _check(self, schema: StructType) -> None:
        options = self._options
        check_schema(schema, options.include_body, options.include_headers, options.large_bodies)


def _sink_options(given: Mapping[str, str], schema: StructType, overwrite: bool) -> SinkOptions:
    options = parse_sink_options(given)
    if overwrite:
        raise OptionError("mode overwrite: what is in queues cannot be replaced; use mode append")
    check_sink_columns(schema, options.exchange is not None)
    return options
