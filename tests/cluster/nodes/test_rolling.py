"""All nodes are restarted in turn while clients work."""

from pathlib import Path

import pytest

from tests.cluster.nodes.real_cluster import RealCluster

CONFIRMS = 60


@pytest.mark.slow
def test_a_rolling_restart(cluster: RealCluster, tmp_path: Path) -> None:
    """A stopped node's clients go elsewhere; its queue is down until it is back."""
    with cluster.workload(tmp_path) as run:
        for node in cluster.nodes.values():
            run.await_confirms(CONFIRMS)
            with run.fault("stop", node.name):
                assert node.stop() == 0
                run.await_confirms(CONFIRMS)
                node.start()
                cluster.await_linked()
        run.await_confirms(CONFIRMS)
        verdict = run.finish()
    assert verdict.is_clean, verdict.text()
