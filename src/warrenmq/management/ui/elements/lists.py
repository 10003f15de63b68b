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
    """The page of the list at `path` of the API, which gives pages; `noun` names one row.

    A filter or a page that the API refuses is told beside the filter, so that it can be mended.
    """
    name = f"{noun}s"
    found, refusal = None, ""
    try:
        found = await page.api.get(path, page_query(page, "name"))
    except ApiError as error:
        if error.status != _BAD_REQUEST:
            raise
        refusal = f"There is no such page, or the pattern cannot be read ({error.reason})."
    return await page.show(
        name.capitalize(),
        filter_form(page, noun),
        refusal and h.p(".alarm", role="alert")[refusal],
        column_chooser(page, columns),
        found and table(page, name, columns, found, key),
        below,
    )
