"""The tabs of the pipeline's page."""

from typing import Final

import htpy as h

from warrenmq.management.ui.elements.tabs import tabs
from warrenmq.management.ui.page import Page

_FOR_ALL: Final = (("groups", "Reader groups"), ("sinks", "Sinks"))
_FOR_MONITORS: Final = (("jobs", "Jobs"), ("schedules", "Schedules"))


def pipeline_tabs(page: Page) -> h.Element:
    """Links to the tabs that the user may see."""
    return tabs(page, [*_FOR_ALL, *(_FOR_MONITORS if page.has_tag("monitoring") else ())])
