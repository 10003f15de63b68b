"""One node: its alarms, charts, memory by use, listeners and links."""

from typing import Any

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import path_to
from warrenmq.management.ui.elements.bars import Mark, Part, bar
from warrenmq.management.ui.elements.charts import Series, chart, levels, rates
from warrenmq.management.ui.elements.tables import Row, figures_table
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.nodes.alarms import alarms
from warrenmq.management.ui.pages.nodes.all_nodes import node_state
from warrenmq.management.ui.visit import RANGES

router = APIRouter()

# Names of uses of memory, with the colours of their parts.
_USES = {
    "messages": ("Messages", "alpha"),
    "unfinished": ("Unfinished publishes", "c1"),
    "other_proc": ("All else", "c6"),
}


@router.get("/nodes/{name:segment}")
async def node(page: PageOf, name: str) -> Response:
    """The page of one node."""
    path = f"nodes/{path_to(name)}"
    found = await page.api.get(path, page.samples("node_stats", "msg_rates") | {"memory": "true"})
    cluster = await page.api.get("warren/cluster")
    described = [each for each in cluster["nodes"] if each["node"] == name]
    return await page.show(
        f"Node {name}",
        page.live("node-alarms", alarms(page, found)),
        page.live("node-charts", found.get("running") and _charts(page, found)),
        page.live("node-memory", _memory(found)),
        page.live(
            "node-facts",
            h.div(".charts")[
                _facts(page, found),
                [[_listeners(each), _links(each)] for each in described],
            ],
        ),
        found.get("running")
        and not found.get("being_drained")
        and h.p[h.a(href=page.link(f"/nodes/{path_to(name)}/drain"))["Maintenance of this node"]],
    )


def _charts(page: Page, found: Row) -> h.Element:
    interval = RANGES[page.range][1]

    def level(title: str, field: str, shown: Any, colour: str) -> h.Element:
        series = [Series(title, colour, levels(found.get(f"{field}_details")))]
        return chart(title, series, interval, shown)

    def churn(title: str, *names: tuple[str, str, str]) -> h.Element:
        series = [
            Series(shown, colour, rates(found.get(f"{field}_details")))
            for field, shown, colour in names
        ]
        return chart(title, series, interval, figures.rate)

    return h.div(".charts")[
        level("Memory", "mem_used", figures.size, "c1"),
        level("Disk free", "disk_free", figures.size, "c2"),
        level("Files", "fd_used", figures.count, "c3"),
        level("Sockets", "sockets_used", figures.count, "c4"),
        churn(
            "Connections",
            ("connection_created", "Opened", "c3"),
            ("connection_closed", "Closed", "c5"),
        ),
        churn("Channels", ("channel_created", "Opened", "c3"), ("channel_closed", "Closed", "c5")),
        churn(
            "Queues",
            ("queue_declared", "Declared", "c1"),
            ("queue_created", "Created", "c3"),
            ("queue_deleted", "Deleted", "c5"),
        ),
    ]


def _memory(found: Row) -> h.Node:
    """Memory by its use; nothing of a node that does not answer."""
    memory = found.get("memory")
    if not isinstance(memory, dict):
        return None
    parts = [
        Part(*_USES.get(use, (use, "c4")), size)
        for use, size in memory.items()
        if isinstance(size, int)
    ]
    marks = [Mark("alarm", found["mem_limit"])]
    return h.div(".charts")[bar("Memory by use", parts, figures.size, marks)]


def _facts(page: Page, found: Row) -> h.Element:
    rows: list[tuple[h.Node, h.Node]] = [("State", node_state(found))]
    if found.get("running") and "uptime" in found:
        rows += [
            ("Up for", figures.duration(found["uptime"])),
            ("Version", found.get("warren_version")),
            ("Process id", found["os_pid"]),
            ("Memory", figures.size(found["mem_used"])),
            ("Memory alarm from", figures.size(found["mem_limit"])),
            ("Disk free", figures.size(found["disk_free"])),
            ("Disk alarm below", figures.size(found["disk_free_limit"])),
            ("Files", _counts(found, "fd")),
            ("Sockets", _counts(found, "sockets")),
            ("Data directory", found["db_dir"]),
            (
                h.a(href=page.link("/configuration", node=found["name"]))["Configuration"],
                ", ".join(found["config_files"]) or "none",
            ),
            (
                h.a(href=page.link("/log", node=found["name"]))["Logs"],
                ", ".join(found["log_files"]) or "none",
            ),
        ]
    return figures_table("Details", rows)


def _counts(found: Row, name: str) -> str:
    return f"{figures.count(found[f'{name}_used'])} of {figures.count(found[f'{name}_total'])}"


def _listeners(described: dict[str, Any]) -> h.Element:
    rows: list[tuple[str, h.Node]] = [
        (each["protocol"], f"{each['interface'] or '::'}, port {each['port']}")
        for each in described["listeners"]
    ]
    takes = "takes clients" if described["is_listening"] else "takes no clients"
    return figures_table("Listeners", [("Node", takes), *rows])


def _links(described: dict[str, Any]) -> h.Element:
    rows: list[tuple[str, h.Node]] = [
        (
            each["node"],
            f"up for {figures.duration(each['up_ms'])}, {figures.size(each['unsent_bytes'])} unsent",
        )
        for each in described["links"]
    ]
    return figures_table("Links to other nodes", rows or [("None", "")])
