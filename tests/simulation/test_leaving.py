"""Histories of messages that leave queues by rule, and the bugs that they must find.

`python -m warrenmq.testing.simulate --leaving` runs more of them.
"""

from __future__ import annotations

import pytest

from tests.simulation.planted_leaving_bugs import PLANTED
from tests.support.explored import explored_seeds
from tests.support.skips import has_no_meaning
from warrenmq.build import build_name
from warrenmq.testing.leaving.histories import make_leaving_history
from warrenmq.testing.leaving.simulation import (
    LeavingSimulation,
    leaving_story,
    run_leaving_seeds,
)

# A few seconds each on one core.
FIXED_SEEDS = 150
EXPLORED_SEEDS = 100
# Histories within which each planted bug must be found; each is found within a tenth of them.
PLANTED_SEEDS = 300


def hold(seeds: range) -> None:
    """Run all of `seeds`; fail with the story of the first that does not hold."""
    *_, failures = run_leaving_seeds(seeds)
    if failures:
        texts = [f"seed {seed}: {text}" for seed, _, text in failures[:10]]
        pytest.fail("\n".join([*texts, *leaving_story(failures[0][0])]))


@pytest.mark.slow
def test_the_fixed_seeds_hold() -> None:
    hold(range(1, FIXED_SEEDS + 1))


@pytest.mark.slow
def test_the_seeds_of_this_commit_hold() -> None:
    seeds = explored_seeds(EXPLORED_SEEDS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    hold(seeds)


@has_no_meaning(build_name() == "compiled", "replaces methods of the engine")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    with monkeypatch.context() as patch:
        planted.plant(patch)
        for seed in range(1, PLANTED_SEEDS + 1):
            simulation = LeavingSimulation(make_leaving_history(seed))
            violation = simulation.run()
            is_it = violation is not None and violation.kind in planted.kinds
            if is_it and not (planted.is_without_crash and simulation.crash_count):
                break
        else:
            pytest.fail(f"{PLANTED_SEEDS} histories with {name}, and nothing was found")
    print(f"{name}: seed {seed}, {violation}")
    assert LeavingSimulation(make_leaving_history(seed)).run() is None
