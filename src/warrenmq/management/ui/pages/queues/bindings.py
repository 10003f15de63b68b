"""The bindings of a queue: a picture, a table, and forms to bind and unbind."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import area_field, folded, form, text_field
from warrenmq.management.ui.elements.picture import Arrow, arrows_picture
from warrenmq.management.ui.elements.values import HINT, read_values, shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.exchanges.names import exchange_link

router = APIRouter()

_BAD_REQUEST: Final = 400
_OF_QUEUE: Final = "/queues/{vhost:segment}/{queue:segment}"


@router.post(f"{_OF_QUEUE}/bind")
async def bind(
    page: PageOf,
    vhost: str,
    queue: str,
    exchange: Annotated[str, Form()],
    routing_key: Annotated[str, Form()] = "",
    arguments: Annotated[str, Form()] = "",
) -> Response:
    """Bind the queue to an exchange."""
    try:
        values = read_values(arguments)
    except ValueError as error:
        raise ApiError(_BAD_REQUEST, str(error)) from None
    body = {"routing_key": routing_key, "arguments": values}
    await page.api.post(f"bindings/{path_to(vhost)}/e/{path_to(exchange)}/q/{path_to(queue)}", body)
    place = f"/queues/{path_to(vhost, queue)}"
    return page.go(place, f"Bound to {exchange}.", tab="bindings")


@router.post(f"{_OF_QUEUE}/unbind")
async def unbind(
    page: PageOf,
    vhost: str,
    queue: str,
    exchange: Annotated[str, Form()],
    properties_key: Annotated[str, Form()],
) -> Response:
    """Take a binding away."""
    path = f"bindings/{path_to(vhost)}/e/{path_to(exchange)}/q/{path_to(queue, properties_key)}"
    await page.api.delete(path)
    place = f"/queues/{path_to(vhost, queue)}"
    return page.go(place, f"No longer bound to {exchange}.", tab="bindings")


async def bindings_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """The bindings of a queue of the API as a picture and a table, and a form for a new one."""
    place = path_to(found["vhost"], found["name"])
    rows = await page.api.get(f"queues/{place}/bindings")
    arrows = [
        Arrow(row["source"], row["routing_key"], is_round=False) for row in rows if row["source"]
    ]
    return [
        arrows_picture("Bindings", found["name"], arrows, [], is_round=True) if arrows else None,
        h.div(".wide", tabindex="0", role="region", aria_label="Bindings")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        [
                            h.th(scope="col")[title]
                            for title in ("From exchange", "Routing key", "Arguments", "")
                        ]
                    ]
                ],
                h.tbody[[_binding(page, place, found["vhost"], row) for row in rows]],
            ]
        ],
        folded(
            "Bind this queue to an exchange",
            form(
                page,
                f"/queues/{place}/bind",
                "Bind it",
                text_field("exchange", "Exchange", is_needed=True),
                text_field("routing_key", "Routing key"),
                area_field("arguments", "Arguments", hint=HINT),
            ),
        ),
    ]


def _binding(page: Page, place: str, vhost: str, row: dict[str, Any]) -> h.Element:
    source = row["source"]
    return h.tr[
        h.td[exchange_link(page, vhost, source)],
        h.td[row["routing_key"]],
        h.td[shown_values(row["arguments"])],
        h.td[
            source
            and h.form(action=page.link(f"/queues/{place}/unbind"), method="post")[
                h.input(type="hidden", name="exchange", value=source),
                h.input(type="hidden", name="properties_key", value=row["properties_key"]),
                h.button(type="submit", aria_label=f"Unbind {source} {row['routing_key']}")[
                    "Unbind"
                ],
            ]
        ],
    ]
