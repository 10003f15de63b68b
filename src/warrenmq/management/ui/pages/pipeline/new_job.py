"""The forms that start a job."""

from typing import Any

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.forms import choice_field, form
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.pipeline.job_fields import Kind, fields, typed
from warrenmq.management.ui.pages.pipeline.runs import run_place

router = APIRouter()


@router.get("/pipeline/jobs/new")
async def new_job(page: PageOf, job: str = "") -> Response:
    """The form of a job."""
    return await _show(page, await kind_of(page, job), {}, page.vhost or "/")


@router.post("/pipeline/jobs/new")
async def start_job(page: PageOf) -> Response:
    """Start a job, or say why it cannot be."""
    sent = await page.form()
    kind = await kind_of(page, str(sent.get("job", "")))
    vhost, arguments = str(sent.get("in", "")), typed(kind, sent)
    wanted = {"job": kind["name"], "vhost": vhost, "arguments": arguments}
    try:
        started = await page.api.post("warren/jobs", wanted)
    except ApiError as error:
        return await _show(page, kind, arguments, vhost, error)
    return page.go(run_place(started["name"]), f"{kind['name']} has begun.")


async def kind_of(page: Page, job: str) -> Kind:
    """What the API says of a job. Raises ApiError."""
    for kind in await page.api.get("warren/job-kinds"):
        if kind["name"] == job:
            found: Kind = kind
            return found
    raise ApiError(404, f"There is no job {job}.")


async def vhost_field(page: Page, chosen: str) -> h.Node:
    """The choice of the vhost that a job works on."""
    names = [row["name"] for row in await page.api.get("vhosts", {"columns": "name"})]
    return choice_field("in", "Virtual host", [(name, name) for name in names], chosen)


async def _show(
    page: Page, kind: Kind, arguments: dict[str, Any], vhost: str, error: ApiError | None = None
) -> Response:
    return await page.show(
        f"Start {kind['name']}",
        h.p(".alarm", role="alert")[error.reason] if error else None,
        h.p[f"{kind['does']}. Paths lie below the directory of jobs of this node."],
        form(
            page,
            "/pipeline/jobs/new",
            "Start",
            h.input(type="hidden", name="job", value=kind["name"]),
            await vhost_field(page, vhost),
            fields(kind, arguments),
        ),
        status=error.status if error else 200,
    )
