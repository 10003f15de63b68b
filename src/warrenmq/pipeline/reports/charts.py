"""Charts of a report: Vega-Lite specifications, drawn as SVG by vl-convert.

Drawing needs no browser, no network and no script. Each chart is drawn twice, for narrow and for
wide places, so that its text has the same size on a phone and on a desk; the page shows the drawing
that fits. Colours are variables of the page, so one drawing serves light and dark pages. Labels of
bars stand above the bars, because fonts of the reader's system may be wider than those that
vl-convert measures with.
"""

import datetime
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import vl_convert

# Width of a narrow plot in pixels, without axes, and the ticks that its axis has room for.
NARROW: Final = (260, 4)
# Width of a wide plot in pixels, without axes, and the ticks that its axis has room for.
WIDE: Final = (580, 6)
# Number of colours that the page defines, as --c0 to --c7.
COLOURS: Final = 8
# Pixels from the top of one bar's label to the top of the next label.
_ROW_HEIGHT: Final = 42
# Pixels of that height which the bar takes.
_BAR_HEIGHT: Final = 14
# Height of the plot of a column chart (pixels).
_COLUMNS_HEIGHT: Final = 200
# Highest count for which an axis has ticks of our own, at whole numbers.
_WHOLE_TICKS_MAX: Final = 12
# Width of the y axis of a column chart (pixels).
_Y_AXIS_WIDTH: Final = 50
# Share of the plot's width that a label may take, as measured by vl-convert.
_LABEL_SHARE: Final = 0.75
_FONT_SIZE: Final = 12
_VEGA_LITE: Final = "5.21"
_TIME_UNITS: Final = ((86_400, "days"), (3_600, "hours"), (60, "minutes"), (1, "seconds"))
_SIZE_UNITS: Final = (
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
    (1, "bytes"),
)
# Label of a tick: 2500 is 2.5k, and 0 is not 0k.
_TICK: Final = "abs(datum.value) < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"
_SVG_TAG: Final = re.compile(r'^<svg[^>]* viewBox="([^"]+)"[^>]*>')

_CONFIG: Final[dict[str, Any]] = {
    "background": None,
    "aria": False,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "labelFontSize": _FONT_SIZE,
        "titleFontSize": _FONT_SIZE,
        "titleFontWeight": "normal",
        # Leave room for fonts wider than the measured one.
        "labelSeparation": 12,
        "labelOverlap": "greedy",
        "labelFlush": False,
    },
    "padding": {"left": 4, "right": 24, "top": 4, "bottom": 4},
}


@dataclass(frozen=True)
class Bar:
    """A bar or column: its label, and the lengths of its parts from the left or from below."""

    label: str
    parts: tuple[float, ...]


@dataclass(frozen=True)
class Span:
    """A range from `start` to `end` with a mark in it."""

    label: str
    start: float
    mark: float
    end: float


@dataclass(frozen=True)
class Chart:
    """One chart as two SVG elements; `legend` names its colours from --c0 on if it has several."""

    narrow: str
    wide: str
    legend: tuple[str, ...] = ()


def bars(title: str, rows: Sequence[Bar], series: Sequence[str], quantity: str) -> Chart:
    """Draw one bar a row, in parts that `series` names.

    `quantity` is "messages", or "bytes" for an axis in KiB, MiB and so on.
    """
    longest = max([sum(row.parts) for row in rows], default=0)
    divisor, unit = _unit(longest, quantity)
    values = [
        {"row": place, "start": sum(row.parts[:number]) / divisor, "end": sum(row.parts[: number + 1]) / divisor, "series": number}
        for place, row in enumerate(rows)
        for number, part in enumerate(row.parts)
        if part > 0
    ]  # fmt: skip

    def layers(ticks: int) -> list[dict[str, Any]]:
        bar = {
            "data": {"values": values},
            # The stroke keeps a part of a thousandth of the bar visible.
            "mark": {"type": "bar", "height": _BAR_HEIGHT, "yOffset": 9, "strokeWidth": 1},
            "encoding": {
                "x": _quantity("start", unit, longest / divisor, ticks),
                "x2": {"field": "end"},
                "fill": _colour(len(series)),
                "stroke": _colour(len(series)),
            },
        }
        return [bar]

    return _rows(title, [row.label for row in rows], layers, series if len(series) > 1 else ())


