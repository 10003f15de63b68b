"""The data source "warren_events": what happens in a node or a cluster, as a stream.

Spark finds it by `.format("warren_events")` through the top-level package `pyspark_warren_events`.
docs/spark/telemetry.md has tables of options and columns.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from warrenmq.spark.columns import check_columns
from warrenmq.spark.options import OptionError
from warrenmq.spark.telemetry.event_columns import EVENT_COLUMNS, event_schema
from warrenmq.spark.telemetry.event_options import parse_event_options
from warrenmq.spark.telemetry.event_reader import EventStreamReader
from warrenmq.spark.unusable_reader import UnusableStreamReader


class WarrenEventsDataSource(DataSource):
    """The format "warren_events" of `spark.readStream`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._given = options

    @classmethod
    def name(cls) -> str:
        """The name for `.format()`."""
        return "warren_events"

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        return event_schema()

    def reader(self, schema: StructType) -> NoReturn:
        """Raise OptionError: events that nobody has asked for are kept nowhere."""
        raise OptionError(
            "warren_events reads streams only. Use readStream, with trigger(availableNow=True) for "
            "the events since the last run"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - of Spark
        """A stream reader of the events."""
        try:
            check_columns(schema, EVENT_COLUMNS, 'format "warren_events" has')
            return EventStreamReader(parse_event_options(self._given), schema)
        except Exception as error:  # whatever it is: Spark would lose it
            return UnusableStreamReader(error)
