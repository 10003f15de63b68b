"""With a real Spark and a real broker: streams into Parquet, batch reads, errors as users see them, kills."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.spark.stream_app import FAST_SETTINGS
from tests.support.broker_process import BrokerProcess
from tests.support.stopped_node import FAN, LARGE, MESSAGES, SMALL, make_data_directory
from warren.admin.client import AdminClient, NodeAddress
from warren.admin.protocol import GroupList, GroupStatus, ListGroups
from warren.spark import SparkUnavailableError, session
from warren.spark.java import require_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

QUERY_TIMEOUT_S = 180
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    try:
        require_spark()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    spark = session("tests", settings=FAST_SETTINGS | {"spark.sql.warehouse.dir": warehouse})
    yield spark
    spark.stop()


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
        properties = pika.BasicProperties(delivery_mode=mode, message_id=str(number), headers={"n": number})
        channel.basic_publish("", queue, b"m%d" % number, properties)


def status(broker: BrokerProcess, group: str) -> GroupStatus:
    with AdminClient(NodeAddress(broker.uri)) as client:
        groups = client.request(ListGroups(), GroupList).groups
    return next(found for found in groups if found.group == group)


def table(spark: "SparkSession", broker: BrokerProcess, queue: str) -> "DataFrame":
    return spark.read.format("warren").option("uri", broker.uri).option("queue", queue).load()


def stream(spark: "SparkSession", broker: BrokerProcess, queue: str) -> "DataStreamReader":
    reader = spark.readStream.format("warren").option("uri", broker.uri)
    return reader.option("queue", queue).option("group", f"group-{queue}").option("longPollMs", 300)


def test_batch_read_is_a_table_without_registration(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel
) -> None:
    """All columns, SQL on top, a filter that leaves the unfiltered count alone, and nothing is consumed."""
    fill(channel, "batch", 500)
    df = table(spark, broker, "batch")
    assert df.where("seq > 490").count() == 10
    assert df.count() == 500
    row = df.selectExpr("sum(CAST(headers['n'] AS int)) n", "sum(size) s", "count_if(persistent) p").first()
    assert row is not None
    assert (row["n"], row["p"]) == (sum(range(500)), 250)
    projected = spark.read.format("warren").schema("body binary, seq bigint").option("uri", broker.uri)
    rows = projected.option("queue", "batch").load().orderBy("seq").collect()
    assert [bytes(row["body"]) for row in rows] == [b"m%d" % number for number in range(500)]
    assert channel.queue_declare("batch", passive=True).method.message_count == 500


def test_empty_queue_is_an_empty_table(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel
) -> None:
    """No rows, all columns."""
    fill(channel, "empty", 0)
    assert table(spark, broker, "empty").count() == 0


def test_available_now_drains_exactly_once_into_parquet(
    spark: "SparkSession", broker: BrokerProcess, channel: BlockingChannel, tmp_path: Path
) -> None:
    """Several batches a run, a second run for what came since; the broker has let go of everything afterwards."""

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
    """Messages arrive while it runs, the broker is killed and started again, the same query goes on."""
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


def test_plans_do_not_show_the_password(
    spark: "SparkSession", broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plans end up in logs and in the history server."""
    uri = broker.uri.replace("guest:guest", "guest:geheim")
    spark.read.format("warren").option("uri", uri).option("queue", "batch").load().explain(extended=True)
    plan = capsys.readouterr().out
    assert "warren" in plan
    assert "geheim" not in plan


