"""The consumers of a queue, with a way to end one."""

from typing import Any, Final

import htpy as h

from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import Column, Row, table, unsorted
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.consumers import consumer_columns, consumer_key

# The page tells these once.
_OF_QUEUE: Final = ("Virtual host", "Queue")


async def consumers_tab(page: Page, found: dict[str, Any]) -> h.Node:
    """The consumers of a queue of the API."""
    columns = [
        column for column in unsorted(consumer_columns(page)) if column.title not in _OF_QUEUE
    ]
    return [
        h.p[
            "A broker cannot cancel the consumer of a client. To end one, close its connection: "
            "its unacked messages come back."
        ],
        table(
            page,
            "consumers",
            [*columns, Column("End", lambda row: _end(page, row))],
            found.get("consumer_details", []),
            consumer_key,
        ),
    ]


def _end(page: Page, row: Row) -> h.Node:
    """A link to the form that closes the connection, for those who see it."""
    name = row["channel_details"].get("connection_name")
    tag = row["consumer_tag"]
    return (
        name
        and h.a(
            href=page.link(f"/connections/{path_to(name)}", close="1"),
            aria_label=f"Close the connection of the consumer {tag}",
        )["Close its connection"]
    )
