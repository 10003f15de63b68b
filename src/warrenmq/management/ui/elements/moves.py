"""Masters of queues that are to move from node to node."""

from collections.abc import Sequence
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.page import Page

# Moves that a table shows.
_SHOWN_MAX: Final = 100


def moves_table(page: Page, moves: Sequence[dict[str, Any]]) -> h.Node:
    """The moves of the API, the first of too many."""
    rows = [
        (copies_link(page, move), move["vhost"], move["source"], move["target"])
        for move in moves[:_SHOWN_MAX]
    ]
    return [
        plain_table("Masters that move", ("Queue", "Virtual host", "From", "To"), rows),
        more_than(len(moves), len(rows)),
    ]


def more_than(count: int, shown: int) -> h.Node:
    """How many of `count` things there are besides those shown."""
    return count > shown and h.p[f"{figures.count(count - shown)} more."]


def copies_link(page: Page, queue: dict[str, Any]) -> h.Element:
    """A link to the page of the copies of a queue of the API."""
    path = path_to(queue["vhost"], queue["name"])
    return h.a(href=page.link(f"/mirrors/{path}"))[queue["name"]]
