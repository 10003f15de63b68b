"""Tabs of a page; the URL says which one is open."""

from collections.abc import Sequence

import htpy as h

from warrenmq.management.ui.page import Page


def tabs(page: Page, titles: Sequence[tuple[str, str]]) -> h.Element:
    """Links to the tabs, each (name in the URL, title); the first one is open without a name."""
    first = titles[0][0]
    opened = page.query.get("tab", first)
    return h.nav(".tabs", aria_label="Tabs")[
        [
            h.a(
                href=page.link(page.path, tab=None if name == first else name),
                aria_current="page" if name == opened else None,
            )[title]
            for name, title in titles
        ]
    ]
