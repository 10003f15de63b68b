"""The list of mirrored queues, and what each node is to them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.moves import copies_link
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    filter_form,
    page_of,
    plain_table,
    state_square,
    table,
)
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@router.get("/mirrors")
async def mirrors(page: PageOf) -> Response:
    """The page of all mirrored queues that the user sees."""
    path = f"warren/mirrors/{path_to(page.vhost)}" if page.vhost else "warren/mirrors"
    query = {
        "sort": page.query.get("sort", "name"),
        "sort_reverse": page.query.get("sort_reverse", "false"),
    }
    rows = await page.api.get(path, query)
    wanted = page.query.get("name", "").lower()
    found = [row for row in rows if wanted in row["name"].lower()]
    return await page.show(
        "Mirrors",
        page.live("mirrors-nodes", _nodes(rows)),
        h.h2["Mirrored queues"],
        filter_form(page, "queue", has_patterns=False),
        table(page, "mirrors", _columns(page), page_of(page, found, len(rows)), _key),
        page.has_tag("monitoring")
        and h.p[h.a(href=page.link("/mirrors/rebalance"))["Rebalance the masters"]],
    )


def _key(row: Row) -> str:
    return f"{row['vhost']} {row['name']}"


def _columns(page: Page) -> list[Column]:
    return [
        Column("Queue", lambda row: copies_link(page, row), "name"),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
        Column("Type", lambda row: row["type"], "type"),
        Column("State", state_square, "state"),
        Column("Master", lambda row: row["leader"], "leader"),
        Column("Mirrors", _mirrors),
    ]


def _mirrors(row: Row) -> h.Node:
    """The nodes of mirrors: those in sync in blue, others in red and in words."""
    synchronised = _in_sync(row)
    return [
        h.span(".badge.blue")[node]
        if node in synchronised
        else h.span(".badge.bad")[f"{node}: not in sync"]
        for node in row["slave_nodes"]
    ]


def _in_sync(row: dict[str, Any]) -> set[str]:
    """Nodes of mirrors that have all messages and are reached."""
    return set(row["synchronised_slave_nodes"] or ()) & set(row["online"] or ())


def _nodes(rows: Sequence[dict[str, Any]]) -> h.Node:
    """By node, the masters and mirrors there, and the queues that have no other copy in sync."""
    masters = Counter([row["leader"] for row in rows])
    in_sync = Counter([node for row in rows for node in _in_sync(row)])
    lagging = Counter(
        [node for row in rows for node in row["slave_nodes"] if node not in _in_sync(row)]
    )
    alone = Counter([row["leader"] for row in rows if not _in_sync(row)])
    if not rows:
        return h.p(".none")[
            "No queue has mirrors. A policy with ha-mode adds them, in a cluster of several nodes."
        ]
    numbers = ("Masters", "Mirrors in sync", "Mirrors not in sync")
    found = [
        (
            node,
            figures.count(masters[node]),
            figures.count(in_sync[node]),
            figures.count(lagging[node]),
            _without(masters[node], alone[node]),
        )
        for node in sorted({*masters, *in_sync, *lagging})
    ]
    return plain_table("Nodes with copies", ("Node", *numbers, "If it stops now"), found, numbers)


def _without(masters: int, alone: int) -> h.Node:
    """What happens to the mirrored queues of a node when it stops."""
    if alone:
        return [
            h.span(".badge.bad")[f"no other copy in sync: {figures.count(alone)}"],
            " These queues are down then, or lose messages, as their policies say.",
        ]
    if masters:
        return "nothing is lost: mirrors in sync take over"
    return "nothing is lost: no master is here"
