"""The segments of a queue's index as cells: how many of their messages are acked."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.cells import Cell, cell_map
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.page import Page

_TITLE: Final = "Segments of the index"
# Segments of a page: the API gives no more at once.
_PAGE_SIZE: Final = 500
_BAD_REQUEST: Final = 400
# A full segment is written again when no more than a quarter of it is pending.
_HEAVY: Final = 0.75
# Rows of the table.
_ROWS_MAX: Final = 20
_STATES: Final = {
    "full": "full",
    "part": "is written to",
    "rewriting": "is being copied without acked ones",
}


class Segment(NamedTuple):
    """A segment as the API gives it."""

    level: int
    number: int
    messages: int
    acked: int
    pending: int
    size: int
    state: str


async def segments(page: Page, vhost: str, queue: str) -> h.Element:
    """A page of the segments of a queue; the first one for a number that no page has."""
    try:
        found = await _found(page, vhost, queue)
    except ApiError as error:
        text = f"They are not shown: {error.reason}"
        return h.figure(".chart")[h.figcaption[_TITLE], h.p(".none")[text]]
    return _segments(page, found)


async def _found(page: Page, vhost: str, queue: str) -> dict[str, Any]:
    path = f"warren/queues/{path_to(vhost, queue)}/storage/segments"
    text = page.query.get("segments", "")
    if text.isdigit() and len(text) < 9:
        try:
            asked = {"page": int(text), "page_size": _PAGE_SIZE}
            found: dict[str, Any] = await page.api.get(path, asked)
            return found
        except ApiError as error:
            if error.status != _BAD_REQUEST:
                raise
    found = await page.api.get(path, {"page_size": _PAGE_SIZE})
    return found


def _segments(page: Page, found: dict[str, Any]) -> h.Element:
    known = [Segment(*row) for row in found["items"]]
    unindexed = found["unindexed"]
    if not known:
        text = (
            f"None: {figures.count(unindexed)} messages are in the journal or in memory alone."
            if unindexed
            else "None: the queue is empty."
        )
        return h.figure(".chart")[h.figcaption[_TITLE], h.p(".none")[text]]
    cells = [_cell(each, found["segment_entries"]) for each in known]
    is_last = found["page"] == found["page_count"]
    if unindexed and is_last:
        cells.append(Cell(0, 0, is_dashed=True))
    return h.figure(".chart")[
        h.figcaption[_TITLE],
        _pages(page, found),
        cell_map(_TITLE, cells),
        h.ul(".legend")[
            h.li[h.span(".key.c2"), "pending ", h.b[_sum(known, "pending")]],
            h.li[h.span(".key.c1"), "acked ", h.b[_sum(known, "acked")]],
            h.li[h.span(".key.c5"), "acked, of a segment with more than three quarters of them"],
            h.li["thick frame: is written to"],
            h.li["cross: is being copied without acked ones"],
            h.li["dashed frame: in no segment yet ", h.b[figures.count(unindexed)]],
        ],
        h.p(".note")[
            f"A segment has room for {figures.count(found['segment_entries'])} positions, the "
            "oldest first. It goes when all its messages are acked. What is in no segment is in "
            "the journal, or in memory alone."
        ],
        _table(known, unindexed if is_last else 0, found["total_count"]),
    ]


def _cell(segment: Segment, entries: int) -> Cell:
    return Cell(
        needed=segment.pending / entries,
        garbage=segment.acked / entries,
        is_heavy=segment.acked > _HEAVY * segment.messages,
        is_framed=segment.state == "part",
        is_crossed=segment.state == "rewriting",
    )


def _sum(known: Sequence[Segment], name: str) -> str:
    return figures.count(sum([getattr(each, name) for each in known]))


def _pages(page: Page, found: dict[str, Any]) -> h.Node:
    """Links to the other pages, if there are any."""
    at, last = found["page"], found["page_count"]
    if last == 1:
        return None
    return h.nav(".pages", aria_label="Pages of segments")[
        h.span[f"{figures.count(found['total_count'])} segments, page {at} of {last}"],
        at > 1 and h.a(href=page.url(segments=at - 1), rel="prev")["Previous"],
        at < last and h.a(href=page.url(segments=at + 1), rel="next")["Next"],
    ]


def _table(known: Sequence[Segment], unindexed: int, total: int) -> h.Element:
    """The oldest segments of the page, and the messages that are in none."""
    shown = known[:_ROWS_MAX]
    heads = ("Segment", "Priority", "Messages", "Acked", "Pending", "Size", "State")
    rows: list[Sequence[h.Node]] = [
        (
            str(each.number),
            str(each.level),
            figures.count(each.messages),
            figures.count(each.acked),
            figures.count(each.pending),
            figures.size(each.size),
            _STATES[each.state],
        )
        for each in shown
    ]
    if unindexed:
        count = figures.count(unindexed)
        rows.append(("none yet", "", count, "", count, "", "journal or memory"))
    return h.details[
        h.summary[f"As a table: {len(shown)} of {figures.count(total)} segments"],
        plain_table(_TITLE, heads, rows, heads[1:6]),
    ]
