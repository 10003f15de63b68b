"""The forms of a schedule: set, change, enable, disable, delete."""

from typing import Annotated, Any

import htpy as h
from fastapi import APIRouter, Form
from starlette.datastructures import FormData
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import (
    box_field,
    choice_field,
    confirmation,
    folded,
    form,
    text_field,
)
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.elements.values import shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.pipeline.all_schedules import (
    last_run,
    next_time,
    schedule_place,
    times,
)
from warrenmq.management.ui.pages.pipeline.job_fields import Kind, fields, typed
from warrenmq.management.ui.pages.pipeline.new_job import kind_of, vhost_field

router = APIRouter()

_ONE = "/pipeline/schedules/{vhost:segment}/{name:segment}"
_EMPTY: dict[str, Any] = {
    "cron": "", "interval": 0, "node": "", "grace": 3600, "enabled": True, "arguments": {}
}  # fmt: skip

Schedule = dict[str, Any]


@router.get("/pipeline/schedules/new")
async def new_schedule(page: PageOf, job: str = "") -> Response:
    """The form of a new schedule."""
    kind = await kind_of(page, job)
    return await _show_new(page, kind, _EMPTY, "", page.vhost or "/")


@router.post("/pipeline/schedules/new")
async def set_schedule(page: PageOf) -> Response:
    """Set a new schedule, or say why it cannot be."""
    sent = await page.form()
    kind = await kind_of(page, str(sent.get("job", "")))
    name, vhost, wanted = str(sent.get("name", "")), str(sent.get("in", "")), _typed(kind, sent)
    try:
        await page.api.put(f"warren/schedules/{path_to(vhost, name)}", wanted)
    except ApiError as error:
        return await _show_new(page, kind, wanted, name, vhost, error)
    return page.go("/pipeline", f"{name} is set.", tab="schedules")


@router.get(_ONE)
async def schedule(page: PageOf, vhost: str, name: str) -> Response:
    """The page of one schedule."""
    found = await page.api.get(f"warren/schedules/{path_to(vhost, name)}")
    return await _show(page, found, found)


@router.post(f"{_ONE}/change")
async def change_schedule(page: PageOf, vhost: str, name: str) -> Response:
    """Replace a schedule, or say why it cannot be."""
    found = await page.api.get(f"warren/schedules/{path_to(vhost, name)}")
    wanted = _typed(await kind_of(page, found["job"]), await page.form())
    try:
        await page.api.put(f"warren/schedules/{path_to(vhost, name)}", wanted)
    except ApiError as error:
        return await _show(page, found, wanted, error)
    return page.go(schedule_place(vhost, name), "Changed.")


@router.post(f"{_ONE}/enable")
async def enable(page: PageOf, vhost: str, name: str, enabled: Annotated[str, Form()]) -> Response:
    """Let a schedule run jobs from now on, or none."""
    path = f"warren/schedules/{path_to(vhost, name)}"
    found = await page.api.get(path)
    names = ("job", "user", "arguments", "cron", "interval", "node", "grace")
    await page.api.put(path, {**{each: found[each] for each in names}, "enabled": enabled})
    said = "It runs from now on." if enabled == "true" else "It does not run any more."
    return page.go(schedule_place(vhost, name), said)


@router.post(f"{_ONE}/delete")
async def delete(
    page: PageOf, vhost: str, name: str, confirmed: Annotated[str, Form()] = ""
) -> Response:
    """Delete a schedule whose name was typed; else ask for it."""
    await page.api.get(f"warren/schedules/{path_to(vhost, name)}")
    if confirmed != name:
        question = f"Delete the schedule {name}? A run that is under way goes on."
        path = f"{schedule_place(vhost, name)}/delete"
        return await page.show(
            f"Delete {name}", confirmation(page, path, question, name, "Delete it")
        )
    await page.api.delete(f"warren/schedules/{path_to(vhost, name)}")
    return page.go("/pipeline", f"{name} deleted.", tab="schedules")


async def _show_new(
    page: Page,
    kind: Kind,
    values: Schedule,
    name: str,
    vhost: str,
    error: ApiError | None = None,
) -> Response:
    return await page.show(
        f"Schedule {kind['name']}",
        _alarm(error),
        h.p[f"{kind['does']}, again and again. It runs in your name."],
        form(
            page,
            "/pipeline/schedules/new",
            "Set",
            h.input(type="hidden", name="job", value=kind["name"]),
            text_field("name", "Name", name, is_needed=True),
            await vhost_field(page, vhost),
            await _fields(page, kind, values),
        ),
        status=error.status if error else 200,
    )


async def _show(
    page: Page, found: Schedule, values: Schedule, error: ApiError | None = None
) -> Response:
    place = schedule_place(found["vhost"], found["name"])
    may_change = page.has_tag("administrator")
    kind = await kind_of(page, found["job"])
    enabled = found["enabled"]
    return await page.show(
        f"Schedule {found['name']}",
        _alarm(error),
        page.live("schedule-facts", _facts(page, found)),
        h.h2["Arguments"],
        shown_values(found["arguments"]) or h.p(".none")["There are none."],
        may_change
        and [
            form(
                page,
                f"{place}/enable",
                "Disable" if enabled else "Enable",
                h.input(type="hidden", name="enabled", value="false" if enabled else "true"),
            ),
            folded(
                "Change",
                h.p["It runs in your name then."],
                form(page, f"{place}/change", "Change", await _fields(page, kind, values)),
                is_open=error is not None,
            ),
            folded("Delete", form(page, f"{place}/delete", "Delete", is_dangerous=True)),
        ],
        status=error.status if error else 200,
    )


def _alarm(error: ApiError | None) -> h.Node:
    return h.p(".alarm", role="alert")[error.reason] if error else None


def _facts(page: Page, found: Schedule) -> h.Element:
    return figures_table(
        "Schedule",
        [
            ("Job", found["job"]),
            ("Virtual host", found["vhost"]),
            ("User", found["user"]),
            ("When (UTC)", times(found)),
            ("Node", found["node"] or f"any, now {found['runs_at']}"),
            ("May begin late by", figures.duration(found["grace"] * 1000)),
            ("Next", next_time(found)),
            ("Last", last_run(page, found)),
        ],
    )


async def _fields(page: Page, kind: Kind, values: Schedule) -> list[h.Node]:
    names = [row["name"] for row in await page.api.get("nodes", {"columns": "name"})]
    nodes = [("", "the first one that runs"), *((name, name) for name in names)]
    return [
        text_field(
            "cron", "Cron expression", str(values["cron"]),
            "minute, hour, day of the month, month, day of the week; in UTC, such as 0 3 * * *",
        ),
        text_field("every", "or each so many seconds", str(values["interval"] or "")),
        choice_field("node", "Node", nodes, str(values["node"])),
        text_field("grace", "Seconds that it may begin late", str(values["grace"])),
        box_field("enabled", "Enabled", bool(values["enabled"])),
        h.h2[f"Fields of {kind['name']}"],
        fields(kind, values["arguments"]),
    ]  # fmt: skip


def _typed(kind: Kind, sent: FormData) -> Schedule:
    """What the form says, as the API takes it."""
    return {
        "job": kind["name"],
        "arguments": typed(kind, sent),
        "cron": str(sent.get("cron", "")).strip(),
        "interval": str(sent.get("every", "")).strip() or 0,
        "node": str(sent.get("node", "")),
        "grace": str(sent.get("grace", "")).strip() or 0,
        "enabled": bool(sent.get("enabled")),
    }
