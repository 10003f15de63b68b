"""Consumers: the list of a vhost or of all."""

from typing import Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    column_chooser,
    filter_form,
    page_of,
    table,
)
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

_SORTS: Final = ("sort", "sort_reverse")


@router.get("/consumers")
async def consumers(page: PageOf) -> Response:
    """The page of all consumers that the user sees. The API's list has no pages and no filter."""
    path = f"consumers/{path_to(page.vhost)}" if page.vhost else "consumers"
    found = await page.api.get(
        path, {name: page.query[name] for name in _SORTS if name in page.query}
    )
    text = page.query.get("name", "").lower()
    rows = [row for row in found if text in f"{row['queue']['name']} {row['consumer_tag']}".lower()]
    columns = consumer_columns(page)
    return await page.show(
        "Consumers",
        filter_form(page, "queue or tag", has_patterns=False),
        column_chooser(page, columns),
        table(page, "consumers", columns, page_of(page, rows, len(found)), consumer_key),
    )


def consumer_columns(page: Page) -> list[Column]:
    """The columns of a list of consumers."""
    return [
        Column("Consumer tag", lambda row: row["consumer_tag"], "consumer_tag"),
        Column("Virtual host", lambda row: row["queue"]["vhost"], "queue.vhost"),
        Column("Queue", lambda row: _queue(page, row), "queue.name"),
        Column("Channel", lambda row: _channel(page, row), "channel_details.name"),
        Column(
            "User name",
            lambda row: row["channel_details"].get("user"),
            "channel_details.user",
            is_optional=True,
        ),
        Column("Ack required", lambda row: _yes(row["ack_required"]), "ack_required"),
        Column("Prefetch", lambda row: row["prefetch_count"] or None, "prefetch_count", True),
        Column("Active", _active, "active"),
        Column("Arguments", lambda row: shown_values(row["arguments"])),
    ]


def consumer_key(row: Row) -> str:
    """What names a consumer: tags are those of a channel."""
    queue = row["queue"]
    channel = row["channel_details"].get("name", "")
    return f"{queue['vhost']} {queue['name']} {channel} {row['consumer_tag']}"


def _queue(page: Page, row: Row) -> h.Element:
    queue = row["queue"]
    return h.a(href=page.link(f"/queues/{path_to(queue['vhost'], queue['name'])}"))[queue["name"]]


def _channel(page: Page, row: Row) -> h.Node:
    """A link; a user who is no monitor does not see the channels of others."""
    name = row["channel_details"].get("name")
    return name and h.a(href=page.link(f"/channels/{path_to(name)}"))[name]


def _active(row: Row) -> str:
    status = row.get("activity_status", "")
    return _yes(row.get("active")) if status in ("", "up") else f"no ({status})"


def _yes(value: object) -> str:
    return "yes" if value else "no"
