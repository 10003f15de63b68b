"""Tests a real Spark with a real broker: streams into Parquet, batch reads, errors, kills."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pyarrow.parquet as pq
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.spark.kills import MESSAGES_MIN, execute_run
from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.brokers.tls_process import TlsBroker
from tests.support.stores.stopped_node import FAN, LARGE, MESSAGES, SMALL, make_data_directory
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.requests import GroupList, GroupStatus, ListGroups
from warrenmq.spark import SparkUnavailableError, reason_of
from warrenmq.spark.local.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

QUERY_TIMEOUT_S = 180
# Timeout of a program that has its own JVM and runs several queries.
PROGRAM_TIMEOUT_S = 500
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.uri + "?heartbeat=0")) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def fill(channel: BlockingChannel, queue: str, count: int, first: int = 0) -> None:
    channel.queue_declare(queue, durable=True)
    for number in range(first, first + count):
        mode = 2 if number % 2 else 1
        properties = pika.BasicProperties(
            delivery_mode=mode, message_id=str(number), headers={"n": number}
        )
        channel.basic_publish("", queue, b"m%d" % number, properties)


def status(broker: BrokerProcess, group: str) -> GroupStatus:
    with AdminClient(NodeAddress(broker.uri)) as client:
        groups = client.request(ListGroups(), GroupList).groups
    return next(found for found in groups if found.group == group)


def table(spark: "SparkSession", broker: BrokerProcess, queue: str) -> "DataFrame":
    return spark.read.format("warren").option("uri", broker.uri).option("queues", queue).load()


def stream(spark: "SparkSession", broker: BrokerProcess, queue: str) -> "DataStreamReader":
    reader = spark.readStream.format("warren").option("uri", broker.uri)
    return (
        reader.option("queues", queue).option("group", f"group-{queue}").option("longPollMs", 300)
    )


def test_batch_read_is_a_table_without_registration(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel
) -> None:
    """A batch read has all columns, works in SQL and with filters, and consumes nothing.

    A filter on one use of the DataFrame leaves the count of another use unchanged.
    """
    fill(channel, "batch", 500)
    df = table(spark, broker, "batch")
    assert df.where("seq > 490").count() == 10
    assert df.count() == 500
    row = df.selectExpr(
        "sum(CAST(headers['n'] AS int)) n", "sum(size) s", "count_if(persistent) p"
    ).first()
    assert row is not None
    assert (row["n"], row["p"]) == (sum(range(500)), 250)
    projected = (
        spark.read.format("warren").schema("body binary, seq bigint").option("uri", broker.uri)
    )
    rows = projected.option("queues", "batch").load().orderBy("seq").collect()
    assert [bytes(row["body"]) for row in rows] == [b"m%d" % number for number in range(500)]
    assert channel.queue_declare("batch", passive=True).method.message_count == 500


def test_sql_finds_the_format_by_its_name(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel
) -> None:
    """SQL finds the format by its name; one view has several queues."""
    fill(channel, "sql.one", 30)
    fill(channel, "sql.two", 20)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW waiting USING warren "
        f"OPTIONS (uri '{broker.uri}', queuesPattern 'sql[.].*', minPartitions '4')"
    )
    found = spark.sql(
        "SELECT queue, count(*) AS n FROM waiting GROUP BY queue ORDER BY queue"
    ).collect()
    assert [(row["queue"], row["n"]) for row in found] == [("sql.one", 30), ("sql.two", 20)]


def test_empty_queue_is_an_empty_table(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel
) -> None:
    """An empty queue gives no rows and all columns."""
    fill(channel, "empty", 0)
    assert table(spark, broker, "empty").count() == 0


def test_available_now_drains_exactly_once_into_parquet(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A run of several batches and a second run write each message once and empty the queue."""

    def drain() -> None:
        reader = stream(spark, broker, "drain").option("maxMessagesPerTrigger", 200).load()
        writer = reader.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
            assert query.exception() is None
        finally:
            query.stop()

    fill(channel, "drain", 500)
    drain()
    assert channel.queue_declare("drain", passive=True).method.message_count == 0
    fill(channel, "drain", 100, 500)
    drain()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row["message_id"]) for row in rows) == list(range(600))
    assert {row["queue"] for row in rows} == {"drain"}
    assert all(bytes(row["body"]) == b"m" + row["message_id"].encode() for row in rows)
    found = status(broker, "group-drain")
    assert (found.held, found.lag, found.members[0].acked) == (0, 0, 601)


