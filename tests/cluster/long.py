"""`python -m tests.cluster.long [SCENARIO...]`: a cluster of three real nodes, for any duration.

| scenario | what happens |
|---|---|
| points | nodes die at each fail point: while one makes a cluster, joins, declares, publishes |
| faults | random deaths, stops, freezes and cuts of nodes and members of etcd, under a workload |
| rolling | rolling restarts under a workload |
| mirrors | a new workload of mirrored queues for each seed, with a few random faults each |
| cases | each fault case of mirrored queues; `--only t5,t6-flap` those with such names |
| partitions | the cases of `partitions/partition_cases.py`; `--only` those with such names |
| pairs | random pairs of nemeses that overlap, with queues of all kinds; a table at the end |
| soak | random faults for `--minutes`, with an eye on memory and descriptors |
| gap | how long clients elsewhere take to notice the death of a node, and etcd's |

Prints a line for each step. A broken promise is reported with what the clients saw; the directory
stays, with logs, data and history; and the exit status is 1.
"""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.cluster.mirrored.fault_cases import run_cases
from tests.cluster.mirrored.long_mirrors import run_mirrors
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.mirrored.soak import run_soak
from tests.cluster.nodes.long_faults import Faults
from tests.cluster.nodes.long_scenarios import measure_gaps, run_points, run_rolling
from tests.cluster.nodes.networks_here import make_network
from tests.cluster.nodes.real_cluster import RealCluster
from tests.cluster.partitions.long_pairs import run_pairs
from tests.cluster.partitions.partition_cases import run_partition_cases
from warrenmq.build import build_name

SCENARIOS = (
    "points",
    "faults",
    "rolling",
    "mirrors",
    "cases",
    "partitions",
    "pairs",
    "soak",
    "gap",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.long",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="(default: all)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each but points")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults")
    parser.add_argument("--minutes", type=float, default=30, metavar="N", help="of soak")
    parser.add_argument("--only", default="", metavar="NAME,...", help="begins of names of cases")
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where data lie (default: as tempfile)"
    )
    options = parser.parse_args()
    chosen = options.scenarios or list(SCENARIOS)
    if unknown := set(chosen) - set(SCENARIOS):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    for name in chosen:
        directory = Path(tempfile.mkdtemp(prefix=f"warren-{name}-", dir=options.directory))
        began = time.monotonic()
        print(f"{name}: warren {build_name()}, seed {options.seed}", flush=True)
        try:
            _run(name, directory, options)
        except BaseException as error:
            traceback.print_exc()
            print(f"{directory} is kept", file=sys.stderr)
            if not isinstance(error, Exception):
                raise
            return 1
        print(f"{name}: all promises kept, {time.monotonic() - began:.0f} s\n", flush=True)
        shutil.rmtree(directory)
    return 0


def _run(name: str, directory: Path, options: argparse.Namespace) -> None:
    rounds, seed = options.rounds, options.seed
    if name == "cases":
        with make_network() as network:
            run_cases(network, directory, [each for each in options.only.split(",") if each])
        return
    if name == "partitions":
        run_partition_cases(directory, [each for each in options.only.split(",") if each])
        return
    if name == "pairs":
        run_pairs(directory, rounds, seed)
        return
    if name == "mirrors":
        with make_network() as network, MirroredCluster(network, directory) as mirrored:
            run_mirrors(mirrored, directory, rounds, seed)
        return
    if name == "soak":
        with make_network() as network, MirroredCluster(network, directory) as soaked:
            run_soak(soaked, directory, options.minutes, seed)
        return
    members = 3 if name == "faults" else 1
    with make_network() as network, RealCluster(network, directory, members) as cluster:
        if name == "points":
            run_points(cluster, directory)
        elif name == "faults":
            Faults(cluster, directory, seed).run(rounds)
        elif name == "rolling":
            run_rolling(cluster, directory, rounds)
        else:
            measure_gaps(cluster, rounds)


if __name__ == "__main__":
    sys.exit(main())
