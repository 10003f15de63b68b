"""The page of a report: one HTML file that contains everything it needs.

The page needs no network and no script, is light or dark as the reader's system is, and fits a
phone, a desk and paper. The template (page.html) escapes all text; this module makes the sections.
The page's policy (its first `meta`) forbids everything that it does not need, in case a name gets
past the escaping.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jinja2

from warrenmq.offline.sizes import size_text
from warrenmq.pipeline.reports import charts
from warrenmq.pipeline.reports.figures import MessageFigures, RateFigures, ReportFigures
from warrenmq.pipeline.reports.over_time import over_time
from warrenmq.pipeline.reports.part import ROWS_MAX
from warrenmq.pipeline.reports.section import Section, Table

_AGE_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
# Most columns of a chart: one wrong clock must not make a chart of a million columns.
_COLUMNS_MAX: Final = 400


@dataclass(frozen=True)
class Tile:
    """A figure at the top of the page; `state` is "", "good" or "bad"."""

    value: str
    name: str
    state: str = ""


def page(figures: ReportFigures) -> str:
    """The page as the text of an HTML file."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = charts.visible
    sections = [
        _depth(figures),
        _ages(figures),
        _forms(figures),
        _sizes(figures),
        _rates(figures),
        *over_time(figures.metrics),
        _dead_letters(figures),
        *_files(figures),
        _messages("Largest messages", figures.largest),
        _messages("Oldest messages", figures.oldest),
        _damage(figures),
    ]
    return environment.get_template("page.html").render(
        source=figures.source,
        made=figures.made_at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        tiles=_tiles(figures),
        sections=[section for section in sections if section is not None],
    )


def age_text(seconds: float) -> str:
    """An age as text in its largest unit: 5400 seconds are "1.5 h"."""
    for limit, unit in _AGE_UNITS:
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.0f} s"


def _tiles(figures: ReportFigures) -> list[Tile]:
    stored = sum([kind["bytes"] for kind in figures.file_bytes.values()])
    garbage = sum([kind["garbage"] for kind in figures.file_bytes.values()])
    oldest = max([queue.oldest_age_s for queue in figures.queues], default=0.0)
    damaged = figures.damage_count
    return [
        Tile(f"{figures.messages:,}", "messages"),
        Tile(f"{figures.queue_count:,}", "queues with messages"),
        Tile(size_text(figures.bytes), "bodies"),
        Tile(size_text(stored), f"in {figures.file_count:,} files"),
        Tile(size_text(garbage), "garbage"),
        Tile(age_text(oldest) if figures.messages else "none", "oldest message"),
        Tile(f"{damaged:,}", "damaged places", "bad" if damaged else "good"),
    ]


def _name(vhost: str, name: str) -> str:
    return name if vhost == "/" else f"{vhost} › {name}"


def _shown(count: int, total: int, what: str) -> str:
    return f"The first {count:,} of {total:,} {what}." if count < total else ""


def _depth(figures: ReportFigures) -> Section:
    shown = figures.queues[:ROWS_MAX]
    if not shown:
        return Section("Depth by queue", "No messages.")
    return Section(
        "Depth by queue",
        _shown(len(shown), len(figures.queues), "queues, deepest first"),
        charts.bars(
            "Messages by queue",
            [charts.Bar(_name(queue.vhost, queue.queue), (queue.messages,)) for queue in shown],
            ("messages",),
            "messages",
        ),
        Table(
            "Messages and bytes by queue",
            ("queue", "messages", "bodies"),
            [
                (_name(queue.vhost, queue.queue), f"{queue.messages:,}", size_text(queue.bytes))
                for queue in shown
            ],
        ),
    )


