"""Line charts as SVG, drawn here: closed intervals only, a gap is a gap, each with its table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.time_axis import TimeAxis, moment

_WIDTH: Final = 640
_HEIGHT: Final = 200
_LEFT: Final = 80
_RIGHT: Final = 8
_TOP: Final = 8
_BOTTOM: Final = 24
_LINES: Final = 4
# Rows of the table of a chart.
_ROWS_MAX: Final = 20

# Functions that show sizes.
_SIZES: Final = (figures.size, figures.size_rate)

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
    marks: Sequence[Series] = (),
    mark_reach: float = math.inf,
) -> h.Element:
    """A chart with legend and table. `shown` writes a value; samples are `interval_s` apart.

    Stacked, each line is drawn on those before it. `marks` are dashed lines, such as limits. A mark
    more than `mark_reach` times as high as all else is not drawn: all else would be flat.
    """
    drawn = _stacked(series) if is_stacked else [(each, {}) for each in series]
    times = [at for each, _ in drawn for at, _ in each.samples]
    if not times:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["No samples yet."]]
    highest = max([value for each, _ in drawn for _, value in each.samples])
    near = [_below(each, mark_reach * highest) for each in marks]
    top = max([highest, *[value for each in near for _, value in each.samples]])
    frame = _Frame(
        TimeAxis(min(times), max(times), _LEFT, _WIDTH - _RIGHT), _nice(top, shown in _SIZES)
    )
    lines = [
        *[
            _line(each, frame, interval_s, _kind(is_stacked, each is drawn[-1][0]), ground)
            for each, ground in drawn
        ],
        *[
            _line(each, frame, interval_s, kind, {})
            for each in near
            for kind in ("line halo", "line dashed")
        ],
    ]
    return h.figure(".chart")[
        h.figcaption[title],
        h.svg(
            ".timed", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"Chart: {title}"
        )[_axes(frame, shown), lines],
        h.ul(".legend")[
            [_legend(each, "key", max(times), shown) for each in series],
            [_legend(each, "key thin", max(times), shown) for each in marks],
        ],
        _table(title, (*series, *marks), shown),
    ]


@dataclass(frozen=True)
class _Frame:
    """The times and the highest value that fit into a chart."""

    axis: TimeAxis
    top: float

    def point(self, at_ms: int, value: float) -> str:
        """The place of a sample."""
        return f"{self.axis.x(at_ms)},{self.y(value)}"

    def y(self, value: float) -> float:
        """The place of a value."""
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)


def _samples(details: Any) -> list[Any]:
    return details.get("samples", []) if isinstance(details, dict) else []


def _legend(series: Series, key: str, last_ms: int, shown: Callable[[Any], str]) -> h.Element:
    """The name of a series with its last value; an older one than others have is none."""
    has_value = bool(series.samples) and series.samples[-1][0] == last_ms
    return h.li[
        h.span(class_=[key, series.colour]),
        series.name,
        " ",
        h.b[shown(series.samples[-1][1]) if has_value else figures.NONE],
    ]


def _stacked(series: Sequence[Series]) -> list[tuple[Series, Mapping[int, float]]]:
    """Each series on those before it, and the ground that it stands on by time."""
    ground: dict[int, float] = {}
    found: list[tuple[Series, Mapping[int, float]]] = []
    for each in series:
        sums = [(at, value + ground.get(at, 0)) for at, value in each.samples]
        found.append((Series(each.name, each.colour, sums), ground))
        ground = ground | dict(sums)
    return found


def _below(series: Series, highest: float) -> Series:
    samples = [each for each in series.samples if each[1] <= highest]
    return Series(series.name, series.colour, samples)


def _nice(value: float, is_size: bool) -> float:
    """The next number above that people like at an axis: 1, 2 or 5 times a power of ten.

    Of a size a power of two, as its units are.
    """
    if value <= 0:
        return 1.0
    if is_size:
        return 2.0 ** math.ceil(math.log2(value))
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _kind(is_stacked: bool, is_last: bool) -> str:
    """The look of a series. Lines that others are drawn on are broad, so that they stay visible."""
    if is_stacked:
        return "area"
    return "line" if is_last else "line broad"


def _line(
    series: Series, frame: _Frame, interval_s: int, kind: str, ground: Mapping[int, float]
) -> h.Node:
    """The line in pieces, without what nobody has measured; `kind`: area, line and its look."""
    pieces: list[list[Sample]] = []
    for sample in series.samples:
        if pieces and sample[0] - pieces[-1][-1][0] <= 1500 * interval_s:
            pieces[-1].append(sample)
        else:
            pieces.append([sample])
    return [_piece(piece, f"{kind} {series.colour}", frame, ground) for piece in pieces]


def _piece(
    piece: list[Sample], classes: str, frame: _Frame, ground: Mapping[int, float]
) -> h.Element:
    points = " ".join([frame.point(at, value) for at, value in piece])
    if len(piece) == 1:
        x, y = points.split(",")
        return h.circle(class_=["dot", classes.split()[-1]], cx=x, cy=y, r="2")
    if classes.startswith("area"):
        below = [frame.point(at, ground.get(at, 0)) for at, _ in reversed(piece)]
        return h.polygon(class_=classes, points=f"{points} {' '.join(below)}")
    return h.polyline(class_=classes, points=points)


def _axes(frame: _Frame, shown: Callable[[Any], str]) -> h.Node:
    found = []
    for number in range(_LINES + 1):
        value = frame.top * number / _LINES
        y = frame.y(value)
        found.append(h.line(".grid", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=str(y), y2=str(y)))
        found.append(h.text(".axis.end", x=str(_LEFT - 6), y=str(y + 4))[shown(value)])
    return [found, frame.axis.labels(_HEIGHT - 6)]


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
                        h.th(scope="row")[moment(at)],
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
