"""Tests a real Spark: a stream from one queue of another broker to another queue of it.

The examples of docs/spark/ are run too, in tests/spark/test_documentation.py.

"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.brokers.other_brokers import channel_to, fill
from tests.support.brokers.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_from_queue_to_queue(spark: "SparkSession", tmp_path: Path) -> None:
    """All columns that are read can be written; only messages without an id get a derived one."""
    broker = BrokerProcess(tmp_path / "broker")
    broker.start()
    try:
        with channel_to(broker) as channel:
            channel.queue_declare("events", durable=True)
            channel.queue_declare("copies", durable=True)
        fill(broker, "events", 100)
        stream = (
            spark.readStream.format("warren").option("broker", "amqp").option("uri", broker.uri)
        )
        stream = stream.option("queue", "events").option("spoolDir", str(tmp_path / "spool"))
        query = (
            stream.load()
            .selectExpr("*", "if(seq < 50, message_id, null) AS id")
            .drop("message_id")
            .withColumnRenamed("id", "message_id")
            .writeStream.format("warren")
            .option("broker", "amqp")
            .option("uri", broker.uri)
            .option("exchange", "")
            .option("routingKey", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("copies")
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(600)
            assert query.exception() is None
            query_id = query.id
        finally:
            query.stop()
        with channel_to(broker) as channel:
            copies = [channel.basic_get("copies", auto_ack=True)[1:] for _ in range(100)]
            assert channel.basic_get("copies", auto_ack=True)[0] is None
    finally:
        broker.kill()
    assert [body for _, body in copies] == [b"m%d" % number for number in range(100)]
    assert [properties.headers for properties, _ in copies] == [
        {"n": number} for number in range(100)
    ]
    ids = [properties.message_id for properties, _ in copies]
    assert ids[:50] == [str(number) for number in range(50)]
    assert ids[50:] == [f"{query_id}/0/0/{number}" for number in range(50, 100)]
