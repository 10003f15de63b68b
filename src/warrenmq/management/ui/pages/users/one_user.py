"""One user: permissions, password, tags and limits."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import confirmation, form
from warrenmq.management.ui.elements.limits import limits_form, set_limits
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.users.fields import user_body, user_fields
from warrenmq.management.ui.pages.users.permissions import permissions_tab

router = APIRouter()

_LIMITS: Final = ("max-connections", "max-channels")
_TABS: Final = (
    ("permissions", "Permissions"),
    ("topic-permissions", "Topic permissions"),
    ("settings", "Password and tags"),
    ("limits", "Limits"),
    ("delete", "Delete"),
)


@router.get("/users/{user:segment}")
async def one_user(page: PageOf, user: str, tab: str = "permissions") -> Response:
    """The page of one user."""
    path = f"users/{path_to(user)}"
    found = await page.api.get(path)
    if tab == "topic-permissions":
        content = await permissions_tab(page, "topic-permissions", user=user)
    elif tab == "settings":
        content = form(page, f"/{path}", "Change", user_fields(False, found["tags"]))
    elif tab == "limits":
        content = limits_form(page, f"/{path}/limits", _LIMITS, found["limits"])
    elif tab == "delete":
        content = _deletion(page, user)
    else:
        content = await permissions_tab(page, "permissions", user=user)
    return await page.show(f"User {user}", _facts(page, found), tabs(page, _TABS), content)


@router.post("/users/{user:segment}")
async def change(page: PageOf, user: str) -> Response:
    """Change the password and the tags of a user."""
    path = f"users/{path_to(user)}"
    await page.api.put(path, user_body(await page.form()))
    return page.go(f"/{path}", f"User {user} changed.", tab="settings")


@router.post("/users/{user:segment}/limits")
async def change_limits(page: PageOf, user: str) -> Response:
    """Set and remove the limits of a user."""
    await set_limits(page, f"user-limits/{path_to(user)}", _LIMITS)
    return page.go(f"/users/{path_to(user)}", f"Limits of {user} set.", tab="limits")


@router.post("/users/{user:segment}/delete")
async def delete(page: PageOf, user: str, confirmed: Annotated[str, Form()]) -> Response:
    """Delete a user whose name was typed."""
    path = f"users/{path_to(user)}"
    if confirmed != user:
        return page.go(f"/{path}", "Not deleted: another name was typed.", tab="delete")
    await page.api.delete(path)
    return page.go("/users", f"User {user} deleted.")


def _facts(page: Page, found: dict[str, Any]) -> h.Node:
    has_password = "yes" if found["password_hash"] else "no"
    return [
        figures_table(
            "Details",
            [
                ("Tags", ", ".join(found["tags"]) or figures.NONE),
                ("Can log in with password", has_password),
                ("Limits", shown_values(found["limits"]) or figures.NONE),
            ],
        ),
        h.p[h.a(href=page.link("/rights", user=found["name"]))["What may this user do?"]],
    ]


def _deletion(page: Page, user: str) -> h.Element:
    return confirmation(
        page,
        f"/users/{path_to(user)}/delete",
        f"The user {user} goes, with all permissions and limits.",
        user,
        "Delete",
    )
