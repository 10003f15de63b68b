"""The job `replay`: publishes messages from Parquet files, a Delta table or a backup, each once.

The messages are chosen, sorted and copied to the checkpoint (directory.py), by Spark (source.py)
or, when they fit in memory, without it (local.py). Then they are published in that order, batch by
batch; the broker knows how many are published (staged_publisher.py).
"""

import dataclasses
import datetime
import math
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from warrenmq.admin.client.client import RETRY_TIMEOUT_S, NodeAddress
from warrenmq.pipeline.broker import RETRY_OPTION, address_of, as_job_error, must_be_reachable
from warrenmq.pipeline.engine import Engine, is_local, require_engine
from warrenmq.pipeline.places import LocalPlace, RemotePlace, place_of
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.replays.directory import (
    ReplayDirectory,
    ReplayIdentity,
    ReplayState,
    default_checkpoint,
)
from warrenmq.pipeline.result import FOUND_EXIT, OK_EXIT, JobError, JobResult
from warrenmq.pipeline.spark_run import spark_for
from warrenmq.pipeline.staged_publisher import (
    BATCH_BYTES,
    BATCH_MESSAGES,
    WAIT_MS,
    StagedPublisher,
    pieces,
)
from warrenmq.spark.local.java import require_packages
from warrenmq.spark.retry import Retry

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mandatory = Literal["fail", "ignore"]
# With a rate, a batch has the messages that the rate allows in this time.
_RATE_STEP_S: Final = 1.0
# Limits row groups by bytes from the first row on: Parquet first checks sizes after a hundred rows,
# too late for the memory when bodies are large.
_ROW_GROUPS: Final = {
    "parquet.block.size": 32 << 20,
    "parquet.block.size.row.check.min": 1,
    "parquet.page.size.row.check.min": 1,
}
# Most routes that a dry run lists.
ROUTES_MAX: Final = 1000


@dataclasses.dataclass(frozen=True)
class RouteCount:
    """The number of messages that would go to an exchange with a routing key."""

    exchange: str
    routing_key: str
    messages: int


@dataclasses.dataclass
class ReplayResult(JobResult):
    """The figures of a run. When it ends well, `published` + `published_before` = `messages`."""

    # Paths, or URIs.
    sources: list[str]
    dry_run: bool
    # Messages that were chosen.
    messages: int
    # Messages that this run published.
    published: int
    # Messages that earlier runs published.
    published_before: int
    # Messages of this run that no queue gets (`mandatory` is "ignore").
    unroutable: int
    seconds: float
    # Path of the checkpoint; None for a dry run.
    checkpoint: Path | None
    # Time at which all was published, in this run or an earlier one; None for a dry run.
    ended: str | None
    # Number of routes in a dry run.
    route_count: int = 0
    # Routes of a dry run with the most messages first, at most ROUTES_MAX.
    routes: list[RouteCount] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """1 when no queue got some of the messages."""
        return FOUND_EXIT if self.unroutable else OK_EXIT

    def lines(self) -> list[str]:
        """The figures as text for people."""
        if self.dry_run:
            found = [
                f"{self.messages:,} messages would be published, by {self.route_count:,} routes"
            ]
            for route in self.routes:
                found.append(
                    f"{route.messages:>12,}  exchange '{route.exchange}', routing key '{route.routing_key}'"
                )
            if self.route_count > len(self.routes):
                found.append(f"and {self.route_count - len(self.routes):,} routes more")
            return found
        rate = self.published / self.seconds if self.seconds else 0.0
        found = [f"{self.published:,} messages published in {self.seconds:.1f} s ({rate:,.0f}/s)"]
        if self.published_before:
            found.append(f"{self.published_before:,} were published by earlier runs")
        if self.unroutable:
            found.append(f"{self.unroutable:,} of them were left out, because no queue gets them")
        if not self.published:
            found.append(
                f"this replay ended at {self.ended}; to repeat it, remove {self.checkpoint}"
            )
        return found


@dataclasses.dataclass(frozen=True)
class _Replay:
    """The request: the messages to publish, and how to publish them."""

    uri: str = dataclasses.field(repr=False)
    identity: ReplayIdentity
    mandatory: Mandatory
    rate: float | None
    retry_timeout_s: float = RETRY_TIMEOUT_S

    @property
    def sources(self) -> list[LocalPlace | RemotePlace]:
        return [place_of(source) for source in self.identity.sources]

    @property
    def batch_messages(self) -> int:
        if self.rate is None:
            return BATCH_MESSAGES
        return min(max(math.ceil(self.rate * _RATE_STEP_S), 1), BATCH_MESSAGES)


