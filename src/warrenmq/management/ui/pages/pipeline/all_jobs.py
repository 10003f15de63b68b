"""The tab of jobs: the runs of the asked node, and the jobs that may be started."""

from typing import Any

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.tables import Column, page_of, table
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.pipeline import runs


async def content(page: Page) -> h.Node:
    """The runs, the last one first."""
    try:
        found = await page.api.get("warren/jobs", {"sort": "name", "sort_reverse": "true"})
        kinds = await page.api.get("warren/job-kinds")
    except ApiError as error:
        return h.p(".alarm", role="alert")[error.reason]
    return [
        page.has_tag("administrator") and _start(page, kinds, "/pipeline/jobs/new"),
        h.h2["Runs"],
        h.p(".note")[
            "Those of the asked node, under way and the last hundred others. "
            "The name is the start in UTC."
        ],
        table(
            page, "runs", _columns(page), page_of(page, found, len(found)), lambda row: row["name"]
        ),
    ]


def _start(page: Page, kinds: list[dict[str, Any]], path: str) -> h.Node:
    return [h.h2["Start a job"], kinds_list(page, kinds, path)]


def kinds_list(page: Page, kinds: list[dict[str, Any]], path: str) -> h.Element:
    """The jobs, each with a link to the form at `path`."""
    return h.ul[
        [
            h.li[h.a(href=page.link(path, job=kind["name"]))[kind["name"]], f": {kind['does']}"]
            for kind in kinds
        ]
    ]


def _columns(page: Page) -> list[Column]:
    return [
        Column("Run", lambda row: runs.run_link(page, row["name"])),
        Column("Job", lambda row: row["job"]),
        Column("Virtual host", lambda row: row["vhost"]),
        Column("Schedule", lambda row: row["schedule"] or figures.NONE),
        Column("State", runs.state_badge),
        Column("Progress", runs.progress),
        Column("Messages", runs.rows, is_number=True),
        Column("Took", runs.duration, is_number=True),
        Column("Report", lambda row: runs.report(page, row)),
    ]
