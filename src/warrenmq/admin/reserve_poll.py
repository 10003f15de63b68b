"""One Reserve from its arrival to its answer: ack, take a fair share of each queue, commit, or wait for messages.

Fair, and the same when it is asked again: what the group holds already comes first, queue after queue. What is left of
the limits is divided among the queues that have messages, what one leaves of its share among the others, and a reserve
begins with the queue behind the one that was served last, so that small limits starve nobody.
"""

from collections.abc import Callable
from typing import Final

from warrenmq.admin.group_store import commit_acks, commit_group, storage_failed
from warrenmq.admin.node import AdminVhost, Clock, Timer
from warrenmq.admin.protocol import ErrorReply, MemberRange, Reply, Reserve, Reserved
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_group import (
    EVERYTHING,
    GROUP_SLICE_MESSAGES,
    LOADING,
    MORE,
    GroupError,
    GroupMember,
)
from warrenmq.queues.reader_groups import ReaderGroup
from warrenmq.queues.reservation import Reservation

# How often a poll looks again when there are messages, but behind some that a consumer has not settled. Not on every
# publish: finding out who has what unacked walks over channels.
BLOCKED_RETRY_S: Final = 0.05


class Part:
    """What is taken of one queue."""

    def __init__(self, place: int, member: GroupMember, start: int, until: int) -> None:
        # Among the parts.
        self.place = place
        self.member = member
        self.start = start
        self.reservation = Reservation(start, until, 0, 0)
        # What it holds already is counted in; nothing more can be had.
        self.has_held = False
        self.is_dry = False


