"""The log of a node, as it goes on."""

from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.elements.tables import filter_choice, filter_of, filter_text
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.nodes.asked_node import ask_node, node_choice

router = APIRouter()

_ENTRIES: Final = 200
_LEVELS: Final = (
    ("", "debug and above"),
    ("info", "info and above"),
    ("notice", "notice and above"),
    ("warning", "warning and above"),
    ("error", "error and above"),
    ("critical", "critical and above"),
)
_BAD: Final = ("error", "critical", "alert", "emergency")
_OF_QUERY: Final = ("level", "text", "before")

Entry = dict[str, Any]


@router.get("/log")
async def log(page: PageOf) -> Response:
    """The page of the log: the newest entries first, or those before the number `before`."""
    query = {name: page.query[name] for name in _OF_QUERY if page.query.get(name)}
    found, failure = await ask_node(page, "warren/log", limit=_ENTRIES, **query)
    return await page.show(
        "Log",
        filter_of(
            page,
            {
                "node": await node_choice(page),
                "level": filter_choice(page, "level", "Level", _LEVELS),
                "text": filter_text(page, "text", "Text"),
                "before": None,
            },
        ),
        page.live("log", failure, found and _entries(page, found)),
    )


def _entries(page: Page, found: Any) -> h.Node:
    entries = found["entries"]
    return [
        h.p(".note")[
            f"Node {found['node']}, the newest first. What the node has forgotten is in its log "
            "file, if it writes one."
        ],
        "before" in page.query and h.p[h.a(href=page.url(before=None))["Newest"]],
        # In a box of its own a browser keeps the place of what is read while entries come above.
        h.div(".log", tabindex="0", role="region", aria_label="Entries of the log")[
            h.ol[[_entry(each) for each in entries]],
            None if entries else h.p(".none")["There are none."],
        ],
        found["has_more"]
        and h.p[h.a(href=page.url(before=entries[-1]["number"]), rel="next")["Older"]],
    ]


def _entry(entry: Entry) -> h.Element:
    level = entry["level"]
    return h.li(id=f"e{entry['number']}")[
        h.small[entry["time"]],
        " ",
        h.span(class_=["badge", "bad" if level in _BAD else level])[level],
        " ",
        h.small[entry["domain"]],
        h.div(".text")[entry["msg"]],
        entry.get("exception") and h.pre[entry["exception"]],
    ]
