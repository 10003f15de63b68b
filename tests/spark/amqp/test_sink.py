"""Tests writing to brokers through AMQP alone, without Spark: to warren or the real RabbitMQ."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from bench.brokers import RabbitmqBroker
from tests.support.awaiting import eventually
from tests.support.brokers.other_brokers import (
    OtherBroker,
    channel_to,
    message_count,
    queue_on,
    running,
)
from tests.support.brokers.process import BrokerProcess
from tests.support.skips import does_not_apply
from warrenmq.spark.amqp import connection as amqp_connection
from warrenmq.spark.amqp import publisher as amqp_publisher
from warrenmq.spark.amqp.options import AmqpSinkOptions, parse_amqp_sink
from warrenmq.spark.amqp.publisher import publisher_for
from warrenmq.spark.amqp.writer import publish
from warrenmq.spark.retry import SourceError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

ROOT = Path(__file__).parent.parent.parent.parent


def options(broker: OtherBroker, **given: object) -> AmqpSinkOptions:
    common = {"uri": broker.uri, "exchange": "", "retryTimeoutMs": "60000"}
    return parse_amqp_sink(common | {name: str(value) for name, value in given.items()})


def batch(first: int, last: int, **columns: Any) -> Any:
    """A batch of the rows [first, last); a column may be one value for all rows."""
    count = last - first
    arrays = {
        name: value if isinstance(value, pa.Array) else pa.array([value] * count)
        for name, value in columns.items()
    }
    return pa.RecordBatch.from_pydict(
        {"body": pa.array([f"m{n}" for n in range(first, last)]), **arrays}
    )


def drained(broker: OtherBroker, queue: str) -> list[tuple[Any, pika.BasicProperties, bytes]]:
    found = []
    with channel_to(broker) as channel:
        count = channel.queue_declare(queue, passive=True).method.message_count
        for got in channel.consume(queue, auto_ack=True):
            found.append(got)
            if len(found) == count:
                break
        channel.cancel()
    return found


def test_rows_become_messages_with_derived_ids(broker: OtherBroker, queue: str) -> None:
    """Messages are in order and persistent, and have the values of the columns."""
    batches = [batch(0, 300, type="t"), batch(300, 500, type="t")]
    assert publish(options(broker, routingKey=queue), iter(batches), "sink/7/2").messages == 500
    found = drained(broker, queue)
    assert [body for _, _, body in found] == [b"m%d" % number for number in range(500)]
    assert [properties.message_id for _, properties, _ in found] == [
        f"sink/7/2/{n}" for n in range(500)
    ]
    assert {(properties.delivery_mode, properties.type) for _, properties, _ in found} == {(2, "t")}


def test_bodies_of_every_size(broker: OtherBroker, queue: str) -> None:
    """A body may be empty, fill exactly one frame, or take many frames."""
    frame = 131072
    bodies = [b"", b"x", bytes(frame - 8), bytes(frame - 7), os.urandom(3_000_000)]
    rows = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    publish(options(broker, routingKey=queue), iter([rows]), "s")
    assert [body for _, _, body in drained(broker, queue)] == bodies


def test_a_process_with_many_open_files(broker: OtherBroker, queue: str) -> None:
    """The connection's descriptor may be 1,024 or higher, and the broker slower than the task."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    with contextlib.ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while files.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        rows = pa.RecordBatch.from_pydict({"body": pa.array([bytes(20_000_000)], pa.binary())})
        assert publish(options(broker, routingKey=queue), iter([rows]), "s").messages == 1
        connection = publisher_for(options(broker, routingKey=queue))._connection
        assert connection is not None and connection._socket.fileno() > 1024
    assert message_count(broker, queue) == 1


def test_nothing_is_connected_for_no_rows() -> None:
    unreachable = parse_amqp_sink(
        {"uri": "amqp://127.0.0.1:1", "exchange": "", "retryTimeoutMs": "0"}
    )
    assert publish(unreachable, iter([]), "s").messages == 0
    with pytest.raises(SourceError, match=r"given up after 0 s \(retryTimeoutMs\): no connection"):
        publish(unreachable, iter([batch(0, 1)]), "s")


