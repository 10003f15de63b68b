"""Simulates Spark's side of a stream: checkpoint, micro-batches, and the places where it may die.

The order of calls is the one observed on Spark 4.3: `latestOffset(start)`, offset log, `commit` of
the batch before, `partitions`, `read` in workers, sink, commit log. After a restart the batch that
is not in the commit log comes first, with `partitions` as its first call.
"""

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql.streaming.datasource import ReadMaxRows

from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import WarrenStreamReader

Row = tuple[str, int, bytes]

# Places where a batch may end early, because the process has died.
AFTER_LATEST_OFFSET = "after latestOffset"
AFTER_OFFSET_LOG = "after the offset log"
AFTER_PARTITIONS = "after partitions"
AFTER_SINK = "after the sink"
PLACES = (AFTER_LATEST_OFFSET, AFTER_OFFSET_LOG, AFTER_PARTITIONS, AFTER_SINK)


def through_json(offset: OffsetJson) -> OffsetJson:
    """`offset` as the JVM returns it: through JSON."""
    parsed: OffsetJson = json.loads(json.dumps(offset))
    return parsed


@dataclass
class Checkpoint:
    """The state that survives the process: ends of planned batches, commits, the sink's rows."""

    offsets: list[str] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, list[Row]] = field(default_factory=dict)
    # Bodies that were in a deleted queue: they may be missing when a batch is read again.
    gone: set[bytes] = field(default_factory=set)

    def rows(self) -> list[Row]:
        """All rows of the sink."""
        return [row for batch in sorted(self.sink) for row in self.sink[batch]]


class Query:
    """One process of a query."""

    def __init__(
        self, reader: WarrenStreamReader, checkpoint: Checkpoint, max_rows: int = 5
    ) -> None:
        self.reader = reader
        self.checkpoint = checkpoint
        self.max_rows = max_rows
        # End of the last batch for which `commit` was not called yet.
        self.uncommitted: OffsetJson | None = None
        # Start of batch 0: each process asks for it once.
        self.initial: OffsetJson | None = None

    def offset(self, number: int) -> OffsetJson:
        """The offset at which batch `number` begins."""
        if number == 0:
            if self.initial is None:
                self.initial = through_json(self.reader.initialOffset())
            return self.initial
        parsed: OffsetJson = json.loads(self.checkpoint.offsets[number - 1])
        return parsed

    def run_batch(self, dies: str | None = None, commits: bool = True) -> bool:
        """Run one batch, up to the place `dies`; False when there was no message."""
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
        # A sink ignores a batch that it has already, so the rows must be the same.
        kept = checkpoint.sink.setdefault(number, rows)
        assert [row for row in kept if row[2] not in checkpoint.gone] == rows or kept == rows
        if dies == AFTER_SINK:
            return True
        checkpoint.committed += 1
        self.uncommitted = end
        return True


def drain(make: Callable[[], WarrenStreamReader], checkpoint: Checkpoint) -> None:
    """Do an availableNow run in a new process."""
    reader = make()
    reader.prepareForTriggerAvailableNow()
    query = Query(reader, checkpoint)
    while query.run_batch():
        pass
