"""The list of vhosts, with a form that adds one."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import (
    box_field,
    choice_field,
    folded_form,
    text_field,
)
from warrenmq.management.ui.elements.lists import show_list
from warrenmq.management.ui.elements.tables import Column, Row
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.users.all_users import some_names

router = APIRouter()

_QUEUE_TYPES = (("", "As the node's"), ("classic", "Classic"), ("quorum", "Quorum"))


@router.get("/vhosts")
async def vhosts(page: PageOf) -> Response:
    """The page of all vhosts that the user sees."""
    users: dict[str, list[str]] = {}
    if page.has_tag("administrator"):
        for row in await page.api.get("permissions", {"columns": "user,vhost"}):
            users.setdefault(row["vhost"], []).append(row["user"])
    return await show_list(
        page,
        "vhost",
        "vhosts",
        _columns(page, users),
        lambda row: row["name"],
        page.has_tag("administrator")
        and folded_form(
            page,
            "Add a vhost",
            "/vhosts",
            "Add",
            text_field("name", "Name", is_needed=True),
            vhost_fields({}),
        ),
    )


@router.post("/vhosts")
async def add(
    page: PageOf,
    name: Annotated[str, Form()],
    description: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "",
    default_queue_type: Annotated[str, Form()] = "",
    tracing: Annotated[bool, Form()] = False,
) -> Response:
    """Add a vhost; the user may do everything in it."""
    body = vhost_body(description, tags, default_queue_type, tracing)
    await page.api.put(f"vhosts/{path_to(name)}", body)
    return page.go("/vhosts", f"Vhost {name} added.")


def vhost_fields(found: Mapping[str, object]) -> h.Node:
    """The fields of a vhost of the API, or of a new one."""
    tags = found.get("tags")
    return [
        text_field("description", "Description", str(found.get("description", ""))),
        text_field(
            "tags",
            "Tags",
            ", ".join(tags) if isinstance(tags, list) else "",
            "With commas between them.",
        ),
        choice_field(
            "default_queue_type",
            "Type of queues that ask for none",
            _QUEUE_TYPES,
            str(found.get("default_queue_type", "")),
        ),
        box_field("tracing", "Tracing", bool(found.get("tracing"))),
    ]


def vhost_body(
    description: str, tags: str, default_queue_type: str, tracing: bool
) -> dict[str, object]:
    """A vhost as the API takes it."""
    return {
        "description": description,
        "tags": tags,
        "default_queue_type": default_queue_type,
        "tracing": tracing,
    }


def queue_type(row: Row) -> str:
    """The type of queues of a vhost that ask for none."""
    return dict(_QUEUE_TYPES).get(row["default_queue_type"], _QUEUE_TYPES[0][1])


def vhost_state(row: Row) -> h.Node:
    """The state of a vhost on each node; one word if it is the same on all."""
    states: dict[str, str] = row.get("cluster_state") or {}
    if len(set(states.values())) == 1:
        return _square(next(iter(states.values())))
    return h.ul(".values")[[h.li[f"{node}: ", _square(word)] for node, word in states.items()]]


def _square(word: str) -> h.Element:
    return h.span(class_=["state", word])[word]


def _columns(page: Page, users: Mapping[str, Sequence[str]]) -> list[Column]:
    def name(row: Row) -> h.Node:
        if not page.has_tag("administrator"):
            return str(row["name"])
        return h.a(href=page.link(f"/vhosts/{path_to(row['name'])}"))[row["name"]]

    columns = [
        Column("Name", name, "name"),
        Column("Users", lambda row: some_names(users.get(row["name"], ()))),
        Column("State", vhost_state),
        Column("Description", lambda row: row["description"], "description", is_optional=True),
        Column("Tags", lambda row: ", ".join(row["tags"]), is_optional=True),
        Column("Default queue type", queue_type, is_optional=True),
        Column("Tracing", lambda row: "●" if row["tracing"] else "○", "tracing", is_optional=True),
        _count("Ready", "messages_ready"),
        _count("Unacked", "messages_unacknowledged"),
        _count("Total", "messages"),
        _octets("From client", "recv_oct"),
        _octets("To client", "send_oct"),
        _rate("Publish", "publish"),
        _rate("Deliver / get", "deliver_get"),
    ]
    return columns if users else [column for column in columns if column.title != "Users"]


def _count(title: str, field: str) -> Column:
    return Column(title, lambda row: figures.count(row.get(field)), field, is_number=True)


def _octets(title: str, field: str) -> Column:
    name = f"{field}_details"
    return Column(
        title,
        lambda row: figures.size_rate(row.get(name, {}).get("rate")),
        f"{name}.rate",
        is_number=True,
    )


def _rate(title: str, field: str) -> Column:
    name = f"{field}_details"
    return Column(
        title,
        lambda row: figures.rate(row.get("message_stats", {}).get(name, {}).get("rate")),
        f"message_stats.{name}.rate",
        is_number=True,
    )
