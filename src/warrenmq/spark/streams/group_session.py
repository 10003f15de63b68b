"""The driver's side of a reader group: its known positions, and its requests to the broker.

The first request opens the group, and it stays open for the life of the process. A reconnect after
a broker restart keeps the group's epoch, because the tasks of a running batch use that epoch too.
Data loss (a deleted queue, or positions that another client acked) ends the query. With
`failOnDataLoss=false` it is logged instead, and the stream continues with the messages that exist.

In a cluster the group has a part at each node with queues of it (group_parts.py). When a mirrored
queue gets another master, a request that has failed for it is made again at the new one.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from warrenmq.admin.client.client import AdminRefusedError, NodeAddress
from warrenmq.admin.protocol import requests
from warrenmq.spark.broker_link import BrokerLink, link_to
from warrenmq.spark.homes import QueueLink, QueuesMovedError
from warrenmq.spark.nodes import Place
from warrenmq.spark.options import ACK_ON_LATEST_OFFSET, SourceOptions
from warrenmq.spark.retry import Retry, SourceError
from warrenmq.spark.streams.group_claim import claim_group
from warrenmq.spark.streams.group_parts import ALONE, GroupParts
from warrenmq.spark.streams.lag import SourceLag
from warrenmq.spark.streams.offsets import Positions, QueueKey, queue_key
from warrenmq.vocabulary.error_codes import DATA_LOSS, MOVED, NOT_FOUND
from warrenmq.vocabulary.names import name_text
from warrenmq.vocabulary.patterns.name_pattern import NamePattern

_REOPEN_PAUSE_S: Final = 0.5

_log = logging.getLogger("warren.spark")

Answer = TypeVar("Answer")


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

    def share_of(self, count: int) -> "Limits":
        """The limits for each of `count` nodes; each may give one message at least."""
        if count == 1:
            return self
        messages = max(1, self.max_messages // count)
        return Limits(
            messages,
            max(1, self.max_bytes // count),
            min(self.min_messages, messages),
            self.max_delay_ms,
        )


class GroupSession:
    """The reader group of one query. Its constructor does no I/O: workers get a pickled copy."""

    def __init__(self, options: SourceOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._parts = GroupParts(options, group)
        self._is_open = False
        # Position of each member when this process first saw it: where a joined queue is read from.
        self._met_at: dict[QueueKey, int] = {}
        # The members, by the keys that checkpoints of earlier versions have for them.
        self._by_old_key: dict[QueueKey, QueueKey] = {}
        # End (exclusive seq id) of the reserved range of each member.
        self._reserved: dict[QueueKey, int] = {}
        # Queues of a pattern that were deleted when they had nothing left to read.
        self._ended: set[QueueKey] = set()
        # Next seq id of each member as of the broker's last reply: all its messages lie below.
        self.tails: dict[QueueKey, int] = {}

    def epoch(self, home: str) -> int:
        """The epoch under which this process opened the part at `home`; the first use opens all."""
        if not self._is_open:
            self.open()
        return self._parts.epochs[home]

    def home(self, key: QueueKey) -> str:
        """The node that serves the queue `key` of the group; "" on a node that runs alone."""
        return self._parts.home_of[key]

    @property
    def members(self) -> Positions:
        """The group's queues, each with its position when this process first saw it."""
        if not self._is_open:
            self.open()
        return self._met_at

    def open(self) -> None:
        """Create or take over the group under a new epoch.

        Raises SourceError when the broker refuses, or another query beside this one has the group.
        """
        claim_group(self._options.uri, self._group)
        try:
            self._follow(self._open)
        except AdminRefusedError as error:
            raise final(error) from None

    def with_births(self, stored: Positions) -> dict[QueueKey, int]:
        """`stored`, where the queues of a cluster have the keys that they have now.

        The checkpoint may be of an earlier version, or of a time when the node ran alone.
        """
        if all(key.is_birth for key in stored) or not self.members:
            return dict(stored)
        return {self._by_old_key.get(key, key): seq for key, seq in stored.items()}

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

        def reserve() -> dict[QueueKey, int]:
            return self._reserve_from(self.resume(stored), stored, limits, wait_ms, until)

        try:
            self._meet(self._parts.join_nodes(self.link()))
            return self._follow(reserve)
        except AdminRefusedError as error:
            self._reopen_after(error)
        try:
            return self._follow(reserve)
        except AdminRefusedError as error:
            raise final(error) from None

    def plan(
        self,
        key: QueueKey,
        start: int,
        end: int,
        slice_size: int,
        with_files: bool,
        body_bytes_max: int | None,
    ) -> list[requests.Slice]:
        """The slices of [start, end) of one queue that have messages.

        Messages with larger bodies than `body_bytes_max` are rejected first; None: none are.
        """
        request = requests.PlanRange(
            group=self._group,
            epoch=self.epoch(self.home(key)),
            incarnation=key.incarnation,
            start=start,
            end=end,
            slice_size=slice_size,
            is_lenient=not self._options.fail_on_data_loss,
            with_files=with_files,
            body_bytes_max=body_bytes_max,
        )
        try:
            return (
                self.link_to_queue(key, self.home(key)).request(request, requests.RangePlan).slices
            )
        except AdminRefusedError as error:
            raise final(error) from None

    def ack(self, positions: Positions) -> None:
        """Ack all messages below `positions`."""
        known = {key: seq for key, seq in positions.items() if key in self.members}
        try:
            self._follow(lambda: self._ack(known))
        except AdminRefusedError as error:
            if error.code != DATA_LOSS or self._options.fail_on_data_loss:
                raise final(error) from None

    def _ack(self, known: Positions) -> None:
        homes = {self.home(key) for key in known}
        for home in sorted(homes or self._parts.epochs.keys() & {ALONE}):
            request = requests.Ack(self._group, self.epoch(home), self._at_home(known, home))
            self._parts.ack_link(home, self.link()).request(request, requests.Acked)

    def report_gone(self, stored: Positions) -> None:
        """Report as lost each queue of the checkpoint that the options name and the group lacks.

        A queue that was deleted with nothing left to read is not lost.
        """
        for key, seq in stored.items():
            if key not in self.members and key not in self._ended and self.is_wanted(key):
                self.lose_queue(key, f"from {seq} on")

    def lose_queue(self, key: QueueKey, messages: str) -> None:
        """Report as lost a queue of the checkpoint that the group lacks; `messages` of it, too."""
        if any(each.name == key.name for each in self.members):
            self.lose(
                f"queue {key} is another one than the queue of that name now, or has moved since "
                "an earlier version of warren read it"
            )
        else:
            self.lose(f"queue {key} is deleted, with its messages {messages}")

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
        purpose = f"lag of Spark group {self._group}"
        parts: list[requests.GroupStatus] = []
        try:
            for home in self._parts.epochs:
                link = link_to(self._options.uri, purpose, 0)
                if home != ALONE:
                    link = self._parts.lag_link(home)
                groups = link.request(requests.ListGroups(), requests.GroupList).groups
                parts += [each for each in groups if each.group == self._group]
        except (AdminRefusedError, SourceError):
            return None
        if not parts:
            return None
        behind = {
            queue_key(member.queue, member.incarnation).shown: member.lag - member.held
            for status in parts
            for member in status.members
            if member.lag > member.held
        }
        seconds = max([status.lag_seconds for status in parts])
        return SourceLag(self.description, sum(behind.values()), round(seconds, 3), behind)

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
        if self._parts.passed_over:
            names = sorted([name_text(queue) for queue in self._parts.passed_over])
            queues += f" without priority queues {', '.join(names)}"
        return f"warren: {queues} of vhost {address.vhost} at {address.where}, reader group {self._group}"

    def link(self) -> BrokerLink:
        """The connection of the calling process to the node of the options."""
        return link_to(
            self._options.uri, f"Spark group {self._group}", self._options.retry_timeout_ms
        )

    def link_to_queue(
        self, key: QueueKey, home: str, place: Place | None = None
    ) -> BrokerLink | QueueLink:
        """The calling process's connection to the home of a queue.

        That was `home` when the driver saw it, at `place`.
        """
        return self.link() if home == ALONE else self._parts.queue_link(key, home, place)

    def place(self, home: str) -> Place | None:
        """Where the node `home` of a cluster is; None for a broker that runs alone."""
        return self._parts.place(home)

    # -- parts -------------------------------------------------------------------------------------

    def _open(self) -> None:
        members = self._parts.open(self.link())
        self._is_open = True
        self._met_at, self._reserved, self.tails = {}, {}, {}
        self._meet(members)

    def _meet(self, members: list[tuple[str, requests.Member]]) -> None:
        """Note queues that the group reads from now on, with their homes."""
        for home, member in members:
            key = self._parts.note(home, member)
            for old_home in ("", home):
                old = queue_key(member.queue, member.queue_id, old_home)
                self._by_old_key[old] = key
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
        by_home = self._requests(positions, limits, wait_ms, until)
        replies = self._parts.reserve(self.link(), by_home)
        # A home whose answer is not there yet gives nothing to this batch.
        ends = {key: seq for key, seq in positions.items() if self.home(key) not in replies}
        for home, reserved in replies.items():
            for member in reserved.members:
                key = self._parts.note(home, member)
                self._met_at.setdefault(key, member.start)
                self._reserved[key] = ends[key] = member.end
                self.tails[key] = member.tail
        for key in self._met_at.keys() - ends.keys():
            self._ended.add(key)
            for known in (self._met_at, self._reserved, self.tails):
                del known[key]
            del self._parts.home_of[key]
        return ends

    def _requests(
        self,
        positions: dict[QueueKey, int],
        limits: Limits,
        wait_ms: int,
        until: Positions | None,
    ) -> dict[str, requests.Reserve]:
        """The Reserve for each home; homes with queues of the group share the limits."""
        homes = {self.home(key) for key in positions} or self._parts.epochs.keys()
        share = limits.share_of(len(homes))
        # A node without queues of the group only says which have joined: these are read from the
        # next batch on.
        other = Limits(1, 1)
        by_home = {}
        for home, epoch in self._parts.epochs.items():
            own = share if home in homes else other
            by_home[home] = requests.Reserve(
                group=self._group,
                epoch=epoch,
                starts=self._at_home(positions, home),
                max_messages=own.max_messages,
                max_bytes=own.max_bytes,
                min_messages=own.min_messages,
                max_delay_ms=own.max_delay_ms,
                wait_ms=wait_ms if home in homes else 0,
                until=None if until is None else self._at_home(until, home),
                acks=self._options.ack_on == ACK_ON_LATEST_OFFSET,
            )
        return by_home

    def _at_home(self, positions: Positions, home: str) -> dict[int, int]:
        """The positions in queues that live on `home`, by incarnation."""
        homes = self._parts.home_of
        return {key.incarnation: seq for key, seq in positions.items() if homes.get(key) == home}

    def _follow(self, ask: Callable[[], Answer]) -> Answer:
        """The answer to requests, which are repeated when a queue has another home meanwhile."""
        where = NodeAddress(self._options.uri).where
        with Retry(where, self._options.retry_timeout_ms / 1000, "retryTimeoutMs") as retry:
            while True:
                try:
                    return ask()
                except QueuesMovedError as error:
                    reason = str(error)
                except AdminRefusedError as error:
                    if error.code != MOVED:
                        raise
                    reason = error.text
                self._parts.relocate(self.link())
                retry.wait_because(reason)

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
                self._follow(self._open)
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
