"""Reader groups in a history: real admin requests over a session called as a function.

A group (see `simulator/models/groups.py`) reserves ranges of its queues, reads them repeatedly, and
acks them. The oracle keeps what the answers say is reserved, transient messages included, and
compares each reading of a range with the one before, across restarts too. The result of a reserve
is unknown until its answer comes: see RESERVING. After an error the client opens the group again
and learns its position from the answer.
"""

from __future__ import annotations

from typing import Final

from simulator.models.groups import NAMED, GroupModel, MemberModel
from simulator.models.messages import (
    HELD,
    OUT,
    READY,
    RESERVING,
    SETTLED,
    UNSURE,
    Copy,
    QueueModel,
    Violation,
)
from simulator.models.oracle import Oracle
from simulator.operations import Operation
from simulator.sessions.reserved_messages import FETCH_BYTES, FETCH_MESSAGES, read_numbers
from simulator.simulated.admin import AdminClient
from simulator.simulated.node import SimulatedNode
from warrenmq.admin.protocol.requests import (
    Ack,
    Acked,
    DeleteGroup,
    ErrorReply,
    Fetch,
    Fetched,
    GroupDeleted,
    GroupOpened,
    MemberRange,
    OpenGroup,
    PlanRange,
    RangePlan,
    Reply,
    Reserve,
    Reserved,
)

EVERYTHING: Final = 1 << 40


