"""Histories of a node with crashes and disk failures; `make simulate SEEDS=n` runs more of them.

A fixed set judges each change by the histories that judged the change before it. In addition each
commit has a set of its own (`tests/support/explored.py`), so that every landing tries histories
that no landing tried before. A failing seed is printed with its shrunken history; `python -m
simulator.simulate --seed N` replays it.
"""

import logging
import multiprocessing
import os
import subprocess
import sys

import pytest

from simulator.histories import make_history
from simulator.shrink import tell
from simulator.simulate import run_seeds, shrunken_story
from tests.support.explored import explored_seeds
from warrenmq.build import build_name

# `simulator.simulate` runs more. The interpreted build, which is slower, tries some of them; the
# compiled build, whose engine is the same, tries all.
FIXED_SEEDS = 300 if build_name() == "compiled" else 50
EXPLORED_SEEDS = 300 if build_name() == "compiled" else 50
CHUNK = 25
# Chunks after which a process is replaced, with everything that its dropped nodes have left.
TASKS = 40


def failures_of(seeds: range) -> list[tuple[int, str, str]]:
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=TASKS) as pool:
        chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
        return sorted(
            failure for _, _, failed in pool.imap_unordered(run_seeds, chunks) for failure in failed
        )


def hold(seeds: range) -> None:
    """Run all of `seeds`; fail with the story of the first that does not hold."""
    failures = failures_of(seeds)
    if failures:
        pytest.fail(
            "\n".join([*(text for *_, text in failures[:10]), *shrunken_story(failures[0][0])])
        )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_fixed_seeds_hold() -> None:
    hold(range(1, FIXED_SEEDS + 1))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_seeds_of_this_commit_hold() -> None:
    seeds = explored_seeds(EXPLORED_SEEDS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    hold(seeds)


def test_a_history_leaves_the_log_as_it_was() -> None:
    """The log has the same settings and handlers after a history as before it."""
    logger = logging.getLogger("warren")
    before = (logger.propagate, logger.level, list(logger.handlers))
    run_seeds(range(1, 2))
    assert (logger.propagate, logger.level, logger.handlers) == before


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    """The story depends on no order of a set or dict, no address and no clock."""
    stories = set()
    for hash_seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-m", "simulator.simulate", "--seed", "12"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "the end" in done.stdout, done.stderr
        stories.add(done.stdout)
    assert len(stories) == 1


def test_a_seed_tells_the_same_story_whatever_ran_before_it() -> None:
    seeds = range(20901, 20908)
    stories = {seed: tell(make_history(seed)) for seed in seeds}
    assert stories == {seed: tell(make_history(seed)) for seed in reversed(seeds)}
