"""`python -m tests.cluster.long [SCENARIO...]`: a cluster of three real nodes, for any duration.

| scenario | what happens |
|---|---|
| points | nodes die at each fail point: while one makes a cluster, joins, declares, publishes |
| faults | random deaths, stops, freezes and cuts of nodes and members of etcd, under a workload |
| rolling | rolling restarts under a workload |
| mirrors | a new workload of mirrored queues for each seed, with a few random faults each |
| gap | how long clients elsewhere take to notice the death of a node, and etcd's |

Prints a line for each step. A broken promise is reported with what the clients saw; the directory
stays, with logs, data and history; and the exit status is 1.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.cluster.mirrored.long_mirrors import run_mirrors
from tests.cluster.mirrored.mirrored_cluster import MirroredCluster
from tests.cluster.nodes.long_faults import Faults
from tests.cluster.nodes.long_scenarios import measure_gaps, run_points, run_rolling
from tests.cluster.nodes.networks_here import make_network
from tests.cluster.nodes.real_cluster import RealCluster
from warrenmq.build import build_name

SCENARIOS = ("points", "faults", "rolling", "mirrors", "gap")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.long",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="(default: all)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="of each but points")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults")
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
            _run(name, directory, options.rounds, options.seed)
        except BaseException as error:
            print(f"{error!r}\n{error}\n{directory} is kept", file=sys.stderr)
            if not isinstance(error, Exception):
                raise
            return 1
        print(f"{name}: all promises kept, {time.monotonic() - began:.0f} s\n", flush=True)
        shutil.rmtree(directory)
    return 0


def _run(name: str, directory: Path, rounds: int, seed: int) -> None:
    if name == "mirrors":
        with make_network() as network, MirroredCluster(network, directory) as mirrored:
            run_mirrors(mirrored, directory, rounds, seed)
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
