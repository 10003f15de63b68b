"""Measured figures stand in docs/benchmarks.md; other pages repeat rows of it word by word."""

import re
from pathlib import Path

from tools.draw_benchmarks import PAGE, TARGET, drawing, figures

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| .* \| [\d,.]+ (?:msg/s|ms|s) \|.*\|$", re.MULTILINE)


def test_figures_of_other_pages_are_rows_of_the_benchmarks() -> None:
    """A row has workload, warren, RabbitMQ and ratio; the benchmarks have CPU and memory behind."""
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    for page in ("README.md", "docs/compare.md"):
        text = (ROOT / page).read_text("utf-8")
        rows = ROW.findall(text)
        assert len(rows) >= 5, page
        assert [row for row in rows if f"\n{row}" not in benchmarks] == [], page


def test_pages_say_when_their_figures_were_measured() -> None:
    (date,) = re.findall(
        r"measured this on (\d+ \w+ \d{4})", (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    )
    for page in ("README.md", "docs/compare.md"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert date in text, page


def test_the_picture_is_drawn_of_the_page() -> None:
    """`make docs` draws it."""
    assert TARGET.read_text("utf-8") == drawing(figures(PAGE.read_text("utf-8")))
