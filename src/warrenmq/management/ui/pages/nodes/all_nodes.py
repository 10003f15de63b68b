"""The list of nodes, the links between them with etcd, and the checks of health."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.tables import Column, Row, figures_table, plain_table, table
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.page import Page, PageOf

router = APIRouter()

_TABS: Final = (("nodes", "Nodes"), ("cluster", "Links and etcd"), ("checks", "Health checks"))
_LINK_FIGURES: Final = ("Up for", "Unsent", "Decisions")
# Status of a check that has failed.
_FAILED: Final = 503
# Paths of checks of the asked node, and what each asks.
_CHECKS: Final = (
    ("alarms", "No node has an alarm"),
    ("local-alarms", "This node has no alarm"),
    ("ready-to-serve-clients", "This node takes clients"),
    ("is-in-service", "This node is not in maintenance mode"),
    ("below-node-connection-limit", "This node takes further connections"),
    ("virtual-hosts", "All virtual hosts run"),
    ("node-is-mirror-sync-critical", "No mirrored queue needs this node"),
    ("node-is-quorum-critical", "No quorum queue needs this node"),
    ("certificate-expiration/1/months", "No certificate expires within a month"),
)

Status = dict[str, Any]


@router.get("/nodes")
async def nodes(page: PageOf, tab: str = "nodes") -> Response:
    """The page of all nodes."""
    return await page.show("Nodes", tabs(page, _TABS), await _content(page, tab))


async def _content(page: Page, tab: str) -> h.Node:
    if tab == "cluster":
        return page.live("nodes-cluster", _cluster(await page.api.get("warren/cluster")))
    if tab == "checks":
        # Some checks look at all queues: they are made when the page is opened only.
        return None if page.is_refresh else await _checks(page)
    query = {
        "sort": page.query.get("sort", "name"),
        "sort_reverse": page.query.get("sort_reverse", "false"),
    }
    found = await page.api.get("nodes", query)
    return table(page, "nodes", _columns(page), found, lambda row: row["name"])


def node_state(node: Row) -> str:
    """The state of a node of the API in a word."""
    if not node.get("running"):
        return "down"
    return "in maintenance" if node.get("being_drained") else "running"


def _columns(page: Page) -> list[Column]:
    return [
        Column("Node", lambda row: _name(page, row), "name"),
        Column("State", node_state_square, "running"),
        Column("Alarms", _alarms),
        Column("Memory", lambda row: _of(row, "mem_used", "mem_limit"), "mem_used", True),
        Column("Disk free", lambda row: figures.size(row.get("disk_free")), "disk_free", True),
        Column("Files", lambda row: _counts(row, "fd_used", "fd_total"), "fd_used", True),
        Column("Sockets", lambda row: _counts(row, "sockets_used", "sockets_total"),
               "sockets_used", True),
        Column("Up for", lambda row: figures.duration(row.get("uptime")), "uptime", True),
        Column("Version", lambda row: row.get("warren_version"), "warren_version"),
    ]  # fmt: skip


def _name(page: Page, row: Row) -> h.Element:
    return h.a(href=page.link(f"/nodes/{path_to(row['name'])}"))[row["name"]]


def node_state_square(row: Row) -> h.Element:
    """The state of a node of the API, with a square of its colour."""
    word = node_state(row)
    return h.span(class_=["state", word if word in ("running", "down") else None])[word]


def _alarms(row: Row) -> h.Node:
    found = [
        name for name, field in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if row.get(field)
    ]  # fmt: skip
    return [h.span(".badge.bad")[name] for name in found]


def _of(row: Row, used: str, limit: str) -> str:
    if used not in row:
        return figures.NONE
    return f"{figures.size(row[used])} of {figures.size(row[limit])}"


def _counts(row: Row, used: str, limit: str) -> str:
    if used not in row:
        return figures.NONE
    return f"{figures.count(row[used])} of {figures.count(row[limit])}"


# -- links and etcd --------------------------------------------------------------------------------


def _cluster(cluster: Status) -> h.Node:
    if not cluster["cluster"]:
        return h.p(".none")["This node runs alone: it has no links and no etcd."]
    return [
        _etcd(cluster),
        h.h2["Links"],
        h.p(".note")[
            "A link carries messages and mirrors of queues. Decisions: the changes of "
            "definitions and masters that a node has in force."
        ],
        plain_table(
            "Links",
            ("From", "To", "State", *_LINK_FIGURES),
            [row for node in cluster["nodes"] for row in _links_of(node, cluster)],
            _LINK_FIGURES,
        ),
    ]


def _links_of(node: Status, cluster: Status) -> list[list[h.Node]]:
    """The links of a node, and those that it lacks."""
    up = [
        [
            node["node"],
            link["node"],
            h.span(".state.running")["up"],
            figures.duration(link["up_ms"]),
            figures.size(link["unsent_bytes"]),
            figures.count(link["followed"]),
        ]
        for link in node["links"]
    ]
    missing = [
        [node["node"], other, h.span(".badge.bad")["no link"], *[figures.NONE] * 3]
        for other in cluster["partitions"].get(node["node"], [])
    ]
    return [*up, *missing]


def _etcd(cluster: Status) -> h.Node:
    etcd = cluster["etcd"]
    down = sorted(set(cluster["members"]) - set(cluster["running"]))
    about: list[tuple[str, h.Node]] = [
        ("Cluster", cluster["cluster"]),
        ("Asked node", cluster["node"]),
        ("Members", ", ".join(cluster["members"])),
        ("Not running", ", ".join(down) or "none"),
    ]
    if etcd is None:
        return figures_table("Cluster", about)
    store: list[tuple[str, h.Node]] = [
        ("State", etcd["failure"] or "answers"),
        ("Last transaction", etcd["last_failure"] or "succeeded"),
        ("Version", etcd["version"] or figures.NONE),
        ("Size", figures.size(etcd["db_size_bytes"])),
        ("Alarms", ", ".join(etcd["alarms"]) or "none"),
        *[(f"Member {each['name']}", ", ".join(each["urls"])) for each in etcd["members"]],
    ]
    return [
        etcd["failure"]
        and h.p(".alarm", role="alert")[
            f"etcd does not answer: {etcd['failure']}. Healthy queues go on; until it does, "
            "definitions cannot change and no mirror takes over."
        ],
        h.div(".charts")[figures_table("Cluster", about), figures_table("etcd", store)],
    ]


# -- checks ----------------------------------------------------------------------------------------


async def _checks(page: Page) -> h.Node:
    asked = await page.api.get("overview", {"columns": "node"})
    rows = []
    for path, title in _CHECKS:
        failure = await _failure(page, path)
        result = h.span(".badge.bad")["failed"] if failure else h.span(".state.running")["ok"]
        rows.append(([title, h.br, h.small[f"/api/health/checks/{path}"]], result, failure))
    return [
        h.p(".note")[f"Checks of {asked['node']}, made when the page was opened."],
        plain_table("Health checks", ("Check", "Result", "Reason"), rows),
    ]


async def _failure(page: Page, path: str) -> str:
    """Why a check fails, "" if it does not."""
    try:
        await page.api.get(f"health/checks/{path}")
    except ApiError as error:
        if error.status != _FAILED:
            raise
        return error.reason
    return ""
