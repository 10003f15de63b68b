"""The job `report`: what it refuses, and, with Spark, a running node, the same one stopped, and damage."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from tests.support.broker_process import BrokerProcess
from warren.pipeline import JobError, report
from warren.pipeline.report_figures import DeathFigures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_cannot_be_is_refused_before_spark_starts(tmp_path: Path) -> None:
    """In one line, and nothing is written."""
    page = tmp_path / "x.html"
    for arguments, text in (
        ({}, "name a data directory, or the URI"),
        ({"directory": tmp_path, "uri": "amqp://x/"}, "name a data directory, or the URI"),
    ):
        with pytest.raises(JobError, match=text):
            report(page, **arguments)  # type: ignore[arg-type]  # a mixed bag
    with pytest.raises(JobError, match=r"must end in \.html"):
        report(tmp_path / "x.txt", directory=tmp_path)
    with pytest.raises(JobError, match="there is no directory"):
        report(tmp_path / "no" / "x.html", directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_running_node_and_the_same_one_stopped(spark: "SparkSession", tmp_path: Path) -> None:
    """The same messages; the states of queues while it runs; dead letters from the header that tells of them."""
    node = BrokerProcess(tmp_path / "node")
    node.start()
    try:
        with pika.BlockingConnection(pika.URLParameters(node.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for queue, count in (("orders", 40), ("dead", 10)):
                channel.queue_declare(queue, durable=True)
                for number in range(count):
                    deaths = [
                        {
                            "reason": "expired",
                            "queue": "orders",
                            "exchange": "",
                            "count": 2,
                            "routing-keys": ["a"],
                        },
                        {"reason": "rejected", "queue": "other", "exchange": "", "count": 1},
                    ]
                    headers = {"n": number} | ({"x-death": deaths} if queue == "dead" else {})
                    properties = pika.BasicProperties(delivery_mode=2, headers=headers)
                    channel.basic_publish("", queue, b"x" * number, properties)
        live = report(tmp_path / "live.html", uri=node.uri, snapshots=tmp_path, spark=spark).figures
        assert node.stop() == 0
    finally:
        node.kill()
    result = report(tmp_path / "dead.html", directory=tmp_path / "node" / "data", spark=spark)
    dead = result.figures
    assert result.exit_code == 0
    for found in (live, dead):
        assert (found.messages, found.bytes, found.queue_count) == (50, sum(range(40)) + sum(range(10)), 2)
        assert [(queue.queue, queue.messages) for queue in found.queues] == [("orders", 40), ("dead", 10)]
        assert [(row.from_bytes, row.messages) for row in found.sizes] == [
            (0, 2), (1, 2), (2, 4), (4, 8), (8, 10), (16, 16), (32, 8),
        ]  # fmt: skip
        assert found.dead_letters == [DeathFigures("expired", "orders", 10, 30)]
        assert sum(row.messages for row in found.rates) == 50
        assert {row.routing_key for row in found.rates} == {"orders", "dead"}
        assert (found.largest[0].size, found.oldest[0].size) == (39, 0)
        assert found.damage_count == 0
    assert {form.queue: form.alpha + form.beta + form.gamma + form.delta for form in live.forms} == {
        "orders": 40,
        "dead": 10,
    }
    assert dead.forms == []
    assert json.loads((tmp_path / "dead.json").read_text())["messages"] == 50
    assert "<svg" in (tmp_path / "live.html").read_text()
    assert not list(tmp_path.glob("warren-snapshot-*"))
