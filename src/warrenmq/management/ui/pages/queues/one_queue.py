"""One queue: its figures, messages, consumers, bindings, and what it is made of."""

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.charts import chart
from warrenmq.management.ui.elements.forms import (
    choice_field,
    confirmation,
    form,
    form_around,
    text_field,
)
from warrenmq.management.ui.elements.message_charts import queued_messages, rate_of
from warrenmq.management.ui.elements.publishing import message_fields, message_of
from warrenmq.management.ui.elements.tables import figures_table, state_square
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.bindings import bindings_of_queue
from warrenmq.management.ui.pages.queues.all_queues import act, condition_fields
from warrenmq.management.ui.pages.queues.badges import badges
from warrenmq.management.ui.pages.queues.consumers import consumers_tab
from warrenmq.management.ui.pages.queues.messages import (
    BODY_MAX,
    message_sheet,
    messages_tab,
    oldest_since_ms,
)
from warrenmq.management.ui.pages.queues.moving import moving_tab
from warrenmq.management.ui.pages.queues.settings import settings_tab
from warrenmq.management.ui.pages.storage.queue_storage import queue_storage
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

_BAD_REQUEST: Final = 400
_GOT_MAX: Final = 100
# What happens to messages that were got, in the words of RabbitMQ's API.
_ACK_MODES: Final = (
    ("ack_requeue_true", "requeue them, marked as redelivered"),
    ("ack_requeue_false", "they are gone"),
    ("reject_requeue_true", "reject and requeue them"),
    ("reject_requeue_false", "reject them: gone, or dead letters"),
)
_OF_QUEUE: Final = "/queues/{vhost:segment}/{queue:segment}"
_TABS: Final = (
    ("figures", "Figures"),
    ("messages", "Messages"),
    ("publish", "Publish"),
    ("get", "Get"),
    ("move", "Move and replay"),
    ("consumers", "Consumers"),
    ("bindings", "Bindings"),
    ("arguments", "Arguments and policy"),
    ("storage", "Storage"),
)

Tab = Callable[[Page, dict[str, Any]], Awaitable[h.Node]]


@router.get(_OF_QUEUE)
async def one_queue(page: PageOf, vhost: str, queue: str) -> Response:
    """The page of one queue, a tab of it."""
    found = await page.api.get(
        f"queues/{path_to(vhost, queue)}", page.samples("lengths", "msg_rates")
    )
    show = _SHOWS.get(page.query.get("tab", ""), _figures)
    return await page.show(
        f"Queue {queue}",
        h.p["In virtual host ", h.b[vhost], " ", badges(found)],
        tabs(page, _TABS),
        await show(page, found),
    )


@router.post(f"{_OF_QUEUE}/publish")
async def publish(page: PageOf, vhost: str, queue: str) -> Response:
    """Publish a message to the queue. The form stays filled for the next one."""
    body = {**message_of(await page.form()), "routing_key": queue}
    await page.api.post(f"exchanges/{path_to(vhost)}/amq.default/publish", body)
    return await page.stay("Published: the queue has the message.")


@router.post(f"{_OF_QUEUE}/get")
async def get(
    page: PageOf,
    vhost: str,
    queue: str,
    ackmode: Annotated[str, Form()],
    count: Annotated[int, Form(ge=1, le=_GOT_MAX)] = 1,
) -> Response:
    """Get messages as a consumer does."""
    body = {"ackmode": ackmode, "count": count, "encoding": "base64", "truncate": BODY_MAX}
    got = await page.api.post(f"queues/{path_to(vhost, queue)}/get", body)
    said = f"{len(got)} messages were got."
    return await page.stay(said, [message_sheet(each) for each in got])


@router.post(f"{_OF_QUEUE}/do")
async def do(
    page: PageOf,
    vhost: str,
    queue: str,
    action: Annotated[str, Form()],
    confirmed: Annotated[str, Form()] = "",
) -> Response:
    """Purge, delete, pause or resume the queue; the first two ask for its name."""
    place = f"/queues/{path_to(vhost, queue)}"
    if action in ("purge", "delete") and confirmed != queue:
        found = await page.api.get(f"queues/{path_to(vhost, queue)}", {"columns": "messages"})
        verb = action.capitalize()
        question = (
            f"{verb} {queue}? {figures.count(found.get('messages', 0))} messages would be gone."
        )
        return await page.show(
            f"{verb} queue {queue}",
            confirmation(
                page,
                f"{place}/do",
                question,
                queue,
                f"{verb} it",
                h.input(type="hidden", name="action", value=action),
                condition_fields(action),
            ),
        )
    if action not in ("purge", "delete", "pause", "resume"):
        raise ApiError(_BAD_REQUEST, "This cannot be done to a queue.")
    await act(page, action, vhost, queue, await page.form())
    if action == "delete":
        return page.go("/queues", f"Queue {queue} deleted.")
    return page.go(place, f"Done: {action}.")


