"""Streaming read: messages of queues exactly once into Spark's checkpoint, through a reader group in the broker.

What Spark does, checked on 4.3, and what follows (docs/spark.md tells the user's side):

* It stores only the end of a batch. The start of the first batch is `initialOffset()`, asked again after a crash; so it is
  the group's acked positions, which cannot move before that batch is committed.
* `latestOffset(start)` is asked when the batch that ended at `start` is committed, in every observed case, also after a
  restart; `commit(end)` comes a batch late, and never for the last batch of an availableNow run. So `start` is acked
  in `latestOffset`, and `commit` acks as well: both may be repeated.
* After a crash in a batch, `partitions(start, end)` of that batch comes first and nothing before it. So whatever is
  called first opens the group; a range was reserved durably before its end was ever told to Spark.
* An idle query asks `latestOffset` 70 times a second: it is held back in the broker (long poll) until messages come.

The reader is built a second time in another process to be pickled for the workers, so the constructor does nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warrenmq.admin.client import AdminRefusedError
from warrenmq.admin.protocol import Fetch, Fetched, Request, Slice
from warrenmq.spark.fetching import FETCH_BYTES, FETCH_MESSAGES, TASKS_WANTED, RangeReader, pack
from warrenmq.spark.file_access import FileSlices, store_id_of, wants_files
from warrenmq.spark.group_session import GroupSession, Limits, final
from warrenmq.spark.lag import with_lag
from warrenmq.spark.offsets import OffsetError, OffsetFormat, OffsetJson, QueueKey
from warrenmq.spark.options import EVERYTHING, OptionError, SourceOptions
from warrenmq.spark.retry import SourceError

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from warrenmq.tables.slice_files import SliceInFiles

# A range is cut at multiples of this, not by the number of cores: the same range has the same partitions after any
# restart, so that a sink which remembers (batch id, partition id) is right to.
READ_SLICE_MESSAGES: Final = 32768
# A task costs about 90 ms before it reads anything: `minPartitions` cuts no finer.
SLICE_MESSAGES_MIN: Final = 64

# Seq ids [begin, stop) to read of each queue.
Ranges: TypeAlias = Mapping[QueueKey, tuple[int, int]]


@dataclass(frozen=True)
class GroupSlice:
    """Seq ids [start, end) of a queue, held by `group` under `epoch`."""

    group: str
    epoch: int
    queue: QueueKey
    start: int
    end: int
    # None: the node knows no files that have all of it.
    files: "SliceInFiles | None"

    def fetch(self, start: int, with_bodies: bool) -> Request:
        """The request for its first messages from `start` on."""
        return Fetch(
            group=self.group,
            epoch=self.epoch,
            incarnation=self.queue.incarnation,
            start=start,
            end=self.end,
            max_messages=FETCH_MESSAGES,
            max_bytes=FETCH_BYTES,
            with_bodies=with_bodies,
        )

    def fetch_one(self) -> Request:
        """The request for as little as possible of it."""
        return Fetch(
            self.group,
            self.epoch,
            self.queue.incarnation,
            self.start,
            self.end,
            1,
            1,
            with_bodies=False,
        )


@dataclass
class GroupPartition(InputPartition):
    """What one task reads."""

    slices: tuple[GroupSlice, ...]


class WarrenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader: offsets, planning and acks in its driver process, `read` in the workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.group is None:
            raise OptionError(
                "option 'group' is missing: the reader group's name, one for each query, kept for ever"
            )
        if options.batch_options:
            raise OptionError(
                f"option '{options.batch_options[0]}' is for batch reads: a stream knows no such thing"
            )
        self._options = options
        self._schema = schema
        self._group_name = options.group
        self._offsets = OffsetFormat(options.group, options.vhost)
        self._group = GroupSession(options, options.group)
        # Where an availableNow run ends.
        self._target: dict[QueueKey, int] | None = None

    # -- what Spark calls in the driver process ----------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to what is in the queues now, and no further."""
        self._group.open()
        self._target = dict(self._group.tails)

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """Where the group stands: its acked positions."""
        return self._offsets.encode(self._group.members)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most so many messages a batch; the limit in bytes is applied with it."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark's name
        """Ack below `start`, reserve from there on; `start` itself when nothing came within the long poll."""
        stored = self._decode(start)
        wait_ms = self._options.long_poll_ms if self._target is None else 0
        ends = self._group.reserve(stored, self._limits(limit), wait_ms, self._target)
        return start if ends == stored else self._offsets.encode(ends)

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """The ends of the queues at the last look and the lag (lag.py), for the query's progress and nobody else."""
        if not self._group.tails:
            return None
        offset = self._offsets.encode(self._group.tails)
        lag = self._group.lag()
        return offset if lag is None else with_lag(offset, lag)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The slices of [start, end) that have messages. Needs no memory of the reserve."""
        ranges = self.ranges(start, end)
        planned = self.planned(ranges, _slice_size(ranges, self._options.min_partitions))
        count_min = self._options.min_partitions
        weights = [part.message_count for _, part in planned]
        groups = pack(
            [piece for piece, _ in planned], weights, max(TASKS_WANTED, count_min), count_min
        )
        return [GroupPartition(group) for group in groups]

    def commit(self, end: OffsetJson) -> None:
        """Ack below `end`; usually done already by `latestOffset`."""
        self._group.ack(self._decode(end))

    # -- what Spark calls in the workers ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Some slices as record batches. May be asked any number of times, until the group acks the range."""
        assert isinstance(partition, GroupPartition)
        reader = RangeReader(self._options, self._schema, self._group.link())
        files: FileSlices | None = None
        for part in partition.slices:
            batches: Iterator[RecordBatch] | None = None
            if part.files is not None:
                files = files or FileSlices(self._options, self._schema, self._store_id(part))
                batches = files.read(part.queue.shown, part.files)
            yield from batches or reader.read(part.queue.shown, part, part.fetch, final)

    # -- planning, for others who read by groups ------------------------------------------------------------------

    def ranges(self, start: OffsetJson, end: OffsetJson) -> Ranges:
        """What to read of each queue, in their order. A queue that is only in `end` joined in this batch."""
        first, last = self._decode(start), self._decode(end)
        ranges = {}
        for key, stop in sorted(last.items()):
            if first.get(key) == stop:
                continue
            if key not in self._group.members:
                if self._group.is_wanted(key):
                    self._group.lose(f"queue {key} is deleted, with its messages up to {stop}")
                continue
            begin = first.get(key, self._group.members[key])
            if begin > stop:
                # Back to where the group stands, which is behind the checkpoint (`GroupSession.reserve`): no messages.
                self._group.lose(f"the range [{begin}, {stop}) of queue {key} runs backwards")
                continue
            ranges[key] = begin, stop
        return ranges

    def planned(self, ranges: Ranges, slice_size: int) -> list[tuple[GroupSlice, Slice]]:
        """The slices that have messages, and what the broker says of each; cut at multiples of `slice_size`."""
        with_files = wants_files(self._options)
        found = []
        for key, (begin, stop) in ranges.items():
            for part in self._group.plan(key, begin, stop, slice_size, with_files):
                piece = GroupSlice(
                    self._group_name, self._group.epoch, key, part.start, part.end, _in_files(part)
                )
                found.append((piece, part))
        return found

    # -- parts ----------------------------------------------------------------------------------------------------

    def _decode(self, offset: OffsetJson) -> dict[QueueKey, int]:
        try:
            return self._offsets.decode(offset)
        except OffsetError as error:
            raise SourceError(str(error)) from None

    def _store_id(self, part: GroupSlice) -> bytes:
        try:
            return store_id_of(self._group.link().request(part.fetch_one(), Fetched).block)
        except AdminRefusedError as error:
            raise final(error) from None

    def _limits(self, limit: ReadLimit) -> Limits:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            # Trigger.Once: everything, whatever the options say.
            return Limits(EVERYTHING, EVERYTHING)
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_messages
        if self._target is not None or options.min_messages == 1:
            return Limits(max_messages, options.max_bytes)
        return Limits(max_messages, options.max_bytes, options.min_messages, options.max_delay_ms)


def _in_files(part: Slice) -> "SliceInFiles | None":
    from warrenmq.tables.slice_files import SliceInFiles

    if not part.files:
        return None
    files = [(file.path, file.first_byte, file.end_byte) for file in part.files]
    return SliceInFiles(files, part.runs, part.message_count, part.is_redelivered)


def _slice_size(ranges: Ranges, min_partitions: int) -> int:
    """Such that there are at least `min_partitions` slices; the same for the same ranges."""
    size = READ_SLICE_MESSAGES
    while size > SLICE_MESSAGES_MIN and _count_slices(ranges, size) < min_partitions:
        size //= 2
    return size


def _count_slices(ranges: Ranges, size: int) -> int:
    return sum(-(-stop // size) - begin // size for begin, stop in ranges.values())
