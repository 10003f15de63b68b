"""The calls of one session that concern reader groups: what must be durable before which answer.

queues/reader_group.py knows the rules of a group; this module supplies what they need from outside: the commit before
an answer, the long poll of a reserve, and turns of the loop, so that a reserve of a million messages delays nobody.

Order on disk. A definition (PutReaderGroup) is written with `acked_durable`, the position whose journal acks an earlier
commit made durable, never with one that is only on its way: a definition that leads its acks would strand messages
below `acked` after a crash. So `ack` commits twice, and the ack inside a reserve becomes part of the next definition.
"""

from collections.abc import Callable
from typing import Final

from warren.admin.node import AdminVhost, Clock, Timer
from warren.admin.protocol import (
    STORAGE_FAILED,
    Ack,
    Acked,
    DeleteGroup,
    ErrorReply,
    Fetch,
    Fetched,
    GroupDeleted,
    GroupList,
    GroupOpened,
    GroupStatus,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reply,
    Reserve,
    Reserved,
    Slice,
)
from warren.broker.metadata import DeleteReaderGroup, PutReaderGroup
from warren.queues.message_block import encode_block
from warren.queues.queue import Queue
from warren.queues.reader_group import (
    EVERYTHING,
    LOADING,
    MORE,
    NOT_FOUND,
    GroupError,
    ReaderGroup,
    Reservation,
    text,
)

# How often a poll looks again when there are messages, but behind some that a consumer has not settled. Not on every
# publish: finding out who has what unacked walks over channels.
BLOCKED_RETRY_S: Final = 0.05


