"""Figures over time for a report: the windows that the job `metrics` has kept.

Windows of all nodes are put together. A history of many windows is shown in longer steps, each the
mean of its windows.
"""

import dataclasses
import datetime
from pathlib import Path
from typing import Any, Final

from warrenmq.admin.protocol.changes import SYNCS
from warrenmq.pipeline.result import JobError
from warrenmq.vocabulary.distribution import DURATION_BOUNDS_NS

# Most steps of time of a chart.
STEPS_MAX: Final = 200
# Queues and groups that have a series of their own.
NAMED_MAX: Final = 7
OTHERS: Final = "(all others)"
_FORMS: Final = ("alpha", "beta", "gamma", "delta")
_DELIVERED: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
_RATES: Final = ("publish", *_DELIVERED, "ack")
_QUANTILES: Final = {"median": 0.5, "99 of 100": 0.99}
_LOST: Final = "samples_lost"
_WANTED: Final = (
    *(f"messages_{form}" for form in _FORMS), "messages_unacknowledged", "messages_ready",
    *_RATES, "lag", *SYNCS, "mem_used", _LOST,
)  # fmt: skip
_COLUMNS: Final = (
    "start", "end", "node", "vhost", "queue", "group", "metric", "mean", "increase", "rate",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class MetricSeries:
    """A line or a part of columns: a value for each step of time, None where there is none."""

    name: str
    values: list[float | None]


@dataclasses.dataclass(frozen=True)
class MetricChart:
    """Series of one unit; with `is_stacked` they add up."""

    title: str
    unit: str
    is_stacked: bool
    series: list[MetricSeries]


@dataclasses.dataclass(frozen=True)
class MetricsFigures:
    """The history in `source`: a step of `step_s` seconds begins at each of `starts`."""

    source: str
    window_s: float
    step_s: float
    starts: list[datetime.datetime]
    charts: list[MetricChart]
    # Samples that the nodes no longer had when the job asked for them.
    lost_samples: int


def read_metrics(directory: Path) -> MetricsFigures:
    """The history that the job `metrics` has kept in `directory`. JobError when there is none."""
    table = _read(directory)
    if not table.num_rows:
        raise JobError(f"{directory} has no windows yet")
    history = _History(table)
    charts = [
        _states(history),
        _rates(history),
        _depths(history),
        _lags(history),
        _syncs(history),
        _memory(history),
    ]
    return MetricsFigures(
        source=str(directory),
        window_s=history.window_s,
        step_s=history.step_s,
        starts=history.starts,
        charts=[chart for chart in charts if chart.series],
        lost_samples=history.lost_samples(),
    )


def _read(directory: Path) -> Any:
    """The windows as an Arrow table, as far as charts need them."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    try:
        if (directory / "_delta_log").is_dir():
            from warrenmq.pipeline.archives.delta import require_deltalake

            require_deltalake()
            from deltalake import DeltaTable

            found = DeltaTable(str(directory)).to_pyarrow_dataset()
        else:
            found = ds.dataset(directory, format="parquet", partitioning="hive")
        return found.to_table(list(_COLUMNS), filter=pc.field("metric").isin(_WANTED))
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise JobError(f"{directory} has no windows of the job metrics: {why}") from None


class _History:
    """The windows of a table by steps of time."""

    def __init__(self, table: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        starts = table["start"].cast(pa.timestamp("us")).cast(pa.int64())
        ends = table["end"].cast(pa.timestamp("us")).cast(pa.int64())
        first, last = pc.min(starts).as_py(), pc.max(starts).as_py()
        window = ends[0].as_py() - starts[0].as_py()
        self._windows: int = (last - first) // window + 1
        self._windows_a_step: int = -(-self._windows // STEPS_MAX)
        step = window * self._windows_a_step
        self.window_s, self.step_s = window / 1e6, step / 1e6
        self.count = (last - first) // step + 1
        begin = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        self.starts = [
            begin + datetime.timedelta(microseconds=first + place * step)
            for place in range(self.count)
        ]
        places = pc.divide(pc.subtract(starts, first), step)
        self._table = table.append_column("place", places)

    def sum_of(
        self, column: str, by: tuple[str, ...], *metrics: str
    ) -> dict[tuple[Any, ...], dict[int, float]]:
        """For each value of the columns `by`: the sums of `column` by step of time.

        The sum of all objects in each window, and the mean of the windows of a step. `metrics`: of
        these alone.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        table = self._table
        if metrics:
            table = table.filter(pc.is_in(table["metric"], pa.array(metrics)))
        sums = table.group_by([*by, "place"]).aggregate([(column, "sum")])
        found: dict[tuple[Any, ...], dict[int, float]] = {}
        for row in sums.to_pylist():
            if row[f"{column}_sum"] is not None:
                key = tuple([row[name] for name in by])
                place = row["place"]
                mean = row[f"{column}_sum"] / self._windows_in(place)
                found.setdefault(key, {})[place] = mean
        return found

    def lost_samples(self) -> int:
        """How many samples the nodes no longer had."""
        import pyarrow.compute as pc

        lost = self._table.filter(pc.equal(self._table["metric"], _LOST))
        total: float | None = pc.sum(lost["increase"]).as_py()
        return round(total or 0)

    def _windows_in(self, place: int) -> int:
        """The windows of a step: the last step may have fewer than the others."""
        return int(min(self._windows_a_step, self._windows - place * self._windows_a_step))

    def series(self, name: str, values: dict[int, float]) -> MetricSeries:
        """The series of values by step of time."""
        return MetricSeries(name, [values.get(place) for place in range(self.count)])

    def largest(
        self, sums: dict[tuple[Any, ...], dict[int, float]], with_others: bool
    ) -> list[MetricSeries]:
        """The series with the highest values, the others together `with_others`."""
        ranked = sorted(sums, key=lambda key: (-max(sums[key].values()), str(key)))
        named = [key for key in ranked[:NAMED_MAX] if max(sums[key].values()) > 0]
        found = [self.series(_shown(key), sums[key]) for key in named]
        rest: dict[int, float] = {}
        for key in ranked[len(named) :]:
            for place, value in sums[key].items():
                rest[place] = rest.get(place, 0.0) + value
        if with_others and any(rest.values()):
            found.append(self.series(OTHERS, rest))
        return found


def _shown(key: tuple[Any, ...]) -> str:
    """A name in a vhost as the page shows it."""
    vhost, name = key
    return str(name) if vhost == "/" else f"{vhost} › {name}"


def _states(history: _History) -> MetricChart:
    forms = [f"messages_{form}" for form in _FORMS]
    sums = history.sum_of("mean", ("metric",), *forms, "messages_unacknowledged")
    names = [*_FORMS, "unacked"]
    series = [
        history.series(name, sums.get((metric,), {}))
        for name, metric in zip(names, [*forms, "messages_unacknowledged"], strict=True)
        if (metric,) in sums
    ]
    return MetricChart("Messages by state over time", "messages", True, series)


def _rates(history: _History) -> MetricChart:
    """Rates of the nodes: the rows of queues count the same messages again."""
    sums = history.sum_of("rate", ("metric", "queue"), *_RATES)
    delivered: dict[int, float] = {}
    for metric in _DELIVERED:
        for place, rate in sums.get((metric, None), {}).items():
            delivered[place] = delivered.get(place, 0.0) + rate
    found = {
        "published": sums.get(("publish", None), {}),
        "delivered": delivered,
        "acked": sums.get(("ack", None), {}),
    }
    series = [history.series(name, values) for name, values in found.items() if values]
    return MetricChart("Rates over time", "messages/s", False, series)


def _depths(history: _History) -> MetricChart:
    sums = history.sum_of("mean", ("vhost", "queue"), "messages_ready")
    return MetricChart("Depth over time", "messages", True, history.largest(sums, True))


def _lags(history: _History) -> MetricChart:
    sums = history.sum_of("mean", ("vhost", "group"), "lag")
    series = history.largest(sums, False)
    return MetricChart("Lag of reader groups over time", "messages", False, series)


def _syncs(history: _History) -> MetricChart:
    """How long a sync of a journal took, at most, by the bounds between which syncs are counted."""
    sums = history.sum_of("increase", ("metric",), *SYNCS)
    counts = [sums.get((metric,), {}) for metric in SYNCS]
    series = []
    for name, share in _QUANTILES.items():
        values: dict[int, float] = {}
        for place in range(history.count):
            of_step = [count.get(place, 0.0) for count in counts]
            wanted, passed = share * sum(of_step), 0.0
            for bound_ns, count in zip(DURATION_BOUNDS_NS, of_step, strict=False):
                passed += count
                if passed >= wanted > 0:
                    values[place] = bound_ns / 1e6
                    break
        if values:
            series.append(history.series(name, values))
    return MetricChart("Syncs of journals over time", "ms at most", False, series)


def _memory(history: _History) -> MetricChart:
    sums = history.sum_of("mean", ("node",), "mem_used")
    series = [history.series(str(node), values) for (node,), values in sorted(sums.items())]
    return MetricChart("Memory of nodes over time", "bytes", False, series)
