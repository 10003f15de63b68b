"""Charts of messages as several pages have them: queued ones, and rates of counters."""

from typing import Any

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.charts import Series, chart, levels, rates


def queued_messages(found: dict[str, Any], interval_s: int) -> h.Element:
    """Ready and unacked messages of a queue, a vhost or the cluster, one upon the other."""
    series = [
        Series("Unacked", "c2", levels(found.get("messages_unacknowledged_details"))),
        Series("Ready", "c1", levels(found.get("messages_ready_details"))),
    ]
    return chart("Queued messages", series, interval_s, figures.count, is_stacked=True)


def rate_of(stats: dict[str, Any], name: str, title: str, colour: str) -> Series:
    """The rate of the counter `name` in `message_stats` of the API."""
    return Series(title, colour, rates(stats.get(f"{name}_details")))
