"""Bugs planted in the rules by which messages leave queues; each replaces one method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from warrenmq.broker.vhost.handovers.dead_letters import DeadLetters, _DeadLetter
from warrenmq.broker.vhost.handovers.delayed_messages import DelayedMessages
from warrenmq.queues.backing.paged_queue import PagedQueue
from warrenmq.queues.entry import ALPHA, Entry, QueueEnd
from warrenmq.queues.queue import Queue
from warrenmq.queues.settings import DeadLetterRule
from warrenmq.store.model.message import Message, Position

# Turns for which `lose_at_the_hand_over` keeps a dead letter nowhere.
HELD_TURNS = 4
# Turns left, dead letter.
_Letter = list[Any]


def lose_at_the_hand_over(patch: pytest.MonkeyPatch) -> None:
    """A dead letter leaves its queue a few turns before its copy is published."""
    take, advance = DeadLetters.take, DeadLetters.advance
    held: dict[DeadLetters, list[_Letter]] = {}

    def take_out(self: DeadLetters, entry: Entry, reason: int, rule: DeadLetterRule) -> None:
        if entry.form != ALPHA:
            take(self, entry, reason, rule)
            return
        held.setdefault(self, []).append(
            [HELD_TURNS, _DeadLetter(entry.queue, None, entry.message, reason, rule)]
        )
        self.handovers.take(entry)
        self.handovers.settle(entry, reason, 0)
        self._vhost.node.wake()

    def advance_late(self: DeadLetters, now_ms: int) -> bool:
        letters = held.get(self, [])
        for letter in letters:
            letter[0] -= 1
        while letters and letters[0][0] <= 0:
            self._add(letters.pop(0)[1])
        if letters:
            self._vhost.node.wake()
        return advance(self, now_ms)

    patch.setattr(DeadLetters, "take", take_out)
    patch.setattr(DeadLetters, "advance", advance_late)


def double_without_a_crash(patch: pytest.MonkeyPatch) -> None:
    """A dead letter is published twice."""
    publish = DeadLetters._arrive

    def twice(self: DeadLetters, *arguments: object) -> None:
        publish(self, *arguments)  # type: ignore[arg-type]  # passed on as they came
        publish(self, *arguments)  # type: ignore[arg-type]  # passed on as they came

    patch.setattr(DeadLetters, "_arrive", twice)


def limit_after_the_write(patch: pytest.MonkeyPatch) -> None:
    """A message that is refused is in the queue all the same."""
    publish = Queue.publish

    def write_first(
        self: Queue,
        message: Message,
        expiration_ms: int,
        now_ms: int,
        is_known: bool = False,
        priority: int = 0,
        may_refuse: bool = True,
    ) -> bool:
        limit = self.limit
        is_refused = limit is not None and may_refuse and self._refuses(limit, message)
        self.limit = None
        publish(self, message, expiration_ms, now_ms, is_known, priority)
        self.limit = limit
        return not is_refused

    patch.setattr(Queue, "publish", write_first)


def forget_expiry(patch: pytest.MonkeyPatch) -> None:
    """Messages that only the journal has do not expire after a start."""
    restore = PagedQueue.restore

    def restore_for_ever(
        self: PagedQueue, queue: QueueEnd, positions: list[Position], is_clean: bool
    ) -> None:
        for position in positions:
            position.expiry_ms = 0
        restore(self, queue, positions, is_clean)

    patch.setattr(PagedQueue, "restore", restore_for_ever)


def publish_early(patch: pytest.MonkeyPatch) -> None:
    """Delayed messages are published up to 25 ms before their time."""
    publish_due = DelayedMessages._publish_due

    def publish_soon(self: DelayedMessages, now_ms: int) -> bool:
        return publish_due(self, now_ms + 25)

    patch.setattr(DelayedMessages, "_publish_due", publish_soon)


@dataclass(frozen=True)
class Planted:
    """A bug: how to plant it, and the kinds of violations that mean it."""

    plant: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...]
    # The violation must come in a history without a crash so far.
    is_without_crash: bool = False


PLANTED: dict[str, Planted] = {
    "a dead letter lost at the hand-over": Planted(lose_at_the_hand_over, ("lost",)),
    "a dead letter doubled without a crash": Planted(
        double_without_a_crash, ("twice", "doubled"), True
    ),
    "a limit applied after the write": Planted(limit_after_the_write, ("limit", "written")),
    "an expiry that is lost": Planted(forget_expiry, ("late",)),
    "a delayed message that is early": Planted(publish_early, ("early",)),
}
