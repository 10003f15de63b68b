"""Where the messages of a queue are: parts, forms, memory and disk."""

from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.api import ApiError, path_to
from warrenmq.management.ui.elements.bars import Mark, Part, bar
from warrenmq.management.ui.elements.charts import Series, chart
from warrenmq.management.ui.elements.tables import figures_table
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.pages.storage.pipeline_picture import pipeline_picture
from warrenmq.management.ui.pages.storage.segments import segments
from warrenmq.management.ui.visit import RANGES

_FORMS: Final = (
    ("alpha", "in memory"),
    ("beta", "content on disk, position in memory"),
    ("gamma", "on disk, position in memory as well"),
    ("delta", "on disk only"),
)
_COLUMNS: Final = (
    "messages_unacknowledged", "messages_unacknowledged_ram", "message_bytes",
    "message_bytes_unacknowledged", "message_bytes_ram", "message_bytes_persistent",
    "message_bytes_paged_out", "message_stats",
)  # fmt: skip


async def queue_storage(page: Page, vhost: str, queue: str) -> h.Node:
    """The storage of one queue, live; says so if the node does not tell it."""
    path = path_to(vhost, queue)
    try:
        storage = await page.api.get(f"warren/queues/{path}/storage", page.samples("lengths"))
        known = await page.api.get(f"queues/{path}", {"columns": ",".join(_COLUMNS)})
    except ApiError as error:
        return h.p(".alarm", role="alert")[
            f"The storage of this queue is not shown: {error.reason}"
        ]
    index = await segments(page, vhost, queue)
    return page.live(
        "queue-storage",
        pipeline_picture(storage),
        h.div(".charts")[_history(page, storage), index],
        h.div(".charts")[_forms(storage), _bytes(storage), _memory(storage, known)],
        h.div(".charts")[_form_table(storage), _unacked(storage, known), _disk(storage, known)],
    )


def _history(page: Page, storage: dict[str, Any]) -> h.Element:
    """Messages by form over time, and the target of messages in memory while there is one."""
    past = storage.get("history", [])[::-1]
    series = [
        Series(form, form, [(each["timestamp"], each[form]) for each in past])
        for form, _ in _FORMS[::-1]
    ]
    field = "target_ram_count"
    targets = [(each["timestamp"], each[field]) for each in past if each[field] is not None]
    return chart(
        "Ready messages by form over time",
        series,
        RANGES[page.range][1],
        figures.count,
        is_stacked=True,
        marks=[Series("target in memory", "text", targets)] if targets else [],
        mark_reach=2,
    )


def _forms(storage: dict[str, Any]) -> h.Element:
    parts = [Part(form, form, storage[form]["count"]) for form, _ in _FORMS]
    return bar("Ready messages by form", parts, figures.count)


def _bytes(storage: dict[str, Any]) -> h.Element:
    parts = [Part(form, form, storage[form]["bytes"]) for form, _ in _FORMS]
    return bar("Bytes of ready messages by form", parts, figures.size)


def _memory(storage: dict[str, Any], known: dict[str, Any]) -> h.Element:
    """Messages in memory against the number that the node allows."""
    unacked = known.get("messages_unacknowledged_ram") or 0
    parts = [
        Part("Ready", "alpha", max(0, storage["ram_count"] - unacked)),
        Part("Unacked", "c1", unacked),
    ]
    target = storage["target_ram_count"]
    marks = [] if target is None else [Mark("target", target)]
    note = (
        "Memory is not short: the queue need not page."
        if target is None
        else "Memory is short: what is beyond the target leaves memory."
    )
    title = "Messages with their content in memory"
    return bar(title, parts, figures.count, marks, note)


def _form_table(storage: dict[str, Any]) -> h.Element:
    rows: list[tuple[str, h.Node]] = [
        (
            form,
            [
                h.span(class_=["key", form]),
                f"{_counted(storage[form]['count'], storage[form]['bytes'])}: {meaning}",
            ],
        )
        for form, meaning in _FORMS
    ]
    parts = storage["parts"]
    for name in ("q1", "q2", "delta", "q3", "q4"):
        rows.append((f"in part {name}", figures.count(parts[name])))
    return figures_table("Ready messages", rows)


def _unacked(storage: dict[str, Any], known: dict[str, Any]) -> h.Element:
    unacked = storage["unacked"]
    in_memory = known.get("messages_unacknowledged_ram") or 0
    rates = storage["rates"]
    return figures_table(
        "Unacked messages",
        [
            ("All", figures.count(unacked)),
            ("Content in memory", figures.count(in_memory)),
            ("Content on disk only", figures.count(max(0, unacked - in_memory))),
            ("Bytes", figures.size(known.get("message_bytes_unacknowledged"))),
            ("Newly unacked", figures.rate(rates["ack_awaited"])),
            ("Acked", figures.rate(rates["acked"])),
        ],
    )


def _disk(storage: dict[str, Any], known: dict[str, Any]) -> h.Element:
    target, counted = storage["target_ram_count"], known.get("message_stats", {})
    return figures_table(
        "Memory and disk",
        [
            ("Mode", storage["mode"]),
            ("Contents in memory", _counted(storage["ram_count"], storage["ram_bytes"])),
            ("May be in memory", "all" if target is None else figures.count(target)),
            ("Bodies of all messages", figures.size(known.get("message_bytes"))),
            ("of persistent ones", figures.size(known.get("message_bytes_persistent"))),
            ("Paged out", figures.size(known.get("message_bytes_paged_out"))),
            ("Positions given", figures.count(storage["next_seq"])),
            ("In the index below position", figures.count(storage["indexed_upto"])),
            ("Messages written to disk", figures.count(counted.get("disk_writes"))),
            ("Messages read from disk", figures.count(counted.get("disk_reads"))),
        ],
    )


def _counted(count: int, size: int) -> str:
    return f"{figures.count(count)} messages, {figures.size(size)}"
