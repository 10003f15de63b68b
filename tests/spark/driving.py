"""Helpers of the tests that call the stream reader in the order in which Spark calls it."""

import pickle
from collections.abc import Callable

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from tests.spark.micro_batches import through_json
from tests.support.brokers.memory_node import MemoryNode
from warrenmq.spark.streams.offsets import OffsetJson
from warrenmq.spark.streams.reader import GroupPartition, WarrenStreamReader

Make = Callable[..., WarrenStreamReader]


def fill(node: MemoryNode, count: int, first: int = 0, queue: bytes = b"q") -> None:
    for number in range(first, first + count):
        node.publish(queue, b"m%d" % number, number % 2 == 0)


def latest(reader: WarrenStreamReader, start: OffsetJson, max_rows: int = 1000) -> OffsetJson:
    return through_json(reader.latestOffset(start, ReadMaxRows(max_rows)))


def rows(reader: WarrenStreamReader, start: OffsetJson, end: OffsetJson) -> list[bytes]:
    """The bodies of a batch; a pickled copy of the reader reads each partition, as in a worker."""
    bodies = []
    for partition in reader.partitions(start, end):
        worker = pickle.loads(pickle.dumps(reader))
        for batch in worker.read(pickle.loads(pickle.dumps(partition))):
            bodies += batch.column("body").to_pylist()
    return bodies


def bounds(partitions: list[InputPartition]) -> list[list[tuple[str, int, int]]]:
    """Queue and range of each slice of each partition."""
    return [
        [(part.queue.name, part.start, part.end) for part in partition.slices]
        for partition in partitions
        if isinstance(partition, GroupPartition)
    ]


def numbered(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]
