"""What happens to each batch of an archive's stream: its tasks write files, it is committed, its files are put in place."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from warren.pipeline.archive_delta import DeltaFiles
from warren.pipeline.archive_directory import ArchiveDirectory, Commit
from warren.pipeline.archive_merge import Merger, ParquetFiles, SmallFile
from warren.pipeline.result import JobError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class BatchWriter:
    """The end of an archive's stream. Spark calls it in a thread of its own, batch after batch."""

    def __init__(
        self,
        directory: ArchiveDirectory,
        files: ParquetFiles | DeltaFiles,
        merge_bytes: int | None,
    ) -> None:
        self._directory = directory
        self._files = files
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
            # Here the tasks run. Their rows are the names of the files that they wrote.
            staged = [Path(row["path"]) for row in frame.collect()]
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
