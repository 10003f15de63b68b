"""Reads an archive's messages as format "warren" does, in tasks that write them to Parquet files.

The driver requests batch after batch itself, in the order of calls of Spark's streams; Spark
distributes the tasks and repeats failed ones. Spark's streams and tables are not used: their
offsets, plans and workers cost more than a batch, and messages would become rows in the JVM and
columns again.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import InputPartition

from warrenmq.pipeline.archives.directory import StagedFile
from warrenmq.pipeline.places import Place
from warrenmq.pipeline.result import JobError
from warrenmq.spark.columns import default_schema
from warrenmq.spark.fetching import share_out
from warrenmq.spark.options import SourceOptions
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import GroupPartition, WarrenStreamReader

# Messages of a slice; as many as an index segment has (queues/readers/segment_places.py), so that a
# slice on disk lies in one.
ARCHIVE_SLICE_MESSAGES: Final = 16384
# A task for fewer messages costs more than it saves, and leaves a smaller file.
TASK_MESSAGES_MIN: Final = 32768
# A task for fewer bytes costs more than it saves, and leaves a smaller file.
TASK_BYTES_MIN: Final = 32 << 20
# Prefix of a failed task's error among its texts; the others are JSON objects.
_FAILED: Final = "failed: "
# Longest name of a directory in bytes.
NAME_BYTES_MAX: Final = 255
# Approximate bytes of a message in its file, beside its content.
_ROW_BYTES: Final = 128


class ArchiveReader(WarrenStreamReader):
    """Reads all columns of the group's messages; a task leaves its messages in durable files.

    The files are below `staging` and have the columns of `schema` (see `StagedFiles`).
    """

    def __init__(self, options: SourceOptions, staging: Place, schema: Any = None) -> None:
        super().__init__(options, default_schema(include_body=True, include_headers=True))
        self._staging = staging
        self._columns = schema

    def has_waiting(self) -> bool:
        """Whether the queues have messages that no batch has; False when the broker is silent."""
        lag = self._group.lag()
        return lag is not None and lag.messages > 0

    def tasks(self, start: OffsetJson, end: OffsetJson, tasks_max: int) -> list[GroupPartition]:
        """Cut [start, end) into few tasks of about one size: an archive's files should be large."""
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
        """In a worker: write the partitions' messages to files; yields texts for `staged_files`.

        Errors that a retry cannot repair are yielded instead of raised, because Spark would repeat
        the task four times.
        """
        from warrenmq.pipeline.archives.files import StagedFiles

        try:
            with StagedFiles(self._staging, self._columns) as files:
                for partition in partitions:
                    for batch in self.batches(partition):
                        files.write(batch)
        except (OSError, SourceError, JobError) as error:
            yield f"{_FAILED}{error}"
        else:
            for file in files.done:
                yield msgspec.json.encode(file).decode()


def staged_files(found: Iterable[str]) -> list[StagedFile]:
    """The files that tasks have written. SourceError when a task failed."""
    files = []
    for text in found:
        if text.startswith(_FAILED):
            raise SourceError(text.removeprefix(_FAILED))
        files.append(msgspec.json.decode(text, type=StagedFile))
    return files


def _must_fit(queue: str) -> None:
    from warrenmq.pipeline.archives.files import queue_directory

    if len(os.fsencode(queue_directory(queue))) > NAME_BYTES_MAX:
        raise SourceError(
            f"the name of queue '{queue}' is too long for a directory name: archive the other queues without it"
        )
