"""docs/spark/declarative-pipelines.md: the pipeline runs twice, each message in each table once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

pytest.importorskip("pyspark")

from tests.support.awaiting import eventually
from tests.support.brokers.process import BrokerProcess
from tests.support.documented_commands import commands_of, run_commands, section_of, write_files

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/spark/declarative-pipelines.md").read_text()
# Each command starts a JVM.
TIMEOUT_S = 500
# Spark listens on the loopback interface alone, and its JVMs compile little.
SETTINGS = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def publish(channel: "BlockingChannel", numbers: range) -> None:
    for number in numbers:
        body = json.dumps({"number": number, "cents": number * 10})
        queue = ("shop.eu", "shop.us")[number % 2]
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def waiting(channel: "BlockingChannel", queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(3 * TIMEOUT_S)
def test_the_pipeline_of_the_page(spark: "SparkSession", tmp_path: Path) -> None:
    """The second run adds what came after the first; an exchange gets each large order once."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    made = commands_of(section_of(PAGE, "The pipeline"))
    run = commands_of(section_of(PAGE, "Run it"))
    try:
        with pika.BlockingConnection(pika.URLParameters(broker.uri + "?heartbeat=0")) as connection:
            channel = connection.channel()
            for queue in ("shop.eu", "shop.us", "large-orders"):
                channel.queue_declare(queue, durable=True)
            publish(channel, range(100))
            channel.basic_publish("", "shop.eu", b"no order", pika.BasicProperties(delivery_mode=2))
            settings = {"WARREN_URI": broker.uri, **SETTINGS}
            run_commands(made, tmp_path, TIMEOUT_S, **settings)
            write_files(PAGE, tmp_path)
            assert "Run is COMPLETED" in run_commands(run, tmp_path, TIMEOUT_S, **settings)
            publish(channel, range(100, 110))
            assert "Run is COMPLETED" in run_commands(run, tmp_path, TIMEOUT_S, **settings)
            # A run does not wait until its last batch is in the queues.
            eventually(lambda: waiting(channel, "large-orders") == 20, "20 large orders")
    finally:
        broker.kill()
    tables = tmp_path / "shop" / "spark-warehouse"
    assert spark.read.parquet(str(tables / "bronze_orders")).count() == 111
    gold = spark.read.parquet(str(tables / "gold_revenue")).orderBy("queue").collect()
    assert [tuple(row) for row in gold] == [
        ("shop.eu", 55, sum(range(0, 110, 2)) * 10),
        ("shop.us", 55, sum(range(1, 110, 2)) * 10),
    ]
