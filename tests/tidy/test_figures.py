"""Measured figures stand in docs/benchmarks.md; other pages repeat rows of it word by word."""

import re
from pathlib import Path

import pytest

from tools.drawings.__main__ import DRAWINGS, PAGE, PICTURES

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| .* \| [\d,.]+ (?:msg/s|ms|s) \|.*\|$", re.MULTILINE)


def test_figures_of_other_pages_are_rows_of_the_benchmarks() -> None:
    """A row has workload, warren, RabbitMQ and ratio; the benchmarks have CPU time behind."""
    benchmarks = PAGE.read_text("utf-8")
    for page in ("README.md", "docs/compare.md"):
        text = (ROOT / page).read_text("utf-8")
        rows = ROW.findall(text)
        assert len(rows) >= 5, page
        assert [row for row in rows if f"\n{row}" not in benchmarks] == [], page


def test_pages_say_when_their_figures_were_measured() -> None:
    (date,) = re.findall(r"measured this on (\d+ \w+ \d{4})", PAGE.read_text("utf-8"))
    for page in ("README.md", "docs/compare.md"):
        text = " ".join((ROOT / page).read_text("utf-8").split())
        assert date in text, page


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_shows_what_is_written(name: str) -> None:
    """`make docs` draws them."""
    assert (PICTURES / f"{name}.svg").read_text("utf-8") == DRAWINGS[name]()
