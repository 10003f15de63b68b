"""The end of an archive's batch: once its tasks have written the files, commits and moves them."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from warrenmq.pipeline.archives.delta import DeltaFiles
from warrenmq.pipeline.archives.directory import ArchiveDirectory, Commit, StagedFile
from warrenmq.pipeline.archives.iceberg import IcebergFiles
from warrenmq.pipeline.archives.merge import Merger, ParquetFiles, SmallFile
from warrenmq.spark.streams.offsets import OffsetJson

# The files that count in an archive, by its format.
Files: TypeAlias = ParquetFiles | DeltaFiles | IcebergFiles


def files_of(directory: ArchiveDirectory) -> Files:
    """The files that count in an open archive."""
    if directory.format == "iceberg":
        return IcebergFiles(directory)
    return DeltaFiles(directory) if directory.format == "delta" else ParquetFiles(directory)


class BatchWriter:
    """Commits the batches of an archive and merges small files in a thread beside it."""

    def __init__(
        self,
        directory: ArchiveDirectory,
        files: Files,
        merge_bytes: int | None,
    ) -> None:
        self._directory = directory
        self._files = files
        self._merger: Merger | None = None
        # Where files cannot be renamed, and in Iceberg tables, merging is for the lake's own tools.
        if merge_bytes is not None and directory.is_local and not isinstance(files, IcebergFiles):
            self._merger = Merger(files.files(), merge_bytes, files.replace)
        self._thread = ThreadPoolExecutor(1, "warren-merge")
        # The merge under way in the thread; while it runs, only the thread may touch `_merger`.
        self._merge: Future[int] | None = None
        # Committed files that the merger does not know yet.
        self._came: list[SmallFile] = []
        self.batches = 0
        self.merged_files = 0

    @property
    def columns(self) -> Any:
        """The Arrow schema of new files; None: that of messages without their queue."""
        return self._files.columns if isinstance(self._files, IcebergFiles) else None

    def add(self, staged: list[StagedFile], offset: OffsetJson) -> None:
        """Commit a batch: its tasks' files, and the offsets up to which its queues are read."""
        commit = self._directory.commit(staged, offset)
        put_in_place(self._directory, self._files, commit)
        self.batches += 1
        self._came += [SmallFile(file.path, file.bytes) for file in commit.files]
        if self._merge is None or self._merge.done():
            self._begin_merge(1)

    def close(self) -> None:
        """Merge the remaining small files and end the thread. No batch may be added afterwards."""
        self._begin_merge(1 << 30)
        self._end_merge()
        self._thread.shutdown()
        self._files.finish()

    def _begin_merge(self, merges_max: int) -> None:
        self._end_merge()
        if self._merger is not None:
            self._merger.add(self._came)
            self._came = []
            self._merge = self._thread.submit(self._merger.merge, merges_max)

    def _end_merge(self) -> None:
        """Wait for the merge under way, if any, and count its files. Raises the merge's error."""
        merge = self._merge
        self._merge = None
        if merge is not None:
            self.merged_files += merge.result()


def put_in_place(directory: ArchiveDirectory, files: Files, commit: Commit) -> None:
    """Make a committed batch visible to readers of the archive. May be repeated."""
    with files.changing:
        directory.move(commit)
        files.commit(commit)
