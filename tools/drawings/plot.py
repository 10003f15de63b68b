"""A small plot with logarithmic axes: lines of both brokers, labels at decades."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tools.drawings.svg import Picture

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high`, drawn from the pixel `start` to the pixel `end`."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """The pixel of a value."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self) -> list[float]:
        """Powers of ten from the lowest to the highest value."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.log10(self.high) + 1e-9
        return [10.0**power for power in range(first, int(last // 1) + 1)]


def short(value: float) -> str:
    """A number for an axis: 0.1, 10, 1k, 1M, 64 Ki."""
    for unit, name in ((1 << 20, " Mi"), (1 << 10, " Ki"), (1_000_000, "M"), (1000, "k")):
        if value >= unit and (unit % 1024 or value % unit == 0):
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def axes(picture: Picture, x: Scale, y: Scale, ticks: Sequence[float], unit: str = "") -> None:
    """Lines of the grid at y's decades with their numbers, and numbers below at `ticks` of x."""
    for value in y.decades():
        at = y.place(value)
        picture.line([(x.start, at), (x.end, at)], "grid")
        picture.text(x.start - 6, at + 4, short(value) + unit, "end", "dim small")
    for value in ticks:
        picture.text(x.place(value), y.start + 17, short(value), "middle", "dim small")


def curve(picture: Picture, x: Scale, y: Scale, points: Points, look: str, dash: bool) -> None:
    """A line through points, each with a dot; `look` is a broker's class."""
    places = [(x.place(size), y.place(value)) for size, value in points]
    picture.line(places, f"l-{look}{' dash' if dash else ''}")
    for at in places:
        picture.dot(*at, 3, look)