def replay(
    sources: Sequence[str | Path],
    *,
    uri: str,
    where: str | None = None,
    exchange: str | None = None,
    routing_key: str | None = None,
    rate: float | None = None,
    mandatory: Mandatory = "fail",
    dry_run: bool = False,
    checkpoint: str | Path | None = None,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    engine: Engine = "auto",
    progress: Progress | None = None,
) -> ReplayResult:
    """Publish the messages of `sources` that match the SQL expression `where`, in sequence order.

    Each message goes to its own exchange and routing key, or to `exchange` and `routing_key` where
    given, at most `rate` messages a second. A message that no queue gets ends the run
    (`mandatory="fail"`) or is left out ("ignore"). With `dry_run` messages are counted and not
    published.

    A source is a path, or the URI of a directory (places.py). The next run with the same arguments,
    or the same `checkpoint` (a directory of this machine; by default beside the first source, and
    required when that is a URI), resumes a killed one. A replay that has ended is not repeated
    while its checkpoint exists. A run waits up to `retry_timeout_s` seconds each time the broker
    does not answer. JobError when the run cannot go further; messages published so far stay
    published.
    """
    from warrenmq.pipeline.replays.source import check_sources, must_be_there

    places = [place_of(source) for source in sources]
    check_sources(places)
    address = _address(uri, rate, exchange, routing_key)
    work = _Replay(
        uri=uri,
        identity=ReplayIdentity(
            [str(place) for place in places], where, exchange, routing_key, address.vhost
        ),
        mandatory=mandatory,
        rate=rate,
        retry_timeout_s=retry_timeout_s,
    )
    progress = progress or Silent()
    directory = None
    if not dry_run:
        directory = ReplayDirectory(
            Path(checkpoint).absolute()
            if checkpoint
            else default_checkpoint(work.identity, address.where)
        )
    # The sink that publishes belongs to the data source.
    require_packages()
    if where is not None and engine == "auto":
        # A filter is an expression of Spark.
        engine = "spark"
    if directory is None or not directory.has_chosen:
        must_be_there(places)
        require_engine(engine, master, spark)
    must_be_reachable(uri, "warren replay", retry_timeout_s)
    # The exchange to check before Spark starts: if it is missing, Spark would sort in vain.
    named = [] if exchange is None else [exchange.encode()]
    if directory is None:
        _check_exchanges(work, named)
        messages = _local_messages(work, engine, master, spark, progress)
        if messages is not None:
            return _count_here(messages, work)
        progress.show(Step("starting Spark"))
        with spark_for("replay", master, spark) as session:
            return _count(session, work, progress)
    with directory.locked():
        state = directory.expect(work.identity)
        if state is None:
            try:
                _check_exchanges(work, named)
                messages = _local_messages(work, engine, master, spark, progress)
                if messages is not None:
                    state = _choose_here(messages, work, directory)
                else:
                    progress.show(Step("starting Spark"))
                    with spark_for("replay", master, spark) as session:
                        state = _choose(session, work, directory, progress)
            finally:
                directory.forget_unbegun()
        return _publish(work, directory, state, progress)


def _address(
    uri: str, rate: float | None, exchange: str | None, routing_key: str | None
) -> NodeAddress:
    """Parse the address. JobError for invalid parameters."""
    if rate is not None and not 0 < rate < math.inf:
        raise JobError("the rate must be a positive number of messages a second")
    for name in (exchange, routing_key):
        if name is not None and len(name.encode()) > 255:
            raise JobError("exchange and routing key have at most 255 bytes")
    return address_of(uri)


# -- choosing --------------------------------------------------------------------------------------


def _local_messages(
    work: _Replay,
    engine: Engine,
    master: str | None,
    spark: "SparkSession | None",
    progress: Progress,
) -> Any:
    """All messages as an Arrow table; None when Spark must choose them.

    JobError when the messages cannot be replayed, or when the engine local cannot choose them.
    """
    if not is_local(engine, master, spark):
        return None
    from warrenmq.pipeline.replays.local import NotLocalError, choose

    progress.show(Step("choosing messages"))
    try:
        return choose(work.sources, work.identity.where, work.identity.exchange)
    except NotLocalError as error:
        if engine == "local":
            raise JobError(f"{error}: take the engine spark") from None
        return None


def _choose_here(messages: Any, work: _Replay, directory: ReplayDirectory) -> ReplayState:
    """Check the messages and copy them to the checkpoint, without Spark."""
    from warrenmq.pipeline.replays.local import write

    _must_be_publishable(messages, work)
    write(messages, directory)
    return directory.adopt_draft(work.identity, f"replay-{uuid.uuid4().hex}")


