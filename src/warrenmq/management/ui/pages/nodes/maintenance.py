"""Maintenance of a node: what it means for clients and queues, its begin and its end."""

from collections import Counter
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import confirmation, form
from warrenmq.management.ui.elements.moves import more_than, moves_table
from warrenmq.management.ui.elements.names import queue_link
from warrenmq.management.ui.elements.tables import figures_table, plain_table
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

# Clients and queues that a list shows.
_SHOWN_MAX: Final = 100

Plan = dict[str, Any]


@router.get("/nodes/{name:segment}/drain")
async def maintenance(page: PageOf, name: str) -> Response:
    """The page of what maintenance means for the node, or of what is left on it."""
    plan = await page.api.get(f"warren/nodes/{path_to(name)}/drain")
    if plan["being_drained"]:
        return await page.show(
            f"Maintenance of {name}",
            page.live("drain-plan", _what_is_left(plan)),
            page.has_tag("administrator")
            and form(page, f"/nodes/{path_to(name)}/revive", "End the maintenance"),
            page.live("drain-details", _details(page, plan)),
        )
    return await _ask(page, name, plan)


@router.post("/nodes/{name:segment}/drain")
async def drain(page: PageOf, name: str, confirmed: Annotated[str, Form()] = "") -> Response:
    """Begin the maintenance once the name is typed."""
    path = f"warren/nodes/{path_to(name)}/drain"
    if confirmed != name:
        return await _ask(page, name, await page.api.get(path))
    await page.api.post(path)
    return page.go(f"/nodes/{path_to(name)}/drain", f"Node {name} is in maintenance mode.")


@router.post("/nodes/{name:segment}/revive")
async def revive(page: PageOf, name: str) -> Response:
    """End the maintenance."""
    await page.api.post(f"warren/nodes/{path_to(name)}/revive")
    return page.go(
        f"/nodes/{path_to(name)}",
        f"Node {name} takes clients again. Rebalance brings masters back to it.",
    )


async def _ask(page: Page, name: str, plan: Plan) -> Response:
    return await page.show(
        f"Maintenance of {name}",
        h.p[
            "In maintenance mode a node has no clients and gets no new queues: for an upgrade or a "
            "restart. It ends with End the maintenance, or with the next start of the node."
        ],
        page.live("drain-plan", _summary(plan)),
        page.has_tag("administrator")
        and confirmation(
            page,
            f"/nodes/{path_to(name)}/drain",
            f"{figures.count(len(plan['connections']))} connections to {name} will be closed, and "
            f"{figures.count(len(plan['moves']))} masters move away.",
            name,
            "Begin the maintenance",
        ),
        page.live("drain-details", _details(page, plan)),
    )


def _summary(plan: Plan) -> h.Node:
    targets = Counter([move["target"] for move in plan["moves"]])
    bare = [queue for queue in plan["staying"] if not queue["is_mirrored"]]
    without = len(plan["staying"]) - len(bare)
    return figures_table(
        "What happens",
        [
            ("Connections that are closed", figures.count(len(plan["connections"]))),
            *[
                (f"Masters that move to {node}", figures.count(count))
                for node, count in sorted(targets.items())
            ],
            ("Mirrored queues that stay, without a mirror in sync", figures.count(without)),
            ("Queues that stay, without mirrors", figures.count(len(bare))),
        ],
    )


def _what_is_left(plan: Plan) -> h.Node:
    """What is left on a node in maintenance."""
    left = len(plan["connections"]) + len(plan["moves"])
    said = (
        f"In maintenance: {figures.count(len(plan['moves']))} masters and "
        f"{figures.count(len(plan['connections']))} connections are about to go."
        if left
        else "In maintenance: clients and movable masters are gone."
    )
    stays = len(plan["staying"])
    warning = f"Queues that are down while the node is stopped: {figures.count(stays)}."
    return [h.p(".note")[said], stays > 0 and h.p(".alarm")[warning]]


def _details(page: Page, plan: Plan) -> h.Node:
    return [
        plan["moves"] and [h.h2["Masters that move"], moves_table(page, plan["moves"])],
        plan["staying"] and _staying(page, plan["staying"]),
        plan["connections"] and _clients(page, plan["connections"]),
    ]


def _staying(page: Page, queues: list[dict[str, Any]]) -> h.Node:
    rows = [
        (
            queue_link(page, each["vhost"], each["name"]),
            each["vhost"],
            "no mirror in sync" if each["is_mirrored"] else "no mirrors",
        )
        for each in queues[:_SHOWN_MAX]
    ]
    return [
        h.h2["Queues that stay"],
        h.p(".note")[
            "They go on for clients of other nodes, and are down while the node is stopped. "
            "A mirrored one moves as soon as a mirror is in sync."
        ],
        plain_table("Queues that stay", ("Queue", "Virtual host", "Why"), rows),
        more_than(len(queues), len(rows)),
    ]


def _clients(page: Page, clients: list[dict[str, Any]]) -> h.Node:
    rows = [
        (
            h.a(href=page.link(f"/connections/{path_to(each['name'])}"))[each["name"]],
            each["user"],
            each["vhost"],
        )
        for each in clients[:_SHOWN_MAX]
    ]
    return [
        h.h2["Connections that are closed"],
        plain_table("Connections that are closed", ("Name", "User", "Virtual host"), rows),
        more_than(len(clients), len(rows)),
    ]
