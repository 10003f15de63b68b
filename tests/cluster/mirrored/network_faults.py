"""Freezes, partitions and slow links of a cluster with mirrored queues (cases t5, t6, t8).

Clients reach all nodes throughout, except where a node is isolated.
"""

import random
import time

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.support.cluster.namespaces import NamespaceNetwork
from tests.support.cluster.workload_process import RecordedRun

# Confirms that show that the queues go on.
WORK_CONFIRMS = 20
# Bounds of one phase of a flapping link (s).
FLAP_S = (1.0, 3.0)
SLOW_BYTES_PER_S = 10_000
# A lease ends about 10 s after the last renewal that succeeded, which was up to 3.3 s ago.
BEFORE_LEASE_END_S = 6.0


class NetworkFaults:
    """Disturbs the network of a cluster under the workload `run`, and heals it."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, numbers: random.Random) -> None:
        self._cluster = cluster
        self._run = run
        self._random = numbers

    def freeze(self, name: str, seconds: float) -> None:
        """Let a node stand still: as a master it may neither confirm nor deliver when it wakes."""
        with self._run.fault(f"freeze {seconds} s", name, keeps_packets=True):
            self._cluster[name].freeze()
            time.sleep(seconds)
            self._cluster[name].thaw()
            self._run.await_confirms(WORK_CONFIRMS)

    def isolate(self, name: str) -> None:
        """Part a node from everybody, etcd and clients included."""
        with self._run.fault("isolate", name, keeps_packets=True):
            self._cluster.network.isolate(name)
            self._wait_between(1, 10)

    def cut(self, name: str, other: str) -> None:
        """Part two nodes, which both reach the third one."""
        with self._run.fault("cut", f"{name}, {other}", keeps_packets=True):
            self._cluster.network.cut(name, other)
            self._wait_between(1, 10)

    def cut_one_way(self, name: str, other: str) -> None:
        """Let nothing of one node arrive at another."""
        with self._run.fault("cut one way", f"{name}, {other}", keeps_packets=True):
            self._cluster.network.cut_one_way(name, other)
            self._wait_between(1, 10)

    def cut_from_etcd(self, name: str) -> None:
        """Part a node from etcd, up to longer than its lease, at whose end others take over."""
        seconds = self._random.uniform(1, 15)
        with self._run.fault("cut from etcd", name):
            self._cut_from_etcd(name)
            self._wait(min(seconds, BEFORE_LEASE_END_S), heals=seconds < BEFORE_LEASE_END_S)
        if seconds >= BEFORE_LEASE_END_S:
            with self._run.fault("lease ends", name):
                self._wait(seconds - BEFORE_LEASE_END_S)

    def cut_from_nodes(self, name: str) -> None:
        """Part a node from the other nodes; all reach etcd."""
        with self._run.fault("cut from nodes", name, keeps_packets=True):
            for other in self._others(name):
                self._cluster.network.cut(name, other)
            self._wait_between(1, 15)

    def cut_off(self, name: str) -> None:
        """Part a node from the other nodes and from etcd: a minority that clients still reach."""
        with self._run.fault("cut off", name, keeps_packets=True):
            self._cut_from_etcd(name)
            for other in self._others(name):
                self._cluster.network.cut(name, other)
            self._wait_between(1, 15)

    def cut_majority_off(self, name: str) -> None:
        """Part a node from the others, which do not reach etcd: the minority can go on alone."""
        with self._run.fault("cut majority off", name, keeps_packets=True):
            for other in self._others(name):
                self._cluster.network.cut(name, other)
                self._cut_from_etcd(other)
            self._wait_between(1, 15)

    def two_links(self, name: str) -> None:
        """Lose both links of a node at once, for less time than a node is given (F11)."""
        with self._run.fault("two links", name, keeps_packets=True):
            for other in self._others(name):
                self._cluster.network.cut(name, other)
            time.sleep(self._random.uniform(0.5, 4.8))
            self._cluster.network.heal()
            self._run.await_confirms(WORK_CONFIRMS)

    def flap(self, name: str, other: str, seconds: float) -> None:
        """Let the links of a node, or of two nodes with each other, come and go.

        Each time is a fault of its own: each may hide deliveries from clients.
        """
        pairs = [(name, other)] if other else [(name, each) for each in self._others(name)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with self._run.fault("flap", f"{name}, {other or 'others'}", keeps_packets=True):
                for one, two in pairs:
                    self._cluster.network.cut(one, two)
                time.sleep(self._random.uniform(*FLAP_S))
                self._cluster.network.heal()
                time.sleep(self._random.uniform(*FLAP_S))
        self._run.await_confirms(WORK_CONFIRMS)

    def slow(self, name: str, seconds: float) -> None:
        """Let everything arrive slowly at a node: it leaves the copies in sync (F4, F22)."""
        network = self._cluster.network
        assert isinstance(network, NamespaceNetwork)
        with self._run.fault("slow link", name, keeps_packets=True):
            network.slow(name, SLOW_BYTES_PER_S)
            time.sleep(seconds)
            network.heal()
            self._run.await_confirms(WORK_CONFIRMS)

    # -- internal ----------------------------------------------------------------------------------

    def _wait(self, seconds: float, heals: bool = True) -> None:
        """Let the fault last, and heal the network; return when publishers get confirms.

        Meanwhile all of them may be at a node that has to refuse everything.
        """
        time.sleep(seconds)
        if heals:
            self._cluster.network.heal()
        self._run.await_confirms(WORK_CONFIRMS)

    def _wait_between(self, least_s: float, most_s: float) -> None:
        self._wait(self._random.uniform(least_s, most_s))

    def _others(self, name: str) -> list[str]:
        return [other for other in self._cluster.names if other != name]

    def _cut_from_etcd(self, name: str) -> None:
        for member in self._cluster.members:
            self._cluster.network.cut(name, member.name)
