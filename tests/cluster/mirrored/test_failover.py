"""Clients of mirrors' nodes keep what they have open when the master dies or stops."""

from collections.abc import Iterator

import pytest

from tests.cluster.mirrored.failover import MASTER, fail_over
from tests.cluster.mirrored.failover_clients import WATCHES
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.nodes.networks_here import make_network
from tests.support.etcd import require_etcd

pytestmark = [pytest.mark.kill, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirroredCluster]:
    require_etcd()
    with (
        make_network() as network,
        MirroredCluster(network, tmp_path_factory.mktemp("failover")) as running,
    ):
        yield running


def test_the_master_dies(cluster: MirroredCluster) -> None:
    fail_over(cluster, WATCHES, cluster[MASTER].kill)
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log(), node.log()[-4000:]
