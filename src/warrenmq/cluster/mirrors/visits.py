"""Which replicas of a node are looked at next, although no record has come for them.

The death of a node, or a policy, concerns thousands of queues at once. They are visited some in
each turn, so that a turn stays short and the first changes are proposed at once. A round over all
queues comes besides: it repeats what has led to nothing (F16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

# Urgent visits in a turn.
URGENT_A_TURN: Final = 50
# Visits of the round in a tick.
ROUND_A_TICK: Final = 20

Place = TypeVar("Place")


class Visits(Generic[Place]):
    """`all_places` lists the places of a round."""

    def __init__(self, all_places: Callable[[], Iterable[Place]]) -> None:
        self._all_places = all_places
        # In order; a place is visited once.
        self._urgent: dict[Place, None] = {}
        # The places that are left of the round, the next one last.
        self._round: list[Place] = []

    def hurry(self, places: Iterable[Place]) -> None:
        """Visit `places` soon, in this order, behind those that are urgent already."""
        self._urgent.update(dict.fromkeys(places))

    def forget(self, place: Place) -> None:
        """Visit a place no more; the round may still have it."""
        self._urgent.pop(place, None)

    @property
    def has_urgent(self) -> bool:
        """Whether the next turn has urgent visits, too."""
        return bool(self._urgent)

    def take_urgent(self) -> list[Place]:
        """The urgent visits of this turn."""
        taken = [place for place, _ in zip(self._urgent, range(URGENT_A_TURN), strict=False)]
        for place in taken:
            del self._urgent[place]
        return taken

    def take_of_round(self) -> list[Place]:
        """The visits of this tick; a round that has ended begins again."""
        if not self._round:
            self._round = list(self._all_places())
            self._round.reverse()
        taken = self._round[-ROUND_A_TICK:]
        del self._round[-ROUND_A_TICK:]
        taken.reverse()
        return taken
