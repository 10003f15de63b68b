"""Histories of messages that leave queues by rule, and the bugs that they must find.

`python -m simulator.simulate --leaving` runs more of them.
"""

from __future__ import annotations

import pytest

from simulator.leaving.histories import (
    FANOUT,
    LeavingHistory,
    QueueRules,
    Step,
    make_leaving_history,
)
from simulator.leaving.simulation import (
    LeavingSimulation,
    leaving_story,
    run_leaving_seeds,
)
from simulator.simulated.node import Limits
from tests.simulator.holding import hold
from tests.simulator.planted_leaving_bugs import PLANTED
from tests.support.explored import explored_seeds
from tests.support.skips import has_no_meaning
from warrenmq.build import build_name

# A few seconds each on one core.
FIXED_SEEDS = 100
EXPLORED_SEEDS = 60
# Histories within which each planted bug must be found; each is found within a tenth of them.
PLANTED_SEEDS = 300


@pytest.mark.slow
def test_the_fixed_seeds_hold() -> None:
    hold(range(1, FIXED_SEEDS + 1), run_leaving_seeds, leaving_story)


@pytest.mark.slow
def test_the_seeds_of_this_commit_hold() -> None:
    seeds = explored_seeds(EXPLORED_SEEDS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    hold(seeds, run_leaving_seeds, leaving_story)


def step(kind: str, *values: int | str) -> Step:
    return Step(kind, values, 1)


NO_RULES = (QueueRules(), QueueRules(), QueueRules())
# Histories that have failed, shortened: rules of q0 to q3, steps.
FAILED: dict[str, tuple[tuple[QueueRules, ...], list[Step]]] = {
    "a transient dead letter, paged out, took persistent messages with it": (
        (QueueRules(ttl_ms=20, dead_letters=3, is_lazy=True), *NO_RULES),
        [
            step("publish", 0, 4, 40, 0, 0, 4, 0),
            step("tick", 60),
            step("publish", 0, 4, 11, 1, 0, 4, 0),
            step("stop"),
        ],
    ),
    "a delay of minutes had no end": (
        (QueueRules(), *NO_RULES),
        [step("publish", 0, 3, 188, 1, 0, 0, 300_000)],
    ),
    "what had left a full queue was back after a start": (
        (QueueRules(max_length=5, dead_letters=3), *NO_RULES),
        [
            step("publish", 0, 2, 33, 1, 0, 1, 0),
            step("idle"),
            step("publish", 0, 4, 12, 1, 0, 4, 0),
            step("run", "flush", 5),
            step("crash", "power"),
        ],
    ),
    "a full queue gave the dead letters it refused to the next batch": (
        (
            QueueRules(overflow="reject-publish", dead_letters=0),
            QueueRules(dead_letters=3),
            QueueRules(max_length=2, overflow="reject-publish", dead_letters=3),
            QueueRules(
                max_length=2, max_bytes=400, overflow="reject-publish-dlx", dead_letters=FANOUT
            ),
        ),
        [
            step("consume", 2, 2, 0, 0),
            step("publish", 2, 4, 14, 1, 2000, 2, 0),
            step("idle"),
            step("tick", 3000),
            step("crash", "power"),
            step("crash", "power"),
        ],
    ),
    "a full queue gave the delayed messages it refused to the next batch": (
        (*NO_RULES, QueueRules(max_length=1, overflow="reject-publish-dlx", dead_letters=0)),
        [
            Step("publish", (3, 4, 520, 1, 0, 1, 20), 2),
            Step("stop", (), 2),
            Step("run", ("read", 2), 2),
            Step("idle", (), 2),
            Step("crash", ("power",), 2),
        ],
    ),
    "a torn batch had a dead letter that a queue had refused, and not that it had moved": (
        (
            QueueRules(),
            QueueRules(max_length=1, dead_letters=2),
            QueueRules(max_length=1, overflow="reject-publish-dlx", dead_letters=3),
            QueueRules(),
        ),
        [
            step("publish", 2, 1, 39, 1, 0, 0, 0),
            step("idle"),
            step("publish", 1, 4, 31, 1, 0, 0, 0),
            step("crash_within", 6, "power"),
            step("idle"),
        ],
    ),
    "a failed batch took back a dead letter of a delayed message that a full queue refused": (
        (
            QueueRules(max_length=1, overflow="reject-publish-dlx", dead_letters=2),
            QueueRules(),
            QueueRules(),
            QueueRules(),
        ),
        [
            step("publish", 0, 2, 35, 1, 0, 0, 300),
            step("idle"),
            step("publish", 1, 3, 4, 1, 0, 1, 3000),
            step("fault", "metadata_sync", 0, 3, 6),
            *(step("idle") for _ in range(5)),
            step("crash", "kill"),
        ],
    ),
    "delayed messages were confirmed and their bucket was not stored": (
        (QueueRules(), *NO_RULES),
        [
            step("publish", 0, 3, 32, 1, 0, 3, 20),
            step("fault", "metadata", 0, 5, 6),
            step("run", "flush", 2),
            step("finish", "flush", 2),
            step("crash", "kill"),
        ],
    ),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_history_that_has_failed_holds(name: str) -> None:
    rules, steps = FAILED[name]
    history = LeavingHistory(1, Limits(page_batch=1), rules, (), tuple(steps))
    violation = LeavingSimulation(history).run()
    assert violation is None


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
