"""A heat map: how often durations of each length have occurred over time, with quantiles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import htpy as h

from warrenmq.management.ui.elements.time_axis import TimeAxis

_WIDTH: Final = 640
_LEFT: Final = 84
_RIGHT: Final = 40
_TOP: Final = 6
_BOTTOM: Final = 24
_ROW: Final = 17
_SHADES: Final = 5


@dataclass(frozen=True)
class HeatColumn:
    """One interval of time (Unix ms): how many durations were in each row, the lowest row first.

    `quantiles`: the rows of p50 and p99, by these names; empty if all counts are 0.
    """

    first_ms: int
    last_ms: int
    counts: Sequence[int]
    quantiles: dict[str, int]


@dataclass(frozen=True)
class _Grid:
    """The rows that are drawn, from `low` to `high`, and the axis of time below them."""

    low: int
    high: int
    axis: TimeAxis

    @property
    def ground(self) -> int:
        """Where the lowest row ends."""
        return _TOP + (self.high - self.low + 1) * _ROW

    def top_of(self, row: int) -> int:
        """Where a row begins."""
        return self.ground - (row - self.low + 1) * _ROW

    def box(self, column: HeatColumn, row: int, rows: int = 1) -> str:
        """The path around `rows` cells of a column from `row` downwards."""
        left, right = self.axis.x(column.first_ms), self.axis.x(column.last_ms)
        return f"M{left} {self.top_of(row)}H{right}v{rows * _ROW}H{left}z"


def heat_map(
    title: str, names: Sequence[str], columns: Sequence[HeatColumn], first_ms: int, last_ms: int
) -> h.Element:
    """The grid from `first_ms` to `last_ms`, with lines for the quantiles; `names` are of the rows.

    `columns` are in the order of time, and something has occurred in one of them. Only rows with
    anything in them are drawn, and their neighbours. Where no column is, nobody has measured.
    """
    used = {row for column in columns for row, count in enumerate(column.counts) if count}
    low, high = max(0, min(used) - 1), min(len(names) - 1, max(used) + 1)
    grid = _Grid(low, high, TimeAxis(first_ms, last_ms, _LEFT, _WIDTH - _RIGHT))
    height = grid.ground + _BOTTOM
    return h.svg(
        ".timed", viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=f"Heat map: {title}"
    )[
        h.path(".floor", d="".join([grid.box(each, high, high - low + 1) for each in columns])),
        _shades(columns, grid),
        _quantile("p50", columns, grid),
        _quantile("p99", columns, grid),
        [
            h.text(".axis.end", x=str(_LEFT - 6), y=str(grid.top_of(row) + _ROW - 5))[names[row]]
            for row in range(low, high + 1)
        ],
        grid.axis.labels(height - 6),
    ]


def _shades(columns: Sequence[HeatColumn], grid: _Grid) -> h.Node:
    """The cells, those of a shade as one path. The square root makes rare ones visible."""
    most = max([max(column.counts) for column in columns])
    paths: dict[int, list[str]] = {shade: [] for shade in range(1, _SHADES + 1)}
    for column in columns:
        for row, count in enumerate(column.counts):
            if count:
                shade = math.ceil(_SHADES * math.sqrt(count / most))
                paths[shade].append(grid.box(column, row))
    return [
        h.path(class_=["dot c2", f"heat{shade}"], d="".join(cells))
        for shade, cells in paths.items()
        if cells
    ]


def _quantile(name: str, columns: Sequence[HeatColumn], grid: _Grid) -> h.Node:
    """The line of a quantile in steps, which ends where nothing has occurred, and its name."""
    path, end_ms, y = "", -1, 0.0
    for column in columns:
        row = column.quantiles.get(name)
        if row is None:
            continue
        # The upper edge of the cell is the bound that the quantile does not exceed.
        y = grid.top_of(row) + 1
        step = f"V{y}" if column.first_ms == end_ms else f"M{grid.axis.x(column.first_ms)} {y}"
        path += f"{step}H{grid.axis.x(column.last_ms)}"
        end_ms = column.last_ms
    if not path:
        return None
    # Above the line of p99 and below that of p50, so that both names are read.
    kind, text_y = ("line dashed", y - 2) if name == "p99" else ("line", y + 11)
    return [
        h.path(".line.halo", d=path),
        h.path(class_=f"{kind} text", d=path),
        h.text(".name.start", x=str(_WIDTH - _RIGHT + 6), y=f"{text_y:.0f}")[name],
    ]
