"""Scenario `pairs` of `python -m tests.cluster.long`: random pairs of nemeses that overlap.

Prints a line for each round, and a table at the end. A round that breaks a promise keeps its
history; one after which the cluster does not come to rest is followed by a new cluster.
"""

import random
import shutil
from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from simulator.checker.violation import Rule
from tests.cluster.nodes.long_scenarios import say
from tests.cluster.nodes.networks_here import make_network
from tests.cluster.partitions.nemeses import ETCD, KINDS, Nemesis
from tests.cluster.partitions.partition_cluster import PartitionCluster
from tests.cluster.partitions.rounds import ACK_BOUND_MS, Outcome, run_round

NODES = ("n1", "n2", "n3")
# The second nemesis of a pair begins so long after the first one at most (s).
OFFSET_S = 5.0
# Share of the pairs that hit one node.
SAME_NODE_SHARE = 0.4


def random_pair(numbers: random.Random) -> list[Nemesis]:
    """Two nemeses that overlap in time, and do not halt the same process."""
    names = [numbers.choice(sorted(KINDS)) for _ in range(2)]
    nodes = [numbers.choice(NODES)]
    both_halt = all(KINDS[name].halts for name in names)
    is_same = numbers.random() < SAME_NODE_SHARE and not both_halt
    nodes.append(nodes[0] if is_same else numbers.choice([n for n in NODES if n != nodes[0]]))
    if all(KINDS[name].of_etcd for name in names):
        names[1] = "cut from nodes"
    plan: list[Nemesis] = []
    for number, (name, node) in enumerate(zip(names, nodes, strict=True)):
        kind = KINDS[name]
        start_s = 0.0
        if number:
            start_s = numbers.uniform(0, min(OFFSET_S, plan[0].duration_s))
        duration_s = numbers.uniform(kind.least_s, kind.most_s)
        plan.append(Nemesis(name, ETCD if kind.of_etcd else node, start_s, duration_s))
    return plan


@dataclass
class Tally:
    """What became of all rounds."""

    outcomes: list[Outcome] = field(default_factory=list)
    # Rounds that hung, or in which a node complained.
    failures: int = 0
    # Seeds of rounds that broke a promise or failed.
    broken: list[int] = field(default_factory=list)

    def lines(self) -> list[str]:
        """The table; empty without a round."""
        if not self.outcomes:
            return []
        broken: Counter[Rule] = Counter()
        for outcome in self.outcomes:
            broken += outcome.broken
        confirmed = sum(outcome.verdict.counts["confirmed"] for outcome in self.outcomes)
        moves = [outcome.moves / len(outcome.plan) for outcome in self.outcomes]
        first_s = min(outcome.after_fault_s[0] for outcome in self.outcomes)
        last_s = max(outcome.after_fault_s[1] for outcome in self.outcomes)
        rows = [
            ("rounds", f"{len(self.outcomes) + self.failures}"),
            ("rounds that hung or had a node complain", f"{self.failures}"),
            ("confirmed", f"{confirmed}"),
            ("lost", f"{broken[Rule.LOST] + broken[Rule.SETTLED]}"),
            ("altered or unknown", f"{broken[Rule.GHOST]}"),
            ("out of order", f"{broken[Rule.ORDER]}"),
            ("wrong flags", f"{broken[Rule.FLAG]}"),
            (f"acks undone beyond {ACK_BOUND_MS} ms", f"{broken[Rule.AGAIN]}"),
            ("removals undone", f"{broken[Rule.REMOVED]}"),
            ("handed out by replaced masters", f"{broken[Rule.FENCE]}"),
            ("two single active consumers", f"{broken[Rule.SINGLE]}"),
            ("needless changes of a master", f"{broken[Rule.MOVES]}"),
            ("most changes of a master for each fault", f"{max(moves):.1f}"),
            ("undone acks", f"{sum(len(o.undone) for o in self.outcomes)}"),
            ("oldest undone ack at a takeover", f"{max(o.undone_s for o in self.outcomes):.1f} s"),
            ("first undone ack after a fault began", f"{first_s:.1f} s"),
            ("last undone ack after a fault began", f"{last_s:.1f} s"),
            ("longest until in sync", f"{max(o.sync_s for o in self.outcomes):.1f} s"),
        ]
        return [f"| {name} | {value} |" for name, value in rows] + self._gap_lines()

    def _gap_lines(self) -> list[str]:
        """The gap in confirms that each kind of nemesis has had a part in, as one of a pair."""
        lengths: dict[str, list[float]] = {}
        for outcome in self.outcomes:
            for gap in outcome.gaps:
                lengths.setdefault(gap.fault.kind, []).append(gap.length_ms / 1000)
        return ["| nemesis | times | median gap | longest gap |", "|---|---|---|---|"] + [
            f"| {kind} | {len(some)} | {median(some):.1f} s | {max(some):.1f} s |"
            for kind, some in sorted(lengths.items())
        ]


def run_pairs(directory: Path, rounds: int, seed: int) -> None:
    """Run rounds with the seeds from `seed` on. AssertionError if one of them broke a promise.

    The table comes also when somebody interrupts the rounds.
    """
    tally = Tally()
    seeds = deque(range(seed, seed + rounds))
    try:
        while seeds:
            place = directory / f"from-{seeds[0]}"
            with make_network() as network, PartitionCluster(network, place) as cluster:
                while seeds and _run_one(cluster, place, seeds.popleft(), tally):
                    pass
    finally:
        for line in tally.lines():
            say(line)
    assert not tally.broken, f"rounds with the seeds {tally.broken}"


def _run_one(cluster: PartitionCluster, directory: Path, seed: int, tally: Tally) -> bool:
    """Run a round; returns whether the cluster is at rest again."""
    plan = random_pair(random.Random(seed))
    place = directory / f"round-{seed}"
    try:
        outcome = run_round(cluster, place, plan, seed)
    # A hang may show as any error, and the next round has another cluster.
    except Exception as error:
        say(f"seed {seed}: {'; '.join(each.text() for each in plan)}: {error!r}")
        tally.failures += 1
        tally.broken.append(seed)
        return False
    tally.outcomes.append(outcome)
    say(f"seed {seed}: {outcome.line()}")
    if outcome.verdict.is_clean:
        shutil.rmtree(place)
    else:
        tally.broken.append(seed)
        say(outcome.findings())
    return True
