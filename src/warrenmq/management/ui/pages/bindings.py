"""The bindings of a queue and those of an exchange: a picture, a table, and what changes them."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import (
    area_field,
    button_form,
    choice_field,
    folded_form,
    text_field,
)
from warrenmq.management.ui.elements.names import (
    DEFAULT,
    exchange_link,
    exchange_path,
    queue_link,
)
from warrenmq.management.ui.elements.picture import Arrow, arrows_picture
from warrenmq.management.ui.elements.tables import Column, Row, page_of, table
from warrenmq.management.ui.elements.values import HINT, read_values, shown_values
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

_OF_EXCHANGE: Final = "/exchanges/{vhost:segment}/{name:segment}"
_OF_QUEUE: Final = "/queues/{vhost:segment}/{name:segment}"
# The two ways of a binding: to an exchange, or from it to an exchange or a queue.
_FROM: Final = "from"
_KINDS: Final = (("q", "To the queue"), ("e", "To the exchange"), (_FROM, "From the exchange"))
_Text = Annotated[str, Form()]


async def bindings_of_exchange(page: Page, vhost: str, name: str) -> h.Node:
    """The bindings of the exchange `name`, both ways, and a form for a new one."""
    path = exchange_path(vhost, name)
    incoming, outgoing = await asyncio.gather(
        page.api.get(f"exchanges/{path}/bindings/destination"),
        page.api.get(f"exchanges/{path}/bindings/source"),
    )
    rows = [*incoming, *outgoing]
    title = f"Bindings to and from {name or DEFAULT}"
    picture = arrows_picture(
        title,
        name or DEFAULT,
        _from_sources(incoming),
        [
            Arrow(each["destination"], _label(each), each["destination_type"] == "queue")
            for each in outgoing
        ],
    )
    columns = _columns(page, f"/exchanges/{path}")
    return [
        page.live("bindings-picture", rows and picture),
        table(page, "bindings", columns, page_of(page, rows, len(rows)), _key),
        name
        and folded_form(
            page,
            "Add a binding",
            f"/exchanges/{path}/bind",
            "Bind",
            choice_field("kind", "Way", _KINDS),
            _binding_fields("Name"),
        ),
    ]


async def bindings_of_queue(page: Page, found: dict[str, Any]) -> h.Node:
    """The bindings of a queue of the API, and a form for a new one."""
    path = path_to(found["vhost"], found["name"])
    rows = await page.api.get(f"queues/{path}/bindings")
    arrows = _from_sources([each for each in rows if each["source"]])
    columns = [each for each in _columns(page, f"/queues/{path}") if each.title != "To"]
    return [
        page.live(
            "bindings-picture",
            arrows_picture("Bindings", found["name"], arrows, [], is_round=True)
            if arrows
            else None,
        ),
        table(page, "bindings", columns, page_of(page, rows, len(rows)), _key),
        folded_form(
            page,
            "Bind this queue to an exchange",
            f"/queues/{path}/bind",
            "Bind it",
            _binding_fields("Exchange"),
        ),
    ]


@router.post(f"{_OF_EXCHANGE}/bind")
async def bind_exchange(
    page: PageOf,
    vhost: str,
    name: str,
    kind: _Text,
    other: _Text,
    routing_key: _Text = "",
    arguments: _Text = "",
) -> Response:
    """Bind a queue or an exchange to the exchange of the page, or this to another one."""
    ends = ("e", other, "e", name) if kind == _FROM else ("e", name, kind, other)
    return await _bind(page, path_to(vhost, *ends), routing_key, arguments)


@router.post(f"{_OF_QUEUE}/bind")
async def bind_queue(
    page: PageOf,
    vhost: str,
    name: str,
    other: _Text,
    routing_key: _Text = "",
    arguments: _Text = "",
) -> Response:
    """Bind the queue of the page to an exchange."""
    return await _bind(page, path_to(vhost, "e", other, "q", name), routing_key, arguments)


@router.post(f"{_OF_EXCHANGE}/unbind")
@router.post(f"{_OF_QUEUE}/unbind")
async def unbind(
    page: PageOf,
    vhost: str,
    source: _Text,
    kind: _Text,
    destination: _Text,
    properties_key: _Text,
) -> Response:
    """Delete a binding, and go back to those of the page."""
    binding = path_to(vhost, "e", source, kind, destination, properties_key)
    await page.api.delete(f"bindings/{binding}")
    return _back(page, "Unbound.")


async def _bind(page: Page, ends: str, routing_key: str, arguments: str) -> Response:
    """Make a binding; `ends` is its path behind `bindings/`."""
    body = {"routing_key": routing_key, "arguments": read_values(arguments)}
    await page.api.post(f"bindings/{ends}", body)
    return _back(page, "Bound.")


def _back(page: Page, said: str) -> Response:
    """Back to the bindings of the queue or the exchange."""
    return page.go(page.path.rpartition("/")[0], said, tab="bindings")


def _columns(page: Page, place: str) -> list[Column]:
    """The columns of a table on the page `place`."""
    return [
        Column("From", lambda row: exchange_link(page, row["vhost"], row["source"])),
        Column("To", lambda row: _destination(page, row)),
        Column("Routing key", lambda row: row["routing_key"]),
        Column("Arguments", lambda row: shown_values(row["arguments"])),
        Column("Unbind", lambda row: _unbind_button(page, place, row)),
    ]


def _destination(page: Page, row: Row) -> h.Node:
    kind, name = row["destination_type"], row["destination"]
    link = queue_link if kind == "queue" else exchange_link
    return [f"{kind} ", link(page, row["vhost"], name)]


def _unbind_button(page: Page, place: str, row: Row) -> h.Node:
    """Bindings of the default exchange are those of the queues' names, and stay."""
    if not row["source"]:
        return None
    values = {
        "source": row["source"],
        "kind": "q" if row["destination_type"] == "queue" else "e",
        "destination": row["destination"],
        "properties_key": row["properties_key"],
    }
    label = f"Unbind {row['source']} {_label(row)} to {row['destination']}"
    return button_form(page, f"{place}/unbind", "Unbind", values, label)


def _binding_fields(other: str) -> h.Node:
    """The fields of a binding; `other` is the title of its other end."""
    return [
        text_field("other", other, is_needed=True),
        text_field("routing_key", "Routing key"),
        area_field("arguments", "Arguments", hint=HINT),
    ]


def _from_sources(rows: Sequence[Row]) -> list[Arrow]:
    return [Arrow(each["source"], _label(each), is_round=False) for each in rows]


def _key(row: Row) -> str:
    return " ".join(
        [row["source"], row["destination_type"], row["destination"], row["properties_key"]]
    )


def _label(row: Row) -> str:
    """The routing key, and the arguments in short."""
    arguments = ", ".join([f"{name}={value}" for name, value in row["arguments"].items()])
    return " ".join([each for each in (row["routing_key"], arguments) if each])
