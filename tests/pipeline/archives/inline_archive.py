"""Runs of an archive in this process, without a JVM, against a node in memory."""

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.spark.links import URI
from warrenmq.pipeline.archives import job as archive_job
from warrenmq.pipeline.archives.batch import BatchWriter, files_of, put_in_place
from warrenmq.pipeline.archives.directory import ArchiveDirectory, Format
from warrenmq.pipeline.sharing import Task
from warrenmq.pipeline.spark_run import StartingSpark


class InlineSharing:
    """Runs tasks in this process on pickled copies, as workers get them."""

    def __init__(self) -> None:
        # Number of tasks of each batch.
        self.tasks: list[int] = []

    def at_once(self) -> int:
        return 2

    def run(self, task: Task, parts: list[Any]) -> list[str]:
        self.tasks.append(len(parts))
        copy = pickle.loads(pickle.dumps(task))
        return [name for part in parts for name in copy(iter([pickle.loads(pickle.dumps(part))]))]


class Archive:
    """One archive of the queue `q`; each `run` is a run of the job."""

    def __init__(self, place: Path, target: str = "", format: Format = "parquet") -> None:
        self.sharing = InlineSharing()
        # The number of Sparks that were started.
        self.starts = 0
        self.spark = StartingSpark(self.started, ThreadPoolExecutor(1))
        self.books = ArchiveDirectory(target or place / "target", place / "target.checkpoint")
        self.format: Format = format

    def started(self) -> InlineSharing:
        self.starts += 1
        return self.sharing

    def run(
        self,
        max_messages: int = 10,
        merge_bytes: int | None = None,
        pattern: str | None = None,
        fails_on_data_loss: bool = True,
    ) -> BatchWriter:
        queues = ("q",) if pattern is None else ()
        stream = archive_job._Stream(
            URI, queues, pattern, "g", max_messages, 1 << 30, False, 0.0, fails_on_data_loss
        )
        with self.books.locked():
            self.books.open(self.format, "/", "g")
            files = files_of(self.books)
            before = self.books.committed()
            self.books.must_know(files.newest_batch(), -1 if before is None else before.batch)
            if before is not None:
                put_in_place(self.books, files, before)
            writer = BatchWriter(self.books, files, merge_bytes)
            try:
                archive_job._run(self.spark, self.books, stream, writer, threading.Event())
            finally:
                writer.close()
        return writer

    def bodies(self) -> list[bytes]:
        """All bodies in the target's files, in order of the names, for any Parquet reader."""
        place = self.books.place
        names = [file.name for file in place.files() if file.name.endswith(".parquet")]
        bodies = []
        for name in names:
            with place.input(name) as file:
                bodies += pq.read_table(file)["body"].to_pylist()
        return bodies
