"""One exchange: its rates, bindings, and forms to publish, to try a route and to delete."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.charts import Series, chart, rates
from warrenmq.management.ui.elements.forms import area_field, box_field, form, text_field
from warrenmq.management.ui.elements.names import (
    DEFAULT,
    exchange_path,
    features,
    queue_link,
)
from warrenmq.management.ui.elements.publishing import message_fields, message_of
from warrenmq.management.ui.elements.tables import Row, figures_table
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.elements.values import HINT, read_values, shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.bindings import bindings_of_exchange
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

_PAGE: Final = "/exchanges/{vhost:segment}/{exchange:segment}"
_TABS: Final[tuple[tuple[str, str], ...]] = (
    ("", "Overview"),
    ("bindings", "Bindings"),
    ("route", "Try a route"),
    ("publish", "Publish"),
    ("delete", "Delete"),
)


@router.get(_PAGE)
async def exchange(page: PageOf, vhost: str, exchange: str) -> Response:
    """The page of one exchange; `amq.default` is the default one."""
    path = f"exchanges/{exchange_path(vhost, exchange)}"
    found = await page.api.get(path, page.samples("msg_rates"))
    tab = page.query.get("tab", "")
    if tab == "bindings":
        content: h.Node = await bindings_of_exchange(page, vhost, found["name"])
    elif tab == "route":
        content = await _route_tab(page, vhost, path)
    elif tab == "publish":
        content = _publish_tab(page, path)
    elif tab == "delete":
        content = _delete_tab(page, path, exchange)
    else:
        content = [
            page.live("exchange-charts", _charts(page, found.get("message_stats", {}))),
            page.live("exchange-facts", _facts(found)),
        ]
    shown = found["name"] or "(AMQP default)"
    titles = [each for each in _TABS if exchange != DEFAULT or each[0] != "delete"]
    return await page.show(f"Exchange {shown} in {vhost}", tabs(page, titles), content)


@router.post(f"{_PAGE}/publish")
async def publish(page: PageOf, vhost: str, exchange: str) -> Response:
    """Publish a message. The form stays filled for the next one."""
    path = f"exchanges/{exchange_path(vhost, exchange)}/publish"
    reply = await page.api.post(path, message_of(await page.form()))
    if reply["routed"]:
        return await page.stay("Published: a queue has the message.")
    return await page.stay("Published, but no queue takes it: it is lost.", is_alarm=True)


@router.post(f"{_PAGE}/delete")
async def delete(
    page: PageOf,
    vhost: str,
    exchange: str,
    confirmed: Annotated[str, Form()],
    if_unused: Annotated[bool, Form()] = False,
) -> Response:
    """Delete an exchange whose name was typed."""
    path = f"exchanges/{exchange_path(vhost, exchange)}"
    if confirmed != exchange:
        return page.go(f"/{path}", "Not deleted: another name was typed.", tab="delete")
    await page.api.delete(f"{path}?if-unused=true" if if_unused else path)
    return page.go("/exchanges", f"Exchange {exchange} deleted.")


def _charts(page: Page, stats: dict[str, Any]) -> h.Element:
    interval = RANGES[page.range][1]
    return h.div(".charts")[
        [
            chart(
                title,
                [Series(name, colour, rates(stats.get(f"{field}_details")))],
                interval,
                figures.rate,
            )
            for title, name, field, colour in (
                ("Messages in", "Published here", "publish_in", "c1"),
                ("Messages out", "To queues", "publish_out", "c2"),
            )
        ]
    ]


def _facts(found: Row) -> h.Element:
    stats = found.get("message_stats", {})

    def traffic(field: str) -> str:
        rate = stats.get(f"{field}_details", {}).get("rate")
        return f"{figures.count(stats.get(field))}, {figures.rate(rate)}"

    details: list[tuple[str, h.Node]] = [
        ("Virtual host", found["vhost"]),
        ("Type", found["type"]),
        ("Features", features(found)),
        ("Arguments", shown_values(found["arguments"]) or figures.NONE),
        ("Policy", found.get("policy") or figures.NONE),
        ("Messages in", traffic("publish_in")),
        ("Messages out", traffic("publish_out")),
    ]
    return figures_table("Details", details)


async def _route_tab(page: Page, vhost: str, path: str) -> h.Node:
    """A form of the URL, so that a link shows others the same; nothing is published."""
    key, headers = page.query.get("key"), page.query.get("headers", "")
    kept = {name: page.query[name] for name in ("vhost", "range", "pause") if name in page.query}
    return [
        h.p["The queues that a message would reach by the bindings of now. Nothing is published."],
        h.form(".sheet", action=f"{page.prefix}{page.path}")[
            [
                h.input(type="hidden", name=name, value=value)
                for name, value in {**kept, "tab": "route"}.items()
            ],
            text_field("key", "Routing key", key or ""),
            area_field("headers", "Headers", headers, HINT),
            h.button(".go", type="submit")["Find the queues"],
        ],
        key is not None and page.live("route", await _route(page, vhost, path, key, headers)),
    ]


async def _route(page: Page, vhost: str, path: str, key: str, headers: str) -> h.Node:
    try:
        properties = {"headers": read_values(headers)}
        asked = {"routing_key": key, "properties": properties}
        found = await page.api.post(f"warren/{path}/route", asked)
    except ApiError as error:
        return h.p(".alarm", role="alert")[f"No answer: {error}"]
    queues = found["queues"]
    if not queues:
        return h.p(".alarm", role="status")[
            "No queue would get it: the message would be lost, or returned if it is mandatory."
        ]
    return [
        h.p(role="status")[f"{_queues(len(queues))} would get it:"],
        h.ul[[h.li[queue_link(page, vhost, queue)] for queue in queues]],
    ]


def _publish_tab(page: Page, path: str) -> h.Node:
    return form(
        page,
        f"/{path}/publish",
        "Publish the message",
        text_field("routing_key", "Routing key"),
        message_fields(),
    )


def _delete_tab(page: Page, path: str, name: str) -> h.Element:
    return h.section(".confirm")[
        h.p["The exchange and all bindings from it and to it are deleted. Queues stay."],
        form(
            page,
            f"/{path}/delete",
            "Delete the exchange",
            box_field("if_unused", "Only if nothing is bound to it"),
            text_field("confirmed", f"Type {name} to go on", is_needed=True),
            is_dangerous=True,
        ),
    ]


def _queues(count: int) -> str:
    return "1 queue" if count == 1 else f"{figures.count(count)} queues"
