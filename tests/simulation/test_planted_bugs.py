"""The simulator finds what we hide in it: a bug that it misses is a hole in the oracle or in the histories."""

import pytest

from tests.simulation.planted_bugs import PLANTED
from warren.testing.operations import make_history
from warren.testing.simulation import Simulation

# Histories within which each bug must be found; most are found within a tenth of them.
SEEDS = 300


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    for seed in range(1, SEEDS + 1):
        history = make_history(seed)
        violation = Simulation(history, seams=PLANTED[name]()).run()
        if violation is not None and Simulation(history).run() is None:
            print(f"{name}: seed {seed}, {violation}")
            return
    pytest.fail(f"{SEEDS} histories with {name}, and nothing was found")