def spans(title: str, rows: Sequence[Span]) -> Chart:
    """Draw one range of seconds a row, with a mark in it, on an axis in minutes, hours or days."""
    longest = max([row.end for row in rows], default=0)
    divisor, unit = _unit(longest, "time")
    values = [
        {
            "row": place,
            "start": row.start / divisor,
            "mark": row.mark / divisor,
            "end": row.end / divisor,
        }
        for place, row in enumerate(rows)
    ]

    def layers(ticks: int) -> list[dict[str, Any]]:
        x = _quantity("start", f"{unit} old", longest / divisor, ticks)
        bar = {
            "type": "bar",
            "height": 8,
            "yOffset": 9,
            "strokeWidth": 1,
            "fill": "var(--c0)",
            "stroke": "var(--c0)",
        }
        mark = {"type": "tick", "height": 16, "thickness": 3, "yOffset": 9, "color": "var(--ink)"}
        return [
            {"data": {"values": values}, "mark": bar, "encoding": {"x": x, "x2": {"field": "end"}}},
            {"data": {"values": values}, "mark": mark, "encoding": {"x": x | {"field": "mark"}}},
        ]

    return _rows(title, [row.label for row in rows], layers, ())


def columns(title: str, rows: Sequence[Bar], series: Sequence[str], quantity: str) -> Chart:
    """Draw columns side by side in the order of `rows`, in parts that `series` names."""
    values = [
        {"row": place, "value": part, "series": number}
        for place, row in enumerate(rows)
        for number, part in enumerate(row.parts)
        if part > 0
    ]
    labels = [row.label for row in rows]
    highest = max([sum(row.parts) for row in rows], default=0)
    return _two(
        title,
        lambda width, ticks: {
            "width": width - _Y_AXIS_WIDTH,
            "height": _COLUMNS_HEIGHT,
            "data": {"values": values},
            "mark": {"type": "bar"},
            "encoding": {
                "x": _in_order(labels, width),
                "y": _quantity("value", quantity, highest, 4),
                "fill": _colour(len(series)),
                "order": {"field": "series"},
            },
        },
        series if len(series) > 1 else (),
    )  # fmt: skip


def lines(
    title: str,
    labels: Sequence[str],
    rows: Sequence[Sequence[float | None]],
    series: Sequence[str],
    quantity: str,
) -> Chart:
    """Draw one line for each of `series` over `labels`; `rows` has its values, None for a gap.

    `quantity` is a unit, or "bytes" for an axis in KiB, MiB and so on.
    """
    highest = max([value for row in rows for value in row if value is not None], default=0.0)
    divisor, unit = _unit(highest, quantity)
    values = [
        {"row": place, "value": None if value is None else value / divisor, "series": number}
        for number, row in enumerate(rows)
        for place, value in enumerate(row)
    ]
    return _two(
        title,
        lambda width, ticks: {
            "width": width - _Y_AXIS_WIDTH,
            "height": _COLUMNS_HEIGHT,
            "data": {"values": values},
            "mark": {"type": "line", "strokeWidth": 2, "point": {"filled": True, "size": 10}},
            "encoding": {
                "x": _in_order(labels, width),
                "y": _quantity("value", unit, highest / divisor, 4),
                "color": _colour(len(series)),
            },
        },
        series if len(series) > 1 else (),
    )


def _in_order(labels: Sequence[str], width: int) -> dict[str, Any]:
    """The axis of columns and lines: a place for each label, and the labels that have room."""
    return {
        "field": "row",
        "type": "ordinal",
        "scale": {"domain": list(range(len(labels))), "paddingInner": 0.15, "paddingOuter": 0.1},
        "axis": {
            "title": None,
            "labelAngle": 0,
            "ticks": False,
            # Place the labels below the 0 of the y axis.
            "labelPadding": 9,
            "values": _some(labels, width - _Y_AXIS_WIDTH),
            "labelExpr": f"{_json(labels)}[datum.value]",
        },
    }


