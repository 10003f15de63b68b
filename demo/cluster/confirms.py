"""When publishers got their confirms, and for how long a fault left them without."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from simulator.checker.events import AnyEvent, Confirm, Publish, PublishingEnd


@dataclass(frozen=True)
class Fault:
    """Something that was done to a node, the master or not; moments in microseconds.

    `what` and `over` are what the picture says at its start and at its end.
    """

    what: str
    over: str
    was_master: bool
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Confirms:
    """The moments (us, sorted) of all confirms of each publisher while it worked, by its name."""

    of: dict[str, list[int]]
    start_us: int
    end_us: int

    def gap_us(self, start_us: int, end_us: int, publishers: Iterable[str]) -> int:
        """The longest time without a confirm to any of `publishers` between two moments."""
        within = [
            moment
            for name in publishers
            for moment in self.of[name]
            if start_us <= moment <= end_us
        ]
        return max(b - a for a, b in pairwise([start_us, *sorted(within), end_us]))


def confirms_of(history: list[AnyEvent]) -> Confirms:
    """The confirms in a history."""
    publishers: dict[str, str] = {}
    of: dict[str, list[int]] = {}
    moments: list[int] = []
    for event in history:
        if isinstance(event, Publish):
            publishers[event.message] = event.publisher
            of.setdefault(event.publisher, [])
            moments.append(event.at_us)
        elif isinstance(event, Confirm):
            of[publishers[event.message]].append(event.at_us)
        elif isinstance(event, PublishingEnd):
            moments.append(event.at_us)
            break
    return Confirms(of, moments[0], moments[-1])
