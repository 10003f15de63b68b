"""The simulator finds a mirror that misses one kind of change, since it differs from its queue."""

from typing import Any

import pytest

from simulator import simulation
from simulator.histories import make_history
from simulator.leaving.histories import make_leaving_history
from simulator.leaving.simulation import LeavingSimulation
from simulator.models import mirror

SEEDS_MAX = 200


class Deaf(mirror.MirrorModel):
    """A mirror that ignores calls of `missed`."""

    missed = ""

    def __getattribute__(self, name: str) -> Any:
        if name == type(self).missed:
            return lambda *_: None
        return super().__getattribute__(name)


@pytest.mark.parametrize(
    "missed", ["published", "delivered", "returned", "settled", "settled_runs"]
)
def test_a_change_that_is_not_told_is_seen(missed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deaf, "missed", missed)
    monkeypatch.setattr(mirror, "MirrorModel", Deaf)
    for seed in range(1, SEEDS_MAX):
        violation = simulation.Simulation(make_history(seed)).run()
        if violation is not None:
            assert violation.kind == "mirror"
            return
    pytest.fail(f"{SEEDS_MAX} histories, and nobody missed it")


def test_a_dead_letter_on_its_way_that_is_not_told_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deaf, "missed", "leaving")
    monkeypatch.setattr(mirror, "MirrorModel", Deaf)
    for seed in range(1, SEEDS_MAX):
        violation = LeavingSimulation(make_leaving_history(seed)).run()
        if violation is not None:
            assert violation.kind == "mirror"
            return
    pytest.fail(f"{SEEDS_MAX} histories, and nobody missed it")
