"""Consumers: the list of a vhost or of all."""

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.lists import filtered_list
from warrenmq.management.ui.elements.tables import Column, Row
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()


@router.get("/consumers")
async def consumers(page: PageOf) -> Response:
    """The page of all consumers that the user sees."""
    path = f"consumers/{path_to(page.vhost)}" if page.vhost else "consumers"
    columns = consumer_columns(page)
    shown = await filtered_list(page, "queue or tag", "consumers", path, columns, consumer_key)
    return await page.show("Consumers", shown)


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
        Column(
            "Unacked",
            lambda row: figures.count(row.get("messages_unacknowledged")),
            "messages_unacknowledged",
            True,
        ),
        Column("Oldest unacked", oldest_unacked, "oldest_unacknowledged_seconds", True),
        Column("Arguments", lambda row: shown_values(row["arguments"])),
    ]


def consumer_key(row: Row) -> str:
    """What names a consumer: tags are those of a channel."""
    queue = row["queue"]
    channel = row["channel_details"].get("name", "")
    return f"{queue['vhost']} {queue['name']} {channel} {row['consumer_tag']}"


def oldest_unacked(row: Row) -> str:
    """For how long the oldest unacked delivery of a consumer or channel waits at least."""
    seconds = row.get("oldest_unacknowledged_seconds")
    return "" if seconds is None else figures.duration(1000 * seconds)


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
