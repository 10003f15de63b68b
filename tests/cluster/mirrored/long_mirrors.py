"""Scenario `mirrors` of `python -m tests.cluster.long`: mirrored queues under random faults."""

from pathlib import Path

from simulator.checker.verdict import Verdict
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.mirrored.mirrored_faults import CONFIRMS, MirroredFaults, gap_lines, judged
from tests.cluster.nodes.long_scenarios import say

# Random faults of one history.
FAULTS = 3


def run_mirrors(cluster: MirroredCluster, directory: Path, rounds: int, seed: int) -> None:
    """Run `rounds` histories, with the seeds from `seed` on; print the gaps of all."""
    verdicts: list[Verdict] = []
    for number in range(rounds):
        say(f"history {number + 1}/{rounds}, seed {seed + number}")
        with cluster.mirrored_workload(directory / f"history-{number}") as run:
            MirroredFaults(cluster, run, seed + number).rounds(FAULTS, say)
            run.await_confirms(CONFIRMS)
            verdicts.append(judged(run))
        for node in cluster.nodes.values():
            assert "Traceback" not in node.log(), node.log()[-4000:]
        say(verdicts[-1].text())
    for line in gap_lines(verdicts):
        say(line)
