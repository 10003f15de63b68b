"""Bugs planted in reader groups of mirrored queues, and in other kinds of mirrored queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from warrenmq.broker.vhost.readers import VhostReaders
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.queues import arguments
from warrenmq.queues.backing.head_demand import HeadDemand
from warrenmq.queues.entry import Consumer
from warrenmq.queues.queue import Queue
from warrenmq.queues.reader_part import ReaderPart
from warrenmq.queues.readers.group import GroupMember
from warrenmq.queues.readers.groups import ReaderGroup, ReaderGroups
from warrenmq.store.model.message import QueueLedger
from warrenmq.wire.field_table import Field


def keep_reservations(patch: pytest.MonkeyPatch) -> None:
    """The copies of a queue are not told what a group has reserved."""
    parts_of = ReaderGroups.parts_of

    def only_acked(self: ReaderGroups, ledger: QueueLedger) -> list[ReaderPart]:
        return [
            ReaderPart(
                each.group, each.epoch, each.pattern, each.acked, each.acked, each.has_lapsed
            )
            for each in parts_of(self, ledger)
        ]

    patch.setattr(ReaderGroups, "parts_of", only_acked)


def keep_acks(patch: pytest.MonkeyPatch) -> None:
    """The copies of a queue are not told that a group has acked messages."""
    ack_slice = GroupMember.ack_slice

    def untold(self: GroupMember, end: int, now_ms: int) -> bool:
        queue = self.queue
        feed = None if queue is None else queue.backing.feed
        if queue is not None:
            queue.backing.feed = None
        try:
            return ack_slice(self, end, now_ms)
        finally:
            if queue is not None:
                queue.backing.feed = feed

    patch.setattr(GroupMember, "ack_slice", untold)


def answer_alone(patch: pytest.MonkeyPatch) -> None:
    """Readers are answered when the master has stored a change, whatever its copies have."""

    def commit(self: VhostReaders, group: ReaderGroup, done: Callable[[bool], None]) -> None:
        for member in group.members.values():
            feed = None if member.queue is None else member.queue.backing.feed
            if feed is not None:
                feed.readers_changed()
        self._store(group, done)

    patch.setattr(VhostReaders, "commit", commit)


def accept_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """Whoever has opened a group may go on after others have opened it."""
    patch.setattr(ReaderGroup, "expect", lambda self, epoch: None)


def hide_losses(patch: pytest.MonkeyPatch) -> None:
    """A group goes on in a copy that may lack messages."""
    take_over = ReaderGroups.take_over

    def complete(self: ReaderGroups, queue: Queue, is_complete: bool) -> None:
        take_over(self, queue, True)

    patch.setattr(ReaderGroups, "take_over", complete)


def skip_the_first(patch: pytest.MonkeyPatch) -> None:
    """A range that a new master reserves again begins a message too late."""
    attach = GroupMember.attach

    def late(self: GroupMember, queue: Queue) -> None:
        self.acked += 1 if queue.definition.birth and self.acked < self.reserved else 0
        attach(self, queue)

    patch.setattr(GroupMember, "attach", late)


def feed_all(patch: pytest.MonkeyPatch) -> None:
    """All consumers of a queue with a single active one get messages."""

    def add(self: HeadDemand, consumer: Consumer) -> None:
        self.had_consumer = True
        self.consumers.append(consumer)
        self.circle.add(consumer)

    patch.setattr(HeadDemand, "is_active", lambda self, consumer: True)
    patch.setattr(HeadDemand, "add", add)


def expire_early(patch: pytest.MonkeyPatch) -> None:
    """A queue expires long before its time."""
    time_ms = arguments._time_ms

    def early_ms(table: dict[str, Field], name: str, text: str, least: int) -> int:
        found = time_ms(table, name, text, least)
        return max(1, found // 50) if name == "x-expires" and found > 0 else found

    patch.setattr(arguments, "_time_ms", early_ms)


def ignore_min_sync(patch: pytest.MonkeyPatch) -> None:
    """A master confirms however few copies are in sync."""

    def refuses(self: InSync) -> bool:
        waiting = self._waiting
        return self.is_lost or (bool(waiting) and waiting[0].is_overdue)

    patch.setattr(InSync, "refuses", refuses)


@dataclass(frozen=True)
class Planted:
    """A bug: how to plant it, and the seed from which on it is searched."""

    plant: Callable[[pytest.MonkeyPatch], None]
    seed: int


PLANTED: dict[str, Planted] = {
    "a reservation that is not replicated": Planted(keep_reservations, 206),
    "an ack that is not replicated": Planted(keep_acks, 5),
    "an answer that waits for no copy": Planted(answer_alone, 220),
    "an old epoch that is accepted": Planted(accept_old_epochs, 206),
    "a range that begins too late": Planted(skip_the_first, 1),
    "a single active consumer that is not alone": Planted(feed_all, 10),
    "a confirm with too few copies in sync": Planted(ignore_min_sync, 10),
    "a queue that expires too early": Planted(expire_early, 69),
}
