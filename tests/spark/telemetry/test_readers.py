"""The readers of telemetry, called in the order in which Spark calls them, at a real node."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.datasource import DataSource

from tests.spark.telemetry.queries import Offset, Query, Row, rows
from tests.support.awaiting import eventually
from tests.support.brokers.node_thread import NodeThread
from warrenmq.admin.client.client import AdminClient, NodeAddress
from warrenmq.admin.protocol.control import AddUser, Done, SetPermissions, SetTracing
from warrenmq.admin.protocol.samples import SAMPLES_BYTES_MAX
from warrenmq.admin.sampling import ring
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import SourceError
from warrenmq.spark.telemetry.events import WarrenEventsDataSource
from warrenmq.spark.telemetry.metrics import WarrenMetricsDataSource

INTERVAL_MS = 200


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeThread]:
    running = NodeThread(tmp_path, f"collect_statistics_interval={INTERVAL_MS}")
    yield running
    running.stop()


def on(node: NodeThread) -> tuple[pika.BlockingConnection, BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(node.uri))
    return connection, connection.channel()


def events_of(node: NodeThread, **options: str) -> Callable[[], WarrenEventsDataSource]:
    given = {"uri": node.uri, "group": "g", "longPollMs": "0", "retryTimeoutMs": "0"} | options
    return lambda: WarrenEventsDataSource(given)


def test_each_event_comes_once_whatever_dies_between(node: NodeThread) -> None:
    """A batch that was planned, and read, is read again after a restart, with the same rows."""
    make = events_of(node, events="queue.#,user.#")
    done: list[tuple[Offset, list[Row]]] = []
    Query(make(), done).drain()
    connection, channel = on(node)
    for number in range(7):
        channel.queue_declare(f"q{number}", durable=number % 2 == 0)
    dying = Query(make(), done)
    end = dying.planned()
    first = dying.read(end)
    assert first
    again = Query(make(), done)
    assert again.read(end) == first
    done.append((end, first))
    again.drain()
    found = [row for _, batch in done for row in batch]
    assert [row["seq"] for row in found] == sorted({row["seq"] for row in found})
    created = [row for row in found if row["event"] == "queue.created"]
    assert [row["name"] for row in created if row["user"] == "guest"] == [
        f"q{number}" for number in range(7)
    ]
    name = node.node.broker.settings.node_name
    assert {(row["node"], row["vhost"], row["body"]) for row in created} == {(name, "/", None)}
    assert json.loads(dict(created[-1]["fields"])["durable"]) is True
    (login,) = [row for row in found if row["event"] == "user.authentication.success"]
    assert (login["user"], login["vhost"]) == ("guest", None)
    connection.close()
    assert (
        node.call(lambda: node.node.broker.vhosts[b"/"].queues[b"warren.events.g"].ready_count) == 0
    )


def test_the_firehose_comes_as_events_with_bodies(node: NodeThread) -> None:
    make = events_of(node, events="user.created", firehose="publish.#,deliver.#")
    done: list[tuple[Offset, list[Row]]] = []
    Query(make(), done).drain()
    with AdminClient(NodeAddress(node.uri)) as client:
        client.request(SetTracing(vhost="/", is_on=True), Done)
    connection, channel = on(node)
    channel.queue_declare("q")
    channel.basic_publish("amq.direct", "k", b"nowhere")
    channel.basic_publish("", "q", b"body")
    channel.basic_get("q", auto_ack=True)
    connection.close()
    found = Query(make(), done).drain()
    assert [(row["event"], row["name"], row["body"]) for row in found] == [
        ("message.published", "amq.direct", b"nowhere"),
        ("message.published", "", b"body"),
        ("message.delivered", "q", b"body"),
    ]
    fields = dict(found[-1]["fields"])
    assert (found[-1]["user"], fields["routing_keys"]) == ("guest", '["q"]')


def metrics_of(node: NodeThread, **options: str) -> WarrenMetricsDataSource:
    return WarrenMetricsDataSource({"uri": node.uri, "retryTimeoutMs": "0"} | options)


def keys(found: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["time"], row["queue"], row["group"], row["metric"]) for row in found]


def test_metrics_are_read_once_and_add_up(node: NodeThread) -> None:
    done: list[tuple[Offset, list[Row]]] = []
    Query(metrics_of(node), done).drain()
    connection, channel = on(node)
    channel.queue_declare("q", durable=True)
    channel.confirm_delivery()
    for _ in range(12):
        channel.basic_publish("", "q", b"body")
    dying = Query(metrics_of(node), done)
    end = dying.planned()
    first = dying.read(end)
    again = Query(metrics_of(node), done)
    assert again.read(end) == first
    done.append((end, first))
    again.drain()
    connection.close()
    found = [row for _, batch in done for row in batch]
    assert len(set(keys(found))) == len(found)
    of_queue = [row for row in found if row["queue"] == "q"]
    grown = [row["increase"] for row in of_queue if row["metric"] == "publish"]
    assert sum(grown) == 12
    last = {row["metric"]: row["value"] for row in of_queue}
    assert (last["messages_ready"], last["messages_alpha"], last["message_bytes"]) == (12, 12, 48)
    assert "samples_lost" not in {row["metric"] for row in found}
    # A table has a fresh sample, and of it what is asked for.
    reader = metrics_of(node, metrics="messages_ready,syncs").reader(metrics_of(node).schema())
    table = rows(reader, reader.partitions())
    assert {(row["queue"], row["metric"]) for row in table} == {
        (None, "syncs"),
        ("q", "messages_ready"),
    }
    assert table[-1]["value"] == 12 and table[-1]["seconds"] > 0


def test_samples_that_are_gone_are_told(node: NodeThread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples were dropped before they were read; then the node begins anew."""
    done: list[tuple[Offset, list[Row]]] = []
    Query(metrics_of(node), done).drain()
    ring_of = node.node.admin._ring
    monkeypatch.setattr(ring, "SAMPLES_BYTES_MAX", 0)
    last = ring_of._samples[-1].at_ms

    def is_far() -> bool:
        return ring_of._samples[0].at_ms > last + 5 * INTERVAL_MS

    eventually(is_far, "samples are dropped", 0.01)
    monkeypatch.setattr(ring, "SAMPLES_BYTES_MAX", SAMPLES_BYTES_MAX)
    found = Query(metrics_of(node), done).drain()
    (lost,) = [row for row in found if row["metric"] == "samples_lost"]
    assert lost["value"] == lost["increase"] >= 4
    assert lost["time"] == min([row["time"] for row in found])
    # Another run of the node has none of the samples of a planned batch.
    reading = Query(metrics_of(node), done)
    eventually(lambda: reading.planned() != reading.start(), "a sample comes", 0.01)
    end = reading.planned()
    node.call(ring_of._stop)
    (lost,) = reading.read(end)
    assert (lost["metric"], lost["queue"]) == ("samples_lost", None)


