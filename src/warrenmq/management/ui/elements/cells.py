"""Many things as small cells, each as full as what it stands for: files, and segments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import htpy as h

_CELL: Final = 18
_GAP: Final = 4
_COLUMNS: Final = 24
_WIDTH: Final = _COLUMNS * (_CELL + _GAP)
_CORNER: Final = 8
# Pixels of what is almost nothing.
_SEEN: Final = 2


@dataclass(frozen=True)
class Cell:
    """A cell: the share of it that is needed, at the bottom, and of garbage, upon that.

    `is_heavy` gives the garbage another colour.
    """

    needed: float
    garbage: float
    is_heavy: bool = False
    is_framed: bool = False
    is_crossed: bool = False
    has_corner: bool = False
    has_dot: bool = False
    is_dashed: bool = False


def cell_map(title: str, cells: Sequence[Cell]) -> h.Element:
    """All cells as few paths, since there may be thousands; `title` tells what they are."""
    height = -(-len(cells) // _COLUMNS) * (_CELL + _GAP)
    paths: dict[str, list[str]] = {
        name: []
        for name in ("cell", "cell dashed", "dot c2", "dot c1", "dot c5", "corner", "frame", "mid")
    }
    for place, cell in enumerate(cells):
        x = place % _COLUMNS * (_CELL + _GAP) + _GAP // 2
        y = place // _COLUMNS * (_CELL + _GAP) + _GAP // 2
        paths["cell dashed" if cell.is_dashed else "cell"].append(_box(x, y, _CELL))
        needed = _height(cell.needed, 1.0)
        garbage = _height(cell.garbage, 1 - needed / _CELL)
        if needed:
            paths["dot c2"].append(_box(x, y + _CELL - needed, needed))
        if garbage:
            heap = paths["dot c5" if cell.is_heavy else "dot c1"]
            heap.append(_box(x, y + _CELL - needed - garbage, garbage))
        if cell.has_corner:
            paths["corner"].append(f"M{x} {y}h{_CORNER}l-{_CORNER} {_CORNER}z")
        if cell.is_framed:
            paths["frame"].append(_box(x, y, _CELL))
        if cell.is_crossed:
            paths["frame"].append(f"M{x} {y}l{_CELL} {_CELL}m0 -{_CELL}l-{_CELL} {_CELL}")
        if cell.has_dot:
            middle = _CELL // 2
            paths["mid"].append(f"M{x + middle - 3} {y + middle}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z")
    return h.svg(viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=title)[
        [h.path(class_=name, d="".join(drawn)) for name, drawn in paths.items() if drawn]
    ]


def _height(share: float, most: float) -> int:
    """Pixels of a share, of which anything at all is seen, as far as there is room."""
    if share <= 0:
        return 0
    return min(max(_SEEN, round(share * _CELL)), round(most * _CELL))


def _box(x: int, y: int, height: int) -> str:
    return f"M{x} {y}h{_CELL}v{height}h-{_CELL}z"
