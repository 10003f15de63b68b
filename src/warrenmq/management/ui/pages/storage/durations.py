"""How long the node takes for what clients wait for, and for the work behind it."""

from typing import Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.spreads import nanoseconds, spread_chart
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.storage.history import history_of, sync_pictures

# Field of the API, and what it is.
_DURATIONS: Final = (
    ("confirms", "From a publish to its confirm"),
    ("syncs", "Write and sync of a batch of the journal (fsync)"),
    ("flushes", "A whole batch, with large messages and definitions"),
    ("reads", "Read of messages that were paged out"),
    ("compactions", "A compaction"),
    ("checkpoints", "A checkpoint"),
    ("loop_delays", "Delay of the event loop"),
    ("promotions", "From the death of a master to the take-over by a mirror"),
)


async def durations_tab(page: Page) -> h.Node:
    """All that the node has measured since its start."""
    found = await page.api.get("warren/latencies")
    past = await history_of(page)
    charts = [spread_chart(title, found[name], nanoseconds) for name, title in _DURATIONS]
    sizes = spread_chart("Size of a batch of the journal", found["batch_bytes"], figures.size)
    return page.live(
        "storage-durations",
        sync_pictures(page, past["history"], past.get("sync_bounds", [])),
        h.h2["Since the start of the node"],
        h.div(".charts")[charts[:2], sizes, charts[2:]],
    )
