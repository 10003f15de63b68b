"""A picture of what leads to an object and where it leads, as boxes with arrows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import htpy as h

# Boxes of one side that are drawn.
_BOXES_MAX: Final = 12
_ROW: Final = 44
_BOX_WIDTH: Final = 180
_BOX_HEIGHT: Final = 32
_WIDTH: Final = 860
_LETTERS_MAX: Final = 24
_MIDDLE: Final = (_WIDTH - _BOX_WIDTH) // 2


@dataclass(frozen=True)
class Arrow:
    """An arrow from or to the box `name`; `label` stands at it, and `is_round` is a queue's box."""

    name: str
    label: str
    is_round: bool


def arrows_picture(
    title: str,
    name: str,
    incoming: Sequence[Arrow],
    outgoing: Sequence[Arrow],
    is_round: bool = False,
) -> h.Element:
    """The box `name` with its arrows; `title` tells people who do not see it."""
    rows = max(1, *[min(len(side), _BOXES_MAX + 1) for side in (incoming, outgoing)])
    height = rows * _ROW
    middle = height / 2
    return h.div(".wide", tabindex="0", role="region", aria_label=title)[
        h.svg(".picture", viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)[
            [_arrow(each, False, y, middle) for each, y in _placed(incoming, height)],
            [_arrow(each, True, y, middle) for each, y in _placed(outgoing, height)],
            _box(name, _MIDDLE, middle, is_round),
        ]
    ]


def _placed(side: Sequence[Arrow], height: int) -> list[tuple[Arrow, float]]:
    shown = list(side[:_BOXES_MAX])
    if len(side) > _BOXES_MAX:
        shown.append(Arrow(f"and {len(side) - _BOXES_MAX} more", "", False))
    above = (height - len(shown) * _ROW) / 2
    return [(each, above + (place + 0.5) * _ROW) for place, each in enumerate(shown)]


def _arrow(arrow: Arrow, is_outgoing: bool, y: float, middle: float) -> h.Node:
    """An arrow at the left or the right of the box in the middle; its label is at the outer end.

    There the lines are apart: the label is at that side of its line where no other one is.
    """
    label_y = f"{y + 14 if y > middle else y - 6:.0f}"
    right = _WIDTH - _BOX_WIDTH
    if is_outgoing:
        label = h.text(".axis.end", x=str(right - 12), y=label_y)[_short(arrow.label)]
        line = _line(_MIDDLE + _BOX_WIDTH, middle, right, y)
    else:
        label = h.text(".axis.start", x=str(_BOX_WIDTH + 6), y=label_y)[_short(arrow.label)]
        line = _line(_BOX_WIDTH, y, _MIDDLE, middle)
    return [line, label, _box(arrow.name, right if is_outgoing else 0, y, arrow.is_round)]


def _line(x1: int, y1: float, x2: int, y2: float) -> h.Node:
    return [
        h.line(".arrow", x1=str(x1), y1=str(y1), x2=str(x2 - 8), y2=str(y2)),
        h.polygon(".head-of", points=f"{x2},{y2} {x2 - 9},{y2 - 4} {x2 - 9},{y2 + 4}"),
    ]


def _box(name: str, x: float, y: float, is_round: bool) -> h.Node:
    return [
        h.rect(
            ".box", x=str(x + 1), y=f"{y - _BOX_HEIGHT / 2:.0f}", width=str(_BOX_WIDTH - 2),
            height=str(_BOX_HEIGHT), rx="16" if is_round else "3",
        ),
        h.text(".name.middle", x=str(x + _BOX_WIDTH / 2), y=f"{y + 5:.0f}")[_short(name)],
    ]  # fmt: skip


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS_MAX else f"{text[: _LETTERS_MAX - 1]}…"
