"""Writing with the data source "warren": each batch is published exactly once.

Each task writes its rows into a stage in the broker, which no consumer reads, and returns the id of
the stage. The driver commits all stages of a batch with one request. The request may be repeated:
the broker knows the last batch that it published for a sink. A run that fails or is killed before
the commit has published nothing. After the commit Spark may ask for the same batch again, and the
broker answers that the batch is done. The broker deletes abandoned stages after an hour.
docs/spark/writing.md is the user's side.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol import sinks
from warrenmq.spark.broker_link import BrokerLink, connect, link_to
from warrenmq.spark.retry import BrokerAwayError, SourceError, is_transient
from warrenmq.spark.sinks.blocks import BlockMaker
from warrenmq.spark.sinks.node import uri_of_sink
from warrenmq.spark.sinks.options import SinkOptions
from warrenmq.spark.sinks.task_failure import raise_failures, unless_permanent
from warrenmq.vocabulary.error_codes import NO_ROOM

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Local properties that Spark sets on the tasks of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_PURPOSE: Final = "spark sink"
_TIMEOUT_OPTION: Final = "confirmTimeoutMs"
_WAIT_MS: Final = 10_000
# Batch number of a batch write, which has a single batch.
_ONLY_BATCH: Final = 0
_NOT_STAGED: Final = "the rows could not be staged, and nothing of the batch is published"

_log = logging.getLogger("warren.spark")


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The result of a task: the stage that has its rows."""

    sink: str
    partition: int
    # Id of the stage; None when the task had no rows.
    stage: int | None
    # Count of staged messages that no queue would get.
    unroutable: int


def stage_rows(
    options: SinkOptions,
    sink: str,
    batch: int,
    partition: int,
    iterator: "Iterator[RecordBatch]",
    queue: bytes = b"",
) -> StagedRows:
    """Stage the rows of `iterator`, for `queue` alone unless it is empty.

    A failure publishes nothing. It raises SourceError when it is permanent, and BrokerAwayError
    when all rows may be staged again from the first one on. Only the connect before the first row
    is retried here, since no row is lost by waiting then.
    """
    maker = BlockMaker(options.exchange, options.routing_key, options.is_persistent)
    wait_s = options.confirm_timeout_ms / 1000
    room_ms = options.away_timeout_ms
    client: AdminClient | None = None
    opened: sinks.StageOpened | None = None
    count = 0
    unroutable = 0
    try:
        for rows in iterator:
            for messages, block in maker.blocks(rows):
                if client is None or opened is None:
                    client = connect(
                        NodeAddress(_uri(options, sink)),
                        f"{_PURPOSE} {sink}",
                        options.away_timeout_ms / 1000,
                        _TIMEOUT_OPTION,
                    )
                    opened = client.request(
                        sinks.OpenStage(sink, batch, queue), sinks.StageOpened, wait_s
                    )
                if len(block) > opened.block_bytes_max:
                    # The broker would close the connection over a larger block, which would look as
                    # if the broker were away.
                    text = (
                        f"a message of {len(block)} bytes is above max_message_size of the broker"
                    )
                    raise SourceError(f"{_NOT_STAGED}: {text}")
                request = sinks.StageMessages(opened.stage, block, room_ms)
                client.request(request, sinks.Staged, room_ms / 1000)
                count += messages
        if client is not None and opened is not None:
            unroutable = client.request(
                sinks.FinishStage(opened.stage, count), sinks.StageFinished, wait_s
            ).unroutable
    except (AdminRefusedError, NodeUnreachableError) as error:
        raise (BrokerAwayError if is_transient(error) else SourceError)(
            f"{_NOT_STAGED}: {_text_of(error, options)}"
        ) from None
    finally:
        # Closing the connection aborts a stage that is not finished.
        if client is not None:
            client.close()
    return StagedRows(sink, partition, None if opened is None else opened.stage, unroutable)


