"""Writes a DataFrame to another broker, at least once: a repeated task publishes its rows again.

A message without a message-id gets `<sink id>/<batch id>/<partition>/<row>`, so that consumers can
recognize duplicates: a repeated task gives the same ids if its rows come in the same order. There
is nothing to commit: all messages are published when a task ends.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.taskcontext import TaskContext

from warrenmq.spark.amqp.options import AmqpSinkOptions
from warrenmq.spark.amqp.publisher import publisher_for
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.columns import MessageMaker
from warrenmq.spark.sinks.task_failure import raise_failures, unless_permanent

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass
class Published(WriterCommitMessage):
    """The result of a task: how many messages it published."""

    messages: int


class AmqpBatchWriter(DataSourceArrowWriter):
    """The writer of one `save()`."""

    def __init__(self, options: AmqpSinkOptions) -> None:
        self._options = options
        # Made once, in the driver, so that all attempts of all tasks use the same id.
        self._sink_id = options.sink_id or uuid.uuid4().hex

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Publish the rows of one partition; runs in a worker."""
        prefix = f"{self._sink_id}/0/{_task_context().partitionId()}"
        return unless_permanent(lambda: publish(self._options, iterator, prefix))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Raise the failure of a task; all rows are published already."""
        raise_failures(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: published messages cannot be taken back."""


class AmqpStreamWriter(DataSourceStreamArrowWriter):
    """The writer of one streaming query."""

    def __init__(self, options: AmqpSinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """Publish the rows of one partition of a batch; runs in a worker."""
        return unless_permanent(lambda: self._publish(iterator))

    def _publish(self, iterator: Iterator["RecordBatch"]) -> Published:
        context = _task_context()
        # Spark stores the query's id in the checkpoint, so the id is the same after a restart.
        sink_id = self._options.sink_id or context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if sink_id is None or batch_id is None:
            raise SourceError(
                "Spark does not tell the ids of the query and its batch: set option 'sinkId'"
            )
        return publish(self._options, iterator, f"{sink_id}/{batch_id}/{context.partitionId()}")

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Raise the failure of a task; all rows are published already."""
        raise_failures(messages)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Do nothing: published messages cannot be taken back."""


def publish(
    options: AmqpSinkOptions, batches: Iterator["RecordBatch"], id_prefix: str
) -> Published:
    """Publish the rows and wait for all confirms; SourceError if the broker does not take them."""
    maker = MessageMaker(options.exchange, options.routing_key)
    publisher = publisher_for(options)
    count = 0
    try:
        for batch in batches:
            publisher.publish(maker.messages(batch, id_prefix, count))
            count += batch.num_rows
        publisher.finish()
    except BaseException:
        # Drop the messages even when Spark fails to compute the rows: the next task must not wait
        # for the messages of this one.
        publisher.drop()
        raise
    return Published(count)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
