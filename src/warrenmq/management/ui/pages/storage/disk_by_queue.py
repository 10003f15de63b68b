"""Which queue fills the disk, and why it is not given back."""

from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import Column, Row, page_query, table
from warrenmq.management.ui.page import Page

_FIELDS: Final = (
    "name", "vhost", "messages", "messages_unacknowledged", "message_bytes",
    "message_bytes_unacknowledged", "message_bytes_persistent", "message_bytes_paged_out",
    "message_bytes_ram", "consumers", "paused", "target_ram_count",
    "oldest_unacknowledged_seconds", "head_message_timestamp",
)  # fmt: skip


async def queues_tab(page: Page) -> h.Node:
    """The queues with the most bytes first."""
    path = f"queues/{path_to(page.vhost)}" if page.vhost else "queues"
    query = page_query(page, "message_bytes", columns=",".join(_FIELDS))
    query["sort_reverse"] = page.query.get("sort_reverse", "true")
    found = await page.api.get(path, query)
    return [
        h.p(".note")[
            "A message takes room on the disk until it is acked or expires. Its file goes when "
            "nothing in it is needed, or when the node compacts it."
        ],
        table(page, "queues-by-bytes", _columns(page), found, _key),
    ]


def _key(row: Row) -> str:
    return f"{row['vhost']} {row['name']}"


def _columns(page: Page) -> list[Column]:
    return [
        Column("Queue", lambda row: _name(page, row), "name"),
        Column("Why it stays", _why),
        _bytes("All messages", "message_bytes"),
        _bytes("Persistent", "message_bytes_persistent"),
        _bytes("Paged out", "message_bytes_paged_out"),
        _bytes("In memory", "message_bytes_ram"),
        _bytes("Unacked", "message_bytes_unacknowledged"),
        Column("Messages", lambda row: figures.count(row.get("messages")), "messages", True),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
    ]


def _name(page: Page, row: Row) -> h.Element:
    path = f"/queues/{path_to(row['vhost'], row['name'])}"
    return h.a(href=page.link(path, tab="storage"))[row["name"]]


def _bytes(title: str, field: str) -> Column:
    return Column(title, lambda row: figures.size(row.get(field)), field, True)


def _why(row: dict[str, Any]) -> str:
    """What keeps the messages of a queue."""
    found = []
    messages, unacked = row.get("messages") or 0, row.get("messages_unacknowledged") or 0
    if messages > unacked:
        if row.get("paused"):
            found.append("paused")
        elif not row.get("consumers"):
            found.append("no consumers")
        else:
            found.append("consumers are behind")
    if unacked:
        since = row.get("oldest_unacknowledged_seconds")
        age = f", the oldest for {figures.duration(since * 1000)}" if since else ""
        found.append(f"{figures.count(unacked)} unacked{age}")
    if row.get("target_ram_count") is not None:
        found.append("asked to page")
    return "; ".join(found)