def test_messages_without_a_queue_are_an_error_unless_they_may_be_dropped(
    broker: OtherBroker,
) -> None:
    with pytest.raises(
        SourceError, match=r"no queue takes .* exchange '' with routing key 'nobody' \(NO_ROUTE\)"
    ):
        publish(options(broker, routingKey="nobody"), iter([batch(0, 10)]), "s")
    publish(options(broker, routingKey="nobody", mandatory="ignore"), iter([batch(0, 10)]), "s")


def test_a_missing_exchange_is_an_error_and_the_next_task_is_fine(
    broker: OtherBroker, queue: str
) -> None:
    with pytest.raises(SourceError, match="NOT_FOUND - no exchange 'nowhere'"):
        publish(options(broker, exchange="nowhere"), iter([batch(0, 10)]), "s")
    publish(options(broker, routingKey=queue), iter([batch(0, 10)]), "s")
    assert message_count(broker, queue) == 10


def test_rows_that_cannot_be_computed_leave_no_debt(broker: OtherBroker, queue: str) -> None:
    def failing() -> Iterator[Any]:
        yield batch(0, 100)
        raise ZeroDivisionError

    chosen = options(broker, routingKey=queue)
    with pytest.raises(ZeroDivisionError):
        publish(chosen, failing(), "s/0/0")
    assert publish(chosen, iter([batch(0, 5)]), "s/1/0").messages == 5


def test_one_connection_serves_many_tasks(broker: OtherBroker, queue: str) -> None:
    chosen = options(broker, routingKey=queue)
    publish(chosen, iter([batch(0, 5)]), "s")
    connection = publisher_for(chosen)._connection
    assert connection is not None
    publish(chosen, iter([batch(5, 10)]), "s")
    assert publisher_for(chosen)._connection is connection
    # The broker may have closed the connection between two tasks.
    connection._socket.shutdown(2)
    publish(chosen, iter([batch(10, 15)]), "s")
    assert [body for _, _, body in drained(broker, queue)] == [
        b"m%d" % number for number in range(15)
    ]


def test_a_window_of_one_is_enough(
    broker: OtherBroker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_publisher, "WINDOW_MESSAGES", 1)
    monkeypatch.setattr(amqp_publisher, "WRITE_BYTES", 1)
    publish(options(broker, routingKey=queue), iter([batch(0, 50)]), "s")
    assert message_count(broker, queue) == 50


def test_a_full_queue_that_refuses_is_waited_for(broker: OtherBroker) -> None:
    """Refused messages are sent again when there is room, for retryTimeoutMs."""
    if isinstance(broker, BrokerProcess):
        does_not_apply("warren has no queues with a limit yet")
    with channel_to(broker) as channel:
        arguments = {"x-max-length": 20, "x-overflow": "reject-publish"}
        name = channel.queue_declare("", durable=True, arguments=arguments).method.queue
    with pytest.raises(
        SourceError, match=r"given up after 0.5 s .* refuses messages with basic.nack"
    ):
        publish(options(broker, routingKey=name, retryTimeoutMs=500), iter([batch(0, 100)]), "s")
    stopped = threading.Event()
    found: list[bytes] = []

    def consume() -> None:
        with channel_to(broker) as channel:
            while (
                not stopped.is_set()
                or channel.queue_declare(name, passive=True).method.message_count
            ):
                body = channel.basic_get(name, auto_ack=True)[2]
                if body is not None:
                    found.append(body)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        publish(options(broker, routingKey=name), iter([batch(0, 200)]), "s")
    finally:
        stopped.set()
        consumer.join()
        with channel_to(broker) as channel:
            channel.queue_delete(name)
    assert set(found) >= {b"m%d" % number for number in range(200)}


class LeapingClock:
    """Replaces `time` in the publisher; tests can put it forward."""

    ahead_s = 0.0
    sleep = staticmethod(time.sleep)

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead_s


