"""Helpers of the tests that read and write queues of several nodes."""

from collections.abc import Callable, Iterator, Sequence

import pika

from tests.spark.micro_batches import Checkpoint
from tests.support.brokers.process import BrokerProcess
from tests.support.cluster.trio import channels
from warrenmq.spark.source import WarrenDataSource
from warrenmq.spark.streams.reader import WarrenStreamReader

DURABLE = pika.BasicProperties(delivery_mode=2)


def make_reader(node: BrokerProcess, group: str, **options: str) -> WarrenStreamReader:
    """A reader that knows `node` only; "queues" by default those of `declare` for the group."""
    given = {"uri": node.uri, "group": group, "longPollMs": "500", "retryTimeoutMs": "60000"}
    if "queuesPattern" not in options:
        given["queues"] = f"{group}1,{group}2,{group}3"
    source = WarrenDataSource(options=given | options)
    reader = source.streamReader(schema=source.schema())
    assert isinstance(reader, WarrenStreamReader)
    return reader


def maker(node: BrokerProcess, group: str, **options: str) -> Callable[[], WarrenStreamReader]:
    """Makes such readers."""
    return lambda: make_reader(node, group, **options)


def declare(nodes: Sequence[BrokerProcess], prefix: str) -> None:
    """Declare the durable queues `prefix`1, 2 ... with one home each."""
    with channels(nodes) as opened:
        for number, channel in enumerate(opened, 1):
            channel.queue_declare(f"{prefix}{number}", durable=True)


def publish(node: BrokerProcess, prefix: str, first: int, count: int) -> list[bytes]:
    """Publish numbered messages, confirmed, to the three queues in turn; returns the bodies."""
    bodies = [b"m%d" % number for number in range(first, first + count)]
    with channels([node]) as (channel,):
        for number, body in enumerate(bodies, first):
            channel.basic_publish("", f"{prefix}{number % 3 + 1}", body, DURABLE)
    return bodies


def read(checkpoint: Checkpoint) -> list[bytes]:
    """The bodies that the sink has, sorted as `publish` numbers them."""
    return sorted([body for _, _, body in checkpoint.rows()], key=lambda body: int(body[1:]))


def fan(nodes: Sequence[BrokerProcess], name: str) -> None:
    """Bind a queue of each node, `name`1, `name`2 and `name`3, to the fanout exchange `name`."""
    declare(nodes, name)
    with channels(nodes[:1]) as (channel,):
        channel.exchange_declare(name, "fanout", durable=True)
        for number in (1, 2, 3):
            channel.queue_bind(f"{name}{number}", name)


def drained(node: BrokerProcess, queue: str) -> Iterator[bytes]:
    """The bodies of a queue, taken out through its home."""
    with channels([node]) as (channel,):
        count = channel.queue_declare(queue, passive=True).method.message_count
        if count:
            for place, (_, _, body) in enumerate(channel.consume(queue, auto_ack=True), 1):
                yield body
                if place == count:
                    break
