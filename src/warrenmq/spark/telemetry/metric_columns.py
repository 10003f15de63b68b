"""Columns of the data source "warren_metrics", and how samples of a node become rows.

A row is one figure of one object at one time. So a later version may add figures, and no schema
and no checkpoint changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.types import (
    DataType,
    DoubleType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from warrenmq.admin.protocol.changes import NODE, QUEUE, SYNCS
from warrenmq.admin.protocol.samples import (
    GROUP,
    SAMPLED_COUNTERS,
    SAMPLED_LEVELS,
    Sample,
    SampledObject,
)

METRIC_COLUMNS: Final[dict[str, DataType]] = {
    "time": TimestampType(),
    "node": StringType(),
    "vhost": StringType(),
    "queue": StringType(),
    "group": StringType(),
    "metric": StringType(),
    "value": DoubleType(),
    "increase": DoubleType(),
    "seconds": DoubleType(),
}
# The metric of a row that says how many samples of a node are missing.
SAMPLES_LOST: Final = "samples_lost"
# A figure of the protocol that stands for two, and would mislead in a table.
_HIDDEN: Final = ("ram_limit", "lag_ms")
# Figures that are made of others.
_ALPHA: Final = "messages_alpha"
_SYNCS: Final = "syncs"
_LAG_SECONDS: Final = "lag_seconds"
_MADE: Final = {NODE: (_SYNCS,), QUEUE: (_ALPHA,), GROUP: (_LAG_SECONDS,)}
# Metrics by the kind of object that has them, in the order of the protocol.
METRICS_OF: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(
        name
        for name in (*SAMPLED_COUNTERS[kind], *SAMPLED_LEVELS[kind], *_MADE[kind])
        if name not in _HIDDEN
    )
    for kind in (NODE, QUEUE, GROUP)
}
METRICS: Final = (*dict.fromkeys(name for each in METRICS_OF.values() for name in each),)


def metric_schema() -> StructType:
    """The schema of a read for which the user gives none: all columns."""
    return StructType([StructField(name, kind) for name, kind in METRIC_COLUMNS.items()])


@dataclass(frozen=True)
class _Figure:
    """A figure of an object: its value, and of a counter how much it has grown."""

    metric: str
    value: float | None
    increase: float | None = None


def _figures(found: SampledObject) -> Iterator[_Figure]:
    """The figures of an object, those that are made of others too."""
    # A node of an earlier version has fewer figures, one of a later version more.
    counters = list(zip(SAMPLED_COUNTERS[found.kind], found.counters, strict=False))
    levels = dict(zip(SAMPLED_LEVELS[found.kind], found.levels, strict=False))
    increases = found.increases
    for place, (name, value) in enumerate(counters):
        yield _Figure(name, value, None if increases is None else increases[place])
    for name, level in levels.items():
        if name not in _HIDDEN:
            yield _Figure(name, level)
    if found.kind == QUEUE:
        paged = [levels[f"messages_{form}"] for form in ("beta", "gamma", "delta")]
        yield _Figure(_ALPHA, levels["messages_ready"] - sum(paged))
    elif found.kind == GROUP:
        lag_ms = levels["lag_ms"]
        yield _Figure(_LAG_SECONDS, lag_ms / 1000 if lag_ms >= 0 else None)
    else:
        places = [place for place, (name, _) in enumerate(counters) if name in SYNCS]
        total = sum([found.counters[place] for place in places])
        grown = None if increases is None else sum([increases[place] for place in places])
        yield _Figure(_SYNCS, total, grown)


def metric_batch(
    node: str, samples: Sequence[Sample], wanted: frozenset[str] | None, schema: Any
) -> Any:
    """The record batch of the Arrow `schema` for samples of `node`; `wanted`: None for all."""
    rows: list[tuple[Any, ...]] = []
    for sample in samples:
        seconds = (sample.at_ms - sample.before_ms) / 1000 if sample.before_ms else None
        for found in sample.objects:
            queue, group = found.name if found.kind != NODE else None, found.group or None
            # Of all objects the node alone is in no vhost.
            head = (sample.at_ms * 1000, node, found.vhost or None, queue, group)
            rows += [
                (*head, each.metric, each.value, each.increase, seconds)
                for each in _figures(found)
                if wanted is None or each.metric in wanted
            ]
    return _batch(rows, schema)


def lost_batch(node: str, at_ms: int, count: int, schema: Any) -> Any:
    """The record batch of one row: `count` samples of `node` before `at_ms` are lost."""
    lost = float(count)
    return _batch([(at_ms * 1000, node, None, None, None, SAMPLES_LOST, lost, lost, None)], schema)


def _batch(rows: list[tuple[Any, ...]], schema: Any) -> Any:
    import pyarrow as pa

    columns = dict(zip(METRIC_COLUMNS, zip(*rows, strict=True), strict=True)) if rows else {}
    arrays = [pa.array(columns.get(column.name, ()), column.type) for column in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
