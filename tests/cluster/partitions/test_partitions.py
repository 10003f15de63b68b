"""Masters are parted from their mirrors, and consumers at all nodes go on.

The nodes are real; each history is judged by all rules of the checker.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.nodes.networks_here import make_network
from tests.cluster.partitions.nemeses import Nemesis
from tests.cluster.partitions.partition_cases import MASTER, STOCKS, dead_mirrors
from tests.cluster.partitions.partition_cluster import PartitionCluster
from tests.cluster.partitions.rounds import run_round
from tests.support.cluster.relays import RelayNetwork
from tests.support.etcd import require_etcd
from tests.support.skips import does_not_apply

pytestmark = [pytest.mark.kill, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionCluster]:
    """Three nodes and one etcd; each test leaves them running."""
    require_etcd()
    with (
        make_network() as network,
        PartitionCluster(network, tmp_path_factory.mktemp("partitions")) as running,
    ):
        yield running


def test_mirrors_that_died_before_acks_do_not_serve(cluster: PartitionCluster) -> None:
    dead_mirrors(cluster)


@pytest.mark.parametrize(
    ("kinds", "nemesis"),
    [
        # A master that hears no other node keeps its queues only where the others keep off.
        (STOCKS, Nemesis("cut from nodes", MASTER, 0, 9)),
        # Its lease ends, others take over, and it comes back to etcd before it hears them.
        ((*STOCKS, "classic"), Nemesis("etcd heals first", MASTER, 0, 9)),
    ],
)
def test_one_side_of_a_partition_serves(
    cluster: PartitionCluster, tmp_path: Path, kinds: tuple[str, ...], nemesis: Nemesis
) -> None:
    if isinstance(cluster.network, RelayNetwork):
        does_not_apply("nodes are linked past the relays")
    outcome = run_round(cluster, tmp_path, [nemesis], kinds=kinds)
    print(outcome.line())
    assert outcome.verdict.is_clean, outcome.findings()
