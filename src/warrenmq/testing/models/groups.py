"""What the client of a reader group knows of it; positions are seq ids."""

from __future__ import annotations

import re
from typing import Final

from warrenmq.testing.models.messages import Copy, QueueModel

# The groups of a history by number: one for each queue, every other one of them by a pattern; one that names several
# queues, and one whose pattern matches all.
NAMED: Final = 4
PATTERN: Final = 5


class MemberModel:
    """A group's part in one queue."""

    def __init__(self, queue: QueueModel) -> None:
        self.queue = queue
        # The broker has said where it is.
        self.is_known = False
        # Where the client goes on, and what it has asked for. What the group says after a restart may be less: the acks
        # are in the journal, its definition lags.
        self.acked = 0
        self.ack_asked = 0
        self.reserved = 0

    def place(self, acked: int, reserved: int) -> None:
        """The broker says where it is."""
        self.is_known = True
        self.acked = acked
        self.ack_asked = max(acked, self.ack_asked)
        self.reserved = reserved


class GroupModel:
    """One group."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.name = f"g{slot}"
        # The client may ask for more: it is opened, and nothing that was asked since has failed.
        self.is_open = False
        self.is_deleting = False
        self.epoch = 0
        # An epoch that is over.
        self.late_epoch = 0
        # What was asked to be acked, without an answer.
        self.let_go: list[Copy] = []
        # By queue id.
        self.members: dict[int, MemberModel] = {}
        # Those that an opening or a deletion has given up that is not answered yet: a crash may bring them back.
        self.leaving: dict[int, MemberModel] = {}

    @property
    def pattern(self) -> str:
        """What it finds its queues by; empty when it names them."""
        if self.slot == PATTERN:
            return "q.*"
        return re.escape(f"q{self.slot}") if self.slot != NAMED and self.slot % 2 else ""

    def reads(self, queue: QueueModel) -> bool:
        """Is it a queue for this group?"""
        return queue.durable and (self.slot in (NAMED, PATTERN) or queue.name == f"q{self.slot}")

    def give_up(self, member: MemberModel) -> None:
        """It is to be none of its members any more."""
        del self.members[member.queue.id]
        self.leaving[member.queue.id] = member

    def deleted(self) -> GroupModel:
        """What is known of the next group with its name, when nobody was told that the deletion is on disk."""
        successor = GroupModel(self.slot)
        successor.leaving = self.leaving
        return successor

    def restarted(self) -> GroupModel:
        """The group as it is known after the node went down: where those are that are back, if they are, nobody knows."""
        group = self.deleted() if self.is_deleting else self
        group.is_open = False
        group.let_go = []
        for queue_id, member in group.leaving.items():
            group.members.setdefault(queue_id, MemberModel(member.queue))
        group.leaving = {}
        return group

    def may_have_lost(self) -> bool:
        """Was a queue deleted that it had not read to its end?"""
        return any(
            member.queue.is_deleting and (not self.pattern or member.queue.had_messages)
            for member in self.members.values()
        )

    def has_lost(self) -> bool:
        """Was one deleted with messages that it, or nobody, had?"""
        # What another group held is that one's loss: this one has read all that it could.
        return any(
            member.queue.is_deleting
            and (member.queue.had_waiting or self.slot in member.queue.held_by)
            for member in self.members.values()
        )
