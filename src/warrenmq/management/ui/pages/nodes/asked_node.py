"""The node that a page is about, when there are several."""

from typing import Any, Final

import htpy as h

from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.tables import filter_choice
from warrenmq.management.ui.page import Page

_NOT_FOUND: Final = 404
_SILENT: Final = 503


async def node_choice(page: Page) -> h.Node:
    """A choice of one of the nodes that run; nothing for a node alone, and in a refresh."""
    if page.is_refresh:
        return None
    cluster = await page.api.get("warren/cluster", {"columns": "node,running"})
    if len(cluster["running"]) < 2:
        return None
    others = [name for name in cluster["running"] if name != cluster["node"]]
    choices = [("", cluster["node"]), *[(name, name) for name in others]]
    return filter_choice(page, "node", "Node", choices)


async def ask_node(page: Page, path: str, **query: Any) -> tuple[Any, h.Node]:
    """What `path` of the API says of the node of the page, or why it says nothing."""
    node = {"node": page.query["node"]} if page.query.get("node") else {}
    try:
        return await page.api.get(path, {**node, **query}), None
    except ApiError as error:
        if error.status == _NOT_FOUND:
            reason = "There is no such node."
        elif error.status == _SILENT:
            reason = f"The node does not answer: {error.reason}"
        else:
            raise
        return None, h.p(".alarm", role="alert")[reason]
