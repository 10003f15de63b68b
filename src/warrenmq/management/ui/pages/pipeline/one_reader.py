"""One reader group, queue by queue, and one sink; both may be forgotten."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.forms import confirmation, folded_form
from warrenmq.management.ui.elements.tables import Column, figures_table, page_of, table
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.pipeline.all_readers import age, place

router = APIRouter()

_GROUP: Final = "/pipeline/groups/{vhost:segment}/{name:segment}"
_SINK: Final = "/pipeline/sinks/{vhost:segment}/{name:segment}"

Status = dict[str, Any]


@router.get(_GROUP)
async def group(page: PageOf, vhost: str, name: str) -> Response:
    """The page of one reader group."""
    found = await page.api.get(f"warren/groups/{path_to(vhost, name)}")
    members = found["members"]
    return await page.show(
        f"Reader group {name}",
        h.p["In virtual host ", h.b[vhost]],
        page.live("group-facts", _group(found)),
        h.h2["Queues"],
        table(
            page,
            "queues-of-group",
            _columns(page, vhost),
            page_of(page, members, len(members)),
            lambda row: f"{row['queue']} {row['incarnation']}",
        ),
        _delete_form(page, "groups", found, "Messages that it has reserved are ready again."),
    )


@router.post(f"{_GROUP}/delete")
async def delete_group(
    page: PageOf, vhost: str, name: str, confirmed: Annotated[str, Form()] = ""
) -> Response:
    """Forget a reader group whose name was typed; else ask for it."""
    found = await page.api.get(f"warren/groups/{path_to(vhost, name)}")
    reserved = figures.count(found["held"])
    question = f"Forget the group {name}? {reserved} reserved messages are ready again."
    return await _delete(page, "groups", found, question, confirmed)


@router.get(_SINK)
async def sink(page: PageOf, vhost: str, name: str) -> Response:
    """The page of one sink."""
    found = await page.api.get(f"warren/sinks/{path_to(vhost, name)}")
    return await page.show(
        f"Sink {name}",
        h.p["In virtual host ", h.b[vhost]],
        page.live("sink-facts", _sink(found)),
        _delete_form(page, "sinks", found, "What it has staged is dropped."),
    )


@router.post(f"{_SINK}/delete")
async def delete_sink(
    page: PageOf, vhost: str, name: str, confirmed: Annotated[str, Form()] = ""
) -> Response:
    """Forget a sink whose name was typed; else ask for it."""
    found = await page.api.get(f"warren/sinks/{path_to(vhost, name)}")
    staged = figures.count(found["staged_messages"])
    question = f"Forget the sink {name}? {staged} staged messages would be gone."
    return await _delete(page, "sinks", found, question, confirmed)


async def _delete(page: Page, kind: str, found: Status, question: str, confirmed: str) -> Response:
    name = found["name"]
    if confirmed != name:
        return await page.show(
            f"Forget {name}",
            confirmation(page, f"{place(kind, found)}/delete", question, name, "Forget it"),
        )
    await page.api.delete(f"warren/{kind}/{path_to(found['vhost'], name)}")
    return page.go("/pipeline", f"{name} forgotten.", tab=None if kind == "groups" else kind)


def _delete_form(page: Page, kind: str, found: Status, effect: str) -> h.Node:
    return folded_form(
        page,
        "Forget it",
        f"{place(kind, found)}/delete",
        "Forget it",
        h.p[f"{effect} A program that uses it begins anew."],
        is_dangerous=True,
    )


def _group(found: Status) -> h.Element:
    return figures_table(
        "Group",
        [
            ("Queues", found["pattern"] or f"{figures.count(len(found['members']))} by name"),
            ("Messages behind", figures.count(found["lag"])),
            ("Oldest of them", age(found["lag_seconds"])),
            ("Reserved and not acked", figures.count(found["held"])),
            ("Opened by", found["opener"] or figures.NONE),
            ("Epoch", str(found["epoch"])),
        ],
    )


def _columns(page: Page, vhost: str) -> list[Column]:
    def name(row: Status) -> h.Node:
        if row["is_lost"]:
            return [row["queue"], " ", h.span(".badge.bad")["deleted"]]
        return h.a(href=page.link(f"/queues/{path_to(vhost, row['queue'])}"))[row["queue"]]

    return [
        Column("Queue", name),
        Column("Messages behind", lambda row: figures.count(row["lag"]), is_number=True),
        Column("Oldest", lambda row: age(row["lag_seconds"]), is_number=True),
        Column("Reserved", lambda row: figures.count(row["held"]), is_number=True),
        Column("Acked up to", lambda row: figures.count(row["acked"]), is_number=True),
        Column("Reserved up to", lambda row: figures.count(row["reserved"]), is_number=True),
    ]


def _sink(found: Status) -> h.Element:
    return figures_table(
        "Sink",
        [
            ("Last batch", figures.count(found["batch"])),
            ("State", "is being published" if found["is_busy"] else "idle"),
            ("Left of the batch", figures.count(found["messages_left"])),
            ("Open stages", figures.count(found["stages"])),
            ("Staged messages", figures.count(found["staged_messages"])),
            ("Published by", found["node"] or figures.NONE),
            ("On nodes", ", ".join(found["nodes"]) or figures.NONE),
        ],
    )
