"""The job `archive`: copies queues into Parquet files or a table, each message exactly once.

This module runs the loop over batches and reports its progress. source.py reads a batch, batch.py
commits and moves its files, and directory.py explains why a batch counts once.
"""

import contextlib
import dataclasses
import json
import re
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from warrenmq.admin.client.client import (
    RETRY_TIMEOUT_S,
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
)
from warrenmq.admin.protocol.homes import LocateQueues
from warrenmq.admin.protocol.requests import GroupList, ListGroups
from warrenmq.pipeline.archives.directory import ArchiveDirectory, Format, StagedFile
from warrenmq.pipeline.broker import address_of, as_job_error, must_be_reachable
from warrenmq.pipeline.engine import require_engine
from warrenmq.pipeline.places import LocalPlace, RemotePlace, place_of
from warrenmq.pipeline.progress import Progress, Silent, Step
from warrenmq.pipeline.result import JobError, JobResult
from warrenmq.pipeline.sharing import Sharing
from warrenmq.pipeline.spark_run import StartingSpark, starting_spark
from warrenmq.spark.homes import Homes
from warrenmq.spark.options import OptionError, parse_options
from warrenmq.spark.waits import Wait
from warrenmq.vocabulary.names import name_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from warrenmq.pipeline.archives.batch import BatchWriter
    from warrenmq.pipeline.archives.source import ArchiveReader
    from warrenmq.spark.options import SourceOptions
    from warrenmq.spark.streams.offsets import OffsetJson

MERGE_BYTES: Final = 128 << 20
BATCH_MESSAGES: Final = 1_000_000
BATCH_BYTES: Final = 1 << 30
INTERVAL_S: Final = 2.0
_INTERVAL_S: Final = 0.2
_ASK_S: Final = 2.0
_PURPOSE: Final = "warren archive"


@dataclasses.dataclass
class ArchiveResult(JobResult):
    """The figures of a run, and the totals of the archive."""

    # A path, or a URI.
    target: str
    format: str
    group: str
    # Messages that this run archived.
    messages: int
    # Bytes of the files that this run wrote.
    bytes: int
    # Batches that this run committed.
    batches: int
    # Small files that this run merged into larger ones.
    merged_files: int
    seconds: float
    # Seconds until Spark had started; a part of `seconds`.
    spark_seconds: float
    # Messages of all runs.
    total_messages: int
    # Bytes of the files of all runs.
    total_bytes: int
    # Messages that the queues still had at the end; None when the node could not be asked.
    lag_messages: int | None
    # Age of the oldest of these messages in seconds; None when the node could not be asked.
    lag_seconds: float | None

    def lines(self) -> list[str]:
        """The figures as text for people."""
        rate = self.messages / self.seconds if self.seconds else 0.0
        lag = (
            "unknown"
            if self.lag_messages is None
            else f"{self.lag_messages:,} messages, {self.lag_seconds:.1f} s"
        )
        return [
            f"{self.messages:,} messages archived in {self.seconds:.1f} s ({rate:,.0f}/s), {self.bytes:,} bytes",
            f"{self.target} has {self.total_messages:,} messages, {self.total_bytes:,} bytes ({self.format})",
            f"not archived: {lag} (reader group {self.group})",
        ]


@dataclasses.dataclass(frozen=True)
class _Stream:
    """The queues that a run reads, and the options of reading."""

    uri: str = dataclasses.field(repr=False)
    queues: tuple[str, ...]
    pattern: str | None
    group: str
    max_messages: int
    max_bytes: int
    continuous: bool
    interval_s: float
    fails_on_data_loss: bool = True
    retry_timeout_s: float = RETRY_TIMEOUT_S


