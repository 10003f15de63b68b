"""Spreads the masters of mirrored queues over the nodes, with the moves shown first."""

from collections import Counter
from typing import Any

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.forms import form
from warrenmq.management.ui.elements.moves import moves_table
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@router.get("/mirrors/rebalance")
async def preview(page: PageOf) -> Response:
    """The page of the moves that spread the masters."""
    plan = await page.api.get("warren/rebalance")
    return await page.show(
        "Rebalance the masters",
        h.p[
            "The masters of mirrored queues are spread evenly over the nodes that run and are not "
            "in maintenance. A master moves to a mirror in sync only; publishes that wait for a "
            "confirm at that moment are refused, and unacked messages come again."
        ],
        None if page.is_refresh else _plan(page, plan),
    )


@router.post("/mirrors/rebalance")
async def rebalance(page: PageOf) -> Response:
    """Spread the masters over the nodes."""
    await page.api.post("rebalance/queues")
    return page.go("/mirrors", "The masters are spread over the nodes.")


def _plan(page: Page, plan: dict[str, Any]) -> h.Node:
    moves = plan["moves"]
    now = Counter(plan["masters"])
    then = Counter(now)
    then.subtract([move["source"] for move in moves])
    then.update([move["target"] for move in moves])
    rows = [
        (node, figures.count(now[node]), figures.count(then[node]))
        for node in sorted({*now, *then})
    ]
    if not moves:
        return h.p(".none")[
            "Nothing moves: the masters are as even as their mirrors in sync allow."
        ]
    numbers = ("Masters now", "Masters then")
    return [
        plain_table("Masters by node", ("Node", *numbers), rows, numbers),
        page.has_tag("administrator") and form(page, "/mirrors/rebalance", "Rebalance"),
        h.h2[f"Masters that move: {figures.count(len(moves))}"],
        moves_table(page, moves),
    ]
