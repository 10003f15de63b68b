"""Writing a DataFrame to another broker, at least once: a task that is repeated publishes its rows again.

So that consumers can tell, a message without a message-id gets one that a repeated task gives again, if its rows come in
the same order: `<sink id>/<batch id>/<partition>/<row>`. There is nothing to commit: messages are out when a task ends.
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
from warrenmq.spark.sink_columns import MessageMaker
from warrenmq.spark.task_failure import raise_failures, unless_permanent

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass
class Published(WriterCommitMessage):
    """What a task has done."""

    messages: int


class AmqpBatchWriter(DataSourceArrowWriter):
    """One `save()`."""

    def __init__(self, options: AmqpSinkOptions) -> None:
        self._options = options
        # Made once, in the driver: all attempts of all tasks have it.
        self._sink_id = options.sink_id or uuid.uuid4().hex

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """In a worker: the rows of one partition."""
        prefix = f"{self._sink_id}/0/{_task_context().partitionId()}"
        return unless_permanent(lambda: publish(self._options, iterator, prefix))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All of it is published already, unless a task failed."""
        raise_failures(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What is published cannot be taken back."""


class AmqpStreamWriter(DataSourceStreamArrowWriter):
    """One query's sink."""

    def __init__(self, options: AmqpSinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator["RecordBatch"]) -> WriterCommitMessage:
        """In a worker: the rows of one partition of a batch."""
        return unless_permanent(lambda: self._publish(iterator))

    def _publish(self, iterator: Iterator["RecordBatch"]) -> Published:
        context = _task_context()
        # The query's id is in its checkpoint, so it is the same after a restart.
        sink_id = self._options.sink_id or context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        if sink_id is None or batch_id is None:
            raise SourceError(
                "Spark does not tell the ids of the query and its batch: set option 'sinkId'"
            )
        return publish(self._options, iterator, f"{sink_id}/{batch_id}/{context.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """All of it is published already, unless a task failed."""
        raise_failures(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What is published cannot be taken back."""


def publish(
    options: AmqpSinkOptions, batches: Iterator["RecordBatch"], id_prefix: str
) -> Published:
    """Publish the rows and wait for all confirms. SourceError when that cannot be."""
    maker = MessageMaker(options.exchange, options.routing_key)
    publisher = publisher_for(options)
    count = 0
    try:
        for batch in batches:
            publisher.publish(maker.messages(batch, id_prefix, count))
            count += batch.num_rows
        publisher.finish()
    except BaseException:
        # Also when the rows cannot be computed: the next task must not wait for what this one has sent.
        publisher.drop()
        raise
    return Published(count)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context
