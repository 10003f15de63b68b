"""Channels: the list, and one with its rates and consumers."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.charts import Series, chart, rates
from warrenmq.management.ui.elements.lists import show_list
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    figures_table,
    state_square,
    table,
    unsorted,
)
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.consumers import consumer_columns, consumer_key, oldest_unacked
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

# Rates of a list and of a chart: title, field of `message_stats`, colour.
_PUBLISHED: Final = (
    ("Publish", "publish", "c1"),
    ("Confirm", "confirm", "c3"),
    ("Unroutable (return)", "return_unroutable", "c5"),
    ("Unroutable (drop)", "drop_unroutable", "c4"),
)
_DELIVERED: Final = (
    ("Deliver / get", "deliver_get", "c2"),
    ("Redelivered", "redeliver", "c5"),
    ("Ack", "ack", "c3"),
    ("Get (empty)", "get_empty", "c4"),
)
# Columns of rates that are not shown at first.
_RARE: Final = ("return_unroutable", "drop_unroutable", "redeliver", "get_empty")


@router.get("/channels")
async def channels(page: PageOf) -> Response:
    """The page of all channels that the user sees."""
    path = f"vhosts/{path_to(page.vhost)}/channels" if page.vhost else "channels"
    return await show_list(page, "channel", path, channel_columns(page), lambda row: row["name"])


@router.get("/channels/{name:segment}")
async def channel(page: PageOf, name: str) -> Response:
    """The page of one channel."""
    found = await page.api.get(f"channels/{path_to(name)}", page.samples("msg_rates"))
    return await page.show(
        f"Channel {name}",
        page.live("channel-charts", _charts(page, found.get("message_stats", {}))),
        page.live("channel-facts", _facts(page, found)),
        h.h2["Consumers"],
        table(
            page,
            "consumers",
            unsorted(consumer_columns(page)),
            found["consumer_details"],
            consumer_key,
        ),
    )


def channel_columns(page: Page) -> list[Column]:
    """The columns of a list of channels."""
    return [
        Column("Channel", lambda row: _link(page, row["name"]), "name"),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
        Column("Node", lambda row: row["node"], "node", is_optional=True),
        Column("User name", lambda row: row["user"], "user"),
        Column("Mode", _mode),
        Column("State", state_square, "state"),
        _number("Unconfirmed", "messages_unconfirmed"),
        Column("Prefetch", _prefetch, "prefetch_count", is_number=True),
        _number("Unacked", "messages_unacknowledged"),
        Column("Oldest unacked", oldest_unacked, "oldest_unacknowledged_seconds", True),
        _number("Consumers", "consumer_count", is_optional=True),
        _number("Uncommitted messages", "messages_uncommitted", is_optional=True),
        _number("Uncommitted acks", "acks_uncommitted", is_optional=True),
        *[_rate(title, field) for title, field, _ in (*_PUBLISHED, *_DELIVERED)],
    ]


def _number(title: str, field: str, is_optional: bool = False) -> Column:
    return Column(title, lambda row: figures.count(row.get(field)), field, True, is_optional)


def _rate(title: str, field: str) -> Column:
    def shown(row: Row) -> str:
        details: dict[str, Any] = row.get("message_stats", {}).get(f"{field}_details", {})
        return figures.rate(details.get("rate"))

    return Column(title, shown, f"message_stats.{field}_details.rate", True, field in _RARE)


def _link(page: Page, name: str) -> h.Element:
    return h.a(href=page.link(f"/channels/{path_to(name)}"))[name]


def _mode(row: Row) -> h.Node:
    """RabbitMQ's letters."""
    return [
        row.get("confirm") and h.abbr(title="The broker confirms what is published")["C"],
        row.get("transactional") and h.abbr(title="Transactional")["T"],
    ]


def _prefetch(row: Row) -> h.Node:
    """The limit of each new consumer, and that of the whole channel."""
    shown = [f"{row['prefetch_count']}"] if row.get("prefetch_count") else []
    if row.get("global_prefetch_count"):
        shown.append(f"{row['global_prefetch_count']} (global)")
    return ", ".join(shown)


def _charts(page: Page, stats: dict[str, Any]) -> h.Element:
    interval = RANGES[page.range][1]
    return h.div(".charts")[
        [
            chart(
                title,
                [
                    Series(name, colour, rates(stats.get(f"{field}_details")))
                    for name, field, colour in drawn
                ],
                interval,
                figures.rate,
            )
            for title, drawn in (("Messages in", _PUBLISHED), ("Messages out", _DELIVERED))
        ]
    ]


def _facts(page: Page, found: Row) -> h.Element:
    connection = found["connection_details"]["name"]
    modes = [
        name for name, field in (("confirm", "confirm"), ("transactional", "transactional"))
        if found.get(field)
    ]  # fmt: skip
    details: list[tuple[str, h.Node]] = [
        ("Connection", h.a(href=page.link(f"/connections/{path_to(connection)}"))[connection]),
        ("Number", figures.count(found["number"])),
        ("Virtual host", found["vhost"]),
        ("User name", found["user"]),
        ("Node", found["node"]),
        ("State", state_square(found)),
        ("Mode", ", ".join(modes) or "plain"),
    ]
    counts: list[tuple[str, h.Node]] = [
        ("Consumers", figures.count(found.get("consumer_count"))),
        ("Messages unacked", figures.count(found.get("messages_unacknowledged"))),
        ("Messages unconfirmed", figures.count(found.get("messages_unconfirmed"))),
        ("Messages uncommitted", figures.count(found.get("messages_uncommitted"))),
        ("Acks uncommitted", figures.count(found.get("acks_uncommitted"))),
        ("Prefetch of each consumer", _limit(found.get("prefetch_count"))),
        ("Prefetch of the channel", _limit(found.get("global_prefetch_count"))),
    ]
    return h.div(".charts")[figures_table("Details", details), figures_table("Messages", counts)]


def _limit(value: Any) -> str:
    return figures.count(value) if value else "unlimited"
