"""Queries of telemetry without Spark: their readers, called in the order in which Spark does."""

import json
import pickle
from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

Row = dict[str, Any]
Offset = dict[str, object]


def rows(reader: Any, partitions: list[Any]) -> list[Row]:
    """The rows of partitions, read by a pickled copy of the reader, as in a worker."""
    found: list[Row] = []
    worker = pickle.loads(pickle.dumps(reader))
    for partition in partitions:
        for batch in worker.read(pickle.loads(pickle.dumps(partition))):
            found += batch.to_pylist()
    return found


class Query:
    """A process of a query; `done` are the offsets and rows of its batches, as Spark keeps them."""

    def __init__(self, source: DataSource, done: list[tuple[Offset, list[Row]]]) -> None:
        schema: Any = source.schema()
        self.reader: Any = source.streamReader(schema)
        self.done = done

    def start(self) -> Offset:
        return self.done[-1][0] if self.done else self.reader.initialOffset()

    def planned(self) -> Offset:
        """The end of the next batch."""
        limit = ReadMaxRows(3) if "group" in self.start() else ReadAllAvailable()
        end: Offset = json.loads(json.dumps(self.reader.latestOffset(self.start(), limit)))
        return end

    def read(self, end: Offset) -> list[Row]:
        """The rows of the batch up to `end`."""
        return rows(self.reader, self.reader.partitions(self.start(), end))

    def drain(self) -> list[Row]:
        """Do an availableNow run; returns its rows."""
        before = len(self.done)
        self.reader.prepareForTriggerAvailableNow()
        while (end := self.planned()) != self.start():
            self.done.append((end, self.read(end)))
        return [row for _, found in self.done[before:] for row in found]
