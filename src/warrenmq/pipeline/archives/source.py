"""What an archive reads: messages as format "warren" reads them, written to Parquet files by the tasks that read them.

The driver program asks for batch after batch itself, in the order in which Spark's streams do; Spark shares the tasks out and
repeats those that fail. Its streams and tables are left out: their offsets, plans and workers cost more than a batch,
and messages would become rows in the JVM and columns again.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import InputPartition

from warrenmq.spark.columns import default_schema
from warrenmq.spark.fetching import share_out
from warrenmq.spark.offsets import OffsetJson
from warrenmq.spark.options import SourceOptions
from warrenmq.spark.retry import SourceError
from warrenmq.spark.stream_reader import GroupPartition, WarrenStreamReader

# As many as a segment of an index has (queues/segment_places.py): a slice in files is in one of them.
ARCHIVE_SLICE_MESSAGES: Final = 16384
# A task for less than this costs more than it saves, and leaves a smaller file.
TASK_MESSAGES_MIN: Final = 32768
TASK_BYTES_MIN: Final = 32 << 20
# In front of why a task has failed; names of files are absolute paths.
_FAILED: Final = "failed: "
# Of a directory.
NAME_BYTES_MAX: Final = 255
# What a message takes in its file beside its content, about.
_ROW_BYTES: Final = 128


class ArchiveReader(WarrenStreamReader):
    """Reads with all columns; what a task has read is in files when it ends."""

    def __init__(self, options: SourceOptions, staging: Path) -> None:
        super().__init__(options, default_schema(include_body=True, include_headers=True))
        self._staging = staging

    def tasks(self, start: OffsetJson, end: OffsetJson, tasks_max: int) -> list[GroupPartition]:
        """[start, end) as few tasks of about the same size: an archive's files should be large."""
        ranges = self.ranges(start, end)
        for key in ranges:
            _must_fit(key.shown)
        planned = self.planned(ranges, ARCHIVE_SLICE_MESSAGES)
        messages = sum([part.message_count for _, part in planned])
        size = sum([part.bytes for _, part in planned])
        count = max(1, messages // TASK_MESSAGES_MIN, size // TASK_BYTES_MIN)
        groups = share_out(
            [piece for piece, _ in planned],
            [part.bytes + _ROW_BYTES * part.message_count for _, part in planned],
            min(count, tasks_max),
        )
        return [GroupPartition(group) for group in groups]

    def write(self, partitions: Iterable[InputPartition]) -> Iterator[str]:
        """In a worker: the names of the files, durable, with the messages of its partitions; for `staged_paths`.

        What will not pass is told instead of raised: Spark would repeat the task four times.
        """
        from warrenmq.pipeline.archives.files import StagedFiles

        try:
            with StagedFiles(self._staging) as files:
                for partition in partitions:
                    for batch in self.read(partition):
                        files.write(batch)
        except (OSError, SourceError) as error:
            yield f"{_FAILED}{error}"
        else:
            yield from files.paths


def staged_paths(found: Iterable[str]) -> list[Path]:
    """The files that tasks have written. SourceError when one of the tasks has failed."""
    paths = []
    for text in found:
        if text.startswith(_FAILED):
            raise SourceError(text.removeprefix(_FAILED))
        paths.append(Path(text))
    return paths


def _must_fit(queue: str) -> None:
    from warrenmq.pipeline.archives.files import queue_directory

    if len(os.fsencode(queue_directory(queue))) > NAME_BYTES_MAX:
        raise SourceError(
            f"the name of queue '{queue}' is too long for that of a directory: archive the others without it"
        )