def _count_here(messages: Any, work: _Replay) -> ReplayResult:
    """Count in memory the messages that a run would publish."""
    from warrenmq.pipeline.replays.local import routes

    started_s = time.monotonic()
    _must_be_publishable(messages, work)
    found = [
        RouteCount((exchange or b"").decode("utf-8", "replace"), key, count)
        for exchange, key, count in routes(messages, work.identity.routing_key)
    ]
    return _dry_result(work, messages.num_rows, len(found), found[:ROUTES_MAX], started_s)


def _must_be_publishable(messages: Any, work: _Replay) -> None:
    from warrenmq.pipeline.replays.source import EXCHANGE_NAME

    _must_be_messages(messages["body"].null_count, messages[EXCHANGE_NAME].null_count)
    _check_exchanges(work, messages[EXCHANGE_NAME].unique().to_pylist())


def _choose(
    session: "SparkSession", work: _Replay, directory: ReplayDirectory, progress: Progress
) -> ReplayState:
    """Choose and sort the messages with Spark, and copy them to the checkpoint."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    from warrenmq.pipeline.replays.source import (
        EXCHANGE_NAME,
        ORDER_COLUMNS,
        message_columns,
        read_sources,
    )

    # Arrow reads this timestamp type exactly; Spark's default type has another range.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    frame = read_sources(session, work.sources, work.identity.where, work.identity.exchange)
    order = [name for name in ORDER_COLUMNS if name in frame.columns]
    columns = message_columns(frame)
    if order:
        frame = frame.orderBy(*order)
    seen = Observation()
    # Take no counts of messages here, since Spark may read some rows twice.
    frame = frame.observe(
        seen,
        f.collect_set(EXCHANGE_NAME).alias("exchanges"),
        f.count_if(f.col("body").isNull()).alias("without_body"),
        f.count_if(f.col(EXCHANGE_NAME).isNull()).alias("without_exchange"),
    )
    progress.show(Step("choosing messages"))
    writer = frame.select(*columns).write.mode("overwrite")
    for name, value in _ROW_GROUPS.items():
        writer = writer.option(name, value)
    writer.parquet(str(directory.draft))
    found = seen.get
    _must_be_messages(found["without_body"], found["without_exchange"])
    _check_exchanges(work, [bytes(name) for name in found["exchanges"]])
    return directory.adopt_draft(work.identity, f"replay-{uuid.uuid4().hex}")


def _count(session: "SparkSession", work: _Replay, progress: Progress) -> ReplayResult:
    """Count with Spark the messages that a run would publish."""
    from pyspark.sql import functions as f

    from warrenmq.pipeline.replays.source import EXCHANGE_NAME, read_sources

    started_s = time.monotonic()
    frame = read_sources(session, work.sources, work.identity.where, work.identity.exchange)
    progress.show(Step("counting messages"))
    routes = _by_route(frame, work.identity.routing_key).cache()
    try:
        figures = routes.agg(
            f.sum("messages").alias("messages"),
            f.count("*").alias("routes"),
            f.sum("without_body").alias("without_body"),
            f.sum(f.when(f.col(EXCHANGE_NAME).isNull(), f.col("messages"))).alias(
                "without_exchange"
            ),
            f.collect_set(EXCHANGE_NAME).alias("exchanges"),
        ).collect()[0]
        _must_be_messages(figures["without_body"] or 0, figures["without_exchange"] or 0)
        _check_exchanges(work, [bytes(name) for name in figures["exchanges"]])
        most = (
            routes.orderBy(f.desc("messages"), EXCHANGE_NAME, "routing_key")
            .limit(ROUTES_MAX)
            .collect()
        )
    finally:
        routes.unpersist()
    found = [
        RouteCount(
            bytes(row[EXCHANGE_NAME]).decode("utf-8", "replace"),
            row["routing_key"],
            row["messages"],
        )
        for row in most
    ]
    return _dry_result(work, figures["messages"] or 0, figures["routes"], found, started_s)


def _dry_result(
    work: _Replay, messages: int, route_count: int, found: list[RouteCount], started_s: float
) -> ReplayResult:
    return ReplayResult(
        sources=work.identity.sources,
        dry_run=True,
        messages=messages,
        published=0,
        published_before=0,
        unroutable=0,
        seconds=time.monotonic() - started_s,
        checkpoint=None,
        ended=None,
        route_count=route_count,
        routes=found,
    )


def _by_route(frame: "DataFrame", routing_key: str | None) -> "DataFrame":
    from pyspark.sql import functions as f

    from warrenmq.pipeline.replays.source import EXCHANGE_NAME

    if routing_key is not None:
        key = f.lit(routing_key)
    elif "routing_key" in frame.columns:
        key = f.coalesce(f.col("routing_key"), f.lit(""))
    else:
        key = f.lit("")
    return frame.groupBy(f.col(EXCHANGE_NAME), key.alias("routing_key")).agg(
        f.count("*").alias("messages"), f.count_if(f.col("body").isNull()).alias("without_body")
    )


def _must_be_messages(without_body: int, without_exchange: int) -> None:
    if without_body:
        raise JobError(
            "rows whose column 'body' is null are no messages: exclude them with a filter"
        )
    if without_exchange:
        raise JobError(
            "rows have no exchange, as their column 'exchange' is null: name one exchange for all rows, or exclude these with a filter"
        )


def _check_exchanges(work: _Replay, names: Sequence[bytes]) -> None:
    """JobError when an exchange does not exist, or the node does not answer."""
    from warrenmq.spark.amqp.connection import AmqpConnection, AmqpLostError, AmqpRefusedError
    from warrenmq.wire.methods import ExchangeDeclare, ExchangeDeclareOk

    address = NodeAddress(work.uri)
    with as_job_error(), Retry(address.where, work.retry_timeout_s, RETRY_OPTION) as retry:
        while True:
            retry.attempt()
            try:
                connection = AmqpConnection(address, "warren replay", 0)
                try:
                    for name in sorted(names):
                        # Skip the default exchange: it always exists, and no client may declare it.
                        if name:
                            connection.call(ExchangeDeclare(name, b"", True), ExchangeDeclareOk)
                    connection.close()
                finally:
                    connection.drop()
                return
            except (AmqpLostError, AmqpRefusedError) as error:
                retry.failed(error)


# -- publishing ------------------------------------------------------------------------------------


def _publish(
    work: _Replay, directory: ReplayDirectory, state: ReplayState, progress: Progress
) -> ReplayResult:
    """Publish the remaining messages, wait for the queues, and remove sink and messages."""
    publisher = StagedPublisher(_sink_options(work, state), state.sink)
    started_s = time.monotonic()
    before = state.messages
    unroutable = 0
    if state.ended is None:
        known = publisher.published()
        if known is None and state.is_begun:
            raise JobError(
                f"the broker has lost the progress of this replay (its sink {state.sink} is gone); "
                f"remove {directory.path} to start over"
            )
        before = known or 0
        unroutable = _publish_behind(before, work, directory, state, publisher, progress)
        if state.messages:
            progress.show(Step("waiting for the queues", state.messages, state.messages))
            publisher.await_queues(state.messages)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        state = directory.keep(msgspec.structs.replace(state, ended=now))
    # Clean up even when all was published: an earlier run may have been killed here.
    publisher.forget()
    directory.drop_messages()
    return ReplayResult(
        sources=work.identity.sources,
        dry_run=False,
        messages=state.messages,
        published=state.messages - before,
        published_before=before,
        unroutable=unroutable,
        seconds=time.monotonic() - started_s,
        checkpoint=directory.path,
        ended=state.ended,
    )


def _sink_options(work: _Replay, state: ReplayState) -> Any:
    from warrenmq.spark.sinks.options import SinkOptions

    return SinkOptions(
        uri=work.uri,
        exchange=work.identity.exchange,
        routing_key=work.identity.routing_key,
        sink_id=state.sink,
        is_mandatory=work.mandatory == "fail",
        is_persistent=True,
        confirm_timeout_ms=WAIT_MS,
        retry_timeout_ms=round(work.retry_timeout_s * 1000),
    )


def _publish_behind(
    done: int,
    work: _Replay,
    directory: ReplayDirectory,
    state: ReplayState,
    publisher: StagedPublisher,
    progress: Progress,
) -> int:
    """Publish the messages after the first `done`; returns how many of them no queue gets."""
    unroutable = 0
    due_s = time.monotonic()
    for rows in pieces(directory.messages(state, done), work.batch_messages, BATCH_BYTES):
        progress.show(Step("publishing", done, state.messages))
        now_s = time.monotonic()
        if work.rate is not None:
            if due_s > now_s:
                time.sleep(due_s - now_s)
            count = sum([batch.num_rows for batch in rows])
            # Do not make up for lost time: the rate is an upper limit.
            due_s = max(due_s, now_s) + count / work.rate
        done += sum([batch.num_rows for batch in rows])
        unroutable += publisher.publish(rows, done)
        if not state.is_begun:
            state = directory.keep(msgspec.structs.replace(state, is_begun=True))
    progress.show(Step("publishing", done, state.messages))
    return unroutable
