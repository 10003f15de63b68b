"""Streaming read of events: a reader group of a queue that takes them.

The queue and its bindings are declared before the first call that needs them (KeepEvents), by each
run of the query: that changes nothing once they are there. From then on the query is that of a
stream of the queue (streams/reader.py), which gives each message exactly once.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol.control import Done
from warrenmq.admin.protocol.watching import KeepEvents
from warrenmq.spark.broker_link import link_to
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import WarrenStreamReader
from warrenmq.spark.telemetry.event_columns import event_batch, message_schema
from warrenmq.spark.telemetry.event_options import EventOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_PURPOSE: Final = "Spark events"


class EventStreamReader(WarrenStreamReader):
    """The reader of one query."""

    def __init__(self, options: EventOptions, schema: StructType) -> None:
        super().__init__(options.source, message_schema(schema.names))
        self._events = options
        self._event_schema = schema
        self._is_kept = False

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """See WarrenStreamReader."""
        self._keep()
        super().prepareForTriggerAvailableNow()

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """See WarrenStreamReader."""
        self._keep()
        return super().initialOffset()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark
        """See WarrenStreamReader."""
        self._keep()
        return super().latestOffset(start, limit)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """See WarrenStreamReader."""
        self._keep()
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of some events; may be repeated until the group acks the range."""
        schema = to_arrow_schema(self._event_schema, timezone="UTC")
        for messages in super().read(partition):
            yield event_batch(messages, schema)

    def _keep(self) -> None:
        """Have the node keep events for this query. Raises SourceError."""
        if self._is_kept:
            return
        options = self._events
        request = KeepEvents(
            vhost=options.source.vhost,
            queue=options.queue.encode(),
            events=[pattern.encode() for pattern in options.events],
            messages=[pattern.encode() for pattern in options.firehose],
        )
        link = link_to(options.source.uri, _PURPOSE, options.source.retry_timeout_ms)
        try:
            link.request(request, Done)
        except AdminRefusedError as error:
            raise SourceError(error.text) from None
        self._is_kept = True
