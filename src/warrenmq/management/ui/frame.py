"""What is around every page: menu, search, vhost, range, theme and what needs attention."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.visit import Visit

REFRESH_S: Final = 5
RANGE_NAMES: Final = {
    "1m": "1 m",
    "10m": "10 m",
    "1h": "1 h",
    "8h": "8 h",
    "7d": "7 d",
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
    ("Nodes", "/nodes", "monitoring", ""),
    ("Configuration", "/configuration", "monitoring", ""),
    ("Log", "/log", "monitoring", ""),
    ("Policies", "/policies", "management", ""),
    ("Users", "/users", "administrator", ""),
    ("Vhosts", "/vhosts", "management", ""),
    ("Definitions", "/definitions", "administrator", ""),
)


@dataclass
class Seen:
    """What the frame shows of the cluster; `failure`: why it cannot."""

    totals: dict[str, Any]
    cluster: str
    alarms: list[str]
    vhosts: list[str]
    failure: str = ""


async def seen(visit: Visit) -> Seen:
    """Ask the API for what the frame shows."""
    try:
        overview = await visit.api.get("overview", {"columns": "object_totals,cluster_name"})
        vhosts = [] if visit.is_refresh else await visit.api.get("vhosts", {"columns": "name"})
        alarms = await _alarms(visit) if visit.has_tag("monitoring") else []
    except ApiError as error:
        return Seen({}, "", [], [], error.reason)
    return Seen(
        overview.get("object_totals", {}),
        overview.get("cluster_name", ""),
        alarms,
        [each["name"] for each in vhosts],
    )


async def _alarms(visit: Visit) -> list[str]:
    found = []
    for node in await visit.api.get("nodes"):
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


def live_parts(visit: Visit, frame: Seen) -> h.Node:
    """The parts of the frame that refresh themselves."""
    return [
        _attention(frame, is_refresh=True),
        [_counter(path, field, frame, is_refresh=True) for _, path, _, field in MENU if field],
    ]


def document(visit: Visit, frame: Seen, title: str, content: h.Node) -> h.Element:
    """The whole document."""
    theme = visit.request.cookies.get("theme", "")
    return bare_document(
        visit.prefix,
        title,
        [
            h.a(".skip", href="#main")["To the content"],
            _head(visit, frame),
            h.div(".columns")[
                _menu(visit, frame),
                h.main("#main", tabindex="-1")[
                    _attention(frame, is_refresh=False, is_still=_is_still(visit)),
                    _said(visit),
                    h.h1[title],
                    content,
                ],
            ],
            None if _is_still(visit) else _ticker(visit),
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


def _is_still(visit: Visit) -> bool:
    """Whether the page stays as it is: the user wants it, or it is the reply to a form."""
    return bool(visit.query.get("pause")) or visit.request.method != "GET"


def _ticker(visit: Visit) -> h.Element:
    """Asks for the live parts again and again."""
    return h.div(
        hx_get=visit.url(),
        hx_trigger=f"every {REFRESH_S}s",
        hx_swap="none",
        hidden=True,
    )


def _head(visit: Visit, frame: Seen) -> h.Element:
    return h.header(".head")[
        h.a(".brand", href=visit.link("/overview"))["warren"],
        h.span(".cluster")[frame.cluster],
        h.form(".search", action=f"{visit.prefix}/search", role="search")[
            h.label(for_="search", class_="hidden")["Search queues, exchanges, connections, users"],
            h.input(
                "#search", type="search", name="q", placeholder="Search", accesskey="s",
                value=visit.query.get("q", ""),
            ),
        ],
        _vhosts(visit, frame),
        _ranges(visit),
        _pause(visit),
        _themes(visit),
        h.form(".out", action=f"{visit.prefix}/logout", method="post")[
            h.span(".user")[visit.sign_in.user],
            h.button(type="submit")["Sign out"],
        ],
    ]  # fmt: skip


def _vhosts(visit: Visit, frame: Seen) -> h.Element:
    return h.form(".pick", action=f"{visit.prefix}{visit.path}")[
        [
            h.input(type="hidden", name=name, value=value)
            for name, value in visit.query.items()
            if name not in ("vhost", "page")
        ],
        h.label(for_="vhost")["Vhost"],
        h.select("#vhost", name="vhost")[
            h.option(value="", selected=not visit.vhost)["All"],
            [
                h.option(value=name, selected=name == visit.vhost)[name]
                for name in dict.fromkeys([*frame.vhosts, *([visit.vhost] if visit.vhost else [])])
            ],
        ],
        h.button(type="submit")["Show"],
    ]


def _ranges(visit: Visit) -> h.Element:
    return h.nav(".ranges", aria_label="Range of charts")[
        [
            h.a(
                href=visit.url(range=name),
                aria_current="true" if name == visit.range else None,
            )[title]
            for name, title in RANGE_NAMES.items()
        ]
    ]


def _pause(visit: Visit) -> h.Element:
    if visit.query.get("pause"):
        return h.a(".pause", href=visit.url(pause=None))["Resume"]
    return h.a(".pause", href=visit.url(pause="1"))["Pause"]


def _themes(visit: Visit) -> h.Element:
    chosen = visit.request.cookies.get("theme", "system")
    following = THEMES[(THEMES.index(chosen) + 1) % 3] if chosen in THEMES else "light"
    return h.form(".theme", action=f"{visit.prefix}/theme", method="post")[
        h.input(type="hidden", name="back", value=visit.url()),
        h.button(type="submit", name="theme", value=following)[f"Theme: {chosen}"],
    ]


def _menu(visit: Visit, frame: Seen) -> h.Element:
    return h.nav(".menu", aria_label="Pages")[
        h.ul[
            [
                h.li[
                    h.a(
                        href=visit.link(path),
                        aria_current="page" if visit.path.startswith(path) else None,
                    )[title, " ", _counter(path, field, frame, is_refresh=False) if field else None]
                ]
                for title, path, tag, field in MENU
                if visit.has_tag(tag)
            ]
        ]
    ]


def _counter(path: str, field: str, frame: Seen, is_refresh: bool) -> h.Element:
    return h.span(
        ".count",
        id=f"count-{path[1:]}",
        hx_swap_oob="outerMorph" if is_refresh else None,
    )[figures.count(frame.totals.get(field))]


def _attention(frame: Seen, is_refresh: bool, is_still: bool = False) -> h.Element:
    """Alarms, and a line that shows itself when no refresh has come for a while."""
    now = datetime.now(UTC)
    return h.div("#attention", hx_swap_oob="outerMorph" if is_refresh else None)[
        frame.failure and h.p(".alarm", role="alert")[f"The node does not answer: {frame.failure}"],
        [h.p(".alarm", role="alert")[alarm] for alarm in frame.alarms],
        # A new id makes a new element, whose animation begins anew.
        None
        if is_still
        else h.p(".stale", id=f"stale-{time.monotonic_ns()}")[
            f"No answer since {now:%H:%M:%S} UTC: what this page shows is old."
        ],
    ]


def _said(visit: Visit) -> h.Node:
    said, visit.sign_in.said = visit.sign_in.said, ""
    return said and h.p(".said", role="status")[said]
