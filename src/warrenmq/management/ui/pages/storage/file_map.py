"""The files of a store as cells: how much of each is garbage, and what happens to it."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.cells import Cell, cell_map

# Rows of the table of a map.
_ROWS_MAX: Final = 20


class StoreFile(NamedTuple):
    """A file as the API gives it."""

    number: int
    size: int
    valid: int
    is_current: bool
    is_copied: bool
    is_pinned: bool
    readers: Sequence[str]

    @property
    def garbage(self) -> int:
        """Bytes that nothing needs."""
        return self.size - self.valid


def legend() -> h.Element:
    """What the marks of all maps mean."""
    return h.ul(".legend")[
        h.li[h.span(".key.c2"), "needed"],
        h.li[h.span(".key.c1"), "garbage"],
        h.li[h.span(".key.c5"), "garbage of a file that has more than half"],
        h.li["thick frame: is written to"],
        h.li["cross: is being copied"],
        h.li["corner: a backup takes it"],
        h.li["dot: is being read"],
    ]


def file_map(title: str, files: Sequence[Any], threshold: str = "") -> h.Element:
    """A map of `files`, rows of the API; `threshold` says from when on the node frees garbage."""
    known = [StoreFile(*row) for row in files]
    if not known:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["There are no files."]]
    size = sum([file.size for file in known])
    garbage = sum([file.garbage for file in known])
    return h.figure(".chart")[
        h.figcaption[title],
        cell_map(f"Files: {title}", [_cell(file) for file in known]),
        h.ul(".legend")[
            h.li[h.span(".key.c2"), "needed ", h.b[figures.size(size - garbage)]],
            h.li[
                h.span(".key.c1"),
                "garbage ",
                h.b[figures.size(garbage)],
                f" ({figures.percent(garbage, size)})",
            ],
        ],
        threshold and h.p(".note")[threshold],
        _table(title, known),
    ]


def _cell(file: StoreFile) -> Cell:
    return Cell(
        needed=file.valid / file.size if file.size else 0,
        garbage=file.garbage / file.size if file.size else 0,
        is_heavy=2 * file.garbage > file.size,
        is_framed=file.is_current,
        is_crossed=file.is_copied,
        has_corner=file.is_pinned,
        has_dot=bool(file.readers),
    )


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
    found = [
        text
        for is_so, text in (
            (file.is_current, "is written to"),
            (file.is_copied, "is being copied"),
            (file.is_pinned, "a backup takes it"),
        )
        if is_so
    ]
    return ", ".join([*found, *[f"is read for {name}" for name in file.readers]])
