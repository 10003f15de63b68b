"""The page of the stores of the node that serves it, in four tabs."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import htpy as h
from fastapi import APIRouter, Form
from starlette.responses import Response

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.bars import Mark, Part, bar
from warrenmq.management.ui.elements.forms import folded_form
from warrenmq.management.ui.elements.spreads import nanoseconds, shown_quantile
from warrenmq.management.ui.elements.tables import Column, page_of, table
from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.storage.compactions import compactions
from warrenmq.management.ui.pages.storage.disk_by_queue import queues_tab
from warrenmq.management.ui.pages.storage.durations import durations_tab
from warrenmq.management.ui.pages.storage.history import memory_chart, write_charts
from warrenmq.management.ui.pages.storage.vhost_store import file_maps, store_pictures

router = APIRouter()

_TABS: Final = (
    ("stores", "Stores"),
    ("queues", "Which queue fills the disk"),
    ("files", "Files"),
    ("durations", "Durations"),
)

Status = dict[str, Any]


@router.get("/storage")
async def storage(page: PageOf, tab: str = "") -> Response:
    """The page."""
    shown = {"queues": queues_tab, "files": _files, "durations": durations_tab}
    content = await shown.get(tab, _stores)(page)
    return await page.show("Storage", tabs(page, _TABS), content)


@router.post("/storage/compact")
async def compact(page: PageOf, of: Annotated[str, Form()] = "") -> Response:
    """Have the garbage of large messages freed now, in the vhost `of` or in all."""
    begun = await page.api.post("warren/storage/compact", {"vhost": of} if of else {})
    files = sum([store["files"] for store in begun["stores"]])
    garbage = sum([store["garbage_bytes"] for store in begun["stores"]])
    said = f"{figures.count(files)} files are copied, with {figures.size(garbage)} of garbage."
    return page.go("/storage", said, tab=page.query.get("tab"))


async def _stores(page: Page) -> h.Node:
    node = await page.api.get("warren/storage", page.samples("node_stats"))
    latencies = await page.api.get("warren/latencies")
    history = node.get("history", [])[::-1]
    vhosts = sorted(node["vhosts"], key=lambda each: (-each["disk_bytes"], each["vhost"]))
    store = _picked(page, vhosts)
    return [
        page.live("storage-cards", _cards(node, latencies)),
        page.live("storage-memory", h.div(".charts")[_memory(node), _disk(node)]),
        page.live(
            "storage-history",
            h.div(".charts")[memory_chart(page, history), write_charts(page, history)],
        ),
        h.h2["Virtual hosts"],
        table(
            page,
            "stores",
            _columns(page),
            page_of(page, vhosts, len(vhosts)),
            lambda row: row["vhost"],
        ),
        store and h.h2[f"Store of {store['vhost']}"],
        store and page.live("storage-of-vhost", store_pictures(store)),
        store and page.has_tag("administrator") and _compact_form(page, store["vhost"]),
    ]


async def _files(page: Page) -> h.Node:
    node = await page.api.get("warren/storage")
    vhosts = sorted(node["vhosts"], key=lambda each: (-each["disk_bytes"], each["vhost"]))
    store = _picked(page, vhosts)
    if store is None:
        return h.p(".none")["There is no such store."]
    name = store["vhost"]
    try:
        files = await page.api.get(f"warren/storage/{path_to(name)}/files")
        runs = await page.api.get(f"warren/storage/{path_to(name)}/compactions")
    except ApiError as error:
        return h.p(".alarm", role="alert")[f"Files of {name} are not shown: {error.reason}"]
    return [
        h.h2[f"Files of {name}"],
        h.p(".note")[
            "Each cell is a file: what is needed at the bottom, garbage at the top. "
            "Pick a virtual host above; this one has the most bytes."
            if not page.vhost
            else "Each cell is a file: what is needed at the bottom, garbage at the top."
        ],
        page.live("storage-files", file_maps(files), compactions(page, runs)),
        page.has_tag("administrator") and _compact_form(page, name),
    ]


def _picked(page: Page, vhosts: list[Status]) -> Status | None:
    """The store of the picked vhost, or the largest one."""
    wanted = [each for each in vhosts if page.vhost in ("", each["vhost"])]
    return wanted[0] if wanted else None


def _cards(node: Status, latencies: Status) -> h.Element:
    vhosts = node["vhosts"]
    disk = sum([each["disk_bytes"] for each in vhosts])
    live = sum([each["live_bytes"] for each in vhosts])
    contents = [each[name] for each in vhosts for name in ("persistent", "transient")]
    total = sum([each["total_bytes"] for each in contents])
    garbage = sum([each["garbage_bytes"] for each in contents])
    cards = [
        ("on disk", figures.size(disk)),
        ("needed by queues", figures.size(live)),
        ("of large messages are garbage", figures.percent(garbage, total)),
        ("compactions", figures.count(sum([each["compactions"] for each in contents]))),
        ("written for each byte published", _amplification(vhosts)),
        ("p99 of syncs", shown_quantile(latencies["syncs"], 0.99, nanoseconds)),
        ("p99 of confirms", shown_quantile(latencies["confirms"], 0.99, nanoseconds)),
    ]
    return h.div(".cards")[[h.div(".card")[h.b[value], h.span[title]] for title, value in cards]]


def _amplification(vhosts: list[Status]) -> str:
    """Bytes written for each byte published, over all stores."""
    known = [each["writes"] for each in vhosts if each["writes"] is not None]
    published = sum([each["published_bytes"] for each in known])
    written = sum([each["amplification"] * each["published_bytes"] for each in known])
    return f"{written / published:.2f}" if published else figures.NONE


def _memory(node: Status) -> h.Element:
    used = node["memory_used_bytes"] or 0
    messages = min(node["message_bytes"], used)
    unfinished = min(node["unfinished_bytes"], used - messages)
    parts = [
        Part("Messages", "alpha", messages),
        Part("Unfinished publishes", "c1", unfinished),
        Part("All else", "c6", used - messages - unfinished),
    ]
    marks = [Mark("alarm", node["memory_limit_bytes"])]
    if node["paging_limit_bytes"] is not None:
        marks.insert(0, Mark("paging begins", node["paging_limit_bytes"]))
    note = "From the first mark on messages leave memory; at the second one publishers are blocked."
    return bar(f"Memory of {node['node']}", parts, figures.size, marks, note)


def _disk(node: Status) -> h.Element:
    free = node["disk_free_bytes"] or 0
    stores = sum([each["disk_bytes"] for each in node["vhosts"]])
    parts = [Part("Stores", "c2", stores), Part("Free", "c3", free)]
    note = f"Publishers are blocked below {figures.size(node['disk_limit_bytes'])} of free disk."
    return bar("Disk", parts, figures.size, (), note)


def _columns(page: Page) -> list[Column]:
    return [
        Column("Virtual host", lambda row: _link(page, row["vhost"])),
        _size("On disk", lambda row: row["disk_bytes"]),
        _size("Needed", lambda row: row["live_bytes"]),
        _size("Journal", lambda row: row["journal"]["bytes"]),
        _size("Indexes", lambda row: row["index"]["bytes"]),
        _size("Large persistent", lambda row: row["persistent"]["total_bytes"]),
        _size("Large transient", lambda row: row["transient"]["total_bytes"]),
        _size("Debt", lambda row: row["debt_bytes"]),
        Column("Queues", lambda row: figures.count(row["queues"]), is_number=True),
        Column("Lost", lambda row: figures.count(row["lost"]), is_number=True),
    ]


def _link(page: Page, vhost: str) -> h.Element:
    return h.a(href=page.url(vhost=vhost, page=None))[vhost]


def _size(title: str, value: Callable[[Status], int]) -> Column:
    return Column(title, lambda row: figures.size(value(row)), is_number=True)


def _compact_form(page: Page, vhost: str) -> h.Node:
    return folded_form(
        page,
        "Compact now",
        "/storage/compact",
        "Compact",
        h.p["Each file of large messages that is more than 5 % garbage is copied once."],
        h.input(type="hidden", name="of", value=vhost),
    )
