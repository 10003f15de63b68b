"""Exponents of growth, their table, and a small run of the scenario against warren."""

from pathlib import Path

import pytest

from bench.growth.axis import Cost
from bench.growth.fit import exponent, exponent_of, grouped, growth_table
from tests.bench.test_scenarios import figures

NAMES = ("connections", "topic-bindings", "fan-out", "unacked")


def costs(axis: str, *points: tuple[int, float]) -> list[Cost]:
    return [Cost(axis, "publish", size, cpu_us) for size, cpu_us in points]


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    assert exponent([(10, 5.0), (100, 5.0), (1000, 5.0)]) == pytest.approx(0)
    assert exponent([(10, 2.0), (100, 20.0), (10_000, 2000.0)]) == pytest.approx(1)
    assert exponent([(1, 3.0), (100, 30.0)]) == pytest.approx(0.5)
    # Neither a size of 0 nor a cost of 0 has a logarithm.
    assert exponent([(0, 1.0), (10, 2.0), (100, 20.0), (1000, 0.0)]) == pytest.approx(1)
    assert exponent([(10, 2.0)]) is None
    assert exponent([(10, 2.0), (10, 3.0)]) is None


def test_the_table_begins_with_what_grows_fastest() -> None:
    found = {
        "warren": costs("flat", (10, 1.0), (1000, 1.0))
        + costs("single", (10, 1.0))
        + costs("steep", (10, 1.0), (1000, 100.0)),
        "RabbitMQ": costs("flat", (10, 4.0), (1000, 400.0)),
    }
    lines = growth_table(grouped(found), list(found)).splitlines()[2:]
    rows = [[cell.strip() for cell in each.strip("|").split("|")] for each in lines]
    assert rows == [
        ["steep", "publish", "+1.00", "10: 1 · 1,000: 100", "-", "-"],
        ["flat", "publish", "+0.00", "10: 1 · 1,000: 1", "+1.00", "10: 4 · 1,000: 400"],
        ["single", "publish", "-", "10: 1", "-", "-"],
    ]


@pytest.mark.slow
@pytest.mark.timeout(460)
def test_a_small_run_gives_costs_and_exponents(tmp_path: Path) -> None:
    chosen = [word for name in NAMES for word in ("--only", name)]
    sizes = ("--largest", "100", "--messages", "2000", "--cpu", "0.02", "--seconds", "1")
    found = figures(tmp_path, "growth", *chosen, *sizes)
    assert found["resident memory of an idle node"] > 10
    assert found["resident memory of each of 100 connections with a channel"] > 0
    assert found["connections 100: open a connection and a channel"] > 0
    # Two sizes and their exponent; of the bindings one size is small enough.
    copies = [found[f"fan-out {size}: publish, for each copy"] for size in (1, 10, 100)]
    points = costs("fan-out", *zip((1, 10, 100), copies, strict=True))
    assert found["fan-out: publish, for each copy"] == pytest.approx(exponent_of(points))
    assert found["topic-bindings 100: bind"] > 0
    assert "topic-bindings: bind" not in found
    assert found["unacked 10: ack in random order"] > 0
