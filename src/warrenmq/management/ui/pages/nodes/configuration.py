"""The configuration of a node: what is in force, from where it comes, and what waits."""

from collections import Counter
from itertools import groupby
from typing import Any, Final

import htpy as h
from fastapi import APIRouter
from starlette.responses import Response

from warrenmq.management.ui.elements.tables import (
    filter_choice,
    filter_of,
    filter_text,
    plain_table,
)
from warrenmq.management.ui.page import Page, PageOf
from warrenmq.management.ui.pages.nodes.asked_node import ask_node, node_choice

router = APIRouter()

_SHOWN: Final = (
    ("", "all"),
    ("changed", "changed from the default"),
    ("waiting", "waiting for a reload or restart"),
)
_HEADS: Final = ("Key", "Value", "Source", "A change takes effect")
# The value of a password that is set, as the API has it.
_HIDDEN: Final = "(hidden)"
_SOURCES: Final = {"runtime": "set by a command"}

Key = dict[str, Any]


@router.get("/configuration")
async def configuration(page: PageOf) -> Response:
    """The page of the configuration, as it is when the page is opened."""
    found, failure = None, None
    if not page.is_refresh:
        # The node reads its files for each reply.
        found, failure = await ask_node(page, "warren/config")
    return await page.show(
        "Configuration",
        filter_of(
            page,
            {
                "node": await node_choice(page),
                "text": filter_text(page, "text", "Key, value or source"),
                "show": filter_choice(page, "show", "Show", _SHOWN),
            },
        ),
        failure,
        found and [_summary(found), _sections(page, found["keys"])],
    )


def _summary(found: Any) -> h.Node:
    waiting = Counter(each["pending"]["by"] for each in found["keys"] if each["pending"])
    return [
        h.p(".note")[
            f"Node {found['node']}, files: {', '.join(found['files']) or 'none'}. The headings are "
            "those of docs/configuration.md, which explains each key."
        ],
        found["faults"]
        and h.div(".alarm", role="alert")[
            "A reload would change nothing, and a start would fail:",
            h.ul[[h.li[fault] for fault in found["faults"]]],
        ],
        waiting
        and h.p(".note")[
            "Values that wait: ",
            ", ".join([f"{count} for a {by}" for by, count in sorted(waiting.items())]),
            ". SIGHUP reloads the configuration.",
        ],
    ]


def _sections(page: Page, keys: list[Key]) -> h.Node:
    shown = [each for each in keys if _is_shown(page, each)]
    if not shown:
        return h.p(".none")["There are none."]
    return [
        [h.h2[section], plain_table(f"Keys: {section}", _HEADS, [_row(each) for each in of_it])]
        for section, of_it in groupby(shown, lambda each: each["section"])
    ]


def _is_shown(page: Page, key: Key) -> bool:
    show = page.query.get("show", "")
    if (show == "changed" and not key["is_changed"]) or (show == "waiting" and not key["pending"]):
        return False
    text = page.query.get("text", "").lower()
    pending = key["pending"] or {"value": "", "source": ""}
    texts = (key["key"], key["value"], key["source"], pending["value"], pending["source"])
    return any(text in each.lower() for each in texts)


def _row(key: Key) -> list[h.Node]:
    pending = key["pending"]
    return [
        [key["key"], key["is_changed"] and [" ", h.span(".badge")["changed"]]],
        [
            _value(key["value"]),
            pending
            and h.div[
                h.span(".badge.bad")[f"waits for a {pending['by']}"],
                " ",
                _value(pending["value"]),
                h.br,
                h.small[_source(pending["source"])],
            ],
        ],
        _source(key["source"]),
        key["effect"],
    ]


def _value(value: str) -> h.Node:
    if value in ("", _HIDDEN):
        return h.span(".none")["set, not shown" if value else "not set"]
    return h.code[value]


def _source(source: str) -> str:
    return _SOURCES.get(source, source)
