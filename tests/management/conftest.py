"""A node with its HTTP API and a RabbitMQ to compare with, for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.support.brokers.http_api import HttpNode
from tests.support.rabbitmq.http_api import PLUGINS, SETTINGS, RabbitmqApi, rabbitmq_api


@pytest.fixture(scope="module")
def http_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    node = HttpNode(tmp_path_factory.mktemp("http"))
    node.start()
    yield node
    node.stop()


@pytest.fixture(scope="module", name="rabbitmq_api")
def running_rabbitmq_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqApi]:
    with rabbitmq_api(tmp_path_factory.mktemp("rabbitmq"), PLUGINS, SETTINGS) as running:
        yield running
