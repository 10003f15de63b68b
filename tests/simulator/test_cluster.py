"""Histories of clusters of simulated nodes, and the bugs that they must find.

`python -m simulator.simulate --cluster` runs more of them.
"""

from __future__ import annotations

import pytest

from simulator.cluster.histories import ClusterHistory, make_cluster_history
from simulator.cluster.simulation import (
    ClusterSimulation,
    cluster_story,
    run_cluster_seeds,
)
from simulator.leaving.histories import Step
from simulator.simulated.node import Limits
from tests.simulator.holding import hold
from tests.simulator.planted_cluster_bugs import PLANTED
from tests.support.explored import explored_seeds
from tests.support.skips import has_no_meaning
from warrenmq.build import build_name
from warrenmq.cluster.decisions.placement import MIN_MASTERS

FIXED_SEEDS = 15
EXPLORED_SEEDS = 10
# Histories within which each planted bug must be found.
PLANTED_SEEDS = 100


@pytest.mark.slow
def test_the_fixed_seeds_hold() -> None:
    hold(range(1, FIXED_SEEDS + 1), run_cluster_seeds, cluster_story)


@pytest.mark.slow
def test_the_seeds_of_this_commit_hold() -> None:
    seeds = explored_seeds(EXPLORED_SEEDS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    hold(seeds, run_cluster_seeds, cluster_story)


def test_a_history_always_runs_equally() -> None:
    stories = [cluster_story(7, is_shrunken=False) for _ in range(2)]
    assert stories[0] == stories[1]
    assert any("Delivery" in line for line in stories[0])


def step(kind: str, *values: int | str) -> Step:
    return Step(kind, values, 1)


# Histories of three nodes that have failed, shortened.
FAILED: dict[str, list[Step]] = {
    "a link went down that had delivered messages, all of them settled": [
        step("move", 0, 0),
        step("consume", 0, 1, 5, 0, 0),
        step("publish", 1, -1, 1, 1, 50, 1, 0),
        step("wait", 50),
        step("ack", 0, 0, 1),
        step("lease", 0),
        step("long_wait", 600),
    ],
    "a node whose lease had ended removed an exchange for itself alone": [
        step("lease", 2),
        step("exchange_delete", 2, 1),
    ],
    "an exclusive queue was made after its client had left": [
        step("etcd_cut", 2),
        step("move", 1, 2),
        step("own", 1),
        step("move", 1, 1),
        step("etcd_heal", -1),
    ],
}


@pytest.mark.parametrize("name", FAILED)
def test_a_history_that_has_failed_holds(name: str) -> None:
    history = ClusterHistory(1, 3, MIN_MASTERS, 0.9, Limits(), tuple(FAILED[name]))
    violation = ClusterSimulation(history).run()
    assert violation is None


@has_no_meaning(build_name() == "compiled", "replaces methods of the engine")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    with monkeypatch.context() as patch:
        planted.plant(patch)
        for seed in range(planted.first, planted.first + PLANTED_SEEDS):
            violation = ClusterSimulation(make_cluster_history(seed)).run()
            if violation is not None and violation.kind.startswith(planted.kinds):
                break
        else:
            pytest.fail(f"{PLANTED_SEEDS} histories with {name}, and nothing was found")
    print(f"{name}: seed {seed}, {violation}")
    assert ClusterSimulation(make_cluster_history(seed)).run() is None
