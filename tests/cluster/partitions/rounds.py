"""One round: a workload with queues of all kinds, a plan of nemeses, rest, and a verdict."""

import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.checker.facts import Facts
from simulator.checker.gaps import Gap
from simulator.checker.repeats import UndoneAck, undone_acks
from simulator.checker.verdict import Verdict, judge
from simulator.checker.violation import Rule
from tests.cluster.nodes.real_cluster import await_writable
from tests.cluster.partitions.master_watch import MasterWatch
from tests.cluster.partitions.nemeses import Arena, Nemesis, perform
from tests.cluster.partitions.partition_cluster import KINDS, RATE, PartitionCluster

# Acks of this time around the start of a fault may be undone (ms).
ACK_BOUND_MS = 5000
# So long after the start of a fault a master that is replaced may hand out (ms).
HAND_OUT_BOUND_MS = 5000
# Confirms before the first nemesis and after the last one.
CONFIRMS = 60
# Violations of a rule that are shown.
_SHOWN = 2


@dataclass(frozen=True)
class Outcome:
    """What became of a round."""

    plan: Sequence[Nemesis]
    verdict: Verdict
    # From the end of the last nemesis until all copies were in sync (s).
    sync_s: float
    undone: list[UndoneAck]
    # Changes of masters, the most of one queue.
    moves: int

    @property
    def broken(self) -> Counter[Rule]:
        """How often each rule was broken."""
        return Counter(violation.rule for violation in self.verdict.violations)

    @property
    def gaps(self) -> list[Gap]:
        """The longest gap of each fault."""
        return self.verdict.gaps

    @property
    def undone_s(self) -> float:
        """The age of the oldest ack that a takeover has undone (s), 0 if there is none."""
        return max((each.age_us for each in self.undone), default=0) / 1e6

    @property
    def after_fault_s(self) -> tuple[float, float]:
        """When undone acks had taken effect, from the start of a fault: first and last (s)."""
        moments = [each.after_fault_us / 1e6 for each in self.undone] or [0.0]
        return min(moments), max(moments)

    def findings(self) -> str:
        """The first violations of each rule, a line each."""
        shown: Counter[Rule] = Counter()
        lines = []
        for violation in self.verdict.violations:
            shown[violation.rule] += 1
            if shown[violation.rule] <= _SHOWN:
                lines.append(f"    {violation.line(self.verdict.start_us)}")
        lines += [f"    {queue} was not drained" for queue in self.verdict.undrained]
        return "\n".join(lines)

    def line(self) -> str:
        """The outcome in one line."""
        broken = ", ".join(f"{count} {rule.name.lower()}" for rule, count in self.broken.items())
        first_s, last_s = self.after_fault_s
        gap_s = max((gap.length_ms for gap in self.gaps), default=0) / 1000
        counts = self.verdict.counts
        return (
            f"{'; '.join(nemesis.text() for nemesis in self.plan)}:"
            f" {counts['confirmed']} confirmed, {counts['nacked']} nacked,"
            f" {len(self.undone)} acks undone, {first_s:.1f} to {last_s:.1f} s after a fault,"
            f" oldest {self.undone_s:.1f} s, {self.moves} moves, gap {gap_s:.1f} s,"
            f" in sync after {self.sync_s:.1f} s: {broken or 'clean'}"
        )


def run_round(
    cluster: PartitionCluster,
    directory: Path,
    plan: Sequence[Nemesis],
    seed: int = 1,
    kinds: Sequence[str] = KINDS,
    rate: int = RATE,
) -> Outcome:
    """Perform a plan under a workload. AssertionError if something hangs or a node complains."""
    logs = _log_sizes(cluster)
    with (
        MasterWatch(cluster) as watch,
        cluster.kinds_workload(directory, kinds, rate, seed) as (run, settings),
    ):
        arena = Arena(cluster, run, settings, random.Random(seed))
        if settings.numbers(has_stock=False):
            run.await_confirms(CONFIRMS)
        perform(arena, plan)
        began = time.monotonic()
        _settle(arena)
        sync_s = time.monotonic() - began
        if settings.numbers(has_stock=False):
            run.await_confirms(CONFIRMS)
        for report in watch.reports:
            run.record(report)
        events = run.events()
    _check_logs(cluster, logs)
    facts = Facts(events)
    return Outcome(
        plan,
        judge(events, ACK_BOUND_MS, HAND_OUT_BOUND_MS),
        sync_s,
        undone_acks(facts),
        max((len(moments) for moments in facts.moves.values()), default=0),
    )


def _settle(arena: Arena) -> None:
    cluster = arena.cluster
    cluster.network.heal()
    for party in (*cluster.members, *cluster.nodes.values()):
        party.await_ready()
    await_writable(cluster)
    arena.await_requests()
    cluster.await_linked()
    for node in cluster.nodes.values():
        node.ctl("revive")
    cluster.set_policies(arena.settings)
    try:
        cluster.await_in_sync()
    except AssertionError as error:
        raise AssertionError(f"{error}: {cluster.lacking()}") from None


def _log_sizes(cluster: PartitionCluster) -> dict[str, int]:
    return {node.name: node.log_path.stat().st_size for node in cluster.nodes.values()}


def _check_logs(cluster: PartitionCluster, sizes: dict[str, int]) -> None:
    for node in cluster.nodes.values():
        with node.log_path.open("rb") as file:
            file.seek(sizes[node.name])
            log = file.read().decode(errors="replace")
        for complaint in ("Traceback", "internal error"):
            at = log.find(complaint)
            assert at < 0, f"{node.name}: {log[max(0, at - 500) : at + 3000]}"