def archive(
    target: str | Path,
    *,
    uri: str,
    queues: Sequence[str] = (),
    pattern: str | None = None,
    group: str | None = None,
    checkpoint: str | Path | None = None,
    format: Format = "parquet",
    continuous: bool = False,
    interval_s: float = INTERVAL_S,
    merge_bytes: int | None = MERGE_BYTES,
    max_messages: int = BATCH_MESSAGES,
    max_bytes: int = BATCH_BYTES,
    fail_on_data_loss: bool = True,
    retry_timeout_s: float = RETRY_TIMEOUT_S,
    master: str | None = None,
    spark: "SparkSession | None" = None,
    progress: Progress | None = None,
    stopping: threading.Event | None = None,
) -> ArchiveResult:
    """Move the messages of `queues`, or of those that match `pattern`, to files, each exactly once.

    Files are below `target`, a directory of this machine or a URI (places.py). A run archives the
    messages that were there at its start; with `continuous` it archives a batch every `interval_s`
    seconds until `stopping` is set. The next run resumes a killed one when it gets the same target
    and the same checkpoint: a directory of this machine, by default beside the target and on its
    file system, and required when the target is a URI. Files smaller than half of `merge_bytes` are
    merged; None turns merging off. `group` is the reader group in the broker, by default one of
    this target's own. Without `fail_on_data_loss` a run continues when a queue or its group was
    deleted meanwhile. A run waits up to `retry_timeout_s` seconds each time the broker does not
    answer. JobError when the run cannot go further; messages archived so far stay archived.
    """
    place = place_of(target)
    stream = _Stream(
        uri=uri,
        queues=tuple(queues),
        pattern=pattern,
        group=group or default_group(place),
        max_messages=max_messages,
        max_bytes=max_bytes,
        continuous=continuous,
        interval_s=interval_s,
        fails_on_data_loss=fail_on_data_loss,
        retry_timeout_s=retry_timeout_s,
    )
    vhost = _check(stream, merge_bytes)
    books = ArchiveDirectory(str(place), _checkpoint_of(place, checkpoint))
    books.check_places()
    progress = progress or Silent()
    require_engine("spark", master, spark)
    if format == "delta":
        from warrenmq.pipeline.archives.delta import require_deltalake

        require_deltalake()
    if format == "iceberg":
        from warrenmq.pipeline.archives.iceberg import require_pyiceberg

        require_pyiceberg()
    must_be_reachable(uri, _PURPOSE, retry_timeout_s)
    started_s = time.monotonic()
    with starting_spark("archive", master, spark) as starting, books.locked():
        return _archive(
            starting,
            books,
            stream,
            vhost,
            format,
            merge_bytes,
            progress,
            stopping or threading.Event(),
            started_s,
        )


def _archive(
    starting: StartingSpark,
    books: ArchiveDirectory,
    stream: _Stream,
    vhost: str,
    format: Format,
    merge_bytes: int | None,
    progress: Progress,
    stopping: threading.Event,
    started_s: float,
) -> ArchiveResult:
    """Run the job under the lock of `books`. `started_s`: when it began, in monotonic seconds."""
    from warrenmq.pipeline.archives.batch import BatchWriter, files_of, put_in_place

    books.open(format, vhost, stream.group)
    files = files_of(books)
    before = books.committed()
    books.must_know(files.newest_batch(), -1 if before is None else before.batch)
    if before is not None:
        put_in_place(books, files, before)
    writer = BatchWriter(books, files, merge_bytes)
    watch = _Watch(books, stream, progress)
    try:
        with watch.showing():
            _run(starting, books, stream, writer, stopping)
    finally:
        # Wait for the merge under way, after a failure too.
        progress.show(Step("merging small files"))
        writer.close()
    seconds = time.monotonic() - started_s
    after = books.committed()
    lag = watch.lag()
    rows, size = (after.total_rows, after.total_bytes) if after else (0, 0)
    return ArchiveResult(
        target=str(books.place),
        format=format,
        group=stream.group,
        messages=rows - (before.total_rows if before else 0),
        bytes=size - (before.total_bytes if before else 0),
        batches=writer.batches,
        merged_files=writer.merged_files,
        seconds=seconds,
        spark_seconds=starting.seconds,
        total_messages=rows,
        total_bytes=size,
        lag_messages=lag.messages if lag else None,
        lag_seconds=lag.seconds if lag else None,
    )


def _checkpoint_of(place: LocalPlace | RemotePlace, checkpoint: str | Path | None) -> Path:
    """The directory of the books. JobError when none is named for a target elsewhere."""
    if checkpoint is not None:
        return Path(checkpoint).absolute()
    if not isinstance(place, LocalPlace):
        raise JobError(
            f"{place} is not on a disk of this machine: name a directory of this machine for the job's progress (checkpoint)"
        )
    return place.path.with_name(f"{place.path.name}.checkpoint")


def default_group(place: LocalPlace | RemotePlace) -> str:
    """The default reader group of an archive; the same for the same absolute path or URI."""
    text = str(place)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", text.rpartition("/")[2])[:64]
    return f"archive-{name}-{zlib.crc32(text.encode('utf-8', 'surrogateescape')):08x}"


def _check(stream: _Stream, merge_bytes: int | None) -> str:
    """The vhost of the URI. JobError for invalid parameters."""
    if bool(stream.queues) == bool(stream.pattern):
        raise JobError("name the queues, or a pattern for their names")
    if (
        stream.max_messages < 1
        or stream.max_bytes < 1
        or (merge_bytes is not None and merge_bytes < 1)
    ):
        raise JobError("sizes of batches and of merged files must be positive")
    if not 0 <= stream.interval_s <= threading.TIMEOUT_MAX:
        raise JobError("the interval must be a number of seconds, 0 or more")
    vhost = address_of(stream.uri).vhost
    try:
        _options(stream)
    except OptionError as error:
        raise JobError(str(error)) from None
    return vhost


