"""Histories of a node that is crashed and whose disk fails; more of them with `make simulate SEEDS=n`.

A fixed set, so that a change is judged by what the last one was judged by, and a few that nobody has seen before (in CI the
next ones, always the same: what chance finds is found where somebody looks for it). A seed that
fails is printed with its shrunken history; `python -m warren.testing.simulate --seed N` replays it.
"""

import logging
import multiprocessing
import os
import random
import subprocess
import sys

import pytest

from warren.build import build_name
from warren.testing.operations import make_history
from warren.testing.shrink import tell
from warren.testing.simulate import run_seeds, shrunken_story

# As many as two cores do in less than a minute.
FIXED_SEEDS = 4000 if build_name() == "compiled" else 2000
CHUNK = 50
# A process is thrown away after so many chunks, with what the nodes thrown away in it have left.
TASKS = 20
RANDOM_SEEDS = 5


def failures_of(seeds: range) -> list[tuple[int, str, str]]:
    with multiprocessing.get_context("spawn").Pool(maxtasksperchild=TASKS) as pool:
        chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
        return sorted(
            failure for _, _, failed in pool.imap_unordered(run_seeds, chunks) for failure in failed
        )


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_fixed_seeds_hold() -> None:
    failures = failures_of(range(1, FIXED_SEEDS + 1))
    if failures:
        pytest.fail("\n".join([*(text for *_, text in failures[:10]), *shrunken_story(failures[0][0])]))


def test_some_seeds_that_nobody_has_seen() -> None:
    first = FIXED_SEEDS + 1 if os.environ.get("CI") else random.SystemRandom().randrange(1 << 30)
    print(f"seeds {first} to {first + RANDOM_SEEDS - 1}")
    _, _, failures = run_seeds(range(first, first + RANDOM_SEEDS))
    if failures:
        pytest.fail("\n".join(shrunken_story(failures[0][0])))


def test_a_history_leaves_the_log_as_it_was() -> None:
    """Whatever runs in the same process later has one."""
    logger = logging.getLogger("warren")
    before = (logger.propagate, logger.level, list(logger.handlers))
    run_seeds(range(1, 2))
    assert (logger.propagate, logger.level, logger.handlers) == before


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    """No order of a set or a dict, no address and no clock may be in it."""
    stories = set()
    for hash_seed in ("0", "1", "77"):
        done = subprocess.run(
            [sys.executable, "-m", "warren.testing.simulate", "--seed", "12"],
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
