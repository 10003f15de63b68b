"""The list of queues, and what is done to several at once."""

from typing import Any, Final
from urllib.parse import unquote, urlencode

import htpy as h
from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import box_field, form, form_around, text_field
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    column_chooser,
    filter_choice,
    filter_form,
    page_query,
    state_square,
    table,
)
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.queues.badges import badges, own_badges
from warrenmq.management.ui.pages.queues.new_queue import form_for_new_queue

router = APIRouter()

_BAD_REQUEST: Final = 400
# Queues that one form may purge or delete: those of a page of the list.
_CHOSEN_MAX: Final = 500
_ACTIONS: Final = {"purge": "Purge", "delete": "Delete", "pause": "Pause", "resume": "Resume"}
_DONE: Final = {
    "purge": "purged",
    "delete": "deleted",
    "pause": "paused",
    "resume": "resumed",
}
# Filters of the API beside that by name.
_FILTERS: Final = ("type", "state", "policy", "consumers", "growing")
_TYPES: Final = ("classic", "quorum")
_STATES: Final = ("running", "paused", "syncing", "down")
# Conditions of the API for a queue that is deleted.
_CONDITIONS: Final = (
    ("if-empty", "Only without messages"),
    ("if-unused", "Only without consumers"),
)
# What cannot be taken back asks for this number of queues.
_DESTROYS: Final = ("purge", "delete")


@router.get("/queues")
async def queues(page: PageOf) -> Response:
    """The page of all queues that the user sees."""
    path = f"queues/{path_to(page.vhost)}" if page.vhost else "queues"
    found, refusal = None, ""
    try:
        filters = {name: page.query[name] for name in _FILTERS if page.query.get(name)}
        found = await page.api.get(path, page_query(page, "name", **filters))
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        refusal = f"There is no such page, or the pattern cannot be read ({error.reason})."
    columns = _columns(page)
    return await page.show(
        "Queues",
        filter_form(page, "queue", further=_filter_fields(page)),
        refusal and h.p(".alarm", role="alert")[refusal],
        column_chooser(page, columns),
        found
        and form_around(
            page,
            "/chosen-queues",
            table(page, "queues", columns, found, _key, select="chosen"),
            h.div(".bar.below")[
                "With those chosen: ",
                [
                    h.button(type="submit", name="action", value=action)[title]
                    for action, title in _ACTIONS.items()
                ],
            ],
        ),
        form_for_new_queue(page),
    )


@router.post("/chosen-queues")
async def chosen_queues(page: PageOf) -> Response:
    """Purge, delete, pause or resume queues; what destroys asks for their number first."""
    sent = await page.form()
    action = str(sent.get("action", ""))
    keys = [str(key) for key in sent.getlist("chosen")][:_CHOSEN_MAX]
    names = [_names(key) for key in keys]
    if action not in _ACTIONS:
        raise ApiError(_BAD_REQUEST, "This cannot be done to queues.")
    if not names:
        return page.go("/queues", "No queue was chosen.")
    if action in _DESTROYS and sent.get("confirmed") != str(len(names)):
        return await _ask(page, action, keys, names)
    failed = []
    for vhost, queue in names:
        try:
            await act(page, action, vhost, queue, sent)
        except ApiError as error:
            failed.append(f"{queue}: {error.reason}")
    done = f"{len(names) - len(failed)} of {len(names)} queues {_DONE[action]}."
    return page.go("/queues", " ".join([done, *failed[:5]]))


async def act(page: Page, action: str, vhost: str, queue: str, sent: FormData) -> None:
    """Do one of `purge`, `delete`, `pause` and `resume` to a queue. Raises ApiError.

    `sent` may say that only a queue without messages, or without consumers, shall be deleted.
    """
    path = path_to(vhost, queue)
    if action == "delete":
        conditions = {each: "true" for each, _ in _CONDITIONS if each in sent}
        query = f"?{urlencode(conditions)}" if conditions else ""
        await page.api.delete(f"queues/{path}{query}")
    elif action == "purge":
        await page.api.delete(f"queues/{path}/contents")
    else:
        await page.api.post(f"warren/queues/{path}/{action}")


def condition_fields(action: str) -> h.Node:
    """The conditions that a confirmation of `action` offers."""
    return [box_field(*each) for each in _CONDITIONS] if action == "delete" else None


