"""What is around every page: menu, search, vhost, range, theme and what needs attention."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError

if TYPE_CHECKING:
    from warrenmq.management.ui.page import Page

REFRESH_S: Final = 5
RANGE_NAMES: Final = {
    "1m": "1 min",
    "10m": "10 min",
    "1h": "1 hour",
    "8h": "8 hours",
    "7d": "7 days",
}
THEMES: Final = ("system", "light", "dark")
# The menu: title, path, tag that opens the page, and the field of `object_totals` to count.
MENU: Final = (
    ("Overview", "/overview", "management", ""),
    ("Connections", "/connections", "management", "connections"),
    ("Channels", "/channels", "management", "channels"),
    ("Exchanges", "/exchanges", "management", "exchanges"),
    ("Queues", "/queues", "management", "queues"),
    ("Consumers", "/consumers", "management", "consumers"),
    ("Storage", "/storage", "monitoring", ""),
    ("Mirrors", "/mirrors", "management", ""),
    ("Pipeline", "/pipeline", "management", ""),
    ("Policies", "/policies", "management", ""),
    ("Users", "/users", "administrator", ""),
    ("Vhosts", "/vhosts", "management", ""),
    ("Definitions", "/definitions", "administrator", ""),
    ("Nodes", "/nodes", "monitoring", ""),
)


@dataclass
class Seen:
    """What the frame shows of the cluster; `failure`: why it cannot."""

    totals: dict[str, Any]
    cluster: str
    alarms: list[str]
    vhosts: list[str]
    failure: str = ""


async def seen(page: "Page") -> Seen:
    """Ask the API for what the frame shows."""
    try:
        overview = await page.api.get("overview", {"columns": "object_totals,cluster_name"})
        vhosts = [] if page.is_refresh else await page.api.get("vhosts", {"columns": "name"})
        alarms = await _alarms(page) if page.has_tag("monitoring") else []
    except ApiError as error:
        return Seen({}, "", [], [], error.reason)
    return Seen(
        overview.get("object_totals", {}),
        overview.get("cluster_name", ""),
        alarms,
        [each["name"] for each in vhosts],
    )


async def _alarms(page: "Page") -> list[str]:
    found = []
    for node in await page.api.get("nodes"):
        name = node["name"]
        if not node.get("running"):
            found.append(f"Node {name} does not run.")
        if node.get("mem_alarm"):
            found.append(
                f"Memory alarm on {name}: {figures.size(node['mem_used'])} used, publishers are "
                f"blocked from {figures.size(node['mem_limit'])} on."
            )
        if node.get("disk_free_alarm"):
            found.append(
                f"Disk alarm on {name}: {figures.size(node['disk_free'])} free, publishers are "
                f"blocked below {figures.size(node['disk_free_limit'])}."
            )
    return found


def live_parts(page: "Page", frame: Seen) -> h.Node:
    """The parts of the frame that refresh themselves."""
    return [
        _attention(frame, is_refresh=True),
        [_counter(path, field, frame, is_refresh=True) for _, path, _, field in MENU if field],
    ]


def document(page: "Page", frame: Seen, title: str, content: h.Node) -> h.Element:
    """The whole document."""
    theme = page.request.cookies.get("theme", "")
    return bare_document(
        page.prefix,
        title,
        [
            h.a(".skip", href="#main")["To the content"],
            _head(page, frame),
            h.div(".columns")[
                _menu(page, frame),
                h.main("#main", tabindex="-1")[
                    _attention(frame, is_refresh=False, is_paused="pause" in page.query),
                    _said(page),
                    h.h1[title],
                    content,
                ],
            ],
            None if page.query.get("pause") else _ticker(page),
        ],
        theme if theme in THEMES else "",
    )


def bare_document(prefix: str, title: str, content: h.Node, theme: str = "") -> h.Element:
    """A document without menu, as for those who are not signed in."""
    return h.html(lang="en", data_theme=theme or "system")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.meta(name="htmx-config", content="includeIndicatorCSS:false history:false"),
            h.title[f"{title} · warren"],
            h.link(rel="stylesheet", href=f"{prefix}/static/style.css"),
            h.link(rel="icon", href=f"{prefix}/static/icon.svg"),
            h.script(src=f"{prefix}/static/htmx.js", defer=True),
        ],
        h.body[content],
    ]


def _ticker(page: "Page") -> h.Element:
    """Asks for the live parts again and again."""
    return h.div(
        hx_get=page.url(),
        hx_trigger=f"every {REFRESH_S}s",
        hx_swap="none",
        hidden=True,
    )


def _head(page: "Page", frame: Seen) -> h.Element:
    return h.header(".head")[
        h.a(".brand", href=page.link("/overview"))["warren"],
        h.span(".cluster")[frame.cluster],
        h.form(".search", action=f"{page.prefix}/search", role="search")[
            h.label(for_="search", class_="hidden")["Search queues, exchanges, connections, users"],
            h.input(
                "#search", type="search", name="q", placeholder="Search", accesskey="s",
                value=page.query.get("q", ""),
            ),
        ],
        _vhosts(page, frame),
        _ranges(page),
        _pause(page),
        _themes(page),
        h.form(".out", action=f"{page.prefix}/logout", method="post")[
            h.span(".user")[page.sign_in.user],
            h.button(type="submit")["Sign out"],
        ],
    ]  # fmt: skip


def _vhosts(page: "Page", frame: Seen) -> h.Element:
    return h.form(".pick", action=f"{page.prefix}{page.path}")[
        [
            h.input(type="hidden", name=name, value=value)
            for name, value in page.query.items()
            if name not in ("vhost", "page")
        ],
        h.label(for_="vhost")["Vhost"],
        h.select("#vhost", name="vhost")[
            h.option(value="", selected=not page.vhost)["All"],
            [
                h.option(value=name, selected=name == page.vhost)[name]
                for name in dict.fromkeys([*frame.vhosts, *([page.vhost] if page.vhost else [])])
            ],
        ],
        h.button(type="submit")["Show"],
    ]


def _ranges(page: "Page") -> h.Element:
    return h.nav(".ranges", aria_label="Range of charts")[
        [
            h.a(
                href=page.url(range=name),
                aria_current="true" if name == page.range else None,
            )[title]
            for name, title in RANGE_NAMES.items()
        ]
    ]


def _pause(page: "Page") -> h.Element:
    if page.query.get("pause"):
        return h.a(".pause", href=page.url(pause=None))["Resume"]
    return h.a(".pause", href=page.url(pause="1"))["Pause"]


def _themes(page: "Page") -> h.Element:
    chosen = page.request.cookies.get("theme", "system")
    following = THEMES[(THEMES.index(chosen) + 1) % 3] if chosen in THEMES else "light"
    return h.form(".theme", action=f"{page.prefix}/theme", method="post")[
        h.input(type="hidden", name="back", value=page.url()),
        h.button(type="submit", name="theme", value=following)[f"Theme: {chosen}"],
    ]


def _menu(page: "Page", frame: Seen) -> h.Element:
    return h.nav(".menu", aria_label="Pages")[
        h.ul[
            [
                h.li[
                    h.a(
                        href=page.link(path),
                        aria_current="page" if page.path.startswith(path) else None,
                    )[title, " ", _counter(path, field, frame, is_refresh=False) if field else None]
                ]
                for title, path, tag, field in MENU
                if page.has_tag(tag)
            ]
        ]
    ]


def _counter(path: str, field: str, frame: Seen, is_refresh: bool) -> h.Element:
    return h.span(
        ".count",
        id=f"count-{path[1:]}",
        hx_swap_oob="outerMorph" if is_refresh else None,
    )[figures.count(frame.totals.get(field))]


def _attention(frame: Seen, is_refresh: bool, is_paused: bool = False) -> h.Element:
    """Alarms, and a line that shows itself when no refresh has come for a while."""
    now = datetime.now(UTC)
    return h.div("#attention", hx_swap_oob="outerMorph" if is_refresh else None)[
        frame.failure and h.p(".alarm", role="alert")[f"The node does not answer: {frame.failure}"],
        [h.p(".alarm", role="alert")[alarm] for alarm in frame.alarms],
        # A new id makes a new element, whose animation begins anew.
        None
        if is_paused
        else h.p(".stale", id=f"stale-{time.monotonic_ns()}")[
            f"No answer since {now:%H:%M:%S} UTC: what this page shows is old."
        ],
    ]


def _said(page: "Page") -> h.Node:
    said, page.sign_in.said = page.sign_in.said, ""
    return said and h.p(".said", role="status")[said]
