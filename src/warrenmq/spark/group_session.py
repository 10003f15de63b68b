"""The driver's side of a reader group: its known positions, and its requests to the broker.

The first request opens the group, and it stays open for the life of the process. A reconnect after
a broker restart keeps the group's epoch, because the tasks of a running batch use that epoch too.
Data loss (a deleted queue, or positions that another client acked) ends the query. With
`failOnDataLoss=false` it is logged instead, and the stream continues with the messages that exist.
"""

import logging
import time
from dataclasses import dataclass
from typing import Final

from warrenmq.admin.client import AdminRefusedError, NodeAddress
from warrenmq.admin.protocol import (
    Ack,
    Acked,
    GroupList,
    GroupOpened,
    ListGroups,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reserve,
    Reserved,
    Slice,
)
from warrenmq.spark.broker_link import BrokerLink, link_to
from warrenmq.spark.lag import SourceLag
from warrenmq.spark.offsets import Positions, QueueKey, queue_key
from warrenmq.spark.options import ACK_ON_LATEST_OFFSET, EARLIEST, SourceOptions
from warrenmq.spark.retry import SourceError
from warrenmq.vocabulary.error_codes import DATA_LOSS, NOT_FOUND
from warrenmq.vocabulary.name_pattern import NamePattern

_REOPEN_PAUSE_S: Final = 0.5

_log = logging.getLogger("warren.spark")


@dataclass(frozen=True)
class Limits:
    """Limits of one micro-batch.

    The broker defers its answer to a reserve until it has `min_messages`, or until `max_delay_ms`
    after the first message.
    """

    max_messages: int
    max_bytes: int
    min_messages: int = 1
    max_delay_ms: int = 0


