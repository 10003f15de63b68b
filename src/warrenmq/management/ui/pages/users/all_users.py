"""The list of users, with a form that adds one."""

from collections.abc import Iterable

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import folded_form, text_field
from warrenmq.management.ui.elements.lists import show_list
from warrenmq.management.ui.elements.tables import Column, Row
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.users.fields import user_body, user_fields

router = APIRouter()

# Names that a cell shows.
_NAMES_MAX = 5


@router.get("/users")
async def users(page: PageOf) -> Response:
    """The page of all users."""
    vhosts: dict[str, list[str]] = {}
    for row in await page.api.get("permissions", {"columns": "user,vhost"}):
        vhosts.setdefault(row["user"], []).append(row["vhost"])
    return await show_list(
        page,
        "user",
        "users",
        _columns(page, vhosts),
        lambda row: row["name"],
        h.p[h.a(href=page.link("/rights"))["What may a user do?"]],
        folded_form(
            page,
            "Add a user",
            "/users",
            "Add",
            text_field("name", "Name", is_needed=True),
            user_fields(is_new=True),
        ),
    )


@router.post("/users")
async def add(page: PageOf) -> Response:
    """Add a user."""
    fields = await page.form()
    name = str(fields.get("name", ""))
    await page.api.put(f"users/{path_to(name)}", user_body(fields))
    said = f"User {name} added; it may enter no vhost before it has permissions there."
    return page.go(f"/users/{path_to(name)}", said)


def some_names(names: Iterable[str]) -> str:
    """The first few of the names, and how many there are besides."""
    ordered = sorted(names)
    more = len(ordered) - _NAMES_MAX
    shown = ", ".join(ordered[:_NAMES_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


def _columns(page: Page, vhosts: dict[str, list[str]]) -> list[Column]:
    def name(row: Row) -> h.Element:
        return h.a(href=page.link(f"/users/{path_to(row['name'])}"))[row["name"]]

    def entered(row: Row) -> h.Node:
        found = vhosts.get(row["name"])
        return some_names(found) if found else h.span(".badge.bad")["No access"]

    return [
        Column("Name", name, "name"),
        Column("Tags", lambda row: ", ".join(row["tags"])),
        Column("Can access virtual hosts", entered),
        Column("Has password", lambda row: "●" if row["password_hash"] else "○"),
        Column("Limits", lambda row: shown_values(row["limits"])),
    ]
