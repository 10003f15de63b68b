"""The part of a report that one task computes: sums, histograms and a few rows of its partitions.

Parts can be merged, and are small: each names at most NAMES_MAX routing keys and origins of dead
letters, those with the most messages, and counts the messages of all others together.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from warrenmq.tables.parts import Partition
from warrenmq.tables.reading import read
from warrenmq.tables.schemas import COLUMNS, DAMAGE, FILES, MESSAGES, schema_of

# Queues, files, messages and damaged places that a report names; it counts the others.
ROWS_MAX: Final = 20
# Routing keys and origins of dead letters that a part names.
NAMES_MAX: Final = 1000
# Highest believable count of an x-death entry; publishers can write any number there.
DEATHS_MAX: Final = 1_000_000_000
_HOUR_MS: Final = 3_600_000
# Most groups of an hour and a routing key before they are merged.
_GROUPS_MAX: Final = 200_000
_DEATH: Final = "x-death"
_MESSAGE_COLUMNS: Final = ("queue", "seq", "exchange", "routing_key", "enqueued_at", "size")
# Significant bits of an age in the histogram.
_AGE_BITS: Final = 8


@dataclass(frozen=True)
class ReportTask:
    """Partitions of `messages`, `files` and `damage`; ages are relative to `made_ms`."""

    partitions: tuple[Partition, ...]
    made_ms: int
    with_headers: bool


class MessageRow(msgspec.Struct, frozen=True, array_like=True):
    """One message of a report's tables."""

    vhost: str
    queue: str
    seq: int
    exchange: str
    routing_key: str
    enqueued_ms: int
    size: int


class QueuePart(msgspec.Struct):
    """The messages of one queue; `ages` counts them by age bucket (`age_buckets`)."""

    vhost: str
    queue: str
    messages: int
    bytes: int
    oldest_age_ms: int
    newest_age_ms: int
    ages: dict[int, int]

    def add(self, more: "QueuePart") -> None:
        """Merge the figures of other messages of the same queue."""
        self.messages += more.messages
        self.bytes += more.bytes
        self.oldest_age_ms = max(self.oldest_age_ms, more.oldest_age_ms)
        self.newest_age_ms = min(self.newest_age_ms, more.newest_age_ms)
        for bucket, count in more.ages.items():
            self.ages[bucket] = self.ages.get(bucket, 0) + count

    def median_bucket(self) -> int:
        """The bucket that contains the median message."""
        behind = (self.messages + 1) // 2
        for bucket in sorted(self.ages):
            behind -= self.ages[bucket]
            if behind <= 0:
                return bucket
        return 0


class PartFigures(msgspec.Struct):
    """The figures of the messages, files and damage that one task has read."""

    queues: list[QueuePart] = []
    # Messages and bytes by least size of a body, a power of two or 0.
    sizes: dict[int, tuple[int, int]] = {}
    # Rows of hour since 1970, routing key (None: all others), messages.
    hours: list[tuple[int, str | None, int]] = []
    # Rows of reason, queue, messages, deaths.
    deaths: list[tuple[str, str, int, int]] = []
    # The largest messages, at most ROWS_MAX.
    largest: list[MessageRow] = []
    # The oldest messages, at most ROWS_MAX.
    oldest: list[MessageRow] = []
    # By kind of file: the sums "files", "bytes", "live" and "garbage".
    kinds: dict[str, dict[str, int]] = {}
    # The files with the most garbage: vhost, path, kind, bytes, live bytes, garbage bytes.
    files: list[tuple[str, str, str, int, int, int]] = []
    damage_count: int = 0
    # The first damaged places in order of (vhost, file, reason).
    damage: list[tuple[str, str, str]] = []


def read_part(task: ReportTask) -> PartFigures:
    """In a worker: compute the figures of the task's partitions. Raises ReadError and OSError."""
    found = PartFigures()
    messages = _Messages(task)
    files: list[dict[str, Any]] = []
    damage: list[tuple[str, str, str]] = []
    for partition in task.partitions:
        if partition.table == MESSAGES:
            messages.read(partition)
        elif partition.table == FILES:
            files += _rows(partition)
        else:
            assert partition.table == DAMAGE
            damage += [
                (row["vhost"] or "", row["file"] or "", row["reason"]) for row in _rows(partition)
            ]
    messages.fill(found)
    _count_files(found, files)
    found.damage_count = len(damage)
    found.damage = sorted(damage)[:ROWS_MAX]
    return found


def _rows(partition: Partition) -> Iterator[dict[str, Any]]:
    for batch in read(partition, schema_of(partition.table)):
        yield from batch.to_pylist()


