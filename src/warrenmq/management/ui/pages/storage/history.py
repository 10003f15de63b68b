"""What the stores of the node have done over time: bytes written, memory, syncs of the journals."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import htpy as h

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.charts import Sample, Series, chart
from warrenmq.management.ui.elements.heat_map import HeatColumn, heat_map
from warrenmq.management.ui.elements.spreads import nanoseconds, place_of, shown_quantile
from warrenmq.management.ui.elements.tables import plain_table
from warrenmq.management.ui.elements.time_axis import moment
from warrenmq.management.ui.page import Page
from warrenmq.management.ui.visit import RANGES

WRITES: Final = (
    ("Journal", "c1", "journal_bytes"),
    ("Large messages", "c2", "content_bytes"),
    ("Indexes", "c3", "index_bytes"),
    ("Indexes rewritten", "c4", "rewritten_bytes"),
    ("Compactions", "c5", "compacted_bytes"),
    ("Checkpoints", "c6", "checkpoint_bytes"),
)
# Fewer published bytes in an interval than this say nothing about the amplification.
_PUBLISHED_MIN: Final = 65536
# How many times as high as the memory in use a mark may be, so that both are seen.
_REACH: Final = 5
# Rows of the table of syncs.
_ROWS_MAX: Final = 20

Interval = dict[str, Any]


async def history_of(page: Page) -> dict[str, Any]:
    """The `history` of the asked node in the range of the page, oldest first, and `sync_bounds`."""
    asked = page.samples("node_stats") | {"columns": "history,sync_bounds"}
    found: dict[str, Any] = await page.api.get("warren/storage", asked)
    found["history"] = found.get("history", [])[::-1]
    return found


def memory_chart(page: Page, history: Sequence[Interval]) -> h.Element:
    """Memory of messages and of all else, against the marks of paging and alarm."""

    def level(value: Callable[[dict[str, int]], int]) -> list[Sample]:
        return [(each["timestamp"], value(each["memory"])) for each in history]

    series = [
        Series("Messages", "alpha", level(lambda row: min(row["mem_messages"], row["mem_used"]))),
        Series("All else", "c6", level(lambda row: max(0, row["mem_used"] - row["mem_messages"]))),
    ]
    marks = [
        Series("paging begins", "c4", level(lambda row: row["mem_paging"])),
        Series("alarm", "c5", level(lambda row: row["mem_limit"])),
    ]
    return chart(
        "Memory over time",
        series,
        RANGES[page.range][1],
        figures.size,
        is_stacked=True,
        marks=marks,
        mark_reach=_REACH,
    )


def write_charts(page: Page, history: Sequence[Interval]) -> h.Node:
    """Bytes written by kind against those published, and the amplification."""

    def rate(field: str) -> list[Sample]:
        return [
            (each["timestamp"], each["writes"][field] * 1000 / each["length_ms"])
            for each in history
        ]

    interval_s = RANGES[page.range][1]
    return [
        chart(
            "Written by second",
            [Series(name, colour, rate(field)) for name, colour, field in WRITES],
            interval_s,
            figures.size_rate,
            is_stacked=True,
            marks=[Series("published", "text", rate("published_bytes"))],
        ),
        chart(
            "Write amplification over time",
            [Series("Written for each byte published", "c1", _amplification(history))],
            interval_s,
            "{:.2f}".format,
        ),
    ]


def _amplification(history: Sequence[Interval]) -> list[Sample]:
    found = []
    for each in history:
        published, *written = [
            each["writes"][field] for field in ("published_bytes", *[row[2] for row in WRITES])
        ]
        if published >= _PUBLISHED_MIN:
            found.append((each["timestamp"], sum(written) / published))
    return found


def sync_pictures(page: Page, history: Sequence[Interval], bounds: Sequence[int]) -> h.Node:
    """The heat map of the syncs with its table, and the sizes of their batches."""
    title = "Syncs of the journals over time"
    busy = [each for each in history if any(each["syncs"])]
    if not busy:
        return h.figure(".chart")[h.figcaption[title], h.p(".none")["No syncs in this range."]]
    names = [f"≤ {nanoseconds(bound)}" for bound in bounds]
    names.append(f"> {nanoseconds(bounds[-1])}")
    last_ms = history[-1]["timestamp"]
    first_ms = min(history[0]["timestamp"] - history[0]["length_ms"], last_ms - 1)
    columns = [_column(each) for each in history]
    total = sum([sum(each["syncs"]) for each in busy])
    return [
        h.figure(".chart.whole")[
            h.figcaption[title],
            heat_map(title, names, columns, first_ms, last_ms),
            h.ul(".legend")[
                h.li[
                    h.span(".key.c2"),
                    "the stronger, the more syncs; all ",
                    h.b[figures.count(total)],
                ],
                h.li["line: p50"],
                h.li["dashed line: p99"],
            ],
            _sync_table(title, busy, bounds),
        ],
        h.div(".charts")[
            chart(
                "Size of a batch over time",
                [Series("Mean", "c3", [(each["timestamp"], _mean(each)) for each in busy])],
                RANGES[page.range][1],
                figures.size,
            ),
            chart(
                "Syncs by second",
                [Series("Syncs", "c2", [(each["timestamp"], _rate(each)) for each in history])],
                RANGES[page.range][1],
                figures.rate,
            ),
        ],
    ]


def _column(interval: Interval) -> HeatColumn:
    counts = interval["syncs"]
    end_ms = interval["timestamp"]
    quantiles = {}
    if any(counts):
        quantiles = {"p50": place_of(counts, 0.5), "p99": place_of(counts, 0.99)}
    return HeatColumn(end_ms - interval["length_ms"], end_ms, counts, quantiles)


def _mean(interval: Interval) -> float:
    return float(interval["synced_bytes"] / sum(interval["syncs"]))


def _rate(interval: Interval) -> float:
    return float(sum(interval["syncs"]) * 1000 / interval["length_ms"])


def _sync_table(title: str, busy: Sequence[Interval], bounds: Sequence[int]) -> h.Element:
    """The last intervals with syncs."""
    rows = []
    for each in reversed(busy[-_ROWS_MAX:]):
        spread = {"bounds": bounds, "counts": each["syncs"]}
        rows.append(
            (
                moment(each["timestamp"]),
                figures.count(sum(each["syncs"])),
                *[shown_quantile(spread, share, nanoseconds) for share in (0.5, 0.99, 1.0)],
                figures.size(_mean(each)),
                figures.size(each["synced_bytes"]),
            )
        )
    heads = ("Until (UTC)", "Syncs", "p50", "p99", "Longest", "Mean batch", "All bytes")
    return h.details[
        h.summary[f"As a table: {len(rows)} of {figures.count(len(busy))} intervals with syncs"],
        plain_table(title, heads, rows, heads[1:]),
    ]
