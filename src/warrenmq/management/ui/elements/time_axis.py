"""The horizontal axis of a chart over time: places of times, and their labels."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import htpy as h

# The axis has a label at its beginning, and one behind each of these equal parts.
_PARTS: Final = 4
_DAY_MS: Final = 86_400_000
_QUARTER_MS: Final = 900_000


@dataclass(frozen=True)
class TimeAxis:
    """An axis from the time `first` to `last` (Unix ms), drawn from `left` to `right` (px)."""

    first: int
    last: int
    left: float
    right: float

    def x(self, at_ms: float) -> float:
        """The place of a moment."""
        share = (at_ms - self.first) / max(1, self.last - self.first)
        return round(self.left + share * (self.right - self.left), 1)

    def labels(self, y: float) -> h.Node:
        """Five times as text, at equal distances along the axis; `y` is their baseline (px)."""
        length_ms = self.last - self.first
        found = []
        for number in range(_PARTS + 1):
            at = self.first + length_ms * number // _PARTS
            place = "start" if number == 0 else "end" if number == _PARTS else "middle"
            name = moment(at, length_ms)
            found.append(h.text(class_=["axis", place], x=str(self.x(at)), y=str(y))[name])
        return found


def moment(at_ms: int, length_ms: int = 0) -> str:
    """A time (Unix ms) as UTC text, as exact as a chart of `length_ms` can show it."""
    if length_ms > 2 * _DAY_MS:
        form = "%m-%d"
    else:
        form = "%H:%M" if length_ms > _QUARTER_MS else "%H:%M:%S"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)
