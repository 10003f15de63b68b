"""One vhost: its figures, permissions, limits and description; for administrators."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.charts import Series, chart, rates
from warrenmq.management.ui.elements.forms import confirmation, form
from warrenmq.management.ui.elements.limits import limits_form, set_limits
from warrenmq.management.ui.elements.message_charts import queued_messages, rate_of
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.users.permissions import permissions_tab
from warrenmq.management.ui.pages.vhosts.all_vhosts import (
    queue_type,
    vhost_body,
    vhost_fields,
    vhost_state,
)
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

_LIMITS: Final = ("max-connections", "max-queues")
_TABS: Final = (
    ("overview", "Overview"),
    ("permissions", "Permissions"),
    ("topic-permissions", "Topic permissions"),
    ("limits", "Limits"),
    ("settings", "Description and tags"),
    ("delete", "Delete"),
)


@router.get("/vhosts/{vhost:segment}")
async def one_vhost(page: PageOf, vhost: str, tab: str = "overview") -> Response:
    """The page of one vhost."""
    path = f"vhosts/{path_to(vhost)}"
    found = await page.api.get(path, page.samples("lengths", "msg_rates", "data_rates"))
    if tab == "permissions":
        content = await permissions_tab(page, "permissions", vhost=vhost)
    elif tab == "topic-permissions":
        content = await permissions_tab(page, "topic-permissions", vhost=vhost)
    elif tab == "limits":
        rows = await page.api.get(f"vhost-limits/{path_to(vhost)}")
        content = limits_form(page, f"/{path}/limits", _LIMITS, rows[0]["value"] if rows else {})
    elif tab == "settings":
        content = form(page, f"/{path}", "Change", vhost_fields(found))
    elif tab == "delete":
        content = _deletion(page, found)
    else:
        content = [
            page.live("vhost-charts", _charts(page, found)),
            page.live("vhost-facts", _facts(found)),
        ]
    return await page.show(f"Virtual host {vhost}", tabs(page, _TABS), content)


@router.post("/vhosts/{vhost:segment}")
async def change(
    page: PageOf,
    vhost: str,
    description: Annotated[str, Form()] = "",
    tags: Annotated[str, Form()] = "",
    default_queue_type: Annotated[str, Form()] = "",
    tracing: Annotated[bool, Form()] = False,
) -> Response:
    """Change the description, tags, default type of queues and tracing of a vhost."""
    path = f"vhosts/{path_to(vhost)}"
    await page.api.put(path, vhost_body(description, tags, default_queue_type, tracing))
    return page.go(f"/{path}", f"Vhost {vhost} changed.")


@router.post("/vhosts/{vhost:segment}/limits")
async def change_limits(page: PageOf, vhost: str) -> Response:
    """Set and remove the limits of a vhost."""
    await set_limits(page, f"vhost-limits/{path_to(vhost)}", _LIMITS)
    return page.go(f"/vhosts/{path_to(vhost)}", f"Limits of {vhost} set.", tab="limits")


@router.post("/vhosts/{vhost:segment}/delete")
async def delete(page: PageOf, vhost: str, confirmed: Annotated[str, Form()]) -> Response:
    """Delete a vhost whose name was typed, with all that is in it."""
    path = f"vhosts/{path_to(vhost)}"
    if confirmed != vhost:
        return page.go(f"/{path}", "Not deleted: another name was typed.", tab="delete")
    await page.api.delete(path)
    # A page of the vhost that is gone would not come.
    return page.go("/vhosts", f"Vhost {vhost} deleted.", vhost=None)


def _charts(page: Page, found: dict[str, Any]) -> h.Element:
    stats, interval = found.get("message_stats", {}), RANGES[page.range][1]

    return h.div(".charts")[
        queued_messages(found, interval),
        chart(
            "Messages",
            [
                rate_of(stats, "publish", "Published", "c1"),
                rate_of(stats, "deliver_get", "Delivered and got", "c2"),
                rate_of(stats, "ack", "Acked", "c3"),
            ],
            interval,
            figures.rate,
        ),
        chart(
            "Bytes",
            [
                Series("From client", "c1", rates(found.get("recv_oct_details"))),
                Series("To client", "c2", rates(found.get("send_oct_details"))),
            ],
            interval,
            figures.size_rate,
        ),
    ]


def _facts(found: dict[str, Any]) -> h.Element:
    return figures_table(
        "Details",
        [
            ("State", vhost_state(found)),
            ("Ready", figures.count(found.get("messages_ready"))),
            ("Unacked", figures.count(found.get("messages_unacknowledged"))),
            ("Total", figures.count(found.get("messages"))),
            ("Description", found["description"] or figures.NONE),
            ("Tags", ", ".join(found["tags"]) or figures.NONE),
            ("Default queue type", queue_type(found)),
            ("Tracing", "on" if found["tracing"] else "off"),
        ],
    )


def _deletion(page: Page, found: dict[str, Any]) -> h.Element:
    name, messages = found["name"], figures.count(found.get("messages"))
    return confirmation(
        page,
        f"/vhosts/{path_to(name)}/delete",
        f"The vhost goes with its queues, exchanges, policies and permissions, and with "
        f"{messages} messages. Nothing brings them back.",
        name,
        "Delete",
    )