def _ages(figures: ReportFigures) -> Section | None:
    shown = sorted(figures.queues, key=lambda queue: -queue.oldest_age_s)[:ROWS_MAX]
    if not shown:
        return None
    ages = [(queue.newest_age_s, queue.median_age_s, queue.oldest_age_s) for queue in shown]
    names = [_name(queue.vhost, queue.queue) for queue in shown]
    note = "From the newest to the oldest message of each queue; the mark is the median."
    return Section(
        "Age by queue",
        f"{note} {_shown(len(shown), len(figures.queues), 'queues, oldest first')}".rstrip(),
        charts.spans(
            "Age of messages by queue",
            [charts.Span(name, *age) for name, age in zip(names, ages, strict=True)],
        ),
        Table(
            "Age of messages by queue",
            ("queue", "newest", "median", "oldest"),
            [
                (name, *[age_text(seconds) for seconds in age])
                for name, age in zip(names, ages, strict=True)
            ],
        ),
    )


def _forms(figures: ReportFigures) -> Section | None:
    found = [
        (each, (each.alpha, each.beta, each.gamma, each.delta))
        for each in figures.forms
        if each.alpha + each.beta + each.gamma + each.delta
    ]
    if not found:
        return None
    found.sort(key=lambda each: -sum(each[1]))
    shown = found[:ROWS_MAX]
    return Section(
        "States, alpha to delta",
        _shown(len(shown), len(found), "queues, deepest first"),
        charts.bars(
            "Messages by state and queue",
            [charts.Bar(_name(each.vhost, each.queue), parts) for each, parts in shown],
            ("alpha: in memory", "beta: content on disk", "gamma: written, kept", "delta: on disk"),
            "messages",
        ),
        Table(
            "Messages by state and queue",
            ("queue", "alpha", "beta", "gamma", "delta", "unacked"),
            [
                (
                    _name(each.vhost, each.queue),
                    *[f"{part:,}" for part in parts],
                    f"{each.unacked:,}",
                )
                for each, parts in shown
            ],
        ),
    )


def _sizes(figures: ReportFigures) -> Section | None:
    if not figures.sizes:
        return None
    known = {row.from_bytes: row for row in figures.sizes}
    lows = [0] if 0 in known else []
    positive = [low for low in known if low]
    if positive:
        low = min(positive)
        while low <= max(positive):
            lows.append(low)
            low *= 2
    labels = ["empty" if low == 0 else size_text(low).replace(".0", "") for low in lows]
    counts = [known[low].messages if low in known else 0 for low in lows]
    return Section(
        "Sizes of bodies",
        "From the size at a column to twice that.",
        charts.columns(
            "Messages by size of their body",
            [charts.Bar(label, (count,)) for label, count in zip(labels, counts, strict=True)],
            ("messages",),
            "messages",
        ),
        Table(
            "Messages by size of their body",
            ("from", "messages", "bodies"),
            [
                (label, f"{known[low].messages:,}", size_text(known[low].bytes))
                for label, low in zip(labels, lows, strict=True)
                if low in known
            ],
        ),
    )


def _rates(figures: ReportFigures) -> Section | None:
    if not figures.rates:
        return None
    totals: dict[str | None, int] = {}
    for row in figures.rates:
        totals[row.routing_key] = totals.get(row.routing_key, 0) + row.messages
    keys = sorted([key for key in totals if key is not None], key=lambda key: (-totals[key], key))
    named: list[str | None] = [*keys, *([None] if None in totals else [])]
    series = ["(all others)" if key is None else _shortened(key) or "(empty)" for key in named]
    is_daily = figures.bucket_s > 3600
    counts = {(row.start, row.routing_key): row.messages for row in figures.rates}
    starts = _all_starts(figures.rates, figures.bucket_s)
    columns_of = [tuple([counts.get((start, key), 0) for key in named]) for start in starts]
    title = f"Arrivals by routing key and {'day' if is_daily else 'hour'}"
    return Section(
        title,
        "Messages that are still there, by the time they were enqueued (UTC).",
        charts.columns(
            title,
            [charts.Bar(label, parts) for label, parts in zip(charts.hour_labels(starts, is_daily), columns_of, strict=True)],
            series,
            "messages",
        ),
        Table(
            "Messages by routing key",
            ("routing key", "messages"),
            [
                ("(all others)" if key is None else key or "(empty)", f"{totals[key]:,}") for key in named
            ],
        ),
    )  # fmt: skip


