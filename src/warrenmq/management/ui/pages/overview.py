"""The overview: lengths, rates, nodes, and the queues that need a look."""

from typing import Any

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.charts import chart
from warrenmq.management.ui.elements.message_charts import queued_messages, rate_of
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.nodes.all_nodes import node_state_square
from warrenmq.management.ui.visit import RANGES

router = APIRouter()


@router.get("/overview")
async def overview(page: PageOf) -> Response:
    """The page."""
    query = page.samples("lengths", "msg_rates")
    found = await page.api.get("overview", query)
    longest = await page.api.get(
        "queues", {"page": 1, "page_size": 5, "sort": "messages", "sort_reverse": "true"}
    )
    nodes = await page.api.get("nodes") if page.has_tag("monitoring") else []
    return await page.show(
        "Overview",
        page.live("overview-figures", _totals(page, found)),
        page.live("overview-charts", _charts(page, found)),
        page.live("overview-nodes", nodes and _nodes(page, nodes)),
        page.live("overview-longest", _longest(page, longest["items"])),
    )


def _totals(page: Page, found: dict[str, Any]) -> h.Element:
    totals = found.get("queue_totals", {})
    counted = found.get("object_totals", {})
    cards = [
        ("Ready", figures.count(totals.get("messages_ready", 0)), "/queues"),
        ("Unacked", figures.count(totals.get("messages_unacknowledged", 0)), "/queues"),
        ("Queues", figures.count(counted.get("queues", 0)), "/queues"),
        ("Connections", figures.count(counted.get("connections", 0)), "/connections"),
        ("Channels", figures.count(counted.get("channels", 0)), "/channels"),
        ("Consumers", figures.count(counted.get("consumers", 0)), "/consumers"),
        ("Exchanges", figures.count(counted.get("exchanges", 0)), "/exchanges"),
    ]
    return h.div(".cards")[
        [
            h.div(".card")[h.b[value], h.a(href=page.link(path))[title]]
            for title, value, path in cards
        ]
    ]


def _charts(page: Page, found: dict[str, Any]) -> h.Element:
    totals, stats = found.get("queue_totals", {}), found.get("message_stats", {})
    interval = RANGES[page.range][1]

    return h.div(".charts")[
        queued_messages(totals, interval),
        chart(
            "Messages in",
            [
                rate_of(stats, "publish", "Published", "c1"),
                rate_of(stats, "confirm", "Confirmed", "c3"),
            ],
            interval,
            figures.rate,
        ),
        chart(
            "Messages out",
            [
                rate_of(stats, "deliver_get", "Delivered and got", "c2"),
                rate_of(stats, "ack", "Acked", "c3"),
                rate_of(stats, "redeliver", "Redelivered", "c5"),
            ],
            interval,
            figures.rate,
        ),
    ]


def _nodes(page: Page, nodes: list[dict[str, Any]]) -> h.Node:
    return [
        h.h2["Nodes"],
        h.div(".wide", tabindex="0", role="region", aria_label="Nodes")[
            h.table(".list")[
                h.thead[
                    h.tr[
                        [
                            h.th(scope="col")[title]
                            for title in ("Node", "State", "Memory", "Disk free", "Files", "Up for")
                        ]
                    ]
                ],
                h.tbody[[_node(page, each) for each in nodes]],
            ]
        ],
    ]


def _node(page: Page, node: dict[str, Any]) -> h.Element:
    return h.tr[
        h.td[h.a(href=page.link(f"/nodes/{path_to(node['name'])}"))[node["name"]]],
        h.td[node_state_square(node)],
        h.td[f"{figures.size(node.get('mem_used'))} of {figures.size(node.get('mem_limit'))}"],
        h.td[
            f"{figures.size(node.get('disk_free'))}, alarm below "
            f"{figures.size(node.get('disk_free_limit'))}"
        ],
        h.td[f"{figures.count(node.get('fd_used'))} of {figures.count(node.get('fd_total'))}"],
        h.td[figures.duration(node.get("uptime"))],
    ]


def _longest(page: Page, queues: list[dict[str, Any]]) -> h.Node:
    return [
        h.h2["Longest queues"],
        h.ul[
            [
                h.li[
                    h.a(href=page.link(f"/queues/{path_to(each['vhost'], each['name'])}"))[
                        each["name"]
                    ],
                    f" in {each['vhost']}: {figures.count(each.get('messages', 0))} messages",
                ]
                for each in queues
                if each.get("messages")
            ]
        ],
    ]
