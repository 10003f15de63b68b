"""Tests writing with the data source "warren" against a broker, without a JVM."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pika
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tests.support.brokers.process import BrokerProcess
from warrenmq.admin.client.client import (
    AdminClient,
    AdminRefusedError,
    NodeAddress,
    NodeUnreachableError,
    ReplyType,
)
from warrenmq.admin.protocol.requests import STAGE_BYTES, Request
from warrenmq.admin.protocol.sinks import (
    DeleteSink,
    DescribeSink,
    ListSinks,
    SinkDeleted,
    SinkList,
    SinkStatus,
)
from warrenmq.spark.options import OptionError
from warrenmq.spark.retry import BrokerAwayError, SourceError
from warrenmq.spark.sinks import nodes, sink
from warrenmq.spark.sinks.blocks import BlockMaker
from warrenmq.spark.sinks.commit import commit
from warrenmq.spark.sinks.options import SinkOptions, parse_sink_options
from warrenmq.spark.sinks.sink import WarrenBatchWriter, WarrenStreamWriter
from warrenmq.spark.sinks.staging import StagedRows, stage_rows
from warrenmq.spark.sinks.task_failure import TaskFailed
from warrenmq.spark.source import WarrenDataSource
from warrenmq.store.records.publish_body import decode_message
from warrenmq.wire.properties import decode_properties

SCHEMA = StructType([StructField("body", BinaryType()), StructField("routing_key", StringType())])


def succeeded(result: WriterCommitMessage) -> StagedRows:
    """The result of a task, which must not be a failure."""
    assert isinstance(result, StagedRows), result
    return result


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def decoded(blocks: Iterator[tuple[int, memoryview]]) -> list[tuple[bytes, bytes, bytes]]:
    """(address, properties, body) of each message."""
    found: list[tuple[bytes, bytes, bytes]] = []
    for count, block in blocks:
        data = bytes(block)
        at = 0
        before = len(found)
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            message = decode_message(data, at + 4, end)
            assert message is not None
            found.append((message.address, message.properties, message.body))
            at = end
        assert len(found) - before == count
    return found


def test_blocks_have_the_messages() -> None:
    rows = batch(body=[b"a", b"", b"ccc"], routing_key=["k", None, "l"])
    found = decoded(BlockMaker("x", None, True).blocks(rows))
    assert [(address, body) for address, _, body in found] == [
        (b"\x01x\x01k", b"a"),
        (b"\x01x\x00", b""),
        (b"\x01x\x01l", b"ccc"),
    ]
    assert {properties for _, properties, _ in found} == {b"\x10\x00\x02"}
    sliced = decoded(BlockMaker("x", "same", False).blocks(rows.slice(1)))
    assert sliced == [(b"\x01x\x04same", b"\x00\x00", b""), (b"\x01x\x04same", b"\x00\x00", b"ccc")]


def test_blocks_have_properties_of_columns() -> None:
    rows = batch(
        body=["text", "more"],
        message_id=["1", None],
        persistent=[None, False],
        headers=pa.array([[("n", "1")], None], pa.map_(pa.string(), pa.string())),
        seq=[1, 2],
    )
    first, second = decoded(BlockMaker("", "q", True).blocks(rows))
    properties = decode_properties(first[1])
    assert (properties.message_id, properties.delivery_mode) == (b"1", 2)
    assert properties.headers is not None
    assert decode_properties(second[1]).delivery_mode is None
    assert (first[2], second[2]) == (b"text", b"more")


def test_blocks_are_cut() -> None:
    rows = batch(body=[bytes(STAGE_BYTES // 3)] * 7 + [bytes(3 * STAGE_BYTES), b"end"])
    blocks = list(BlockMaker("", "q", True).blocks(rows))
    assert [count for count, _ in blocks] == [2, 2, 2, 1, 1, 1]
    assert len(decoded(iter(blocks))) == 9
    assert list(BlockMaker("", "q", True).blocks(rows.slice(0, 0))) == []


def test_bodies_must_be_there() -> None:
    with pytest.raises(SourceError, match="'body' has nulls"):
        list(BlockMaker("", "q", True).blocks(batch(body=[b"a", None])))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"queue": "q"}, "unknown option 'queue'"),
        ({"mandatory": "maybe"}, "'mandatory' is one of fail, ignore"),
        ({"deliveryMode": "3"}, "'deliveryMode' is one of persistent, transient"),
        ({"sinkId": "a/b"}, "option 'sinkId'"),
        ({"routingKey": "k" * 256}, "option 'routingKey' has at most 255 bytes"),
        ({"confirmTimeoutMs": "soon"}, "option 'confirmTimeoutMs'"),
    ],
)
def test_options_that_cannot_be_honoured(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_sink_options({"uri": "amqp://h", **options})


def test_what_cannot_be_written_is_refused_before_anything_runs() -> None:
    source = WarrenDataSource({"uri": "amqp://h"})
    with pytest.raises(OptionError, match="where to"):
        source.writer(SCHEMA, False)
    source = WarrenDataSource({"uri": "amqp://h", "exchange": "x"})
    with pytest.raises(OptionError, match="overwrite"):
        source.streamWriter(SCHEMA, True)
    with pytest.raises(OptionError, match="unknown column 'bodi'"):
        source.writer(StructType([StructField("bodi", BinaryType())]), False)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    assert broker.stop() == 0


def drained(broker: BrokerProcess, queue: str) -> list[bytes]:
    """The bodies of a queue, which is empty after the call."""
    found: list[bytes] = []
    with pika.BlockingConnection(pika.URLParameters(broker.uri)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        while True:
            method, _, body = channel.basic_get(queue, auto_ack=True)
            if method is None or body is None:
                return found
            found.append(body)


def options_of(broker: BrokerProcess, **given: str) -> SinkOptions:
    return parse_sink_options({"uri": broker.uri, "exchange": "", **given})


def staged(
    options: SinkOptions, name: str, number: int, partition: int, names: list[str]
) -> StagedRows:
    rows = iter([batch(body=names[:1]), batch(body=names[1:])])
    return stage_rows(options, name, number, partition, rows)


def test_partitions_are_published_in_order_and_once(broker: BrokerProcess) -> None:
    assert drained(broker, "order") == []
    options = options_of(broker, routingKey="order")
    second = staged(options, "s", 0, 1, ["c", "d"])
    first = staged(options, "s", 0, 0, ["a", "b"])
    empty = stage_rows(options, "s", 0, 2, iter([]))
    assert empty.stages == {}
    for _ in range(2):
        commit(options, "s", 0, [second, None, first, empty], True)
    again = staged(options, "s", 0, 0, ["a", "b"])
    commit(options, "s", 0, [again], True)
    assert drained(broker, "order") == [b"a", b"b", b"c", b"d"]
    with AdminClient(NodeAddress(broker.uri)) as client:
        assert client.request(ListSinks(), SinkList).sinks == [SinkStatus("s", 0, False, 0, 0, 0)]


def test_refusals_are_told(broker: BrokerProcess) -> None:
    options = options_of(broker, routingKey="nobody")
    part = staged(options, "t", 0, 0, ["a", "b"])
    with pytest.raises(
        SourceError,
        match="2 messages would get to no queue, the first one with routing key 'nobody'",
    ):
        commit(options, "t", 0, [part], True)
    with pytest.raises(SourceError, match="no exchange 'missing'"):
        staged(options_of(broker, exchange="missing"), "t", 0, 0, ["a"])
    away = {"uri": "amqp://localhost:1", "exchange": "", "confirmTimeoutMs": "1"}
    with pytest.raises(
        SourceError, match=r"given up after 0.001 s \(confirmTimeoutMs\): no connection"
    ):
        staged(parse_sink_options(away), "t", 0, 0, ["a"])


def test_a_message_that_is_too_large_is_told(tmp_path: Path) -> None:
    """A message that is too large is not sent.

    The broker would close the connection, and Spark would repeat the task again and again.
    """
    small = BrokerProcess(tmp_path, "max_message_size=2000000")
    small.start()
    try:
        options = options_of(small, routingKey="q")
        for size in (2_000_001, 10_000_000):
            rows = batch(body=[bytes(size)])
            with pytest.raises(SourceError, match="bytes is above max_message_size") as caught:
                stage_rows(options, "s", 0, 0, iter([rows]))
            assert not isinstance(caught.value, BrokerAwayError)
    finally:
        small.kill()


def test_an_error_names_the_option_that_the_user_can_set() -> None:
    options = parse_sink_options(
        {"uri": "amqp://localhost:1", "exchange": "", "confirmTimeoutMs": "10"}
    )
    with pytest.raises(
        SourceError, match=r"given up after 0.01 s \(confirmTimeoutMs\): no connection"
    ):
        commit(options, "s", 0, [], True)


def test_save_is_done_when_its_messages_are_published(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A save succeeds even when its sink, which is not needed any more, cannot be deleted.

    After an error the user would write all rows again.
    """
    assert drained(broker, "saved") == []
    writer = WarrenBatchWriter(options_of(broker, routingKey="saved"))
    part = succeeded(writer.write(iter([batch(body=["a"])])))

    before_delete(monkeypatch, away)
    writer.commit([part])
    monkeypatch.undo()

    def delete() -> None:
        with AdminClient(NodeAddress(broker.uri)) as client:
            client.request(DeleteSink(part.sink), SinkDeleted)

    delete()
    # The sink has been deleted meanwhile.
    writer = WarrenBatchWriter(options_of(broker, routingKey="saved"))
    part = succeeded(writer.write(iter([batch(body=["b"])])))
    before_delete(monkeypatch, delete)
    writer.commit([part])
    assert drained(broker, "saved") == [b"a", b"b"]


