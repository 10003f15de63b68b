"""Losses of etcd under a cluster with mirrored queues, whose etcd has three members (cases t7).

A wiped etcd, one that has forgotten its history, and one whose answers are late are tested without
mirrors in `tests/cluster/nodes/test_etcd.py`.
"""

import random
import time

from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.nodes.real_cluster import await_writable
from tests.support.awaiting import eventually
from tests.support.cluster.workload_process import RecordedRun

# Confirms that show that the queues go on.
WORK_CONFIRMS = 20
# An etcd that stutters stands still, and works, for so long (s).
STILL_S = 0.5
WORK_S = 0.1


class EtcdFaults:
    """Disturbs etcd under the workload `run`; each method leaves it whole."""

    def __init__(self, cluster: MirroredCluster, run: RecordedRun, numbers: random.Random) -> None:
        self._cluster = cluster
        self._run = run
        self._random = numbers

    def lose(self, count: int, seconds: float) -> None:
        """Kill members: healthy queues go on without etcd."""
        members = self._random.sample(self._cluster.members, count)
        with self._run.fault(f"lose {count} of etcd", ", ".join(each.name for each in members)):
            for member in members:
                member.kill()
            self._run.await_confirms(WORK_CONFIRMS)
            time.sleep(seconds)
            self._run.await_confirms(WORK_CONFIRMS)
            for member in members:
                member.launch()
            for member in members:
                member.await_ready()
            await_writable(self._cluster)

    def restart_in_turn(self) -> None:
        """Restart all members, one after another."""
        with self._run.fault("restart etcd", "all members"):
            for member in self._cluster.members:
                member.restart()
                await_writable(self._cluster)
            self._run.await_confirms(WORK_CONFIRMS)

    def stutter(self, name: str, seconds: float) -> None:
        """Let etcd answer late, while a node dies and returns."""
        with self._run.fault("etcd stutters, kill", name):
            self._cluster[name].kill()
            end = time.monotonic() + seconds
            is_started = False
            while time.monotonic() < end:
                for member in self._cluster.members:
                    member.freeze()
                time.sleep(STILL_S)
                for member in self._cluster.members:
                    member.thaw()
                time.sleep(WORK_S)
                if not is_started and end - time.monotonic() < seconds / 2:
                    self._cluster[name].launch()
                    is_started = True
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].await_ready()

    def death_without_etcd(self, name: str) -> None:
        """Kill a node while etcd has no majority.

        Nobody takes over and no mirror is left out, so nothing is confirmed until etcd is back.
        """
        with self._run.fault("kill without etcd", name):
            for member in self._cluster.members[1:]:
                member.freeze()
            self._cluster[name].kill()
            time.sleep(self._random.uniform(1, 8))
            for member in self._cluster.members[1:]:
                member.thaw()
            self._run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()

    def return_without_etcd(self, name: str) -> None:
        """Start a node again while etcd has no majority: it waits, and serves when etcd is back."""
        with self._run.fault("start without etcd", name):
            self._cluster[name].kill()
            self._run.await_confirms(WORK_CONFIRMS)
            for member in self._cluster.members[1:]:
                member.freeze()
            self._cluster[name].launch()
            eventually(lambda: "waiting for" in self._cluster[name].log(), "it waits for etcd")
            self._run.await_confirms(WORK_CONFIRMS)
            for member in self._cluster.members[1:]:
                member.thaw()
            self._cluster[name].await_ready()

    def revoke(self, name: str) -> None:
        """Revoke the lease of a node that is well: it announces itself again."""
        key = self._cluster[name].node.replace("@", "%40")
        before = self._cluster.keys("nodes")[key]["lease"]
        with self._run.fault("lease revoked", name):
            self._cluster.etcd("lease", "revoke", f"{before:x}")
            eventually(
                lambda: self._cluster.keys("nodes").get(key, {"lease": before})["lease"] != before,
                f"{name} is announced again",
            )
            self._run.await_confirms(WORK_CONFIRMS)
