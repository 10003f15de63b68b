"""Spark's side of a stream, as far as a source sees it: checkpoint, micro-batches, and the places where it may be killed.

The order of calls is the one observed on Spark 4.3: `latestOffset(start)`, offset log, `commit` of the batch before,
`partitions`, `read` in workers, sink, commit log; after a restart the batch that is not in the commit log first, with
`partitions` as its first call.
"""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql.streaming.datasource import ReadMaxRows

from warrenmq.spark.offsets import OffsetJson
from warrenmq.spark.stream_reader import WarrenStreamReader

Row = tuple[str, int, bytes]

# Where a batch may end too early: the process is dead then.
AFTER_LATEST_OFFSET = "after latestOffset"
AFTER_OFFSET_LOG = "after the offset log"
AFTER_PARTITIONS = "after partitions"
AFTER_SINK = "after the sink"
PLACES = (AFTER_LATEST_OFFSET, AFTER_OFFSET_LOG, AFTER_PARTITIONS, AFTER_SINK)


def through_json(offset: OffsetJson) -> OffsetJson:
    """As the JVM gives it back."""
    parsed: OffsetJson = json.loads(json.dumps(offset))
    return parsed


@dataclass
class Checkpoint:
    """What outlives the process: the ends of planned batches, how many are committed, and what the sink has of each."""

    offsets: list[str] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    # Bodies that a deleted queue held: they may be missing when a batch is read again.
    gone: set[bytes] = field(default_factory=set)

    def rows(self) -> list[Row]:
        """All the sink has."""
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]


class Query:
    """One process of a query."""

    def __init__(
        self, reader: WarrenStreamReader, checkpoint: Checkpoint, max_rows: int = 5
    ) -> None:
        self.reader = reader
        self.checkpoint = checkpoint
        self.max_rows = max_rows
        # What `commit` was not told yet.
        self.uncommitted: OffsetJson | None = None
        # Of batch 0: asked once by each process.
        self.initial: OffsetJson | None = None

    def offset(self, number: int) -> OffsetJson:
        """Where batch `number` begins."""
        if number == 0:
            if self.initial is None:
                self.initial = through_json(self.reader.initialOffset())
            return self.initial
        parsed: OffsetJson = json.loads(self.checkpoint.offsets[number - 1])
        return parsed

    def run_batch(self, dies: str | None = None, commits: bool = True) -> bool:
        """One round; False when there was nothing. `dies`: where it ends too early."""
        checkpoint = self.checkpoint
        number = checkpoint.committed
        if len(checkpoint.offsets) == number:
            start = self.offset(number)
            end = json.dumps(self.reader.latestOffset(start, ReadMaxRows(self.max_rows)))
            if dies == AFTER_LATEST_OFFSET:
                return True
            if end == json.dumps(start):
                return False
            checkpoint.offsets.append(end)
            if self.uncommitted is not None and commits:
                self.reader.commit(self.uncommitted)
                self.uncommitted = None
        if dies == AFTER_OFFSET_LOG:
            return True
        end = json.loads(checkpoint.offsets[number])
        partitions = self.reader.partitions(self.offset(number), end)
        if dies == AFTER_PARTITIONS:
            return True
        rows: list[Row] = []
        for partition in partitions:
            worker = pickle.loads(pickle.dumps(self.reader))
            for batch in worker.read(pickle.loads(pickle.dumps(partition))):
                columns = [batch.column(name).to_pylist() for name in ("queue", "seq", "body")]
                rows += zip(*columns, strict=True)
        # A sink that has the batch already ignores it: so it must be the same.
        kept = checkpoint.sink.setdefault(number, rows)
        assert [row for row in kept if row[2] not in checkpoint.gone] == rows or kept == rows
        if dies == AFTER_SINK:
            return True
        checkpoint.committed += 1
        self.uncommitted = end
        return True


def drain(make: Callable[[], WarrenStreamReader], checkpoint: Checkpoint) -> None:
    """An availableNow run in a new process."""
    reader = make()
    reader.prepareForTriggerAvailableNow()
    query = Query(reader, checkpoint)
    while query.run_batch():
        pass
