"""The figures of a report: merges the sums that tasks gather from parts of a store (part.py).

Tasks of any engine read the tables `messages`, `files` and `damage` once, without bodies. A task
leaves sums, histograms and a few rows. Merging them gives the same figures for any number of tasks
and workers.
"""

import dataclasses
import datetime
import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from warrenmq.pipeline.progress import Progress
from warrenmq.pipeline.reports.metric_figures import MetricsFigures
from warrenmq.pipeline.reports.part import (
    ROWS_MAX,
    MessageRow,
    PartFigures,
    QueuePart,
    ReportTask,
    age_of,
    read_part,
)
from warrenmq.pipeline.result import JobError
from warrenmq.pipeline.sharing import Sharing
from warrenmq.pipeline.tasks import TaskRunner, numbered
from warrenmq.tables.parts import Partition, ReadOptions
from warrenmq.tables.planning import PlanError, plan
from warrenmq.tables.schemas import DAMAGE, FILES, MESSAGES

# Routing keys that a report names; it sums up all others.
ROUTING_KEYS_MAX: Final = 7
# Most hours with a column each; above that, a column of the chart is a day.
HOURS_MAX: Final = 96
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
# Approximate bytes that one task reads.
TASK_BYTES: Final = 128 << 20


@dataclasses.dataclass(frozen=True)
class QueueFigures:
    """The messages of a queue: count, bytes, and ages in seconds before the report's time.

    The median age is exact within 0.4 %.
    """

    vhost: str
    queue: str
    messages: int
    bytes: int
    oldest_age_s: float
    median_age_s: float
    newest_age_s: float


@dataclasses.dataclass(frozen=True)
class QueueForms:
    """The messages of a running node's queue by form, from alpha (in memory) to delta (on disk)."""

    vhost: str
    queue: str
    alpha: int
    beta: int
    gamma: int
    delta: int
    unacked: int


@dataclasses.dataclass(frozen=True)
class SizeFigures:
    """Messages with bodies from `from_bytes` to less than twice that; at 0, with empty bodies."""

    from_bytes: int
    messages: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class FileFigures:
    """A file of the store; `vhost` is "" for a file of the node."""

    vhost: str
    path: str
    kind: str
    bytes: int
    live_bytes: int
    garbage_bytes: int


@dataclasses.dataclass(frozen=True)
class RateFigures:
    """Messages that came within `bucket_s` seconds from `start` on, with a routing key.

    `routing_key` is None for all other keys together.
    """

    start: datetime.datetime
    routing_key: str | None
    messages: int


@dataclasses.dataclass(frozen=True)
class DeathFigures:
    """Messages whose last death, by their x-death header, had this reason in this queue."""

    reason: str
    queue: str
    messages: int
    # Sum of all deaths of these messages.
    deaths: int


@dataclasses.dataclass(frozen=True)
class MessageFigures:
    """One message of a report's tables."""

    vhost: str
    queue: str
    seq: int
    exchange: str
    routing_key: str
    enqueued_at: datetime.datetime
    size: int


@dataclasses.dataclass(frozen=True)
class DamageFigures:
    """A damaged place in the store, of a vhost or of the node; not always in a file."""

    vhost: str
    file: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ReportFigures:
    """All figures of a report. A list may be cut where a total beside it has the full count."""

    source: str
    made_at: datetime.datetime
    messages: int
    bytes: int
    queue_count: int
    queues: list[QueueFigures]
    forms: list[QueueForms]
    sizes: list[SizeFigures]
    file_count: int
    file_bytes: dict[str, dict[str, int]]
    files: list[FileFigures]
    bucket_s: int
    rates: list[RateFigures]
    dead_letters: list[DeathFigures]
    largest: list[MessageFigures]
    oldest: list[MessageFigures]
    damage_count: int
    damage: list[DamageFigures]
    # The history of a broker's figures; None: the report has none.
    metrics: MetricsFigures | None = None


def read_figures(
    sharing: Sharing,
    store: Path,
    scratch: Path,
    made_at: datetime.datetime,
    with_headers: bool,
    source: str,
    forms: list[QueueForms],
    progress: Progress,
) -> ReportFigures:
    """Read all figures of `store`, a data directory or a backup.

    `scratch` is a directory for the results of tasks; `forms` are those of a running node. Raises
    JobError.
    """
    tasks = numbered(_tasks(store, round(made_at.timestamp() * 1000), with_headers))
    runner = TaskRunner(sharing, progress)
    found = runner.run(scratch, tasks, read_part, PartFigures, "reading the store")
    parts = list(found.values())
    queues = _queues(parts)
    files, file_bytes, file_count = _files(parts)
    bucket_s, rates = _rates(parts)
    damage = sorted([row for part in parts for row in part.damage])[:ROWS_MAX]
    return ReportFigures(
        source=source,
        made_at=made_at,
        messages=sum([queue.messages for queue in queues]),
        bytes=sum([queue.bytes for queue in queues]),
        queue_count=len(queues),
        queues=queues,
        forms=forms,
        sizes=_sizes(parts),
        file_count=file_count,
        file_bytes=file_bytes,
        files=files,
        bucket_s=bucket_s,
        rates=rates,
        dead_letters=_dead_letters(parts),
        largest=_messages(heapq.merge(*[part.largest for part in parts], key=_largest_first)),
        oldest=_messages(heapq.merge(*[part.oldest for part in parts], key=_oldest_first)),
        damage_count=sum([part.damage_count for part in parts]),
        damage=[DamageFigures(*row) for row in damage],
    )


