"""The page of a report is readable in Chromium, at several widths, light and dark."""

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium")
pytest.importorskip("vl_convert")

from tests.support.browser import Browser, chromium
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
from warrenmq.pipeline.reports.page import page

WIDTHS = (400, 800, 1400)
SCHEMES = ("light", "dark")
NOW = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
# Names: short, of the greatest length, wide, in other scripts, and with markup.
NAMES = [
    "q",
    "orders.eu.incoming",
    "x" * 255,
    "W" * 80,
    "words that are separated by spaces " * 5,
    "キュー" * 20,
    "<b>markup</b> & \"quotes\" 'too'",
]

# Runs in the page; returns a line for each fault of its display, and counts of texts and charts.
LOOK = """
const wrong = [];
const shown = element => element.getClientRects().length > 0 && getComputedStyle(element).visibility !== "hidden";
const clipped = element => element.closest("caption, thead") && getComputedStyle(element.closest("caption, thead")).position === "absolute";
const root = document.documentElement;
if (root.scrollWidth > root.clientWidth) wrong.push(`scrolls sideways: ${root.scrollWidth} of ${root.clientWidth}`);
const luminance = colour => {
  const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const background = element => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (colour !== "rgba(0, 0, 0, 0)" && colour !== "transparent") return colour;
  }
  return "rgb(255, 255, 255)";
};
const contrast = (one, other) => {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, element = node.parentElement;
  if (!node.data.trim() || !shown(element) || clipped(element)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const box = range.getBoundingClientRect();
  if (!box.width) continue;
  const style = getComputedStyle(element);
  const svg = element.closest("svg");
  const colour = svg ? style.fill : style.color;
  const said = node.data.trim().slice(0, 30);
  if (contrast(colour, background(element)) < 4.5) wrong.push(`pale: ${said} ${colour} on ${background(element)}`);
  if (box.left < -0.5 || box.right > root.clientWidth + 0.5) wrong.push(`outside of the page: ${said}`);
  const frame = (svg || element.closest("li, section, header")).getBoundingClientRect();
  if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5)
    wrong.push(`clipped: ${said}`);
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  if (parseFloat(style.fontSize) * scale < 11) wrong.push(`small: ${said} ${parseFloat(style.fontSize) * scale}`);
  if (element.closest("th") && range.getClientRects().length > 1) wrong.push(`broken header: ${said}`);
  texts.push({box, said, group: svg || element.closest("tr, li, h1, h2, p")});
}
for (let i = 0; i < texts.length; i++)
  for (let j = i + 1; j < texts.length && j < i + 200; j++) {
    const [a, b] = [texts[i], texts[j]];
    if (a.group !== b.group) continue;
    if (a.box.left < b.box.right - 1 && b.box.left < a.box.right - 1 && a.box.top < b.box.bottom - 3 && b.box.top < a.box.bottom - 3)
      wrong.push(`overlap: ${a.said} and ${b.said}`);
  }
const charts = [...document.querySelectorAll("figure")];
for (const chart of charts)
  if ([...chart.querySelectorAll("svg")].filter(shown).length !== 1) wrong.push("not one drawing of a chart");
return {wrong, texts: texts.length, charts: charts.length};
"""
TICKS = """
return [...document.querySelectorAll("svg")].filter(svg => svg.getClientRects().length).map(
  svg => [svg.getAttribute("aria-label"), [...svg.querySelectorAll(".role-axis-label text")].map(text => text.textContent)]);
"""
COLOUR = "return getComputedStyle(document.querySelector('.tiles li:last-child')).backgroundColor"
# Returns the colours of the page and of the first series, in the form of a picture's pixels.
COLOURS = """
const probe = document.createElement("i");
document.body.append(probe);
const found = ["--page", "--c0"].map(name => {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
});
probe.remove();
return found;
"""


