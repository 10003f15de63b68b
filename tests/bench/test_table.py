"""Medians, ranges and ratios of the tables; a ratio above 1 always favours the first broker."""

from bench.measure import Result
from bench.table import figure_table, markdown_table


def result(workload: str, broker: str, value: float, unit: str, cpu: float | None = None) -> Result:
    return Result(workload, broker, 1, value, unit, cpu_us_per_message=cpu)


def cells(table: str, row: int) -> list[str]:
    return [cell.strip() for cell in table.splitlines()[2 + row].strip("|").split("|")]


def test_rates_and_times_are_compared_the_right_way_round() -> None:
    results = [result("flow", "warren", rate, "msg/s", 2.0) for rate in (300.0, 100.0, 200.0)]
    results += [result("flow", "RabbitMQ", 100.0, "msg/s", 8.0)]
    results += [result("latency", "warren", 0.5, "ms"), result("latency", "RabbitMQ", 1.0, "ms")]
    table = markdown_table(["flow", "latency"], results, ["warren", "RabbitMQ"], {})
    assert cells(table, 0) == [
        "flow", "200 msg/s (100-300)", "2.00", "-", "100 msg/s", "8.00", "-", "2.00", "4.00",
    ]  # fmt: skip
    assert cells(table, 1) == ["latency", "0.50 ms", "-", "-", "1.00 ms", "-", "-", "2.00", "-"]


def test_each_further_broker_has_ratios_of_its_own() -> None:
    results = [result("flow", name, rate, "msg/s") for name, rate in (("a", 6), ("b", 3), ("c", 2))]
    table = markdown_table(["flow"], results, ["a", "b", "c"], {})
    heads = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
    assert heads[-4:] == ["ratio to b", "CPU ratio to b", "ratio to c", "CPU ratio to c"]
    assert cells(table, 0)[-4:] == ["2.00", "-", "3.00", "-"]


def test_a_failure_is_shown_in_its_row() -> None:
    table = markdown_table(["lazy"], [], ["warren"], {("lazy", "warren"): "failed"})
    assert cells(table, 0) == ["lazy", "failed", "-", "-"]


def test_figures_of_a_scenario_stand_side_by_side() -> None:
    table = figure_table(
        {
            "warren": [
                ("RSS", 50.0, "MiB"),
                ("drained", 40_000.0, "msg/s"),
                ("syncs of .wal files", 20.0, ""),
            ],
            "RabbitMQ": [
                ("RSS", 200.0, "MiB"),
                ("drained", 10_000.0, "msg/s"),
                ("share", 58.5, "%"),
            ],
        }
    )
    assert cells(table, 0) == ["RSS", "50.00 MiB", "200.00 MiB", "4.00"]
    assert cells(table, 1) == ["drained", "40,000 msg/s", "10,000 msg/s", "4.00"]
    assert cells(table, 2) == ["syncs of .wal files", "20", "-", "-"]
    assert cells(table, 3) == ["share", "-", "58.50 %", "-"]
    assert "ratio" not in figure_table({"warren": [("RSS", 50.0, "MiB")]})
