"""Tests the options for other brokers: each error has one line and no password."""

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from warrenmq.spark.amqp.options import is_amqp, parse_amqp_sink, parse_amqp_source
from warrenmq.spark.amqp.stream_reader import AmqpStreamReader
from warrenmq.spark.amqp.writer import AmqpBatchWriter, AmqpStreamWriter
from warrenmq.spark.options import OptionError
from warrenmq.spark.source import WarrenDataSource

URI = "amqp://guest:geheim@host/v"
READ = {"broker": "amqp", "uri": URI, "queue": "q", "spoolDir": "/spool"}
WRITE = {"broker": "amqp", "uri": URI, "exchange": "x"}
BODY = StructType([StructField("body", BinaryType())])


def test_the_kind_of_broker() -> None:
    assert is_amqp({"Broker": "AMQP"})
    assert not is_amqp({"broker": "warren"})
    assert not is_amqp({})
    with pytest.raises(OptionError, match="warren or amqp, not 'kafka'"):
        is_amqp({"broker": "kafka"})


def test_defaults_of_a_source() -> None:
    options = parse_amqp_source(READ)
    assert (options.prefetch, options.spool_bytes_max, options.deduplicate) == (
        5_000,
        4 * 1024**3,
        "no",
    )
    assert "geheim" not in repr(options)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"queue": ""}, "option 'queue' is missing"),
        ({"queue": "q" * 256}, "at most 255 bytes"),
        ({"spoolDir": "spool"}, "option 'spoolDir' is the absolute path"),
        ({"spoolMaxBytes": "1000"}, "'spoolMaxBytes' is a whole number from 1048576"),
        ({"prefetch": "0"}, "'prefetch' is a whole number from 1 to 65535"),
        ({"deduplicate": "yes"}, "no, redelivered, message-id, not 'yes'"),
        ({"group": "g"}, "unknown option 'group'; reading with broker=amqp has: broker, uri"),
        ({"exchange": "x"}, "unknown option 'exchange'"),
        ({"uri": "http://host"}, "must begin with amqp://"),
    ],
)
def test_what_a_source_refuses(changes: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text) as caught:
        parse_amqp_source(READ | changes)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"exchange": "x" * 256}, "option 'exchange' has at most 255 bytes"),
        ({"routingKey": "x" * 256}, "option 'routingKey' has at most 255 bytes"),
        ({"sinkId": "a b"}, "option 'sinkId'"),
        ({"mandatory": "true"}, "is one of fail, ignore, not 'true'"),
        ({"spoolDir": "/x"}, "unknown option 'spooldir'; writing with broker=amqp has"),
    ],
)
def test_what_a_sink_refuses(changes: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_amqp_sink(WRITE | changes)


def test_the_uri_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: value for name, value in READ.items() if name != "uri"}
    monkeypatch.delenv("WARREN_URI", raising=False)
    with pytest.raises(OptionError, match="option 'uri' is missing"):
        parse_amqp_source(given)
    monkeypatch.setenv("WARREN_URI", URI)
    assert parse_amqp_source(given).uri == URI


def test_a_table_is_refused_and_says_why() -> None:
    """A batch read is refused whatever the other options are: it has no spool."""
    source = WarrenDataSource({"broker": "amqp", "uri": URI, "queue": "q"})
    with pytest.raises(OptionError, match="cannot look at a queue without taking its messages out"):
        source.reader(source.schema())


def test_the_data_source_hands_over(tmp_path: Path) -> None:
    """Constructors do no I/O: the URI has no broker, and the spool is not made."""
    spool = tmp_path / "spool"
    source = WarrenDataSource(READ | {"spoolDir": str(spool), "includeBody": "false"})
    assert "body" not in source.schema().fieldNames()
    assert isinstance(source.streamReader(source.schema()), AmqpStreamReader)
    assert not spool.exists()
    assert isinstance(WarrenDataSource(WRITE).writer(BODY, False), AmqpBatchWriter)
    assert isinstance(WarrenDataSource(WRITE).streamWriter(BODY, False), AmqpStreamWriter)


def test_what_spark_itself_is_told_is_no_business_of_a_sink() -> None:
    told = {"checkpointLocation": "/c", "queryName": "n"}
    assert isinstance(WarrenDataSource(WRITE | told).streamWriter(BODY, False), AmqpStreamWriter)
    with pytest.raises(OptionError, match="unknown option 'checkpointlocation'"):
        WarrenDataSource(WRITE | told).writer(BODY, False)


def test_nothing_is_overwritten() -> None:
    with pytest.raises(OptionError, match="cannot be overwritten"):
        WarrenDataSource(WRITE).writer(BODY, True)
    with pytest.raises(OptionError, match="cannot be overwritten"):
        WarrenDataSource(WRITE).streamWriter(BODY, True)


def test_columns_are_looked_at_before_anything_runs() -> None:
    with pytest.raises(OptionError, match="column 'body' is missing"):
        WarrenDataSource(WRITE).writer(StructType([StructField("type", StringType())]), False)
    with pytest.raises(OptionError, match="where to"):
        WarrenDataSource({"broker": "amqp", "uri": URI}).streamWriter(BODY, False)
