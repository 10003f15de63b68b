"""Scenario `cases` of `python -m tests.cluster.long`: each fault case of mirrored queues by name.

| case | fault | also in (below `tests/cluster`) |
|---|---|---|
| `t1-STEP` | a master dies at each step of a ring message | `mirrored/test_faults.py` |
| `t2-STEP`, `t2-alias` | a mirror does | `mirrors/replica/test_replica_histories.py`, `ring/` |
| `t3-row`, `t3-two`, `t3-STEP` | two deaths, the second one that of the heir | the simulator |
| | t4: joins during traffic and deaths | `ring/test_storm.py`, the simulator |
| `t5-freeze-SECONDS` | a node stands still | `mirrored_faults.py` |
| `t6-...` | partitions, and links that come and go | `mirrored/test_faults.py` |
| `t7-...` | losses of etcd | `nodes/test_etcd.py`: compacted, wiped, late |
| `t8-...` | slow links, and disks that hang | `mirrors/replica/test_replicas.py` |
| `t9-...` | full disks | `mirrors/replica/test_replicas.py` |
| | t10: synchronisation | `mirrors/sync/test_pairs.py` |
| `t11-...` | disks that were emptied or exchanged | `tests/cluster/membership/test_starting.py` |
| `t12-rolling` | rolling restarts | `nodes/test_rolling.py` |
| `t13-PROMOTES-MIRRORS-LOSS` | who becomes master | `groups/test_transitions.py` |
| `t13-alone-NODE`, `t13-forgotten-home` | what is left of a cluster | `mirrored/test_faults.py` |
| `t14-...` | policies that change all the time | `groups/test_mirror_placement.py` |
| `t15-...` | declarations and deletions | `nodes/test_declarations.py` |
| `t16-LOSS` | clients of mirrors, t17 and t18 too | `mirrored/test_failover.py`, `remote/` |
| `t19-...` | power cuts | `mirrored/test_faults.py` |
| | t20: clocks, ports and names | `nodes/test_places.py` |

The numbers are not those of `docs/guarantees.md`. The simulator is `python -m
simulator.simulate --cluster`; a soak is the scenario `soak`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from simulator.checker.verdict import Verdict
from tests.cluster.mirrored.etcd_faults import EtcdFaults
from tests.cluster.mirrored.failover import fail_over
from tests.cluster.mirrored.failover_clients import WATCHES
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.mirrored.mirrored_faults import CONFIRMS, MirroredFaults, gap_lines, judged
from tests.cluster.mirrored.policy_faults import PolicyFaults
from tests.cluster.mirrored.queue_cases import (
    KILL,
    PARTITION,
    STOP,
    QueueCase,
    lost,
    queue_cases,
)
from tests.cluster.mirrored.step_faults import HEIR_STEPS, MASTER_STEPS, MIRROR_STEPS
from tests.cluster.mirrored.store_faults import StoreFaults
from tests.cluster.nodes.long_scenarios import say
from tests.support.cluster.networks import Network
from tests.support.cluster.workload_process import RecordedRun
from tests.support.stores.small_disk import SmallDisk, mounted_disk

# The node whose disk may be filled.
SMALL = "n3"
ETCD_MEMBERS = 3
# Only a full disk stops publishers.
SETTINGS = {"disk_free_limit.absolute": "0"}
ROLLING_ROUNDS = 10


class CaseRun(NamedTuple):
    """A workload under which a fault case happens."""

    cluster: MirroredCluster
    run: RecordedRun
    faults: MirroredFaults
    etcd: EtcdFaults
    stores: StoreFaults
    policies: PolicyFaults
    disk: SmallDisk
    directory: Path


FaultCase = Callable[[CaseRun], None]


def _rolling(case: CaseRun) -> None:
    for _ in range(ROLLING_ROUNDS):
        for name in case.cluster.names:
            case.faults.stop(name)
            case.faults.settle()


def _orders(case: CaseRun) -> None:
    for order in case.stores.orders():
        case.stores.power_cut(order)
        case.faults.settle()


def _one_missing(case: CaseRun) -> None:
    for name in case.cluster.names:
        case.stores.power_cut(case.cluster.names, missing=name)
        case.faults.settle()


def _master_dies(step: str, case: CaseRun) -> None:
    case.faults.steps.master_dies("n1", step)


def _mirror_dies(step: str, case: CaseRun) -> None:
    case.faults.steps.mirror_dies("n2", step)


def _heir_dies(step: str, case: CaseRun) -> None:
    case.faults.steps.heir_dies("n1", "n2", step)


def _freeze(seconds: int, case: CaseRun) -> None:
    case.faults.networks.freeze("n2", seconds)


def fault_cases() -> dict[str, FaultCase]:
    """All cases by name, which begins with that of the table."""
    cases: dict[str, FaultCase] = {}
    cases |= {f"t1-{step}": partial(_master_dies, step) for step in MASTER_STEPS}
    cases |= {f"t2-{step}": partial(_mirror_dies, step) for step in MIRROR_STEPS}
    cases |= {f"t3-{step}": partial(_heir_dies, step) for step in HEIR_STEPS}
    cases |= {f"t5-freeze-{seconds}": partial(_freeze, seconds) for seconds in (1, 5, 20, 90)}
    cases |= {
        "t2-alias": lambda case: case.faults.steps.alias_dies("n1", "n2"),
        "t3-row": lambda case: case.faults.kill_in_a_row("n1", "n2"),
        "t3-two": lambda case: case.faults.kill_two("n3", "n1"),
        "t6-isolate": lambda case: case.faults.networks.isolate("n1"),
        "t6-cut": lambda case: case.faults.networks.cut("n1", "n2"),
        "t6-one-way": lambda case: case.faults.networks.cut_one_way("n2", "n1"),
        "t6-from-nodes": lambda case: case.faults.networks.cut_from_nodes("n3"),
        "t6-minority": lambda case: case.faults.networks.cut_off("n1"),
        "t6-majority": lambda case: case.faults.networks.cut_majority_off("n2"),
        "t6-two-links": lambda case: case.faults.networks.two_links("n1"),
        "t6-flap-pair": lambda case: case.faults.networks.flap("n1", "n3", 60),
        "t6-flap-node": lambda case: case.faults.networks.flap("n2", "", 60),
        "t7-one": lambda case: case.etcd.lose(1, 3),
        "t7-two": lambda case: case.etcd.lose(2, 15),
        "t7-all": lambda case: case.etcd.lose(3, 15),
        "t7-restart": lambda case: case.etcd.restart_in_turn(),
        "t7-slow": lambda case: case.etcd.stutter("n2", 20),
        "t7-death": lambda case: case.etcd.death_without_etcd("n1"),
        "t7-return": lambda case: case.etcd.return_without_etcd("n3"),
        "t7-lease": lambda case: case.etcd.revoke("n2"),
        "t8-slow-link": lambda case: case.faults.networks.slow("n3", 20),
        "t8-hang-mirror": lambda case: case.stores.hang("n2", False),
        "t8-hang-master": lambda case: case.stores.hang("n2", True),
        "t9-full-mirror": lambda case: case.stores.fill(SMALL, case.disk, False),
        "t9-full-master": lambda case: case.stores.fill(SMALL, case.disk, True),
        "t11-emptied": lambda case: case.stores.empty("n2"),
        "t11-snapshot": lambda case: case.stores.restore("n2", case.directory),
        "t12-rolling": _rolling,
        "t14-toggle": lambda case: case.policies.toggle(),
        "t14-wander": lambda case: case.policies.wander(),
        "t19-orders": _orders,
        "t19-missing": _one_missing,
        "t19-last": lambda case: case.stores.last_first("n1", "n2"),
    }
    return cases


@contextlib.contextmanager
def case_cluster(network: Network, directory: Path) -> Iterator[tuple[MirroredCluster, SmallDisk]]:
    """Three nodes, one with a small disk, and three members of etcd. AssertionError unless root."""
    assert os.geteuid() == 0, "a disk that can be filled needs root"
    with (
        mounted_disk(directory / SMALL) as disk,
        MirroredCluster(network, directory, ETCD_MEMBERS, settings=SETTINGS) as cluster,
    ):
        yield cluster, disk


def run_cases(network: Network, directory: Path, only: Sequence[str]) -> None:
    """Run the cases whose names begin with one of `only`, all if there is none."""
    verdicts: list[Verdict] = []
    with case_cluster(network, directory) as (cluster, disk):
        for name, case in _chosen(fault_cases(), only).items():
            say(f"case {name}")
            verdicts.append(_run_case(cluster, disk, directory / f"case-{name}", case))
            say(verdicts[-1].text())
            _check_logs(cluster)
        for name, of_queue in _chosen(queue_cases() | failover_cases(), only).items():
            say(f"case {name}")
            of_queue(cluster)
            _check_logs(cluster)
    for line in gap_lines(verdicts):
        say(line)


def failover_cases() -> dict[str, QueueCase]:
    """The watches of clients, all at once, for each way to lose a master."""
    return {f"t16-{loss}": partial(_fail_over, loss) for loss in (KILL, STOP, PARTITION)}


def _fail_over(loss: str, cluster: MirroredCluster) -> None:
    with contextlib.ExitStack() as stack:
        fail_over(cluster, WATCHES, lambda: stack.enter_context(lost(cluster, loss)))
    cluster.await_linked()


_Case = TypeVar("_Case")


def _chosen(cases: dict[str, _Case], only: Sequence[str]) -> dict[str, _Case]:
    return {
        name: case
        for name, case in cases.items()
        if not only or any(name.startswith(each) for each in only)
    }


def _check_logs(cluster: MirroredCluster) -> None:
    for node in cluster.nodes.values():
        log = node.log()
        assert "Traceback" not in log and "internal error" not in log, log[-4000:]


def _run_case(
    cluster: MirroredCluster, disk: SmallDisk, directory: Path, case: FaultCase
) -> Verdict:
    with cluster.mirrored_workload(directory) as run:
        faults = MirroredFaults(cluster, run)
        run.await_confirms(CONFIRMS)
        case(
            CaseRun(
                cluster,
                run,
                faults,
                EtcdFaults(cluster, run, faults.random),
                StoreFaults(cluster, run, faults.random),
                PolicyFaults(cluster, run, faults.random),
                disk,
                directory,
            )
        )
        faults.settle()
        run.await_confirms(CONFIRMS)
        verdict = judged(run)
    return verdict
