"""What may disturb a cluster: each nemesis begins, lasts, and ends, and others may overlap it.

    arena = Arena(cluster, run, settings, numbers)
    perform(arena, [Nemesis("cut from nodes", "n1", 0, 8), Nemesis("kill", "n2", 3, 4)])

A nemesis hits a node, or etcd. Two that stop processes never hit the same one, and cuts are
counted: what two nemeses cut is whole when both have ended.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from simulator.checker.events import Removal
from simulator.checker.history import now_us
from simulator.workload.settings import WorkloadSettings
from tests.cluster.mirrored.mirrored_cluster import PATTERN, POLICY
from tests.cluster.partitions.partition_cluster import PartitionCluster
from tests.support.awaiting import PATIENCE_S
from tests.support.brokers.amqp_peer import ChannelClosedError, ConnectionClosedError
from tests.support.cluster.namespaces import NamespaceNetwork
from tests.support.cluster.parties import Party
from tests.support.cluster.workload_process import RecordedRun
from warrenmq.wire.methods import QueueDelete, QueuePurge

ETCD = "e1"
ETCD_FIRST_S = 5.0
SLOW_BYTES_PER_S = 20_000
# A slow disk takes so much longer for each write of the journal (ms).
SLOW_DISK_MS = 40
_CTL = "import sys; from warrenmq.cli.control.main import main; sys.exit(main(sys.argv[1:]))"
_BROKEN = (OSError, EOFError, TimeoutError, ChannelClosedError, ConnectionClosedError)
_RETRY_S = 0.2

End = Callable[[], None]


class Nemesis(NamedTuple):
    """A disturbance of a node from `start_s` on, in seconds from the start of a plan."""

    kind: str
    node: str
    start_s: float
    duration_s: float

    def text(self) -> str:
        """The nemesis in a few words."""
        return f"{self.kind} {self.node} {self.start_s:.1f}-{self.start_s + self.duration_s:.1f} s"


@dataclass
class Arena:
    """A cluster under a workload, and what disturbs both; `via` answers for all who ask nodes."""

    cluster: PartitionCluster
    run: RecordedRun
    settings: WorkloadSettings
    numbers: random.Random
    # How many nemeses cut each direction.
    cuts: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Nodes whose process is dead or stands still.
    halted: set[str] = field(default_factory=set)
    # Requests that may wait for as long as the disturbance.
    requests: list[threading.Thread] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)

    def cut(self, pairs: Sequence[tuple[str, str]]) -> End:
        """Cut directions; returns what ends it."""
        for pair in pairs:
            if not self.cuts[pair]:
                self.cluster.network.cut_one_way(*pair)
            self.cuts[pair] += 1
        return partial(self.heal, pairs)

    def heal(self, pairs: Sequence[tuple[str, str]]) -> None:
        """End what `cut` began."""
        for pair in pairs:
            self.cuts[pair] -= 1
            if not self.cuts[pair]:
                self.cluster.network.heal_one_way(*pair)

    def others(self, node: str) -> list[str]:
        """All nodes but for one."""
        return [name for name in self.cluster.names if name != node]

    def via(self, node: str) -> str:
        """A node that answers, rather not this one."""
        for name in (*self.others(node), node):
            if name not in self.halted:
                return name
        return node

    def request(self, work: Callable[[], None]) -> None:
        """Do something that waits for answers, beside what else happens."""
        thread = threading.Thread(target=work, daemon=True)
        self.requests.append(thread)
        thread.start()

    def ctl(self, name: str, *arguments: str) -> None:
        """Run `warrenctl` on a node; it may fail."""
        node = self.cluster[name]
        command = [*self.cluster.network.prefix(name), sys.executable, "-c", _CTL]
        command += ["--data-dir", str(node.data), "-q", *arguments]

        def work() -> None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)

        self.request(work)

    def await_requests(self) -> None:
        """Return when all requests are answered. AssertionError if one hangs."""
        for thread in self.requests:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive(), "a client hangs"
        for removal in self.removals:
            self.run.record(removal)


def _both_ways(node: str, others: Sequence[str]) -> list[tuple[str, str]]:
    return [pair for other in others for pair in ((node, other), (other, node))]


# -- networks --------------------------------------------------------------------------------------


def _cut_from_nodes(arena: Arena, node: str) -> End:
    return arena.cut(_both_ways(node, arena.others(node)))


def _cut_from_one(arena: Arena, node: str) -> End:
    return arena.cut(_both_ways(node, arena.others(node)[:1]))


def _cut_from_etcd(arena: Arena, node: str) -> End:
    return arena.cut(_both_ways(node, [ETCD]))


def _cut_from_all(arena: Arena, node: str) -> End:
    return arena.cut(_both_ways(node, [*arena.others(node), ETCD]))


def _etcd_heals_first(arena: Arena, node: str) -> End:
    """Cut a node from all; at the end etcd is there for some seconds before the other nodes."""
    heal_links = _cut_from_nodes(arena, node)
    heal_etcd = _cut_from_etcd(arena, node)

    def end() -> None:
        heal_etcd()
        time.sleep(ETCD_FIRST_S)
        heal_links()

    return end


def _deaf(arena: Arena, node: str) -> End:
    """Nothing of the other nodes arrives at a node."""
    return arena.cut([(other, node) for other in arena.others(node)])


def _mute(arena: Arena, node: str) -> End:
    """Nothing of a node arrives at the others."""
    return arena.cut([(node, other) for other in arena.others(node)])


def _slow_link(arena: Arena, node: str) -> End:
    network = arena.cluster.network
    assert isinstance(network, NamespaceNetwork)
    network.slow(node, SLOW_BYTES_PER_S)
    return partial(network.quicken, node)


# -- processes -------------------------------------------------------------------------------------


def _party(arena: Arena, name: str) -> Party:
    return arena.cluster.members[0] if name == ETCD else arena.cluster[name]


def _kill(arena: Arena, node: str) -> End:
    party = _party(arena, node)
    arena.halted.add(node)
    party.kill()

    def end() -> None:
        party.launch()
        arena.halted.discard(node)

    return end


def _stop(arena: Arena, node: str) -> End:
    party = _party(arena, node)
    arena.halted.add(node)
    party.terminate()

    def end() -> None:
        party.await_end()
        party.launch()
        arena.halted.discard(node)

    return end


def _freeze(arena: Arena, node: str) -> End:
    party = _party(arena, node)
    arena.halted.add(node)
    party.freeze()

    def end() -> None:
        party.thaw()
        arena.halted.discard(node)

    return end


def _slow_disk(arena: Arena, node: str) -> End:
    """Let a node die and return with a slow disk, and do so again with a fast one."""
    party = arena.cluster[node]
    party.kill()
    party.arm(f"journal.synced=delay:{SLOW_DISK_MS}")
    party.launch()

    def end() -> None:
        with arena.run.fault("kill", node):
            party.kill()
            party.arm("")
            party.launch()

    return end


# -- administration --------------------------------------------------------------------------------


def _drain(arena: Arena, node: str) -> End:
    arena.ctl(node, "drain")
    return partial(arena.ctl, node, "revive")


def _rebalance(arena: Arena, node: str) -> End:
    arena.ctl(arena.via(node), "rebalance", "all", "--queue-pattern", PATTERN)
    return _nothing


def _policy(arena: Arena, node: str) -> End:
    """Want copies on the other nodes only."""
    wanted = ",".join(f'"{arena.cluster[name].node}"' for name in arena.others(node))
    definition = f'{{"ha-mode":"nodes","ha-params":[{wanted}],"ha-sync-mode":"automatic"}}'
    arena.ctl(arena.via(node), "set_policy", "mirrored", PATTERN, definition)
    return lambda: arena.ctl(arena.via(node), "set_policy", "mirrored", PATTERN, POLICY)


def _purge(arena: Arena, node: str) -> End:
    queue = arena.numbers.choice(arena.settings.queue_names)

    def work() -> None:
        asked_us = now_us()
        is_answered = _is_answered(arena, node, QueuePurge(queue.encode()))
        arena.removals.append(Removal(now_us(), queue, asked_us, is_answered))

    arena.request(work)
    return _nothing


def _delete(arena: Arena, node: str) -> End:
    """Delete a queue, and declare it again at once."""
    queue = arena.numbers.choice(arena.settings.queue_names)

    def work() -> None:
        asked_us = now_us()
        is_answered = _is_answered(arena, node, QueueDelete(queue.encode()))
        _declare_again(arena, node, queue)
        # Until it is bound again the queue misses messages that another one gets.
        arena.removals.append(Removal(now_us(), queue, asked_us, is_answered))

    arena.request(work)
    return _nothing


def _is_answered(arena: Arena, node: str, method: QueuePurge | QueueDelete) -> bool:
    with contextlib.suppress(*_BROKEN), arena.cluster.client(arena.via(node)) as client:
        client.call(method)
        return True
    return False


def _declare_again(arena: Arena, node: str, queue: str) -> None:
    settings = arena.settings
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(*_BROKEN):
            name = arena.via(node)
            arena.cluster.declare(settings, queue, name)
            with arena.cluster.client(name) as client:
                for number in settings.numbers(has_stock=False):
                    if queue in settings.pair(number):
                        key = str(number).encode()
                        client.bind(queue.encode(), settings.exchange.encode(), key)
            return
        time.sleep(_RETRY_S)


def _nothing() -> None:
    pass


# -- plans -----------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """How a nemesis begins, bounds of its duration (s), and what it halts, if a process.

    `keeps_packets` and `hands_over` as in `FaultStart`.
    """

    begin: Callable[[Arena, str], End]
    least_s: float
    most_s: float
    halts: bool = False
    of_etcd: bool = False
    keeps_packets: bool = False
    hands_over: bool = False


KINDS: dict[str, Kind] = {
    "kill": Kind(_kill, 0.5, 8, halts=True),
    "stop": Kind(_stop, 1, 8, halts=True),
    "freeze": Kind(_freeze, 0.3, 12, halts=True, keeps_packets=True),
    "cut from nodes": Kind(_cut_from_nodes, 1, 14, keeps_packets=True),
    "cut from one node": Kind(_cut_from_one, 1, 14, keeps_packets=True),
    "cut from etcd": Kind(_cut_from_etcd, 1, 14),
    "cut from all": Kind(_cut_from_all, 1, 15, keeps_packets=True),
    "etcd heals first": Kind(_etcd_heals_first, 3, 11, keeps_packets=True),
    "deaf": Kind(_deaf, 1, 12, keeps_packets=True),
    "mute": Kind(_mute, 1, 12, keeps_packets=True),
    "slow link": Kind(_slow_link, 4, 12, keeps_packets=True),
    "slow disk": Kind(_slow_disk, 4, 10, halts=True),
    "kill etcd": Kind(_kill, 0.5, 12, halts=True, of_etcd=True),
    "freeze etcd": Kind(_freeze, 0.5, 13, halts=True, of_etcd=True),
    "drain": Kind(_drain, 3, 8, hands_over=True),
    "rebalance": Kind(_rebalance, 2, 4, hands_over=True),
    "policy": Kind(_policy, 2, 8, hands_over=True),
    "purge": Kind(_purge, 1, 2, hands_over=True),
    "delete": Kind(_delete, 1, 2, hands_over=True),
}


def perform(arena: Arena, plan: Sequence[Nemesis]) -> None:
    """Begin and end all nemeses of a plan at their times; each is a fault of the history."""
    moments: list[tuple[float, int, Callable[[], None]]] = []
    for number, nemesis in enumerate(plan):
        running = _Running(arena, nemesis)
        moments.append((nemesis.start_s, number, running.begin))
        moments.append((nemesis.start_s + nemesis.duration_s, number, running.end))
    began = time.monotonic()
    for at_s, _, act in sorted(moments, key=lambda moment: moment[:2]):
        time.sleep(max(0.0, began + at_s - time.monotonic()))
        act()


class _Running:
    """One nemesis of a plan."""

    def __init__(self, arena: Arena, nemesis: Nemesis) -> None:
        self._arena = arena
        self._nemesis = nemesis
        self._fault = contextlib.ExitStack()
        self._end: End = _nothing

    def begin(self) -> None:
        kind = KINDS[self._nemesis.kind]
        self._fault.enter_context(
            self._arena.run.fault(
                self._nemesis.kind,
                self._nemesis.node,
                keeps_packets=kind.keeps_packets,
                hands_over=kind.hands_over,
            )
        )
        self._end = kind.begin(self._arena, self._nemesis.node)

    def end(self) -> None:
        self._end()
        self._fault.close()
