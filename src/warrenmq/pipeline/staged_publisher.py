"""Rows published in their order, each once, by the sink of format "warren" (`spark/sink.py`).

The number of a batch is the number of rows up to its end. So the broker, which keeps the last number that a sink has
committed, knows how many rows are published; whoever goes on asks it, and may cut batches in another way than those before.
Each batch names the one that it follows: what a run that was killed has left on its way, or another run at the same time,
makes it be refused.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from warrenmq.admin.client import AdminRefusedError
from warrenmq.admin.sink_protocol import DeleteSink, DescribeSink, SinkDeleted, SinkStatus
from warrenmq.pipeline.broker import RETRY_OPTION, address_of, as_job_error
from warrenmq.pipeline.result import JobError
from warrenmq.spark.broker_link import link_to
from warrenmq.spark.retry import BrokerAwayError, Retry, SourceError

if TYPE_CHECKING:
    from warrenmq.spark.sink_options import SinkOptions

BATCH_MESSAGES: Final = 20_000
BATCH_BYTES: Final = 16 << 20
WAIT_MS: Final = 120_000
_PURPOSE: Final = "pipeline"
_NOT_FOUND: Final = "not_found"


class StagedPublisher:
    """One sink. What the broker refuses, and a broker that stays away, is raised as JobError."""

    def __init__(self, options: "SinkOptions", sink: str) -> None:
        self._options = options
        self._sink = sink
        self._last = -1

    def published(self) -> int | None:
        """How many rows are; None when the broker does not know the sink. To be asked before the first is published."""
        status = self._status()
        while status is not None and status.is_busy:
            # A commit that a killed run has left may be waiting for the one before it.
            self.await_queues(status.batch or 0)
            status = self._status()
        if status is None:
            return None
        self._last = -1 if status.batch is None else status.batch
        return max(self._last, 0)

    def publish(self, rows: Sequence[Any], end: int, queue: bytes = b"") -> int:
        """Publish record batches, the last of whose rows has the number `end`, beginning with 1; to `queue` if that is not
        empty. Returns how many of them no queue gets."""
        from warrenmq.spark.sink import commit, stage_rows

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
        """Return when all of the rows up to `end`, which are published, are in their queues."""
        from warrenmq.spark.sink import commit

        with as_job_error():
            commit(self._options, self._sink, end, [], True)

    def forget(self) -> None:
        """The broker need not know the sink any more."""
        try:
            self._request(DeleteSink(self._sink), SinkDeleted)
        except AdminRefusedError as error:
            if error.code != _NOT_FOUND:
                raise

    def _status(self) -> SinkStatus | None:
        try:
            status: SinkStatus = self._request(DescribeSink(self._sink), SinkStatus)
        except AdminRefusedError as error:
            if error.code != _NOT_FOUND:
                raise
            return None
        return status

    def _request(self, request: Any, expected: Any) -> Any:
        link = link_to(self._options.uri, _PURPOSE, self._options.away_timeout_ms, RETRY_OPTION)
        try:
            return link.request(request, expected)
        except SourceError as error:
            raise JobError(str(error)) from None


def pieces(batches: Iterator[Any], max_rows: int, max_bytes: int) -> Iterator[list[Any]]:
    """Record batches in order, cut and gathered to lists with at most so many rows, and not many more bytes."""
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
