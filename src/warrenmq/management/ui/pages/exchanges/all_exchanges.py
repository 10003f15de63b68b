"""The list of exchanges, with a form that adds one."""

from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import (
    area_field,
    box_field,
    choice_field,
    folded_form,
    text_field,
)
from warrenmq.management.ui.elements.lists import show_list
from warrenmq.management.ui.elements.names import exchange_link, exchange_path, features
from warrenmq.management.ui.elements.tables import Column, Row
from warrenmq.management.ui.elements.values import HINT, read_values
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@router.get("/exchanges")
async def exchanges(page: PageOf) -> Response:
    """The page of all exchanges that the user sees."""
    path = f"exchanges/{path_to(page.vhost)}" if page.vhost else "exchanges"
    form_to_add = None if page.is_refresh else await _form_to_add(page)
    return await show_list(page, "exchange", path, _columns(page), _key, form_to_add)


@router.post("/exchanges")
async def add(
    page: PageOf,
    in_vhost: Annotated[str, Form()],
    name: Annotated[str, Form()],
    type: Annotated[str, Form()],
    durable: Annotated[bool, Form()] = False,
    auto_delete: Annotated[bool, Form()] = False,
    internal: Annotated[bool, Form()] = False,
    alternate: Annotated[str, Form()] = "",
    arguments: Annotated[str, Form()] = "",
) -> Response:
    """Declare an exchange."""
    values = read_values(arguments)
    if alternate:
        values["alternate-exchange"] = alternate
    body = {
        "type": type,
        "durable": durable,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": values,
    }
    await page.api.put(f"exchanges/{path_to(in_vhost, name)}", body)
    return page.go(f"/exchanges/{path_to(in_vhost, name)}", f"There is an exchange {name}.")


def _key(row: Row) -> str:
    return exchange_path(row["vhost"], row["name"])


def _columns(page: Page) -> list[Column]:
    return [
        Column("Name", lambda row: exchange_link(page, row["vhost"], row["name"]), "name"),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
        Column("Type", lambda row: row["type"], "type"),
        Column("Features", features),
        _rate("Message rate in", "publish_in"),
        _rate("Message rate out", "publish_out"),
        _total("Messages in", "publish_in"),
        _total("Messages out", "publish_out"),
    ]


def _rate(title: str, field: str) -> Column:
    def shown(row: Row) -> str:
        details: dict[str, Any] = row.get("message_stats", {}).get(f"{field}_details", {})
        return figures.rate(details.get("rate"))

    return Column(title, shown, f"message_stats.{field}_details.rate", is_number=True)


def _total(title: str, field: str) -> Column:
    return Column(
        title,
        lambda row: figures.count(row.get("message_stats", {}).get(field)),
        f"message_stats.{field}",
        is_number=True,
        is_optional=True,
    )


async def _form_to_add(page: Page) -> h.Node:
    overview = await page.api.get("overview", {"columns": "exchange_types"})
    vhosts = await page.api.get("vhosts", {"columns": "name"})
    types = [each["name"] for each in overview["exchange_types"]]
    return folded_form(
        page,
        "Add an exchange",
        "/exchanges",
        "Add the exchange",
        choice_field(
            "in_vhost",
            "Virtual host",
            [(each["name"], each["name"]) for each in vhosts],
            page.vhost,
        ),
        text_field("name", "Name", is_needed=True),
        choice_field("type", "Type", [(each, each) for each in types], "direct"),
        box_field("durable", "Durable: it is there again after a restart", is_checked=True),
        box_field("auto_delete", "Auto-delete: it goes with its last binding"),
        box_field("internal", "Internal: clients cannot publish to it"),
        text_field("alternate", "Alternate exchange", hint="Gets what nothing is bound for here."),
        area_field("arguments", "Arguments", hint=HINT),
    )
