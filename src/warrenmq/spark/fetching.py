"""What both readers do: put ranges together to tasks, and in a task fetch blocks of bounded size and make record batches."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from warrenmq.admin.client import AdminRefusedError
from warrenmq.admin.protocol import Fetched, Request
from warrenmq.spark.broker_link import BrokerLink
from warrenmq.spark.options import SourceOptions
from warrenmq.spark.retry import SourceError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# One block is one record batch. The JVM fails on huge ones, and small ones cost a round trip each.
FETCH_MESSAGES: Final = 10_000
FETCH_BYTES: Final = 8 * 1024 * 1024
# A larger message in a batch can end a JVM with a 2 GiB heap in the middle of a write, for good and without a word.
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
# A task costs about 90 ms of CPU before it reads anything: few, and not more than a small machine can use.
TASKS_WANTED: Final = 16

Piece = TypeVar("Piece")


class Range(Protocol):
    """Seq ids [start, end) of a queue."""

    @property
    def start(self) -> int:
        """The first one."""

    @property
    def end(self) -> int:
        """Behind the last one."""


def pack(
    pieces: Sequence[Piece], weights: Sequence[int], count: int, count_min: int
) -> list[tuple[Piece, ...]]:
    """`pieces` in order as about `count` groups of neighbours, none heavier than its share but for single ones.

    The same pieces have the same groups. There are as many groups as pieces when these are not more than `count`, and
    never fewer than `count_min` when there are so many pieces.
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
        # Some are much heavier than others: about as many in each, then.
        bounds = [len(pieces) * place // count_min for place in range(count_min + 1)]
        return [tuple(pieces[first:end]) for first, end in pairwise(bounds) if first < end]
    return groups


def share_out(
    pieces: Sequence[Piece], weights: Sequence[int], count: int
) -> list[tuple[Piece, ...]]:
    """`pieces` in order as at most `count` groups of neighbours of about the same weight."""
    total = sum(weights)
    groups: dict[int, tuple[Piece, ...]] = {}
    before = 0
    for piece, weight in zip(pieces, weights, strict=True):
        # Where its middle lies; that of nothing at the end lies behind the last group.
        place = min((2 * before + weight) * count // (2 * total), count - 1) if total else 0
        groups[place] = (*groups.get(place, ()), piece)
        before += weight
    return list(groups.values())


class RangeReader:
    """Reads ranges of queues in a task: one for each task."""

    def __init__(self, options: SourceOptions, schema: StructType, link: BrokerLink) -> None:
        # Exactly what Spark expects for `schema`.
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
        """The messages of a range. `ask(start, with_bodies)` is the request for the ones from `start` on."""
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
            # One that is too large comes alone: blocks are limited to FETCH_BYTES.
            size = len(fetched.block)
            if builder.needs_bodies and batch.num_rows == 1 and size > BODY_BYTES_MAX:
                raise SourceError(
                    f"a message of {size} bytes is too large for Spark (limit {BODY_BYTES_MAX}): "
                    "read it with a consumer, or leave bodies out (includeBody=false)"
                )
            if batch.num_rows:
                yield batch
            start = fetched.next
