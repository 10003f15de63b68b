"""What happens to each batch of an archive's stream: Spark writes it, then it is committed and its files are put in place."""

import threading
from typing import TYPE_CHECKING, Final

from warren.pipeline.archive_delta import DeltaFiles
from warren.pipeline.archive_directory import ArchiveDirectory, Commit
from warren.pipeline.archive_merge import Merger, ParquetFiles, SmallFile
from warren.pipeline.result import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Written at once by a task without sorting its rows; a batch of more queues and days is sorted.
OPEN_FILES_MAX: Final = 8
ROW_GROUP_BYTES: Final = 32 << 20


class BatchWriter:
    """The end of an archive's stream. Spark calls it in a thread of its own, batch after batch."""

    def __init__(
        self,
        directory: ArchiveDirectory,
        files: ParquetFiles | DeltaFiles,
        merge_bytes: int | None,
        tasks: int,
    ) -> None:
        self._directory = directory
        self._files = files
        self._tasks = tasks
        self._merger: Merger | None = None
        if merge_bytes is not None:
            self._merger = Merger(files.files(), merge_bytes, files.replace)
        # Held while the archive changes. A query that is stopped does not wait for this thread; `close` does.
        self._at_work = threading.Lock()
        self._is_closed = False
        self.batches = 0
        self.merged_files = 0

    def write(self, frame: "DataFrame", batch: int) -> None:
        """Archive a batch, unless it counts already."""
        with self._at_work:
            if self._is_closed:
                raise JobError("the archive is closed")
            query = self._directory.query_id()
            if self._directory.has(query, batch):
                return
            staged = self._directory.new_staging()
            write_parquet(frame, str(staged), self._tasks)
            commit = self._directory.commit(query, batch, staged)
            put_in_place(self._directory, self._files, commit)
            self.batches += 1
            if self._merger is not None:
                self._merger.add([SmallFile(file.path, file.bytes) for file in commit.files])
                # One at a time: the stream waits meanwhile.
                self.merged_files += self._merger.work(1)

    def close(self) -> None:
        """No batch is written afterwards. Merges what is left to merge."""
        with self._at_work:
            self._is_closed = True
            if self._merger is not None:
                self.merged_files += self._merger.work(1 << 30)
            self._files.finish()


def put_in_place(directory: ArchiveDirectory, files: ParquetFiles | DeltaFiles, commit: Commit) -> None:
    """Show a batch that counts to those who read the archive. May be repeated."""
    directory.move(commit)
    files.publish(commit)


def write_parquet(frame: "DataFrame", path: str, tasks: int) -> None:
    """Write a batch, in `tasks` tasks, a directory for each queue and day."""
    from pyspark.sql.functions import col, to_date

    spark = frame.sparkSession
    # Of the session that Spark makes for a stream: nobody else has it.
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", str(OPEN_FILES_MAX))
    # Times as everybody reads them, instead of the 96 bits of old.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    dated = frame.withColumn("date", to_date(col("enqueued_at"))).coalesce(tasks)
    (
        dated.write.partitionBy("queue", "date")
        .option("compression", "zstd")
        .option("parquet.block.size", str(ROW_GROUP_BYTES))
        # Bodies are all different: a dictionary of them is work for nothing.
        .option("parquet.enable.dictionary#body", "false")
        .option("parquet.enable.dictionary#headers_raw", "false")
        .parquet(path)
    )
