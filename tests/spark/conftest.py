"""Fixtures: a node in memory, readers that use it, and brokers that are reached by AMQP alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spark.driving import Make
    from tests.spark.links import MemoryLink
    from tests.support.brokers.memory_node import MemoryNode
    from tests.support.brokers.other_brokers import OtherBroker
    from tests.support.brokers.process import BrokerProcess
    from warrenmq.spark.streams.reader import WarrenStreamReader as StreamReader


@pytest.fixture
def node() -> "MemoryNode":
    """A node in memory with the queue `q`."""
    from tests.support.brokers.memory_node import MemoryDisk, MemoryNode

    node = MemoryNode(MemoryDisk())
    node.declare(b"q")
    return node


@pytest.fixture
def link(node: "MemoryNode", monkeypatch: pytest.MonkeyPatch) -> "MemoryLink":
    """The link that every reader made in the test uses."""
    from tests.spark.links import install

    return install(monkeypatch, node)


@pytest.fixture
def make(link: "MemoryLink") -> "Make":
    """Makes a reader, as a new driver process does."""
    from tests.spark.links import URI
    from warrenmq.spark.source import WarrenDataSource
    from warrenmq.spark.streams.reader import WarrenStreamReader

    def make_reader(**options: str) -> "StreamReader":
        given = {"uri": URI, "queues": "q", "group": "g", "longPollMs": "0", "retryTimeoutMs": "0"}
        if "queuesPattern" in options:
            del given["queues"]
        source = WarrenDataSource(options=given | options)
        reader = source.streamReader(schema=source.schema())
        assert isinstance(reader, WarrenStreamReader)
        return reader

    return make_reader


@pytest.fixture(scope="module")
def warren_node(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[BrokerProcess]":
    """A node that is not started."""
    from tests.support.brokers.process import BrokerProcess

    node = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield node
    node.kill()


@pytest.fixture(params=["warren_node", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> "OtherBroker":
    """A running broker: a warren node, or the real RabbitMQ."""
    from tests.support.brokers.other_brokers import running

    other: OtherBroker = request.getfixturevalue(request.param)
    return running(other)


@pytest.fixture
def queue(broker: "OtherBroker") -> Iterator[str]:
    """The name of a durable queue of `broker`."""
    from tests.support.brokers.other_brokers import queue_on

    with queue_on(broker) as name:
        yield name