def test_errors_reach_the_user_with_their_text(
    spark: "SparkSession", broker: BrokerProcess, tmp_path: Path
) -> None:
    """Unknown option at load, missing queue at start; the password in none of them."""
    uri = broker.uri.replace("guest:guest", "guest:geheim")
    with pytest.raises(Exception, match="unknown option 'queu'") as caught:
        spark.read.format("warren").option("uri", uri).option("queu", "q").load()
    assert "geheim" not in str(caught.value)
    with pytest.raises(Exception, match="login of user 'guest' was refused") as caught:
        spark.read.format("warren").option("uri", uri).option("queue", "q").load().count()
    assert "geheim" not in str(caught.value)
    reader = stream(spark, broker, "not-there").load()
    query = reader.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="no queue 'not-there' in vhost '/'"):
        query.awaitTermination(QUERY_TIMEOUT_S)


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms until told to stop; a broker that is away is waited for."""

    def __init__(self, uri: str, queue: str) -> None:
        super().__init__()
        self.uri = uri
        self.queue = queue
        self.is_stopping = threading.Event()
        self.confirmed: set[str] = set()
        self.published: set[str] = set()

    def run(self) -> None:
        number = 0
        while not self.is_stopping.is_set():
            try:
                with pika.BlockingConnection(pika.URLParameters(self.uri)) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    while not self.is_stopping.is_set():
                        number += 1
                        body = str(number)
                        self.published.add(body)
                        properties = pika.BasicProperties(delivery_mode=2)
                        channel.basic_publish("", self.queue, body.encode(), properties)
                        self.confirmed.add(body)
                        time.sleep(0.005)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)


@pytest.mark.kill
@pytest.mark.timeout(900)
def test_exactly_once_while_driver_and_broker_are_killed(spark: "SparkSession", tmp_path: Path) -> None:
    """Rounds of SIGKILL at random moments of a batch, then one run to the end: each confirmed message once.

    WARREN_SPARK_KILLS sets the rounds.
    """
    rounds = int(os.environ.get("WARREN_SPARK_KILLS", "2"))
    chance = random.Random(20)
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        connection.channel().queue_declare("kills", durable=True)
    publisher = Publisher(broker.uri, "kills")
    publisher.start()
    try:
        for round_number in range(rounds):
            run_and_kill(broker, tmp_path, chance, kills_broker=round_number % 2 == 1)
    finally:
        publisher.is_stopping.set()
        publisher.join()
    try:
        app = start_app(broker, tmp_path, "once")
        assert app.wait(QUERY_TIMEOUT_S) == 0, (tmp_path / "app.log").read_text()[-4000:]
    finally:
        broker.kill()
    bodies = [row["body"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert len(bodies) == len(set(bodies))
    assert publisher.confirmed <= set(bodies) <= publisher.published
    assert len(bodies) > 100
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert list(last) == ["group", "pos", "v"]


def start_app(broker: BrokerProcess, directory: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    with (directory / "app.log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_app", broker.uri, "kills", str(directory), *arguments],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def run_and_kill(broker: BrokerProcess, directory: Path, chance: random.Random, kills_broker: bool) -> None:
    """Let the program plan a few more batches, then kill it, JVM and workers included."""
    offsets = directory / "checkpoint" / "offsets"
    before = count_files(offsets)
    app = start_app(broker, directory)
    try:
        deadline = time.monotonic() + QUERY_TIMEOUT_S
        while count_files(offsets) < before + 2:
            assert app.poll() is None, (directory / "app.log").read_text()[-4000:]
            assert time.monotonic() < deadline, (directory / "app.log").read_text()[-4000:]
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1.5))
        if kills_broker:
            broker.kill()
            broker.start()
            time.sleep(chance.uniform(0, 1.5))
    finally:
        os.killpg(app.pid, signal.SIGKILL)
        app.wait()


def count_files(directory: Path) -> int:
    return len(list(directory.glob("[0-9]*"))) if directory.exists() else 0


def test_a_store_as_tables(spark: "SparkSession", tmp_path: Path) -> None:
    """The format is found by its name, in Python and in SQL, and each table can be counted and joined."""
    data = make_data_directory(tmp_path / "node")
    store = spark.read.format("warren_store").option("path", str(data))
    messages = store.load()
    assert messages.count() == MESSAGES
    by_queue = {row["queue"]: row["count"] for row in messages.groupBy("queue").count().collect()}
    assert by_queue == {"small": len(SMALL), "large": len(LARGE), "fan": len(FAN)}
    positions = store.option("table", "positions").load()
    assert positions.where("state = 'alive'").join(messages, ["queue", "seq"]).count() == MESSAGES
    spark.sql(f"CREATE TEMPORARY VIEW files USING warren_store OPTIONS (path '{data}', table 'files')")
    total = spark.sql("SELECT sum(live_bytes) AS total FROM files").collect()[0]["total"]
    assert total > 120 * 6000
