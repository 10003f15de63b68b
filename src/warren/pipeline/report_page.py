"""The page of a report: one HTML file with everything in it. It needs no network, no script, and shows on light and dark.

Its policy (the first `meta`) forbids whatever it does not need, should a name get past the escaping after all.
"""

import datetime
from typing import Final

from warren.offline.sizes import size_text
from warren.pipeline.report_charts import Bar, bars, columns, text
from warren.pipeline.report_figures import (
    MessageFigures,
    QueueFigures,
    RateFigures,
    ReportFigures,
)
from warren.pipeline.report_part import ROWS_MAX

_STYLE: Final = """
:root { color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --ink: #1c2733; --soft: #5b6875; --line: #d5dbe1;
 --c0: #2f6fb3; --c1: #d9822b; --c2: #3d9970; --c3: #b0413e; --c4: #7d5ba6; --c5: #8a6d3b; --c6: #c2588f; --c7: #7a8591; }
@media (prefers-color-scheme: dark) { :root { --page: #14191f; --card: #1d242c; --ink: #e4e9ee; --soft: #9aa7b4;
 --line: #36414d; --c0: #5b9bdc; --c1: #f0a352; --c2: #5cc396; --c3: #e0726e; --c4: #a98bd3; --c5: #c9a667; --c6: #e588b7; --c7: #98a4b0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1000px; padding: 24px; background: var(--page); color: var(--ink);
 font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 24px; margin: 0 0 4px; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 0 0 10px; }
p { margin: 0 0 8px; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 18px 0; }
.tiles div, section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 14px 16px; }
.tiles b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; } section { margin: 0 0 16px; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--ink); font-size: 12px; }
svg .value { fill: var(--soft); } svg .grid { stroke: var(--line); stroke-width: 1; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; color: var(--soft); font-size: 13px; }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 6px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--soft); font-weight: 500; } th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line);
 vertical-align: top; overflow-wrap: anywhere; } .n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
"""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))


def page(figures: ReportFigures) -> str:
    """The whole file."""
    colours = "".join(
        [
            f".c{place} {{ fill: var(--c{place}); }} .b{place} {{ background: var(--c{place}); }}\n"
            for place in range(8)
        ]
    )
    made = figures.made_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    parts = [
        _tiles(figures),
        _depth(figures),
        _age(figures),
        _forms(figures),
        _sizes(figures),
        _rates(figures),
        _dead_letters(figures),
        _files(figures),
        _messages("Largest messages", figures.largest),
        _messages("Oldest messages", figures.oldest),
        _damage(figures),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(figures.source)} - warren report</title><style>{_STYLE}{colours}</style></head><body>\n"
        f'<h1>{text(figures.source)}</h1><p class="soft">Messages and files of a store, read on {made}.</p>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def age_text(seconds: float) -> str:
    """`5400` seconds are `1.5 h`."""
    for limit, unit in _UNITS:
        if seconds >= limit:
            return f"{seconds / limit:.1f} {unit}"
    return f"{seconds:.0f} s"


def _tiles(figures: ReportFigures) -> str:
    stored = sum([kind["bytes"] for kind in figures.file_bytes.values()])
    garbage = sum([kind["garbage"] for kind in figures.file_bytes.values()])
    oldest = max([queue.oldest_age_s for queue in figures.queues], default=0.0)
    tiles = [
        (f"{figures.messages:,}", "messages"),
        (f"{figures.queue_count:,}", "queues with messages"),
        (size_text(figures.bytes), "bodies"),
        (size_text(stored), f"in {figures.file_count:,} files"),
        (size_text(garbage), "garbage"),
        (age_text(oldest) if figures.messages else "none", "oldest message"),
        (f"{figures.damage_count:,}", "damaged places"),
    ]
    drawn = [
        f'<div><b>{text(value)}</b><span class="soft">{text(name)}</span></div>' for value, name in tiles
    ]
    return f'<div class="tiles">{"".join(drawn)}</div>'


