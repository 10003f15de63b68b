"""One node with its HTTP API for all tests of a file."""

from collections.abc import Iterator

import pytest

from tests.support.brokers.http_api import HttpNode


@pytest.fixture(scope="module")
def http_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    node = HttpNode(tmp_path_factory.mktemp("http"))
    node.start()
    yield node
    node.stop()