def away() -> None:
    raise NodeUnreachableError("no connection")


def before_delete(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Let `act` happen before each request of a writer that deletes its sink."""

    class Client(AdminClient):
        def request(
            self, request: Request, expected: type[ReplyType], wait_s: float = 0.0
        ) -> ReplyType:
            if isinstance(request, DeleteSink):
                monkeypatch.undo()
                act()
            return super().request(request, expected, wait_s)

    monkeypatch.setattr(nodes, "AdminClient", Client)
    monkeypatch.setattr(nodes, "_known", {})


def task_of(monkeypatch: pytest.MonkeyPatch, query: str, number: int, partition: int = 0) -> None:
    """Set the task context as a worker of a streaming query sees it."""
    context = SimpleNamespace(
        partitionId=lambda: partition,
        getLocalProperty={"sql.streaming.queryId": query, "streaming.sql.batchId": str(number)}.get,
    )
    monkeypatch.setattr(sink, "TaskContext", SimpleNamespace(get=lambda: context))


def test_a_stream_whose_batches_begin_anew_is_stopped(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream with a new checkpoint, or an old copy of one, is stopped.

    Its batches have the numbers of old ones and would be left out silently.
    """
    assert drained(broker, "anew") == []
    writer = WarrenStreamWriter(options_of(broker, routingKey="anew", sinkId="anew"))
    for number in range(3):
        task_of(monkeypatch, "first", number)
        part = succeeded(writer.write(iter([batch(body=[f"first {number}"])])))
        writer.commit([part], number)
    assert not caplog.records
    # Spark repeats the last batch after a crash.
    task_of(monkeypatch, "first", 2)
    part = succeeded(writer.write(iter([batch(body=["first 2"])])))
    writer.commit([part], 2)
    assert "batch 2 of sink 'anew' had been published already" in caplog.text
    task_of(monkeypatch, "second", 0)
    part = succeeded(writer.write(iter([batch(body=["second 0"])])))
    with pytest.raises(SourceError, match=r"batch 0 of sink 'anew' .* batch 2 .* checkpoint"):
        writer.commit([part], 0)
    commit(writer._options, "anew", 2, [], True)
    assert drained(broker, "anew") == [b"first 0", b"first 1", b"first 2"]


def test_attempts_of_a_task_that_do_not_count_are_not_published(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages of speculative attempts, and of zombies after the commit, stay unpublished."""
    assert drained(broker, "attempts") == []
    options = options_of(broker, routingKey="attempts")
    writer = WarrenStreamWriter(options)
    task_of(monkeypatch, "attempts", 0)
    speculative = succeeded(writer.write(iter([batch(body=["a"])])))
    counted = succeeded(writer.write(iter([batch(body=["a"])])))
    assert speculative.stages != counted.stages
    task_of(monkeypatch, "attempts", 0, partition=1)
    other = succeeded(writer.write(iter([batch(body=["b"])])))
    writer.commit([other, counted], 0)
    task_of(monkeypatch, "attempts", 0)
    zombie = succeeded(writer.write(iter([batch(body=["a"])])))
    # This driver does not know that another one has taken over.
    writer.commit([zombie, other], 0)
    writer.abort([speculative, None], 0)
    task_of(monkeypatch, "attempts", 1)
    late = succeeded(writer.write(iter([batch(body=["c"])])))
    writer.commit([late], 1)
    commit(options, "attempts", 1, [], True)
    assert drained(broker, "attempts") == [b"a", b"b", b"c"]
    with AdminClient(NodeAddress(broker.uri)) as client:
        found = client.request(ListSinks(), SinkList).sinks
    assert SinkStatus("attempts", 1, False, 0, 0, 0) in found


def test_rows_that_cannot_be_computed_leave_nothing(broker: BrokerProcess) -> None:
    """A task whose rows fail publishes nothing; neither does a job that fails after some tasks."""
    options = options_of(broker, routingKey="q")
    writer = WarrenBatchWriter(options)
    part = succeeded(writer.write(iter([batch(body=["a"])])))

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(body=["b"])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(failing())
    writer.abort([part, None])
    with (
        AdminClient(NodeAddress(broker.uri)) as client,
        pytest.raises(AdminRefusedError, match="no sink"),
    ):
        client.request(DescribeSink(part.sink), SinkStatus)


@pytest.mark.parametrize(
    ("options", "rows", "text"),
    [
        ({"exchange": "missing"}, {"body": ["a"]}, "no exchange 'missing'"),
        ({"exchange": ""}, {"body": ["a"], "priority": [1000]}, "'priority'"),
    ],
)
def test_what_can_never_succeed_is_not_raised_in_a_task(
    broker: BrokerProcess, options: dict[str, str], rows: dict[str, list[Any]], text: str
) -> None:
    """A permanent failure is raised by the driver before the commit: Spark would repeat a task."""
    writer = WarrenBatchWriter(options_of(broker, sinkId="never", **options))
    failed = writer.write(iter([batch(**rows)]))
    assert isinstance(failed, TaskFailed) and text in failed.text
    with pytest.raises(SourceError, match=text):
        writer.commit([None, failed])
    writer.abort([failed])
    with AdminClient(NodeAddress(broker.uri)) as client:
        assert "never" not in [each.sink for each in client.request(ListSinks(), SinkList).sinks]


def test_options_that_spark_adds(tmp_path: Path) -> None:
    """A stream's own options of Spark are accepted, except a path and asynchronous progress.

    After a crash asynchronous progress gives the number of a batch to other rows.
    """
    columns = StructType([StructField("body", BinaryType())])
    given = {"uri": "amqp://h", "exchange": "x"}
    of_spark = {"checkpointLocation": str(tmp_path), "queryName": "name"}
    for source in (
        WarrenDataSource(given | of_spark),
        WarrenDataSource({"broker": "amqp"} | given | of_spark),
    ):
        assert source.streamWriter(columns, False) is not None
        with pytest.raises(OptionError, match="unknown option"):
            source.writer(columns, False)
    for name in ("path", "asyncProgressTrackingEnabled"):
        with pytest.raises(OptionError, match=f"unknown option '{name.lower()}'"):
            WarrenDataSource(given | {name: "true"}).streamWriter(columns, False)


@pytest.mark.parametrize(
    ("setting", "alarm"),
    [
        ("vm_memory_high_watermark.absolute=1MB", "memory alarm"),
        ("disk_free_limit.absolute=100000GB", "disk alarm"),
    ],
)
def test_an_alarm_is_waited_for_once_and_named(tmp_path: Path, setting: str, alarm: str) -> None:
    """No task is repeated, and those that come later do not begin the wait anew."""
    broker = BrokerProcess(tmp_path, setting)
    broker.start()
    try:
        options = options_of(broker, routingKey="q", confirmTimeoutMs="500")
        for partition in range(3):
            with pytest.raises(
                SourceError,
                match=rf"nothing of the batch is published: given up after 0.5 s "
                rf"\(confirmTimeoutMs\): the {alarm} of the broker is on",
            ) as caught:
                staged(options, "s", 0, partition, ["a"])
            assert not isinstance(caught.value, BrokerAwayError)
    finally:
        broker.kill()
