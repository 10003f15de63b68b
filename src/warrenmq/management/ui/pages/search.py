"""Search by name over queues, exchanges, connections and users."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.names import exchange_link, queue_link
from warrenmq.management.ui.elements.tables import Row
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

# Found objects that are shown of each kind.
_SHOWN: Final = 20


@router.get("/search")
async def search(page: PageOf, q: str = "") -> Response:
    """The page of what has `q` in its name, in the vhost of the picker or in all."""
    wanted = q.strip()
    if not wanted:
        return await page.show("Search", h.p(".none")["Type a part of a name into the box above."])
    below = f"/{path_to(page.vhost)}" if page.vhost else ""
    queues = await _asked(page, f"queues{below}", wanted, "name,vhost")
    exchanges = await _asked(page, f"exchanges{below}", wanted, "name,vhost")
    connections = await _asked(
        page,
        f"vhosts{below}/connections" if below else "connections",
        wanted,
        "name,user_provided_name",
    )
    is_administrator = page.has_tag("administrator")
    users = await _asked(page, "users", wanted, "name,tags") if is_administrator else None
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
            page, "Connections", "/connections", wanted, connections["filtered_count"],
            [(_connection(page, each), each.get("user_provided_name", ""))
             for each in connections["items"]],
        ),
        users and _section(
            page, "Users", "/users", wanted, users["filtered_count"],
            [(_user(page, each), ", ".join(each["tags"])) for each in users["items"]],
        ),
    )  # fmt: skip


async def _asked(page: Page, path: str, wanted: str, columns: str) -> Any:
    """The first page of a list of the API, filtered by name."""
    query = {
        "page": 1,
        "page_size": _SHOWN,
        "name": wanted,
        "columns": columns,
        "sort": "name",
    }
    return await page.api.get(path, query)


def _user(page: Page, row: Row) -> h.Element:
    return h.a(href=page.link(f"/users/{path_to(row['name'])}"))[row["name"]]


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
            h.a(href=page.link(path, name=wanted))[f"All {title.lower()} of this name"],
        ],
    ]
