"""Runs many histories, and makes one that fails shorter; the simulations share this."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable
from typing import Protocol, TypeVar

from simulator.models.messages import Violation

_Step = TypeVar("_Step")

# Count of histories, their crashes, and (seed, kind, text) per failure.
Outcome = tuple[int, int, list[tuple[int, str, str]]]


class OneHistory(Protocol):
    """A simulation of one history."""

    @property
    def crash_count(self) -> int:
        """Crashes of nodes so far."""

    def run(self) -> Violation | None:
        """Run the history; returns the violation that ends it."""


def run_each(seeds: range, simulation_of: Callable[[int], OneHistory]) -> Outcome:
    """Run the history of each seed."""
    failures: list[tuple[int, str, str]] = []
    crashes = 0
    for seed in seeds:
        simulation = simulation_of(seed)
        violation = simulation.run()
        crashes += simulation.crash_count
        if violation is not None:
            failures.append((seed, violation.kind, str(violation)))
    # A node that was dropped amid its work leaves cycles behind.
    gc.collect()
    return len(seeds), crashes, failures


def error_violation(error: Exception) -> Violation:
    """The violation for an error that the engine has raised; its kind names the place."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}"
    text = "".join(traceback.format_exception(error)[-6:])
    return Violation(f"{type(error).__name__} at {where}", f"{error}\n{text}")


def shortened(
    steps: tuple[_Step, ...], fails: Callable[[tuple[_Step, ...]], bool], runs_max: int
) -> tuple[_Step, ...]:
    """Leave out steps, large pieces first, as long as `fails` is true of the rest.

    Calls `fails` at most `runs_max` times.
    """
    runs = 0
    size = max(1, len(steps) // 2)
    while size > 0 and runs < runs_max:
        is_shorter = False
        at = len(steps)
        while at > 0 and runs < runs_max:
            at = max(0, at - size)
            shorter = steps[:at] + steps[at + size :]
            runs += 1
            if fails(shorter):
                steps, is_shorter = shorter, True
        if not is_shorter:
            size //= 2
    return steps
