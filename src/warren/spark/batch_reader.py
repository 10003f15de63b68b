"""Batch reading: a look at the ready messages of a queue, which stay where they are.

The range of seq ids is fixed when the DataFrame is planned (once per `load()`); what is consumed meanwhile is simply not
there any more, so two actions on one DataFrame may see different rows. Messages that a consumer or a reader group holds
are not ready, hence not seen.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from warren.admin.client import AdminRefusedError
from warren.admin.protocol import DescribeQueue, Fetched, Peek, QueueDescription
from warren.spark.broker_link import BrokerLink, SourceError, link_to
from warren.spark.fetching import FETCH_BYTES, FETCH_MESSAGES, batch_builder, checked_batch
from warren.spark.options import OptionError, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# A task costs about 90 ms of CPU before it reads anything: few, and not more than a small machine can use.
PARTITIONS_MAX: Final = 16
MESSAGES_PER_PARTITION: Final = 32768


@dataclass
class PeekRange(InputPartition):
    """Seq ids [start, end) of one incarnation of the queue."""

    incarnation: int
    start: int
    end: int


class WarrenBatchReader(DataSourceReader):
    """One `load()`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.stream_options:
            raise OptionError(
                f"option '{options.stream_options[0]}' is for streams: batch reads know no such thing"
            )
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Ranges of what is ready now."""
        request = DescribeQueue(self._options.queue.encode())
        try:
            queue = self._link().request(request, QueueDescription)
        except AdminRefusedError as error:
            raise SourceError(error.text) from None
        width = queue.tail - queue.first_ready
        count = min(PARTITIONS_MAX, max(1, -(-width // MESSAGES_PER_PARTITION)))
        bounds = [queue.first_ready + width * index // count for index in range(count + 1)]
        return [PeekRange(queue.incarnation, start, end) for start, end in itertools.pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """In a worker: what is still ready of one range."""
        assert isinstance(partition, PeekRange)
        builder = batch_builder(self._options, self._schema)
        link = self._link()
        start = partition.start
        while start < partition.end:
            request = Peek(
                queue=self._options.queue.encode(),
                incarnation=partition.incarnation,
                start=start,
                end=partition.end,
                max_messages=FETCH_MESSAGES,
                max_bytes=FETCH_BYTES,
                with_bodies=builder.needs_bodies,
            )
            try:
                fetched = link.request(request, Fetched)
            except AdminRefusedError as error:
                raise SourceError(error.text) from None
            batch = checked_batch(builder, fetched.block)
            if batch.num_rows:
                yield batch
            start = fetched.next

    def _link(self) -> BrokerLink:
        return link_to(self._options.uri, "Spark batch read", self._options.retry_timeout_ms)
