"""Stages the rows of a task: the same blocks, in the same order, at two nodes of a cluster.

A node that goes away is left out, and the task goes on with the other one. So is a node that
refuses what the other one takes, such as one that has not heard of a new exchange yet. A broker
that runs alone has the only stage.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyspark.sql.datasource import WriterCommitMessage

from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.protocol import sinks
from warrenmq.admin.protocol.requests import Request
from warrenmq.spark.retry import BrokerAwayError, Retry, SourceError, is_transient
from warrenmq.spark.sinks.blocks import BlockMaker
from warrenmq.spark.sinks.nodes import PURPOSE, TIMEOUT_OPTION, sink_nodes
from warrenmq.spark.sinks.options import SinkOptions
from warrenmq.vocabulary.error_codes import NO_ROOM

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# So many nodes have the rows of a batch, if so many run.
_COPIES: Final = 2
_NOT_STAGED: Final = "the rows could not be staged, and nothing of the batch is published"


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The result of a task: the stages that have its rows."""

    sink: str
    partition: int
    # The stage that each node has, by the name of the node ("" for a lone one). All have the same
    # rows. It is empty when the task had no rows.
    stages: dict[str, int]
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
    with _Stages(options, sink, batch, queue) as stages:
        try:
            for rows in iterator:
                for messages, block in maker.blocks(rows):
                    stages.append(messages, block)
            unroutable = stages.finish()
        except (AdminRefusedError, NodeUnreachableError) as error:
            raise (BrokerAwayError if is_transient(error) else SourceError)(
                f"{_NOT_STAGED}: {text_of(error, options)}"
            ) from None
    return StagedRows(sink, partition, stages.ids, unroutable)


def text_of(error: Exception, options: SinkOptions) -> str:
    """The text of `error`; it names the time-out if the broker had no room for so long."""
    if isinstance(error, AdminRefusedError) and error.code == NO_ROOM:
        return f"given up after {options.away_timeout_ms / 1000:g} s ({TIMEOUT_OPTION}): {error}"
    return str(error)


class _Stages:
    """The stages of one task, opened with its first block. Its end drops those not finished."""

    def __init__(self, options: SinkOptions, sink: str, batch: int, queue: bytes) -> None:
        # Ids of the stages by node.
        self.ids: dict[str, int] = {}
        self._options = options
        self._open = sinks.OpenStage(sink, batch, queue)
        self._clients: dict[str, AdminClient] = {}
        self._block_bytes_max = 0
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            client.close()

    def append(self, messages: int, block: memoryview) -> None:
        """Stage a block of so many messages, and wait until there is room for more."""
        if not self._clients:
            self._begin()
        if len(block) > self._block_bytes_max:
            # The broker would close the connection over a larger block, which would look as if the
            # broker were away.
            text = f"a message of {len(block)} bytes is above max_message_size of the broker"
            raise SourceError(f"{_NOT_STAGED}: {text}")
        room_ms = self._options.away_timeout_ms
        self._ask(
            lambda node: sinks.StageMessages(self.ids[node], block, room_ms),
            sinks.Staged,
            room_ms / 1000,
        )
        self._count += messages

    def finish(self) -> int:
        """Make the stages durable; returns how many of their messages no queue would get."""
        if not self._clients:
            return 0
        replies = self._ask(
            lambda node: sinks.FinishStage(self.ids[node], self._count),
            sinks.StageFinished,
            self._options.confirm_timeout_ms / 1000,
        )
        return next(iter(replies.values())).unroutable

    def _begin(self) -> None:
        nodes = sink_nodes(self._options)
        purpose = f"{PURPOSE} {self._open.sink}"
        with Retry(nodes.where, self._options.away_timeout_ms / 1000, TIMEOUT_OPTION) as retry:
            while not self._clients:
                retry.attempt()
                try:
                    self._clients = nodes.connect(purpose, _COPIES)
                except NodeUnreachableError as error:
                    retry.failed(error)
        wait_s = self._options.confirm_timeout_ms / 1000
        opened = self._ask(lambda node: self._open, sinks.StageOpened, wait_s)
        self.ids = {node: each.stage for node, each in opened.items()}
        self._block_bytes_max = min(each.block_bytes_max for each in opened.values())

    def _ask(
        self, make: Callable[[str], Request], expected: type[ReplyType], wait_s: float
    ) -> dict[str, ReplyType]:
        """The replies by node, all asked at the same time; those that give none are left out.

        Raises AdminRefusedError or NodeUnreachableError if there is no reply.
        """
        failures: list[AdminRefusedError | NodeUnreachableError] = []
        replies: dict[str, ReplyType] = {}
        asked: list[str] = []
        for node, client in self._clients.items():
            try:
                client.send(make(node), wait_s)
                asked.append(node)
            except NodeUnreachableError as error:
                failures.append(error)
        for node in asked:
            try:
                replies[node] = self._clients[node].receive(expected, wait_s)
            except (AdminRefusedError, NodeUnreachableError) as error:
                failures.append(error)
        if not replies:
            # What a node says of the rows counts more than that the other one is away.
            raise min(failures, key=is_transient)
        for node in self._clients.keys() - replies.keys():
            self._clients.pop(node).close()
            self.ids.pop(node, None)
        return replies
