"""Faults of a cluster with mirrored queues; each ends before the next one begins."""

import random
import time
from collections import Counter
from collections.abc import Callable
from statistics import median

from simulator.checker.verdict import Verdict
from tests.cluster.mirrored.mirrored_cluster import WINDOW_MS, MirroredCluster
from tests.cluster.mirrored.network_faults import NetworkFaults
from tests.cluster.mirrored.step_faults import MASTER_STEPS, MIRROR_STEPS, StepFaults
from tests.cluster.nodes.real_cluster import await_writable
from tests.support.cluster.relays import RelayNetwork
from tests.support.cluster.workload_process import RecordedRun

# Confirms before and during a fault.
CONFIRMS = 60
WORK_CONFIRMS = 20
# How long a node stands still (s): too short to be noticed, noticed, longer than leases of etcd.
FREEZES_S = (0.3, 5.0, 12.0)


class MirroredFaults:
    """Causes faults under the workload `run`; every node is the master of some queue."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, seed: int = 1) -> None:
        self._cluster = cluster
        self._run = run
        self.random = random.Random(seed)
        self.networks = NetworkFaults(cluster, run, self.random)
        self.steps = StepFaults(cluster, run, self.random)
        networks = self.networks
        self.kinds: dict[str, Callable[[str, str], None]] = {
            "kill": self.kill,
            "kill two": self.kill_two,
            "kill in a row": self.kill_in_a_row,
            "kill all": self.kill_all,
            "master dies": lambda name, _other: self.steps.master_dies(
                name, self.random.choice(MASTER_STEPS)
            ),
            "mirror dies": lambda name, _other: self.steps.mirror_dies(
                name, self.random.choice(MIRROR_STEPS)
            ),
            "stop": self.stop,
            "freeze": lambda name, _other: networks.freeze(name, self.random.choice(FREEZES_S)),
            "isolate": lambda name, _other: networks.isolate(name),
            "cut": networks.cut,
            "cut one way": networks.cut_one_way,
            "cut from nodes": lambda name, _other: networks.cut_from_nodes(name),
            "cut off": lambda name, _other: networks.cut_off(name),
            "cut from etcd": lambda name, _other: networks.cut_from_etcd(name),
            "flap": lambda name, other: networks.flap(name, other, 15),
        }
        if isinstance(cluster.network, RelayNetwork):
            # Nodes are linked past the relays.
            for kind in ("isolate", "cut", "cut one way", "cut from nodes", "cut off", "flap"):
                del self.kinds[kind]

    def rounds(self, count: int, say: Callable[[str], None]) -> None:
        """Cause `count` random faults, all kinds about equally often."""
        left: list[str] = []
        done: Counter[str] = Counter()
        for number in range(1, count + 1):
            if not left:
                left = self.random.sample(sorted(self.kinds), len(self.kinds))
            kind = left.pop()
            name, other = self.random.sample(self._cluster.names, 2)
            self._run.await_confirms(CONFIRMS)
            say(f"{number}/{count} {kind}: {name}, {other}")
            self.kinds[kind](name, other)
            # Sometimes the next fault finds copies that are not in sync again.
            self.settle(waits_for_sync=self.random.random() < 0.7)
            done[kind] += 1
        self.settle()
        say(", ".join(f"{count} x {kind}" for kind, count in done.items()))

    def settle(self, waits_for_sync: bool = True) -> None:
        """Return when all nodes are linked again, and all copies are in sync."""
        self._cluster.network.heal()
        await_writable(self._cluster)
        self._cluster.await_linked()
        if waits_for_sync:
            try:
                self._cluster.await_in_sync()
            except AssertionError as error:
                raise AssertionError(f"{error}: {self._cluster.lacking()}") from None

    # -- faults ------------------------------------------------------------------------------------

    def kill(self, name: str, other: str = "") -> None:
        """Kill a node, and start it again."""
        with self._run.fault("kill", name):
            self._cluster[name].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()

    def kill_two(self, name: str, other: str) -> None:
        """Kill two nodes at once; the third one has all queues."""
        with self._run.fault("kill two", f"{name}, {other}"):
            self._cluster[name].kill()
            self._cluster[other].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            self._restart(other, name)

    def kill_in_a_row(self, name: str, other: str) -> None:
        """Kill a node, and another one while the first one's queues get new masters."""
        with self._run.fault("kill in a row", f"{name}, {other}"):
            self._cluster[name].kill()
            time.sleep(self.random.uniform(0.05, 1.0))
            self._cluster[other].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            self._restart(name, other)

    def kill_all(self, name: str = "", other: str = "") -> None:
        """Kill all nodes at about the same time; nobody has the deliveries of the last moments."""
        nodes = list(self._cluster.nodes.values())
        self.random.shuffle(nodes)
        with self._run.fault("kill all", "all", is_lone_crash=True):
            for node in nodes:
                node.kill()
            self._restart(*(node.name for node in nodes))

    def _restart(self, *names: str) -> None:
        for name in names:
            self._cluster[name].launch()
        for name in names:
            self._cluster[name].await_ready()

    def stop(self, name: str, other: str = "") -> None:
        """Stop a node in good order, and start it again."""
        with self._run.fault("stop", name):
            assert self._cluster[name].stop() == 0
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()


def judged(run: RecordedRun) -> Verdict:
    """End a workload; what its clients saw. AssertionError if that breaks a promise."""
    verdict = run.finish(WINDOW_MS)
    assert verdict.is_clean, verdict.text()
    return verdict


def gap_lines(verdicts: list[Verdict]) -> list[str]:
    """The longest time without a confirm for each kind of fault (ms)."""
    lengths: dict[str, list[float]] = {}
    for verdict in verdicts:
        for gap in verdict.gaps:
            lengths.setdefault(gap.fault.kind, []).append(gap.length_ms)
    return [
        f"{kind}: {len(some)} times, median gap {median(some):.0f} ms, longest {max(some):.0f} ms"
        for kind, some in sorted(lengths.items())
    ]
