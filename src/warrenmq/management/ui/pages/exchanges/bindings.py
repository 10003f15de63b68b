"""The bindings of an exchange: a picture, a table, and forms to bind and unbind."""

import asyncio
from typing import Annotated, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import (
    area_field,
    choice_field,
    folded,
    form,
    text_field,
)
from warrenmq.management.ui.elements.picture import Arrow, arrows_picture
from warrenmq.management.ui.elements.tables import Column, Row, page_of, table
from warrenmq.management.ui.elements.values import HINT, read_values, shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.exchanges.names import (
    DEFAULT,
    exchange_link,
    exchange_path,
    queue_link,
)

router = APIRouter()

_PAGE: Final = "/exchanges/{vhost:segment}/{exchange:segment}"
# The two ways of a binding: to this exchange, or from it to an exchange or a queue.
_FROM: Final = "from"
_KINDS: Final = (("q", "To the queue"), ("e", "To the exchange"), (_FROM, "From the exchange"))


async def bindings_tab(page: Page, vhost: str, name: str) -> h.Node:
    """The bindings of the exchange `name`, both ways."""
    path = f"exchanges/{exchange_path(vhost, name)}/bindings"
    incoming, outgoing = await asyncio.gather(
        page.api.get(f"{path}/destination"), page.api.get(f"{path}/source")
    )
    rows = [*incoming, *outgoing]
    title = f"Bindings to and from {name or DEFAULT}"
    picture = arrows_picture(
        title,
        name or DEFAULT,
        [Arrow(each["source"], _label(each), False) for each in incoming],
        [
            Arrow(each["destination"], _label(each), each["destination_type"] == "queue")
            for each in outgoing
        ],
    )
    return [
        page.live("bindings-picture", rows and picture),
        table(page, "bindings", _columns(page, name), page_of(page, rows, len(rows)), _key),
        name and _form_to_bind(page, vhost, name),
    ]


@router.post(f"{_PAGE}/bind")
async def bind(
    page: PageOf,
    vhost: str,
    exchange: str,
    kind: Annotated[str, Form()],
    other: Annotated[str, Form()],
    routing_key: Annotated[str, Form()] = "",
    arguments: Annotated[str, Form()] = "",
) -> Response:
    """Bind a queue or an exchange to the exchange of the page, or this to another one."""
    try:
        values = read_values(arguments)
    except ValueError as error:
        raise ApiError(400, f"Arguments: {error}") from None
    ends = ("e", other, "e", exchange) if kind == _FROM else ("e", exchange, kind, other)
    body = {"routing_key": routing_key, "arguments": values}
    await page.api.post(f"bindings/{path_to(vhost, *ends)}", body)
    return page.go(f"/exchanges/{path_to(vhost, exchange)}", "Bound.", tab="bindings")


@router.post(f"{_PAGE}/unbind")
async def unbind(
    page: PageOf,
    vhost: str,
    exchange: str,
    source: Annotated[str, Form()],
    kind: Annotated[str, Form()],
    destination: Annotated[str, Form()],
    properties_key: Annotated[str, Form()],
) -> Response:
    """Delete a binding from or to the exchange, and go back to its bindings."""
    binding = path_to(vhost, "e", source, kind, destination, properties_key)
    await page.api.delete(f"bindings/{binding}")
    return page.go(f"/exchanges/{path_to(vhost, exchange)}", "Unbound.", tab="bindings")


def _columns(page: Page, name: str) -> list[Column]:
    columns = [
        Column("From", lambda row: exchange_link(page, row["vhost"], row["source"])),
        Column("To", lambda row: _destination(page, row)),
        Column("Routing key", lambda row: row["routing_key"]),
        Column("Arguments", lambda row: shown_values(row["arguments"])),
    ]
    return [*columns, Column("Unbind", lambda row: _unbind_button(page, name, row))]


def _destination(page: Page, row: Row) -> h.Node:
    kind, name = row["destination_type"], row["destination"]
    link = queue_link if kind == "queue" else exchange_link
    return [f"{kind} ", link(page, row["vhost"], name)]


def _unbind_button(page: Page, name: str, row: Row) -> h.Node:
    """Bindings of the default exchange are those of the queues' names, and stay."""
    if not row["source"]:
        return None
    kind = "q" if row["destination_type"] == "queue" else "e"
    fields = {
        "source": row["source"],
        "kind": kind,
        "destination": row["destination"],
        "properties_key": row["properties_key"],
    }
    path = f"/exchanges/{exchange_path(row['vhost'], name)}/unbind"
    return h.form(action=page.link(path), method="post")[
        [h.input(type="hidden", name=each, value=value) for each, value in fields.items()],
        h.button(type="submit", aria_label=f"Unbind {_label(row)} to {row['destination']}")[
            "Unbind"
        ],
    ]


def _key(row: Row) -> str:
    return " ".join(
        [row["source"], row["destination_type"], row["destination"], row["properties_key"]]
    )


def _label(row: Row) -> str:
    """The routing key, and the arguments in short."""
    arguments = ", ".join([f"{name}={value}" for name, value in row["arguments"].items()])
    return " ".join([each for each in (row["routing_key"], arguments) if each])


def _form_to_bind(page: Page, vhost: str, name: str) -> h.Element:
    return folded(
        "Add a binding",
        form(
            page,
            f"/exchanges/{path_to(vhost, name)}/bind",
            "Bind",
            choice_field("kind", "Way", _KINDS),
            text_field("other", "Name", is_needed=True),
            text_field("routing_key", "Routing key"),
            area_field("arguments", "Arguments", hint=HINT),
        ),
    )
