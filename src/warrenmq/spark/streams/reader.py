"""Streaming read: takes messages exactly once into Spark's checkpoint, through a reader group.

How Spark behaves (checked on 4.3), and what follows; docs/spark/streams.md has the user's side:

* Spark stores only the end of a batch. The start of the first batch is `initialOffset()`, which
  Spark asks again after a crash. `initialOffset()` therefore returns the group's acked positions,
  which cannot move before that batch is committed.
* Spark calls `latestOffset(start)` when the batch that ended at `start` is committed: in every
  observed case, also after a restart. Spark calls `commit(end)` a batch late, and never for the
  last batch of an availableNow run. `latestOffset` therefore acks below `start`, and `commit` acks
  too; either ack may be repeated.
* After a crash in a batch, the first call of Spark is `partitions(start, end)` of that batch. The
  first call of any kind therefore opens the group. A range is reserved durably before Spark learns
  its end.
* An idle query calls `latestOffset` 70 times a second. The broker therefore defers its answer until
  messages come (long poll).

Spark builds the reader a second time, in another process, to pickle it for the workers. The
constructor therefore does no I/O.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warrenmq.admin.client.client import AdminRefusedError
from warrenmq.admin.protocol.requests import Fetch, Fetched, Request, Slice
from warrenmq.spark.fetching import FETCH_BYTES, FETCH_MESSAGES, TASKS_WANTED, RangeReader, pack
from warrenmq.spark.large_bodies import STREAM_CHOICES, rejected_above, usable
from warrenmq.spark.nodes import Place
from warrenmq.spark.options import EVERYTHING, OptionError, SourceOptions
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.file_access import FileSlices, store_id_of, wants_files
from warrenmq.spark.streams.group_session import GroupSession, Limits, final
from warrenmq.spark.streams.lag import with_lag
from warrenmq.spark.streams.offsets import OffsetError, OffsetFormat, OffsetJson, QueueKey

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from warrenmq.tables.slice_files import SliceInFiles

# Ranges are cut at multiples of this many seq ids, not by the number of cores: the same range has
# the same partitions after any restart, so a sink may remember (batch id, partition id).
READ_SLICE_MESSAGES: Final = 32768
# Smallest slice that `minPartitions` can cause: a task costs about 90 ms before it reads anything.
SLICE_MESSAGES_MIN: Final = 64

# The seq ids [begin, stop) to read of each queue.
Ranges: TypeAlias = Mapping[QueueKey, tuple[int, int]]


@dataclass(frozen=True)
class GroupSlice:
    """Seq ids [start, end) of a queue, reserved by `group` under `epoch`."""

    group: str
    epoch: int
    queue: QueueKey
    start: int
    end: int
    # Files that have the whole slice; None when the node knows none.
    files: "SliceInFiles | None"
    # The queue's home when the batch was planned, and where all nodes were; "" and none for a
    # broker that runs alone.
    home: str = ""
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)

    def fetch(self, start: int, with_bodies: bool) -> Request:
        """The request for the first messages of the slice from `start` on."""
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
        """The request for a single message of the slice, without its body."""
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
    """The slices that one task reads."""

    slices: tuple[GroupSlice, ...]


class WarrenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one query: offsets, planning and acks in the driver, `read` in the workers."""

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
        # Seq id at which an availableNow run ends, by queue; None for other runs.
        self._target: dict[QueueKey, int] | None = None

    # -- what Spark calls in the driver process ----------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Limit the run to the messages that are in the queues now."""
        self._group.open()
        self._target = dict(self._group.tails)

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """The acked positions of the group."""
        return self._offsets.encode(self._group.members)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit in messages of a batch; `latestOffset` applies the limit in bytes too."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark
        """Ack below `start`, reserve a batch from there, and return its end.

        Returns `start` itself when no message came within the long poll.
        """
        stored = self._decode(start)
        wait_ms = self._options.long_poll_ms if self._target is None else 0
        ends = self._group.reserve(stored, self._limits(limit), wait_ms, self._target)
        return start if ends == stored else self._offsets.encode(ends)

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """The last known ends of the queues and the lag (lag.py), only for the query's progress."""
        if not self._group.tails:
            return None
        offset = self._offsets.encode(self._group.tails)
        lag = self._group.lag()
        return offset if lag is None else with_lag(offset, lag)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The slices of [start, end) that have messages; needs no earlier call in this process."""
        ranges = self.ranges(start, end)
        planned = self.planned(ranges, _slice_size(ranges, self._options.min_partitions))
        count_min = self._options.min_partitions
        weights = [part.message_count for _, part in planned]
        groups = pack(
            [piece for piece, _ in planned], weights, max(TASKS_WANTED, count_min), count_min
        )
        return [GroupPartition(group) for group in groups]

    def commit(self, end: OffsetJson) -> None:
        """Ack below `end`; `latestOffset` has usually done so already."""
        self._group.ack(self._decode(end))

    # -- what Spark calls in the workers -----------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Record batches of some slices; may be repeated until the group acks the range."""
        yield from usable(self.batches(partition), self._options.large_bodies, STREAM_CHOICES)

    def batches(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """Like `read`, for readers of groups that give no rows to a JVM: bodies of any size."""
        assert isinstance(partition, GroupPartition)
        readers: dict[QueueKey, RangeReader] = {}
        files: dict[str, FileSlices] = {}
        for part in partition.slices:
            key, home = part.queue, part.home
            if key not in readers:
                link = self._group.link_to_queue(key, home, part.places)
                readers[key] = RangeReader(self._options, self._schema, link)
            batches: Iterator[RecordBatch] | None = None
            if part.files is not None:
                if home not in files:
                    store_id = self._store_id(part)
                    files[home] = FileSlices(self._options, self._schema, store_id)
                batches = files[home].read(key.shown, part.files)
            yield from batches or readers[key].read(key.shown, part, part.fetch, final)

    # -- planning, also for other readers of groups ------------------------------------------------

    def ranges(self, start: OffsetJson, end: OffsetJson) -> Ranges:
        """The seq ids to read of each queue, in the order of the queues.

        A queue that only `end` has joined the group in this batch. Data loss raises SourceError, or
        is logged when it is accepted.
        """
        first, last = self._decode(start), self._decode(end)
        ranges = {}
        for key, stop in sorted(last.items()):
            if first.get(key) == stop:
                continue
            if key not in self._group.members:
                if self._group.is_wanted(key):
                    self._group.lose_queue(key, f"up to {stop}")
                continue
            begin = first.get(key, self._group.members[key])
            if begin > stop:
                # The batch goes back to the group's position, which lies before the checkpoint
                # (`GroupSession.reserve`): it has no messages.
                self._group.lose(f"the range [{begin}, {stop}) of queue {key} runs backwards")
                continue
            ranges[key] = begin, stop
        return ranges

    def planned(self, ranges: Ranges, slice_size: int) -> list[tuple[GroupSlice, Slice]]:
        """The slices that have messages, each with the broker's description.

        Slices are cut at multiples of `slice_size` seq ids.
        """
        has_files: dict[str, bool] = {}
        body_bytes_max = rejected_above(self._options.large_bodies, self._schema.names)
        found = []
        places = self._group.places()
        for key, (begin, stop) in ranges.items():
            home = self._group.home(key)
            place = places.get(home)
            if home not in has_files:
                has_files[home] = wants_files(self._options, None if place is None else place.host)
            for part in self._group.plan(
                key, begin, stop, slice_size, has_files[home], body_bytes_max
            ):
                piece = GroupSlice(
                    self._group_name,
                    self._group.epoch(home),
                    key,
                    part.start,
                    part.end,
                    _in_files(part),
                    home,
                    places,
                )
                found.append((piece, part))
        return found

    # -- parts -------------------------------------------------------------------------------------

    def _decode(self, offset: OffsetJson) -> dict[QueueKey, int]:
        try:
            return self._group.with_births(self._offsets.decode(offset))
        except OffsetError as error:
            raise SourceError(str(error)) from None

    def _store_id(self, part: GroupSlice) -> bytes:
        try:
            link = self._group.link_to_queue(part.queue, part.home, part.places)
            return store_id_of(link.request(part.fetch_one(), Fetched).block)
        except AdminRefusedError as error:
            raise final(error) from None

    def _limits(self, limit: ReadLimit) -> Limits:
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            # Trigger.Once reads everything, whatever the options say.
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
    return SliceInFiles(files, part.runs, part.message_count, part.is_redelivered, part.queue_id)


def _slice_size(ranges: Ranges, min_partitions: int) -> int:
    """The slice size that gives at least `min_partitions` slices; equal for equal ranges."""
    size = READ_SLICE_MESSAGES
    while size > SLICE_MESSAGES_MIN and _count_slices(ranges, size) < min_partitions:
        size //= 2
    return size


def _count_slices(ranges: Ranges, size: int) -> int:
    return sum(-(-stop // size) - begin // size for begin, stop in ranges.values())
