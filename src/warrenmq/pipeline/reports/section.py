"""A section of a report's page: its chart and its table."""

from collections.abc import Sequence
from dataclasses import dataclass

from warrenmq.pipeline.reports import charts


@dataclass(frozen=True)
class Table:
    """A table: `head` has the column names; the first `texts` columns are left-aligned texts.

    The other columns are numbers.
    """

    caption: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: int = 1


@dataclass(frozen=True)
class Section:
    """A section of the page: a chart and the table with its figures, or only one of them."""

    title: str
    note: str = ""
    chart: charts.Chart | None = None
    table: Table | None = None
