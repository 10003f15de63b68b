"""Pictures are drawn of what is known alone: gaps stay gaps, and stacks stand on each other."""

import re

from warrenmq.management.ui import figures
from warrenmq.management.ui.elements.cells import Cell, cell_map
from warrenmq.management.ui.elements.charts import Series, chart
from warrenmq.management.ui.elements.heat_map import HeatColumn, heat_map

START_MS = 1_699_833_600_000


def at(*values: float, first: int = 0) -> list[tuple[int, float]]:
    """Samples five seconds apart."""
    return [(START_MS + 5000 * (first + place), value) for place, value in enumerate(values)]


def points(picture: str, classes: str) -> list[list[tuple[float, float]]]:
    """The corners of the lines or areas of these classes."""
    found = re.findall(rf'class="{classes}" points="([^"]*)"', picture)
    return [
        [(float(x), float(y)) for x, y in (each.split(",") for each in line.split())]
        for line in found
    ]


def test_a_gap_parts_a_line() -> None:
    samples = [*at(1, 2, 3), *at(4, 5, first=9)]
    lines = points(str(chart("c", [Series("s", "c1", samples)], 5, figures.count)), "line c1")
    assert [len(line) for line in lines] == [3, 2]


def test_a_line_under_others_is_broad() -> None:
    """Two lines with the same samples are both visible."""
    both = [
        Series("a", "c1", [(0, 1.0), (5_000, 2.0)]),
        Series("b", "c2", [(0, 1.0), (5_000, 2.0)]),
    ]
    drawn = str(chart("c", both, 5, figures.count))
    assert points(drawn, "line broad c1") == points(drawn, "line c2") != []


def test_an_area_stands_on_the_one_below() -> None:
    series = [Series("low", "c1", at(10, 10)), Series("high", "c2", at(5, 10))]
    drawn = str(chart("c", series, 5, figures.count, is_stacked=True))
    (low,), (high,) = points(drawn, "area c1"), points(drawn, "area c2")
    assert low[:2] == high[:1:-1]
    assert high[0][1] > high[1][1]


def test_a_mark_far_above_all_else_is_told_and_not_drawn() -> None:
    def drawn(limit: float) -> str:
        series, marks = [Series("s", "c1", at(10, 20))], [Series("mark", "c5", at(limit, limit))]
        return str(chart("c", series, 5, figures.count, marks=marks, mark_reach=2))

    assert len(points(drawn(40), "line dashed c5")) == 1
    far = drawn(41)
    assert points(far, "line dashed c5") == [] and "mark <b>41</b>" in far


def test_a_legend_tells_no_value_of_long_ago() -> None:
    series = [Series("now", "c1", at(1, 2, 3)), Series("before", "c2", at(7))]
    drawn = str(chart("c", series, 5, figures.count))
    assert "now <b>3</b>" in drawn and f"before <b>{figures.NONE}</b>" in drawn


def test_the_axis_of_sizes_has_their_units() -> None:
    drawn = str(chart("c", [Series("s", "c1", at(3 << 20, 5 << 20))], 5, figures.size))
    assert re.findall(r'class="axis end"[^>]*>([^<]+)<', drawn)[:5] == [
        "0 B", "2.0 MiB", "4.0 MiB", "6.0 MiB", "8.0 MiB",
    ]  # fmt: skip


def column(place: int, counts: list[int]) -> HeatColumn:
    first_ms = START_MS + 5000 * place
    rows = [row for row, count in enumerate(counts) if count]
    quantiles = {"p50": rows[0], "p99": rows[-1]} if rows else {}
    return HeatColumn(first_ms, first_ms + 5000, counts, quantiles)


def test_a_heat_map_shows_how_often_and_leaves_gaps() -> None:
    columns = [column(0, [0, 100, 1, 0]), column(1, [0, 0, 0, 0]), column(5, [0, 25, 0, 0])]
    names = ["a", "b", "c", "d"]
    drawn = str(heat_map("h", names, columns, START_MS, START_MS + 30_000))
    shades = dict(re.findall(r'class="dot c2 (heat\d)" d="([^"]*)"', drawn))
    assert {name: path.count("M") for name, path in shades.items()} == {
        "heat1": 1, "heat3": 1, "heat5": 1,
    }  # fmt: skip
    floor = re.search(r'class="floor" d="([^"]*)"', drawn)
    assert floor is not None and floor[1].count("M") == 3
    # Neither line goes on through the idle interval and the gap.
    for kind in ("line text", "line dashed text"):
        line = re.search(rf'class="{kind}" d="([^"]*)"', drawn)
        assert line is not None and line[1].count("M") == 2


def test_cells_are_as_full_as_what_they_stand_for() -> None:
    cells = [
        Cell(1, 0),
        Cell(0.5, 0.5, is_heavy=True, is_framed=True),
        Cell(0.001, 0.25, is_crossed=True, has_corner=True, has_dot=True),
        Cell(0, 0, is_dashed=True),
    ]
    drawn = str(cell_map("m", cells))
    paths = dict(re.findall(r'class="([^"]*)" d="([^"]*)"', drawn))
    assert re.findall(r"v(\d+)", paths["dot c2"]) == ["18", "9", "2"]
    assert re.findall(r"v(\d+)", paths["dot c5"]) == ["9"]
    assert re.findall(r"v(\d+)", paths["dot c1"]) == ["4"]
    assert [paths[name].count("M") for name in ("cell", "cell dashed", "corner", "mid")] == [
        3, 1, 1, 1,
    ]  # fmt: skip
    assert paths["frame"].count("M") == 2
