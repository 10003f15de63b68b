"""Charts of a report as SVG, drawn to be read on a light and on a dark page: colours are the page's variables.

Whatever a chart is told, a queue's name for example, comes from strangers and is escaped here, in `text`.
"""

import html
import unicodedata
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 920
_LABEL_WIDTH: Final = 250
_VALUE_WIDTH: Final = 190
_BAR_HEIGHT: Final = 18
_BAR_GAP: Final = 7
_COLUMN_HEIGHT: Final = 220
_AXIS_HEIGHT: Final = 44
_LABEL_CHARACTERS: Final = 34
# The page defines so many colours, as --c0 to --c7.
COLOURS: Final = 8


@dataclass(frozen=True)
class Bar:
    """A bar or column: its label, its parts from the left or from below, and what stands beside it."""

    label: str
    parts: tuple[float, ...]
    value: str = ""

    @property
    def total(self) -> float:
        """Its length."""
        return sum(self.parts)


def text(value: object) -> str:
    """Any text for a page: markup in it is text, and what cannot be seen or turns text around becomes visible."""
    clean = "".join(
        ["�" if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Co", "Cn") else each for each in str(value)]
    )
    return html.escape(clean, quote=True)


def shortened(label: str) -> str:
    """A label that fits beside its bar; the middle of a longer one is left out."""
    if len(label) <= _LABEL_CHARACTERS:
        return label
    half = (_LABEL_CHARACTERS - 1) // 2
    return f"{label[:half]}…{label[-half:]}"


def bars(title: str, rows: list[Bar], series: tuple[str, ...]) -> str:
    """Bars that lie, one a row; the parts of each are the `series`, a colour each."""
    height = len(rows) * (_BAR_HEIGHT + _BAR_GAP) + _BAR_GAP
    longest = max([row.total for row in rows], default=0.0) or 1.0
    room = WIDTH - _LABEL_WIDTH - _VALUE_WIDTH
    drawn = []
    for number, row in enumerate(rows):
        y = _BAR_GAP + number * (_BAR_HEIGHT + _BAR_GAP)
        middle = y + _BAR_HEIGHT - 5
        drawn.append(
            f'<text class="label" x="{_LABEL_WIDTH - 8}" y="{middle}" text-anchor="end">'
            f"<title>{text(row.label)}</title>{text(shortened(row.label))}</text>"
        )
        x = float(_LABEL_WIDTH)
        for place, part in enumerate(row.parts):
            width = part / longest * room
            if part > 0:
                drawn.append(
                    _rectangle(
                        x, y, max(width, 1.0), _BAR_HEIGHT, place, f"{row.label}: {series[place]} {part:,.0f}"
                    )
                )
            x += width
        drawn.append(f'<text class="value" x="{x + 6:.1f}" y="{middle}">{text(row.value)}</text>')
    return _legend(series) + _svg(title, height, drawn)


def columns(title: str, rows: list[Bar], series: tuple[str, ...]) -> str:
    """Columns that stand, with labels below as far as there is room."""
    height = _COLUMN_HEIGHT + _AXIS_HEIGHT
    highest = max([row.total for row in rows], default=0.0) or 1.0
    left, top = 70.0, 14.0
    step = (WIDTH - left) / max(len(rows), 1)
    width = min(step * 0.86, 60.0)
    drawn = []
    for share in (0.0, 0.5, 1.0):
        y = top + (_COLUMN_HEIGHT - top) * (1 - share)
        drawn.append(f'<line class="grid" x1="{left}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(
            f'<text class="value" x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{short_number(highest * share)}</text>'
        )
    # A label takes about 70 units.
    every = max(1, round(70 / step + 0.49))
    for number, row in enumerate(rows):
        x = left + number * step + (step - width) / 2
        y = float(_COLUMN_HEIGHT)
        for place, part in enumerate(row.parts):
            if part > 0:
                size = max(part / highest * (_COLUMN_HEIGHT - top), 1.0)
                y -= size
                drawn.append(
                    _rectangle(x, y, width, size, place, f"{row.label}: {series[place]} {part:,.0f}")
                )
        if number % every == 0:
            drawn.append(
                f'<text class="value" x="{x + width / 2:.1f}" y="{_COLUMN_HEIGHT + 18}" text-anchor="middle">{text(row.label)}</text>'
            )
    return _legend(series) + _svg(title, height, drawn)


def short_number(value: float) -> str:
    """`1500000` is `1.5M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _rectangle(x: float, y: float, width: float, height: float, colour: int, title: str) -> str:
    return (
        f'<rect class="c{colour % COLOURS}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2">'
        f"<title>{text(title)}</title></rect>"
    )


def _legend(series: tuple[str, ...]) -> str:
    if len(series) < 2:
        return ""
    entries = [
        f'<span><i class="b{place % COLOURS}"></i>{text(shortened(name))}</span>'
        for place, name in enumerate(series)
    ]
    return f'<p class="legend">{"".join(entries)}</p>'


def _svg(title: str, height: float, drawn: list[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{text(title)}">{"".join(drawn)}</svg>'
