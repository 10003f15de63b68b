"""The page of a list of the API: filter, columns to choose, and the table."""

from collections.abc import Callable, Sequence

import htpy as h
from starlette.responses import Response

from warrenmq.management.ui.api import ApiError
from warrenmq.management.ui.elements.tables import (
    Column,
    Row,
    column_chooser,
    filter_form,
    page_query,
    table,
)
from warrenmq.management.ui.page import Page

_BAD_REQUEST = 400


async def show_list(
    page: Page,
    noun: str,
    path: str,
    columns: Sequence[Column],
    key: Callable[[Row], str],
    *below: h.Node,
) -> Response:
    """The page of the list at `path` of the API, which gives pages; `noun` names one row."""
    name = f"{noun}s"
    shown = await filtered_list(page, noun, name, path, columns, key)
    return await page.show(name.capitalize(), shown, below)


async def filtered_list(
    page: Page,
    noun: str,
    name: str,
    path: str,
    columns: Sequence[Column],
    key: Callable[[Row], str],
) -> h.Node:
    """The table `name` of the list at `path` of the API, with its filter and columns to choose.

    A filter or a page that the API refuses is told beside the filter, so that it can be mended.
    """
    found, refusal = None, ""
    try:
        found = await page.api.get(path, page_query(page, "name"))
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        refusal = f"There is no such page, or the pattern cannot be read ({error.reason})."
    return [
        filter_form(page, noun),
        refusal and h.p(".alarm", role="alert")[refusal],
        column_chooser(page, columns),
        found and table(page, name, columns, found, key),
    ]
