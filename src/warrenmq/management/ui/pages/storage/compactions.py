"""The compactions of a store on a line of time: when, of which files, why, and what they freed."""

from collections.abc import Sequence
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.elements.time_axis import TimeAxis
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.visit import RANGES

_WIDTH: Final = 640
_LEFT: Final = 92
_RIGHT: Final = 8
_TOP: Final = 8
_LANE: Final = 46
_LANES: Final = ("persistent", "transient")
_BAR_MAX: Final = 36
_BAR_MIN: Final = 6
_WIDTH_MIN: Final = 4.0
_BOTTOM: Final = 24
# Rows of the table.
_ROWS_MAX: Final = 20

Run = dict[str, Any]


def compactions(page: Page, found: dict[str, Any]) -> h.Element:
    """The compactions of the range of the page; `found` is the API's reply."""
    title = "Compactions"
    last_ms = found["now_ms"]
    first_ms = last_ms - RANGES[page.range][0] * 1000
    runs = [run for run in found["runs"] if run["ended_ms"] >= first_ms]
    if not runs:
        known = figures.count(len(found["runs"]))
        text = f"None in this range; {known} are remembered since the start of the node."
        return h.figure(".chart")[h.figcaption[title], h.p(".none")[text]]
    freed = sum([run["freed_bytes"] for run in runs])
    height = _TOP + len(_LANES) * _LANE + _BOTTOM
    axis = TimeAxis(first_ms, last_ms, _LEFT, _WIDTH - _RIGHT)
    return h.figure(".chart.whole")[
        h.figcaption[title],
        h.svg(
            ".timed",
            viewBox=f"0 0 {_WIDTH} {height}",
            role="img",
            aria_label="Compactions over time",
        )[
            [_lane(name, place) for place, name in enumerate(_LANES)],
            _bars(runs, axis),
            axis.labels(height - 6),
        ],
        h.ul(".legend")[
            h.li["the higher, the more is given back; all ", h.b[figures.size(freed)]],
            h.li[h.span(".key.c2"), "due: more than half was garbage"],
            h.li[h.span(".key.c3.hollow"), "hollow: somebody has asked"],
            h.li[h.span(".key.c5"), "crossed: failed"],
        ],
        _table(runs),
    ]


def _lane(name: str, place: int) -> h.Node:
    ground = _ground(place)
    return [
        h.text(".axis.end", x=str(_LEFT - 8), y=str(ground - 4))[name],
        h.line(".grid", x1=str(_LEFT), x2=str(_WIDTH - _RIGHT), y1=str(ground), y2=str(ground)),
    ]


def _ground(place: int) -> int:
    return _TOP + (place + 1) * _LANE - 4


def _bars(runs: Sequence[Run], axis: TimeAxis) -> h.Node:
    most = max(1, *[run["freed_bytes"] for run in runs])
    return [_bar(run, axis, run["freed_bytes"] / most) for run in runs]


def _bar(run: Run, axis: TimeAxis, share: float) -> h.Node:
    """A bar as long as the compaction took; a short one is wide enough to be seen."""
    right = axis.x(run["ended_ms"])
    left = max(_LEFT, min(axis.x(run["began_ms"]), right - _WIDTH_MIN))
    height = _BAR_MIN + share * (_BAR_MAX - _BAR_MIN)
    ground = _ground(_LANES.index(run["store"]))
    top = ground - height
    failed, asked = run["is_failed"], run["is_asked"]
    kind = "dot c5" if failed else "hollow c3" if asked else "dot c2"
    bar = h.path(class_=kind, d=f"M{left} {ground}V{top:.1f}H{right}V{ground}z")
    middle = (left + right) / 2
    x1, x2 = f"{middle - 6:.1f}", f"{middle + 6:.1f}"
    cross = h.path(
        ".frame", d=f"M{x1} {ground - 16}L{x2} {ground - 4}M{x1} {ground - 4}L{x2} {ground - 16}"
    )
    return [bar, cross if failed else None]


def _table(runs: Sequence[Run]) -> h.Element:
    """The last compactions, the newest first."""
    shown = runs[: -_ROWS_MAX - 1 : -1]
    heads = ("Began (UTC)", "Took", "Store", "Files", "To", "Copied from", "Given back", "Why")
    rows = [
        (
            figures.moment(run["began_ms"]),
            figures.duration(run["ended_ms"] - run["began_ms"]),
            run["store"],
            ", ".join([str(number) for number in run["files"]]),
            str(run["target"]),
            figures.size(run["size_bytes"]),
            figures.size(run["freed_bytes"]),
            _why(run),
        )
        for run in shown
    ]
    return h.details[
        h.summary[f"As a table: {len(shown)} of {figures.count(len(runs))} compactions"],
        plain_table("Compactions", heads, rows, ("Took", "Copied from", "Given back")),
    ]


def _why(run: Run) -> str:
    why = "asked" if run["is_asked"] else "due"
    return f"{why}, failed" if run["is_failed"] else why