def full(damage: int) -> ReportFigures:
    """Return figures that fill every section, with names of all kinds."""
    messages = [MessageFigures("/", n, 10**9, n, n, NOW, 7 << 3 * i) for i, n in enumerate(NAMES)]
    return ReportFigures(
        source="/var/lib/warren/" + "a-long-name-without-spaces" * 5,
        made_at=NOW,
        messages=123_456_789,
        bytes=3 << 40,
        queue_count=len(NAMES),
        queues=[
            QueueFigures("/" if i else "a vhost", n, 10**8 >> 3 * i, 10**12 >> 3 * i, 9e6 / (i + 1), 7e5, 12.3)
            for i, n in enumerate(NAMES)
        ],
        forms=[QueueForms("/", n, 10**6, 2, 300 * i, 10**7 >> i, 5) for i, n in enumerate(NAMES)],
        sizes=[SizeFigures(0, 3, 0), *[SizeFigures(1 << i, 10**6 >> i, 1 << 20) for i in range(0, 27, 2)]],
        file_count=1_234_567,
        file_bytes={
            kind: {"files": 123_456, "bytes": 1023 << 30, "live": 500 << 30, "garbage": 400 << 30}
            for kind in ("content", "index", "journal", "other")
        },
        files=[FileFigures("/", n, "index", 1 << 30, 1 << 20, 1 << 29) for n in NAMES],
        bucket_s=3600,
        rates=[
            RateFigures(NOW + HOUR * i, name, 10**6 + i)
            for i in range(60)
            for name in (None, *NAMES)
        ],
        dead_letters=[DeathFigures("rejected", n, 10**7, 10**9) for n in NAMES],
        largest=messages,
        oldest=messages,
        damage_count=damage,
        damage=[DamageFigures("/", n, f"no checksum fits {n}") for n in NAMES[:damage]],
    )  # fmt: skip


def small() -> ReportFigures:
    """Return figures of five messages in two hours."""
    return ReportFigures(
        source="data",
        made_at=NOW,
        messages=5,
        bytes=900,
        queue_count=1,
        queues=[QueueFigures("/", "orders", 5, 900, 37_000.0, 20_000.0, 100.0)],
        forms=[QueueForms("/", "orders", 2, 0, 1, 2, 0)],
        sizes=[SizeFigures(128, 5, 900)],
        file_count=1,
        file_bytes={"journal": {"files": 1, "bytes": 1500, "live": 900, "garbage": 600}},
        files=[],
        bucket_s=3600,
        rates=[RateFigures(NOW, "orders", 2), RateFigures(NOW + HOUR, "orders", 3)],
        dead_letters=[],
        largest=[],
        oldest=[],
        damage_count=0,
        damage=[],
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pages")
    found = {}
    for name, figures in (("full", full(2)), ("small", small())):
        found[name] = place / f"{name}.html"
        found[name].write_text(page(figures), encoding="utf-8")
    return found


@pytest.mark.parametrize("name, charts", [("full", 8), ("small", 6)])
def test_everything_can_be_read_at_every_width(
    browser: Browser, pages: dict[str, Path], name: str, charts: int
) -> None:
    """No text is clipped, overlapping, too small or too pale; the page never scrolls sideways."""
    browser.open(pages[name])
    for width in (360, *WIDTHS):
        for scheme in SCHEMES:
            browser.show_as(width, scheme)
            found = browser.ask(LOOK)
            assert found["wrong"] == [], (width, scheme)
            assert found["charts"] == charts and found["texts"] > 50


def test_axes_of_messages_count_whole_messages(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["small"])
    browser.show_as(1400, "light")
    ticks: dict[str, list[str]] = dict(browser.ask(TICKS))
    assert ticks["Messages by queue"][0] == "0" and "5" in ticks["Messages by queue"]
    for title in ("Messages by queue", "Messages by state and queue"):
        assert all(tick.isdigit() for tick in ticks[title]), ticks[title]
    sizes = [tick for tick in ticks["Messages by size of their body"] if tick != "128 B"]
    assert sizes and all(tick.isdigit() for tick in sizes)


def test_damage_is_seen_at_first_sight(browser: Browser, pages: dict[str, Path]) -> None:
    """The damage tile has one colour with damage, another without, and neither of other tiles."""
    for scheme in SCHEMES:
        colours: dict[str, Any] = {}
        for name in ("full", "small"):
            browser.open(pages[name])
            browser.show_as(800, scheme)
            colours[name] = browser.ask(COLOUR)
            colours[f"{name}, first"] = browser.ask(COLOUR.replace("last-child", "first-child"))
        assert colours["full, first"] == colours["small, first"]
        assert len(set(colours.values())) == 3, colours


def test_pictures_have_the_colours_of_the_reader(
    browser: Browser, pages: dict[str, Path], tmp_path: Path
) -> None:
    """Page and bars have the reader's colours at each width, light and dark."""
    backgrounds = set()
    for width in WIDTHS:
        for scheme in SCHEMES:
            browser.open(pages["small"])
            browser.show_as(width, scheme)
            browser.ask("window.scrollTo(0, document.querySelector('section').offsetTop - 20)")
            paper, bar = browser.ask(COLOURS)
            picture = browser.picture()
            (tmp_path / f"report-{width}-{scheme}.png").write_bytes(picture)
            first, counts = browser.pixels(picture, [bar])
            assert first == paper
            backgrounds.add(first)
            assert counts[bar] > 2000, (width, scheme)
    assert len(backgrounds) == 2
