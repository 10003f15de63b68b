"""Permissions and topic permissions, on the page of a user and on that of a vhost."""

from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import form, form_around, text_field
from warrenmq.management.ui.elements.tables import Column, Row, page_query, table
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

Kind = Literal["permissions", "topic-permissions"]

# What the form says before anybody has typed.
_ALL: Final = ".*"
_PATTERN: Final = "A regular expression, looked for anywhere in the name; empty: no name."


async def permissions_tab(page: Page, kind: Kind, user: str = "", vhost: str = "") -> h.Node:
    """The permissions of a user, or those in a vhost, and forms that set and clear them."""
    path = f"users/{path_to(user)}" if user else f"vhosts/{path_to(vhost)}"
    found = await page.api.get(f"{path}/{kind}", page_query(page, "user" if vhost else "vhost"))
    columns = [_vhost_column(page) if user else _user_column(page), *_patterns(kind)]
    return [
        form_around(
            page,
            f"/{path}/{kind}/clear",
            table(page, kind, columns, found, _key, select="chosen"),
            found["items"] and h.p[h.button(".danger", type="submit")["Clear the chosen ones"]],
        ),
        h.h2["Set permissions" if kind == "permissions" else "Set topic permissions"],
        form(
            page,
            f"/{path}/{kind}",
            "Set",
            _hidden_or_field("user", "User", user),
            _hidden_or_field("in_vhost", "Virtual host", vhost, page.vhost),
            _pattern_fields(kind),
        ),
    ]


@router.post("/users/{name:segment}/permissions")
@router.post("/vhosts/{name:segment}/permissions")
async def set_permissions(
    page: PageOf,
    user: Annotated[str, Form()],
    in_vhost: Annotated[str, Form()],
    configure: Annotated[str, Form()] = "",
    write: Annotated[str, Form()] = "",
    read: Annotated[str, Form()] = "",
) -> Response:
    """Set the permissions of a user in a vhost."""
    body = {"configure": configure, "write": write, "read": read}
    await page.api.put(f"permissions/{path_to(in_vhost, user)}", body)
    return _back(page, f"Permissions of {user} in {in_vhost} set.")


@router.post("/users/{name:segment}/topic-permissions")
@router.post("/vhosts/{name:segment}/topic-permissions")
async def set_topic_permissions(
    page: PageOf,
    user: Annotated[str, Form()],
    in_vhost: Annotated[str, Form()],
    exchange: Annotated[str, Form()],
    write: Annotated[str, Form()] = "",
    read: Annotated[str, Form()] = "",
) -> Response:
    """Set the permissions of a user at a topic exchange."""
    body = {"exchange": exchange, "write": write, "read": read}
    await page.api.put(f"topic-permissions/{path_to(in_vhost, user)}", body)
    return _back(page, f"Topic permissions of {user} at {exchange} set.", "topic-permissions")


@router.post("/users/{name:segment}/{kind}/clear")
@router.post("/vhosts/{name:segment}/{kind}/clear")
async def clear(page: PageOf, kind: Kind) -> Response:
    """Clear the chosen permissions."""
    chosen = [str(each) for each in (await page.form()).getlist("chosen")]
    for key in chosen:
        segments = [unquote(segment) for segment in key.split("/")]
        await page.api.delete(f"{kind}/{path_to(*segments)}")
    return page.go(page.path.rsplit("/", 2)[0], f"{len(chosen)} cleared.", tab=kind)


def _back(page: Page, said: str, tab: str = "permissions") -> Response:
    """Back to the page of the user or the vhost."""
    return page.go(page.path.rpartition("/")[0], said, tab=tab)


def _patterns(kind: Kind) -> list[Column]:
    rights = ["configure", "write", "read"] if kind == "permissions" else ["write", "read"]
    columns = [_pattern_column(right) for right in rights]
    if kind == "topic-permissions":
        return [Column("Exchange", lambda row: row["exchange"], "exchange"), *columns]
    return columns


def _pattern_column(right: str) -> Column:
    def cell(row: Row) -> h.Element:
        return h.code[row[right]] if row[right] else h.span(".none")["empty"]

    return Column(f"{right.capitalize()} regexp", cell, right)


def _vhost_column(page: Page) -> Column:
    def cell(row: Row) -> h.Element:
        return h.a(href=page.link(f"/vhosts/{path_to(row['vhost'])}"))[row["vhost"]]

    return Column("Virtual host", cell, "vhost")


def _user_column(page: Page) -> Column:
    def cell(row: Row) -> h.Element:
        return h.a(href=page.link(f"/users/{path_to(row['user'])}"))[row["user"]]

    return Column("User", cell, "user")


def _key(row: dict[str, Any]) -> str:
    exchange = [row["exchange"]] if "exchange" in row else []
    return path_to(row["vhost"], row["user"], *exchange)


def _hidden_or_field(name: str, label: str, value: str, proposed: str = "") -> h.Node:
    """The value if the page has it, or else a field."""
    if value:
        return h.input(type="hidden", name=name, value=value)
    return text_field(name, label, proposed, is_needed=True)


def _pattern_fields(kind: Kind) -> h.Node:
    if kind == "topic-permissions":
        hint = "Looked for in routing keys; {username} and {vhost} stand for their names."
        return [
            text_field("exchange", "Topic exchange", is_needed=True),
            text_field("write", "Write regexp", _ALL, hint),
            text_field("read", "Read regexp", _ALL, hint),
        ]
    return [
        text_field("configure", "Configure regexp", _ALL, _PATTERN),
        text_field("write", "Write regexp", _ALL, _PATTERN),
        text_field("read", "Read regexp", _ALL, _PATTERN),
    ]