def _section(title: str, *parts: str) -> str:
    return f"<section><h2>{text(title)}</h2>{''.join(parts)}</section>"


def _name(queue: QueueFigures) -> str:
    return queue.queue if queue.vhost == "/" else f"{queue.vhost} › {queue.queue}"


def _left_out(shown: int, total: int, what: str) -> str:
    return f'<p class="soft">The first {shown:,} of {total:,} {what}.</p>' if shown < total else ""


def _depth(figures: ReportFigures) -> str:
    shown = figures.queues[:ROWS_MAX]
    if not shown:
        return _section("Depth by queue", '<p class="soft">No messages.</p>')
    rows = [
        Bar(_name(queue), (queue.messages,), f"{queue.messages:,}, {size_text(queue.bytes)}")
        for queue in shown
    ]
    chart = bars("Messages by queue", rows, ("messages",))
    return _section(
        "Depth by queue", chart, _left_out(len(shown), len(figures.queues), "queues, deepest first")
    )


def _age(figures: ReportFigures) -> str:
    shown = sorted(figures.queues, key=lambda queue: -queue.oldest_age_s)[:ROWS_MAX]
    if not shown:
        return ""
    rows = [
        Bar(
            _name(queue),
            (
                queue.newest_age_s,
                queue.median_age_s - queue.newest_age_s,
                queue.oldest_age_s - queue.median_age_s,
            ),
            f"{age_text(queue.newest_age_s)} – {age_text(queue.median_age_s)} – {age_text(queue.oldest_age_s)}",
        )
        for queue in shown
    ]
    series = ("to the newest", "to the median", "to the oldest message")
    chart = bars("Age of messages in seconds by queue", rows, series)
    return _section("Age by queue", chart, _left_out(len(shown), len(figures.queues), "queues, oldest first"))


def _forms(figures: ReportFigures) -> str:
    found = [each for each in figures.forms if each.alpha + each.beta + each.gamma + each.delta]
    if not found:
        return ""
    found.sort(key=lambda each: -(each.alpha + each.beta + each.gamma + each.delta))
    rows = [
        Bar(
            each.queue if each.vhost == "/" else f"{each.vhost} › {each.queue}",
            (each.alpha, each.beta, each.gamma, each.delta),
            f"{each.unacked:,} unacked",
        )
        for each in found[:ROWS_MAX]
    ]
    series = ("alpha: in memory", "beta: content on disk", "gamma: written, kept", "delta: on disk")
    chart = bars("Messages by form and queue", rows, series)
    return _section(
        "States, alpha to delta", chart, _left_out(len(rows), len(found), "queues, deepest first")
    )


def _sizes(figures: ReportFigures) -> str:
    if not figures.sizes:
        return ""
    known = {row.from_bytes: row for row in figures.sizes}
    lows = [0] if 0 in known else []
    positive = [low for low in known if low]
    if positive:
        low = min(positive)
        while low <= max(positive):
            lows.append(low)
            low *= 2
    rows = []
    for low in lows:
        row = known.get(low)
        label = "empty" if low == 0 else f"{size_text(low).replace('.0', '')}"
        rows.append(Bar(label, (row.messages if row else 0,)))
    chart = columns("Messages by size of their body", rows, ("messages",))
    return _section(
        "Sizes of bodies", chart, '<p class="soft">From the size below a column to twice that.</p>'
    )


