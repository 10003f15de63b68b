"""A cluster of three real nodes for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.trio import ClusterNode, ClusterNodes
from tests.support.etcd import EtcdServer


@pytest.fixture(scope="module")
def trio(etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    """Three running nodes."""
    directory = tmp_path_factory.mktemp("sinks")
    with ClusterNodes(directory, etcd.url, "n1", "n2", "n3", cluster=directory.name) as cluster:
        yield cluster.nodes
