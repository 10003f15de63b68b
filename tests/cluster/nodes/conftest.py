"""Clusters of real processes; the tests of a module, or of this directory, share one."""

from collections.abc import Iterator

import pytest

from tests.cluster.nodes.networks_here import make_network
from tests.cluster.nodes.real_cluster import RealCluster
from tests.support.etcd import require_etcd


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """Three nodes and one etcd; each test leaves them running, and without queues of its own."""
    require_etcd()
    directory = tmp_path_factory.mktemp("shared")
    with make_network() as network, RealCluster(network, directory) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RealCluster) -> Iterator[RealCluster]:
    """The shared cluster; no node of it may have logged an internal error during the test."""
    for node in shared.nodes.values():
        # The test before has failed.
        if node.has_ended():
            node.kill()
            node.arm("")
            node.start()
    yield shared
    for node in shared.nodes.values():
        log = node.log()
        assert "Traceback" not in log and "internal error" not in log, log[-4000:]
