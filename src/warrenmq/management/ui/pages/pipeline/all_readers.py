"""The lists of reader groups and sinks, of one vhost or of all that the user may enter."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.tables import Column, Row, page_of, table
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

# Vhosts that are asked when none is picked.
_VHOSTS_MAX: Final = 20
_NOT_ALLOWED: Final = 401


@router.get("/pipeline")
async def pipeline(page: PageOf) -> Response:
    """The page of all reader groups and sinks."""
    names = [page.vhost]
    if not page.vhost:
        names = [row["name"] for row in await page.api.get("vhosts", {"columns": "name"})]
    groups, sinks, closed = [], [], []
    for name in names[:_VHOSTS_MAX]:
        try:
            groups += await page.api.get(f"warren/groups/{path_to(name)}")
            sinks += await page.api.get(f"warren/sinks/{path_to(name)}")
        except ApiError as error:
            if error.status != _NOT_ALLOWED:
                raise
            closed.append(name)
    groups.sort(key=lambda row: (-row["lag"], row["vhost"], row["name"]))
    return await page.show(
        "Pipeline",
        len(names) > _VHOSTS_MAX
        and h.p(".note")[f"The first {_VHOSTS_MAX} virtual hosts are shown: pick another above."],
        closed and h.p(".note")[f"You have no permissions in {', '.join(closed)}."],
        h.h2["Reader groups"],
        h.p(".note")["Those with most messages to read first."],
        table(page, "reader-groups", _group_columns(page), page_of(page, groups, len(groups)), key),
        h.h2["Sinks"],
        table(page, "sinks", _sink_columns(page), sinks, key),
    )


def key(row: Row) -> str:
    """What tells groups and sinks apart."""
    return f"{row['vhost']} {row['name']}"


def place(kind: str, row: dict[str, Any]) -> str:
    """The path of the page of a group or a sink; `kind` is `groups` or `sinks`."""
    return f"/pipeline/{kind}/{path_to(row['vhost'], row['name'])}"


def age(seconds: Any) -> str:
    """How old the oldest message is that was not acked; nothing of none."""
    return figures.duration(seconds * 1000) if seconds else figures.NONE


def _group_columns(page: Page) -> list[Column]:
    return [
        Column("Group", lambda row: h.a(href=page.link(place("groups", row)))[row["name"]]),
        Column("Virtual host", lambda row: row["vhost"]),
        Column("Queues", lambda row: row["pattern"] or _queues(row)),
        Column("Messages behind", lambda row: figures.count(row["lag"]), is_number=True),
        Column("Oldest", lambda row: age(row["lag_seconds"]), is_number=True),
        Column("Reserved", lambda row: figures.count(row["held"]), is_number=True),
        Column("Opened by", lambda row: row["opener"] or figures.NONE),
    ]


def _queues(row: Row) -> str:
    names = [member["queue"] for member in row["members"]]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _sink_columns(page: Page) -> list[Column]:
    return [
        Column("Sink", lambda row: h.a(href=page.link(place("sinks", row)))[row["name"]]),
        Column("Virtual host", lambda row: row["vhost"]),
        Column("Last batch", lambda row: figures.count(row["batch"]), is_number=True),
        Column("State", lambda row: "is being published" if row["is_busy"] else "idle"),
        Column("Left of it", lambda row: figures.count(row["messages_left"]), is_number=True),
        Column("Open stages", lambda row: figures.count(row["stages"]), is_number=True),
        Column("Staged", lambda row: figures.count(row["staged_messages"]), is_number=True),
    ]