def commit(
    options: SinkOptions,
    sink: str,
    batch: int,
    parts: Sequence[object],
    is_awaited: bool,
    after: int | None = None,
) -> bool:
    """Publish the staged messages exactly once, however often it is called; True when already done.

    With `is_awaited` it returns after the messages are in their queues. With `after` the broker
    commits only if the sink's last batch is `after` (-1: no batch yet). Raises SourceError when the
    broker refuses the batch or does not move it in time.
    """
    request = sinks.CommitBatch(
        sink, batch, _stages(parts), options.is_mandatory, 0, after, options.away_timeout_ms
    )
    deadline = time.monotonic() + options.confirm_timeout_ms / 1000
    is_repeated: bool | None = None
    try:
        link = _link(options, sink)
        while True:
            if is_awaited:
                left_ms = max(0, round((deadline - time.monotonic()) * 1000))
                request = replace(request, wait_ms=min(left_ms, _WAIT_MS))
            wait_s = (options.away_timeout_ms + request.wait_ms) / 1000
            reply = link.request(request, sinks.BatchCommitted, wait_s)
            if is_repeated is None:
                # Only the first reply counts: the requests that follow repeat the commit
                # themselves.
                is_repeated = reply.is_repeated
            if reply.is_moved or not is_awaited:
                return is_repeated
            if time.monotonic() > deadline:
                because = f": {reply.shortage}" if reply.shortage else ""
                raise SourceError(
                    f"batch {batch} of sink '{sink}' is committed, and not yet in its queues after "
                    f"{options.confirm_timeout_ms} ms (confirmTimeoutMs){because}; the broker goes on with it"
                )
    except AdminRefusedError as error:
        raise SourceError(
            f"batch {batch} of sink '{sink}' was refused: {_text_of(error, options)}"
        ) from None


def abort(options: SinkOptions, parts: Sequence[object]) -> None:
    """Abort the stages of the tasks. A broker that is away aborts them itself after an hour."""
    stages = _stages(parts)
    if stages:
        try:
            sink = next(part.sink for part in parts if isinstance(part, StagedRows))
            uri = uri_of_sink(options.uri, sink, 0, _TIMEOUT_OPTION)
            with AdminClient(NodeAddress(uri), _PURPOSE) as client:
                client.request(sinks.AbortStages(stages), sinks.StagesAborted)
        except (AdminRefusedError, NodeUnreachableError, SourceError):
            return


def _text_of(error: Exception, options: SinkOptions) -> str:
    """The text of `error`; it names the time-out if the broker had no room for so long."""
    if isinstance(error, AdminRefusedError) and error.code == NO_ROOM:
        return f"given up after {options.away_timeout_ms / 1000:g} s ({_TIMEOUT_OPTION}): {error}"
    return str(error)


def _link(options: SinkOptions, sink: str) -> BrokerLink:
    uri = _uri(options, sink)
    return link_to(uri, _PURPOSE, options.away_timeout_ms, _TIMEOUT_OPTION)


def _uri(options: SinkOptions, sink: str) -> str:
    """The URI of the sink's node."""
    return uri_of_sink(options.uri, sink, options.away_timeout_ms / 1000, _TIMEOUT_OPTION)


def _stages(parts: Sequence[object]) -> list[int]:
    """Ids of the tasks' stages, in the order of partitions; a failed task has none."""
    found = sorted(
        [part for part in parts if isinstance(part, StagedRows)], key=lambda part: part.partition
    )
    return [part.stage for part in found if part.stage is not None]


class WarrenBatchWriter(DataSourceArrowWriter):
    """`df.write.format("warren")`: writes one batch, with `sinkId` once, however often it runs."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
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
        if commit(self._options, self._sink, _ONLY_BATCH, messages, True):
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
            uri = _uri(self._options, self._sink)
            with AdminClient(NodeAddress(uri), _PURPOSE) as client:
                client.request(sinks.DeleteSink(self._sink), sinks.SinkDeleted)
        except (AdminRefusedError, NodeUnreachableError, SourceError) as error:
            _log.warning("sink '%s' stays in the list of sinks: %s", self._sink, error)


class WarrenStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("warren")`: writes batch after batch of a sink.

    The sink is named by `sinkId`, else by the id of the query.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

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
            if commit(self._options, sink, batchId, messages, False):
                self._check_repeated(sink, batchId)

    def abort(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Abort the stages after a task has failed."""
        abort(self._options, messages)

    def _check_repeated(self, sink: str, batch: int) -> None:
        """Raise SourceError when a repeated batch is older than the last one of the sink.

        Spark repeats only the last batch. A batch with an older number may have other rows, and its
        rows are not published.
        """
        try:
            last = (
                _link(self._options, sink).request(sinks.DescribeSink(sink), sinks.SinkStatus).batch
            )
        except AdminRefusedError:
            # The sink has been deleted meanwhile.
            last = None
        if last is not None and last > batch:
            raise SourceError(
                f"batch {batch} of sink '{sink}' is not published, because its batch {last} was before: the query's "
                f"checkpoint is a new one or an old copy. With a new checkpoint use another sinkId, or delete the sink "
                f"(warren sink delete {sink})"
            )
        _log.warning(
            "batch %d of sink '%s' had been published already; nothing is published twice",
            batch,
            sink,
        )