class GroupCalls:
    """Reader group requests of one session. Each is answered once, through its return value or `reply`."""

    def __init__(self, vhost: AdminVhost, clock: Clock, opener: str, reply: Callable[[Reply], None]) -> None:
        self._vhost = vhost
        self._clock = clock
        self._opener = opener
        self._reply = reply
        self._poll: ReservePoll | None = None

    def stop(self) -> None:
        """The session is over: nobody waits any more."""
        if self._poll is not None:
            self._poll.stop()
            self._poll = None

    def open(self, request: OpenGroup) -> None:
        """OpenGroup: answered when the new epoch is durable."""
        queue = self._vhost.queue(request.queue)
        if queue is None:
            raise GroupError(
                NOT_FOUND, f"no queue '{text(request.queue)}' in vhost '{text(self._vhost.name)}'"
            )
        group = self._vhost.reader_groups.open(
            request.group.encode(), self._opener, queue, request.from_latest, request.may_rebind
        )
        opened = GroupOpened(group.epoch, group.queue_id, group.acked, group.reserved, queue.next_seq)
        self.commit_group(group, lambda ok: self._reply(opened if ok else _storage_failed("opened")))

    def reserve(self, request: Reserve) -> None:
        """Reserve: answered when the range is durable, or with nothing when `wait_ms` is over."""
        group = self._vhost.reader_groups.get(request.group.encode())
        poll = ReservePoll(self, self._vhost, self._clock, group, request, self._end_poll)
        self._poll = poll
        try:
            poll.start()
        except GroupError:
            self.stop()
            raise

    def plan_range(self, request: PlanRange) -> RangePlan:
        """PlanRange: the slices that have messages."""
        group = self._expect(request.group, request.epoch, request.incarnation)
        slices = group.slices(request.start, request.end, request.slice_size, request.is_lenient)
        return RangePlan([Slice(*values) for values in slices])

    def fetch(self, request: Fetch) -> None:
        """Fetch: a block of the range's first messages, once their contents are in memory."""
        group = self._expect(request.group, request.epoch, request.incarnation)
        entries = group.fetch(request.start, request.end, request.max_messages, request.max_bytes)

        def on_loaded() -> None:
            # The group may have been taken over meanwhile, and damaged messages are not held any more.
            try:
                self.fetch(request)
            except GroupError as error:
                self._reply(ErrorReply(error.code, error.text))

        if group.load_contents(entries, on_loaded):
            return
        last = entries[-1].seq + 1 if entries else request.end
        next_seq = last if group.fetch(last, request.end, 1, 1) else request.end
        self._reply(Fetched(next_seq, memoryview(encode_block(entries, request.with_bodies))))

    def ack(self, request: Ack) -> None:
        """Ack: first the journal's acks, then the definition, then the answer."""
        group = self._vhost.reader_groups.get(request.group.encode())

        def let_go() -> None:
            try:
                group.expect(request.epoch, request.incarnation, self._clock.now_ms())
                has_more = group.ack_slice(request.end, self._clock.now_ms())
            except GroupError as error:
                self._reply(ErrorReply(error.code, error.text))
                return
            if has_more:
                self._clock.call_soon(let_go)
            elif request.end <= group.acked_durable:
                self._reply(Acked(group.acked))
            else:
                self.commit_acks(group, on_acks)

        def on_definition(ok: bool) -> None:
            self._reply(Acked(group.acked_durable) if ok else _storage_failed("acked"))

        def on_acks(ok: bool) -> None:
            if ok:
                self.commit_group(group, on_definition)
            else:
                self._reply(_storage_failed("acked"))

        let_go()

    def delete(self, request: DeleteGroup) -> None:
        """DeleteGroup: answered when the definition is gone."""
        name = request.group.encode()
        self._vhost.reader_groups.delete(name, self._clock.now_ms())
        self._vhost.commit(
            [DeleteReaderGroup(self._vhost.name, name)],
            lambda ok, _now_ms: self._reply(GroupDeleted() if ok else _storage_failed("deleted")),
        )

    def list_groups(self) -> GroupList:
        """ListGroups."""
        groups = self._vhost.reader_groups.by_name
        return GroupList([_status(groups[name]) for name in sorted(groups)])

    def commit_group(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        """Make the group's definition and everything journaled so far durable."""
        if group.is_deleted:
            # Its definition must not come back.
            done(False)
            return
        put = PutReaderGroup(
            self._vhost.name, group.name, group.epoch, group.queue_id, group.acked_durable, group.reserved
        )
        self._vhost.commit([put], _when_acks_durable(group, done))

    def commit_acks(self, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        """Make everything journaled so far durable, the group's acks with it; not its definition."""
        self._vhost.commit([], _when_acks_durable(group, done))

    def _expect(self, name: str, epoch: int, incarnation: int) -> ReaderGroup:
        group = self._vhost.reader_groups.get(name.encode())
        group.expect(epoch, incarnation, self._clock.now_ms())
        return group

    def _end_poll(self, reply: Reply) -> None:
        self._poll = None
        self._reply(reply)


class ReservePoll:
    """One Reserve from its arrival to its answer: take in slices, commit, or wait for messages."""

    def __init__(
        self,
        calls: GroupCalls,
        vhost: AdminVhost,
        clock: Clock,
        group: ReaderGroup,
        request: Reserve,
        reply: Callable[[Reply], None],
    ) -> None:
        self._calls = calls
        self._vhost = vhost
        self._clock = clock
        self._group = group
        self._request = request
        self._reply = reply
        self._reservation = Reservation(request.start, request.until, request.max_messages, request.max_bytes)
        self._timer: Timer | None = None
        self._watched: Queue | None = None
        # Has nothing, and looks again when the queue or a timer says so.
        self._is_waiting = False
        self._is_over = False

    def start(self) -> None:
        """Ack what is processed, then take what is there. Raises GroupError when the request cannot stand."""
        wait_ms = self._request.wait_ms
        if wait_ms > 0:
            self._timer = self._clock.call_later(wait_ms / 1000, self._on_time_up)
        self._take()

    def stop(self) -> None:
        """Nobody waits for the answer any more. What was taken stays held for whoever asks next."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unwatch()

    # -- taking ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """One slice of work. A GroupError passes to `start`'s caller, or is answered by `_take_later`."""
        group = self._group
        now_ms = self._clock.now_ms()
        queue = group.expect(self._request.epoch, self._request.incarnation, now_ms)
        if group.ack_slice(self._request.start, now_ms):
            self._clock.call_soon(self._take_later)
            return
        outcome = group.reserve_slice(self._reservation, self._barrier(queue), now_ms, self._on_loaded)
        if outcome == LOADING:
            return
        if outcome == MORE:
            self._clock.call_soon(self._take_later)
        elif self._reservation.message_count > 0:
            self._commit()
        else:
            self._wait(queue)

    def _on_loaded(self) -> None:
        # Called in the midst of what a load brings about.
        self._clock.call_soon(self._take_later)

    def _take_later(self) -> None:
        if self._is_over:
            return
        if self._is_waiting:
            self._is_waiting = False
            self._reservation.is_dry = False
        try:
            self._take()
        except GroupError as error:
            self._answer(ErrorReply(error.code, error.text))

    def _barrier(self, queue: Queue) -> int:
        """Where somebody else's unacked messages begin: the range must end before them."""
        if queue.unacked_count == len(self._group.held):
            return EVERYTHING
        first = self._vhost.first_unacked_seq(queue, self._group.reserved)
        return EVERYTHING if first < 0 else first

    def _commit(self) -> None:
        self._stop_waiting()
        self._calls.commit_group(self._group, self._on_commit)

    def _on_commit(self, ok: bool) -> None:
        if self._is_over:
            return
        try:
            self._group.expect(self._request.epoch, self._request.incarnation, self._clock.now_ms())
        except GroupError as error:
            self._answer(ErrorReply(error.code, error.text))
            return
        # A batch before this one may have failed with some of the range in it.
        if not ok or not self._group.is_kept(self._reservation):
            self._answer(_storage_failed("reserved"))
            return
        self._answer(self._reserved(self._reservation.end))

    # -- waiting ---------------------------------------------------------------------------------------------

    def _wait(self, queue: Queue) -> None:
        if self._group.acked > self._group.acked_durable:
            # Nothing came that the ack could ride with, and the space of what was acked should not wait.
            self._calls.commit_acks(self._group, _nobody_waits)
        if self._timer is None:
            self._answer(self._reserved(self._request.start))
            return
        self._is_waiting = True
        if queue.ready.is_on_disk(self._group.reserved) or queue.peek(self._group.reserved, 1, 1):
            self._clock.call_later(BLOCKED_RETRY_S, self._take_later)
        else:
            self._watched = queue
            queue.watch_ready(self._on_ready)

    def _on_ready(self) -> None:
        # Called from inside of the queue, in the middle of a publish: look at it a turn later.
        self._watched = None
        self._clock.call_soon(self._take_later)

    def _on_time_up(self) -> None:
        self._timer = None
        if self._is_waiting:
            self._answer(self._reserved(self._request.start))

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unwatch()

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._watched.unwatch_ready(self._on_ready)
            self._watched = None

    def _reserved(self, end: int) -> Reserved:
        queue = self._group.queue
        return Reserved(end, end if queue is None else queue.next_seq)

    def _answer(self, reply: Reply) -> None:
        self.stop()
        self._reply(reply)


def _when_acks_durable(group: ReaderGroup, done: Callable[[bool], None]) -> Callable[[bool, int], None]:
    """`done` for a commit that carries the journal's acks up to where the group has acked when this is called."""
    acked = group.acked
    queue_id = group.queue_id

    def on_commit(ok: bool, _now_ms: int) -> None:
        # Positions of an earlier queue say nothing about the one the group was bound to meanwhile.
        if ok and group.queue_id == queue_id:
            group.acked_durable = max(group.acked_durable, acked)
        done(ok)

    return on_commit


def _nobody_waits(ok: bool) -> None:
    """A commit that failed is made up for by the next one."""


def _storage_failed(what: str) -> ErrorReply:
    return ErrorReply(
        STORAGE_FAILED, f"the broker could not store that the group's range is {what}; try again"
    )


def _status(group: ReaderGroup) -> GroupStatus:
    queue = group.queue
    ready_behind = 0 if queue is None else queue.ready_count
    return GroupStatus(
        group=text(group.name),
        queue=b"" if queue is None else queue.name,
        incarnation=group.queue_id,
        epoch=group.epoch,
        opener=group.opener,
        acked=group.acked,
        reserved=group.reserved,
        held=len(group.held),
        lag=len(group.held) + ready_behind,
    )
