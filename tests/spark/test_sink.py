"""Writing with the data source "warren", driven by hand against a broker: no JVM."""

from collections.abc import Iterator
from typing import Any

import pika
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tests.support.broker_process import BrokerProcess
from warren.admin.client import AdminClient, NodeAddress
from warren.admin.protocol import (
    STAGE_BYTES,
)
from warren.admin.sink_protocol import (
    ListSinks,
    SinkList,
    SinkStatus,
)
from warren.spark.broker_link import SourceError
from warren.spark.options import OptionError
from warren.spark.sink import StagedRows, commit, stage_rows
from warren.spark.sink_blocks import BlockMaker
from warren.spark.sink_options import SinkOptions, parse_sink_options
from warren.spark.source import WarrenDataSource
from warren.store.publish_body import decode_message
from warren.wire.properties import decode_properties

SCHEMA = StructType([StructField("body", BinaryType()), StructField("routing_key", StringType())])


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def decoded(blocks: Iterator[tuple[int, memoryview]]) -> list[tuple[bytes, bytes, bytes]]:
    """Address, properties and body of each message."""
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
    source = WarrenDataSource({"uri": "amqp://h", "checkpointLocation": "/c"})
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
    """What is in the queue, which is empty then."""
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


def staged(options: SinkOptions, sink: str, number: int, partition: int, names: list[str]) -> StagedRows:
    rows = iter([batch(body=names[:1]), batch(body=names[1:])])
    return stage_rows(options, sink, number, partition, rows)


def test_partitions_are_published_in_order_and_once(broker: BrokerProcess) -> None:
    assert drained(broker, "order") == []
    options = options_of(broker, routingKey="order")
    second = staged(options, "s", 0, 1, ["c", "d"])
    first = staged(options, "s", 0, 0, ["a", "b"])
    empty = stage_rows(options, "s", 0, 2, iter([]))
    assert empty.stage is None
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
        SourceError, match="2 messages would get to no queue, the first one with routing key 'nobody'"
    ):
        commit(options, "t", 0, [part], True)
    with pytest.raises(SourceError, match="no exchange 'missing'"):
        staged(options_of(broker, exchange="missing"), "t", 0, 0, ["a"])
    with pytest.raises(SourceError, match="nothing of the batch is published"):
        staged(parse_sink_options({"uri": "amqp://localhost:1", "exchange": ""}), "t", 0, 0, ["a"])
