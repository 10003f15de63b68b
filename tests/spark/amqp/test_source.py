"""Tests reading from brokers through AMQP alone, without Spark: from warren or real RabbitMQ."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pika
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from tests.support.awaiting import eventually
from tests.support.brokers.other_brokers import (
    OtherBroker,
    channel_to,
    consumer_count,
    fill,
    message_count,
)
from warrenmq.admin.client.client import NodeAddress
from warrenmq.spark.amqp.connection import AmqpConnection
from warrenmq.spark.amqp.options import parse_amqp_source
from warrenmq.spark.amqp.stream_reader import AmqpStreamReader
from warrenmq.spark.columns import default_schema
from warrenmq.spark.retry import SourceError
from warrenmq.spark.streams.lag import lag_of
from warrenmq.wire.methods import BasicQos, BasicQosOk

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent.parent


class Stream:
    """A query's reader, and the rows of its batches."""

    def __init__(
        self,
        broker: OtherBroker,
        queue: str,
        directory: Path,
        drains: bool = False,
        **options: object,
    ) -> None:
        given = {
            "uri": broker.uri,
            "queue": queue,
            "spoolDir": str(directory / "spool"),
            # A message or a failure ends the wait early.
            "longPollMs": "60000",
        }
        parsed = parse_amqp_source(given | {name: str(value) for name, value in options.items()})
        self.reader = AmqpStreamReader(parsed, default_schema(True, True))
        if drains:
            self.reader.prepareForTriggerAvailableNow()
        self.start = self.reader.initialOffset()
        self.rows: list[dict[str, Any]] = []

    def batch(self, messages_max: int = 100_000) -> int:
        """Run one batch, if a message comes within the long poll; returns how many rows it has."""
        end = self.reader.latestOffset(self.start, ReadMaxRows(messages_max))
        found = self.read(self.start, end)
        self.rows += found
        self.start = end
        return len(found)

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            row
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]

    def until(self, count: int) -> None:
        deadline = time.monotonic() + 60
        while len(self.rows) < count:
            assert time.monotonic() < deadline, len(self.rows)
            self.batch()

    def spooled(self, count: int) -> None:
        """Wait until `count` messages are in the spool."""
        deadline = time.monotonic() + 60
        while (self.reader.reportLatestOffset() or {}).get("pos") != count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def bodies(self) -> list[str]:
        return [row["body"].decode() for row in self.rows]


