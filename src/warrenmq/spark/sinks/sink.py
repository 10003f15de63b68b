"""Writing with the data source "warren": each batch is published exactly once.

Each task writes its rows into a stage in the broker, which no consumer reads, and returns the id of
the stage (staging.py). The driver commits all stages of a batch with one request (commit.py). The
request may be repeated: the broker knows the last batch that it published for a sink. A run that
fails or is killed before the commit has published nothing. After the commit Spark may ask for the
same batch again, and the broker answers that the batch is done. The broker deletes abandoned stages
after an hour. docs/spark/writing.md is the user's side.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol import sinks
from warrenmq.spark.retry import SourceError
from warrenmq.spark.sinks.commit import Committed, abort, commit
from warrenmq.spark.sinks.nodes import sink_nodes, with_nodes
from warrenmq.spark.sinks.options import SinkOptions
from warrenmq.spark.sinks.staging import StagedRows, stage_rows
from warrenmq.spark.sinks.task_failure import raise_failures, unless_permanent

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Local properties that Spark sets on the tasks of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
# Batch number of a batch write, which has a single batch.
_ONLY_BATCH: Final = 0

_log = logging.getLogger("warren.spark")


class WarrenBatchWriter(DataSourceArrowWriter):
    """`df.write.format("warren")`: writes one batch, with `sinkId` once, however often it runs."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = with_nodes(options)
        self._sink = options.sink_id or f"save-{uuid.uuid4().hex}"

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of a task; runs in a worker."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return unless_permanent(
            lambda: stage_rows(self._options, self._sink, _ONLY_BATCH, partition, iterator)
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish the staged rows of all tasks, and wait until they are in their queues."""
        raise_failures(messages)
        by = commit(self._options, self._sink, _ONLY_BATCH, messages, True)
        if by is Committed.BEFORE:
            _log.warning("sink '%s' had been written already; nothing is written twice", self._sink)
        if self._options.sink_id is None:
            self._forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort the stages after a task has failed."""
        abort(self._options, messages)

    def _forget(self) -> None:
        """Delete the sink of a write without `sinkId`, since its batch cannot be requested again.

        A failure is only logged: the batch is published, so the write must succeed.
        """
        try:
            sink_nodes(self._options).request(
                lambda _: sinks.DeleteSink(self._sink), sinks.SinkDeleted, 0
            )
        except (AdminRefusedError, SourceError) as error:
            _log.warning("sink '%s' stays in the list of sinks: %s", self._sink, error)


class WarrenStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("warren")`: writes batch after batch of a sink.

    The sink is named by `sinkId`, else by the id of the query.
    """

    def __init__(self, options: SinkOptions) -> None:
        # Spark makes a writer for each batch.
        self._options = with_nodes(options)

    def write(self, iterator: "Iterator[RecordBatch]") -> WriterCommitMessage:
        """Stage the rows of a task; runs in a worker."""
        return unless_permanent(lambda: self._stage(iterator))

    def _stage(self, iterator: "Iterator[RecordBatch]") -> StagedRows:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY_ID)
        batch = None if context is None else context.getLocalProperty(_BATCH_ID)
        sink = self._options.sink_id or query
        if context is None or sink is None or batch is None:
            raise SourceError(
                "this is not a task of a streaming query: its query id and batch id are missing"
            )
        return stage_rows(self._options, sink, int(batch), context.partitionId(), iterator)

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish the batch, unless it was published before."""
        raise_failures(messages)
        names = {part.sink for part in messages if isinstance(part, StagedRows)}
        for sink in names:
            by = commit(self._options, sink, batchId, messages, False)
            if by is not Committed.NOW:
                self._check_last(sink, batchId)
            if by is Committed.BEFORE:
                _log.warning(
                    "batch %d of sink '%s' had been published already; nothing is published twice",
                    batchId,
                    sink,
                )

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Abort the stages after a task has failed."""
        abort(self._options, messages)

    def _check_last(self, sink: str, batch: int) -> None:
        """Raise SourceError when a batch that is done already is older than the sink's last one.

        Spark repeats only the last batch. A batch with an older number may have other rows, and its
        rows are not published.
        """
        away_s = self._options.away_timeout_ms / 1000
        try:
            last = (
                sink_nodes(self._options)
                .request(lambda _: sinks.DescribeSink(sink), sinks.SinkStatus, away_s)
                .batch
            )
        except AdminRefusedError:
            # The sink has been deleted meanwhile.
            return
        if last is not None and last > batch:
            raise SourceError(
                f"batch {batch} of sink '{sink}' is not published, because its batch {last} was before: the query's "
                f"checkpoint is a new one or an old copy. With a new checkpoint use another sinkId, or delete the sink "
                f"(warren sink delete {sink})"
            )
