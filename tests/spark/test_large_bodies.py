"""Bodies that are too large for Spark: the read fails, or goes on by the option `largeBodies`.

A lower limit stands for 64 MiB.
"""

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, IntegerType, StructType

from tests.spark.amqp.test_spool import delivery
from tests.spark.driving import Make, latest, rows
from tests.spark.links import URI, MemoryLink
from tests.support.brokers.dead_letters import TO_DEAD, declare_with_dead_letters, take_dead_letters
from tests.support.brokers.memory_node import MemoryNode
from warrenmq.queues.settings import QueueSettings
from warrenmq.spark.amqp.options import parse_amqp_source
from warrenmq.spark.amqp.spool import Spool
from warrenmq.spark.amqp.stream_reader import AmqpStreamReader, SpoolPartition
from warrenmq.spark.columns import check_schema, default_schema
from warrenmq.spark.large_bodies import FAIL, NULL, READ_CHOICES, STREAM_CHOICES, usable
from warrenmq.spark.options import OptionError, parse_options
from warrenmq.spark.retry import SourceError
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.store_options import parse_store_options
from warrenmq.spark.streams.reader import WarrenStreamReader

LIMIT = 1000
SMALL = [b"first", bytes(LIMIT), b"last"]
LARGE = bytes(LIMIT + 1)
ALL = [SMALL[0], LARGE, *SMALL[1:]]
READ = {"uri": URI, "queues": "q"}


@pytest.fixture(autouse=True)
def low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warrenmq.spark.large_bodies.BODY_BYTES_MAX", LIMIT)


@pytest.fixture
def node(node: MemoryNode) -> MemoryNode:
    """A node whose queue `p` has a large message among small ones, and dead letters in `dead`."""
    declare_with_dead_letters(node, b"p")
    for body in ALL:
        node.publish(b"p", body)
    node.commit()
    return node


def test_a_body_at_the_limit_is_not_large() -> None:
    batch = pa.record_batch({"seq": [1, 2], "body": [SMALL[1], SMALL[1]]})
    for choice in STREAM_CHOICES:
        assert list(usable([batch], choice, STREAM_CHOICES)) == [batch]
    batch = pa.record_batch({"body": ALL, "seq": range(4)})
    (found,) = usable([batch], NULL, READ_CHOICES)
    assert found.to_pydict() == {"body": [SMALL[0], None, *SMALL[1:]], "seq": [0, 1, 2, 3]}
    assert found.schema == batch.schema
    with pytest.raises(SourceError, match=r"of 1001 bytes is too large .*limit 1000") as caught:
        list(usable([batch], FAIL, READ_CHOICES))
    assert "largeBodies=null" in str(caught.value) and "deadLetter" not in str(caught.value)