def expected(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


def acked(broker: OtherBroker, queue: str) -> None:
    """Wait until the broker says that the queue has no messages, not even unacked ones."""
    deadline = time.monotonic() + 60
    with channel_to(broker) as channel:
        while True:
            try:
                channel.queue_delete(queue, if_empty=True)
                channel.queue_declare(queue, durable=True)
                return
            except pika.exceptions.ChannelClosedByBroker:
                assert time.monotonic() < deadline
                channel = channel.connection.channel()


def test_messages_arrive_once_in_order_with_their_properties(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    fill(broker, queue, 500)
    stream = Stream(broker, queue, tmp_path, prefetch=70)
    stream.until(500)
    fill(broker, queue, 100, 500)
    stream.until(600)
    assert stream.bodies == expected(600)
    row = stream.rows[7]
    assert (row["seq"], row["queue"], row["vhost"], row["message_id"]) == (7, queue, "/", "7")
    assert (row["exchange"], row["routing_key"], row["persistent"]) == ("", queue, True)
    # The header table as pika has sent it, with its types.
    assert row["headers_raw"] == b"\x01nI\x00\x00\x00\x07"
    stream.reader.stop()
    assert message_count(broker, queue) == 0


def test_offsets_are_canonical_and_bounded(broker: OtherBroker, queue: str, tmp_path: Path) -> None:
    fill(broker, queue, 300)
    stream = Stream(broker, queue, tmp_path)
    assert stream.reader.initialOffset() == stream.start
    stream.spooled(300)
    assert stream.batch(120) == 120
    behind = stream.reader.reportLatestOffset()
    assert behind is not None and behind["lag"] == {"messages": 180}
    assert list(stream.start) == ["pos", "spool", "v"]
    assert stream.start["pos"] == 120
    end = stream.reader.latestOffset(stream.start, ReadAllAvailable())
    assert end["pos"] == 300
    reported = stream.reader.reportLatestOffset()
    assert reported is not None and reported | end == reported
    (lag,) = lag_of({"sources": [{"latestOffset": json.dumps(reported)}]})
    assert lag.messages == 0 and lag.source.startswith(f"amqp: queue {queue} of vhost / at ")
    assert stream.reader.partitions(end, end) == []
    stream.reader.stop()


def test_a_batch_that_was_not_committed_is_read_again(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """The next process reads an uncommitted batch again, although it was acked to the broker."""
    fill(broker, queue, 200)
    stream = Stream(broker, queue, tmp_path)
    stream.spooled(200)
    assert stream.batch() == 200
    end = stream.start
    stream.reader.stop()
    assert message_count(broker, queue) == 0
    again = Stream(broker, queue, tmp_path)
    # Nothing was committed, so the initial offset is the same.
    assert again.start["pos"] == 0
    assert [row["body"].decode() for row in again.read(again.start, end)] == expected(200)
    again.reader.commit(end)
    again.reader.stop()
    third = Stream(broker, queue, tmp_path, longPollMs=0)
    assert third.start == end
    assert third.batch() == 0
    third.reader.stop()


def test_available_now_ends_at_what_was_there(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """A run reads all messages that were there at its start, and no message that arrives later.

    Later messages are left to the next run and to other consumers.
    """
    fill(broker, queue, 250)
    stream = Stream(broker, queue, tmp_path, drains=True)
    stream.spooled(250)
    fill(broker, queue, 50, 250)
    sizes = []
    while size := stream.batch(100):
        sizes.append(size)
    assert sizes == [100, 100, 50]
    stream.reader.stop()
    # Unread deliveries are requeued when the connection ends; the reader does not wait long for
    # that.
    eventually(lambda: message_count(broker, queue) == 50, "the unread ones back in the queue")
    rest = Stream(broker, queue, tmp_path, drains=True)
    rest.start = stream.start
    while rest.batch(1000):
        pass
    assert stream.bodies + rest.bodies == expected(300)
    rest.reader.stop()


def test_available_now_ends_when_others_take_the_rest(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    fill(broker, queue, 100)
    stream = Stream(broker, queue, tmp_path, drains=True, prefetch=1, spoolMaxBytes=1024 * 1024)
    taken = []
    with channel_to(broker) as channel:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            taken.append(got[2].decode())
    while stream.batch(1000):
        pass
    # Each message went to one of the two consumers, and to each in order.
    assert sorted(stream.bodies + taken) == sorted(expected(100))
    assert [body for body in expected(100) if body in stream.bodies] == stream.bodies
    stream.reader.stop()


def test_a_full_spool_stops_consuming_until_spark_commits(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    body = bytes(20_000)
    with channel_to(broker) as channel:
        for _ in range(200):
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    stream = Stream(broker, queue, tmp_path, spoolMaxBytes=1024 * 1024, prefetch=10)
    files = tmp_path / "spool"
    eventually(
        lambda: sum(path.stat().st_size for path in files.glob("*.wal")) >= 1024 * 1024,
        "a full spool",
    )
    # The consumer is cancelled, so the broker delivers nothing more.
    eventually(lambda: consumer_count(broker, queue) == 0, "no consumer")
    # The spool took 1 MiB, the deliveries that were under way, and a batch.
    assert 200 - 90 < message_count(broker, queue) < 200 - 45
    stream.until(200)
    assert {len(row["body"]) for row in stream.rows} == {20_000}
    stream.reader.stop()


def test_a_queue_that_is_deleted_ends_the_query_after_what_was_received(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    fill(broker, queue, 20)
    stream = Stream(broker, queue, tmp_path)
    stream.spooled(20)
    with channel_to(broker) as channel:
        channel.queue_delete(queue)
    stream.batch()
    assert stream.bodies == expected(20)
    with pytest.raises(SourceError, match=r"has cancelled the consumer .* the queue was deleted"):
        stream.batch()
    stream.reader.stop()
    again = Stream(broker, queue, tmp_path)
    with pytest.raises(SourceError, match="NOT_FOUND - no queue"):
        again.batch()
    again.reader.stop()


def test_a_login_that_is_refused_is_final(broker: OtherBroker, queue: str, tmp_path: Path) -> None:
    given = {"uri": broker.uri.replace("guest:guest", "guest:geheim"), "queue": queue}
    given |= {"spoolDir": str(tmp_path / "spool"), "longPollMs": "60000"}
    reader = AmqpStreamReader(parse_amqp_source(given), default_schema(True, True))
    with pytest.raises(SourceError, match="ACCESS_REFUSED") as caught:
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert "geheim" not in str(caught.value)
    reader.stop()


def test_redelivered_messages_are_dropped_when_asked(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """A known message-id with the redelivered flag is dropped; without the flag it is kept."""
    fill(broker, queue, 20)
    stream = Stream(broker, queue, tmp_path, deduplicate="redelivered")
    stream.until(20)
    stream.reader.stop()
    # As after a lost ack, the messages are in the spool and are delivered again with the flag.
    fill(broker, queue, 30)
    with channel_to(broker) as channel:
        for number in range(25):
            method, _, _ = channel.basic_get(queue)
            assert method is not None, number
        channel.basic_nack(0, multiple=True, requeue=True)
    again = Stream(broker, queue, tmp_path, deduplicate="redelivered")
    again.start = stream.start
    again.until(10)
    assert sorted(row["message_id"] for row in again.rows) == sorted(str(n) for n in range(20, 30))
    again.reader.stop()
    acked(broker, queue)


def test_ids_that_come_twice_are_dropped_when_asked(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """A repeated id is dropped, whether the first message is in the spool or still in the batch.

    Messages without an id are all different.
    """
    with channel_to(broker) as channel:
        for message_id in ("a", "a", "b", None, None, "a"):
            channel.basic_publish("", queue, b"x", pika.BasicProperties(message_id=message_id))
    stream = Stream(broker, queue, tmp_path, drains=True, deduplicate="message-id")
    while stream.batch():
        pass
    assert [row["message_id"] for row in stream.rows] == ["a", "b", None, None]
    stream.reader.stop()
    acked(broker, queue)
    with channel_to(broker) as channel:
        for message_id in ("b", "c"):
            channel.basic_publish("", queue, b"x", pika.BasicProperties(message_id=message_id))
    again = Stream(broker, queue, tmp_path, drains=True, deduplicate="message-id")
    again.start = stream.start
    while again.batch():
        pass
    assert [row["message_id"] for row in again.rows] == ["c"]
    again.reader.stop()


def test_heartbeats_are_sent_while_nothing_comes(broker: OtherBroker) -> None:
    """Heartbeats are sent while idle: a broker that hears nothing for two intervals closes.

    The intervals are long, because a busy machine may stand still for one.
    """
    connection = AmqpConnection(NodeAddress(broker.uri), "a test", 3)
    assert wait_for_s(connection, 12.0) >= 12.0
    connection.call(BasicQos(prefetch_count=1), BasicQosOk)
    connection.close()


def wait_for_s(connection: AmqpConnection, seconds: float) -> float:
    """Read what arrives for `seconds`, such as heartbeats; returns how long it took."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        connection.wait(begin + seconds - time.monotonic())
        assert connection.next_event() is None
    return time.monotonic() - begin


def test_nobody_answers(tmp_path: Path) -> None:
    given = {
        "uri": "amqp://127.0.0.1:1",
        "queue": "q",
        "spoolDir": str(tmp_path),
        "retryTimeoutMs": "300",
    }
    reader = AmqpStreamReader(
        parse_amqp_source(given | {"longPollMs": "60000"}), default_schema(True, True)
    )
    with pytest.raises(
        SourceError, match=r"given up after 0.3 s \(retryTimeoutMs\): no connection to 127.0.0.1:1"
    ):
        reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    reader.stop()


def test_another_spool_is_data_loss(broker: OtherBroker, queue: str, tmp_path: Path) -> None:
    fill(broker, queue, 20)
    stream = Stream(broker, queue, tmp_path)
    stream.until(20)
    stream.reader.stop()
    fill(broker, queue, 5, 20)
    lost = Stream(broker, queue, tmp_path / "other")
    with pytest.raises(SourceError, match="data loss: the checkpoint was made with another spool"):
        lost.reader.latestOffset(stream.start, ReadMaxRows(10))
    lost.reader.stop()
    # The messages are in the new spool, or will arrive there.
    lenient = Stream(broker, queue, tmp_path / "other", failOnDataLoss="false")
    lenient.start = stream.start
    lenient.until(5)
    assert lenient.bodies == expected(25)[20:]
    lenient.reader.stop()


def test_an_old_checkpoint_is_data_loss(broker: OtherBroker, queue: str, tmp_path: Path) -> None:
    """An old copy of a checkpoint is data loss: messages that were committed since are deleted."""
    body = bytes(10_000)
    with channel_to(broker) as channel:
        for _ in range(100):
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
    stream = Stream(broker, queue, tmp_path, spoolMaxBytes=1024 * 1024, prefetch=10)
    old = stream.start
    stream.until(100)
    stream.reader.commit(stream.start)
    with pytest.raises(
        SourceError, match=r"data loss: messages from 0 to [0-9]+ are not in the spool"
    ):
        stream.reader.partitions(old, stream.start)
    stream.reader.stop()
    lenient = Stream(broker, queue, tmp_path, spoolMaxBytes=1024 * 1024, failOnDataLoss="false")
    assert 0 < len(lenient.read(old, stream.start)) < 100
    lenient.reader.stop()


def test_a_spool_that_is_an_old_copy_is_data_loss(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """With accepted loss the stream goes back to the spool's start and loses no later message."""
    fill(broker, queue, 20)
    stream = Stream(broker, queue, tmp_path)
    stream.until(20)
    stream.reader.commit(stream.start)
    stream.reader.stop()
    beyond = stream.start | {"pos": 1000}
    fill(broker, queue, 5, 20)
    strict = Stream(broker, queue, tmp_path)
    with pytest.raises(
        SourceError, match=r"data loss: messages from [0-9]+ to 1000 are not in the spool"
    ):
        strict.reader.latestOffset(beyond, ReadMaxRows(10))
    strict.reader.stop()
    lenient = Stream(broker, queue, tmp_path, failOnDataLoss="false")
    lenient.spooled(25)
    lenient.start = beyond
    assert lenient.batch() == 0
    assert lenient.start == stream.start
    assert lenient.read(beyond, lenient.start) == []
    lenient.reader.commit(beyond)
    lenient.until(5)
    assert lenient.bodies == expected(25)[20:]
    lenient.reader.stop()


class Publisher(threading.Thread):
    """Publishes numbered messages with confirms until stopped; retries while the broker is away."""

    def __init__(self, broker: OtherBroker, queue: str) -> None:
        super().__init__()
        self.broker, self.queue = broker, queue
        self.is_stopping = threading.Event()
        self.confirmed: set[str] = set()
        self.published: set[str] = set()

    def run(self) -> None:
        number = 0
        while not self.is_stopping.is_set():
            try:
                with channel_to(self.broker) as channel:
                    while not self.is_stopping.is_set():
                        number += 1
                        text = str(number)
                        self.published.add(text)
                        properties = pika.BasicProperties(delivery_mode=2, message_id=text)
                        channel.basic_publish("", self.queue, text.encode(), properties)
                        self.confirmed.add(text)
                        time.sleep(0.001)
            except (pika.exceptions.AMQPError, OSError):
                time.sleep(0.2)


def start_app(
    broker: OtherBroker, queue: str, directory: Path, *arguments: str
) -> "subprocess.Popen[bytes]":
    with (directory / "app.log").open("a") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.amqp.driver_app",
                broker.uri,
                queue,
                str(directory),
                *arguments,
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )


def batches(directory: Path) -> int:
    return sum(path.name.isdigit() for path in (directory / "commits").glob("*"))


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_exactly_once_while_driver_and_broker_are_killed(
    broker: OtherBroker, queue: str, tmp_path: Path
) -> None:
    """Rounds of SIGKILL at random moments, then a run to the end: each confirmed message once.

    WARREN_SPARK_KILLS sets the number of rounds.
    """
    rounds = int(os.environ.get("WARREN_SPARK_KILLS", "2"))
    chance = random.Random(11)
    publisher = Publisher(broker, queue)
    publisher.start()
    try:
        for number in range(rounds):
            before = batches(tmp_path)
            app = start_app(broker, queue, tmp_path)
            try:
                deadline = time.monotonic() + 120
                while batches(tmp_path) < before + 3:
                    assert app.poll() is None, (tmp_path / "app.log").read_text()[-4000:]
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                if number % 2:
                    broker.kill()
                    broker.start()
                time.sleep(chance.uniform(0, 1))
            finally:
                app.kill()
                app.wait()
        # How many messages are confirmed at this point depends on the disk.
        eventually(lambda: len(publisher.confirmed) > 200, "200 confirms")
        publisher.is_stopping.set()
        publisher.join()
        app = start_app(broker, queue, tmp_path, "once")
        assert app.wait(120) == 0, (tmp_path / "app.log").read_text()[-4000:]
    finally:
        publisher.is_stopping.set()
        if publisher.is_alive():
            publisher.join()
    found = [
        text
        for path in (tmp_path / "out").glob("*")
        if path.name.isdigit()
        for text in path.read_text().splitlines()
    ]
    assert len(found) == len(set(found))
    assert publisher.confirmed <= set(found) <= publisher.published
    assert len(found) > 200
    assert list(json.loads((tmp_path / "offsets" / "0").read_text())) == ["pos", "spool", "v"]