class GroupSession:
    """The reader group of one query. Its constructor does no I/O: workers get a pickled copy."""

    def __init__(self, options: SourceOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._epoch: int | None = None
        # Position of each member when this process first saw it: where a joined queue is read from.
        self._met_at: dict[QueueKey, int] = {}
        # End (exclusive seq id) of the reserved range of each member.
        self._reserved: dict[QueueKey, int] = {}
        # Queues of a pattern that were deleted when they had nothing left to read.
        self._ended: set[QueueKey] = set()
        # Next seq id of each member as of the broker's last reply: all its messages lie below.
        self.tails: dict[QueueKey, int] = {}

    @property
    def epoch(self) -> int:
        """The epoch under which this process opened the group; the first use opens the group."""
        if self._epoch is None:
            self.open()
        assert self._epoch is not None
        return self._epoch

    @property
    def members(self) -> Positions:
        """The group's queues, each with its position when this process first saw it."""
        if self._epoch is None:
            self.open()
        return self._met_at

    def open(self) -> None:
        """Create or take over the group under a new epoch; SourceError when the broker refuses."""
        try:
            self._open()
        except AdminRefusedError as error:
            raise final(error) from None

    def resume(self, stored: Positions) -> dict[QueueKey, int]:
        """Where to resume in each queue: `stored`, or the group's position after accepted loss."""
        self.report_gone(stored)
        positions = {}
        for key, met_at in self.members.items():
            seq = stored.get(key, met_at)
            if not met_at <= seq <= self._reserved[key] and not self._options.fail_on_data_loss:
                self.lose(f"queue {key} was read up to {seq}, but the group stands at {met_at}")
                seq = met_at
            positions[key] = seq
        return positions

    def reserve(
        self, stored: Positions, limits: Limits, wait_ms: int, until: Positions | None
    ) -> dict[QueueKey, int]:
        """Ack below `stored`, reserve more messages from there, return the end of each reservation.

        No reservation ends past `until`. With `ackOn=commit` nothing is acked here. When the group
        stands before `stored` and that data loss is accepted, only the group's positions are
        returned: a batch from `stored` on would leave out the messages between.
        """
        try:
            return self._reserve_from(self.resume(stored), stored, limits, wait_ms, until)
        except AdminRefusedError as error:
            self._reopen_after(error)
        try:
            return self._reserve_from(self.resume(stored), stored, limits, wait_ms, until)
        except AdminRefusedError as error:
            raise final(error) from None

    def plan(
        self, key: QueueKey, start: int, end: int, slice_size: int, with_files: bool
    ) -> list[Slice]:
        """The slices of [start, end) of one queue that have messages."""
        request = PlanRange(
            group=self._group,
            epoch=self.epoch,
            incarnation=key.incarnation,
            start=start,
            end=end,
            slice_size=slice_size,
            is_lenient=not self._options.fail_on_data_loss,
            with_files=with_files,
        )
        try:
            return self.link().request(request, RangePlan).slices
        except AdminRefusedError as error:
            raise final(error) from None

    def ack(self, positions: Positions) -> None:
        """Ack all messages below `positions`."""
        ends = {key.incarnation: seq for key, seq in positions.items() if key in self.members}
        try:
            self.link().request(Ack(self._group, self.epoch, ends), Acked)
        except AdminRefusedError as error:
            if error.code != DATA_LOSS or self._options.fail_on_data_loss:
                raise final(error) from None

    def report_gone(self, stored: Positions) -> None:
        """Report as lost each queue of the checkpoint that the options name and the group lacks.

        A queue that was deleted with nothing left to read is not lost.
        """
        for key, seq in stored.items():
            if key not in self.members and key not in self._ended and self.is_wanted(key):
                self.lose(f"queue {key} is deleted, with its messages from {seq} on")

    def is_wanted(self, key: QueueKey) -> bool:
        """Whether the options name this queue, or their pattern matches it."""
        if self._options.pattern:
            return NamePattern(self._options.pattern).matches(key.shown)
        return key.name in self._options.queues

    def lose(self, what: str) -> None:
        """Report data loss: raise SourceError, or log a warning with `failOnDataLoss=false`."""
        if self._options.fail_on_data_loss:
            raise _loss(what)
        _log.warning("data loss: %s", what)

    def lag(self) -> SourceLag | None:
        """Messages that are not reserved yet; None when the broker does not answer at once.

        A lag figure is not worth a wait, so the request is not retried.
        """
        link = link_to(self._options.uri, f"lag of Spark group {self._group}", 0)
        try:
            groups = link.request(ListGroups(), GroupList).groups
        except (AdminRefusedError, SourceError):
            return None
        for status in groups:
            if status.group == self._group:
                behind = {
                    queue_key(member.queue, member.incarnation).shown: member.lag - member.held
                    for member in status.members
                    if member.lag > member.held
                }
                return SourceLag(
                    self.description, sum(behind.values()), round(status.lag_seconds, 3), behind
                )
        return None

    @property
    def description(self) -> str:
        """The source in words (queues, vhost, broker, group), for progress reports."""
        options = self._options
        address = NodeAddress(options.uri)
        queues = (
            f"queues matching {options.pattern}"
            if options.pattern
            else f"queues {', '.join(options.queues)}"
        )
        return f"warren: {queues} of vhost {address.vhost} at {address.where}, reader group {self._group}"

    def link(self) -> BrokerLink:
        """The connection of the calling process."""
        return link_to(
            self._options.uri, f"Spark group {self._group}", self._options.retry_timeout_ms
        )

    # -- parts -------------------------------------------------------------------------------------

    def _open(self) -> None:
        start = self._options.start
        request = OpenGroup(
            group=self._group,
            queues=[name.encode() for name in self._options.queues],
            pattern=self._options.pattern,
            start=start.name or (EARLIEST if start.timestamp_ms is None else start.timestamp_ms),
            start_at=dict(start.seqs),
            may_rebind=not self._options.fail_on_data_loss,
        )
        opened = self.link().request(request, GroupOpened)
        self._epoch = opened.epoch
        self._met_at, self._reserved, self.tails = {}, {}, {}
        for member in opened.members:
            key = queue_key(member.queue, member.incarnation)
            self._met_at[key] = member.acked
            self._reserved[key] = member.reserved
            self.tails[key] = member.tail

    def _reserve_from(
        self,
        positions: dict[QueueKey, int],
        stored: Positions,
        limits: Limits,
        wait_ms: int,
        until: Positions | None,
    ) -> dict[QueueKey, int]:
        if any(seq < stored.get(key, 0) for key, seq in positions.items()):
            return positions
        request = Reserve(
            group=self._group,
            epoch=self.epoch,
            starts=_by_incarnation(positions),
            max_messages=limits.max_messages,
            max_bytes=limits.max_bytes,
            min_messages=limits.min_messages,
            max_delay_ms=limits.max_delay_ms,
            wait_ms=wait_ms,
            until=None if until is None else _by_incarnation(until),
            acks=self._options.ack_on == ACK_ON_LATEST_OFFSET,
        )
        reserved = self.link().request(request, Reserved, wait_ms / 1000)
        ends = {}
        for member in reserved.members:
            key = queue_key(member.queue, member.incarnation)
            self._met_at.setdefault(key, member.start)
            self._reserved[key] = ends[key] = member.end
            self.tails[key] = member.tail
        for key in self._met_at.keys() - ends.keys():
            self._ended.add(key)
            for known in (self._met_at, self._reserved, self.tails):
                del known[key]
        return ends

    def _reopen_after(self, error: AdminRefusedError) -> None:
        """Open the group again after accepted data loss; retry while a queue is not found.

        Raises SourceError for another error, or when data loss is not accepted.
        """
        if error.code != DATA_LOSS or self._options.fail_on_data_loss:
            raise final(error) from None
        self.lose(error.text)
        deadline = time.monotonic() + self._options.retry_timeout_ms / 1000
        while True:
            try:
                self._open()
                return
            except AdminRefusedError as refusal:
                if refusal.code != NOT_FOUND or time.monotonic() > deadline:
                    raise final(refusal) from None
            time.sleep(_REOPEN_PAUSE_S)


def final(error: AdminRefusedError) -> SourceError:
    """The error that ends the query after a refusal."""
    return _loss(error.text) if error.code == DATA_LOSS else SourceError(error.text)


def _loss(what: str) -> SourceError:
    return SourceError(f"data loss: {what}. To go on all the same, set failOnDataLoss=false")


def _by_incarnation(positions: Positions) -> dict[int, int]:
    return {key.incarnation: seq for key, seq in positions.items()}
