"""One Reserve from arrival to answer: ack, take a fair share of each queue, commit, or wait.

A Reserve is fair, and repeats itself when it is asked again. Messages that the group has reserved
already come first, queue after queue. The rest of the limits is divided among the queues that have
messages, and a queue that needs less leaves its share to the others. Each Reserve begins with the
queue after the one served last, so that small limits starve no queue.
"""

from collections.abc import Callable
from typing import Final

from warrenmq.admin.clock import Clock, Timer
from warrenmq.admin.node import AdminVhost
from warrenmq.admin.protocol.requests import ErrorReply, MemberRange, Reply, Reserve, Reserved
from warrenmq.admin.readers.passed_over import pass_over
from warrenmq.admin.readers.store import storage_failed
from warrenmq.broker.definitions.rights import QUEUE, Rights
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group import GROUP_SLICE_MESSAGES, GroupMember
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import ReaderGroup
from warrenmq.queues.readers.reservation import EVERYTHING, LOADING, MORE, Reservation

# Retry interval (s) when the next messages lie behind some that a consumer has not settled. A retry
# on every publish would be too dear: to find out who has which messages unacked, it walks over
# channels.
BLOCKED_RETRY_S: Final = 0.05


class Part:
    """The share of one queue in a Reserve."""

    def __init__(self, place: int, member: GroupMember, start: int, until: int) -> None:
        # Index among the parts.
        self.place = place
        self.member = member
        self.start = start
        self.reservation = Reservation(start, until, 0, 0)
        # Whether the messages reserved earlier are counted in.
        self.has_held = False
        # Whether the queue has nothing more to give.
        self.is_dry = False


