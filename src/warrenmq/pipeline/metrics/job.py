"""The job `metrics`: keeps windowed aggregates of what nodes, queues and reader groups do.

The stream is "warren_metrics"; windows.py aggregates it, directory.py stores the windows.
"""

import dataclasses
import signal
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from warrenmq.admin.client.client import RETRY_TIMEOUT_S
from warrenmq.admin.protocol.samples import ReadSamples, Samples
from warrenmq.pipeline.broker import as_job_error, in_words_of_jobs, reach
from warrenmq.pipeline.engine import require_engine
from warrenmq.pipeline.metrics.directory import Format, MetricsDirectory, MetricsJob
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import JobError, JobResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW_S: Final = 60
LATE_S: Final = 60
INTERVAL_S: Final = 60.0
# How often the progress is shown (s).
_LOOK_S: Final = 1


@dataclasses.dataclass
class MetricsResult(JobResult):
    """The figures of a run."""

    target: Path
    format: str
    window_s: int
    # Figures that this run read.
    figures: int
    # Windows that this run stored: one for each figure of each object.
    windows: int
    # Samples that nodes no longer had.
    lost_samples: int
    # Figures that came after their window was stored.
    late_figures: int
    batches: int
    seconds: float

    def lines(self) -> list[str]:
        """The figures as text for people."""
        found = [
            f"{self.figures:,} figures read in {self.seconds:.1f} s",
            f"{self.windows:,} windows of {self.window_s} s stored in {self.target} ({self.format})",
        ]
        if self.lost_samples:
            found.append(f"{self.lost_samples:,} samples are lost: the nodes no longer had them")
        if self.late_figures:
            found.append(f"{self.late_figures:,} figures came after their window was stored")
        return found


class _Counts:
    """What the batches of a run have had so far."""

    def __init__(self) -> None:
        self.figures = 0
        self.windows = 0
        self.lost_samples = 0
        self.late_figures = 0
        # The batches whose progress is counted.
        self.batches: set[int] = set()

    def take(self, query: "StreamingQuery") -> None:
        """Count the batches that the query has finished since the last call."""
        for progress in query.recentProgress:
            if progress.batchId not in self.batches and progress.stateOperators:
                self.batches.add(progress.batchId)
                self.figures += progress.numInputRows
                for state in progress.stateOperators:
                    self.late_figures += state.numRowsDroppedByWatermark


def metrics(
    target: str | Path,
    *,
    uri: str,
    window_s: int = WINDOW_S,
    late_s: int = LATE_S,
    names: Sequence[str] = (),
    format: Format = "parquet",
    checkpoint: str | Path | None = None,
    continuous: bool = False,
    interval_s: float = INTERVAL_S,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    progress: Progress | None = None,
    stopping: threading.Event | None = None,
) -> MetricsResult:
    """Store the figures of all nodes as aggregates over windows of `window_s` seconds.

    The windows are below `target`, Parquet files or a Delta table. A run reads the samples that
    the nodes have kept since the last run, an hour of them at most; with `continuous` it reads new
    ones every `interval_s` seconds until `stopping` is set. A window is stored once, when a sample
    is `late_s` seconds past its end: the last ones wait for the next run in `checkpoint`, by
    default beside the target. `names`: of the metrics, by default all. A run waits up to
    `retry_timeout_s` seconds each time no node answers. JobError when the run cannot go further;
    windows stored so far stay stored.
    """
    if window_s < 1 or late_s < 0 or not 0 <= interval_s <= threading.TIMEOUT_MAX:
        raise JobError("a window has 1 second or more; late and interval are 0 seconds or more")
    target = Path(target).absolute()
    directory = MetricsDirectory(
        target,
        Path(checkpoint).absolute()
        if checkpoint
        else target.with_name(f"{target.name}.checkpoint"),
    )
    progress = progress or Silent()
    require_engine("spark", master, spark)
    _check_names(names)
    if format == "delta":
        from warrenmq.pipeline.archives.delta import require_deltalake

        require_deltalake()
    # The node begins to take samples with this request, and refuses a user without the right.
    with as_job_error(), reach(uri, "warren metrics", retry_timeout_s) as client:
        client.request(ReadSamples(), Samples)
    wanted = MetricsJob(uuid.uuid4().hex, format, window_s, late_s, sorted(names))
    started_s = time.monotonic()
    counts = _Counts()
    from warrenmq.pipeline.spark_run import spark_for

    with directory.locked():
        directory.open(wanted)
        progress.show(Step("starting Spark"))
        on_interrupt = signal.getsignal(signal.SIGINT)
        with spark_for("metrics", master, spark) as session:
            if continuous and threading.current_thread() is threading.main_thread():
                # PySpark has installed a handler of its own, which cuts a batch short.
                signal.signal(signal.SIGINT, on_interrupt)
            query = _start(
                session, directory, wanted, uri, retry_timeout_s, continuous, interval_s, counts
            )
            try:
                _watch(query, counts, progress, stopping or threading.Event())
            finally:
                query.stop()
    return MetricsResult(
        target=target,
        format=format,
        window_s=window_s,
        figures=counts.figures,
        windows=counts.windows,
        lost_samples=counts.lost_samples,
        late_figures=counts.late_figures,
        batches=len(counts.batches),
        seconds=time.monotonic() - started_s,
    )