def _rates(figures: ReportFigures) -> str:
    if not figures.rates:
        return ""
    totals: dict[str | None, int] = {}
    for row in figures.rates:
        totals[row.routing_key] = totals.get(row.routing_key, 0) + row.messages
    keys = sorted([key for key in totals if key is not None], key=lambda key: -totals[key])
    named: list[str | None] = [*keys, *([None] if None in totals else [])]
    series = tuple(["(all others)" if key is None else key or "(empty)" for key in named])
    is_daily = figures.bucket_s > 3600
    counts = {(row.start, row.routing_key): row.messages for row in figures.rates}
    rows = [
        Bar(
            start.strftime("%m-%d" if is_daily else "%m-%d %H:00"),
            tuple([counts.get((start, key), 0) for key in named]),
        )
        for start in _all_starts(figures.rates, figures.bucket_s)
    ]
    title = f"Messages that came, by routing key and {'day' if is_daily else 'hour'}"
    note = '<p class="soft">Of the messages that are still there; by the time they were enqueued, UTC.</p>'
    return _section(title, columns(title, rows, series), note)


def _all_starts(rates: list[RateFigures], bucket_s: int) -> list[datetime.datetime]:
    first, last = min([row.start for row in rates]), max([row.start for row in rates])
    # A clock that was wrong once must not make a chart of a million columns.
    count = int((last - first).total_seconds()) // bucket_s + 1
    if count > 400:
        return sorted({row.start for row in rates})
    return [first + datetime.timedelta(seconds=bucket_s * number) for number in range(count)]


def _dead_letters(figures: ReportFigures) -> str:
    if not figures.dead_letters:
        return ""
    rows = [
        Bar(f"{each.reason} · {each.queue}", (each.messages,), f"{each.messages:,} ({each.deaths:,} deaths)")
        for each in figures.dead_letters
    ]
    chart = bars("Dead letters by reason and origin", rows, ("messages",))
    note = '<p class="soft">By the first entry of the header x-death: why a message died last, and in which queue.</p>'
    return _section("Dead letters by reason and origin", chart, note)


def _files(figures: ReportFigures) -> str:
    if not figures.file_bytes:
        return ""
    rows = [
        Bar(
            f"{kind} ({sums['files']:,} files)",
            (sums["live"], sums["garbage"], max(0, sums["bytes"] - sums["live"] - sums["garbage"])),
            f"{size_text(sums['bytes'])}, {size_text(sums['garbage'])} garbage",
        )
        for kind, sums in figures.file_bytes.items()
    ]
    series = ("live bytes", "garbage", "other")
    worst = [
        Bar(
            f"{file.vhost} › {file.path}",
            (file.live_bytes, file.garbage_bytes, max(0, file.bytes - file.live_bytes - file.garbage_bytes)),
            f"{size_text(file.garbage_bytes)} of {size_text(file.bytes)}",
        )
        for file in figures.files
        if file.garbage_bytes
    ]
    parts = [bars("Bytes by kind of file", rows, series)]
    if worst:
        parts.append("<h2>Files with the most garbage</h2>")
        parts.append(bars("Garbage by file", worst, series))
    return _section("Files and garbage", *parts)


def _messages(title: str, messages: list[MessageFigures]) -> str:
    if not messages:
        return ""
    head = "<tr><th>vhost<th>queue<th class=n>seq<th>exchange<th>routing key<th>enqueued<th class=n>size</tr>"
    rows = [
        f"<tr><td>{text(each.vhost)}<td>{text(each.queue)}<td class=n>{each.seq}<td>{text(each.exchange)}"
        f"<td>{text(each.routing_key)}<td>{each.enqueued_at:%Y-%m-%d %H:%M:%S}<td class=n>{size_text(each.size)}</tr>"
        for each in messages
    ]
    return _section(title, f'<div class="scroll"><table>{head}{"".join(rows)}</table></div>')


def _damage(figures: ReportFigures) -> str:
    if not figures.damage:
        return ""
    rows = [
        f"<tr><td>{text(each.vhost)}<td>{text(each.file)}<td>{text(each.reason)}</tr>"
        for each in figures.damage
    ]
    table = f'<div class="scroll"><table><tr><th>vhost<th>file<th>what</tr>{"".join(rows)}</table></div>'
    return _section("Damage", table, _left_out(len(rows), figures.damage_count, "places"))
