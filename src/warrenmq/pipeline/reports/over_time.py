"""The sections of a report's page that show figures over time."""

from collections.abc import Sequence

from warrenmq.offline.sizes import size_text
from warrenmq.pipeline.reports import charts
from warrenmq.pipeline.reports.metric_figures import MetricChart, MetricsFigures
from warrenmq.pipeline.reports.section import Section, Table


def over_time(figures: MetricsFigures | None) -> list[Section]:
    """A section for each chart of the history; none without one."""
    if figures is None:
        return []
    labels = charts.time_labels(figures.starts)
    return [_section(chart, labels, figures) for chart in figures.charts]


def _section(chart: MetricChart, labels: Sequence[str], figures: MetricsFigures) -> Section:
    names = [each.name for each in chart.series]
    rows = [each.values for each in chart.series]
    if chart.is_stacked:
        bars = [
            charts.Bar(label, tuple([row[place] or 0.0 for row in rows]))
            for place, label in enumerate(labels)
        ]
        drawn = charts.columns(chart.title, bars, names, chart.unit)
    else:
        drawn = charts.lines(chart.title, labels, rows, names, chart.unit)
    note = f"A step is {figures.step_s:g} s (UTC)."
    if figures.lost_samples:
        note += f" {figures.lost_samples:,} samples are missing: the nodes no longer had them."
    return Section(chart.title, note, drawn, _table(chart))


def _table(chart: MetricChart) -> Table:
    found = []
    for each in chart.series:
        known = [value for value in each.values if value is not None]
        texts = [min(known), sum(known) / len(known), max(known), known[-1]]
        found.append((each.name, *[_text(value, chart.unit) for value in texts]))
    unit = "" if chart.unit == "bytes" else f" ({chart.unit})"
    return Table(f"{chart.title}{unit}", ("", "lowest", "mean", "highest", "last"), found)


def _text(value: float, unit: str) -> str:
    return size_text(round(value)) if unit == "bytes" else f"{value:,.6g}"
