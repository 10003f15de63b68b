"""Scenario `soak` of `python -m tests.cluster.long`: random faults for minutes or hours.

Each history has a workload of its own, so that all are drained and judged. Between two histories
the cluster is at rest: then the memory and the descriptors of each process that has lived through
histories must be about what they were when it was young.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from simulator.checker.verdict import Verdict
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.mirrored.mirrored_faults import CONFIRMS, MirroredFaults, gap_lines, judged
from tests.cluster.nodes.long_scenarios import say
from tests.support.awaiting import eventually

FAULTS = 2
# What a process may have more than when it was young: caches fill, and links come back.
MORE_BYTES = 64 * 1024 * 1024
MORE_DESCRIPTORS = 20


@dataclass
class _Life:
    """Memory (bytes) and descriptors of one process at the ends of histories."""

    node: str
    memory: list[int] = field(default_factory=list)
    descriptors: list[int] = field(default_factory=list)


class Lives:
    """What the nodes of a cluster use, for each process."""

    def __init__(self, cluster: MirroredCluster) -> None:
        self._cluster = cluster
        self._lives: dict[int, _Life] = {}

    def look(self) -> None:
        """Note what all nodes use. AssertionError if one uses much more than when it was young."""
        for node in self._cluster.nodes.values():
            process = psutil.Process(node.pid)
            life = self._lives.setdefault(node.pid, _Life(node.name))
            life.memory.append(process.memory_info().rss)
            life.descriptors.append(process.num_fds())
            assert life.memory[-1] <= life.memory[0] + MORE_BYTES, life
            assert life.descriptors[-1] <= life.descriptors[0] + MORE_DESCRIPTORS, life

    def lines(self) -> list[str]:
        """What became of the processes that have lived through several histories."""
        return [
            f"{life.node}, {len(life.memory)} histories: {life.memory[0] >> 20} MiB at first,"
            f" {life.memory[-1] >> 20} at last, {max(life.memory) >> 20} at most;"
            f" descriptors {life.descriptors[0]}, {life.descriptors[-1]}, {max(life.descriptors)}"
            for life in self._lives.values()
            if len(life.memory) > 2
        ]


def run_soak(cluster: MirroredCluster, directory: Path, minutes: float, seed: int) -> None:
    """Run histories with the seeds from `seed` on until the time is over."""
    end = time.monotonic() + 60 * minutes
    lives = Lives(cluster)
    verdicts: list[Verdict] = []
    keys = 0
    while time.monotonic() < end:
        number = len(verdicts)
        say(f"history {number + 1}, seed {seed + number}")
        with cluster.mirrored_workload(directory / f"history-{number}") as run:
            MirroredFaults(cluster, run, seed + number).rounds(FAULTS, say)
            run.await_confirms(CONFIRMS)
            verdicts.append(judged(run))
        lives.look()
        # A node whose lease has ended announces itself again a little later.
        eventually(lambda: cluster.running_count() == len(cluster.names), "all are announced")
        found = cluster.key_count()
        keys = keys or found
        assert found == keys, f"{found} keys in etcd, {keys} after the first history"
    confirmed = sum(verdict.counts["confirmed"] for verdict in verdicts)
    say(f"{len(verdicts)} histories, {confirmed} messages confirmed, none lost; {keys} keys")
    for line in (*lives.lines(), *gap_lines(verdicts)):
        say(line)
