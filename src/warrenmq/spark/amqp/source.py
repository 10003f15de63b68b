"""The data source "warren" with `broker=amqp`: any AMQP 0-9-1 broker, through AMQP alone."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.types import StructType

from warrenmq.spark.amqp.options import is_amqp, parse_amqp_sink, parse_amqp_source
from warrenmq.spark.amqp.writer import AmqpBatchWriter, AmqpStreamWriter
from warrenmq.spark.columns import check_schema, default_schema
from warrenmq.spark.options import OptionError, parse_boolean
from warrenmq.spark.sinks.columns import check_sink_columns
from warrenmq.spark.sinks.options import (
    ASYNC_OPTIONS_OF_SPARK,
    STREAM_OPTIONS_OF_SPARK,
    without_options_of_spark,
)

if TYPE_CHECKING:
    from warrenmq.spark.amqp.stream_reader import AmqpStreamReader


class AmqpSource:
    """Does the work of `WarrenDataSource` for brokers of other kinds, with the same methods."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def schema(self) -> StructType:
        """The columns when the user gives no schema."""
        include_body = parse_boolean(self._options, "includeBody", True)
        return default_schema(include_body, parse_boolean(self._options, "includeHeaders", True))

    def reader(self) -> NoReturn:
        """Raise OptionError: AMQP cannot read a queue without taking its messages."""
        raise OptionError(
            "broker=amqp reads streams only: AMQP cannot look at a queue without taking its messages out, and a "
            "DataFrame may be read any number of times. Use readStream, with trigger(availableNow=True) for what is "
            "in the queue now"
        )

    def stream_reader(self, schema: StructType) -> "AmqpStreamReader":
        """A stream reader of a queue, through a spool."""
        # The reader needs numpy, which a mere look-up of the format must not import.
        from warrenmq.spark.amqp.stream_reader import AmqpStreamReader

        options = parse_amqp_source(self._options)
        check_schema(schema, options.include_body, options.include_headers, options.large_bodies)
        return AmqpStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> AmqpBatchWriter:
        """A batch writer: publishes rows to an exchange."""
        options = parse_amqp_sink(self._options)
        _check_mode(overwrite)
        check_sink_columns(schema, options.exchange is not None)
        return AmqpBatchWriter(options)

    def stream_writer(self, schema: StructType, overwrite: bool) -> AmqpStreamWriter:
        """A stream writer: publishes rows to an exchange, batch after batch."""
        of_spark = STREAM_OPTIONS_OF_SPARK + ASYNC_OPTIONS_OF_SPARK
        options = parse_amqp_sink(without_options_of_spark(self._options, of_spark))
        _check_mode(overwrite)
        check_sink_columns(schema, options.exchange is not None)
        return AmqpStreamWriter(options)


def other_broker(options: Mapping[str, str]) -> AmqpSource | None:
    """The source for a broker of another kind; None when the options name warren, or no kind."""
    return AmqpSource(options) if is_amqp(options) else None


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise OptionError(
            "a queue cannot be overwritten: use mode 'append', in a stream 'append' or 'update'"
        )
