"""Runs the histories of seeds, and fails with the story of the first that does not hold."""

from collections.abc import Callable

import pytest

from simulator.many_histories import Outcome


def hold(seeds: range, run: Callable[[range], Outcome], story: Callable[[int], list[str]]) -> None:
    """Run all of `seeds`."""
    *_, failures = run(seeds)
    if failures:
        texts = [f"seed {seed}: {text}" for seed, _, text in failures[:10]]
        pytest.fail("\n".join([*texts, *story(failures[0][0])]))
