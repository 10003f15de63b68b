"""Definitions: export as a file, and import of one with the differences shown first."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import htpy as h
import msgspec
from fastapi import APIRouter, Form
from starlette.datastructures import UploadFile
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import choice_field, form, form_around
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

# Lines of changes that the page shows.
_LINES_MAX: Final = 500
_ALL: Final = ("", "All")


@router.get("/definitions")
async def definitions(page: PageOf) -> Response:
    """The page with both forms."""
    return await _show(page)


@router.get("/definitions/export")
async def export(page: PageOf, of_vhost: str = "") -> Response:
    """The definitions of the cluster, or of one vhost, as a file to save."""
    found = await page.api.get(_path(of_vhost))
    content = msgspec.json.format(msgspec.json.encode(found), indent=2)
    name = f"warren-definitions-{datetime.now(UTC):%Y-%m-%d}.json"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


@router.post("/definitions")
async def compare(page: PageOf) -> Response:
    """Show what the import of a file would change. The sign-in keeps the file until it is done."""
    fields = await page.form()
    file, vhost = fields.get("file"), str(fields.get("into_vhost", ""))
    data = await file.read() if isinstance(file, UploadFile) else b""
    try:
        found = await page.api.post(f"{_path(vhost)}?dry-run=true", msgspec.Raw(data))
    except ApiError as error:
        refusal = f"The file cannot be imported: {error.reason}"
        raise ApiError(error.status, refusal) from None
    page.sign_in.upload = data
    return await _show(page, _differences(page, found, vhost, _digest(data)))


@router.post("/definitions/import")
async def apply(
    page: PageOf, digest: Annotated[str, Form()], into_vhost: Annotated[str, Form()] = ""
) -> Response:
    """Import the file whose differences were shown."""
    data, page.sign_in.upload = page.sign_in.upload, b""
    if _digest(data) != digest:
        raise ApiError(409, "Another file was compared meanwhile, or this one is imported already.")
    await page.api.post(_path(into_vhost), msgspec.Raw(data))
    return page.go("/definitions", "Definitions imported.")


async def _show(page: Page, differences: h.Node = None) -> Response:
    """The page; `differences` are what an import would change."""
    vhosts = await page.api.get("vhosts", {"columns": "name"})
    names = [(row["name"], row["name"]) for row in vhosts]
    return await page.show(
        "Definitions",
        differences,
        h.h2["Export"],
        h.form(".sheet", action=f"{page.prefix}/definitions/export")[
            choice_field("of_vhost", "Virtual host", [_ALL, *names], page.vhost),
            h.p[
                "Users, vhosts, permissions, policies, queues, exchanges and bindings; messages not."
            ],
            h.button(".go", type="submit")["Download"],
        ],
        h.h2["Import"],
        form_around(
            page,
            "/definitions",
            h.div(".field")[
                h.label(for_="f-file")["File of definitions"],
                h.input(
                    "#f-file",
                    type="file",
                    name="file",
                    accept=".json,application/json",
                    required=True,
                ),
            ],
            choice_field(
                "into_vhost", "Into virtual host", [("", "As the file says"), *names], page.vhost
            ),
            h.p["What the file does not name stays as it is. The differences come first."],
            h.button(".go", type="submit")["Show the differences"],
            style="sheet",
            encoding="multipart/form-data",
        ),
    )


def _differences(page: Page, found: dict[str, Any], vhost: str, digest: str) -> h.Element:
    """What an import would change, and the button that does it."""
    changes, left_out = found["changes"], found["left_out"]
    return h.section(".panel")[
        h.h2["Differences: nothing is changed yet"],
        _lines(changes, "changes") if changes else h.p["The import would change nothing."],
        left_out and [h.p["It would leave out:"], _lines(left_out, "left out")],
        changes
        and form(
            page,
            "/definitions/import",
            f"Import: {figures.count(len(changes))} changes",
            h.input(type="hidden", name="digest", value=digest),
            h.input(type="hidden", name="into_vhost", value=vhost),
        ),
    ]


def _lines(lines: Sequence[str], noun: str) -> h.Node:
    more = len(lines) - _LINES_MAX
    return [
        h.ul(".values")[[h.li[line] for line in lines[:_LINES_MAX]]],
        h.p[f"And {figures.count(more)} more {noun}."] if more > 0 else None,
    ]


def _path(vhost: str) -> str:
    return f"definitions/{path_to(vhost)}" if vhost else "definitions"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