async def _ask(page: Page, action: str, keys: list[str], names: list[tuple[str, str]]) -> Response:
    """Show what would be destroyed, and ask for the number of queues."""
    rows: list[tuple[str, str, int]] = []
    for vhost, queue in names:
        found = await page.api.get(f"queues/{path_to(vhost, queue)}", {"columns": "messages"})
        rows.append((queue, vhost, found.get("messages", 0)))
    messages = sum([count for _, _, count in rows])
    return await page.show(
        f"{_ACTIONS[action]} {len(rows)} queues",
        h.section(".confirm")[
            h.p[f"{figures.count(messages)} messages in these queues would be gone for good."],
            h.ul[
                [
                    h.li[f"{queue} in {vhost}: {figures.count(count)} messages"]
                    for queue, vhost, count in rows
                ]
            ],
            form(
                page,
                "/chosen-queues",
                f"{_ACTIONS[action]} them",
                [h.input(type="hidden", name="chosen", value=key) for key in keys],
                h.input(type="hidden", name="action", value=action),
                condition_fields(action),
                text_field("confirmed", f"Type {len(rows)} to go on", is_needed=True),
                is_dangerous=True,
            ),
        ],
    )


def _filter_fields(page: Page) -> dict[str, h.Node]:
    """The fields of `_FILTERS`, with what the URL says."""

    def box(name: str, value: str, title: str) -> h.Node:
        is_checked = page.query.get(name) == value
        return h.label[
            h.input(type="checkbox", name=name, value=value, checked=is_checked), f" {title}"
        ]

    policy = page.query.get("policy", "")
    return {
        "type": filter_choice(page, "type", "Type", _any_of(_TYPES)),
        "state": filter_choice(page, "state", "State", _any_of(_STATES)),
        "policy": h.label["Policy ", h.input(name="policy", value=policy, size="12")],
        "consumers": box("consumers", "none", "no consumers"),
        "growing": box("growing", "true", "growing"),
    }


def _any_of(values: tuple[str, ...]) -> list[tuple[str, str]]:
    return [("", "any"), *[(each, each) for each in values]]


def _columns(page: Page) -> list[Column]:
    return [
        Column("Name", lambda row: _name(page, row), "name"),
        Column("Virtual host", lambda row: row["vhost"], "vhost"),
        Column("Node", lambda row: row.get("node"), "node", is_optional=True),
        Column("Type", lambda row: row.get("type"), "type"),
        Column("Features", badges),
        Column("Features without policy", own_badges, is_optional=True),
        Column("Policy", lambda row: row.get("policy"), "policy", is_optional=True),
        Column("State", state_square, "state"),
        _count("Consumers", "consumers", is_optional=True),
        Column(
            "Consumer capacity",
            lambda row: figures.percent(row.get("consumer_capacity") or 0, 1),
            "consumer_capacity",
            is_number=True,
            is_optional=True,
        ),
        _count("Ready", "messages_ready"),
        _count("Unacked", "messages_unacknowledged"),
        _count("In memory", "messages_ram", is_optional=True),
        _count("Persistent", "messages_persistent", is_optional=True),
        _count("Total", "messages"),
        _size("Bytes ready", "message_bytes_ready", is_optional=True),
        _size("Bytes unacked", "message_bytes_unacknowledged", is_optional=True),
        _size("Bytes in memory", "message_bytes_ram", is_optional=True),
        _size("Bytes persistent", "message_bytes_persistent", is_optional=True),
        _size("Bytes", "message_bytes", is_optional=True),
        _size("Memory", "memory", is_optional=True),
        _rate("Incoming", "publish"),
        _rate("Deliver / get", "deliver_get"),
        _rate("Redelivered", "redeliver", is_optional=True),
        _rate("Ack", "ack"),
    ]


def _count(title: str, field: str, is_optional: bool = False) -> Column:
    return Column(title, lambda row: figures.count(row.get(field)), field, True, is_optional)


def _size(title: str, field: str, is_optional: bool = False) -> Column:
    return Column(title, lambda row: figures.size(row.get(field)), field, True, is_optional)


def _rate(title: str, field: str, is_optional: bool = False) -> Column:
    def cell(row: Row) -> str:
        details: dict[str, Any] = row.get("message_stats", {}).get(f"{field}_details", {})
        return figures.rate(details.get("rate"))

    return Column(title, cell, f"message_stats.{field}_details.rate", True, is_optional)


def _key(row: Row) -> str:
    return path_to(row["vhost"], row["name"])


def _names(key: str) -> tuple[str, str]:
    """Vhost and name of a key. Raises ApiError."""
    vhost, slash, queue = key.partition("/")
    if not slash:
        raise ApiError(_BAD_REQUEST, "This is no queue.")
    return unquote(vhost), unquote(queue)


def _name(page: Page, row: Row) -> h.Element:
    return h.a(href=page.link(f"/queues/{_key(row)}"))[row["name"]]
