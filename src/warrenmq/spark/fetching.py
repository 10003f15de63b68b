"""Shared by the batch and the stream reader: groups ranges into tasks and fetches them in a task.

A task fetches blocks of bounded size and turns each into a record batch.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol.requests import Fetched, Request
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.homes import QueueLink
from warrenmq.spark.options import SourceOptions
from warrenmq.spark.retry import SourceError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# Limits of one fetched block in messages and bytes. A block becomes one record batch: the JVM fails
# on huge batches, and each small one costs a round trip.
FETCH_MESSAGES: Final = 10_000
FETCH_BYTES: Final = 8 * 1024 * 1024
# About the most tasks of a batch, unless `minPartitions` asks for more. A task costs about 90 ms of
# CPU before it reads anything, so there are few: no more than a small machine can use.
TASKS_WANTED: Final = 16

Piece = TypeVar("Piece")


class Range(Protocol):
    """Seq ids [start, end) of a queue."""

    @property
    def start(self) -> int:
        """The first seq id of the range."""

    @property
    def end(self) -> int:
        """The seq id behind the last one of the range."""


def pack(
    pieces: Sequence[Piece], weights: Sequence[int], count: int, count_min: int
) -> list[tuple[Piece, ...]]:
    """Group neighbouring `pieces`, in order, into about `count` groups of at most one share each.

    A share is the total weight divided by `count`; only a group of a single piece may weigh more.
    Equal arguments give equal groups. Up to `count` pieces make a group each. There are at least
    `count_min` groups when there are that many pieces.
    """
    if len(pieces) <= count:
        return [(piece,) for piece in pieces]
    share = -(-sum(weights) // count)
    groups: list[tuple[Piece, ...]] = []
    weight = share
    for piece, size in zip(pieces, weights, strict=True):
        if weight + size > share:
            groups.append((piece,))
            weight = size
        else:
            groups[-1] += (piece,)
            weight += size
    if len(groups) < count_min:
        # Heavy pieces took whole groups: divide by the number of pieces instead of by weight.
        bounds = [len(pieces) * place // count_min for place in range(count_min + 1)]
        return [tuple(pieces[first:end]) for first, end in pairwise(bounds) if first < end]
    return groups


def share_out(
    pieces: Sequence[Piece], weights: Sequence[int], count: int
) -> list[tuple[Piece, ...]]:
    """Group neighbouring `pieces`, in order, into at most `count` groups of about equal weight."""
    total = sum(weights)
    groups: dict[int, tuple[Piece, ...]] = {}
    before = 0
    for piece, weight in zip(pieces, weights, strict=True):
        # The group in which the middle of the piece lies. A last piece of weight 0 has its middle
        # behind the last group, hence the limit.
        place = min((2 * before + weight) * count // (2 * total), count - 1) if total else 0
        groups[place] = (*groups.get(place, ()), piece)
        before += weight
    return list(groups.values())


class RangeReader:
    """Reads ranges of queues in a task; each task has its own reader."""

    def __init__(
        self, options: SourceOptions, schema: StructType, link: BrokerLink | QueueLink
    ) -> None:
        # The Arrow schema that Spark expects for `schema`, type for type.
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._vhost = options.vhost
        self._is_verified = options.is_verified
        self._link = link

    def read(
        self,
        queue: str,
        wanted: Range,
        ask: Callable[[int, bool], Request],
        on_refusal: Callable[[AdminRefusedError], SourceError],
    ) -> Iterator["RecordBatch"]:
        """Record batches of the messages of a range.

        `ask(start, with_bodies)` builds the request for the messages from `start` on. Raises the
        error that `on_refusal` makes of a refusal, and SourceError for a damaged block.
        """
        from warrenmq.tables.blocks import BlockBatches

        builder = BlockBatches(self._schema, self._vhost, queue, self._is_verified)
        start = wanted.start
        while start < wanted.end:
            try:
                fetched = self._link.request(ask(start, builder.needs_bodies), Fetched)
            except AdminRefusedError as error:
                raise on_refusal(error) from None
            try:
                batch = builder.build(fetched.block)
            except ValueError as error:
                raise SourceError(f"queue '{queue}', from position {start} on: {error}") from None
            if batch.num_rows:
                yield batch
            start = fetched.next
