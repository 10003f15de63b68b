"""The copies of one queue: the ring, lag, synchronisation, and what is lost without a node."""

from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.forms import button_form
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.mirrors.ring import ring_picture

router = APIRouter()

_OF_QUEUE: Final = "/mirrors/{vhost:segment}/{queue:segment}"
_BAD_REQUEST: Final = 400
_ACTIONS: Final = {
    "sync": "The mirrors are being synchronised.",
    "cancel_sync": "No mirror is being synchronised any more.",
}

Status = dict[str, Any]


@router.get(_OF_QUEUE)
async def mirrors_of_queue(page: PageOf, vhost: str, queue: str) -> Response:
    """The page of the copies of one queue."""
    status = await page.api.get(f"warren/mirrors/{path_to(vhost, queue)}")
    return await page.show(
        f"Mirrors of {queue}",
        h.p[
            "In virtual host ",
            h.b[vhost],
            ", ",
            h.a(href=page.link(f"/queues/{path_to(vhost, queue)}"))["the queue itself"],
        ],
        page.live("mirrors-summary", _summary(status)),
        page.live("mirrors-ring", ring_picture(status)),
        page.live("mirrors-copies", _copies(status)),
        page.has_tag("administrator") and _forms(page, vhost, queue),
        page.live("mirrors-losses", _losses(status)),
    )


@router.post(f"{_OF_QUEUE}/do")
async def act(page: PageOf, vhost: str, queue: str, action: Annotated[str, Form()]) -> Response:
    """Begin or stop the synchronisation of the mirrors."""
    if action not in _ACTIONS:
        raise ApiError(_BAD_REQUEST, "This cannot be done to mirrors.")
    path = path_to(vhost, queue)
    await page.api.post(f"queues/{path}/actions", {"action": action})
    return page.go(f"/mirrors/{path}", _ACTIONS[action])


def _summary(status: Status) -> h.Node:
    synchronised = len(status["synchronised_slave_nodes"])
    cards = [
        ("state", status["state"]),
        ("master", status["node"]),
        (
            f"of {figures.count(len(status['mirrors']))} mirrors in sync",
            figures.count(synchronised),
        ),
        ("messages", figures.count(status["messages"])),
        ("epoch", figures.count(status["epoch"])),
        ("view", figures.count(status["version"])),
        ("copies in sync that a publish needs", figures.count(status["min_sync"])),
    ]
    return [
        h.div(".cards")[[h.div(".card")[h.b[value], h.span[title]] for title, value in cards]],
        status["reason"] and h.p(".note")[f"Why this master: {status['reason']}"],
    ]


def _copies(status: Status) -> h.Node:
    if not status["mirrors"]:
        return h.p(".none")["There are no mirrors: the master is alone."]
    lags = ("Messages behind", "Bytes behind", "Behind for")
    numbers = (*lags, "Sent for it")
    heads = ("Mirror", "State", *lags, "Synchronised", "Sent for it")
    rows = [_row(mirror) for mirror in status["mirrors"]]
    return [
        h.h2["Mirrors"],
        h.p(".note")[
            "Behind: what the master has and the mirror has not on its disk yet, and the age of "
            "the oldest such change."
        ],
        plain_table("Mirrors", heads, rows, numbers),
    ]


def _row(mirror: Status) -> list[h.Node]:
    if not mirror["is_online"]:
        state = h.span(".badge.bad")["not reached"]
    elif mirror["is_synchronised"]:
        state = h.span(".badge.blue")["in sync"]
    else:
        state = h.span(".badge.bad")["not in sync"]
    return [
        mirror["node"],
        state,
        figures.count(mirror["lag_messages"]),
        figures.size(mirror["lag_bytes"]),
        figures.duration(mirror["lag_ms"]),
        _progress(mirror),
        figures.size(mirror["sync_bytes"]),
    ]


def _progress(mirror: Status) -> h.Node:
    done, whole = mirror["sync_messages"], mirror["sync_total"]
    if done is None:
        return figures.NONE
    return [
        h.progress(
            value=str(done), max=str(whole or 1), aria_label=f"Synchronisation of {mirror['node']}"
        ),
        f" {figures.count(done)} of {figures.count(whole)} messages",
        mirror["sync_left_ms"] is not None and [h.br, _speed(mirror)],
    ]


def _speed(mirror: Status) -> str:
    rate = figures.rate(mirror["sync_message_rate"])
    size_rate = figures.size_rate(mirror["sync_byte_rate"])
    return f"{rate}, {size_rate}, {figures.duration(mirror['sync_left_ms'])} left"


def _forms(page: Page, vhost: str, queue: str) -> h.Element:
    path = f"/mirrors/{path_to(vhost, queue)}/do"
    return h.div(".bar")[
        button_form(page, path, "Synchronise", {"action": "sync"}),
        button_form(page, path, "Cancel the synchronisation", {"action": "cancel_sync"}),
    ]


def _losses(status: Status) -> h.Node:
    heads = ("If this node stops", "Messages lost", "What happens")
    rows = [
        (
            node,
            "unknown" if loss["messages"] is None else figures.count(loss["messages"]),
            loss["text"],
        )
        for node, loss in status["lost_if_stops"].items()
    ]
    return [
        h.h2["What is lost if a node stops now"],
        plain_table("Losses by node", heads, rows, heads[1:2]),
    ]
