"""The page of a report, without Spark, draws the right charts, and has no markup from messages."""

import datetime
import html.parser
import re

import pytest

from warrenmq.pipeline.reports.charts import Bar, Chart, bars, columns, visible
from warrenmq.pipeline.reports.figures import (
    DamageFigures,
    DeathFigures,
    FileFigures,
    MessageFigures,
    QueueFigures,
    QueueForms,
    RateFigures,
    ReportFigures,
    SizeFigures,
)
from warrenmq.pipeline.reports.page import age_text, page

NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
HOSTILE = "<script>alert(1)</script>\"'>&<img src=x onerror=y>\u202e\x00\ud800"


def figures(name: str = "orders", hours: int = 3) -> ReportFigures:
    message = MessageFigures("/", name, 7, name, name, NOW, 2048)
    return ReportFigures(
        source=name,
        made_at=NOW,
        messages=1500,
        bytes=3_000_000,
        queue_count=1,
        queues=[QueueFigures(name, name, 1500, 3_000_000, 7200.0, 60.0, 1.0)],
        forms=[QueueForms("/", name, 1, 2, 3, 4, 5)],
        sizes=[SizeFigures(0, 3, 0), SizeFigures(16, 5, 100), SizeFigures(128, 5, 900)],
        file_count=2,
        file_bytes={"index": {"files": 2, "bytes": 100, "live": 60, "garbage": 40}},
        files=[FileFigures("/", name, "index", 100, 60, 40)],
        bucket_s=3600,
        rates=[
            RateFigures(NOW, name, 5),
            RateFigures(NOW + datetime.timedelta(hours=hours), None, 7),
        ],
        dead_letters=[DeathFigures(name, name, 4, 9)],
        largest=[message],
        oldest=[message],
        damage_count=1,
        damage=[DamageFigures("/", name, name)],
    )


class Tags(html.parser.HTMLParser):
    """The names of the elements and of the attributes in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attributes}


def test_nothing_from_a_message_becomes_markup() -> None:
    """Hostile and harmless names give the same elements; the page has no scripts and no URLs."""
    hostile, harmless = Tags(page(figures(HOSTILE))), Tags(page(figures("orders")))
    assert hostile.names == harmless.names
    assert hostile.attributes == harmless.attributes
    assert not hostile.names & {"script", "img", "link", "iframe"}
    assert not hostile.attributes & {"src", "href", "onerror", "onload"}
    written = page(figures(HOSTILE))
    assert "\u202e" not in written
    written.encode()
    assert "default-src 'none'" in written
    assert not re.search(r"https?://", written)


def test_every_section_is_there() -> None:
    """A page has every section that has content, and leaves out the others."""
    titles = re.findall("<h2>(.*?)</h2>", page(figures()))
    assert titles == [
        "Depth by queue", "Age by queue", "States, alpha to delta", "Sizes of bodies",
        "Arrivals by routing key and hour", "Dead letters by reason and origin", "Files and garbage",
        "Files with the most garbage", "Largest messages", "Oldest messages", "Damage",
    ]  # fmt: skip
    empty = ReportFigures("x", NOW, 0, 0, 0, [], [], [], 0, {}, [], 3600, [], [], [], [], 0, [])
    assert re.findall("<h2>(.*?)</h2>", page(empty)) == ["Depth by queue"]


def test_hours_without_messages_have_a_place() -> None:
    """Hours and sizes without messages keep their place in the charts.

    One wrong clock does not make a page of a gigabyte.
    """
    written = page(figures())
    assert all(f">Jan 31, {hour}:00<" in written for hour in (12, 13, 14, 15))
    assert ">32 B<" in written
    assert len(page(figures(hours=10_000_000))) < 200_000


def test_bars_are_as_long_as_their_parts() -> None:
    """Bars are proportional to their parts; a tiny part keeps a visible stroke."""
    drawn = bars("t", [Bar("a", (300.0, 100.0)), Bar("b", (0.0, 0.01))], ("x", "y"), "messages")
    for drawing in (drawn.narrow, drawn.wide):
        widths = [
            float(width) for width in re.findall(r'd="M[^"]*?h([\d.]+)v14h-[\d.]+Z"', drawing)
        ]
        assert len(widths) == 3
        assert widths[0] == pytest.approx(3 * widths[1])
        assert drawing.startswith('<svg viewBox="0 0 ') and 'aria-label="t"' in drawing
    assert (
        drawn.legend == ("x", "y") and bars("t", [Bar("a", (1,))], ("x",), "messages").legend == ()
    )


def ticks(drawn: Chart) -> list[str]:
    """The labels of all axes of the wide drawing."""
    return re.findall(r">([^<>]+)</text>", drawn.wide)


def test_axes_have_round_numbers() -> None:
    """Axes count whole messages, with units that fit the longest bar."""
    for longest in (1, 2, 5, 9):
        found = ticks(columns("t", [Bar("a", (longest,))], ("x",), "messages"))
        assert all(text.isdigit() for text in found if text not in ("a", "messages")), found
    assert "2.5M" in ticks(columns("t", [Bar("a", (2_500_000,))], ("x",), "messages"))
    assert "KiB" in ticks(bars("t", [Bar("a", (5 << 10,))], ("x",), "bytes"))
    assert "GiB" in ticks(bars("t", [Bar("a", (5 << 30,))], ("x",), "bytes"))


def test_numbers_and_names_as_people_read_them() -> None:
    assert [age_text(value) for value in (5, 90, 7200, 200_000)] == [
        "5 s",
        "1.5 min",
        "2.0 h",
        "2.3 d",
    ]
    assert visible("a\n\u202e\ud800ü") == "a\ufffd\ufffd\ufffdü"
