"""The tab of schedules: jobs that the nodes run at set times."""

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.tables import Column, Row, page_of, table
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.pipeline import runs
from warrenmq.management.ui.pages.pipeline.all_jobs import kinds_list


async def content(page: Page) -> h.Node:
    """The schedules of one vhost, or of all."""
    path = f"warren/schedules/{path_to(page.vhost)}" if page.vhost else "warren/schedules"
    found = await page.api.get(path)
    return [
        table(page, "schedules", _columns(page), page_of(page, found, len(found)), _key),
        page.has_tag("administrator")
        and [
            h.h2["New schedule"],
            kinds_list(page, await page.api.get("warren/job-kinds"), "/pipeline/schedules/new"),
        ],
    ]


def schedule_place(vhost: str, name: str) -> str:
    """The path of the page of a schedule."""
    return f"/pipeline/schedules/{path_to(vhost, name)}"


def times(row: Row) -> str:
    """When a schedule runs, in words."""
    return row["cron"] or f"every {figures.duration(row['interval'] * 1000)}"


def next_time(row: Row) -> str:
    """The next time of a schedule."""
    if not row["enabled"]:
        return "disabled"
    return figures.moment(row["next"] * 1000) if row["next"] else figures.NONE


def last_run(page: Page, row: Row) -> h.Node:
    """The last run of a schedule and what became of it."""
    last = row["last"]
    if last is None:
        return figures.NONE
    return [runs.state_badge(last), " ", runs.run_link(page, last["run"]), f" at {last['node']}"]


def _key(row: Row) -> str:
    return f"{row['vhost']} {row['name']}"


def _columns(page: Page) -> list[Column]:
    return [
        Column(
            "Schedule",
            lambda row: h.a(href=page.link(schedule_place(row["vhost"], row["name"])))[row["name"]],
        ),
        Column("Virtual host", lambda row: row["vhost"]),
        Column("Job", lambda row: row["job"]),
        Column("When (UTC)", times),
        Column("Node", lambda row: row["node"] or f"any, now {row['runs_at']}"),
        Column("Next", next_time),
        Column("Last", lambda row: last_run(page, row)),
    ]
