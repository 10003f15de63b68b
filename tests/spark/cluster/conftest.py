"""A cluster of three real nodes, and the etcd that it shares."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.etcd import etcd

if TYPE_CHECKING:
    from tests.support.cluster.trio import ClusterNode
    from tests.support.etcd import EtcdServer

__all__ = ["etcd"]


@pytest.fixture(scope="session")
def trio(
    etcd: "EtcdServer", tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[list[ClusterNode]]":
    """Three running nodes; each test leaves them running, and uses names of its own."""
    from tests.support.cluster.trio import ClusterNodes

    with ClusterNodes(tmp_path_factory.mktemp("trio"), etcd.url, "n1", "n2", "n3") as cluster:
        yield cluster.nodes
