"""One queue: its figures, messages, consumers, bindings, and what it is made of."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.charts import Series, chart, levels, rates
from warrenmq.management.ui.elements.forms import (
    area_field,
    confirmation,
    folded,
    form,
    text_field,
)
from warrenmq.management.ui.elements.tables import figures_table, table
from warrenmq.management.ui.elements.values import HINT, read_values, shown_values
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.consumers import consumer_columns, consumer_key
from warrenmq.management.ui.pages.queues.all_queues import act
from warrenmq.management.ui.pages.queues.badges import badges, state
from warrenmq.management.ui.pages.queues.messages import messages_tab
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

_BAD_REQUEST: Final = 400
_MOVED_MAX: Final = 1000
_OF_QUEUE: Final = "/queues/{vhost:segment}/{queue:segment}"

Tab = Callable[[Page, dict[str, Any]], Awaitable[h.Node]]


@router.get(_OF_QUEUE)
async def one_queue(page: PageOf, vhost: str, queue: str) -> Response:
    """The page of one queue, a tab of it."""
    query = page.samples("lengths", "msg_rates")
    found = await page.api.get(f"queues/{path_to(vhost, queue)}", query)
    chosen = page.query.get("tab", "figures")
    show, _ = _TABS.get(chosen, _TABS["figures"])
    return await page.show(
        f"Queue {queue}",
        h.p["In virtual host ", h.b[vhost], " ", badges(found)],
        h.nav(".tabs", aria_label="Tabs")[
            [
                h.a(href=page.url(tab=name), aria_current="page" if tab is show else None)[title]
                for name, (tab, title) in _TABS.items()
            ]
        ],
        await show(page, found),
    )


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
            ),
        )
    if action not in ("purge", "delete", "pause", "resume"):
        raise ApiError(_BAD_REQUEST, "This cannot be done to a queue.")
    await act(page, action, vhost, queue)
    if action == "delete":
        return page.go("/queues", f"Queue {queue} deleted.")
    return page.go(place, f"Done: {action}.")


@router.post(f"{_OF_QUEUE}/move")
async def move(
    page: PageOf,
    vhost: str,
    queue: str,
    destination: Annotated[str, Form()],
    count: Annotated[int, Form(ge=1, le=_MOVED_MAX)] = _MOVED_MAX,
) -> Response:
    """Move messages to another queue."""
    body = {"count": count, "destination": destination}
    moved = await page.api.post(f"warren/queues/{path_to(vhost, queue)}/move", body)
    said = f"{figures.count(moved['moved'])} messages moved to {destination}."
    return page.go(f"/queues/{path_to(vhost, queue)}", said, tab="messages")


@router.post(f"{_OF_QUEUE}/bind")
async def bind(
    page: PageOf,
    vhost: str,
    queue: str,
    exchange: Annotated[str, Form()],
    routing_key: Annotated[str, Form()] = "",
    arguments: Annotated[str, Form()] = "",
) -> Response:
    """Bind the queue to an exchange."""
    try:
        values = read_values(arguments)
    except ValueError as error:
        raise ApiError(_BAD_REQUEST, str(error)) from None
    body = {"routing_key": routing_key, "arguments": values}
    await page.api.post(f"bindings/{path_to(vhost)}/e/{path_to(exchange)}/q/{path_to(queue)}", body)
    place = f"/queues/{path_to(vhost, queue)}"
    return page.go(place, f"Bound to {exchange}.", tab="bindings")


@router.post(f"{_OF_QUEUE}/unbind")
async def unbind(
    page: PageOf,
    vhost: str,
    queue: str,
    exchange: Annotated[str, Form()],
    properties_key: Annotated[str, Form()],
) -> Response:
    """Take a binding away."""
    path = f"bindings/{path_to(vhost)}/e/{path_to(exchange)}/q/{path_to(queue, properties_key)}"
    await page.api.delete(path)
    place = f"/queues/{path_to(vhost, queue)}"
    return page.go(place, f"No longer bound to {exchange}.", tab="bindings")


async def _figures(page: Page, found: dict[str, Any]) -> h.Node:
    stats = found.get("message_stats", {})
    interval = RANGES[page.range][1]

    def rate_of(name: str, title: str, colour: str) -> Series:
        return Series(title, colour, rates(stats.get(f"{name}_details")))

    charts = h.div(".charts")[
        chart(
            "Messages",
            [
                Series("Unacked", "c2", levels(found.get("messages_unacknowledged_details"))),
                Series("Ready", "c1", levels(found.get("messages_ready_details"))),
            ],
            interval,
            figures.count,
            is_stacked=True,
        ),
        chart(
            "Rates",
            [
                rate_of("publish", "Published", "c1"),
                rate_of("deliver_get", "Delivered and got", "c2"),
                rate_of("ack", "Acked", "c3"),
                rate_of("redeliver", "Redelivered", "c5"),
            ],
            interval,
            figures.rate,
        ),
    ]
    return [
        page.live("queue-figures", charts, h.div(".charts")[_messages(found), _details(found)]),
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


def _details(found: dict[str, Any]) -> h.Element:
    return figures_table(
        "Details",
        [
            ("State", state(found)),
            ("Type", found.get("type")),
            ("Node", found.get("node")),
            ("Consumers", figures.count(found.get("consumers"))),
            ("Consumer capacity", figures.percent(found.get("consumer_capacity") or 0, 1)),
            ("Memory", figures.size(found.get("memory"))),
            ("Policy", found.get("policy") or figures.NONE),
            ("Operator policy", found.get("operator_policy") or figures.NONE),
        ],
    )


def _actions(page: Page, found: dict[str, Any]) -> h.Element:
    place = f"/queues/{path_to(found['vhost'], found['name'])}/do"
    pause = "resume" if found.get("state") == "paused" else "pause"
    return h.form(".bar", action=page.link(place), method="post")[
        [
            h.button(class_=style, type="submit", name="action", value=action)[action.capitalize()]
            for action, style in ((pause, ""), ("purge", "danger"), ("delete", "danger"))
        ]
    ]


async def _messages_tab(page: Page, found: dict[str, Any]) -> h.Node:
    return [
        await messages_tab(page, found),
        folded(
            "Move messages to another queue",
            form(
                page,
                f"/queues/{path_to(found['vhost'], found['name'])}/move",
                "Move them",
                text_field("destination", "Queue", is_needed=True),
                text_field(
                    "count", "Messages", str(_MOVED_MAX), f"At most {_MOVED_MAX}.", "number"
                ),
            ),
        ),
    ]


async def _consumers(page: Page, found: dict[str, Any]) -> h.Node:
    columns = [
        column for column in consumer_columns(page) if column.title not in ("Virtual host", "Queue")
    ]
    return table(page, "consumers", columns, found.get("consumer_details", []), consumer_key)


async def _bindings(page: Page, found: dict[str, Any]) -> h.Node:
    place = path_to(found["vhost"], found["name"])
    rows = await page.api.get(f"queues/{place}/bindings")
    return [
        h.div(".wide", tabindex="0", role="region", aria_label="Bindings")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        [
                            h.th(scope="col")[title]
                            for title in ("From exchange", "Routing key", "Arguments", "")
                        ]
                    ]
                ],
                h.tbody[[_binding(page, place, found["vhost"], row) for row in rows]],
            ]
        ],
        folded(
            "Bind this queue to an exchange",
            form(
                page,
                f"/queues/{place}/bind",
                "Bind it",
                text_field("exchange", "Exchange", is_needed=True),
                text_field("routing_key", "Routing key"),
                area_field("arguments", "Arguments", hint=HINT),
            ),
        ),
    ]


def _binding(page: Page, place: str, vhost: str, row: dict[str, Any]) -> h.Element:
    source = row["source"]
    return h.tr[
        h.td[
            h.a(href=page.link(f"/exchanges/{path_to(vhost, source)}"))[source]
            if source
            else "(the default exchange)"
        ],
        h.td[row["routing_key"]],
        h.td[shown_values(row["arguments"])],
        h.td[
            source
            and h.form(action=page.link(f"/queues/{place}/unbind"), method="post")[
                h.input(type="hidden", name="exchange", value=source),
                h.input(type="hidden", name="properties_key", value=row["properties_key"]),
                h.button(type="submit", aria_label=f"Unbind {source} {row['routing_key']}")[
                    "Unbind"
                ],
            ]
        ],
    ]


async def _arguments(page: Page, found: dict[str, Any]) -> h.Node:
    """Each value, and whether the queue, a policy or an operator policy gave it."""
    arguments = found.get("arguments") or {}
    defined = found.get("effective_policy_definition") or {}
    given: list[tuple[str, h.Node]] = [
        (name, str(value)) for name, value in sorted(arguments.items())
    ]
    by_policy: list[tuple[str, h.Node]] = [
        (name, str(value)) for name, value in sorted(defined.items())
    ]
    policies = [found[name] for name in ("policy", "operator_policy") if found.get(name)]
    return h.div(".charts")[
        figures_table("By arguments of the queue", given or [("None", "")]),
        figures_table(
            f"By policy {' and '.join(policies)}" if policies else "By no policy",
            by_policy or [("None", "")],
        ),
    ]


_TABS: Final[dict[str, tuple[Tab, str]]] = {
    "figures": (_figures, "Figures"),
    "messages": (_messages_tab, "Messages"),
    "consumers": (_consumers, "Consumers"),
    "bindings": (_bindings, "Bindings"),
    "arguments": (_arguments, "Arguments and policy"),
}