def _tasks(store: Path, made_ms: int, with_headers: bool) -> Iterable[ReportTask]:
    """Yield tasks with partitions of the three tables, packed together up to TASK_BYTES."""
    gathered: list[Partition] = []
    size = 0
    try:
        for table in (MESSAGES, FILES, DAMAGE):
            for partition in plan(store, table, ReadOptions()):
                gathered.append(partition)
                size += sum([part.size for part in partition.parts])
                if size >= TASK_BYTES:
                    yield ReportTask(tuple(gathered), made_ms, with_headers)
                    gathered, size = [], 0
    except (PlanError, OSError) as error:
        raise JobError(str(error)) from None
    if gathered:
        yield ReportTask(tuple(gathered), made_ms, with_headers)


def _queues(parts: Sequence[PartFigures]) -> list[QueueFigures]:
    merged: dict[tuple[str, str], QueuePart] = {}
    for part in parts:
        for more in part.queues:
            known = merged.get((more.vhost, more.queue))
            if known is None:
                merged[more.vhost, more.queue] = more
            else:
                known.add(more)
    found = []
    for queue in merged.values():
        oldest_ms, newest_ms = queue.oldest_age_ms, queue.newest_age_ms
        median_ms = min(max(age_of(queue.median_bucket()), newest_ms), oldest_ms)
        ages = (oldest_ms / 1000, median_ms / 1000, newest_ms / 1000)
        found.append(QueueFigures(queue.vhost, queue.queue, queue.messages, queue.bytes, *ages))
    return sorted(found, key=lambda queue: (-queue.messages, queue.vhost, queue.queue))


def _sizes(parts: Sequence[PartFigures]) -> list[SizeFigures]:
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for part in parts:
        for low, (messages, size) in part.sizes.items():
            counts[low] += messages
            sums[low] += size
    return [SizeFigures(low, counts[low], sums[low]) for low in sorted(counts)]


def _files(
    parts: Sequence[PartFigures],
) -> tuple[list[FileFigures], dict[str, dict[str, int]], int]:
    sums: dict[str, dict[str, int]] = {}
    for part in parts:
        for kind, figures in part.kinds.items():
            known = sums.setdefault(kind, dict.fromkeys(figures, 0))
            for name, number in figures.items():
                known[name] += number
    files = [FileFigures(*row) for part in parts for row in part.files]
    files.sort(key=lambda file: (-file.garbage_bytes, -file.bytes, file.vhost, file.path))
    return (
        files[:ROWS_MAX],
        dict(sorted(sums.items())),
        sum([kind["files"] for kind in sums.values()]),
    )


def _rates(parts: Sequence[PartFigures]) -> tuple[int, list[RateFigures]]:
    hours: Counter[tuple[int, str | None]] = Counter()
    by_key: Counter[str] = Counter()
    for part in parts:
        for hour, key, messages in part.hours:
            hours[hour, key] += messages
            if key is not None:
                by_key[key] += messages
    if not hours:
        return _HOUR_S, []
    every_hour = [hour for hour, _ in hours]
    bucket_s = _HOUR_S if max(every_hour) - min(every_hour) <= HOURS_MAX else _DAY_S
    keys = set(heapq.nsmallest(ROUTING_KEYS_MAX, by_key, key=lambda key: (-by_key[key], key)))
    found: Counter[tuple[int, str | None]] = Counter()
    for (hour, key), messages in hours.items():
        start_s = hour * _HOUR_S // bucket_s * bucket_s
        found[start_s, key if key in keys else None] += messages
    # Sort the sum of all other keys first.
    order = sorted(found, key=lambda each: (each[0], each[1] is not None, each[1] or ""))
    return bucket_s, [
        RateFigures(_utc(start_s * 1000), key, found[start_s, key]) for start_s, key in order
    ]


def _dead_letters(parts: Sequence[PartFigures]) -> list[DeathFigures]:
    messages: Counter[tuple[str, str]] = Counter()
    deaths: Counter[tuple[str, str]] = Counter()
    for part in parts:
        for reason, queue, count, all_deaths in part.deaths:
            messages[reason, queue] += count
            deaths[reason, queue] += all_deaths
    worst = heapq.nsmallest(ROWS_MAX, messages, key=lambda each: (-messages[each], each))
    return [DeathFigures(*each, messages[each], deaths[each]) for each in worst]


def _largest_first(row: MessageRow) -> tuple[int, str, str, int]:
    return -row.size, row.vhost, row.queue, row.seq


def _oldest_first(row: MessageRow) -> tuple[int, str, str, int]:
    return row.enqueued_ms, row.vhost, row.queue, row.seq


def _messages(rows: Iterable[MessageRow]) -> list[MessageFigures]:
    return [
        MessageFigures(
            row.vhost,
            row.queue,
            row.seq,
            row.exchange,
            row.routing_key,
            _utc(row.enqueued_ms),
            row.size,
        )
        for row, _ in zip(rows, range(ROWS_MAX), strict=False)
    ]


def _utc(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
