"""The reader group calls of one session: what must be durable before which answer.

queues/readers/group.py knows the rules of a group. This module supplies what these rules need from
outside: the queues that exist, the commit before an answer, and turns of the loop, so that an ack
of a million messages delays nobody. Reserve requests are in reserve_poll.py.

A definition never leads the journal's acks (broker/vhost/readers.py). Therefore `ack` commits
twice, and an ack inside a reserve goes into the next definition.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from warrenmq.admin.clock import Clock, Timer
from warrenmq.admin.node import AdminVhost
from warrenmq.admin.protocol import requests
from warrenmq.admin.readers.ages import when_ages_known
from warrenmq.admin.readers.passed_over import pass_over
from warrenmq.admin.readers.reserve_poll import ReservePoll
from warrenmq.admin.readers.seek import seek_time
from warrenmq.admin.readers.store import storage_failed
from warrenmq.admin.status import group_status
from warrenmq.broker.definitions.metadata import DeleteReaderGroup
from warrenmq.broker.definitions.rights import QUEUE, Rights
from warrenmq.queues.entry import Entry
from warrenmq.queues.queue import Queue
from warrenmq.queues.readers.group import GroupMember
from warrenmq.queues.readers.group_error import GroupError
from warrenmq.queues.readers.groups import ReaderGroup
from warrenmq.queues.readers.planned_range import PlannedRange
from warrenmq.queues.readers.record_block import encode_block
from warrenmq.queues.readers.segment_places import SegmentPlaces
from warrenmq.vocabulary.error_codes import (
    ACCESS_REFUSED,
    BAD_REQUEST,
    DATA_LOSS,
    NOT_FOUND,
    PRECONDITION,
)
from warrenmq.vocabulary.names import name_text

# Interval (s) at which a plan looks whether the dead letters of its range have left their queue.
# The letters wait for the journal, or for another node.
DEAD_LETTERS_RETRY_S: Final = 0.02


class GroupCalls:
    """Carries out one session's reader group requests.

    Each request is answered once, by the return value or by `reply`. `rights` say which queues the
    session may read.
    """

    def __init__(
        self,
        vhost: AdminVhost,
        clock: Clock,
        opener: str,
        rights: Rights,
        reply: Callable[[requests.Reply], None],
    ) -> None:
        self._vhost = vhost
        self._clock = clock
        self._opener = opener
        self._rights = rights
        self._reply = reply
        self._poll: ReservePoll | None = None
        self._plan_timer: Timer | None = None

    def stop(self) -> None:
        """Cancel the Reserve and the PlanRange that wait: the session has ended."""
        if self._poll is not None:
            self._poll.stop()
            self._poll = None
        if self._plan_timer is not None:
            self._plan_timer.cancel()
            self._plan_timer = None

    # -- opening -----------------------------------------------------------------------------------

    def open(self, request: requests.OpenGroup) -> None:
        """OpenGroup: answer when the new epoch is durable."""
        if request.elsewhere and not request.may_rebind:
            self._vhost.reader_groups.refuse_moved(request.group.encode(), request.elsewhere)
        if request.elsewhere and not request.queues:
            self._vhost.expect_elsewhere(request.elsewhere)
            self._leave(request.group.encode())
            return
        starts: dict[int, int] = {}
        group = self._vhost.reader_groups.by_name.get(request.group.encode())
        unsought: list[Queue] = []
        for queue in self._wanted(request):
            if group is not None and queue.id in group.members:
                continue
            named = request.start_at.get(queue.name.decode("utf-8", "surrogateescape"))
            if named is not None:
                starts[queue.id] = named
            elif request.start == "latest":
                starts[queue.id] = queue.next_seq
            elif request.start != "earliest":
                unsought.append(queue)
        self._seek_starts(request, starts, unsought)

    def _leave(self, name: bytes) -> None:
        """All queues of the group live on other nodes: forget its part of this one.

        Copies of mirrored queues keep theirs: their masters decide about them.
        """
        left = requests.GroupOpened(0, [])
        group = self._vhost.reader_groups.by_name.get(name)
        if group is None or group.is_shadow:
            self._reply(left)
        elif len(group.ordered()) == len(group.members):
            self._delete(name, left)
        else:
            for member in group.ordered():
                self.expect_read(member.queue_name)
            self._vhost.reader_groups.leave_node(group, self._clock.now_ms())
            self._vhost.readers.commit(
                group, lambda ok: self._reply(left if ok else storage_failed("left"))
            )

    def _seek_starts(
        self, request: requests.OpenGroup, starts: dict[int, int], unsought: list[Queue]
    ) -> None:
        """Seek the start of each queue of `unsought` in turn, then open the group."""
        if not unsought or isinstance(request.start, str):
            self._open(request, starts)
            return
        queue = unsought.pop()

        def seek_next() -> None:
            try:
                self._seek_starts(request, starts, unsought)
            except GroupError as error:
                self._reply(requests.ErrorReply(error.code, error.text))

        def on_found(seq: int) -> None:
            starts[queue.id] = seq
            # `seek_time` may call back at once, and for a thousand queues that would recurse.
            self._clock.call_soon(seek_next)

        seek_time(queue, request.start, on_found)

    def _open(self, request: requests.OpenGroup, starts: dict[int, int]) -> None:
        self._vhost.expect_elsewhere(request.elsewhere)
        group = self._vhost.reader_groups.open(
            request.group.encode(),
            self._opener,
            self._wanted(request),
            request.pattern,
            starts,
            request.may_rebind,
            self._clock.now_ms(),
            request.epoch,
        )
        passed_over = pass_over(group, self._vhost.queues_above(0), self._rights)
        members = [_member(member) for member in group.ordered()]
        opened = requests.GroupOpened(group.epoch, members, passed_over)
        self._vhost.readers.commit(
            group, lambda ok: self._reply(opened if ok else storage_failed("opened"))
        )

    def _wanted(self, request: requests.OpenGroup) -> list[Queue]:
        """The queues that the request names or that match its pattern. Raises GroupError.

        A pattern matches only queues that the session may read.
        """
        if bool(request.queues) == bool(request.pattern):
            raise GroupError(
                BAD_REQUEST, "a reader group needs either names of queues or a pattern"
            )
        if request.pattern:
            try:
                probe = ReaderGroup(request.group.encode(), 0, request.pattern)
            except ValueError as error:
                raise GroupError(BAD_REQUEST, str(error)) from None
            return [
                queue
                for queue in self._vhost.queues_above(0)
                if probe.matches(queue) and not self._rights.read_refusal(QUEUE, queue.name)
            ]
        found: dict[int, Queue] = {}
        for name in request.queues:
            self.expect_read(name)
            queue = self._vhost.queue(name)
            if queue is None:
                self._vhost.expect_here(name)
                raise GroupError(
                    NOT_FOUND,
                    f"no queue '{name_text(name)}' in vhost '{name_text(self._vhost.name)}'",
                )
            found[queue.id] = queue
        return list(found.values())

    # -- reading -----------------------------------------------------------------------------------

    def reserve(self, request: requests.Reserve) -> None:
        """Reserve: answer when the ranges are durable, or with empty ones after `wait_ms`."""
        with self._or_moved(request.starts):
            group = self._vhost.reader_groups.get(request.group.encode())
            for member in group.members.values():
                self.expect_read(member.queue_name)
            poll = ReservePoll(
                self._vhost, self._clock, group, request, self._rights, self._end_poll
            )
            self._poll = poll
            try:
                poll.start()
            except GroupError:
                self.stop()
                raise

    def plan_range(self, request: requests.PlanRange) -> None:
        """PlanRange: reject what is too large, then answer with the slices that have messages."""
        if request.body_bytes_max is not None:
            self._reject_larger(request, request.body_bytes_max)
        self._plan(request)

    def _reject_larger(self, request: requests.PlanRange, body_bytes_max: int) -> None:
        """Reject messages with larger bodies. GroupError when they would be lost."""
        member, planned = self._planned(request)
        queue = member.queue
        large = planned.larger(body_bytes_max)
        if not large or queue is None:
            return
        if not self._vhost.takes_dead_letters(queue):
            raise GroupError(
                PRECONDITION,
                f"queue '{name_text(queue.name)}' has no dead-letter exchange that exists, so its message "
                f"{large[0].seq} with a body of {large[0].body_bytes} bytes (limit {body_bytes_max}) would be lost",
            )
        planned.reject(large, self._clock.now_ms())

    def _planned(self, request: requests.PlanRange) -> tuple[GroupMember, PlannedRange]:
        member = self._expect(request.group, request.epoch, request.incarnation)
        return member, PlannedRange(member, request.start, request.end, request.is_lenient)

    def _plan(self, request: requests.PlanRange) -> None:
        """Answer when no message of the range is on its way to the dead-letter exchange.

        The caller may ack the range after the answer. A dead letter that a crash brings back below
        the acked position would be read by nobody.
        """
        member, planned = self._planned(request)
        queue = member.queue
        if queue is not None and self._vhost.has_dead_letters(queue, planned.start, planned.end):
            self._plan_timer = self._clock.call_later(
                DEAD_LETTERS_RETRY_S, lambda: self._plan_later(request)
            )
            return
        parts = [requests.Slice(*values) for values in planned.slices(request.slice_size)]
        if request.with_files:
            parts = [self._with_files(member, part) for part in parts]
        self._reply(requests.RangePlan(parts))

    def _plan_later(self, request: requests.PlanRange) -> None:
        try:
            self._plan(request)
        except GroupError as error:
            self._reply(requests.ErrorReply(error.code, error.text))

    def _with_files(self, member: GroupMember, part: requests.Slice) -> requests.Slice:
        """The slice with the files to read it from, when these have all of its messages."""
        directory = self._vhost.directory
        queue = member.queue
        places = SegmentPlaces()
        if directory is None or queue is None:
            return part
        if not places.find(queue, member.reserved_between(part.start, part.end)):
            return part
        files = [
            requests.SliceFile(f"{directory}/{path}", first, end)
            for path, first, end in places.files
        ]
        return requests.Slice(
            part.start,
            part.end,
            part.message_count,
            part.bytes,
            files,
            places.runs,
            places.is_redelivered,
            queue.ledger.queue_id,
        )

    def fetch(self, request: requests.Fetch) -> None:
        """Fetch: answer with a block of the range's first messages once they are in memory."""
        member, entries = self._first_of(request)

        def on_copies(copies: list[Entry]) -> None:
            # While the load ran, the group may have been taken over or may have acked.
            try:
                member, entries = self._first_of(request)
                found = member.matched(entries, copies)
                if found:
                    self._reply_with(request, member, found)
                else:
                    self._fetch_contents(request)
            except GroupError as error:
                self._reply(requests.ErrorReply(error.code, error.text))

        if not member.load_copies(entries, on_copies):
            self._fetch_contents(request)

    def _fetch_contents(self, request: requests.Fetch) -> None:
        """Like `fetch`, but message by message; damaged messages leave the group's reservation."""
        member, entries = self._first_of(request)

        def on_loaded() -> None:
            try:
                self._fetch_contents(request)
            except GroupError as error:
                self._reply(requests.ErrorReply(error.code, error.text))

        if not member.load_contents(entries, on_loaded):
            self._reply_with(request, member, entries)

    def _first_of(self, request: requests.Fetch) -> tuple[GroupMember, list[Entry]]:
        member = self._expect(request.group, request.epoch, request.incarnation)
        return member, member.fetch(
            request.start, request.end, request.max_messages, request.max_bytes
        )

    def _reply_with(
        self, request: requests.Fetch, member: GroupMember, entries: list[Entry]
    ) -> None:
        last = entries[-1].seq + 1 if entries else request.end
        next_seq = last if member.fetch(last, request.end, 1, 1) else request.end
        block = encode_block(entries, request.with_bodies, self._vhost.store_id)
        self._reply(requests.Fetched(next_seq, memoryview(block)))

    def ack(self, request: requests.Ack) -> None:
        """Ack: commit the journal's acks, then the group's definition, then answer."""
        with self._or_moved(request.ends):
            group = self._vhost.reader_groups.get(request.group.encode())
            group.expect(request.epoch)
            members = [(group.member(each), end) for each, end in request.ends.items()]
        for member, end in members:
            self.expect_read(member.queue_name)
            member.check_end(end)

        def let_go() -> None:
            has_more = False
            try:
                group.expect(request.epoch)
                for member, end in members:
                    if end > member.acked:
                        if not member.is_ended:
                            member.expect_queue(self._clock.now_ms())
                        has_more = member.ack_slice(end, self._clock.now_ms())
                    if has_more:
                        break
            except GroupError as error:
                self._reply(requests.ErrorReply(error.code, error.text))
                return
            if has_more:
                self._clock.call_soon(let_go)
            elif all([end <= member.acked_for_good for member, end in members]):
                self._reply(
                    requests.Acked({member.incarnation: member.acked for member, _ in members})
                )
            else:
                self._vhost.readers.commit_acks(group, on_acks)

        def on_definition(ok: bool) -> None:
            acked = {member.incarnation: member.acked_durable for member, _ in members}
            self._reply(requests.Acked(acked) if ok else storage_failed("acked"))

        def on_acks(ok: bool) -> None:
            if ok:
                self._vhost.readers.commit(group, on_definition)
            else:
                self._reply(storage_failed("acked"))

        let_go()

    # -- all of them -------------------------------------------------------------------------------

    def delete(self, request: requests.DeleteGroup) -> None:
        """DeleteGroup: answer when the deletion of the definition is durable."""
        self._delete(request.group.encode(), requests.GroupDeleted())

    def _delete(self, name: bytes, reply: requests.GroupDeleted | requests.GroupOpened) -> None:
        for member in self._vhost.reader_groups.get(name).members.values():
            self.expect_read(member.queue_name)
        self._vhost.reader_groups.delete(name, self._clock.now_ms())
        self._vhost.commit(
            [DeleteReaderGroup(self._vhost.name, name)],
            lambda ok, _now_ms: self._reply(reply if ok else storage_failed("deleted")),
            is_kept=True,
        )

    def list_groups(self) -> None:
        """ListGroups: answer when the age of each member's oldest message is known."""
        groups = self._vhost.reader_groups.shown()

        def answer() -> None:
            now_ms = self._clock.now_ms()
            self._reply(requests.GroupList([group_status(group, now_ms) for group in groups]))

        when_ages_known(groups, self._clock, answer)

    def _expect(self, name: str, epoch: int, incarnation: int) -> GroupMember:
        with self._or_moved([incarnation]):
            group = self._vhost.reader_groups.get(name.encode())
            group.expect(epoch)
            member = group.member(incarnation)
        self.expect_read(member.queue_name)
        if not member.is_ended:
            member.expect_queue(self._clock.now_ms())
        return member

    @contextlib.contextmanager
    def _or_moved(self, incarnations: Iterable[int]) -> Iterator[None]:
        """Say that a queue has moved, instead of that the group does not read it here.

        A node that has died and is back drops its copy of a queue, and the group's part with it,
        perhaps before the reader knows that the node was away.
        """
        try:
            yield
        except GroupError as error:
            if error.code in (NOT_FOUND, DATA_LOSS):
                self._vhost.expect_served_here(incarnations)
            raise

    def expect_read(self, queue: bytes) -> None:
        """Raise GroupError when the session may not read `queue`, whether it exists or not."""
        refusal = self._rights.read_refusal(QUEUE, queue)
        if refusal:
            raise GroupError(ACCESS_REFUSED, refusal)

    def _end_poll(self, reply: requests.Reply) -> None:
        self._poll = None
        self._reply(reply)


def _member(member: GroupMember) -> requests.Member:
    queue = member.queue
    tail = member.reserved if queue is None else queue.next_seq
    return requests.Member(
        member.queue_name,
        member.incarnation,
        member.acked,
        member.reserved,
        tail,
        member.queue_id,
        member.birth,
    )
