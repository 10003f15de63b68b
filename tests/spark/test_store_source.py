"""Tests the data source "warren_store" without a JVM: options, schemas, partitions and rows."""

import pickle
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.support.brokers.amqp_frames import PERSISTENT
from tests.support.brokers.process import BrokerProcess
from tests.support.kills.ledger import Confirms, connect
from warrenmq.spark import columns, node_snapshot
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.store_options import TABLE_OPTIONS, parse_store_options
from warrenmq.spark.store_source import StorePartition, WarrenStoreDataSource
from warrenmq.tables.schemas import COLUMNS, schema_of


def test_tables_are_the_same_on_both_sides() -> None:
    assert list(TABLE_OPTIONS) == list(COLUMNS)
    known = {name: kind for name, kind in columns.COLUMNS.items()}
    fields = from_arrow_schema(schema_of("messages")).fields
    assert {field.name: field.dataType for field in fields if field.name in known} == known
    for table in COLUMNS:
        schema = schema_of(table)
        assert to_arrow_schema(from_arrow_schema(schema), timezone="UTC") == schema


def test_options() -> None:
    options = parse_store_options(
        {
            "PATH": "file://" + "/data",
            "queues": "a, b",
            "seqFrom": "5",
            "enqueuedFrom": "2026-01-31T12:00:00",
            "enqueuedTo": "2026-01-31T14:00:00+01:00",
            "includebody": "false",
        }
    )
    assert (options.path, options.table, options.queues) == ("/data", "messages", ("a", "b"))
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000
    read = options.read_options()
    assert (read.enqueued_from_ms, read.enqueued_to_ms) == (noon, noon + 3_600_000)
    assert (read.seq_from, read.seq_to) == (5, None)
    assert parse_store_options({"path": "d", "queues": '["a,b"]'}).queues == ("a,b",)
    for path, meant in (
        ("file:/a%20b/ü", "/a b/ü"),
        ("/a%20b", "/a%20b"),
        ("file:" + "///a", "/a"),
    ):
        assert parse_store_options({"path": path}).path == meant


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "'path' is missing"),
        ({"path": "s3://lake/backup"}, "not s3://lake/backup: copy it there"),
        ({"path": "d", "tabel": "files"}, "unknown option 'tabel'"),
        ({"path": "d", "table": "moons"}, "'table' is one of"),
        (
            {"path": "d", "table": "files", "seqFrom": "1"},
            "unknown option 'seqfrom'.*table 'files'",
        ),
        ({"path": "d", "verify": "perhaps"}, "'verify' is one of crc, none"),
        ({"path": "d", "queues": ""}, "'queues'"),
        ({"path": "d", "queues": "[1]"}, "'queues'"),
        ({"path": "d", "enqueuedFrom": "yesterday"}, "'enqueuedFrom' is a time"),
        ({"path": "d", "seqTo": "-1"}, "'seqTo' is a whole number"),
    ],
)
def test_what_cannot_be_honoured_is_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_store_options(given)


def test_a_column_that_is_not_there() -> None:
    source = WarrenStoreDataSource({"path": "d", "table": "files"})
    with pytest.raises(
        OptionError, match="unknown column 'body'; format \"warren_store\" has in the table files"
    ):
        source.reader(StructType([StructField("body", StringType())]))
    with pytest.raises(OptionError, match="column 'bytes' is bigint, not string"):
        source.reader(StructType([StructField("bytes", StringType())]))
    with pytest.raises(OptionError, match="column 'bytes' is named twice"):
        source.reader(StructType([StructField("bytes", LongType())] * 2))
    without = WarrenStoreDataSource({"path": "d", "includeBody": "false"}).schema()
    assert "body" not in without.names and "crc_ok" in without.names


def test_no_store_is_an_error_when_it_is_planned(tmp_path: Path) -> None:
    source = WarrenStoreDataSource({"path": str(tmp_path)})
    reader = source.reader(source.schema())
    with pytest.raises(SourceError, match="not a data directory"):
        reader.partitions()


@pytest.mark.kill
def test_a_running_node_is_read_through_a_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot has the confirmed messages, and is deleted at the end."""
    monkeypatch.setattr("warrenmq.spark.large_bodies.BODY_BYTES_MAX", 9000)
    node = BrokerProcess(tmp_path / "node")
    node.start()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    try:
        peer = connect(node)
        channel = peer.channel()
        channel.declare(b"q", durable=True)
        confirms = Confirms(channel)
        for number in range(100):
            confirms.publish(
                b"q", b"%d " % number + bytes(number * 100), PERSISTENT, b"", lambda: None
            )
        confirms.drain()
        with node_snapshot(node.uri, scratch) as path:
            schema = StructType(
                [
                    StructField("seq", LongType()),
                    StructField("queue", StringType()),
                    StructField("body", BinaryType()),
                ]
            )
            source = WarrenStoreDataSource({"path": str(path), "largeBodies": "null"})
            reader = pickle.loads(pickle.dumps(source.reader(schema)))  # our own
            rows = [
                row
                for partition in reader.partitions()
                if isinstance(partition, StorePartition)
                for batch in reader.read(partition)
                for row in batch.to_pylist()
            ]
            assert [(row["seq"], row["queue"]) for row in rows] == [
                (seq, "q") for seq in range(1, 101)
            ]
            # The bodies have from 2 to 9,903 bytes.
            assert [row["seq"] for row in rows if row["body"] is None] == list(range(91, 101))
            failing = WarrenStoreDataSource({"path": str(path)}).reader(schema)
            with pytest.raises(SourceError, match=r"is too large .* largeBodies=null"):
                for partition in failing.partitions():
                    list(failing.read(partition))
        assert list(scratch.iterdir()) == []
        peer.drop()
    finally:
        node.kill()