def _options(stream: _Stream) -> "SourceOptions":
    given = {"uri": stream.uri, "group": stream.group}
    if stream.pattern is not None:
        given["queuesPattern"] = stream.pattern
    else:
        given["queues"] = json.dumps(stream.queues)
    given["maxMessagesPerTrigger"] = str(stream.max_messages)
    given["maxBytesPerTrigger"] = str(stream.max_bytes)
    given["retryTimeoutMs"] = str(round(stream.retry_timeout_s * 1000))
    given["failOnDataLoss"] = "true" if stream.fails_on_data_loss else "false"
    return parse_options(given)


def _run(
    spark: StartingSpark,
    books: ArchiveDirectory,
    stream: _Stream,
    writer: "BatchWriter",
    stopping: threading.Event,
) -> None:
    """Archive batch after batch, until the messages of the start are done or `stopping` is set."""
    from warrenmq.pipeline.archives.source import ArchiveReader

    with as_job_error():
        reader = ArchiveReader(_options(stream), books.new_staging(), writer.columns)
        if not stream.continuous:
            reader.prepareForTriggerAvailableNow()
        before = books.committed()
        start = reader.initialOffset() if before is None else before.offset
        if reader.has_waiting():
            # Spark starts while the broker reserves the first batch.
            spark.begin()
        while not stopping.is_set():
            begun_s = time.monotonic()
            # `latestOffset` also acks all messages below `start`, which are committed.
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end != start:
                writer.add(_written(spark.wait(), reader, start, end), end)
                start = end
            elif not stream.continuous:
                break
            if stream.continuous:
                stopping.wait(begun_s + stream.interval_s - time.monotonic())
        reader.commit(start)


def _written(
    sharing: Sharing, reader: "ArchiveReader", start: "OffsetJson", end: "OffsetJson"
) -> list[StagedFile]:
    """Have Spark's tasks write a batch; returns its files. SourceError when a task failed."""
    from warrenmq.pipeline.archives.source import staged_files

    parts = reader.tasks(start, end, sharing.at_once())
    return staged_files(sharing.run(reader.write, parts)) if parts else []


@dataclasses.dataclass(frozen=True)
class _Lag:
    """Messages that the group has not acked, and the age of the oldest one in seconds."""

    messages: int
    seconds: float


class _Watch:
    """Reports the progress of an archive run."""

    def __init__(self, books: ArchiveDirectory, stream: _Stream, progress: Progress) -> None:
        self._books = books
        self._stream = stream
        self._progress = progress
        self._homes = Homes(stream.uri, _PURPOSE, 0)
        found = books.committed()
        self._rows_before = found.total_rows if found else 0
        self._due_s = 0.0
        self._lag: _Lag | None = None
        # Why the lag is not known, and since when.
        self._failure = ""
        self._wait: Wait | None = None

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Report from a thread while the block runs."""
        is_over = threading.Event()

        def look_on() -> None:
            while not is_over.wait(_INTERVAL_S):
                self.show()

        thread = threading.Thread(target=look_on, name="warren-archive-progress", daemon=True)
        self.show()
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
            self._end_wait()

    def _end_wait(self) -> None:
        if self._wait is not None:
            self._wait.end()
            self._wait = None

    def show(self) -> None:
        """Report the progress; asks the broker for the lag at most every `_ASK_S` seconds."""
        now = time.monotonic()
        if now >= self._due_s:
            self._lag = self.lag()
            if self._lag is not None:
                self._end_wait()
            else:
                self._wait = self._wait or Wait("the nodes of the queues")
                self._wait.reason = self._failure
            self._due_s = now + _ASK_S
        found = self._books.committed()
        done = (found.total_rows if found else 0) - self._rows_before
        total = None
        if self._lag is not None and not self._stream.continuous:
            total = done + self._lag.messages
        note = "" if self._lag is None else f"lag {self._lag.messages:,}, {self._lag.seconds:.1f} s"
        self._progress.show(Step("archiving", done, total, "messages", note))

    def lag(self) -> _Lag | None:
        """The lag of the reader group at all homes of its queues; None when one cannot be asked."""
        homes, stream = self._homes, self._stream
        names = [name.encode() for name in stream.queues]
        try:
            located = homes.ask(LocateQueues(names, stream.pattern or ""))
            if located.nodes:
                ids = {node.node: node.id for node in located.nodes}
                for each in located.homes:
                    if each.node not in ids:
                        raise NodeUnreachableError(
                            f"queue '{name_text(each.queue)}' is down, because its node {each.node} is"
                        )
                needed = {ids[each.node] for each in located.homes}
                lists = [homes.ask_once(home, ListGroups(), GroupList) for home in needed]
            else:
                with AdminClient(NodeAddress(self._stream.uri), _PURPOSE) as client:
                    lists = [client.request(ListGroups(), GroupList)]
        except (AdminRefusedError, NodeUnreachableError) as error:
            self._failure = str(error)
            return None
        groups = [group for each in lists for group in each.groups]
        members = [
            member
            for group in groups
            if group.group == self._stream.group
            for member in group.members
        ]
        return _Lag(
            sum([member.lag for member in members]),
            max([member.lag_seconds for member in members], default=0.0),
        )
