"""A report's history: windows of the job `metrics`, put together as computed by hand."""

import datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq

from warrenmq.pipeline import JobError
from warrenmq.pipeline.reports import metric_figures
from warrenmq.pipeline.reports.metric_figures import OTHERS, MetricsFigures, read_metrics
from warrenmq.pipeline.reports.over_time import over_time

BEGIN = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)


def window(
    minute: int,
    metric: str,
    value: float | None = None,
    queue: str | None = None,
    node: str = "n1",
    group: str | None = None,
    increase: float | None = None,
) -> dict[str, Any]:
    """A window of a minute; `value` is the mean of a level."""
    rate = None if increase is None else increase / 60
    return {
        "start": BEGIN + minute * MINUTE, "end": BEGIN + (minute + 1) * MINUTE, "node": node,
        "vhost": None if queue is None else "/", "queue": queue, "group": group, "metric": metric,
        "samples": 12, "minimum": value, "maximum": value, "mean": value, "last": value,
        "increase": increase, "rate": rate,
    }  # fmt: skip


def table_of(windows: list[dict[str, Any]]) -> Any:
    times, texts = pa.timestamp("us", tz="UTC"), pa.string()
    kinds = dict.fromkeys(windows[0], pa.float64()) | {"start": times, "end": times}
    kinds |= dict.fromkeys(("node", "vhost", "queue", "group", "metric"), texts)
    kinds["samples"] = pa.int64()
    return pa.Table.from_pylist(windows, pa.schema(list(kinds.items())))


def history(directory: Path, windows: list[dict[str, Any]]) -> MetricsFigures:
    """The figures of windows, which the job has written in batches."""
    for number, each in enumerate(windows):
        batch = directory / f"batch={number}"
        batch.mkdir(parents=True)
        pq.write_table(table_of([each]), batch / "part.parquet")
    return read_metrics(directory)


def series(figures: MetricsFigures, title: str) -> dict[str, list[float | None]]:
    (chart,) = [each for each in figures.charts if each.title.startswith(title)]
    return {each.name: each.values for each in chart.series}


WINDOWS = [
    *[window(0, f"messages_{form}", 2.0, queue) for form in ("alpha", "delta") for queue in "ab"],
    window(2, "messages_alpha", 5.0, "a"),
    window(0, "publish", queue="a", increase=60.0),
    window(0, "publish", increase=120.0),
    window(0, "publish", increase=240.0, node="n2"),
    window(2, "publish", increase=30.0),
    window(0, "deliver", increase=60.0),
    window(0, "get_no_ack", increase=60.0),
    *[window(0, "messages_ready", float(number + 1), f"q{number}") for number in range(9)],
    window(0, "lag", 7.0, "a", group="g"),
    window(2, "lag", 3.0, "b", group="g"),
    window(0, "syncs_to_1000000", increase=98.0),
    window(0, "syncs_to_5000000", increase=1.0, node="n2"),
    window(0, "syncs_to_100000000", increase=1.0),
    window(0, "mem_used", 2.0**20),
    window(2, "mem_used", 2.0**21, node="n2"),
    window(1, "samples_lost", 4.0, increase=4.0),
    window(0, "fd_used", 9.0),
]


def test_windows_of_all_nodes_are_put_together(tmp_path: Path) -> None:
    """A minute without windows is a gap; queues of their own are the deepest ones."""
    figures = history(tmp_path / "m", WINDOWS)
    assert (figures.window_s, figures.step_s, figures.lost_samples) == (60, 60, 4)
    assert figures.starts == [BEGIN, BEGIN + MINUTE, BEGIN + 2 * MINUTE]
    assert series(figures, "Messages by state") == {
        "alpha": [4.0, None, 5.0],
        "delta": [4.0, None, None],
    }
    assert series(figures, "Rates") == {
        "published": [6.0, None, 0.5],
        "delivered": [2.0, None, None],
    }
    depths = series(figures, "Depth")
    assert list(depths) == [*[f"q{number}" for number in range(8, 1, -1)], OTHERS]
    assert (depths["q8"], depths[OTHERS]) == ([9.0, None, None], [3.0, None, None])
    assert series(figures, "Lag") == {"g": [7.0, None, 3.0]}
    assert series(figures, "Syncs") == {"median": [1.0, None, None], "99 of 100": [5.0, None, None]}
    assert series(figures, "Memory") == {"n1": [2.0**20, None, None], "n2": [None, None, 2.0**21]}


def test_a_long_history_has_longer_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of a step is the mean of its windows, the last one's of those that there are."""
    monkeypatch.setattr(metric_figures, "STEPS_MAX", 2)
    windows = [window(minute, "publish", increase=60.0 * minute) for minute in range(5)]
    figures = history(tmp_path / "m", windows)
    assert figures.starts == [BEGIN, BEGIN + 3 * MINUTE]
    assert series(figures, "Rates") == {"published": [1.0, 3.5]}


def test_each_chart_has_a_section_with_its_figures(tmp_path: Path) -> None:
    sections = over_time(history(tmp_path / "m", WINDOWS))
    assert [section.title for section in sections] == [
        "Messages by state over time", "Rates over time", "Depth over time",
        "Lag of reader groups over time", "Syncs of journals over time",
        "Memory of nodes over time",
    ]  # fmt: skip
    for section in sections:
        assert section.chart is not None and "4 samples are missing" in section.note
        assert section.chart.wide.startswith("<svg") and section.chart.wide != section.chart.narrow
    assert sections[1].table is not None
    assert sections[1].table.rows[0] == ("published", "0.5", "3.25", "6", "0.5")
    assert over_time(None) == []


def test_a_delta_table_is_a_history_too(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(str(tmp_path / "d"), table_of(WINDOWS))
    figures = read_metrics(tmp_path / "d")
    assert figures.charts == history(tmp_path / "p", WINDOWS).charts


def test_a_directory_without_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="has no windows"):
        read_metrics(tmp_path)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(JobError, match="has no windows of the job metrics") as error:
        read_metrics(tmp_path)
    assert "\n" not in str(error.value)