class ReservePoll:
    """Carries out one Reserve of a group and answers it once, through `reply`."""

    def __init__(
        self,
        vhost: AdminVhost,
        clock: Clock,
        group: ReaderGroup,
        request: Reserve,
        rights: Rights,
        reply: Callable[[Reply], None],
    ) -> None:
        self._vhost = vhost
        self._clock = clock
        self._group = group
        self._request = request
        self._rights = rights
        self._reply = reply
        # None until everything below the request's starts is acked.
        self._parts: list[Part] | None = None
        # Parts still to be served in this round, each with the messages and bytes that it may have
        # in total.
        self._round: list[tuple[Part, int, int]] = []
        # Messages of all parts together, and their bytes.
        self._message_count = 0
        self._bytes = 0
        self._timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._watched: list[Queue] = []
        # Priority queues that the pattern matches and that were declared since the last call.
        self._passed_over: list[bytes] = []
        # Whether the poll has nothing yet and waits for a queue or a timer.
        self._is_waiting = False
        # Whether a queue has scheduled the end of the wait.
        self._is_woken = False
        self._is_over = False

    def start(self) -> None:
        """Ack what is processed, then reserve what is available. Raises GroupError."""
        self._group.expect(self._request.epoch)
        self._join_new()
        for incarnation, start in self._request.starts.items():
            self._group.member(incarnation).check_start(start)
        wait_ms = self._request.wait_ms
        if wait_ms > 0:
            self._timer = self._clock.call_later(wait_ms / 1000, self._on_time_up)
        self._take()

    def stop(self) -> None:
        """End the poll without an answer; the next Reserve gets the messages taken so far."""
        self._is_over = True
        self._stop_timers()

    def _join_new(self) -> None:
        """Add the queues declared since the last call that match the group's pattern.

        A queue that the session may not read does not join.
        """
        group = self._group
        if not group.pattern:
            return
        new = self._vhost.queues_above(group.matched_upto)
        self._passed_over = pass_over(group, new, self._rights)
        for queue in reversed(new):
            may_read = not self._rights.read_refusal(QUEUE, queue.name)
            if queue.id not in group.members and group.matches(queue) and may_read:
                self._vhost.reader_groups.refuse_second_holder(group.name, queue)
                group.join(queue, 0)
            group.matched_upto = queue.id

    # -- taking ------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Run one slice of the poll.

        A GroupError passes to the caller of `start`; `_take_later` answers it.
        """
        self._group.expect(self._request.epoch)
        parts = self._parts
        if parts is None:
            if not self._ack():
                self._clock.call_soon(self._take_later)
                return
            parts = self._parts = self._new_parts()
        self._drop_ended(parts)
        now_ms = self._clock.now_ms()
        for part in parts:
            part.member.expect_queue(now_ms)
        outcome = self._count_held(parts, now_ms)
        if outcome not in (MORE, LOADING):
            if self._is_too_early(parts, now_ms):
                self._wait(parts)
                return
            outcome = self._take_more(parts, now_ms)
        if outcome == LOADING:
            return
        if outcome == MORE:
            self._clock.call_soon(self._take_later)
        elif self._message_count > 0:
            self._commit(parts)
        else:
            self._wait(parts)

    def _ack(self) -> bool:
        """Ack one slice of the messages below the starts; False when there is more."""
        now_ms = self._clock.now_ms()
        group = self._group
        for member in group.ordered():
            start = self._request.starts.get(member.incarnation, member.acked)
            if member.is_ended:
                if member.incarnation not in self._request.starts:
                    # The reader has moved on without the ended queue.
                    group.leave(member, now_ms)
                continue
            member.expect_queue(now_ms)
            if self._request.acks and member.ack_slice(start, now_ms):
                return False
        return True

    def _new_parts(self) -> list[Part]:
        """A part for each queue, beginning with the queue whose turn it is."""
        until = self._request.until
        members = [member for member in self._group.ordered() if not member.is_ended]
        turn = next(
            (i for i, member in enumerate(members) if member.queue_id == self._group.next_turn), 0
        )
        return [
            Part(
                place,
                member,
                self._request.starts.get(member.incarnation, member.acked),
                EVERYTHING if until is None else until.get(member.incarnation, 0),
            )
            for place, member in enumerate(members[turn:] + members[:turn])
        ]

    def _drop_ended(self, parts: list[Part]) -> None:
        """Remove the parts of queues that were read to the end and deleted: these gave nothing."""
        if any([part.member.is_ended for part in parts]):
            parts[:] = [part for part in parts if not part.member.is_ended]
            self._round = [each for each in self._round if not each[0].member.is_ended]
            for place, part in enumerate(parts):
                part.place = place

    def _count_held(self, parts: list[Part], now_ms: int) -> int:
        """Count in the messages reserved earlier, within the limits; returns the last outcome."""
        for part in parts:
            if part.has_held:
                continue
            outcome = self._serve(part, False, EVERYTHING, EVERYTHING, now_ms)
            if outcome in (MORE, LOADING):
                return outcome
            part.has_held = True
        return 0

    def _take_more(self, parts: list[Part], now_ms: int) -> int:
        """Serve the next parts of the round; MORE while a part can still be served."""
        if not self._round:
            self._begin_round(parts)
        begun = self._message_count
        while self._round and not self._is_full():
            part, messages, size = self._round[0]
            outcome = self._serve(part, True, messages, size, now_ms)
            if outcome in (MORE, LOADING):
                return outcome
            part.is_dry = not part.reservation.is_full()
            self._round.pop(0)
            if part.reservation.message_count > 0:
                self._group.next_turn = parts[(part.place + 1) % len(parts)].member.queue_id
            if self._message_count - begun >= GROUP_SLICE_MESSAGES:
                break
        return 0 if self._is_full() or all([part.is_dry for part in parts]) else MORE

    def _serve(self, part: Part, takes_more: bool, messages: int, size: int, now_ms: int) -> int:
        """Serve one slice of `part`; returns its outcome (MORE, LOADING or ENOUGH).

        `messages` and `size` (bytes) limit the part as a whole.
        """
        reservation = part.reservation
        had = reservation.message_count, reservation.bytes
        left = self._request.max_messages - self._message_count
        reservation.max_messages = min(messages, had[0] + left)
        reservation.max_bytes = min(size, had[1] + self._request.max_bytes - self._bytes)
        barrier = self._barrier(part.member) if takes_more else EVERYTHING
        outcome = part.member.reserve_slice(
            reservation, takes_more, barrier, now_ms, self._on_loaded
        )
        self._message_count += reservation.message_count - had[0]
        self._bytes += reservation.bytes - had[1]
        return outcome

    def _is_full(self) -> bool:
        return (
            self._message_count >= self._request.max_messages
            or self._bytes >= self._request.max_bytes
        )

    def _begin_round(self, parts: list[Part]) -> None:
        able = [part for part in parts if not part.is_dry]
        if not able:
            return
        messages = max(1, (self._request.max_messages - self._message_count) // len(able))
        size = max(1, (self._request.max_bytes - self._bytes) // len(able))
        self._round = [
            (part, part.reservation.message_count + messages, part.reservation.bytes + size)
            for part in able
        ]

    def _on_loaded(self) -> None:
        # A load calls this from its own middle, so continue in the next turn.
        self._clock.call_soon(self._take_later)

    def _take_later(self) -> None:
        if self._is_over:
            return
        if self._is_waiting:
            self._end_wait()
            for part in self._parts or []:
                part.is_dry = False
                part.reservation.is_dry = False
        try:
            self._take()
        except GroupError as error:
            self._answer(ErrorReply(error.code, error.text))

    def _barrier(self, member: GroupMember) -> int:
        """First seq id unacked by a consumer or another group; the range must end before it."""
        queue = member.queue
        if queue is None or queue.unacked_count == len(member.reserved_entries):
            return EVERYTHING
        first = self._vhost.first_unacked_seq(queue, member.reserved)
        barrier = EVERYTHING if first < 0 else first
        for other in self._vhost.reader_groups.members_of(queue.ledger):
            if other is not member:
                barrier = min(barrier, other.first_reserved(member.reserved))
        return barrier

    def _commit(self, parts: list[Part]) -> None:
        self._stop_timers()
        self._group.ready_since_ms = -1
        self._vhost.readers.commit(self._group, lambda ok: self._on_commit(ok, parts))

    def _on_commit(self, ok: bool, parts: list[Part]) -> None:
        if self._is_over:
            return
        try:
            self._group.expect(self._request.epoch)
            self._drop_ended(parts)
            for part in parts:
                part.member.expect_queue(self._clock.now_ms())
        except GroupError as error:
            self._answer(ErrorReply(error.code, error.text))
            return
        # An earlier batch with some of the range may have failed.
        if not ok or not all([part.member.is_kept(part.reservation) for part in parts]):
            self._answer(storage_failed("reserved"))
            return
        self._answer(_reserved(parts, self._passed_over))

    # -- waiting -----------------------------------------------------------------------------------

    def _is_too_early(self, parts: list[Part], now_ms: int) -> bool:
        """True while there are too few messages and they have not waited long enough."""
        if self._request.min_messages <= 1 or self._request.max_delay_ms == 0:
            return False
        if self._message_count > 0:
            # An earlier answer with these messages was lost.
            return False
        available = sum([part.member.available(part.start) for part in parts])
        if available == 0:
            self._group.ready_since_ms = -1
            return True
        if self._group.ready_since_ms < 0:
            self._group.ready_since_ms = now_ms
        is_due = now_ms - self._group.ready_since_ms >= self._request.max_delay_ms
        return (
            available < min(self._request.min_messages, self._request.max_messages) and not is_due
        )

    def _wait(self, parts: list[Part]) -> None:
        group = self._group
        if group.left or any([member.stored_acked < 0 for member in group.members.values()]):
            # Queues have joined or ended; a failed commit of that is made up for later.
            self._vhost.readers.commit(group, _nobody_waits)
        elif any([member.acked > member.acked_durable for member in group.members.values()]):
            # No new definition carries the ack, and the space of acked messages should not wait.
            self._vhost.readers.commit_acks(group, _nobody_waits)
        if self._timer is None:
            self._answer(_reserved(parts, self._passed_over))
            return
        self._is_waiting = True
        has_blocked = False
        for part in parts:
            queue = part.member.queue
            if queue is None:
                continue
            if not queue.is_paused and _has_ready(queue, part.member.reserved):
                has_blocked = True
            else:
                # A paused queue calls the watcher when it is resumed.
                self._watched.append(queue)
                queue.watch_ready(self._on_ready)
        if has_blocked:
            self._retry_timer = self._clock.call_later(BLOCKED_RETRY_S, self._take_later)

    def _on_ready(self) -> None:
        # The queue calls this in the middle of a publish, so look in the next turn.
        if not self._is_woken:
            self._is_woken = True
            self._clock.call_soon(self._take_later)

    def _on_time_up(self) -> None:
        self._timer = None
        if self._is_waiting and self._parts is not None:
            self._answer(_reserved(self._parts, self._passed_over))

    def _end_wait(self) -> None:
        """Stop waiting and cancel the watchers and the timer that would continue the poll."""
        self._is_waiting = False
        self._is_woken = False
        if self._retry_timer is not None:
            self._retry_timer.cancel()
            self._retry_timer = None
        for queue in self._watched:
            queue.unwatch_ready(self._on_ready)
        self._watched = []

    def _stop_timers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._end_wait()

    def _answer(self, reply: Reply) -> None:
        self.stop()
        self._reply(reply)


def _has_ready(queue: Queue, reserved: int) -> bool:
    """Whether a message from the seq id `reserved` on is ready, if only behind an unacked one."""
    return queue.backing.ready.is_on_disk(reserved) or len(queue.backing.peek(reserved, 1, 1)) > 0


def _reserved(parts: list[Part], passed_over: list[bytes]) -> Reserved:
    ranges = [
        MemberRange(
            part.member.queue_name,
            part.member.incarnation,
            part.start,
            part.reservation.end,
            part.reservation.end if part.member.queue is None else part.member.queue.next_seq,
            part.member.birth,
        )
        for part in parts
    ]
    ranges.sort(key=lambda each: (each.queue, each.incarnation))
    return Reserved(ranges, passed_over)


def _nobody_waits(ok: bool) -> None:
    """Ignore the outcome: the next commit makes up for a failed one."""
