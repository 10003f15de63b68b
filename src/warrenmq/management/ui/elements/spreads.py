"""Columns that show how often values of each size have occurred, with p50, p99 and a table."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures

Spread = dict[str, Any]

_WIDTH: Final = 640
_HEIGHT: Final = 170
_TOP: Final = 24
_BOTTOM: Final = 34
# Columns that have room for their numbers.
_NUMBERED_MAX: Final = 14


def nanoseconds(value: Any) -> str:
    """A duration given in ns."""
    return figures.duration(value / 1e6) if isinstance(value, int | float) else figures.NONE


def quantile(spread: Spread, share: float) -> float | None:
    """The bound that `share` of all values do not exceed; infinite behind the last bound.

    None: there are no values.
    """
    total = sum(spread["counts"])
    seen = 0
    for bound, count in zip(spread["bounds"], spread["counts"], strict=False):
        seen += count
        if total and seen >= share * total:
            return float(bound)
    return float("inf") if total else None


def shown_quantile(spread: Spread, share: float, shown: Callable[[Any], str]) -> str:
    """The quantile in words, as far as the bounds tell it."""
    value = quantile(spread, share)
    if value is None:
        return figures.NONE
    if value == float("inf"):
        return f"> {shown(spread['bounds'][-1])}"
    return f"≤ {shown(value)}"


def spread_chart(title: str, spread: Spread, shown: Callable[[Any], str]) -> h.Element:
    """The distribution `spread` of the API; `shown` writes a bound or a mean."""
    counts = spread["counts"]
    used = [place for place, count in enumerate(counts) if count]
    if not used:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["None yet."]]
    names = [f"≤ {shown(bound)}" for bound in spread["bounds"]]
    names.append(f"> {shown(spread['bounds'][-1])}")
    first, last = max(0, used[0] - 1), min(len(counts) - 1, used[-1] + 1)
    total = sum(counts)
    p50, p99 = [place_of(counts, share) for share in (0.5, 0.99)]
    return h.figure(".chart")[
        h.figcaption[title],
        h.svg(viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=f"Distribution: {title}")[
            _columns(counts[first : last + 1], names[first : last + 1], p50 - first, p99 - first)
        ],
        h.ul(".legend")[
            [
                h.li[f"{name} ", h.b[value]]
                for name, value in (
                    ("Count", figures.count(total)),
                    ("mean", shown(spread["total"] / total)),
                    ("p50", shown_quantile(spread, 0.5, shown)),
                    ("p99", shown_quantile(spread, 0.99, shown)),
                )
            ]
        ],
        _table(title, names, counts, total),
    ]


def place_of(counts: Sequence[int], share: float) -> int:
    """The place of the count that has the value which `share` of all values do not exceed."""
    seen = 0
    for place, count in enumerate(counts):
        seen += count
        if seen >= share * sum(counts):
            return place
    return len(counts) - 1


def _columns(counts: list[int], names: list[str], p50: int, p99: int) -> h.Node:
    """The columns; those of p50 and p99 have their own colours and names."""
    step = _WIDTH / len(counts)
    ground = _HEIGHT - _BOTTOM
    found: list[h.Node] = []
    for place, (count, name) in enumerate(zip(counts, names, strict=True)):
        marks = [text for text, at in (("p50", p50), ("p99", p99)) if at == place]
        height = count / max(counts) * (ground - _TOP)
        # What has occurred at all is seen.
        height = max(height, 2) if count else 0
        x = (place + 0.5) * step
        colour = "c5" if p99 == place else "c2" if p50 == place else "c1"
        found.append(
            h.rect(
                class_=["area", colour],
                x=f"{place * step + 2:.1f}",
                y=f"{ground - height:.1f}",
                width=f"{step - 4:.1f}",
                height=f"{height:.1f}",
            )
        )
        if marks:
            found.append(
                h.text(".axis.middle", x=f"{x:.1f}", y=f"{ground - height - 5:.1f}")[
                    " ".join(marks)
                ]
            )
        if len(counts) <= _NUMBERED_MAX or place % 2 == 0:
            y = ground + (14 if place % 2 == 0 else 28)
            found.append(h.text(".axis.middle", x=f"{x:.1f}", y=str(y))[name])
    line = h.line(".grid", x1="0", x2=str(_WIDTH), y1=str(ground), y2=str(ground))
    return [found, line]


def _table(title: str, names: list[str], counts: list[int], total: int) -> h.Element:
    return h.details[
        h.summary["As a table"],
        h.table[
            h.caption(".hidden")[title],
            h.thead[
                h.tr[
                    h.th(scope="col")["Size"],
                    h.th(scope="col", class_="number")["Count"],
                    h.th(scope="col", class_="number")["Share"],
                ]
            ],
            h.tbody[
                [
                    h.tr[
                        h.th(scope="row")[name],
                        h.td(".number")[figures.count(count)],
                        h.td(".number")[figures.percent(count, total)],
                    ]
                    for name, count in zip(names, counts, strict=True)
                    if count
                ]
            ],
        ],
    ]
