"""One node with its HTTP API for all tests, empty for each file; a RabbitMQ, and an etcd."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.support.brokers.http_api import HttpNode
from tests.support.etcd import EtcdServer, running_etcd
from tests.support.rabbitmq.http_api import PLUGINS, SETTINGS, RabbitmqApi, rabbitmq_api


@pytest.fixture(scope="session")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """A node that all files use: the start of its two processes costs as much as many tests."""
    node = HttpNode(tmp_path_factory.mktemp("http"))
    node.start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def http_node(shared_node: HttpNode) -> Iterator[HttpNode]:
    """The shared node without any object of another file; no test stops it or sets its options."""
    yield shared_node
    empty(shared_node)


def empty(node: HttpNode) -> None:
    """Delete vhosts with all that is in them, users and parameters, as on a new node."""
    with node.client() as client:
        for kind, kept in (("users", "guest"), ("vhosts", None), ("global-parameters", None)):
            for row in client.get(kind).json():
                if row["name"] != kept:
                    client.delete(f"{kind}/{quote(row['name'], safe='')}")
        assert client.put("vhosts/%2F").status_code == 201
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        assert client.put("permissions/%2F/guest", json=everything).is_success


@pytest.fixture(scope="module", name="rabbitmq_api")
def running_rabbitmq_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitmqApi]:
    with rabbitmq_api(tmp_path_factory.mktemp("rabbitmq"), PLUGINS, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd for the clusters of a file: one that ran on would take time from all other tests."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server