def _some(labels: Sequence[str], width: int) -> list[int]:
    """The places of labels that have room side by side: every n-th one."""
    longest = max([len(label) for label in labels], default=1)
    # Allow 9 pixels a character, the most that one is wide on average.
    room = max(int(width // (longest * 9 + 12)), 1)
    return list(range(0, len(labels), -(-len(labels) // room)))


def _rows(
    title: str,
    labels: Sequence[str],
    layers: Callable[[int], list[dict[str, Any]]],
    series: Sequence[str],
) -> Chart:
    """Draw layers over rows with a label above each; `layers` gets the number of ticks."""
    values = [{"row": place, "label": visible(label)} for place, label in enumerate(labels)]
    rows = {
        "field": "row",
        "type": "ordinal",
        "axis": None,
        "scale": {"domain": list(range(len(labels)))},
    }

    def specification(width: int, ticks: int) -> dict[str, Any]:
        text = {
            "data": {"values": values},
            "mark": {
                "type": "text",
                "align": "left",
                "baseline": "middle",
                "dy": -9,
                "fontSize": _FONT_SIZE,
                "limit": width * _LABEL_SHARE,
                "fill": "var(--ink)",
            },
            "encoding": {"x": {"value": 0}, "text": {"field": "label"}},
        }
        return {
            "width": width,
            "height": {"step": _ROW_HEIGHT},
            "encoding": {"y": rows},
            "layer": [*layers(ticks), text],
        }

    return _two(title, specification, series)


def _two(
    title: str, specification: Callable[[int, int], dict[str, Any]], series: Sequence[str]
) -> Chart:
    narrow, wide = (_svg(title, specification(*size)) for size in (NARROW, WIDE))
    return Chart(narrow, wide, tuple([visible(name) for name in series]))


def _svg(title: str, specification: dict[str, Any]) -> str:
    drawn = vl_convert.vegalite_to_svg(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "config": _CONFIG,
            **specification,
        },
        vl_version=_VEGA_LITE,
        allowed_base_urls=[],
    )
    found = _SVG_TAG.match(drawn)
    assert found is not None
    # The title needs no escaping: all titles are constants of this package.
    return f'<svg viewBox="{found[1]}" role="img" aria-label="{title}">{drawn[found.end() :]}'


def _quantity(field: str, unit: str, longest: float, ticks: int) -> dict[str, Any]:
    axis: dict[str, Any] = {"title": unit, "labelExpr": _TICK, "tickCount": ticks}
    if unit in ("messages", "bytes") and longest <= _WHOLE_TICKS_MAX:
        # Use whole numbers: there is no half message, and Vega's own ticks have no shortest step.
        axis["values"] = list(range(0, int(longest) + 1, max(1, -(-int(longest) // ticks))))
    return {
        "field": field,
        "type": "quantitative",
        "axis": axis,
        "scale": {"zero": True, "nice": True},
    }


def _colour(count: int) -> dict[str, Any]:
    domain = list(range(count))
    return {
        "field": "series",
        "type": "ordinal",
        "legend": None,
        "scale": {"domain": domain, "range": [f"var(--c{place % COLOURS})" for place in domain]},
    }


def _unit(longest: float, quantity: str) -> tuple[int, str]:
    """The divisor for values up to `longest`, and the unit of the result."""
    units = {"time": _TIME_UNITS, "bytes": _SIZE_UNITS}.get(quantity, ((1, quantity),))
    return next((each for each in units if longest >= 2 * each[0]), units[-1])


def _json(labels: Sequence[str]) -> str:
    return "[" + ",".join([f"'{label}'" for label in labels]) + "]"


def visible(value: object) -> str:
    """The text with a replacement character for each invisible or text-reversing character."""
    return "".join(
        [
            "�" if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co", "Cn") else each
            for each in str(value)
        ]
    )


def time_labels(starts: Sequence[datetime.datetime]) -> list[str]:
    """A label for each time of a chart: day and minute (UTC), and the second where that counts."""
    has_seconds = any(start.second for start in starts)
    clock = "%H:%M:%S" if has_seconds else "%H:%M"
    return [f"{start:%b} {start.day}, {start:{clock}}" for start in starts]


def hour_labels(starts: Sequence[datetime.datetime], is_daily: bool) -> list[str]:
    """A label for each column: the day, or the day and hour (UTC) at which it starts."""
    if is_daily:
        return [f"{start:%b} {start.day}" for start in starts]
    return [f"{start:%b} {start.day}, {start:%H:%M}" for start in starts]
