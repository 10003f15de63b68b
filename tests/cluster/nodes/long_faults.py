"""Random faults of a cluster under a workload; a seed repeats their order."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.cluster.nodes.long_scenarios import finish, say
from tests.cluster.nodes.real_cluster import NAMES, RealCluster, await_writable
from tests.support.awaiting import eventually
from tests.support.cluster.relays import RelayNetwork
from tests.support.cluster.workload_process import RecordedRun

# Confirms before, during and after a fault.
CONFIRMS = 60
WORK_CONFIRMS = 10
# How long a cut lasts: too short to be noticed, noticed, longer than the leases of etcd.
LASTING_CONFIRMS = (50, 500, 1500)


class Faults:
    """Causes one fault after another; each ends before the next one begins."""

    def __init__(self, cluster: RealCluster, directory: Path, seed: int) -> None:
        self._cluster = cluster
        self._directory = directory
        self._random = random.Random(seed)
        self._done: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[RecordedRun, str, str], None]] = {
            "kill": self._kill,
            "kill two": self._kill_two,
            "kill all": self._kill_all,
            "stop": self._stop,
            "freeze": self._freeze,
            "isolate": self._isolate,
            "cut": self._cut,
            "cut from etcd": self._cut_from_etcd,
            "kill a member": self._kill_member,
            "kill etcd": self._kill_etcd,
            "freeze etcd": self._freeze_etcd,
        }
        if isinstance(cluster.network, RelayNetwork):
            # Nodes are linked past the relays.
            del self._kinds["isolate"], self._kinds["cut"]

    def run(self, rounds: int) -> None:
        """Cause `rounds` faults, all kinds about equally often, under one workload."""
        kinds: list[str] = []
        with self._cluster.workload(self._directory) as run:
            for number in range(1, rounds + 1):
                if not kinds:
                    kinds = self._random.sample(sorted(self._kinds), len(self._kinds))
                kind = kinds.pop()
                name, other = self._random.sample(NAMES, 2)
                run.await_confirms(CONFIRMS)
                say(f"{number}/{rounds} {kind}: {name}, {other}")
                self._kinds[kind](run, name, other)
                self._done[kind] += 1
                self._settle()
            run.await_confirms(CONFIRMS)
            finish(run)
        say(", ".join(f"{count} x {kind}" for kind, count in self._done.items()))

    def _settle(self) -> None:
        """Return when all nodes are linked again, and etcd decides."""
        self._cluster.network.heal()
        await_writable(self._cluster)
        self._cluster.await_linked()

    # -- nodes -------------------------------------------------------------------------------------

    def _kill(self, run: RecordedRun, name: str, other: str) -> None:
        queues = (self._cluster.queue_of(name),)
        with run.fault("kill", name, is_lone_crash=True, queues=queues):
            self._cluster[name].kill()
            run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()

    def _kill_two(self, run: RecordedRun, name: str, other: str) -> None:
        queues = (self._cluster.queue_of(name), self._cluster.queue_of(other))
        with run.fault("kill two", f"{name}, {other}", is_lone_crash=True, queues=queues):
            self._cluster[name].kill()
            self._cluster[other].kill()
            run.await_confirms(WORK_CONFIRMS)
            for each in (other, name):
                self._cluster[each].launch()
            for each in (other, name):
                self._cluster[each].await_ready()

    def _kill_all(self, run: RecordedRun, name: str, other: str) -> None:
        nodes = list(self._cluster.nodes.values())
        self._random.shuffle(nodes)
        with run.fault("kill all", "all", is_lone_crash=True):
            for node in nodes:
                node.kill()
            for node in nodes:
                node.launch()
            for node in nodes:
                node.await_ready()

    def _stop(self, run: RecordedRun, name: str, other: str) -> None:
        with run.fault("stop", name):
            assert self._cluster[name].stop() == 0
            run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].start()

    def _freeze(self, run: RecordedRun, name: str, other: str) -> None:
        """Until the others have given it up."""
        with run.fault("freeze", name, keeps_packets=True):
            before = self._lost_links(other, name)
            self._cluster[name].freeze()
            eventually(lambda: self._lost_links(other, name) > before, "it is given up")
            run.await_confirms(WORK_CONFIRMS)
            self._cluster[name].thaw()

    def _lost_links(self, name: str, other: str) -> int:
        """How many links to another node a node has lost."""
        link = f"link to node {self._cluster[other].node} "
        lines = self._cluster[name].log().splitlines()
        return sum(link in line and " is down: " in line for line in lines)

    # -- networks ----------------------------------------------------------------------------------

    def _isolate(self, run: RecordedRun, name: str, other: str) -> None:
        with run.fault("isolate", name, keeps_packets=True):
            before = self._lost_links(other, name)
            self._cluster.network.isolate(name)
            eventually(lambda: self._lost_links(other, name) > before, "it is given up")
            run.await_confirms(WORK_CONFIRMS)
            self._cluster.network.heal()

    def _cut(self, run: RecordedRun, name: str, other: str) -> None:
        """Both are reached by clients, by the third node and by etcd."""
        with run.fault("cut", f"{name}, {other}", keeps_packets=True):
            self._cluster.network.cut(name, other)
            run.await_confirms(self._random.choice(LASTING_CONFIRMS))
            self._cluster.network.heal()

    def _cut_from_etcd(self, run: RecordedRun, name: str, other: str) -> None:
        with run.fault("cut from etcd", name):
            for member in self._cluster.members:
                self._cluster.network.cut(name, member.name)
            run.await_confirms(self._random.choice(LASTING_CONFIRMS))
            self._cluster.network.heal()

    # -- etcd --------------------------------------------------------------------------------------

    def _kill_member(self, run: RecordedRun, name: str, other: str) -> None:
        member = self._random.choice(self._cluster.members)
        with run.fault("kill a member", member.name):
            member.kill()
            run.await_confirms(WORK_CONFIRMS)
            member.start()

    def _kill_etcd(self, run: RecordedRun, name: str, other: str) -> None:
        with run.fault("kill etcd", "all members"):
            for member in self._cluster.members:
                member.kill()
            run.await_confirms(self._random.choice(LASTING_CONFIRMS))
            for member in self._cluster.members:
                member.launch()
            for member in self._cluster.members:
                member.await_ready()

    def _freeze_etcd(self, run: RecordedRun, name: str, other: str) -> None:
        with run.fault("freeze etcd", "all members"):
            for member in self._cluster.members:
                member.freeze()
            run.await_confirms(self._random.choice(LASTING_CONFIRMS))
            for member in self._cluster.members:
                member.thaw()
