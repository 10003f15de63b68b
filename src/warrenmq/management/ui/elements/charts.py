"""Line charts as SVG, drawn here: closed intervals only, a gap is a gap, each with its table."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import htpy as h

_WIDTH: Final = 640
_HEIGHT: Final = 200
_LEFT: Final = 64
_RIGHT: Final = 8
_TOP: Final = 8
_BOTTOM: Final = 24
_LINES: Final = 4
_DAY_MS: Final = 86_400_000
# Rows of the table of a chart.
_ROWS_MAX: Final = 20

Sample = tuple[int, float]


@dataclass(frozen=True)
class Series:
    """A line: its name, the CSS class of its colour, and (Unix ms, value), oldest first."""

    name: str
    colour: str
    samples: Sequence[Sample]


def levels(details: Any) -> list[Sample]:
    """The samples of a level, such as `messages_details` of the API."""
    return [(each["timestamp"], each["sample"]) for each in reversed(_samples(details))]


def rates(details: Any) -> list[Sample]:
    """Rates by second between the samples of a counter; one that began anew has none there."""
    found = levels(details)
    return [
        (at_ms, (value - before) * 1000 / (at_ms - before_ms))
        for (before_ms, before), (at_ms, value) in pairwise(found)
        if value >= before and at_ms > before_ms
    ]


def chart(
    title: str,
    series: Sequence[Series],
    interval_s: int,
    shown: Callable[[Any], str],
    is_stacked: bool = False,
) -> h.Element:
    """A chart with legend and table. `shown` writes a value; samples are `interval_s` apart.

    Stacked, each line is drawn on those before it.
    """
    drawn = _stacked(series) if is_stacked else list(series)
    times = [at for each in drawn for at, _ in each.samples]
    if not times:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["No samples yet."]]
    first, last = min(times), max(times)
    top = _nice(max([value for each in drawn for _, value in each.samples]))
    frame = _Frame(first, max(last, first + 1), top)
    lines = [_line(each, frame, interval_s, is_stacked) for each in reversed(drawn)]
    return h.figure(".chart")[
        h.figcaption[title],
        h.svg(viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"Chart: {title}")[
            _axes(frame, shown), lines
        ],
        h.ul(".legend")[
            [
                h.li[
                    h.span(class_=["key", each.colour]),
                    each.name,
                    " ",
                    h.b[shown(each.samples[-1][1]) if each.samples else "–"],
                ]
                for each in series
            ]
        ],
        _table(title, series, shown),
    ]


@dataclass(frozen=True)
class _Frame:
    """The times (Unix ms) and the highest value that fit into a chart."""

    first: int
    last: int
    top: float

    def x(self, at_ms: int) -> float:
        """The place of a moment."""
        share = (at_ms - self.first) / (self.last - self.first)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """The place of a value."""
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)


def _samples(details: Any) -> list[Any]:
    return details.get("samples", []) if isinstance(details, dict) else []


def _stacked(series: Sequence[Series]) -> list[Series]:
    below: dict[int, float] = {}
    found = []
    for each in series:
        sums = [(at, value + below.get(at, 0)) for at, value in each.samples]
        below.update(sums)
        found.append(Series(each.name, each.colour, sums))
    return found


def _nice(value: float) -> float:
    """The next number above that people like at an axis: 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _line(series: Series, frame: _Frame, interval_s: int, is_area: bool) -> h.Node:
    """The line in pieces, without what nobody has measured."""
    pieces: list[list[Sample]] = []
    for sample in series.samples:
        if pieces and sample[0] - pieces[-1][-1][0] <= 1500 * interval_s:
            pieces[-1].append(sample)
        else:
            pieces.append([sample])
    return [_piece(piece, series.colour, frame, is_area) for piece in pieces]


def _piece(piece: list[Sample], colour: str, frame: _Frame, is_area: bool) -> h.Element:
    points = " ".join([f"{frame.x(at)},{frame.y(value)}" for at, value in piece])
    if len(piece) == 1:
        x, y = points.split(",")
        return h.circle(class_=["dot", colour], cx=x, cy=y, r="2")
    if is_area:
        ground = frame.y(0)
        points = f"{frame.x(piece[0][0])},{ground} {points} {frame.x(piece[-1][0])},{ground}"
        return h.polygon(class_=["area", colour], points=points)
    return h.polyline(class_=["line", colour], points=points)


def _axes(frame: _Frame, shown: Callable[[Any], str]) -> h.Node:
    found = []
    for number in range(_LINES + 1):
        value = frame.top * number / _LINES
        y = frame.y(value)
        found.append(h.line(".grid", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=str(y), y2=str(y)))
        found.append(h.text(".axis.end", x=str(_LEFT - 6), y=str(y + 4))[shown(value)])
    for number in range(_LINES + 1):
        at = frame.first + (frame.last - frame.first) * number // _LINES
        place = ("start", "middle", "middle", "middle", "end")[number]
        found.append(
            h.text(class_=["axis", place], x=str(frame.x(at)), y=str(_HEIGHT - 6))[
                _moment(at, frame.last - frame.first)
            ]
        )
    return found


def _moment(at_ms: int, length_ms: int) -> str:
    form = "%m-%d" if length_ms > 2 * _DAY_MS else "%H:%M" if length_ms > 900_000 else "%H:%M:%S"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime(form)


def _table(title: str, series: Sequence[Series], shown: Callable[[Any], str]) -> h.Element:
    """The last samples in words, for those who do not see the lines."""
    times = sorted({at for each in series for at, _ in each.samples}, reverse=True)[:_ROWS_MAX]
    values = [dict(each.samples) for each in series]
    return h.details[
        h.summary["As a table"],
        h.table[
            h.caption(".hidden")[title],
            h.thead[
                h.tr[
                    h.th(scope="col")["Time (UTC)"],
                    [h.th(scope="col", class_="number")[each.name] for each in series],
                ]
            ],
            h.tbody[
                [
                    h.tr[
                        h.th(scope="row")[_moment(at, 0)],
                        [
                            h.td(".number")[shown(each[at]) if at in each else "–"]
                            for each in values
                        ],
                    ]
                    for at in times
                ]
            ],
        ],
    ]
