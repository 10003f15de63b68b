"""The oracle: what a broker may do with the messages it has taken, and what it must not do.

The oracle counts messages, not seq ids, and knows nothing of files: a message is a number in its
body. For every message in every queue (a *copy*) the oracle knows its state (ready, unacked,
settled or gone) and what a crash may do to it:

    must       confirmed, or in a batch that is on disk: there after any crash, byte for byte,
               in its place
    settled    acked, dropped or expired: may return after a crash until a later batch is on disk,
               then never
    otherwise  may be there after a crash or not; a message that one recovery found stays

To learn what recovery makes of a disk, the simulation starts a second node from a copy of the disk
and drains it (`Simulation._audit`). After every restart the oracle therefore knows exactly which
messages are there, and a difference between the two recoveries shows as well. All times are in ms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.models.commit_token import CommitToken
from simulator.models.damage import Damage
from simulator.models.messages import (
    HELD,
    OUT,
    READY,
    RESERVING,
    SETTLED,
    UNSURE,
    Content,
    Copy,
    QueueModel,
    Violation,
    number_of,
)
from simulator.models.sink_records import StagedMessage
from simulator.models.stored_definitions import Key
from simulator.models.topology import TopologyModel

if TYPE_CHECKING:
    from simulator.models.groups import GroupModel


class Oracle:
    """The model of one vhost."""

    def __init__(self) -> None:
        self.queues: dict[int, QueueModel] = {}
        self.topology = TopologyModel()
        # Published messages by number.
        self.contents: dict[int, Content] = {}
        # Reader groups by slot (`GroupModel.slot`).
        self.groups: dict[int, GroupModel] = {}
        # Copies published since the last seal.
        self._published: list[Copy] = []
        # Copies settled since the last seal.
        self._settled: list[Copy] = []
        # Staged messages that moved to their queues since the last seal.
        self.moved: list[StagedMessage] = []
        # Messages lost to damage; when there are any, the broker must have reported some damage.
        self.lost_count = 0
        # A bit was flipped.
        self.is_damaged = False

    # -- life --------------------------------------------------------------------------------------

    def enqueue(self, content: Content, queue: QueueModel, seq: int, expiry_ms: int) -> Copy:
        """Add a published message to a queue."""
        self.contents[content.number] = content
        copy = Copy(content, queue, queue.next_order, seq, expiry_ms)
        queue.next_order += 1
        queue.add(copy)
        if copy.survives():
            self._published.append(copy)
        return copy

    def confirmed(self, copies: list[Copy]) -> None:
        """Note that the publisher got a confirm: a crash must not lose these copies."""
        for copy in copies:
            copy.is_must = copy.survives()

    def deliver(
        self, queue: QueueModel, body: bytes, properties: bytes, redelivered: bool, now_ms: int
    ) -> Copy:
        """Take the delivery of a message to a client; returns its copy, or raises Violation."""
        content = self.contents.get(number_of(body))
        if content is None or content.body != body or content.properties != properties:
            raise Violation(
                "corrupt", f"queue {queue.name} delivered {body[:16]!r}... which nobody published"
            )
        number = content.number
        copy = queue.copies.get(number)
        if copy is None or copy.state == SETTLED:
            raise Violation(
                "ghost", f"queue {queue.name} delivered message {number}, which is settled"
            )
        if copy.state in (OUT, HELD):
            raise Violation(
                "twice", f"queue {queue.name} delivered message {number}, which is out already"
            )
        if copy.is_expired(now_ms):
            raise Violation(
                "expired", f"queue {queue.name} delivered message {number} after its time"
            )
        if copy.was_delivered and not redelivered and not self.is_damaged:
            raise Violation(
                "redelivered", f"message {number} came again without the redelivered flag"
            )
        copy.was_delivered = True
        copy.state = OUT
        return copy

    def check_order(self, queue: QueueModel, delivered: list[Copy], now_ms: int) -> None:
        """Violation if a message older than the `delivered` of one turn is still ready."""
        first = queue.first_ready(now_ms)
        if first is None or not delivered:
            return
        last = max(delivered, key=lambda copy: copy.order)
        if first.order < last.order:
            raise Violation(
                "order",
                f"queue {queue.name} delivered message {last.content.number} before message {first.content.number}",
            )

    def check_empty(self, queues: list[QueueModel], now_ms: int) -> None:
        """Violation if one of `queues`, which the broker called empty, has a ready message."""
        for queue in queues:
            first = queue.first_ready(now_ms)
            if first is not None and not queue.is_deleting:
                raise Violation(
                    "empty",
                    f"queue {queue.name} says it is empty; message {first.content.number} waits",
                )

    def settle(self, copy: Copy) -> None:
        """Settle a copy that a client acked or rejected, or that a purge dropped."""
        copy.state = SETTLED
        self._settled.append(copy)

    def requeue(self, copy: Copy) -> None:
        """Make a copy ready again, in its old place."""
        copy.queue.add(copy)

    def delete(self, queue: QueueModel) -> list[Key]:
        """Delete the queue; returns the keys of its stored definitions."""
        keys = self.topology.remove_queue(queue)
        queue.is_deleting = True
        lasting = [
            copy
            for copy in queue.copies.values()
            if copy.expiry_ms == 0 and copy.content.number not in queue.may_vanish
        ]
        queue.had_messages = any(copy.state != SETTLED for copy in queue.copies.values())
        queue.had_waiting = any(copy.state == READY for copy in lasting)
        queue.held_by = {copy.holder for copy in lasting if copy.state == HELD}
        for copy in queue.copies.values():
            copy.state = SETTLED
        return keys

    # -- commits -----------------------------------------------------------------------------------

    def seal(self) -> CommitToken:
        """Seal a group commit, with every change since the last seal."""
        token = CommitToken(
            self._published, self._settled, self.moved, self.topology.stored.version
        )
        self._published = []
        self._settled = []
        self.moved = []
        return token

    def committed(self, token: CommitToken, has_definitions: bool) -> None:
        """Make the commit durable, and all definitions before it if `has_definitions`."""
        if has_definitions:
            self.topology.stored.committed(token.version)
        for copy in token.published:
            copy.is_must = True
        for message in token.moved:
            message.is_durable = True
        for copy in token.settled:
            if copy.state == SETTLED:
                copy.queue.copies.pop(copy.content.number, None)
                copy.queue.gone[copy.content.number] = copy

    def commit_failed(self, token: CommitToken) -> None:
        """Fail the commit: settles and moves are retried, published copies count as transient."""
        for copy in token.published:
            copy.is_early = copy.is_early or not copy.queue.journals_all
        self._settled = token.settled + self._settled
        self.moved = token.moved + self.moved
        for message in token.moved:
            self._published.extend([copy for copy in message.copies if copy.survives()])

    def allow(self, damage: Damage, is_running: bool) -> None:
        """Allow messages to be missing or return: after a restart, or at once if `is_running`."""
        self.is_damaged = True
        for queue in self.queues.values():
            for copies in (queue.copies, queue.gone):
                for number, copy in copies.items():
                    if number in damage.numbers or (queue.id, copy.seq) in damage.positions:
                        queue.may_be_lost.add(number)
                        if is_running:
                            queue.may_vanish.add(number)
                            # A purge settles only what it can read, and the journal may have the
                            # message that it could not.
                            queue.may_return.add(number)
                    for queue_id, first, last in damage.acks:
                        if queue_id == queue.id and first <= copy.seq <= last:
                            queue.may_return.add(number)

    def allow_returns(self, acks: list[tuple[int, int, int]]) -> None:
        """Allow gone messages to return unless in `acks`: (queue id, first seq, last seq)."""
        for queue in self.queues.values():
            runs = [(first, last) for queue_id, first, last in acks if queue_id == queue.id]
            for number, copy in queue.gone.items():
                if not any(first <= copy.seq <= last for first, last in runs):
                    queue.may_return.add(number)

    # -- restarts ----------------------------------------------------------------------------------

    def restart(self, existing: set[int], now_ms: int) -> None:
        """Restart the node; `existing` are the ids of the queues in the stored definitions.

        `now_ms` is the time before the restart: whichever way the clock jumps, messages that had
        expired at that time may have been dropped.
        """
        for queue in list(self.queues.values()):
            if queue.id not in existing:
                if queue.durable and queue.is_declared and not queue.is_deleting:
                    raise Violation("queue", f"queue {queue.name} was declared and is not there")
                del self.queues[queue.id]
            elif queue.is_deleted:
                raise Violation("queue", f"queue {queue.name} was deleted and is there")
            else:
                queue.is_declared = True
                queue.is_bound = True
                for copy in queue.copies.values():
                    if copy.is_expired(now_ms) and copy.state != SETTLED:
                        copy.state = UNSURE
        for queue in self.queues.values():
            queue.journals_all = False
            queue.reservers.clear()
            queue.failed_by.clear()
        self._published = []
        self._settled = []
        self.moved = []
        self.groups = {slot: group.restarted() for slot, group in self.groups.items()}

    def found(
        self, queue: QueueModel, numbers: list[int], reserved: dict[int, int], now_ms: int
    ) -> None:
        """Judge recovery: `numbers` are in `queue`, in order; `reserved` maps a number to a
        group."""
        if len(set(numbers)) < len(numbers):
            raise Violation(
                "twice", f"queue {queue.name} has messages twice after a restart: {numbers}"
            )
        copies: list[Copy] = []
        for number in numbers:
            copies.append(self._found_copy(queue, number))
        orders = [copy.order for copy in copies]
        if orders != sorted(orders):
            raise Violation(
                "order", f"queue {queue.name} has lost its order in a restart: {numbers}"
            )
        for number in queue.copies.keys() - set(numbers):
            copy = queue.copies[number]
            if (
                copy.is_must
                and copy.state != SETTLED
                and copy.state != UNSURE
                and not queue.is_deleting
            ):
                if copy.is_expired(now_ms):
                    continue
                if number not in queue.may_be_lost:
                    raise Violation(
                        "lost", f"queue {queue.name} has lost message {number} in a restart"
                    )
                self.lost_count += 1
        for number, copy in queue.copies.items():
            if copy.state == HELD and copy.is_must and number in numbers and number not in reserved:
                if copy.holder in self.groups and not self.is_damaged:
                    raise Violation(
                        "group",
                        f"message {number} of queue {queue.name} is held no more after a restart",
                    )
        old = queue.copies
        queue.copies = {}
        for copy in copies:
            copy.is_must = True
            copy.is_kept = True
            queue.add(copy)
            if copy.content.number in reserved:
                copy.state = HELD
                copy.holder = reserved[copy.content.number]
        for number, copy in old.items():
            if number in reserved and number not in queue.copies:
                # The second node dropped the copy for its age, after its groups were deleted. In
                # the first node the group keeps the copy reserved.
                queue.add(copy)
                copy.state = HELD
                copy.holder = reserved[number]
            if number not in queue.copies:
                self._forget(queue, copy)
        queue.is_deleting = False

    def _found_copy(self, queue: QueueModel, number: int) -> Copy:
        copy = queue.copies.get(number)
        if copy is None:
            if number in queue.may_return and number in queue.gone:
                return queue.gone.pop(number)
            raise Violation(
                "ghost",
                f"queue {queue.name} has message {number}, which was settled, after a restart",
            )
        may_survive = copy.may_survive() or copy.state == RESERVING
        if not may_survive and not queue.is_deleting:
            raise Violation(
                "ghost", f"queue {queue.name} has the transient message {number} after a restart"
            )
        return copy

    def _forget(self, queue: QueueModel, copy: Copy) -> None:
        if copy.expiry_ms != 0 and copy.may_survive():
            # The copy was just dropped for its age; a clock that jumps back may bring it back.
            copy.state = UNSURE
            queue.copies[copy.content.number] = copy
        else:
            queue.gone[copy.content.number] = copy
