"""The time below a picture: where moments stand, and their names."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import htpy as h

_NAMES: Final = 4
_DAY_MS: Final = 86_400_000
_QUARTER_MS: Final = 900_000


@dataclass(frozen=True)
class TimeAxis:
    """The times from `first` to `last` (Unix ms) between the places `left` and `right`."""

    first: int
    last: int
    left: float
    right: float

    def x(self, at_ms: float) -> float:
        """The place of a moment."""
        share = (at_ms - self.first) / max(1, self.last - self.first)
        return round(self.left + share * (self.right - self.left), 1)

    def names(self, y: float) -> h.Node:
        """The names of five moments at the height `y`."""
        length_ms = self.last - self.first
        found = []
        for number in range(_NAMES + 1):
            at = self.first + length_ms * number // _NAMES
            place = "start" if number == 0 else "end" if number == _NAMES else "middle"
            name = moment(at, length_ms)
            found.append(h.text(class_=["axis", place], x=str(self.x(at)), y=str(y))[name])
        return found


def moment(at_ms: int, length_ms: int = 0) -> str:
    """A moment (UTC) as exactly as a picture of so many ms can show it."""
    if length_ms > 2 * _DAY_MS:
        form = "%m-%d"
    else:
        form = "%H:%M" if length_ms > _QUARTER_MS else "%H:%M:%S"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