class ReservePoll:
    """One Reserve of a group."""

    def __init__(
        self,
        vhost: AdminVhost,
        clock: Clock,
        group: ReaderGroup,
        request: Reserve,
        reply: Callable[[Reply], None],
    ) -> None:
        self._vhost = vhost
        self._clock = clock
        self._group = group
        self._request = request
        self._reply = reply
        # None until everything below the starts is acked.
        self._parts: list[Part] | None = None
        # The parts of this round that are still to be served, each with its share.
        self._round: list[tuple[Part, int, int]] = []
        # What all parts have together.
        self._message_count = 0
        self._bytes = 0
        self._timer: Timer | None = None
        self._retry_timer: Timer | None = None
        self._watched: list[Queue] = []
        # Has nothing, and looks again when a queue or a timer says so; has been told to.
        self._is_waiting = False
        self._is_woken = False
        self._is_over = False

    def start(self) -> None:
        """Ack what is processed, then take what is there. Raises GroupError when the request cannot stand."""
        self._group.expect(self._request.epoch)
        self._join_new()
        for incarnation, start in self._request.starts.items():
            self._group.member(incarnation).check_start(start)
        wait_ms = self._request.wait_ms
        if wait_ms > 0:
            self._timer = self._clock.call_later(wait_ms / 1000, self._on_time_up)
        self._take()

    def stop(self) -> None:
        """Nobody waits for the answer any more. What was taken stays held for whoever asks next."""
        self._is_over = True
        self._stop_timers()

    def _join_new(self) -> None:
        """Queues that were declared since the last look join when they match."""
        group = self._group
        if not group.pattern:
            return
        new = self._vhost.queues_above(group.matched_upto)
        for queue in reversed(new):
            if queue.id not in group.members and group.matches(queue):
                self._vhost.reader_groups.refuse_second_holder(group.name, queue)
                group.join(queue, 0)
            group.matched_upto = queue.id

    # -- taking ----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """One slice of work. A GroupError passes to `start`'s caller, or is answered by `_take_later`."""
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
        """Let go of a slice of what lies below the starts; False when there is more."""
        now_ms = self._clock.now_ms()
        group = self._group
        for member in group.ordered():
            start = self._request.starts.get(member.queue_id, member.acked)
            if member.is_ended:
                if member.queue_id not in self._request.starts:
                    # The reader has gone on without it.
                    group.leave(member, now_ms)
                continue
            member.expect_queue(now_ms)
            if self._request.acks and member.ack_slice(start, now_ms):
                return False
        return True

    def _new_parts(self) -> list[Part]:
        """A part for each queue, beginning with the one whose turn it is."""
        until = self._request.until
        members = [member for member in self._group.ordered() if not member.is_ended]
        turn = next(
            (i for i, member in enumerate(members) if member.queue_id == self._group.next_turn), 0
        )
        return [
            Part(
                place,
                member,
                self._request.starts.get(member.queue_id, member.acked),
                EVERYTHING if until is None else until.get(member.queue_id, 0),
            )
            for place, member in enumerate(members[turn:] + members[:turn])
        ]

    def _drop_ended(self, parts: list[Part]) -> None:
        """Queues that were read to their end and deleted meanwhile: nothing was taken of them."""
        if any([part.member.is_ended for part in parts]):
            parts[:] = [part for part in parts if not part.member.is_ended]
            self._round = [each for each in self._round if not each[0].member.is_ended]
            for place, part in enumerate(parts):
                part.place = place

    def _count_held(self, parts: list[Part], now_ms: int) -> int:
        """Count in what is held already, as far as the limits go; how the last slice of it ended."""
        for part in parts:
            if part.has_held:
                continue
            outcome = self._serve(part, False, EVERYTHING, EVERYTHING, now_ms)
            if outcome in (MORE, LOADING):
                return outcome
            part.has_held = True
        return 0

    def _take_more(self, parts: list[Part], now_ms: int) -> int:
        """Serve the next of the round; MORE while there is anybody to be served."""
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
        """A slice for one queue, which may have `messages` and `size` bytes in all; how it ended."""
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
        # Called in the midst of what a load brings about.
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
        """Where somebody else's unacked messages begin, a consumer's or another group's: the range must end before them."""
        queue = member.queue
        if queue is None or queue.unacked_count == len(member.held):
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
        commit_group(self._vhost, self._group, lambda ok: self._on_commit(ok, parts))

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
        # A batch before this one may have failed with some of the range in it.
        if not ok or not all([part.member.is_kept(part.reservation) for part in parts]):
            self._answer(storage_failed("reserved"))
            return
        self._answer(_reserved(parts))

    # -- waiting ---------------------------------------------------------------------------------------------

    def _is_too_early(self, parts: list[Part], now_ms: int) -> bool:
        """Are there fewer messages than were asked for, and have they not waited long enough?"""
        if self._request.min_messages <= 1 or self._request.max_delay_ms == 0:
            return False
        if self._message_count > 0:
            # They were given out before, and that answer was lost.
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
            # Queues have joined or ended; later will do.
            commit_group(self._vhost, group, _nobody_waits)
        elif any([member.acked > member.acked_durable for member in group.members.values()]):
            # Nothing came that the ack could ride with, and the space of what was acked should not wait.
            commit_acks(self._vhost, group, _nobody_waits)
        if self._timer is None:
            self._answer(_reserved(parts))
            return
        self._is_waiting = True
        has_blocked = False
        for part in parts:
            queue = part.member.queue
            if queue is None:
                continue
            if queue.backing.ready.is_on_disk(part.member.reserved) or queue.backing.peek(
                part.member.reserved, 1, 1
            ):
                has_blocked = True
            else:
                self._watched.append(queue)
                queue.watch_ready(self._on_ready)
        if has_blocked:
            self._retry_timer = self._clock.call_later(BLOCKED_RETRY_S, self._take_later)

    def _on_ready(self) -> None:
        # Called from inside of the queue, in the middle of a publish: look at it a turn later.
        if not self._is_woken:
            self._is_woken = True
            self._clock.call_soon(self._take_later)

    def _on_time_up(self) -> None:
        self._timer = None
        if self._is_waiting and self._parts is not None:
            self._answer(_reserved(self._parts))

    def _end_wait(self) -> None:
        """Look again: no other call is to bring it."""
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


def _reserved(parts: list[Part]) -> Reserved:
    ranges = [
        MemberRange(
            part.member.queue_name,
            part.member.queue_id,
            part.start,
            part.reservation.end,
            part.reservation.end if part.member.queue is None else part.member.queue.next_seq,
        )
        for part in parts
    ]
    ranges.sort(key=lambda each: (each.queue, each.incarnation))
    return Reserved(ranges)


def _nobody_waits(ok: bool) -> None:
    """A commit that failed is made up for by the next one."""
