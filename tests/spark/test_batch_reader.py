"""The batch reader: a look that changes nothing."""

import pickle

import pytest

pytest.importorskip("pyspark")

from tests.spark.links import URI, install
from tests.support.memory_node import MemoryDisk, MemoryNode
from warren.spark.batch_reader import WarrenBatchReader
from warren.spark.broker_link import SourceError
from warren.spark.options import OptionError
from warren.spark.source import WarrenDataSource


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> MemoryNode:
    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    install(monkeypatch, node)
    return node


def make(**options: str) -> WarrenBatchReader:
    source = WarrenDataSource(options={"uri": URI, "queue": "q"} | options)
    return source.reader(schema=source.schema())


def bodies(reader: WarrenBatchReader) -> list[bytes]:
    found = []
    for partition in reader.partitions():
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += batch.column("body").to_pylist()
    return found


def test_ready_messages_are_seen_and_stay(node: MemoryNode) -> None:
    """Any number of times, transient queues included."""
    for number in range(5):
        node.publish(b"q", b"m%d" % number)
    assert bodies(make()) == bodies(make()) == [b"m%d" % number for number in range(5)]
    assert node.vhost.queues[b"q"].ready_count == 5
    node.declare(b"transient", durable=False)
    node.publish(b"transient", b"t")
    assert bodies(make(queue="transient")) == [b"t"]


def test_range_is_fixed_when_planned(node: MemoryNode) -> None:
    """What comes later is not in it, what goes is simply gone."""
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
    """Each message in one of them."""
    monkeypatch.setattr("warren.spark.batch_reader.MESSAGES_PER_PARTITION", 10)
    monkeypatch.setattr("warren.spark.batch_reader.FETCH_MESSAGES", 7)
    for number in range(95):
        node.publish(b"q", b"m%d" % number)
    reader = make()
    assert len(reader.partitions()) == 10
    assert bodies(reader) == [b"m%d" % number for number in range(95)]


def test_empty_queue_gives_no_rows(node: MemoryNode) -> None:
    """And one partition, because Spark makes something of an empty list."""
    reader = make()
    assert len(reader.partitions()) == 1
    assert bodies(reader) == []


def test_queue_that_is_not_there_or_goes_away_is_an_error(node: MemoryNode) -> None:
    """A short result would be a lie."""
    with pytest.raises(SourceError, match="no queue 'nope'"):
        make(queue="nope").partitions()
    node.publish(b"q", b"m")
    reader = make()
    (partition,) = reader.partitions()
    node.delete(b"q")
    node.declare(b"q")
    with pytest.raises(SourceError, match="deleted"):
        list(reader.read(partition))


def test_options_for_streams_are_refused() -> None:
    """Never ignored."""
    with pytest.raises(OptionError, match="'group' is for streams"):
        make(group="g")
