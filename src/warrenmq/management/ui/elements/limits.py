"""Limits of users and of vhosts: their fields, and what sets them."""

from collections.abc import Mapping, Sequence
from typing import Any

import htpy as h

from warrenmq.management.ui.elements.forms import form, text_field
from warrenmq.management.ui.elements.values import read_number
from warrenmq.management.ui.page import Page


def limits_form(page: Page, path: str, names: Sequence[str], limits: Mapping[str, Any]) -> h.Node:
    """The form for the limits `names`, of which `limits` has those that are set."""
    return form(
        page,
        path,
        "Set the limits",
        [
            text_field(
                name,
                name.capitalize().replace("-", " "),
                str(limits.get(name, "")),
                "Empty: no limit. 0: none at all.",
                kind="number",
            )
            for name in names
        ],
    )


async def set_limits(page: Page, path: str, names: Sequence[str]) -> None:
    """Set the limits that the form has at `path` of the API. Raises ApiError."""
    fields = await page.form()
    texts = {name: str(fields.get(name, "")).strip() for name in names}
    limits = {name: read_number(name, text) for name, text in texts.items() if text}
    for name in names:
        if name in limits:
            await page.api.put(f"{path}/{name}", {"value": limits[name]})
        else:
            await page.api.delete(f"{path}/{name}")
