"""Publishes rows in their order, each once, through the sink of format "warren" (`sinks/sink.py`).

The number of a batch is the number of rows up to its end. The broker stores the last batch number
that a sink has committed, so it knows how many rows are published. A resumed run asks the broker
for that number, and may cut the remaining rows into other batches than the run before. Each batch
names the batch that it follows, so that the broker refuses a batch left over from a killed run, or
one of another run at the same time.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from warrenmq.admin.client.client import AdminRefusedError, ReplyType
from warrenmq.admin.protocol.sinks import DeleteSink, DescribeSink, SinkDeleted, SinkStatus
from warrenmq.pipeline.broker import RETRY_OPTION, address_of, as_job_error
from warrenmq.spark.retry import BrokerAwayError, Retry
from warrenmq.vocabulary.error_codes import NOT_FOUND

if TYPE_CHECKING:
    from warrenmq.spark.sinks.options import SinkOptions

BATCH_MESSAGES: Final = 20_000
BATCH_BYTES: Final = 16 << 20
WAIT_MS: Final = 120_000


class StagedPublisher:
    """Publishes through one sink. JobError when the broker refuses or stays away."""

    def __init__(self, options: "SinkOptions", sink: str) -> None:
        self._options = options
        self._sink = sink
        self._last = -1

    def published(self) -> int | None:
        """The number of published rows; None when the broker does not know the sink.

        Must be called before the first `publish`.
        """
        status = self._status()
        while status is not None and status.is_busy:
            # Wait: a commit left by a killed run may still be waiting for the commit before it.
            self.await_queues(status.batch or 0)
            status = self._status()
        if status is None:
            return None
        self._last = -1 if status.batch is None else status.batch
        return max(self._last, 0)

    def publish(self, rows: Sequence[Any], end: int, queue: bytes = b"") -> int:
        """Publish record batches and return how many of their rows no queue gets.

        `end` is the number of their last row, counted from 1. A non-empty `queue` gets all rows,
        whatever their routing.
        """
        from warrenmq.spark.sinks.commit import commit
        from warrenmq.spark.sinks.staging import stage_rows

        seconds = self._options.away_timeout_ms / 1000
        with (
            as_job_error(),
            Retry(address_of(self._options.uri).where, seconds, RETRY_OPTION) as retry,
        ):
            while True:
                try:
                    part = stage_rows(self._options, self._sink, end, 0, iter(rows), queue)
                    commit(self._options, self._sink, end, [part], False, self._last)
                    self._last = end
                    return part.unroutable
                except BrokerAwayError as error:
                    retry.failed(error)

    def await_queues(self, end: int) -> None:
        """Wait until all published rows up to `end` are in their queues."""
        from warrenmq.spark.sinks.commit import commit

        with as_job_error():
            commit(self._options, self._sink, end, [], True)

    def forget(self) -> None:
        """Delete the sink's record in the broker; a missing record is no error."""
        self._request(DeleteSink(self._sink), SinkDeleted)

    def _status(self) -> SinkStatus | None:
        return self._request(DescribeSink(self._sink), SinkStatus)

    def _request(
        self, request: DescribeSink | DeleteSink, expected: type[ReplyType]
    ) -> ReplyType | None:
        """The reply of a node; None if there is no such sink."""
        from warrenmq.spark.sinks.nodes import sink_nodes

        with as_job_error():
            try:
                return sink_nodes(self._options).request(
                    lambda _: request, expected, self._options.away_timeout_ms / 1000
                )
            except AdminRefusedError as error:
                if error.code != NOT_FOUND:
                    raise
                return None


def pieces(batches: Iterator[Any], max_rows: int, max_bytes: int) -> Iterator[list[Any]]:
    """Cut and gather record batches, in order, into lists of at most `max_rows` rows.

    A list also ends with the batch that reaches `max_bytes`.
    """
    found: list[Any] = []
    rows = size = 0
    for batch in batches:
        rest = batch
        while rest.num_rows:
            part = rest.slice(0, max_rows - rows)
            rest = rest.slice(part.num_rows)
            found.append(part)
            rows += part.num_rows
            size += part.nbytes
            if rows == max_rows or size >= max_bytes:
                yield found
                found = []
                rows = size = 0
    if found:
        yield found
