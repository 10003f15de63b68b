"""Streaming read: a queue's messages exactly once into Spark's checkpoint, through a reader group in the broker.

What Spark does, checked on 4.3, and what follows (docs/spark.md tells the user's side):

* It stores only the end of a batch. The start of the first batch is `initialOffset()`, asked again after a crash; so it is
  the group's acked position, which cannot move before that batch is committed.
* `latestOffset(start)` is asked when the batch that ended at `start` is committed, in every observed case, also after a
  restart; `commit(end)` comes a batch late, and never for the last batch of an availableNow run. So `start` is acked
  in `latestOffset`, and `commit` acks as well: both may be repeated.
* After a crash in a batch, `partitions(start, end)` of that batch comes first and nothing before it. So whatever is
  called first opens the group; a range was reserved durably before its end was ever told to Spark.
* An idle query asks `latestOffset` 70 times a second: it is held back in the broker (long poll) until messages come.

The reader is built a second time in another process to be pickled for the workers, so the constructor does nothing.
An opened group belongs to the driver process: a reconnect after a broker restart keeps its epoch, because the tasks of
a running batch have it too.
"""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from warren.admin.client import AdminRefusedError
from warren.admin.protocol import (
    Ack,
    Acked,
    Fetch,
    Fetched,
    GroupOpened,
    MemberRange,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
)
from warren.queues.reader_group import DATA_LOSS, EVERYTHING, NOT_FOUND
from warren.spark.broker_link import BrokerLink, SourceError, link_to
from warren.spark.fetching import FETCH_BYTES, FETCH_MESSAGES, batch_builder, checked_batch
from warren.spark.offsets import OffsetError, OffsetFormat, OffsetJson, StreamPosition
from warren.spark.options import OptionError, SourceOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch

# A range is cut at multiples of this, not by the number of cores: the same range has the same partitions after any
# restart, so that a sink which remembers (batch id, partition id) is right to.
SLICE_MESSAGES: Final = 32768
_REOPEN_PAUSE_S: Final = 0.5

_log = logging.getLogger(__name__)


@dataclass
class GroupSlice(InputPartition):
    """Seq ids [start, end), held by the group under `epoch`."""

    epoch: int
    incarnation: int
    start: int
    end: int


@dataclass
class OpenedGroup:
    """The group as it was opened, and its one queue."""

    epoch: int
    incarnation: int
    acked: int
    reserved: int
    tail: int


class WarrenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader: offsets, planning and acks in its driver process, `read` in the workers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.group is None:
            raise OptionError(
                "option 'group' is missing: the reader group's name, one for each query, kept for ever"
            )
        self._options = options
        self._schema = schema
        self._group_name = options.group
        self._offsets = OffsetFormat(options.group, options.vhost, options.queue)
        self._opened: OpenedGroup | None = None
        self._target: StreamPosition | None = None
        self._tail: StreamPosition | None = None

    # -- what Spark calls in the driver process ----------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read up to what is in the queue now, and no further."""
        group = self._open(may_rebind=not self._options.fail_on_data_loss)
        self._target = StreamPosition(group.incarnation, group.tail)

    def initialOffset(self) -> OffsetJson:  # noqa: N802 - Spark's name
        """Where the group stands: its acked position."""
        group = self._group()
        return self._offsets.encode(StreamPosition(group.incarnation, group.acked))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most so many messages a batch; the limit in bytes is applied with it."""
        return ReadMaxRows(self._options.max_messages)

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:  # noqa: N802 - Spark's name
        """Ack below `start`, reserve from there on; `start` itself when nothing came within the long poll."""
        position = self._resume(start)
        try:
            reserved = self._reserve(position, limit)
        except AdminRefusedError as error:
            position = self._resume_after_loss(error, start)
            try:
                reserved = self._reserve(position, limit)
            except AdminRefusedError as another:
                raise _final(another) from None
        self._tail = StreamPosition(position.incarnation, reserved.tail)
        if reserved.end == position.seq_id:
            return start
        return self._offsets.encode(StreamPosition(position.incarnation, reserved.end))

    def reportLatestOffset(self) -> OffsetJson | None:  # noqa: N802 - Spark's name
        """The end of the queue at the last look, for the query's progress."""
        return None if self._tail is None else self._offsets.encode(self._tail)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[InputPartition]:
        """The slices of [start, end) that have messages. Needs no memory of the reserve."""
        try:
            first, last = self._offsets.decode(start), self._offsets.decode(end)
        except OffsetError as error:
            raise SourceError(str(error)) from None
        if first == last:
            return []
        group = self._group()
        is_lenient = not self._options.fail_on_data_loss
        if last.incarnation != group.incarnation:
            self._lose(
                f"messages up to {last.seq_id} were in a queue (incarnation {last.incarnation}) that is deleted"
            )
            return []
        # The batch that meets a queue declared anew begins in the old one and ends in the new one.
        first_seq_id = first.seq_id if first.incarnation == last.incarnation else 0
        if first_seq_id > last.seq_id:
            raise SourceError(
                f"the range [{first_seq_id}, {last.seq_id}) runs backwards: the checkpoint is damaged"
            )
        request = PlanRange(
            group=self._group_name,
            epoch=group.epoch,
            incarnation=group.incarnation,
            start=group.acked if first.incarnation != last.incarnation else first_seq_id,
            end=last.seq_id,
            slice_size=SLICE_MESSAGES,
            is_lenient=is_lenient,
        )
        try:
            plan = self._link().request(request, RangePlan)
        except AdminRefusedError as error:
            raise _final(error) from None
        return [GroupSlice(group.epoch, group.incarnation, part.start, part.end) for part in plan.slices]

    def commit(self, end: OffsetJson) -> None:
        """Ack below `end`; usually done already by `latestOffset`."""
        group = self._group()
        try:
            position = self._offsets.decode(end)
            if position.incarnation == group.incarnation:
                request = Ack(self._group_name, group.epoch, {group.incarnation: position.seq_id})
                self._link().request(request, Acked)
        except OffsetError as error:
            raise SourceError(str(error)) from None
        except AdminRefusedError as error:
            if error.code != DATA_LOSS or self._options.fail_on_data_loss:
                raise _final(error) from None

    # -- what Spark calls in the workers ------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        """One slice as record batches. May be asked any number of times, until the group acks the range."""
        assert isinstance(partition, GroupSlice)
        builder = batch_builder(self._options, self._schema)
        link = self._link()
        start = partition.start
        while start < partition.end:
            request = Fetch(
                group=self._group_name,
                epoch=partition.epoch,
                incarnation=partition.incarnation,
                start=start,
                end=partition.end,
                max_messages=FETCH_MESSAGES,
                max_bytes=FETCH_BYTES,
                with_bodies=builder.needs_bodies,
            )
            try:
                fetched = link.request(request, Fetched)
            except AdminRefusedError as error:
                raise _final(error) from None
            batch = checked_batch(builder, fetched.block)
            if batch.num_rows:
                yield batch
            start = fetched.next

    # -- parts ----------------------------------------------------------------------------------------------------

    def _group(self) -> OpenedGroup:
        """The group as this process opened it; opens it at first use."""
        if self._opened is None:
            return self._open(may_rebind=not self._options.fail_on_data_loss)
        return self._opened

    def _open(self, may_rebind: bool) -> OpenedGroup:
        start: Literal["earliest", "latest"] = "latest" if self._options.from_latest else "earliest"
        request = OpenGroup(
            self._group_name, [self._options.queue.encode()], start=start, may_rebind=may_rebind
        )
        try:
            self._opened = _of_one_queue(self._link().request(request, GroupOpened))
        except AdminRefusedError as error:
            raise _final(error) from None
        return self._opened

    def _resume(self, start: OffsetJson) -> StreamPosition:
        """Where to go on in the queue that is there now."""
        try:
            position = self._offsets.decode(start)
        except OffsetError as error:
            raise SourceError(str(error)) from None
        group = self._group()
        if position.incarnation != group.incarnation:
            self._lose(f"the queue the checkpoint knows (incarnation {position.incarnation}) is deleted")
            return StreamPosition(group.incarnation, group.acked)
        if position.seq_id < group.acked and not self._options.fail_on_data_loss:
            self._lose(f"messages from {position.seq_id} to {group.acked} are acked already")
            return StreamPosition(group.incarnation, group.acked)
        return position

    def _until(self, incarnation: int) -> int:
        """The position an availableNow run must not pass."""
        if self._target is None:
            return EVERYTHING
        # A queue declared anew during the run was not there when the run began.
        return self._target.seq_id if self._target.incarnation == incarnation else 0

    def _reserve(self, position: StreamPosition, limit: ReadLimit) -> MemberRange:
        options = self._options
        max_messages = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_messages
        max_bytes = options.max_bytes
        if isinstance(limit, ReadAllAvailable):
            # Trigger.Once: everything, whatever the options say.
            max_messages = max_bytes = EVERYTHING
        wait_ms = options.long_poll_ms if self._target is None else 0
        request = Reserve(
            group=self._group_name,
            epoch=self._group().epoch,
            starts={position.incarnation: position.seq_id},
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            until={position.incarnation: self._until(position.incarnation)},
        )
        return self._link().request(request, Reserved, wait_ms / 1000).members[0]

    def _resume_after_loss(self, error: AdminRefusedError, start: OffsetJson) -> StreamPosition:
        """Lost data that may be lost: open the group anew, waiting for a queue that is not there yet."""
        if error.code != DATA_LOSS or self._options.fail_on_data_loss:
            raise _final(error) from None
        self._lose(error.text)
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        request = OpenGroup(self._group_name, [self._options.queue.encode()], may_rebind=True)
        while True:
            try:
                group = _of_one_queue(self._link().request(request, GroupOpened))
                break
            except AdminRefusedError as refusal:
                if refusal.code != NOT_FOUND or time.monotonic() > deadline:
                    raise _final(refusal) from None
            time.sleep(_REOPEN_PAUSE_S)
        self._opened = group
        position = self._offsets.decode(start)
        if position.incarnation == group.incarnation and group.acked <= position.seq_id <= group.reserved:
            return position
        return StreamPosition(group.incarnation, group.acked)

    def _lose(self, what: str) -> None:
        """Lost data: an error, or a warning when the user said so."""
        if self._options.fail_on_data_loss:
            raise SourceError(f"data loss: {what}. To go on all the same, set failOnDataLoss=false")
        _log.warning("data loss: %s", what)

    def _link(self) -> BrokerLink:
        return link_to(self._options.uri, f"Spark group {self._group_name}", self._options.retry_timeout_ms)


def _of_one_queue(group: GroupOpened) -> OpenedGroup:
    (member,) = group.members
    return OpenedGroup(group.epoch, member.incarnation, member.acked, member.reserved, member.tail)


def _final(error: AdminRefusedError) -> SourceError:
    """A refusal as the query's end."""
    if error.code == DATA_LOSS:
        return SourceError(f"data loss: {error.text}. To go on all the same, set failOnDataLoss=false")
    return SourceError(error.text)