async def _figures(page: Page, found: dict[str, Any]) -> h.Node:
    stats = found.get("message_stats", {})
    interval = RANGES[page.range][1]

    charts = h.div(".charts")[
        queued_messages(found, interval),
        chart(
            "Rates",
            [
                rate_of(stats, "publish", "Published", "c1"),
                rate_of(stats, "deliver_get", "Delivered and got", "c2"),
                rate_of(stats, "ack", "Acked", "c3"),
                rate_of(stats, "redeliver", "Redelivered", "c5"),
            ],
            interval,
            figures.rate,
        ),
    ]
    since_ms = await oldest_since_ms(page, found)
    facts = h.div(".charts")[_messages(found), _details(found, since_ms)]
    return [
        page.live("queue-figures", charts, facts),
        _actions(page, found),
    ]


def _messages(found: dict[str, Any]) -> h.Element:
    """Counts and bytes by where and how messages are kept."""
    rows = (
        ("Total", "messages", "message_bytes"),
        ("Ready", "messages_ready", "message_bytes_ready"),
        ("Unacked", "messages_unacknowledged", "message_bytes_unacknowledged"),
        ("In memory", "messages_ram", "message_bytes_ram"),
        ("Persistent", "messages_persistent", "message_bytes_persistent"),
        ("Paged out", "messages_paged_out", "message_bytes_paged_out"),
    )
    return h.table(".facts")[
        h.caption["Messages"],
        h.thead[
            h.tr[
                h.th(scope="col")["Kind"],
                h.th(scope="col", class_="number")["Count"],
                h.th(scope="col", class_="number")["Bytes"],
            ]
        ],
        h.tbody[
            [
                h.tr[
                    h.th(scope="row")[title],
                    h.td(".number")[figures.count(found.get(count))],
                    h.td(".number")[figures.size(found.get(size))],
                ]
                for title, count, size in rows
            ]
        ],
    ]


def _details(found: dict[str, Any], since_ms: int | None) -> h.Element:
    """The rest of the figures; `since_ms`: when the oldest ready message came (Unix ms)."""
    age = figures.NONE if since_ms is None else figures.duration(time.time() * 1000 - since_ms)
    return figures_table(
        "Details",
        [
            ("State", state_square(found)),
            ("Type", found.get("type")),
            ("Node", found.get("node")),
            ("Consumers", figures.count(found.get("consumers"))),
            ("Consumer capacity", figures.percent(found.get("consumer_capacity") or 0, 1)),
            ("Oldest ready message waits", age),
            ("Its timestamp", figures.moment(_ms(found.get("head_message_timestamp")))),
            ("Memory", figures.size(found.get("memory"))),
            ("Policy", found.get("policy") or figures.NONE),
            ("Operator policy", found.get("operator_policy") or figures.NONE),
        ],
    )


def _ms(seconds: Any) -> Any:
    return seconds * 1000 if isinstance(seconds, int) else None


def _actions(page: Page, found: dict[str, Any]) -> h.Element:
    place = f"/queues/{path_to(found['vhost'], found['name'])}/do"
    pause = "resume" if found.get("state") == "paused" else "pause"
    buttons = [
        h.button(class_=style, type="submit", name="action", value=action)[action.capitalize()]
        for action, style in ((pause, ""), ("purge", "danger"), ("delete", "danger"))
    ]
    return form_around(page, place, buttons, style="bar")


async def _publish(page: Page, found: dict[str, Any]) -> h.Node:
    place = f"/queues/{path_to(found['vhost'], found['name'])}"
    return form(page, f"{place}/publish", "Publish message", message_fields())


async def _get(page: Page, found: dict[str, Any]) -> h.Node:
    return [
        h.p["This takes messages from the queue as a consumer does. A look changes nothing."],
        form(
            page,
            f"/queues/{path_to(found['vhost'], found['name'])}/get",
            "Get messages",
            choice_field("ackmode", "Then", _ACK_MODES),
            text_field("count", "Messages", "1", f"At most {_GOT_MAX}.", "number"),
        ),
    ]


async def _storage(page: Page, found: dict[str, Any]) -> h.Node:
    return await queue_storage(page, found["vhost"], found["name"])


# By its name in the URL, what a tab shows.
_SHOWS: Final[dict[str, Tab]] = {
    "figures": _figures,
    "messages": messages_tab,
    "publish": _publish,
    "get": _get,
    "move": moving_tab,
    "consumers": consumers_tab,
    "bindings": bindings_of_queue,
    "arguments": settings_tab,
    "storage": _storage,
}
