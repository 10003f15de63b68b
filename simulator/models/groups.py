"""Reader groups as their clients know them; positions are seq ids."""

from __future__ import annotations

import re
from typing import Final

from simulator.models.messages import Copy, QueueModel

# Groups 0 to 3 read one queue each, the odd ones by a pattern. NAMED names several queues.
NAMED: Final = 4
# PATTERN reads every durable queue, by a pattern that matches all.
PATTERN: Final = 5


class MemberModel:
    """A group's part in one queue."""

    def __init__(self, queue: QueueModel) -> None:
        self.queue = queue
        # The broker has answered with the group's position in this queue.
        self.is_known = False
        # Seq id up to which the group has acked. After a restart the group may report less: the
        # journal has the acks, but the stored position of the group lags.
        self.acked = 0
        # Highest seq id up to which the client has requested an ack.
        self.ack_asked = 0
        # Seq id up to which the group has reserved.
        self.reserved = 0

    def place(self, acked: int, reserved: int) -> None:
        """Take the position that the broker reports."""
        self.is_known = True
        self.acked = acked
        self.ack_asked = max(acked, self.ack_asked)
        self.reserved = reserved


class GroupModel:
    """One reader group."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.name = f"g{slot}"
        # The client may send requests: it has opened the group, and no request has failed since.
        self.is_open = False
        self.is_deleting = False
        self.epoch = 0
        # An older epoch, whose requests the broker must refuse.
        self.late_epoch = 0
        # Reserved copies below a requested ack that has no answer yet.
        self.let_go: list[Copy] = []
        # Members by queue id.
        self.members: dict[int, MemberModel] = {}
        # Members that an unanswered opening or deletion removes, by queue id. A crash may restore
        # them.
        self.leaving: dict[int, MemberModel] = {}

    @property
    def pattern(self) -> str:
        """The pattern that selects the group's queues; empty for a group that names them."""
        if self.slot == PATTERN:
            return "q.*"
        return re.escape(f"q{self.slot}") if self.slot != NAMED and self.slot % 2 else ""

    def reads(self, queue: QueueModel) -> bool:
        """Whether the group reads this queue."""
        return queue.durable and (self.slot in (NAMED, PATTERN) or queue.name == f"q{self.slot}")

    def remove_member(self, member: MemberModel) -> None:
        """Move `member` from the members to those that leave."""
        del self.members[member.queue.id]
        self.leaving[member.queue.id] = member

    def deleted(self) -> GroupModel:
        """The next group with this name; it has the members back if the deletion was lost."""
        successor = GroupModel(self.slot)
        successor.leaving = self.leaving
        return successor

    def restarted(self) -> GroupModel:
        """The group after a restart; it may have its leaving members back, at unknown positions."""
        group = self.deleted() if self.is_deleting else self
        group.is_open = False
        group.let_go = []
        for queue_id, member in group.leaving.items():
            group.members.setdefault(queue_id, MemberModel(member.queue))
        group.leaving = {}
        return group

    def may_have_lost(self, is_damaged: bool) -> bool:
        """Whether a queue was deleted that the group had not read to its end.

        A queue counts a message in damaged bytes until somebody reads it (`is_damaged`).
        """
        return any(
            member.queue.is_deleting
            and (not self.pattern or member.queue.had_messages or is_damaged)
            for member in self.members.values()
        )

    def has_lost(self) -> bool:
        """Whether a queue was deleted with messages that this group, or no group, had reserved."""
        # Messages that another group had reserved are a loss of that group: this group has read all
        # that it could.
        return any(
            member.queue.is_deleting
            and (member.queue.had_waiting or self.slot in member.queue.held_by)
            for member in self.members.values()
        )
