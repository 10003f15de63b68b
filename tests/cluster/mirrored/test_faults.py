"""Mirrored queues on real nodes under faults: no confirmed message is lost, all copies come back.

Each node is the master of one of the workload's queues and a mirror of the others, so that a fault
of one node is one of a master and of mirrors.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.mirrored.mirrored_faults import CONFIRMS, MirroredFaults, gap_lines, judged
from tests.cluster.nodes.networks_here import make_network
from tests.support.cluster.relays import RelayNetwork
from tests.support.etcd import require_etcd
from tests.support.skips import does_not_apply

pytestmark = [pytest.mark.kill, pytest.mark.slow]

Fault = Callable[[MirroredFaults], None]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirroredCluster]:
    """Three nodes and one etcd; each test leaves them running."""
    require_etcd()
    with (
        make_network() as network,
        MirroredCluster(network, tmp_path_factory.mktemp("mirrored")) as running,
    ):
        yield running


@pytest.fixture
def suffer(cluster: MirroredCluster, tmp_path: Path) -> Callable[..., None]:
    """Let the cluster suffer faults one after another under a workload, and judge it."""

    def suffer(*faults: Fault) -> None:
        with cluster.mirrored_workload(tmp_path) as run:
            caused = MirroredFaults(cluster, run)
            for fault in faults:
                run.await_confirms(CONFIRMS)
                fault(caused)
                caused.settle()
            run.await_confirms(CONFIRMS)
            verdict = judged(run)
        print("\n".join(gap_lines([verdict])))
        for node in cluster.nodes.values():
            log = node.log()
            assert "Traceback" not in log and "internal error" not in log, log[-4000:]

    return suffer


def test_a_node_dies_and_returns(suffer: Callable[..., None]) -> None:
    """The second death hits a node that leads another queue by now."""
    suffer(lambda faults: faults.kill("n1"), lambda faults: faults.kill("n2"))


def test_a_node_is_parted_from_the_others(
    suffer: Callable[..., None], cluster: MirroredCluster
) -> None:
    if isinstance(cluster.network, RelayNetwork):
        does_not_apply("nodes are linked past the relays")
    suffer(lambda faults: faults.networks.isolate("n3"))


def test_the_whole_cluster_dies(suffer: Callable[..., None]) -> None:
    suffer(lambda faults: faults.kill_all())
