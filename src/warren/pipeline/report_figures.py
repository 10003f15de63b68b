"""The figures of a report, gathered by Spark from the tables of a store.

The store is read once, without bodies, into a small table on the local disk; every figure is a query on that. Nothing
but aggregates and a few rows comes to the driver.
"""

import dataclasses
import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# So many queues, files, messages and routing keys are named; what is beyond is summed up, or left out and said so.
ROWS_MAX: Final = 20
ROUTING_KEYS_MAX: Final = 7
# Above so many hours a column of the chart is a day.
HOURS_MAX: Final = 96
_DAY_S: Final = 86_400
_HOUR_S: Final = 3_600
_NO_HEADERS: Final = "CAST(NULL AS STRING)"
_DEATHS: Final = "array<struct<reason:string,queue:string,exchange:string,count:bigint>>"
# What an entry of x-death may count for: publishers write there what they like, and sums must not overflow.
_DEATHS_MAX: Final = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class QueueFigures:
    """A queue's messages: how many, how large, how old (seconds before the report's time)."""

    vhost: str
    queue: str
    messages: int
    bytes: int
    oldest_age_s: float
    median_age_s: float
    newest_age_s: float


@dataclasses.dataclass(frozen=True)
class QueueForms:
    """A queue of a running node: its messages by form, from alpha (all in memory) to delta (all on disk)."""

    vhost: str
    queue: str
    alpha: int
    beta: int
    gamma: int
    delta: int
    unacked: int


@dataclasses.dataclass(frozen=True)
class SizeFigures:
    """Messages whose bodies have at least `from_bytes` and less than twice that; from 0: empty ones."""

    from_bytes: int
    messages: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class FileFigures:
    """A file of the store; without a vhost one of the node."""

    vhost: str
    path: str
    kind: str
    bytes: int
    live_bytes: int
    garbage_bytes: int


@dataclasses.dataclass(frozen=True)
class RateFigures:
    """Messages that came within `bucket_s` seconds from `start` on, by routing key; None: all other keys."""

    start: datetime.datetime
    routing_key: str | None
    messages: int


@dataclasses.dataclass(frozen=True)
class DeathFigures:
    """Messages whose last death, as their header x-death tells it, was for this reason in this queue."""

    reason: str
    queue: str
    messages: int
    # All deaths of these messages.
    deaths: int


@dataclasses.dataclass(frozen=True)
class MessageFigures:
    """One message."""

    vhost: str
    queue: str
    seq: int
    exchange: str
    routing_key: str
    enqueued_at: datetime.datetime
    size: int


@dataclasses.dataclass(frozen=True)
class DamageFigures:
    """Something that is wrong with the store, of a vhost or of the node; not always in a file."""

    vhost: str
    file: str
    reason: str


@dataclasses.dataclass(frozen=True)
class ReportFigures:
    """Everything a report shows. Lists are cut where a total beside them says so."""

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


