"""Telemetry through a real Spark: events once, metrics as the HTTP API has them, right windows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.support.awaiting import eventually
from tests.support.brokers.http_api import HttpNode
from tests.support.brokers.process import BrokerProcess
from warrenmq.pipeline import JobError, metrics, report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

QUERY_TIMEOUT_S = 300
MESSAGES = 300
DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def http_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    directory = tmp_path_factory.mktemp("node")
    node = HttpNode(directory, BrokerProcess(directory, "collect_statistics_interval=200"))
    node.start()
    yield node
    node.node.kill()


def run(spark: "SparkSession", format: str, uri: str, place: Path, **options: str) -> list[Any]:
    """Do an availableNow run into Parquet; returns all rows of the files."""
    stream = spark.readStream.format(format).options(uri=uri, **options).load()
    writer = (
        stream.writeStream.format("parquet")
        .option("path", str(place / "out"))
        .option("checkpointLocation", str(place / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_TIMEOUT_S)
    return list(spark.read.parquet(str(place / "out")).collect())


def publish(uri: str, queue: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for _ in range(MESSAGES):
            channel.basic_publish("", queue, b"x" * 10, DURABLE)


def test_telemetry_survives_a_killed_node(
    spark: "SparkSession", http_node: HttpNode, tmp_path: Path
) -> None:
    """What a run of the queries and of the job has, the next one goes on from."""
    broker, windows = http_node.node, tmp_path / "windows"
    given: dict[str, Any] = {"uri": broker.uri, "window_s": 1, "late_s": 0, "spark": spark}
    first = metrics(windows, **given)
    assert first.figures > 0 and first.lost_samples == 0
    run(spark, "warren_events", broker.uri, tmp_path / "events", group="spark")
    for queue in ("one", "two"):
        publish(broker.uri, queue)

    # The newest sample of a table is what the API tells.
    table = spark.read.format("warren_metrics").options(uri=broker.uri).load()
    newest = table.where("queue = 'one'").orderBy("time").collect()
    told = {row["metric"]: row["value"] for row in newest}
    with http_node.client() as api:

        def is_known() -> bool:
            found = api.get("queues/%2F/one").json()
            return bool(found.get("message_stats", {}).get("publish") == MESSAGES)

        eventually(is_known, "the API has counted the messages", 0.2)
        found = api.get("queues/%2F/one").json()
    for name in ("messages_ready", "messages_unacknowledged", "message_bytes", "consumers"):
        assert told[name] == found[name]
    assert told["publish"] == found["message_stats"]["publish"] == MESSAGES
    assert told["messages_alpha"] == MESSAGES

    # The ring of the node has these samples; a kill would take them.
    metrics(windows, **given)
    broker.kill()
    http_node.start()
    publish(broker.uri, "three")
    events = run(spark, "warren_events", broker.uri, tmp_path / "events", group="spark")
    created = [row["name"] for row in events if row["event"] == "queue.created"]
    assert sorted(each for each in created if each in ("one", "two", "three")) == [
        "one",
        "three",
        "two",
    ]
    assert len({row["seq"] for row in events}) == len(events)

    last = metrics(windows, **given)
    assert last.lost_samples > 0
    kept = spark.read.parquet(str(windows))
    keys = ("start", "node", "vhost", "queue", "group", "metric")
    assert kept.select(*keys).distinct().count() == kept.count()
    sums = kept.where("metric = 'publish'").groupBy("queue").sum("increase").collect()
    grown = dict([tuple(row) for row in sums])
    # The first sample after the start of the node has no sample before it.
    assert (grown["one"], grown["two"]) == (MESSAGES, MESSAGES)
    of_one = kept.where("metric = 'messages_ready' AND queue = 'one'").orderBy("start").collect()
    assert of_one[-1]["last"] == of_one[-1]["maximum"] == MESSAGES
    assert of_one[-1]["rate"] is None

    with pytest.raises(JobError, match="other windows need another directory"):
        metrics(windows, **given | {"window_s": 2})
    with pytest.raises(JobError, match="there is no metric 'x'"):
        metrics(tmp_path / "new", names=["x"], **given)
    page = tmp_path / "report.html"
    directory = broker.directory / "data"
    broker.stop()
    figures = report(page, directory=directory, metrics=windows, engine="local").figures.metrics
    assert figures is not None and figures.lost_samples == last.lost_samples
    told_figures = json.loads(page.with_suffix(".json").read_text())["metrics"]
    assert [chart["title"] for chart in told_figures["charts"]][:2] == [
        "Messages by state over time",
        "Rates over time",
    ]
    assert "Rates over time" in page.read_text()


def test_windows_may_be_a_delta_table(
    spark: "SparkSession", http_node: HttpNode, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake")
    if http_node.node.process is None:
        http_node.start()
    given: dict[str, Any] = {
        "uri": http_node.node.uri,
        "window_s": 1,
        "late_s": 0,
        "format": "delta",
        "names": ["connections"],
        "spark": spark,
    }
    target = tmp_path / "delta"
    metrics(target, **given)
    metrics(target, **given)
    table = deltalake.DeltaTable(str(target)).to_pyarrow_table()
    assert set(table["metric"].to_pylist()) == {"connections"}
    starts = table["start"].to_pylist()
    assert starts and len(set(starts)) == len(starts)
