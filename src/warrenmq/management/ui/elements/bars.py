"""A bar of parts beside each other, with marks such as limits; its legend has all values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures

_WIDTH: Final = 640
_TOP: Final = 22
_BAR_HEIGHT: Final = 26
_HEIGHT: Final = _TOP + _BAR_HEIGHT + 22
# About the width of a letter of a mark's name.
_LETTER: Final = 6.2


@dataclass(frozen=True)
class Part:
    """A part of a bar: its name, the CSS class of its colour, and its value."""

    name: str
    colour: str
    value: float


@dataclass(frozen=True)
class Mark:
    """A line across a bar at a value."""

    name: str
    value: float


def bar(
    title: str,
    parts: Sequence[Part],
    shown: Callable[[Any], str],
    marks: Sequence[Mark] = (),
    note: str = "",
) -> h.Element:
    """A bar as long as all `parts`, or up to its last mark; `shown` writes a value."""
    whole = sum([part.value for part in parts])
    if not whole and not marks:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["Nothing yet."]]
    end = max(whole, 1, *[mark.value * 1.04 for mark in marks])
    return h.figure(".chart")[
        h.figcaption[title],
        h.svg(viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"Bar: {title}")[
            h.rect(
                ".box", x="0.5", y=str(_TOP), width=str(_WIDTH - 1), height=str(_BAR_HEIGHT), rx="3"
            ),
            _drawn(parts, end),
            [_mark(mark, end, place) for place, mark in enumerate(marks)],
        ],
        h.ul(".legend")[
            [
                h.li[
                    h.span(class_=["key", part.colour]),
                    part.name,
                    " ",
                    h.b[shown(part.value)],
                    f" ({figures.percent(part.value, whole)})" if whole else None,
                ]
                for part in parts
            ],
            [h.li[f"{mark.name} ", h.b[shown(mark.value)]] for mark in marks],
        ],
        note and h.p(".note")[note],
    ]


def _drawn(parts: Sequence[Part], end: float) -> h.Node:
    found, left = [], 0.0
    for part in parts:
        width = part.value / end * _WIDTH
        if width > 0:
            found.append(
                h.rect(
                    class_=["area", part.colour],
                    x=f"{left:.1f}",
                    y=str(_TOP),
                    width=f"{width:.1f}",
                    height=str(_BAR_HEIGHT),
                )
            )
        left += width
    return found


def _mark(mark: Mark, end: float, place: int) -> h.Node:
    """A line with its name, above the bar and below it in turn."""
    x = mark.value / end * _WIDTH
    is_above = place % 2 == 0
    half = len(mark.name) * _LETTER / 2
    text_x = min(max(x, half), _WIDTH - half)
    y1, y2 = (_TOP - 6, _TOP + _BAR_HEIGHT) if is_above else (_TOP, _TOP + _BAR_HEIGHT + 6)
    return [
        h.line(".limit", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=str(y1), y2=str(y2)),
        h.text(".axis.middle", x=f"{text_x:.1f}", y=str(_TOP - 10 if is_above else _HEIGHT - 4))[
            mark.name
        ],
    ]