def _count_files(found: PartFigures, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        sums = found.kinds.setdefault(
            row["kind"], {"files": 0, "bytes": 0, "live": 0, "garbage": 0}
        )
        sums["files"] += 1
        for name, column in (
            ("bytes", "bytes"),
            ("live", "live_bytes"),
            ("garbage", "garbage_bytes"),
        ):
            sums[name] += row[column] or 0
    rows.sort(
        key=lambda row: (
            -(row["garbage_bytes"] or 0),
            -row["bytes"],
            row["vhost"] or "",
            row["path"],
        )
    )
    found.files = [
        (
            row["vhost"] or "",
            row["path"],
            row["kind"],
            row["bytes"],
            row["live_bytes"] or 0,
            row["garbage_bytes"] or 0,
        )
        for row in rows[:ROWS_MAX]
    ]


class _Messages:
    """Sums over messages, added batch by batch."""

    def __init__(self, task: ReportTask) -> None:
        self._made_ms = task.made_ms
        names = [*_MESSAGE_COLUMNS, *(["headers"] if task.with_headers else [])]
        self._schema = pa.schema([(name, COLUMNS[MESSAGES][name]) for name in names])
        self._queues: dict[tuple[str, str], QueuePart] = {}
        # Messages by the bits of their size, that is, by powers of two; place 0 has empty bodies.
        self._size_counts = np.zeros(64, np.int64)
        # Bytes of these messages.
        self._size_sums = np.zeros(64, np.int64)
        self._hours: list[Any] = []
        self._hour_groups = 0
        self._deaths: Counter[tuple[str, str]] = Counter()
        self._death_sums: Counter[tuple[str, str]] = Counter()
        self._largest = _FirstRows([("size", "descending"), *_FirstRows.TIES])
        self._oldest = _FirstRows([("enqueued_at", "ascending"), *_FirstRows.TIES])

    def read(self, partition: Partition) -> None:
        """Add the messages of a partition."""
        for batch in read(partition, self._schema):
            times = batch.column("enqueued_at").cast(pa.int64())
            columns = {name: batch.column(name) for name in _MESSAGE_COLUMNS}
            columns["queue"] = pc.fill_null(columns["queue"], "")
            columns["vhost"] = pa.repeat(pa.scalar(partition.vhost, pa.string()), batch.num_rows)
            columns["enqueued_at"] = pc.divide(times, 1000)
            rows = pa.table(columns)
            self._add_queues(partition.vhost, rows)
            self._add_sizes(rows)
            self._add_hours(rows)
            self._largest.add(rows, pc.negate(rows["size"]))
            self._oldest.add(rows, rows["enqueued_at"])
            if "headers" in batch.schema.names:
                self._add_deaths(batch.column("headers"))

    def fill(self, found: PartFigures) -> None:
        """Store all sums in `found`."""
        found.queues = list(self._queues.values())
        for place in np.flatnonzero(self._size_counts).tolist():
            low = 0 if place == 0 else 1 << (place - 1)
            found.sizes[low] = (int(self._size_counts[place]), int(self._size_sums[place]))
        found.hours = self._named_hours()
        worst = sorted(self._deaths, key=lambda each: (-self._deaths[each], each))[:NAMES_MAX]
        found.deaths = [(*each, self._deaths[each], self._death_sums[each]) for each in worst]
        found.largest = self._largest.rows()
        found.oldest = self._oldest.rows()

    def _add_queues(self, vhost: str, rows: Any) -> None:
        ages = np.maximum(self._made_ms - rows["enqueued_at"].to_numpy(), 0)
        table = pa.table(
            {
                "queue": rows["queue"],
                "size": rows["size"].cast(pa.int64()),
                "age": ages,
                "bucket": age_buckets(ages),
            }
        )
        sums = table.group_by("queue", use_threads=False).aggregate(
            [("size", "count"), ("size", "sum"), ("age", "max"), ("age", "min")]
        )
        more = {
            row["queue"]: QueuePart(
                vhost,
                row["queue"],
                row["size_count"],
                row["size_sum"],
                row["age_max"],
                row["age_min"],
                {},
            )
            for row in sums.to_pylist()
        }
        buckets = table.group_by(["queue", "bucket"], use_threads=False).aggregate(
            [("age", "count")]
        )
        for row in buckets.to_pylist():
            more[row["queue"]].ages[row["bucket"]] = row["age_count"]
        for name, queue in more.items():
            known = self._queues.get((vhost, name))
            if known is None:
                self._queues[vhost, name] = queue
            else:
                known.add(queue)

    def _add_sizes(self, rows: Any) -> None:
        sizes = rows["size"].to_numpy()
        places = _bits(sizes)
        self._size_counts += np.bincount(places, minlength=64)
        # The float sums of bincount are exact, as a batch has less than 2^53 bytes.
        self._size_sums += np.bincount(places, sizes, minlength=64).astype(np.int64)

    def _add_hours(self, rows: Any) -> None:
        hours = rows["enqueued_at"].to_numpy() // _HOUR_MS
        groups = pa.table({"hour": hours, "key": rows["routing_key"]}).group_by(
            ["hour", "key"], use_threads=False
        )
        found = groups.aggregate([("key", "count")]).rename_columns(["hour", "key", "messages"])
        self._hours.append(found)
        self._hour_groups += found.num_rows
        if self._hour_groups > _GROUPS_MAX:
            self._hours = [_summed(self._hours, ["hour", "key"])]
            self._hour_groups = 0

    def _named_hours(self) -> list[tuple[int, str | None, int]]:
        if not self._hours:
            return []
        groups = _summed(self._hours, ["hour", "key"])
        keys = _summed([groups.select(["key", "messages"])], ["key"])
        keys = keys.sort_by([("messages", "descending"), ("key", "ascending")]).slice(0, NAMES_MAX)
        is_named = pc.is_in(groups["key"], keys["key"])
        key = pc.if_else(is_named, groups["key"], pa.scalar(None, pa.string()))
        named = _summed(
            [groups.set_column(groups.schema.get_field_index("key"), "key", key)], ["hour", "key"]
        )
        return [(row["hour"], row["key"], row["messages"]) for row in named.to_pylist()]

    def _add_deaths(self, headers: Any) -> None:
        """Count the x-death headers, which are JSON texts."""
        texts = headers.items.filter(pc.equal(headers.keys, _DEATH))
        for text in texts.to_pylist():
            origin = _death(text)
            if origin is not None:
                reason, queue, deaths = origin
                self._deaths[reason, queue] += 1
                self._death_sums[reason, queue] += deaths


def _summed(tables: list[Any], by: list[str]) -> Any:
    summed = (
        pa.concat_tables(tables).group_by(by, use_threads=False).aggregate([("messages", "sum")])
    )
    return summed.select([*by, "messages_sum"]).rename_columns([*by, "messages"])


class _FirstRows:
    """The first ROWS_MAX messages in an order, over all batches added."""

    TIES: Final = (("vhost", "ascending"), ("queue", "ascending"), ("seq", "ascending"))

    def __init__(self, order: list[tuple[str, str]]) -> None:
        self._order = order
        self._rows: Any = None
        # Rank of the last kept row; None until there are ROWS_MAX rows.
        self._last: Any = None

    def add(self, rows: Any, ranks: Any) -> None:
        """Add rows and keep the first ones. `ranks` ascend in the order's first column."""
        if self._last is not None:
            rows = rows.filter(pc.less_equal(ranks, self._last))
            if not rows.num_rows:
                return
        together = rows if self._rows is None else pa.concat_tables([self._rows, rows])
        self._rows = together.sort_by(self._order).slice(0, ROWS_MAX).combine_chunks()
        if self._rows.num_rows == ROWS_MAX:
            last = self._rows[self._order[0][0]][ROWS_MAX - 1].as_py()
            self._last = -last if self._order[0][1] == "descending" else last

    def rows(self) -> list[MessageRow]:
        """The kept messages, in order."""
        found = [] if self._rows is None else self._rows.to_pylist()
        return [
            MessageRow(
                row["vhost"],
                row["queue"],
                row["seq"],
                row["exchange"],
                row["routing_key"],
                row["enqueued_at"],
                row["size"],
            )
            for row in found
        ]


def _bits(values: Any) -> Any:
    """The number of bits of each integer; 0 for 0."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def age_buckets(ages: Any) -> Any:
    """The bucket number of each age in the array `ages` (milliseconds).

    Numbers ascend with ages, and a bucket is less than 1/128 of its ages wide.
    """
    shift = np.maximum(_bits(ages) - _AGE_BITS, 0)
    return (shift << (_AGE_BITS - 1)) + (ages >> shift)


def age_of(bucket: int) -> int:
    """The age in the middle of a bucket, in milliseconds."""
    shift = max((bucket >> (_AGE_BITS - 1)) - 1, 0)
    low = (bucket - (shift << (_AGE_BITS - 1))) << shift
    return low + ((1 << shift) - 1) // 2


def _death(text: str) -> tuple[str, str, int] | None:
    """Reason and queue of an x-death header's first entry, and the deaths of all; None if empty."""
    try:
        entries = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(entries, dict):
        entries = [entries]
    if not isinstance(entries, list):
        return None
    entries = [entry for entry in entries if isinstance(entry, dict)]
    if not entries:
        return None
    counts = [entry.get("count") for entry in entries]
    deaths = sum([min(max(count, 0), DEATHS_MAX) for count in counts if type(count) is int])
    return _name(entries[0].get("reason")), _name(entries[0].get("queue")), deaths


def _name(value: object) -> str:
    """A name that a publisher wrote in a header; values of other types as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