class GroupSessions:
    """The clients of one node's reader groups, until the node goes down."""

    def __init__(self, node: SimulatedNode, oracle: Oracle) -> None:
        self.node = node
        self.oracle = oracle
        self._clients: dict[int, AdminClient] = {}

    def take_answers(self) -> None:
        """Pass the answers of this turn to their callbacks."""
        for slot in sorted(self._clients):
            self._clients[slot].take_answers()

    def is_waiting(self) -> bool:
        """True while an answer is outstanding."""
        return any(client.then is not None for client in self._clients.values())

    def close_all(self) -> None:
        """Disconnect every client; reserved messages stay reserved."""
        for slot in sorted(self._clients):
            self._clients.pop(slot).leave()

    def run(self, operation: Operation) -> bool:
        """Run one operation of a group; False when it means nothing at its turn."""
        slot = operation.number(0)
        if operation.kind == "group_open" and operation.number(2):
            # Another client takes over from one that is gone or hangs.
            self._leave(slot)
        client = self._clients.get(slot)
        if client is None:
            client = self._clients[slot] = AdminClient(self.node)
        if client.then is not None:
            return False
        group = self.oracle.groups.get(slot)
        if group is None:
            group = self.oracle.groups[slot] = GroupModel(slot)
        if not group.is_open or operation.kind == "group_open":
            rebinds = operation.kind != "group_open" or bool(operation.number(1))
            return self._open(client, group, rebinds, operation.seed)
        match operation.kind:
            case "group_reserve":
                self._reserve(client, group, operation)
            case "group_fetch":
                self._fetch(client, group, operation.number(1))
            case "group_ack":
                self._ack(client, group, operation)
            case "group_late":
                return self._come_late(client, group, operation)
            case _:
                self._delete(client, group)
        return True

    def _leave(self, slot: int) -> None:
        client = self._clients.pop(slot, None)
        group = self.oracle.groups.get(slot)
        if client is None or group is None:
            return
        group.is_open = False
        if client.then is not None:
            # Messages that an unanswered reserve has taken stay with the group.
            self._end_reserving(
                group, [queue for queue in self._queues() if slot in queue.reservers], True
            )
        if group.is_deleting:
            self.oracle.groups[slot] = group.deleted()
        client.leave()

    # -- opening -----------------------------------------------------------------------------------

    def _queues(self) -> list[QueueModel]:
        """All queues of the model, in the order of their names."""
        queues = self.oracle.topology.queues
        return [queues[name] for name in sorted(queues)]

    def _open(self, client: AdminClient, group: GroupModel, rebinds: bool, seed: int) -> bool:
        wanted = [queue for queue in self._queues() if group.reads(queue)]
        if group.slot == NAMED and len(wanted) > 1 and seed % 4 == 0:
            # Leave out one queue this time.
            wanted.pop(seed // 4 % len(wanted))
        if not wanted and group.slot <= NAMED:
            return False
        for queue in wanted:
            # The broker journals transient messages of a queue too, once the queue has a reader
            # group.
            queue.has_group = True
        refused: list[Reply] = []

        def opened(reply: Reply) -> None:
            if isinstance(reply, GroupOpened):
                self._on_opened(group, wanted, reply)
            else:
                refused.append(reply)
                self._fail(group, reply, not rebinds)

        if group.pattern:
            request = OpenGroup(group.name, pattern=group.pattern, may_rebind=rebinds)
        else:
            request = OpenGroup(
                group.name, [queue.name.encode() for queue in wanted], may_rebind=rebinds
            )
        client.ask(request, opened)
        client.take_answers()
        if not refused:
            left = [member for member in group.members.values() if member.queue not in wanted]
            for member in left:
                self._release(group, member.queue)
                group.remove_member(member)
            for queue in wanted:
                group.members.setdefault(queue.id, MemberModel(queue))
        return True

    def _on_opened(self, group: GroupModel, wanted: list[QueueModel], reply: GroupOpened) -> None:
        if reply.epoch <= group.epoch:
            raise Violation(
                "group",
                f"{group.name} was opened with epoch {group.epoch}, and then with {reply.epoch}",
            )
        group.late_epoch = group.epoch
        group.epoch = reply.epoch
        group.is_open = True
        group.leaving = {}
        found = {member.incarnation: member for member in reply.members}
        for queue in wanted:
            member = found.get(queue.id)
            if member is None:
                raise Violation(
                    "group", f"{group.name} was opened and does not read queue {queue.name}"
                )
            queue.journals_all = True
            known = group.members.setdefault(queue.id, MemberModel(queue))
            is_back = member.reserved < known.reserved or member.acked > known.ack_asked
            if known.is_known and is_back:
                raise Violation(
                    "group",
                    f"{group.name} is at {member.acked} to {member.reserved} of {queue.name}; it had reserved up to "
                    f"{known.reserved} and acked at most up to {known.ack_asked}",
                )
            known.place(member.acked, member.reserved)
        for copy in group.let_go:
            if copy.state == UNSURE and copy.queue.id in group.members:
                # The acked position shows which acks took effect before the error.
                if copy.seq < group.members[copy.queue.id].acked:
                    self.oracle.settle(copy)
                else:
                    copy.state = HELD
        group.let_go = []

    # -- reserving ---------------------------------------------------------------------------------

    def _reserve(self, client: AdminClient, group: GroupModel, operation: Operation) -> None:
        count, goes_on, wait_ms = (
            operation.number(1),
            bool(operation.number(2)),
            operation.number(3),
        )
        acks = operation.seed % 8 > 0
        starts: dict[int, int] = {}
        for place, member in enumerate(group.members.values()):
            if len(group.members) > 1 and (operation.seed >> 4 >> place) % 4 == 0:
                # The request does not name this queue, which continues at its acked position.
                continue
            starts[member.queue.id] = member.reserved if goes_on else member.acked
            if acks:
                self._let_go(group, member, starts[member.queue.id])
        has_lost = group.has_lost()
        ended = {queue_id for queue_id, member in group.members.items() if member.queue.is_deleting}
        queues = [
            queue
            for queue in self._queues()
            if queue.id in group.members or (group.pattern and group.reads(queue))
        ]
        for queue in queues:
            queue.has_group = True
            queue.reservers.add(group.slot)
            group.members.setdefault(queue.id, MemberModel(queue))
            for copy in queue.copies.values():
                if copy.state == READY:
                    copy.state = RESERVING

        def reserved(reply: Reply) -> None:
            if isinstance(reply, Reserved):
                if has_lost:
                    raise Violation("group", f"{group.name} goes on, though it has lost a queue")
                self._end_acking(group)
                group.members = {
                    queue_id: member
                    for queue_id, member in group.members.items()
                    # A member whose queue has ended stays until a request does not name it.
                    if queue_id not in ended or queue_id in starts
                }
                for member in reply.members:
                    self._on_reserved(group, member, acks)
            else:
                self._fail(group, reply, True)
            self._end_reserving(group, queues, not isinstance(reply, Reserved))

        client.ask(
            Reserve(group.name, group.epoch, starts, count, EVERYTHING, wait_ms=wait_ms, acks=acks),
            reserved,
        )

    def _on_reserved(self, group: GroupModel, found: MemberRange, acks: bool) -> None:
        queue = self.oracle.queues.get(found.incarnation)
        if queue is None or queue.is_deleting:
            return
        queue.journals_all = True
        member = group.members.setdefault(queue.id, MemberModel(queue))
        member.place(
            max(member.acked, found.start) if acks else member.acked,
            max(member.reserved, found.end),
        )
        engine = self.node.vhost.queues.get(queue.name.encode())
        indexed_upto = engine.ledger.indexed_upto if engine is not None else 0
        for copy in queue.copies.values():
            if not found.start <= copy.seq < found.end:
                continue
            if copy.state in (RESERVING, READY):
                # A copy that expired before the reserve is not reserved, and no answer says so.
                copy.state = UNSURE if copy.is_expired(self.node.now_ms) else HELD
                copy.holder = group.slot
                copy.is_must = copy.is_kept = not (copy.is_early and copy.seq < indexed_upto)
            elif copy.state == OUT or (copy.state == HELD and copy.holder != group.slot):
                raise Violation(
                    "group",
                    f"{group.name} has reserved {found.start} to {found.end} of {queue.name}, where somebody else has "
                    f"message {copy.content.number}",
                )

    def _end_reserving(self, group: GroupModel, queues: list[QueueModel], has_failed: bool) -> None:
        """End a reserve; what a failed one took stays unknown until the group is gone."""
        for queue in queues:
            queue.reservers.discard(group.slot)
            if has_failed:
                queue.failed_by.add(group.slot)
            self._settle_doubt(queue)

    def _settle_doubt(self, queue: QueueModel) -> None:
        for copy in list(queue.copies.values()):
            if queue.is_doubtful() and copy.state == READY:
                copy.state = RESERVING
            elif not queue.is_doubtful() and copy.state == RESERVING:
                self.oracle.requeue(copy)

    def _let_go(self, group: GroupModel, member: MemberModel, end: int) -> None:
        """Request the ack of everything below `end`."""
        member.ack_asked = max(member.ack_asked, end)
        for copy in member.queue.copies.values():
            if copy.seq >= end:
                continue
            if copy.state == HELD and copy.holder == group.slot:
                copy.state = UNSURE
                group.let_go.append(copy)
            elif copy.state == RESERVING:
                # An earlier reserve of the group, which failed, may have taken this copy.
                copy.state = UNSURE

    def _end_acking(self, group: GroupModel) -> None:
        """Settle the copies whose ack is answered."""
        for copy in group.let_go:
            if copy.state == UNSURE:
                self.oracle.settle(copy)
        group.let_go = []

    # -- reading -----------------------------------------------------------------------------------

    def _fetch(self, client: AdminClient, group: GroupModel, slice_size: int) -> None:
        """Fetch all reserved ranges in slices of `slice_size` messages; 0: each range whole."""
        ranges: list[tuple[MemberModel, int, int, int]] = []
        members = [member for member in group.members.values() if member.acked < member.reserved]

        def fetch_next() -> None:
            if not group.is_open:
                return
            if ranges:
                fetch(*ranges.pop(0))
            elif members:
                plan(members.pop(0))

        def plan(member: MemberModel) -> None:
            start, end = member.acked, member.reserved
            if not slice_size:
                fetch(member, start, end, -1)
                return
            request = PlanRange(group.name, group.epoch, member.queue.id, start, end, slice_size)
            client.ask(request, lambda reply: planned(member, reply))

        def planned(member: MemberModel, reply: Reply) -> None:
            if not isinstance(reply, RangePlan):
                self._fail(group, reply, True)
                return
            slices = [(part.start, part.end) for part in reply.slices]
            for copy in member.queue.copies.values():
                if _is_held(copy, group) and not any(
                    start <= copy.seq < end for start, end in slices
                ):
                    raise Violation(
                        "group", f"message {copy.content.number} is in none of {slices}"
                    )
            ranges.extend(
                [(member, part.start, part.end, part.message_count) for part in reply.slices]
            )
            fetch_next()

        def fetch(member: MemberModel, first: int, end: int, count: int) -> None:
            request = Fetch(
                group.name, group.epoch, member.queue.id, first, end, FETCH_MESSAGES, FETCH_BYTES
            )
            client.ask(request, lambda reply: fetched(member, first, end, count, reply))

        def fetched(member: MemberModel, first: int, end: int, count: int, reply: Reply) -> None:
            if not isinstance(reply, Fetched):
                self._fail(group, reply, True)
                return
            numbers = self._check_range(group, member, first, reply)
            if (
                count >= 0
                and reply.next == end
                and len(numbers) != count
                and not self.oracle.is_damaged
            ):
                raise Violation(
                    "group", f"the slice {first} to {end} has {numbers}, not {count} messages"
                )
            if reply.next < end:
                ranges.insert(0, (member, reply.next, end, -1))
            fetch_next()

        fetch_next()

    def _check_range(
        self, group: GroupModel, member: MemberModel, first: int, reply: Fetched
    ) -> list[int]:
        queue = member.queue
        numbers = read_numbers(reply.block, self.oracle)
        expected = [
            copy.content.number
            for copy in sorted(queue.copies.values(), key=lambda copy: copy.seq)
            if _is_held(copy, group) and first <= copy.seq < reply.next
        ]
        if [number for number in numbers if number in expected] != expected or reply.next <= first:
            raise Violation(
                "group",
                f"the range {first} to {reply.next} of {queue.name} has {numbers}, not {expected}",
            )
        for number in numbers:
            copy = queue.copies.get(number)
            if (copy is None or copy.state in (SETTLED, OUT)) and not queue.is_deleting:
                raise Violation(
                    "group", f"the range of {queue.name} has message {number}, which is settled"
                )
        return numbers

    # -- the rest ----------------------------------------------------------------------------------

    def _ack(self, client: AdminClient, group: GroupModel, operation: Operation) -> None:
        ends: dict[int, int] = {}
        for place, member in enumerate(group.members.values()):
            if len(group.members) == 1 or (operation.seed >> place) % 4:
                ends[member.queue.id] = min(member.reserved, member.acked + operation.number(1))
                self._let_go(group, member, ends[member.queue.id])

        def acked(reply: Reply) -> None:
            if not isinstance(reply, Acked):
                self._fail(group, reply, True)
                return
            self._end_acking(group)
            for queue_id, position in reply.acked.items():
                if queue_id in group.members:
                    group.members[queue_id].acked = max(group.members[queue_id].acked, position)

        client.ask(Ack(group.name, group.epoch, ends), acked)

    def _come_late(self, client: AdminClient, group: GroupModel, operation: Operation) -> bool:
        """Send a request with an older epoch, which the broker must refuse as fenced."""
        if not group.late_epoch or not group.members:
            return False
        member = next(iter(group.members.values()))
        queue_id = member.queue.id
        requests = (
            Reserve(group.name, group.late_epoch, {queue_id: member.reserved}, 1, EVERYTHING),
            Ack(group.name, group.late_epoch, {queue_id: member.reserved}),
            Fetch(group.name, group.late_epoch, queue_id, member.acked, member.reserved, 1, 1),
        )

        def refused(reply: Reply) -> None:
            if not isinstance(reply, ErrorReply) or reply.code != "fenced":
                raise Violation(
                    "group", f"epoch {group.late_epoch} of {group.name} is over: {reply}"
                )

        client.ask(requests[operation.number(1)], refused)
        return True

    def _delete(self, client: AdminClient, group: GroupModel) -> None:
        group.is_open = False
        group.is_deleting = True

        def deleted(reply: Reply) -> None:
            self.oracle.groups.pop(group.slot)
            if not isinstance(reply, GroupDeleted):
                self.oracle.groups[group.slot] = group.deleted()
                self._fail(group, reply, False)

        client.ask(DeleteGroup(group.name), deleted)
        for member in list(group.members.values()):
            self._release(group, member.queue)
            group.remove_member(member)

    def _release(self, group: GroupModel, queue: QueueModel) -> None:
        """Stop reading the queue: messages that the group had reserved are ready."""
        for copy in list(queue.copies.values()):
            if copy.state == HELD and copy.holder == group.slot:
                self.oracle.requeue(copy)
        # A later position of the group in this queue does not show whether these acks took effect.
        group.let_go = [copy for copy in group.let_go if copy.queue is not queue]
        queue.failed_by.discard(group.slot)
        self._settle_doubt(queue)

    def _fail(self, group: GroupModel, reply: Reply, may_lose: bool) -> None:
        """Take an error as answer; Violation unless the broker may answer so."""
        group.is_open = False
        if not isinstance(reply, ErrorReply):
            raise Violation("answer", f"unexpected {reply}")
        match reply.code:
            case "storage_failed":
                is_allowed = self.node.failed_commits > 0
            case "data_loss":
                is_allowed = may_lose and group.may_have_lost(self.oracle.is_damaged)
            case "precondition":
                # Another group has reserved messages of a queue.
                is_allowed = len(self.oracle.groups) > 1
            case _:
                is_allowed = False
        if not is_allowed:
            raise Violation("group", f"{group.name}: {reply.code}: {reply.text}")


def _is_held(copy: Copy, group: GroupModel) -> bool:
    """Whether the group must be able to read the copy; not if a flipped bit may have hit it."""
    is_theirs = copy.state == HELD and copy.holder == group.slot
    return is_theirs and copy.content.number not in copy.queue.may_vanish
