"""The parts q1, q2, delta, q3 and q4 of a queue as boxes with arrows, coloured by form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures

_BOX_WIDTH: Final = 108
_BOX_HEIGHT: Final = 64
_GAP: Final = 34
_LEFT: Final = 96
_TOP: Final = 46
_PARTS: Final = ("q1", "q2", "delta", "q3", "q4")
_WIDTH: Final = 2 * _LEFT + 5 * _BOX_WIDTH + 4 * _GAP
_HEIGHT: Final = _TOP + _BOX_HEIGHT + 12
_MIDDLE: Final = _TOP + _BOX_HEIGHT // 2
# Height of the stripe that shows the forms in a part.
_STRIPE: Final = 12

Storage = dict[str, Any]


@dataclass(frozen=True)
class _Share:
    """Messages of one form in a part."""

    form: str
    count: int


def pipeline_picture(storage: Storage) -> h.Element:
    """The way of messages through the queue whose storage the API tells."""
    counts = storage["parts"]
    rates = storage["rates"]
    title = "Parts of the queue: " + ", ".join([f"{name} {counts[name]}" for name in _PARTS])
    is_direct = not counts["delta"] and not counts["q3"]
    return h.div(".wide", tabindex="0", role="region", aria_label="Parts of the queue")[
        h.svg(".picture", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=title)[
            _ends(rates),
            _short_way() if is_direct else None,
            [
                [_part(name, counts[name], _shares(name, storage), place), _arrow_to(place)]
                for place, name in enumerate(_PARTS)
            ],
            _arrow(_left_of(5) - _GAP, _WIDTH - _LEFT + _GAP // 2),
        ]
    ]


def _shares(name: str, storage: Storage) -> Sequence[_Share]:
    """The forms in a part: the middle ones have what is not in memory as a whole.

    The node counts forms over the whole queue, so q2 and q3 share theirs in proportion.
    """
    count = storage["parts"][name]
    if name in ("q1", "q4"):
        return [_Share("alpha", count)]
    if name == "delta":
        return [_Share("delta", count)]
    alpha = storage["alpha"]["count"] - storage["parts"]["q1"] - storage["parts"]["q4"]
    middle = [
        _Share("alpha", max(0, alpha)),
        _Share("beta", storage["beta"]["count"]),
        _Share("gamma", storage["gamma"]["count"]),
    ]
    whole = sum([share.count for share in middle])
    return [_Share(share.form, share.count * count // whole) for share in middle if whole]


def _left_of(place: int) -> int:
    return _LEFT + place * (_BOX_WIDTH + _GAP)


def _part(name: str, count: int, shares: Sequence[_Share], place: int) -> h.Node:
    x = _left_of(place)
    middle = str(x + _BOX_WIDTH // 2)
    found: list[h.Node] = [
        h.rect(
            ".box", x=str(x), y=str(_TOP), width=str(_BOX_WIDTH), height=str(_BOX_HEIGHT), rx="6"
        ),
        h.text(".axis.middle", x=middle, y=str(_TOP + 17))[name],
        h.text(".name.middle.large", x=middle, y=str(_TOP + 40))[figures.count(count)],
    ]
    whole = sum([share.count for share in shares])
    left = 0.0
    for share in shares:
        width = share.count / whole * (_BOX_WIDTH - 8) if whole else 0
        if width:
            found.append(
                h.rect(
                    class_=["dot", share.form],
                    x=f"{x + 4 + left:.1f}",
                    y=str(_TOP + _BOX_HEIGHT - _STRIPE - 4),
                    width=f"{width:.1f}",
                    height=str(_STRIPE),
                )
            )
        left += width
    return found


def _ends(rates: dict[str, float]) -> h.Node:
    """The rates of messages that come and go."""
    right = _WIDTH - _LEFT // 2 + 8
    return [
        h.text(".axis.middle", x=str(_LEFT // 2 - 8), y=str(_MIDDLE - 8))["published"],
        h.text(".name.middle", x=str(_LEFT // 2 - 8), y=str(_MIDDLE + 20))[
            figures.rate(rates["published"])
        ],
        h.text(".axis.middle", x=str(right), y=str(_MIDDLE - 8))["taken"],
        h.text(".name.middle", x=str(right), y=str(_MIDDLE + 20))[figures.rate(rates["taken"])],
    ]


def _arrow_to(place: int) -> h.Node:
    """The arrow that leads to a part from the one before it."""
    x = _left_of(place)
    return _arrow(x - _GAP, x)


def _arrow(x1: int, x2: int) -> h.Node:
    return [
        h.line(".arrow", x1=str(x1), y1=str(_MIDDLE), x2=str(x2 - 8), y2=str(_MIDDLE)),
        h.polygon(
            ".head-of", points=f"{x2},{_MIDDLE} {x2 - 9},{_MIDDLE - 4} {x2 - 9},{_MIDDLE + 4}"
        ),
    ]


def _short_way() -> h.Node:
    """Straight to q4, while nothing is behind it."""
    x1, x2 = _LEFT - _GAP // 2, _left_of(4) + _BOX_WIDTH // 2
    y = 18
    return [
        h.path(".arrow.bent", d=f"M{x1} {_MIDDLE}V{y}H{x2}V{_TOP - 8}"),
        h.polygon(".head-of", points=f"{x2},{_TOP} {x2 - 4},{_TOP - 9} {x2 + 4},{_TOP - 9}"),
        h.text(".axis.middle", x=str((x1 + x2) // 2), y=str(y - 5))[
            "straight to q4 while delta and q3 are empty"
        ],
    ]
