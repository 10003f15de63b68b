"""Tests the batch reader: reading changes nothing in the queues."""

import pickle

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition

from tests.spark.links import URI, install
from tests.support.brokers.memory_node import MemoryDisk, MemoryNode
from warrenmq.spark.batch_reader import WarrenBatchReader
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.source import WarrenDataSource


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    install(monkeypatch, node)
    return node


def make(**options: str) -> WarrenBatchReader:
    given = {"uri": URI} if "queuesPattern" in options else {"uri": URI, "queues": "q"}
    source = WarrenDataSource(options=given | options)
    return source.reader(schema=source.schema())


def bodies(reader: WarrenBatchReader) -> list[bytes]:
    found = []
    for partition in reader.partitions():
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += batch.column("body").to_pylist()
    return found


def test_ready_messages_are_seen_and_stay(node: MemoryNode) -> None:
    """Ready messages can be read any number of times, in transient queues too."""
    for number in range(5):
        node.publish(b"q", b"m%d" % number)
    assert bodies(make()) == bodies(make()) == [b"m%d" % number for number in range(5)]
    assert node.vhost.queues[b"q"].ready_count == 5
    node.declare(b"transient", durable=False)
    node.publish(b"transient", b"t")
    assert bodies(make(queues="transient")) == [b"t"]


def test_range_is_fixed_when_planned(node: MemoryNode) -> None:
    """Later messages are not in the range; messages that were consumed are missing."""
    for number in range(5):
        node.publish(b"q", b"m%d" % number)
    reader = make()
    (partition,) = reader.partitions()
    node.publish(b"q", b"later")
    node.vhost.queues[b"q"].get(True, 0)
    (batch,) = reader.read(partition)
    assert batch.column("body").to_pylist() == [b"m1", b"m2", b"m3", b"m4"]


def test_large_queues_are_read_in_several_partitions(
    node: MemoryNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is in exactly one partition."""
    monkeypatch.setattr("warrenmq.spark.batch_reader.MESSAGES_PER_PARTITION", 10)
    monkeypatch.setattr("warrenmq.spark.batch_reader.FETCH_MESSAGES", 7)
    for number in range(95):
        node.publish(b"q", b"m%d" % number)
    reader = make()
    assert len(reader.partitions()) == 10
    assert bodies(reader) == [b"m%d" % number for number in range(95)]


def test_empty_queue_gives_no_rows(node: MemoryNode) -> None:
    """An empty queue gives no rows; Spark passes its own partition for an empty list."""
    reader = make()
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_queue_that_is_not_there_or_goes_away_is_an_error(node: MemoryNode) -> None:
    """A missing queue is an error, because a short result would be wrong."""
    with pytest.raises(SourceError, match="no queue 'nope'"):
        make(queues="nope").partitions()
    node.publish(b"q", b"m")
    reader = make()
    (partition,) = reader.partitions()
    node.delete(b"q")
    node.declare(b"q")
    with pytest.raises(SourceError, match="deleted"):
        list(reader.read(partition))


def test_options_for_streams_are_refused() -> None:
    """A batch read refuses options for streams instead of ignoring them."""
    with pytest.raises(OptionError, match="'group' is for streams"):
        make(group="g")
    with pytest.raises(OptionError, match="begins at the latest"):
        make(startingOffsets="latest")


def fill(node: MemoryNode, queue: bytes, first: int, count: int) -> None:
    for number in range(first, first + count):
        node.publish(queue, b"m%d" % number)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"m%d" % number for number in range(first, last)]


def test_several_queues_are_one_table(node: MemoryNode) -> None:
    """Names or a pattern select queues, transient ones too; many small ones share a task."""
    node.declare(b"q2", durable=False)
    node.declare(b"other")
    fill(node, b"q", 0, 3)
    fill(node, b"q2", 3, 3)
    fill(node, b"other", 6, 3)
    assert bodies(make(queues="q2,q")) == numbered(0, 6)
    assert bodies(make(queuesPattern="q.?")) == numbered(0, 6)
    assert bodies(make(queuesPattern="nothing")) == []
    for number in range(40):
        node.declare(b"many-%02d" % number)
        fill(node, b"many-%02d" % number, number, 1)
    many = make(queuesPattern="many-.*")
    assert len(many.partitions()) <= 16
    assert bodies(many) == numbered(0, 40)


def test_exclusive_queues_are_not_for_tables(node: MemoryNode) -> None:
    """A named exclusive queue is refused, and no pattern matches one."""
    node.declare(b"q2", owner=object())
    for queue in (b"q", b"q2"):
        node.publish(queue, b"in " + queue)
    assert bodies(make(queuesPattern="q.*")) == [b"in q"]
    with pytest.raises(SourceError, match="queue 'q2' is exclusive"):
        bodies(make(queues="q2"))


def test_names_of_queues_are_any_bytes(node: MemoryNode) -> None:
    """A pattern also matches names that no option can spell; the column has replaced characters."""
    names = [b"n a,b", b"n 'x' \"y\"", "n é#/%".encode(), b"n \xff", b"n \xfe"]
    for name in names:
        node.declare(name)
        node.publish(name, b"in " + name)
    reader = make(queuesPattern="n .*")
    assert sorted(bodies(reader)) == sorted(b"in " + name for name in names)
    shown = [
        name
        for part in reader.partitions()
        for batch in reader.read(part)
        for name in batch["queue"].to_pylist()
    ]
    assert sorted(shown) == sorted(name.decode("utf-8", "replace") for name in names)


def test_ranges_by_position(node: MemoryNode) -> None:
    """A range for all queues or for each one includes its first position and excludes its last."""
    node.declare(b"r")
    fill(node, b"q", 0, 6)
    fill(node, b"r", 10, 6)
    first = node.vhost.queues[b"q"].backing.first_ready_seq
    assert bodies(make(seqFrom=str(first + 2), seqTo=str(first + 4))) == numbered(2, 4)
    by_queue = make(
        queues="q,r", startingOffsets=f'{{"q": {first + 4}}}', endingOffsets=f'{{"r": {first + 1}}}'
    )
    assert bodies(by_queue) == numbered(4, 6) + numbered(10, 11)
    assert bodies(make(startingOffsets="earliest", endingOffsets="latest")) == numbered(0, 6)
    assert bodies(make(seqFrom="5", seqTo="3")) == []


def test_ranges_by_time(node: MemoryNode) -> None:
    """A range by time uses the time at which the broker took a message."""
    fill(node, b"q", 0, 3)
    node.clock.advance(60_000)
    fill(node, b"q", 3, 3)
    # The clock of the node in memory starts at 22:13:20.
    assert bodies(make(startingTimestamp="2023-11-14T22:14:00Z")) == numbered(3, 6)
    assert bodies(make(endingTimestamp="2023-11-14T22:14:00Z")) == numbered(0, 3)
    assert bodies(make(startingTimestamp="2023-11-15")) == []


def test_min_partitions_cuts_finer(node: MemoryNode) -> None:
    """`minPartitions` cuts finer, for machines with many cores."""
    fill(node, b"q", 0, 10)
    reader = make(minPartitions="4")
    assert len(reader.partitions()) == 4
    assert bodies(reader) == numbered(0, 10)
    node.declare(b"r")
    fill(node, b"r", 10, 3)
    for count in range(1, 20):
        reader = make(queues="q,r", minPartitions=str(count))
        assert len(reader.partitions()) >= min(count, 13)
        assert bodies(reader) == numbered(0, 13)
