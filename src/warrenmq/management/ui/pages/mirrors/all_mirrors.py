"""The list of mirrored queues, and what each node is to them."""

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.lists import filtered_list
from warrenmq.management.ui.elements.moves import copies_link
from warrenmq.management.ui.elements.tables import Column, Row, plain_table, state_square
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@router.get("/mirrors")
async def mirrors(page: PageOf) -> Response:
    """The page of all mirrored queues that the user sees."""
    below = f"/{path_to(page.vhost)}" if page.vhost else ""
    nodes = await page.api.get(f"warren/copies{below}")
    return await page.show(
        "Mirrors",
        page.live("mirrors-nodes", _nodes(nodes)),
        h.h2["Mirrored queues"],
        await filtered_list(
            page, "queue", "mirrors", f"warren/mirrors{below}", _columns(page), _key
        ),
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
    synchronised = set(row["synchronised_slave_nodes"] or ()) & set(row["online"] or ())
    return [
        h.span(".badge.blue")[node]
        if node in synchronised
        else h.span(".badge.bad")[f"{node}: not in sync"]
        for node in row["slave_nodes"]
    ]


def _nodes(nodes: list[Row]) -> h.Node:
    """By node, the masters and mirrors there, and the queues that have no other copy in sync."""
    if not nodes:
        return h.p(".none")[
            "No queue has mirrors. A policy with ha-mode adds them, in a cluster of several nodes."
        ]
    numbers = ("Masters", "Mirrors in sync", "Mirrors not in sync")
    found = [
        (
            row["name"],
            figures.count(row["masters"]),
            figures.count(row["mirrors_in_sync"]),
            figures.count(row["mirrors_not_in_sync"]),
            _without(row),
        )
        for row in nodes
    ]
    return plain_table("Nodes with copies", ("Node", *numbers, "If it stops now"), found, numbers)


def _without(row: Row) -> h.Node:
    """What happens to the mirrored queues of a node when it stops."""
    if row["masters_alone"]:
        return [
            h.span(".badge.bad")[f"no other copy in sync: {figures.count(row['masters_alone'])}"],
            " These queues are down then, or lose messages, as their policies say.",
        ]
    if row["masters"]:
        return "nothing is lost: mirrors in sync take over"
    return "nothing is lost: no master is here"