def test_running_query_takes_what_comes_and_survives_the_broker(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """A query reads messages as they arrive, and continues after the broker's kill and restart."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    writer = stream(spark, broker, "live").option("includeHeaders", "false")
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        fill(channel, "live", 50)
    query = (
        writer.load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            fill(channel, "live", 50, 50)
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        query.stop()
        broker.kill()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row["message_id"]) for row in rows) == list(range(100))


def test_a_stream_and_a_sink_work_over_tls(spark: "SparkSession", tmp_path: Path) -> None:
    """The driver and its workers reach a node whose authority only the URI names."""
    broker = TlsBroker(tmp_path / "broker")
    broker.start()
    try:
        with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("copy", durable=True)
            fill(channel, "secret", 300)
        reader = spark.readStream.format("warren").option("uri", broker.tls_uri)
        rows = reader.option("queues", "secret").option("group", "tls").load()
        writer = rows.selectExpr("body", "'copy' AS routing_key").writeStream.format("warren")
        writer = writer.option("uri", broker.tls_uri).option("exchange", "")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S)
            assert query.exception() is None
        finally:
            query.stop()
        source = spark.read.format("warren").option("uri", broker.tls_uri)
        copy = source.option("queues", "copy").load()
        eventually(lambda: copy.count() == 300, "all messages are copied")
        bodies = sorted(bytes(row["body"]) for row in copy.select("body").collect())
        assert bodies == sorted(b"m%d" % number for number in range(300))
        assert source.option("queues", "secret").load().count() == 0
        assert broker.stop() == 0
    finally:
        broker.kill()


def test_plans_do_not_show_the_password(
    spark: "SparkSession", broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans have no password, because they appear in logs and in the history server."""
    uri = broker.uri.replace("guest:guest", "guest:geheim")
    spark.read.format("warren").option("uri", uri).option("queues", "batch").load().explain(
        extended=True
    )
    plan = capsys.readouterr().out
    assert "warren" in plan
    assert "geheim" not in plan


def test_errors_reach_the_user_with_their_text(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """An unknown option fails at load, a missing queue at start; no error has the password."""
    uri = broker.uri.replace("guest:guest", "guest:geheim")
    with pytest.raises(Exception, match="unknown option 'queu'") as caught:
        spark.read.format("warren").option("uri", uri).option("queu", "q").load()
    assert "geheim" not in str(caught.value)
    with pytest.raises(Exception, match="login of user 'guest' was refused") as caught:
        spark.read.format("warren").option("uri", uri).option("queues", "q").load().count()
    assert "geheim" not in str(caught.value)
    reader = stream(spark, broker, "not-there").load()
    query = reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="no queue 'not-there' in vhost '/'") as caught:
        query.awaitTermination(QUERY_TIMEOUT_S)
    assert reason_of(caught.value) == "no queue 'not-there' in vhost '/'"


@pytest.mark.kill
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [4, 5])
def test_exactly_once_while_driver_workers_and_broker_are_killed(tmp_path: Path, seed: int) -> None:
    """SIGKILLs at random moments, then one run to the end.

    For more runs: python -m tests.spark.kills --runs 30.
    """
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    result = execute_run(seed, tmp_path)
    assert len(result.kills) >= 3
    assert result.messages > MESSAGES_MIN


def test_the_source_works_over_spark_connect(
    broker: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """A batch read, an availableNow stream and an archive work; the server has its own process."""
    pytest.importorskip("grpc_status")
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    fill(channel, "connect", 100)
    fill(channel, "connect-archived", 70)
    subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_app", broker.uri, "connect", str(tmp_path)],
        cwd=ROOT,
        check=True,
        timeout=PROGRAM_TIMEOUT_S,
    )
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert "connect" in seen["kind"]
    assert (seen["waiting"], seen["done"], seen["left"]) == (100, True, 0)
    assert seen["bodies"] == [f"m{number}" for number in range(100)]
    assert seen["archived"] == 70
    assert seen["archived_bodies"] == [f"m{number}" for number in range(70)]


