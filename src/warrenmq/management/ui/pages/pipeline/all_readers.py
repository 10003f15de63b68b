"""The lists of reader groups and of sinks, and the tabs of jobs and schedules beside them."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.tables import Column, Row, page_of, table
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.pipeline import all_jobs, all_schedules
from warrenmq.management.ui.pages.pipeline.tabs import pipeline_tabs

router = APIRouter()

# Vhosts that are asked when none is picked.
_VHOSTS_MAX: Final = 20
_NOT_ALLOWED: Final = 401


@router.get("/pipeline")
async def pipeline(page: PageOf, tab: str = "groups") -> Response:
    """The page of reader groups, sinks, jobs and schedules."""
    return await page.show("Pipeline", pipeline_tabs(page), await _content(page, tab))


async def _content(page: Page, tab: str) -> h.Node:
    if tab == "jobs":
        return await all_jobs.content(page)
    if tab == "schedules":
        return await all_schedules.content(page)
    return await _readers(page, "sinks" if tab == "sinks" else "groups")


async def _readers(page: Page, kind: str) -> h.Node:
    """The list of reader groups or of sinks, of one vhost or of all that the user may enter."""
    names = [page.vhost]
    if not page.vhost:
        names = [row["name"] for row in await page.api.get("vhosts", {"columns": "name"})]
    found: list[Row] = []
    closed: list[str] = []
    for name in names[:_VHOSTS_MAX]:
        try:
            found += await page.api.get(f"warren/{kind}/{path_to(name)}")
        except ApiError as error:
            if error.status != _NOT_ALLOWED:
                raise
            closed.append(name)
    return [
        len(names) > _VHOSTS_MAX
        and h.p(".note")[f"The first {_VHOSTS_MAX} virtual hosts are shown: pick another above."],
        closed and h.p(".note")[f"You have no permissions in {', '.join(closed)}."],
        _groups(page, found) if kind == "groups" else _sinks(page, found),
    ]


def _groups(page: Page, rows: list[Row]) -> h.Node:
    rows.sort(key=lambda row: (-row["lag"], row["vhost"], row["name"]))
    return [
        h.p(".note")["Those with most messages to read first."],
        table(page, "reader-groups", _group_columns(page), page_of(page, rows, len(rows)), key),
    ]


def _sinks(page: Page, rows: list[Row]) -> h.Node:
    return table(page, "sinks", _sink_columns(page), page_of(page, rows, len(rows)), key)


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
        Column("Published by", lambda row: row["node"] or figures.NONE),
    ]