@pytest.mark.parametrize(
    ("source", "options", "text"),
    [
        (WarrenEventsDataSource, {}, "option 'group' is missing"),
        (WarrenEventsDataSource, {"group": "g", "event": "#"}, "did you mean events"),
        (WarrenMetricsDataSource, {"metrics": "nothing"}, "'nothing' is none of publish, "),
        (WarrenMetricsDataSource, {"group": "g"}, 'format "warren_metrics" has'),
    ],
)
def test_options_are_refused_in_one_line(
    source: type[DataSource], options: dict[str, str], text: str
) -> None:
    made = source({"uri": "amqp://localhost"} | options)
    with pytest.raises(OptionError, match=text) as error:
        Query(made, []).start()
    assert "\n" not in str(error.value)


def test_what_no_table_has_is_refused(node: NodeThread) -> None:
    source = events_of(node)()
    with pytest.raises(OptionError, match="streams only"):
        source.reader(source.schema())
    with pytest.raises(OptionError, match="'longPollMs' is for streams"):
        metrics_of(node, longPollMs="1").reader(metrics_of(node).schema())


def test_a_user_without_the_tag_gets_no_telemetry(node: NodeThread) -> None:
    with AdminClient(NodeAddress(node.uri)) as client:
        client.request(AddUser(name="low", password="low"), Done)
        rights = SetPermissions(vhost="/", user="low", configure=".*", write=".*", read=".*")
        client.request(rights, Done)
    uri = node.uri.replace("guest:guest", "low:low")
    for source in (events_of(node, uri=uri)(), metrics_of(node, uri=uri)):
        with pytest.raises(SourceError, match="for users with the tag monitoring"):
            Query(source, []).drain()
