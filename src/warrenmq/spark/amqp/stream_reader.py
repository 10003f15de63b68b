"""Streaming read from another broker: its messages go through a spool, and Spark reads the spool.

A delivery tag belongs to one channel, so other processes cannot ack the messages that Spark
commits. A broker also delivers a message only once. Spark needs to read a batch again, which the
spool allows. Offsets are positions in the spool:

    {"pos": 1234, "spool": "<id of the spool>", "v": 1}

spark/streams/reader.py describes the order of Spark's calls. The constructor does no I/O, because
Spark builds the reader a second time in another process. The first call in the driver process opens
the spool and starts the thread that fills it.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.amqp.consumer import SpoolConsumer, known_ids
from warrenmq.spark.amqp.options import AmqpSourceOptions
from warrenmq.spark.amqp.spool import Spool
from warrenmq.spark.large_bodies import READ_CHOICES, usable
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.lag import SourceLag, with_lag
from warrenmq.spark.streams.offsets import OFFSET_VERSION, OffsetJson
from warrenmq.tables.spool import SpoolError, SpoolSlice, read_slice

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_EVERYTHING: Final = 1 << 62

_log = logging.getLogger("warren.spark")


@dataclass
class SpoolPartition(InputPartition):
    """One slice of the spool."""

    part: SpoolSlice


class AmqpStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query: spool, offsets and planning in the driver, `read` in the workers."""

    def __init__(self, options: AmqpSourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._drains = False
        self._spool: Spool | None = None
        self._consumer: SpoolConsumer | None = None
        # End of the last batch that `latestOffset` returned.
        self._read_to = 0

    # -- what Spark calls in the driver process ----------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the run to the messages that are in the spool and in the queue now."""
        self._drains = True
        self._open()

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """The first uncommitted message in the spool; it cannot move before the first commit."""
        spool = self._open()
        return _encode(spool, spool.start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit in messages of a batch; `latestOffset` applies the limit in bytes too."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark
        """Commit the spool below `start`, and return the end of the next batch.

        Returns `start` itself when no message came within the long poll.
        """
        spool = self._open()
        position = self._resume(spool, start)
        if start.get("spool") == spool.id and start != _encode(spool, position):
            # The position in the checkpoint is not in the spool and that loss is accepted: a batch
            # from `start` on would leave out messages.
            return _encode(spool, position)
        spool.commit(position, known_ids(self._options))
        messages_max = (
            limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        )
        bytes_max = self._options.max_bytes
        if isinstance(limit, ReadAllAvailable):
            # Trigger.Once reads everything, whatever the options say.
            messages_max = bytes_max = _EVERYTHING
        self._wait(spool, position, messages_max)
        end = spool.end_of_batch(position, messages_max, bytes_max)
        target = self._consumer.target if self._consumer is not None else None
        if target is not None:
            end = min(end, max(target, position))
        self._read_to = end
        if end == position:
            return start
        return _encode(spool, end)

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """The end of the spool and the lag (streams/lag.py), only for the query's progress."""
        spool = self._spool
        if spool is None:
            return None
        options = self._options
        address = NodeAddress(options.uri)
        source = f"amqp: queue {options.queue} of vhost {address.vhost} at {address.where}, spool {options.spool_dir}"
        # The lag leaves out messages that are still in the broker: counting them takes a passive
        # declare.
        return with_lag(
            _encode(spool, spool.tail), SourceLag(source, max(spool.tail - self._read_to, 0))
        )

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """A partition for each slice of [start, end)."""
        if start == end:
            return []
        spool = self._open()
        last = self._resume(spool, end)
        first = (
            spool.start if start.get("spool") != end.get("spool") else self._resume(spool, start)
        )
        if first > last:
            # The batch goes back to the spool's position (`latestOffset`): it has no messages.
            self._lose(f"the range [{first}, {last}) of the checkpoint runs backwards")
            return []
        if first < spool.first:
            self._lose(
                f"messages from {first} to {min(last, spool.first)} are not in the spool any more"
            )
            first = min(last, spool.first)
        return [SpoolPartition(part) for part in spool.slices(first, last)]

    def commit(self, end: OffsetJson) -> None:
        """Commit the spool below `end`; `latestOffset` has usually done so already."""
        spool = self._open()
        spool.commit(self._resume(spool, end), known_ids(self._options))

    def stop(self) -> None:
        """Stop the thread and close the spool, like the end of the process; Spark may skip this."""
        if self._consumer is not None:
            self._consumer.stop()
            self._consumer = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    # -- what Spark calls in the workers -----------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """The record batches of one slice."""
        assert isinstance(partition, SpoolPartition)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        try:
            batches = read_slice(partition.part, schema)
            yield from usable(batches, self._options.large_bodies, READ_CHOICES)
        except (SpoolError, OSError) as error:
            raise SourceError(str(error)) from None

    # -- parts -------------------------------------------------------------------------------------

    def _open(self) -> Spool:
        """This process's spool; the first call opens it and starts to fill it."""
        if self._spool is None:
            options = self._options
            vhost = NodeAddress(options.uri).vhost
            self._spool = Spool(
                Path(options.spool_dir), vhost, options.queue, options.spool_bytes_max
            )
            self._consumer = SpoolConsumer(options, self._spool, self._drains)
            self._consumer.start()
        return self._spool

    def _wait(self, spool: Spool, position: int, messages_max: int) -> None:
        """Wait for a message during the long poll; in an availableNow run, wait for a whole batch.

        The last batch of such a run is complete when its target is reached. A full spool ends the
        wait as well. Raises SourceError when the consumer failed and no message is left to read.
        """
        consumer = self._consumer
        assert consumer is not None
        deadline = time.monotonic() + self._options.long_poll_ms / 1000
        with spool.changed:
            while True:
                if self._drains:
                    target = consumer.target
                    is_enough = spool.tail - position >= messages_max or spool.is_full
                    is_enough |= target is not None and spool.tail >= target
                    left_s = threading.TIMEOUT_MAX
                else:
                    is_enough = spool.tail > position
                    left_s = deadline - time.monotonic()
                if is_enough or left_s <= 0:
                    return
                if consumer.error is not None:
                    if spool.tail > position:
                        # Read the remaining messages before the error: they were acked to the
                        # broker.
                        return
                    raise SourceError(consumer.error)
                spool.changed.wait(left_s)

    def _resume(self, spool: Spool, offset: OffsetJson) -> int:
        """The position of `offset` in this spool; the spool's start after accepted data loss."""
        position = offset.get("pos")
        if offset.get("v") != OFFSET_VERSION or type(position) is not int or position < 0:
            raise SourceError(f"the checkpoint's offset {offset!r} is not one of this source")
        if offset.get("spool") != spool.id:
            self._lose(
                f"the checkpoint was made with another spool than {self._options.spool_dir}, and what was in that "
                "one and not committed is not here"
            )
            return spool.start
        if position > spool.tail:
            self._lose(f"messages from {spool.tail} to {position} are not in the spool any more")
            return spool.start
        return position

    def _lose(self, what: str) -> None:
        """Report data loss: raise SourceError, or log a warning with `failOnDataLoss=false`."""
        if self._options.fail_on_data_loss:
            raise SourceError(f"data loss: {what}. To go on all the same, set failOnDataLoss=false")
        _log.warning("data loss: %s", what)


def _encode(spool: Spool, position: int) -> OffsetJson:
    """The offset of `position`, with sorted keys, because Spark compares the text."""
    return {"pos": position, "spool": spool.id, "v": OFFSET_VERSION}