def _shortened(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:24]}…{name[-15:]}"


def _all_starts(rates: Sequence[RateFigures], bucket_s: int) -> list[datetime.datetime]:
    """The starts of all hours or days from first to last; only those with messages if too many."""
    first, last = min([row.start for row in rates]), max([row.start for row in rates])
    count = int((last - first).total_seconds()) // bucket_s + 1
    if count > _COLUMNS_MAX:
        return sorted({row.start for row in rates})
    return [first + datetime.timedelta(seconds=bucket_s * number) for number in range(count)]


def _dead_letters(figures: ReportFigures) -> Section | None:
    if not figures.dead_letters:
        return None
    return Section(
        "Dead letters by reason and origin",
        "By the first entry of the header x-death: why a message died last, and in which queue.",
        charts.bars(
            "Dead letters by reason and origin",
            [
                charts.Bar(f"{each.reason} · {each.queue}", (each.messages,))
                for each in figures.dead_letters
            ],
            ("messages",),
            "messages",
        ),
        Table(
            "Dead letters by reason and origin",
            ("reason", "queue", "messages", "deaths"),
            [
                (each.reason, each.queue, f"{each.messages:,}", f"{each.deaths:,}")
                for each in figures.dead_letters
            ],
            texts=2,
        ),
    )


def _files(figures: ReportFigures) -> list[Section]:
    if not figures.file_bytes:
        return []
    series = ("live", "garbage", "other")
    kinds = Section(
        "Files and garbage",
        "",
        charts.bars(
            "Bytes by kind of file",
            [
                charts.Bar(kind, _file_parts(sums["bytes"], sums["live"], sums["garbage"]))
                for kind, sums in figures.file_bytes.items()
            ],
            series,
            "bytes",
        ),
        Table(
            "Bytes by kind of file",
            ("kind", "files", "bytes", "live", "garbage"),
            [
                (kind, f"{sums['files']:,}", *[size_text(sums[name]) for name in ("bytes", "live", "garbage")])
                for kind, sums in figures.file_bytes.items()
            ],
        ),
    )  # fmt: skip
    worst = [file for file in figures.files if file.garbage_bytes]
    if not worst:
        return [kinds]
    names = [_name(file.vhost or "/", file.path) for file in worst]
    return [
        kinds,
        Section(
            "Files with the most garbage",
            "",
            charts.bars(
                "Garbage by file",
                [
                    charts.Bar(name, _file_parts(file.bytes, file.live_bytes, file.garbage_bytes))
                    for name, file in zip(names, worst, strict=True)
                ],
                series,
                "bytes",
            ),
            Table(
                "Garbage by file",
                ("file", "bytes", "garbage"),
                [
                    (name, size_text(file.bytes), size_text(file.garbage_bytes))
                    for name, file in zip(names, worst, strict=True)
                ],
            ),
        ),
    ]


def _file_parts(size: int, live: int, garbage: int) -> tuple[int, int, int]:
    return live, garbage, max(0, size - live - garbage)


def _messages(title: str, messages: Sequence[MessageFigures]) -> Section | None:
    if not messages:
        return None
    rows = [
        (
            each.vhost,
            each.queue,
            each.exchange or "(default)",
            each.routing_key,
            f"{each.enqueued_at:%Y-%m-%d %H:%M:%S}",
            f"{each.seq}",
            size_text(each.size),
        )
        for each in messages
    ]
    head = ("vhost", "queue", "exchange", "routing key", "enqueued (UTC)", "seq", "size")
    return Section(title, table=Table(title, head, rows, texts=5))


def _damage(figures: ReportFigures) -> Section | None:
    if not figures.damage:
        return None
    rows = [(each.vhost, each.file, each.reason) for each in figures.damage]
    note = _shown(len(rows), figures.damage_count, "places")
    return Section("Damage", note, table=Table("Damage", ("vhost", "file", "what"), rows, texts=3))