def test_a_broker_that_blocks_publishers_is_waited_for(
    rabbitmq: RabbitmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher waits while a broker blocks publishers, however long the alarm lasts."""
    clock = LeapingClock()
    monkeypatch.setattr(amqp_publisher, "time", clock)
    running(rabbitmq)
    with queue_on(rabbitmq) as queue:
        chosen = options(rabbitmq, routingKey=queue)
        publish(chosen, iter([batch(0, 10)]), "s")
        publisher = publisher_for(chosen)
        rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1000")
        try:
            done = threading.Thread(target=publish, args=(chosen, iter([batch(10, 5000)]), "s"))
            done.start()
            eventually(lambda: publisher._was_blocked, "the alarm")
            # An hour passes, and the publisher checks its time-out again.
            clock.ahead_s = 3600.0
            leapt_s = clock.monotonic()
            eventually(
                lambda: publisher._progress_s >= leapt_s or not done.is_alive(),
                "a look at the clock",
            )
            assert done.is_alive()
            assert message_count(rabbitmq, queue) < 5000
        finally:
            rabbitmq.control("set_vm_memory_high_watermark", "0.4")
        done.join(60)
        assert not done.is_alive()
        assert message_count(rabbitmq, queue) == 5000


def test_a_broker_that_hangs_is_given_up(
    warren_node: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that accepts connections and bytes and never answers ends the write."""
    running(warren_node)
    with queue_on(warren_node) as queue:
        chosen = options(warren_node, routingKey=queue, retryTimeoutMs=1000)
        assert warren_node.process is not None
        publish(chosen, iter([batch(0, 1)]), "s")
        warren_node.process.send_signal(signal.SIGSTOP)
        try:
            with (
                # Shorten the time-out only while the broker is stopped: a slow one gets its time.
                monkeypatch.context() as patch,
                pytest.raises(
                    SourceError, match=r"given up after 1 s .* did not answer within 0\.3 s"
                ),
            ):
                patch.setattr(amqp_connection, "REPLY_TIMEOUT_S", 0.3)
                publish(chosen, iter([pa.RecordBatch.from_pydict({"body": [bytes(1 << 25)]})]), "s")
        finally:
            warren_node.process.send_signal(signal.SIGCONT)
        publish(chosen, iter([batch(1, 2)]), "s")


@pytest.mark.kill
@pytest.mark.slow
def test_every_row_arrives_while_worker_and_broker_are_killed(
    broker: OtherBroker, queue: str
) -> None:
    """A repeated task publishes the same ids; without duplicates of ids each row is there once."""
    rows = 20_000
    code = (
        "import sys, pyarrow as pa\n"
        "from warrenmq.spark.amqp.options import parse_amqp_sink\n"
        "from warrenmq.spark.amqp.writer import publish\n"
        "options = parse_amqp_sink({'uri': sys.argv[1], 'exchange': '', 'routingKey': sys.argv[2]})\n"
        f"batches = [pa.RecordBatch.from_pydict({{'body': [str(n) for n in range(s, s + 1000)]}}) for s in range(0, {rows}, 1000)]\n"
        "print('ready', flush=True)\n"
        "print(publish(options, iter(batches), 'sink/3/0').messages, flush=True)\n"
    )

    def start() -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", code, broker.uri, queue]
        task = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert task.stdout is not None
        assert task.stdout.readline() == "ready\n"
        return task

    task = start()
    time.sleep(0.15)
    os.kill(task.pid, signal.SIGKILL)
    task.wait()
    task = start()
    time.sleep(0.1)
    broker.kill()
    broker.start()
    assert task.stdout is not None
    printed = task.stdout.read()
    if not printed and isinstance(broker, RabbitmqBroker):
        # RabbitMQ takes clients before all its queues are back, and says that it has no route.
        # Spark repeats a task that fails.
        task.wait()
        task = start()
        assert task.stdout is not None
        printed = task.stdout.read()
    assert printed == f"{rows}\n"
    assert task.wait(60) == 0
    found = drained(broker, queue)
    assert len(found) >= rows
    by_id = {properties.message_id: body for _, properties, body in found}
    assert by_id == {f"sink/3/0/{number}": b"%d" % number for number in range(rows)}