def test_each_remedy_of_the_error_lets_the_same_batch_pass(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """A stream that has failed goes on with its reserved batch, however often that is read."""
    reader = make(queues="p")
    start = reader.initialOffset()
    end = latest(reader, start)
    with pytest.raises(SourceError, match="too large for Spark") as caught:
        rows(reader, start, end)
    for remedy in ("largeBodies=null", "largeBodies=deadLetter", "includeBody=false"):
        assert remedy in str(caught.value)

    without = make(queues="p", includeBody="false")
    (partition,) = without.partitions(start, end)
    assert [batch.column("size").to_pylist() for batch in without.read(partition)] == [
        [len(body) for body in ALL]
    ]
    assert rows(make(queues="p", largeBodies="null"), start, end) == [SMALL[0], None, *SMALL[1:]]
    for _ in range(2):
        rejecting = make(queues="p", largeBodies="deadLetter")
        assert rows(rejecting, start, end) == rows(rejecting, start, end) == SMALL
        link.use(link.node.crash())
    assert latest(rejecting, end) == end
    assert take_dead_letters(link.node) == [(LARGE, True)]
    assert link.node.vhost.queues[b"p"].unacked_count == 0


def test_a_message_that_would_be_lost_is_not_rejected(
    node: MemoryNode, link: MemoryLink, make: Make
) -> None:
    """Without a dead-letter exchange the query fails; it goes on when the queue has got one."""
    queue = node.vhost.queues[b"p"]
    queue.apply(QueueSettings())
    reader = make(queues="p", largeBodies="deadLetter")
    start = reader.initialOffset()
    end = latest(reader, start)
    with pytest.raises(SourceError, match="queue 'p' has no dead-letter exchange"):
        reader.partitions(start, end)
    queue.apply(TO_DEAD)
    assert rows(reader, start, end) == SMALL
    assert take_dead_letters(node) == [(LARGE, True)]


def test_nothing_is_rejected_for_a_schema_without_bodies(
    node: MemoryNode, link: MemoryLink
) -> None:
    options = READ | {"queues": "p", "group": "g", "largeBodies": "deadLetter", "longPollMs": "0"}
    reader = WarrenDataSource(options).streamReader(StructType().add("size", IntegerType()))
    assert isinstance(reader, WarrenStreamReader)
    start = reader.initialOffset()
    end = latest(reader, start)
    (partition,) = reader.partitions(start, end)
    (batch,) = reader.read(partition)
    assert batch.column("size").to_pylist() == [len(body) for body in ALL]


def test_a_batch_read_leaves_out_a_large_body(node: MemoryNode, link: MemoryLink) -> None:
    source = WarrenDataSource(READ | {"queues": "p", "largeBodies": "null"})
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    bodies = [body for batch in reader.read(partition) for body in batch.column("body").to_pylist()]
    assert bodies == [SMALL[0], None, *SMALL[1:]]
    failing = WarrenDataSource(READ | {"queues": "p"})
    with pytest.raises(SourceError, match="largeBodies=null reads it without its body, include"):
        list(failing.reader(source.schema()).read(partition))


def test_another_brokers_large_message_does_not_end_the_stream(tmp_path: Path) -> None:
    """The spool has it already, and the broker has it no more."""
    spool = Spool(tmp_path / "spool", "/", "q", 1 << 26)
    spool.store([delivery(0), delivery(1, LIMIT + 1), delivery(2, LIMIT)])
    (part,) = spool.slices(0, 3)
    spool.close()
    given = {"uri": URI, "queue": "q", "spoolDir": str(tmp_path / "spool")}
    sizes = {}
    for choice in READ_CHOICES:
        options = parse_amqp_source(given | {"largeBodies": choice})
        reader = AmqpStreamReader(options, default_schema(True, True))
        sizes[choice] = reader.read(SpoolPartition(part))
    (batch,) = sizes[NULL]
    assert [body and len(body) for body in batch.column("body").to_pylist()] == [10, None, LIMIT]
    with pytest.raises(SourceError, match="of 1001 bytes is too large"):
        list(sizes[FAIL])


def test_the_option_is_checked_before_anything_is_read() -> None:
    assert parse_options(READ).large_bodies == FAIL
    assert parse_options(READ | {"LARGEBODIES": "deadletter"}).large_bodies == "deadLetter"
    with pytest.raises(OptionError, match="'largeBodies' is one of fail, null, deadLetter, not"):
        parse_options(READ | {"largeBodies": "drop"})
    with pytest.raises(OptionError, match="'largeBodies' means nothing with includeBody=false"):
        parse_options(READ | {"largeBodies": "null", "includeBody": "false"})
    source = WarrenDataSource(READ | {"largeBodies": "deadLetter"})
    with pytest.raises(OptionError, match="deadLetter is for streams"):
        source.reader(source.schema())
    for parse, given in (
        (parse_store_options, {"path": "d"}),
        (parse_amqp_source, {"uri": URI, "queue": "q", "spoolDir": "/s"}),
    ):
        with pytest.raises(OptionError, match="'largeBodies' is one of fail, null, not"):
            parse(given | {"largeBodies": "deadLetter"})
    with pytest.raises(OptionError, match="unknown option 'largebodies'"):
        parse_store_options({"path": "d", "table": "files", "largeBodies": "null"})


def test_a_body_that_may_be_null_is_no_not_null_column() -> None:
    never = StructType().add("body", BinaryType(), False)
    check_schema(never, True, True, FAIL)
    with pytest.raises(OptionError, match="column 'body' may be null"):
        check_schema(never, True, True, NULL)
