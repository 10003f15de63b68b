"""Which deliveries and acks a change of a queue's master may undo.

Deliveries and acks wait for no mirror. What an earlier master did before the first message
that the new one has not got of it, the new one knows (`simulator/cluster/mirror_watch.py`); what
came later may have happened in vain. Nothing else is excused, and confirms never are.
"""

from __future__ import annotations

from typing import NamedTuple

from simulator.checker.events import CopyMessage, CopyReport
from simulator.checker.facts import NEVER, DeliveryFacts, Facts


class SentMessages:
    """When a master has sent each of its messages to its mirrors; one that is deposed sends on."""

    def __init__(self) -> None:
        self.sent_us: list[int] = []

    def first_unheard_us(self, received: int) -> int:
        """When the first message was sent that a mirror with `received` messages has not got."""
        return self.sent_us[received] if received < len(self.sent_us) else NEVER


class Move(NamedTuple):
    """A change of a queue's master at `at_us`.

    `heard`: how many messages of each earlier master the new one has got. `forgotten_us`: from when
    on it may have forgotten what it had. `is_unsafe`: a policy lets it lead although it lacks much.
    """

    at_us: int
    heard: tuple[tuple[SentMessages, int], ...]
    forgotten_us: int
    is_unsafe: bool

    @property
    def lost_from_us(self) -> int:
        """From when on the new master may not know what an earlier one did; asked at the end."""
        unheard = (sent.first_unheard_us(received) for sent, received in self.heard)
        return min(self.forgotten_us, min(unheard, default=NEVER))


class Moves:
    """The changes of masters, by queue."""

    def __init__(self) -> None:
        self._moves: dict[str, list[Move]] = {}

    def add(self, queue: str, move: Move) -> None:
        """Note a change."""
        self._moves.setdefault(queue, []).append(move)

    def may_repeat(self, queue: str, settled_us: int, again_us: int, is_firm: bool) -> bool:
        """Whether a message that was settled by `settled_us` may come again at `again_us`.

        `is_firm`: its ack may be undone by an unsafe change alone (`Reigns.is_firm`).
        """
        return any(
            settled_us >= move.lost_from_us
            and again_us >= move.at_us
            and (move.is_unsafe or not is_firm)
            for move in self._moves.get(queue, ())
        )

    def fault_of_copy(self, facts: Facts, master: CopyReport, copy: CopyReport) -> str:
        """How a copy in sync differs from its master's in a way that it must not; "" if in none.

        A mirror may have heard of acks and deliveries of an earlier master that the new one does
        not know of. Such a message it has no more, or has it marked. It has no message that the
        master has not, and no other mark is missing.
        """
        own = {message.seq: message for message in copy.messages}
        for expected in master.messages:
            found = own.pop(expected.seq, None)
            if found == expected:
                continue
            deliveries = _deliveries(facts, copy.queue, expected)
            if found is None:
                if not any(self._is_ack_unheard(copy.queue, each) for each in deliveries):
                    return f"{copy.node} lacks {expected}"
            elif found != CopyMessage(expected.seq, expected.message, expected.crc, True) or not (
                self._is_delivery_unheard(copy.queue, deliveries)
            ):
                return f"{copy.node} has {found}, and {master.node} has {expected}"
        return f"{copy.node} alone has {next(iter(own.values()))}" if own else ""

    def _is_ack_unheard(self, queue: str, delivery: DeliveryFacts) -> bool:
        return delivery.is_acked and any(
            delivery.settled_us >= move.lost_from_us for move in self._losses(queue)
        )

    def _is_delivery_unheard(self, queue: str, deliveries: list[DeliveryFacts]) -> bool:
        # Nobody knows when a message was delivered that no client has received.
        return any(
            not deliveries or any(each.at_us >= move.lost_from_us for each in deliveries)
            for move in self._losses(queue)
        )

    def _losses(self, queue: str) -> list[Move]:
        return [move for move in self._moves.get(queue, ()) if move.lost_from_us != NEVER]


def _deliveries(facts: Facts, queue: str, message: CopyMessage) -> list[DeliveryFacts]:
    known = facts.messages.get(message.message)
    return [] if known is None else known.deliveries.get(queue, [])
