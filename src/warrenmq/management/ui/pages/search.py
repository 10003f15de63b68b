"""Search by name over queues, exchanges, connections and users."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import Row
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.exchanges.names import exchange_link, queue_link

router = APIRouter()

# Found objects that are shown of each kind.
_SHOWN: Final = 20


@router.get("/search")
async def search(page: PageOf, q: str = "") -> Response:
    """The page of what has `q` in its name, in the vhost of the picker or in all."""
    wanted = q.strip()
    if not wanted:
        return await page.show("Search", h.p(".none")["Type a part of a name into the box above."])
    queues = await _asked(page, "queues", wanted)
    exchanges = await _asked(page, "exchanges", wanted)
    connections = await _connections(page, wanted)
    users = await _users(page, wanted) if page.has_tag("administrator") else []
    return await page.show(
        f"Search for {wanted}",
        _section(
            page, "Queues", "/queues", wanted, queues["filtered_count"],
            [(queue_link(page, each["vhost"], each["name"]), f"in {each['vhost']}")
             for each in queues["items"]],
        ),
        _section(
            page, "Exchanges", "/exchanges", wanted, exchanges["filtered_count"],
            [(exchange_link(page, each["vhost"], each["name"]), f"in {each['vhost']}")
             for each in exchanges["items"]],
        ),
        _section(
            page, "Connections", "", wanted, len(connections),
            [(_connection(page, each), each.get("user_provided_name", ""))
             for each in connections[:_SHOWN]],
        ),
        page.has_tag("administrator") and _section(
            page, "Users", "", wanted, len(users),
            [(each["name"], ", ".join(each["tags"])) for each in users[:_SHOWN]],
        ),
    )  # fmt: skip


async def _asked(page: Page, path: str, wanted: str) -> Any:
    if page.vhost:
        path = f"{path}/{path_to(page.vhost)}"
    query = {
        "page": 1,
        "page_size": _SHOWN,
        "name": wanted,
        "columns": "name,vhost",
        "sort": "name",
    }
    return await page.api.get(path, query)


async def _connections(page: Page, wanted: str) -> list[Row]:
    """Connections by the name that their client gave, too, of which the API's filter knows not."""
    path = f"vhosts/{path_to(page.vhost)}/connections" if page.vhost else "connections"
    rows = await page.api.get(path, {"columns": "name,user_provided_name"})
    lowered = wanted.lower()
    return [
        row
        for row in rows
        if lowered in f"{row['name']}\n{row.get('user_provided_name', '')}".lower()
    ]


async def _users(page: Page, wanted: str) -> list[Row]:
    rows = await page.api.get("users", {"columns": "name,tags"})
    return [row for row in rows if wanted.lower() in row["name"].lower()]


def _connection(page: Page, row: Row) -> h.Element:
    return h.a(href=page.link(f"/connections/{path_to(row['name'])}"))[row["name"]]


def _section(
    page: Page, title: str, path: str, wanted: str, count: int, found: list[tuple[h.Node, str]]
) -> h.Node:
    """One kind of object; `path` is that of a list which filters by name."""
    left = count - len(found)
    return [
        h.h2[f"{title}: {figures.count(count)}"],
        h.ul[[h.li[link, f" {said}"] for link, said in found]],
        left > 0
        and h.p[
            f"{figures.count(left)} more. ",
            path and h.a(href=page.link(path, name=wanted))[f"All {title.lower()} of this name"],
        ],
    ]