class FigureReader:
    """Reads one store; `scratch` is a directory for the small table."""

    def __init__(
        self,
        spark: "SparkSession",
        store: Path,
        scratch: Path,
        made_at: datetime.datetime,
        with_headers: bool,
    ) -> None:
        self._spark = spark
        self._store = store
        self._small = str(scratch / "messages")
        self._made_at = made_at
        self._with_headers = with_headers

    def read(self, source: str, forms: list[QueueForms]) -> ReportFigures:
        """All figures; `forms` are those of a running node."""
        messages = self._messages()
        queues = self._queues(messages)
        files, file_bytes, file_count = self._files()
        bucket_s, rates = self._rates(messages)
        damage_count, damage = self._damage()
        return ReportFigures(
            source=source,
            made_at=self._made_at,
            messages=sum([queue.messages for queue in queues]),
            bytes=sum([queue.bytes for queue in queues]),
            queue_count=len(queues),
            queues=queues,
            forms=forms,
            sizes=self._sizes(messages),
            file_count=file_count,
            file_bytes=file_bytes,
            files=files,
            bucket_s=bucket_s,
            rates=rates,
            dead_letters=self._dead_letters(messages),
            largest=self._some(messages, "size DESC"),
            oldest=self._some(messages, "enqueued_at"),
            damage_count=damage_count,
            damage=damage,
        )

    def _table(self, name: str, schema: str | None = None) -> "DataFrame":
        reader = self._spark.read.format("warren_store").option("path", str(self._store))
        reader = reader.option("table", name)
        return (reader.schema(schema) if schema is not None else reader).load()

    def _messages(self) -> "DataFrame":
        columns = "vhost string, queue string, seq bigint, exchange string, routing_key string, enqueued_at timestamp, size int"
        death = _NO_HEADERS
        if self._with_headers:
            columns += ", headers map<string,string>"
            death = "headers['x-death']"
        found = self._table("messages", columns).selectExpr(
            "vhost", "coalesce(queue, '') AS queue", "seq", "exchange", "routing_key", "enqueued_at", "size",
            f"{death} AS death",
        )  # fmt: skip
        found.write.parquet(self._small)
        return self._spark.read.parquet(self._small)

    def _queues(self, messages: "DataFrame") -> list[QueueFigures]:
        rows = messages.groupBy("vhost", "queue").agg(*self._expressions(
            "count(*) AS messages", "sum(size) AS bytes", "min(enqueued_at) AS oldest",
            "timestamp_micros(approx_percentile(unix_micros(enqueued_at), 0.5)) AS median", "max(enqueued_at) AS newest",
        )).collect()  # fmt: skip
        found = [
            QueueFigures(
                row["vhost"],
                row["queue"],
                row["messages"],
                row["bytes"],
                self._age_s(row["oldest"]),
                self._age_s(row["median"]),
                self._age_s(row["newest"]),
            )
            for row in rows
        ]
        return sorted(found, key=lambda queue: (-queue.messages, queue.vhost, queue.queue))

    def _sizes(self, messages: "DataFrame") -> list[SizeFigures]:
        low = "CASE WHEN size = 0 THEN 0 ELSE CAST(shiftleft(1, CAST(floor(log2(size)) AS INT)) AS BIGINT) END AS low"
        rows = messages.selectExpr(low, "size").groupBy("low")
        found = rows.agg(*self._expressions("count(*) AS messages", "sum(size) AS bytes")).orderBy("low")
        return [SizeFigures(row["low"], row["messages"], row["bytes"]) for row in found.collect()]

    def _files(self) -> tuple[list[FileFigures], dict[str, dict[str, int]], int]:
        files = self._table("files").cache()
        try:
            totals = files.groupBy("kind").agg(*self._expressions(
                "count(*) AS files", "sum(bytes) AS bytes", "sum(live_bytes) AS live", "sum(garbage_bytes) AS garbage",
            )).orderBy("kind").collect()  # fmt: skip
            worst = files.orderBy(files.garbage_bytes.desc(), files.bytes.desc()).limit(ROWS_MAX).collect()
        finally:
            files.unpersist()
        sums = {
            row["kind"]: {name: row[name] or 0 for name in ("files", "bytes", "live", "garbage")}
            for row in totals
        }
        found = [
            FileFigures(
                row["vhost"] or "",
                row["path"],
                row["kind"],
                row["bytes"],
                row["live_bytes"] or 0,
                row["garbage_bytes"] or 0,
            )
            for row in worst
        ]
        return found, sums, sum([row["files"] for row in totals])

    def _damage(self) -> tuple[int, list[DamageFigures]]:
        # It is found by reading everything, which is done once.
        damage = self._table("damage").cache()
        try:
            count = damage.count()
            rows = damage.orderBy("vhost", "file").limit(ROWS_MAX).collect()
        finally:
            damage.unpersist()
        return count, [DamageFigures(row["vhost"] or "", row["file"] or "", row["reason"]) for row in rows]

    def _rates(self, messages: "DataFrame") -> tuple[int, list[RateFigures]]:
        span = messages.selectExpr("min(enqueued_at) AS first", "max(enqueued_at) AS last").collect()[0]
        if span["first"] is None:
            return _HOUR_S, []
        hours = (span["last"] - span["first"]).total_seconds() / _HOUR_S
        bucket_s = _HOUR_S if hours <= HOURS_MAX else _DAY_S
        by_key = messages.groupBy("routing_key").count()
        keys = [
            row["routing_key"]
            for row in by_key.orderBy(by_key["count"].desc(), "routing_key").limit(ROUTING_KEYS_MAX).collect()
        ]
        named = messages.withColumn("named", messages.routing_key.isin(keys))
        rows = named.selectExpr(
            f"timestamp_seconds(CAST(floor(unix_seconds(enqueued_at) / {bucket_s}) AS BIGINT) * {bucket_s}) AS start",
            "CASE WHEN named THEN routing_key END AS key",
        )
        found = rows.groupBy("start", "key").count().orderBy("start", "key").collect()
        return bucket_s, [RateFigures(_utc(row["start"]), row["key"], row["count"]) for row in found]

    def _dead_letters(self, messages: "DataFrame") -> list[DeathFigures]:
        deaths = messages.where("death IS NOT NULL").selectExpr(f"from_json(death, '{_DEATHS}') AS deaths")
        rows = deaths.where("size(deaths) > 0").selectExpr(
            "coalesce(deaths[0].reason, '') AS reason", "coalesce(deaths[0].queue, '') AS queue",
            "aggregate(deaths, 0L, (total, each) -> total + "
            f"greatest(0L, least(coalesce(each.count, 0L), {_DEATHS_MAX}L))) AS deaths",
        )  # fmt: skip
        found = rows.groupBy("reason", "queue").agg(
            *self._expressions("count(*) AS messages", "sum(deaths) AS deaths")
        )
        worst = found.orderBy(found.messages.desc(), "reason", "queue").limit(ROWS_MAX).collect()
        return [DeathFigures(row["reason"], row["queue"], row["messages"], row["deaths"]) for row in worst]

    def _some(self, messages: "DataFrame", order: str) -> list[MessageFigures]:
        from pyspark.sql.functions import expr

        name, _, direction = order.partition(" ")
        column = expr(name).desc() if direction else expr(name)
        rows = messages.orderBy(column, "vhost", "queue", "seq").limit(ROWS_MAX).collect()
        return [
            MessageFigures(
                row["vhost"],
                row["queue"],
                row["seq"],
                row["exchange"],
                row["routing_key"],
                _utc(row["enqueued_at"]),
                row["size"],
            )
            for row in rows
        ]

    def _expressions(self, *texts: str) -> list[Any]:
        from pyspark.sql.functions import expr

        return [expr(text) for text in texts]

    def _age_s(self, time: datetime.datetime) -> float:
        return max(0.0, (self._made_at - _utc(time)).total_seconds())


def _utc(time: datetime.datetime) -> datetime.datetime:
    """Spark gives times without a zone, in that of this machine."""
    return time.astimezone(datetime.UTC)