def test_a_store_as_tables(spark: "SparkSession", tmp_path: Path) -> None:
    """Python and SQL find the format by its name; each table can be counted and joined."""
    data = make_data_directory(tmp_path / "node")
    store = spark.read.format("warren_store").option("path", str(data))
    messages = store.load()
    assert messages.count() == MESSAGES
    by_queue = {row["queue"]: row["count"] for row in messages.groupBy("queue").count().collect()}
    assert by_queue == {"small": len(SMALL), "large": len(LARGE), "fan": len(FAN)}
    positions = store.option("table", "positions").load()
    assert positions.where("state = 'alive'").join(messages, ["queue", "seq"]).count() == MESSAGES
    spark.sql(
        f"CREATE TEMPORARY VIEW files USING warren_store OPTIONS (path '{data}', table 'files')"
    )
    total = spark.sql("SELECT sum(live_bytes) AS total FROM files").collect()[0]["total"]
    assert total > 120 * 6000


@pytest.mark.parametrize("options", [{}, {"broker": "amqp"}])
def test_what_can_never_succeed_is_tried_once(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path, options: dict[str, str]
) -> None:
    """A permanent failure is tried once, although Spark repeats a task that raises four times."""
    tries = tmp_path / "tries"

    def noted(batches: Iterator[Any]) -> Iterator[Any]:
        with tries.open("a") as file:
            file.write("x")
        yield from batches

    rows = (
        spark.range(0, 3, 1, 1)
        .selectExpr("CAST(id AS STRING) AS body")
        .mapInArrow(noted, "body string")
    )
    writer = (
        rows.write.format("warren")
        .mode("append")
        .options(uri=broker.uri, exchange="missing", **options)
    )
    with pytest.raises(Exception, match="no exchange 'missing'"):
        writer.save()
    assert tries.read_text() == "x"


def test_a_stream_without_a_group_says_so(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """A missing group is reported as such; PySpark alone would say "UnboundLocalError"."""
    frame = spark.readStream.format("warren").options(uri=broker.uri, queues="q").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    with pytest.raises(Exception, match="option 'group' is missing") as caught:
        writer.start().awaitTermination(QUERY_TIMEOUT_S)
    assert "UnboundLocalError" not in str(caught.value)


def test_two_queries_of_one_frame_are_refused(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """The second query says at its start that it needs another group; the first one reads on."""
    fill(channel, "shared", 50)
    frame = stream(spark, broker, "shared").load()
    queries = []
    try:
        for name in ("first", "second"):
            writer = frame.writeStream.format("noop")
            queries.append(writer.option("checkpointLocation", str(tmp_path / name)).start())
            if name == "first":
                queries[0].processAllAvailable()
        with pytest.raises(Exception, match="in use by another query") as caught:
            queries[1].awaitTermination(QUERY_TIMEOUT_S)
        assert reason_of(caught.value).startswith("reader group 'group-shared' is in use by")
        fill(channel, "shared", 50, 50)
        queries[0].processAllAvailable()
    finally:
        for query in queries:
            query.stop()
    assert queries[0].exception() is None
    assert status(broker, "group-shared").members[0].acked == 101


def test_a_column_of_bodies_has_neither_dictionary_nor_bounds(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """Parquet of warren's session compares no bodies with each other."""
    rows = spark.range(0, 100, 1, 1).selectExpr(
        "'orders' AS type", "CAST(repeat('x', 1024) AS BINARY) AS body"
    )
    rows.write.parquet(str(tmp_path / "rows"))
    (part,) = (tmp_path / "rows").glob("*.parquet")
    kind, body = (pq.ParquetFile(part).metadata.row_group(0).column(place) for place in (0, 1))
    assert "PLAIN_DICTIONARY" in kind.encodings or "RLE_DICTIONARY" in kind.encodings
    assert not any("DICTIONARY" in encoding for encoding in body.encodings)
    assert kind.statistics.has_min_max
    assert body.statistics is None or not body.statistics.has_min_max
