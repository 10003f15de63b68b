"""The question whether a user may do something, answered by the permissions. It is in the URL."""

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import choice_field, text_field
from warrenmq.management.ui.elements.names import exchange_path
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.users.demands import (
    OPERATIONS,
    Answer,
    Operation,
    answers,
    topic_answer,
    topic_exchange,
)

router = APIRouter()


@router.get("/rights")
async def rights(
    page: PageOf,
    user: str = "",
    in_vhost: str = "",
    operation: str = "",
    name: str = "",
    other: str = "",
    key: str = "",
) -> Response:
    """The page with the question, and with the answer once it is asked."""
    asked = next((each for each in OPERATIONS if each.name == operation), None)
    answer = None
    if asked is not None and user:
        answer = await _answer(page, asked, user, in_vhost, name, other, key)
    vhosts = await page.api.get("vhosts", {"columns": "name"})
    return await page.show(
        "What may a user do?",
        answer,
        h.form(".sheet", action=page.link("/rights"))[
            [
                h.input(type="hidden", name=each, value=page.query[each])
                for each in ("vhost", "range", "pause")
                if each in page.query
            ],
            text_field("user", "May the user", user, is_needed=True),
            choice_field(
                "operation", "do", [(each.name, each.name) for each in OPERATIONS], operation
            ),
            text_field("name", "on", name, "The queue or exchange; empty: the default exchange."),
            choice_field(
                "in_vhost",
                "in virtual host",
                [(row["name"], row["name"]) for row in vhosts],
                in_vhost or page.vhost,
            ),
            text_field(
                "other",
                "and, with it, the exchange",
                other,
                "Of bind: the source; of declare: the dead letter or alternate exchange, if any.",
            ),
            text_field("key", "Routing key", key, "Counts at topic exchanges."),
            h.button(".go", type="submit")["Ask"],
        ],
    )


async def _answer(
    page: Page, operation: Operation, user: str, vhost: str, name: str, other: str, key: str
) -> h.Node:
    """Yes or no, and each right that counts."""
    try:
        await page.api.get(f"users/{path_to(user)}")
    except ApiError as error:
        if error.status != 404:
            raise
        return _said(False, f"There is no user {user}.")
    rows = await page.api.get(f"users/{path_to(user)}/permissions")
    permission = next((row for row in rows if row["vhost"] == vhost), None)
    if permission is None:
        return _said(False, f"No: {user} has no permissions in {vhost} and may not enter it.")
    found = list(answers(operation, permission, name, other))
    note = ""
    exchange = topic_exchange(operation, name, other)
    if exchange:
        at_topic, note = await _at_topic(page, operation, user, vhost, exchange, key)
        found += [] if at_topic is None else [at_topic]
    is_given = all([each.is_given for each in found])
    verb = f"{operation.name} on '{name}' in {vhost}"
    return [
        _said(is_given, f"Yes: {user} may {verb}." if is_given else f"No: {user} may not {verb}."),
        h.div(".wide", tabindex="0", role="region", aria_label="Rights that count")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        [
                            h.th(scope="col")[title]
                            for title in ("At", "Right", "Pattern of the user", "Given")
                        ]
                    ]
                ],
                h.tbody[[_row(each) for each in found]],
            ]
        ],
        note and h.p(".none")[note],
    ]


async def _at_topic(
    page: Page, operation: Operation, user: str, vhost: str, exchange: str, key: str
) -> tuple[Answer | None, str]:
    """What topic permissions say, and why they do not count."""
    try:
        found = await page.api.get(f"exchanges/{exchange_path(vhost, exchange)}")
    except ApiError as error:
        if error.status != 404:
            raise
        return None, f"There is no exchange {exchange} in {vhost}: topic permissions were left out."
    if found["type"] != "topic":
        return None, f"{exchange} is of type {found['type']}: topic permissions do not count."
    rows = await page.api.get(f"users/{path_to(user)}/topic-permissions")
    in_vhost = [row for row in rows if row["vhost"] == vhost]
    answer = topic_answer(operation, in_vhost, exchange, key)
    if answer is None:
        return None, f"No topic permission of {user} limits the routing keys at {exchange}."
    return answer, ""


def _said(is_given: bool, text: str) -> h.Element:
    return h.p(".said" if is_given else ".alarm", role="status")[text]


def _row(answer: Answer) -> h.Element:
    return h.tr[
        h.td[answer.what],
        h.td[answer.right],
        h.td[h.code[answer.pattern] if answer.pattern else "empty"],
        h.td["yes" if answer.is_given else "no"],
    ]
