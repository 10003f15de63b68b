"""Nodes die at fail points; `python -m tests.cluster.long` has all of them."""

from pathlib import Path

import pytest

from tests.cluster.nodes.fail_point_kills import (
    kill_in_declare,
    kill_in_publish,
    kill_in_start,
    newcomer,
)
from tests.cluster.nodes.real_cluster import RealCluster

CONFIRMS = 30


@pytest.mark.slow
@pytest.mark.kill
def test_a_node_dies_in_a_declaration_and_in_a_publish(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """Decided, but not followed yet; applied for clients of other nodes, but not reported yet."""
    with cluster.workload(tmp_path) as run:
        run.await_confirms(CONFIRMS)
        kill_in_declare(cluster, run, "n2", "decision.committed")
        kill_in_publish(cluster, run, "n3", "operations.applied")
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()


@pytest.mark.kill
def test_a_node_dies_while_it_joins(cluster: RealCluster, tmp_path: Path) -> None:
    """It is a member already, and does not know it."""
    node = newcomer(cluster, tmp_path, "n4")
    try:
        kill_in_start(node, "member.joined")
        with cluster.client("n1") as client:
            client.declare(b"q", durable=True)
        with cluster.client("n4") as client:
            assert client.count(b"q") == 0
            client.delete(b"q")
        assert node.stop() == 0
        assert cluster["n1"].ctl("forget_cluster_node", node.node).code == 0
    finally:
        node.kill()
