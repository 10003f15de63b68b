"""One run of a job: how far it is, its log, its report; it may be stopped."""

from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import confirmation, folded, form
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.elements.values import shown_value, shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.pipeline import runs

router = APIRouter()

_BAD_REQUEST = 400


@router.get("/pipeline/jobs/{name:segment}")
async def run(page: PageOf, name: str) -> Response:
    """The page of one run."""
    found = await page.api.get(f"warren/jobs/{path_to(name)}")
    is_running = found["state"] == "running"
    return await page.show(
        f"{found['job']} {name}",
        page.live("run-facts", _facts(page, found)),
        page.live("run-result", _result(found)),
        h.h2["Arguments"],
        shown_values(found["arguments"]) or h.p(".none")["There are none."],
        h.h2["Log"],
        page.live("run-log", h.pre(".log", tabindex="0")["\n".join(found["log"])]),
        is_running
        and page.has_tag("administrator")
        and folded("Stop", form(page, f"{runs.run_place(name)}/stop", "Stop", is_dangerous=True)),
    )


@router.post("/pipeline/jobs/{name:segment}/stop")
async def stop(page: PageOf, name: str, confirmed: Annotated[str, Form()] = "") -> Response:
    """Stop a run whose job was typed; else ask for it."""
    found = await page.api.get(f"warren/jobs/{path_to(name)}")
    job = found["job"]
    place = runs.run_place(name)
    if confirmed != job:
        question = f"Stop the {job} that began at {figures.moment(found['started'])}?"
        return await page.show(
            f"Stop {name}", confirmation(page, f"{place}/stop", question, job, "Stop it")
        )
    try:
        await page.api.post(f"warren/jobs/{path_to(name)}/stop")
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        return page.go(place, "It has ended by itself.")
    return page.go(place, "It is told to stop.")


@router.get("/pipeline/jobs/{name:segment}/report")
async def report(page: PageOf, name: str) -> Response:
    """The page that a run has written, with the headers that keep it away from this site."""
    found = await page.api.read(f"warren/jobs/{path_to(name)}/report")
    policy = found.headers["content-security-policy"]
    return Response(
        found.content, media_type="text/html", headers={"content-security-policy": policy}
    )


def _facts(page: Page, found: runs.Run) -> h.Element:
    return figures_table(
        "Run",
        [
            ("State", [runs.state_badge(found), " ", found["reason"]]),
            ("Progress", [runs.progress(found), _bar(found)]),
            ("Messages", runs.rows(found)),
            ("Virtual host", found["vhost"]),
            ("User", found["user"]),
            ("Schedule", found["schedule"] or figures.NONE),
            ("Started", figures.moment(found["started"])),
            ("Took", runs.duration(found)),
            ("Exit status", figures.count(found["exit_code"])),
            ("Report", runs.report(page, found)),
        ],
    )


def _bar(found: runs.Run) -> h.Node:
    step = found["progress"]
    if found["ended"] or not step or not step["total"]:
        return None
    return h.progress(
        value=str(step["done"]), max=str(step["total"]), aria_label="How much of the step is done"
    )


def _result(found: runs.Run) -> h.Node:
    result: dict[str, Any] = found["result"]
    if not result:
        return None
    return figures_table(
        "Result",
        [(name.replace("_", " "), shown_value(value)) for name, value in result.items()],
    )
