"""The files of a store as cells: how much of each is garbage, and what happens to it."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import htpy as h

from warrenmq.management.ui import figures

_CELL: Final = 18
_GAP: Final = 4
_COLUMNS: Final = 24
_WIDTH: Final = _COLUMNS * (_CELL + _GAP)
# Rows of the table of a map.
_ROWS_MAX: Final = 20


class StoreFile(NamedTuple):
    """A file as the API gives it."""

    number: int
    size: int
    valid: int
    is_current: bool
    is_copied: bool

    @property
    def garbage(self) -> int:
        """Bytes that nothing needs."""
        return self.size - self.valid


def file_map(title: str, files: Sequence[Any], threshold: str = "") -> h.Element:
    """A map of `files`, rows of the API; `threshold` says from when on the node frees garbage."""
    known = [StoreFile(*row) for row in files]
    if not known:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["There are no files."]]
    rows = -(-len(known) // _COLUMNS)
    height = rows * (_CELL + _GAP)
    size = sum([file.size for file in known])
    garbage = sum([file.garbage for file in known])
    return h.figure(".chart")[
        h.figcaption[title],
        h.svg(viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=f"Files: {title}")[
            _cells(known)
        ],
        h.ul(".legend")[
            h.li[h.span(".key.c2"), "needed ", h.b[figures.size(size - garbage)]],
            h.li[
                h.span(".key.c1"),
                "garbage ",
                h.b[figures.size(garbage)],
                f" ({figures.percent(garbage, size)})",
            ],
            h.li[h.span(".key.c5"), "garbage of a file that has more than half"],
            h.li["thick frame: is written to"],
            h.li["cross: is being copied"],
        ],
        threshold and h.p(".note")[threshold],
        _table(title, known),
    ]


def _cells(files: Sequence[StoreFile]) -> h.Node:
    """All cells as few paths, since a store may have thousands of files.

    A cell is as full as its file: what is needed at the bottom, garbage at the top.
    """
    needed: list[str] = []
    light: list[str] = []
    heavy: list[str] = []
    current: list[str] = []
    copied: list[str] = []
    for place, file in enumerate(files):
        x = place % _COLUMNS * (_CELL + _GAP) + _GAP // 2
        y = place // _COLUMNS * (_CELL + _GAP) + _GAP // 2
        needed.append(f"M{x} {y}h{_CELL}v{_CELL}h-{_CELL}z")
        share = file.garbage / file.size if file.size else 0
        depth = round(share * _CELL)
        if depth:
            garbage = heavy if share > 0.5 else light
            garbage.append(f"M{x} {y}h{_CELL}v{depth}h-{_CELL}z")
        if file.is_current:
            current.append(f"M{x} {y}h{_CELL}v{_CELL}h-{_CELL}z")
        if file.is_copied:
            copied.append(f"M{x} {y}l{_CELL} {_CELL}m0 -{_CELL}l-{_CELL} {_CELL}")
    return [
        h.path(class_=classes, d="".join(cells))
        for classes, cells in (
            ("dot c2", needed),
            ("dot c1", light),
            ("dot c5", heavy),
            ("frame", current),
            ("frame", copied),
        )
        if cells
    ]


def _table(title: str, files: Sequence[StoreFile]) -> h.Element:
    """The files with most garbage."""
    worst = sorted(files, key=lambda file: (-file.garbage, file.number))[:_ROWS_MAX]
    heads = ("File", "Size", "Needed", "Garbage", "Share", "State")
    return h.details[
        h.summary[f"As a table: {len(worst)} of {figures.count(len(files))} files"],
        h.table[
            h.caption(".hidden")[f"{title}, most garbage first"],
            h.thead[h.tr[[h.th(scope="col")[head] for head in heads]]],
            h.tbody[
                [
                    h.tr[
                        h.th(scope="row")[str(file.number)],
                        h.td(".number")[figures.size(file.size)],
                        h.td(".number")[figures.size(file.valid)],
                        h.td(".number")[figures.size(file.garbage)],
                        h.td(".number")[figures.percent(file.garbage, file.size)],
                        h.td[_use_of(file)],
                    ]
                    for file in worst
                ]
            ],
        ],
    ]


def _use_of(file: StoreFile) -> str:
    if file.is_copied:
        return "is being copied"
    return "is written to" if file.is_current else ""