def _check_names(names: Sequence[str]) -> None:
    """JobError for a name that is no metric."""
    # The columns need pyspark, which is there.
    from warrenmq.spark.telemetry.metric_columns import METRICS

    for name in names:
        if name not in METRICS:
            raise JobError(f"there is no metric '{name}'; there are: {', '.join(METRICS)}")


def _start(
    spark: "SparkSession",
    directory: MetricsDirectory,
    wanted: MetricsJob,
    uri: str,
    retry_timeout_s: float,
    continuous: bool,
    interval_s: float,
    counts: _Counts,
) -> "StreamingQuery":
    """Start the query that stores the windows."""
    from warrenmq.pipeline.metrics.windows import windows_of

    # Readers other than Spark know by this type that the times are UTC.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    source = (
        spark.readStream.format("warren_metrics")
        .option("uri", uri)
        .option("longPollMs", "0")
        .option("retryTimeoutMs", str(round(retry_timeout_s * 1000)))
    )
    if wanted.metrics:
        # A count of lost samples comes with any choice.
        source = source.option("metrics", ",".join(wanted.metrics))
    trigger: dict[str, Any] = (
        {"processingTime": f"{interval_s} seconds"} if continuous else {"availableNow": True}
    )
    return (
        windows_of(source.load(), wanted.window_s, wanted.late_s)
        .writeStream.outputMode("append")
        .foreachBatch(lambda windows, batch: _store(windows, batch, directory, counts))
        .option("checkpointLocation", str(directory.stream))
        .trigger(**trigger)
        .start()
    )


def _store(windows: "DataFrame", batch: int, directory: MetricsDirectory, counts: _Counts) -> None:
    """Store the complete windows of a batch, unless there are none."""
    from pyspark.sql import functions as f

    from warrenmq.spark.telemetry.metric_columns import SAMPLES_LOST

    windows = windows.persist()
    try:
        lost = f.sum(f.when(f.col("metric") == SAMPLES_LOST, f.col("increase")))
        found = windows.agg(f.count("*").alias("windows"), lost.alias("lost")).collect()[0]
        if found["windows"]:
            directory.write(windows, batch)
            counts.windows += found["windows"]
            counts.lost_samples += round(found["lost"] or 0)
    finally:
        windows.unpersist()


def _watch(
    query: "StreamingQuery", counts: _Counts, progress: Progress, stopping: threading.Event
) -> None:
    """Show how far the query is, until it ends or `stopping` is set. JobError when it fails."""
    from pyspark.errors import StreamingQueryException

    from warrenmq.spark.reason import reason_of

    try:
        while True:
            is_over = query.awaitTermination(_LOOK_S)
            counts.take(query)
            note = f"{counts.windows:,} windows"
            progress.show(Step("reading samples", counts.figures, None, "figures", note))
            if is_over or stopping.is_set():
                return
    except StreamingQueryException as error:
        raise JobError(in_words_of_jobs(reason_of(error))) from error
