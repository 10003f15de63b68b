"""Histories of clusters with mirrored queues, and the bugs that they must find.

`python -m simulator.simulate --mirrors` runs more of them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulator.cluster.histories import ClusterHistory, make_mirror_history
from simulator.cluster.simulation import ClusterSimulation, mirror_story, run_mirror_seeds
from simulator.leaving.histories import QueueRules, Step
from simulator.simulated.node import Limits
from tests.simulator.holding import hold
from tests.simulator.planted_mirror_bugs import PLANTED, history, policy, publish, step
from tests.simulator.planted_reader_bugs import PLANTED as PLANTED_IN_READERS
from tests.simulator.planted_sink_bugs import PLANTED as PLANTED_IN_SINKS
from tests.simulator.planted_sink_bugs import move_on
from tests.support.explored import explored_seeds
from tests.support.skips import has_no_meaning
from warrenmq.build import build_name
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL, MIN_MASTERS, RANDOM

FIXED_SEEDS = 3
EXPLORED_SEEDS = 2
# Histories within which each bug of readers and sinks must be found.
PLANTED_SEEDS = 100
PLANTED_IN_PROGRAMS = PLANTED_IN_READERS | PLANTED_IN_SINKS


def test_the_fixed_seeds_hold() -> None:
    hold(range(2, 2 + FIXED_SEEDS), run_mirror_seeds, mirror_story)


def test_the_seeds_of_this_commit_hold() -> None:
    seeds = explored_seeds(EXPLORED_SEEDS)
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    hold(seeds, run_mirror_seeds, mirror_story)


def test_a_history_has_masters_that_confirm_and_copies_that_are_compared() -> None:
    story = mirror_story(1, is_shrunken=False)
    for event in ("MasterReport", "EpochConfirm", "CopyReport"):
        assert any(event in line for line in story)


# Histories that have failed, shortened: nodes, locator, policy and steps.
FAILED: dict[str, tuple[int, str, str, list[Step]]] = {
    "a mirror that had heard less than the new master counted as complete": (
        4,
        CLIENT_LOCAL,
        policy("", 3),
        [step("cut", 1, 3, "one way"), step("strike", 3, 0, 1, "kill")],
    ),
    "a mirror that counts was not synchronised, as the policy was manual": (
        4,
        CLIENT_LOCAL,
        policy("", 3, "manual"),
        [step("cut", 1, 3, "one way"), step("strike", 3, 0, 1, "kill")],
    ),
    "a queue that was mirrored anew began below the epoch of its copy": (
        3,
        CLIENT_LOCAL,
        policy("", 2),
        [
            step("strike", 0, 1, 3, "kill"),
            step("long_wait", 9000),
            step("restart", 1),
            step("policy", "ha", policy("^q[02]", 2)),
            step("long_wait", 9000),
            step("policy", "ha", policy("", 2)),
            step("long_wait", 600),
        ],
    ),
    "a queue was deleted by a master that was deposed before the cluster heard of it": (
        3,
        MIN_MASTERS,
        policy("", 2),
        [
            step("declare", 2, 3),
            step("cut", 1, 2, "reset"),
            step("etcd_cut", 2),
            step("delete", 2, 3),
            step("long_wait", 4000),
        ],
    ),
    "mirrors dropped what their master had deleted and the cluster had not": (
        3,
        MIN_MASTERS,
        policy("", 3),
        [
            step("declare", 2, 3),
            step("long_wait", 600),
            step("etcd_cut", 2),
            step("delete", 2, 3),
            step("wait", 50),
            step("crash", 2, "kill", 0),
            step("long_wait", 9000),
            step("restart", 2),
        ],
    ),
    "a node missed that a queue had moved before its group ended": (
        4,
        CLIENT_LOCAL,
        policy("", 4),
        [
            step("freeze", 3, 1),
            step("crash", 0, "kill", 0),
            step("long_wait", 4000),
            step("restart", 0),
            step("long_wait", 4000),
            step("policy", "ha", policy("^none", 2)),
            step("long_wait", 4000),
            step("compact", 3),
            step("freeze", 3, 0),
        ],
    ),
    "a master missed that another one had led before its group ended": (
        3,
        CLIENT_LOCAL,
        policy("", 3),
        [
            publish(0, 0),
            step("freeze", 0, 1),
            step("long_wait", 9000),
            step("policy", "ha", policy("^none", 2)),
            step("long_wait", 4000),
            step("compact", 0),
            step("freeze", 0, 0),
        ],
    ),
    "delayed messages went with a queue of a node that was down": (
        3,
        CLIENT_LOCAL,
        policy("^q[0-2]", 2),
        [
            step("declare", 1, 3),
            step("delay", 0, 0, 2000),
            step("long_wait", 200),
            step("crash", 1, "kill", 0),
            step("delete", 0, 3),
            step("long_wait", 200),
            step("crash", 0, "kill", 0),
        ],
    ),
    "a delayed message left with a copy that another one replaced": (
        3,
        MIN_MASTERS,
        policy("", 3),
        [
            step("crash", 0, "kill", 0),
            step("crash", 1, "kill", 0),
            step("etcd_cut", 2),
            step("delay", 2, 2, 50),
            step("wait", 300),
            step("crash", 2, "kill", 0),
        ],
    ),
    "a transient queue that was mirrored once outlived its node": (
        4,
        CLIENT_LOCAL,
        policy("", 2),
        [
            step("declare", 3, 6),
            step("policy", "ha", policy("^q[0-5]", 2)),
            step("wait", 50),
            step("crash", 3, "power", 0),
        ],
    ),
}


def test_a_synchronisation_sends_what_a_full_disk_has_refused() -> None:
    """The index of the master took it for settled, while the queue went on with it."""
    steps = [
        publish(0, 0, 1),
        step("wait", 50),
        step("disk_full", 0, 0),
        step("publish", 0, -1, 0, 4, 3000, 1, 0),
        step("long_wait", 600),
        step("disk_well", 0),
        step("crash", 1, "kill", 0),
        step("restart", 1),
    ]
    rules = (QueueRules(is_lazy=True),)
    assert ClusterSimulation(history(3, policy("", 2), steps, rules)).run() is None


def test_a_new_master_knows_what_the_disk_of_a_mirror_has_refused() -> None:
    """The batch failed between two epochs, and the mirror of the second counted as in sync."""
    steps = (
        step("disk_full", 0, 0),
        step("cut", 2, 1, "one way"),
        step("publish", 0, -1, 2, 1, 5584, 1, 0),
        step("consume", 0, 2, 0, 0, 1),
        step("long_wait", 4000),
        step("long_wait", 4000),
        step("blackout", "ordered"),
    )
    limits = Limits(dead_tail_bytes=512, segment_entries=8, page_batch=4, rewrite_min_bytes=2048)
    policies = (("hb", policy("", 2)), ("ha", policy("^q[0246]", 3)))
    failed = ClusterHistory(1, 3, RANDOM, 0.9, limits, steps, policies=policies)
    assert ClusterSimulation(failed).run() is None


def test_a_copy_skips_no_seq_ids() -> None:
    """A mirror of an emptied queue began a new segment, and took its master's messages for old."""
    steps = (
        Step("consume", (0, 0, 1, 0, 0), 263983674),
        Step("publish", (2, -1, 0, 2, 221, 0, 1), 3172297058),
        Step("publish", (0, -1, 0, 5, 440, 1, 1), 48066201),
        Step("ack", (0, 3, 0), 1983668545),
        Step("get", (2, 0), 3043456386),
        Step("get", (0, 6), 3549713823),
        Step("feed", (0, 5000), 1598718261),
    )
    limits = Limits(
        segment_entries=8,
        dead_tail_bytes=512,
        journal_file_bytes=4096,
        page_batch=1,
        embed_below=256,
    )
    rules = (QueueRules(is_lazy=True, max_priority=3),)
    policies = (("ha", policy("", 4)),)
    failed = ClusterHistory(
        911063, 3, RANDOM, 0.9, limits, steps, policies, rules, parting="two deaths"
    )
    assert ClusterSimulation(failed).run() is None


# Uses of a queue through a node, by name: steps.
USES: dict[str, Callable[[int], list[Step]]] = {
    "declare": lambda node: [step("declare", node, 4)],
    "get": lambda node: [step("move", 0, node), step("get", 0, 4)],
    "consume": lambda node: [step("move", 0, node), step("consume", 0, 4, 1, 0, 0)],
}


# Faults of etcd by name: the step that begins one, and the step that ends it.
ETCD_FAULTS = {
    "it is out of reach": (step("etcd_cut", 1), step("etcd_heal", -1)),
    # It carries out later what has reached it meanwhile.
    "it stands still": (step("etcd_pause", 1), step("etcd_pause", 0)),
}


@pytest.mark.parametrize("node", [0, 1])
@pytest.mark.parametrize("fault", ETCD_FAULTS)
@pytest.mark.parametrize("use", USES)
def test_a_queue_is_not_used_while_the_cluster_decides_that_it_expires(
    node: int, fault: str, use: str
) -> None:
    """Its master asked etcd again and again, also after clients had used the queue meanwhile."""
    begin, end = ETCD_FAULTS[fault]
    steps = [
        step("declare", 1, 4),
        step("wait", 50),
        publish(1, 4, 1),
        step("long_wait", 600),
        begin,
        step("long_wait", 1500),
        *USES[use](node),
        step("wait", 50),
        end,
        step("long_wait", 600),
    ]
    rules = (*[QueueRules()] * 4, QueueRules(expires_ms=1500))
    assert ClusterSimulation(history(3, policy("", 2), steps, rules)).run() is None


@has_no_meaning(build_name() == "compiled", "replaces methods of the engine")
@pytest.mark.parametrize("name", PLANTED_IN_PROGRAMS)
def test_a_bug_of_readers_sinks_and_kinds_of_queues_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED_IN_PROGRAMS[name]
    with monkeypatch.context() as patch:
        planted.plant(patch)
        for seed in range(planted.seed, planted.seed + PLANTED_SEEDS):
            violation = ClusterSimulation(make_mirror_history(seed)).run()
            if violation is not None:
                break
        else:
            pytest.fail(f"{PLANTED_SEEDS} histories with {name}, and nothing was found")
    print(f"{name}: seed {seed}, {violation}")
    assert ClusterSimulation(make_mirror_history(seed)).run() is None


@has_no_meaning(build_name() == "compiled", "replaces methods of the engine")
def test_movers_that_do_not_stop_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues know what they have got (decision 036), however many nodes send it."""
    move_on(monkeypatch)
    hold(range(1, 1 + FIXED_SEEDS), run_mirror_seeds, mirror_story)


@pytest.mark.parametrize("name", FAILED)
def test_a_history_that_has_failed_holds(name: str) -> None:
    nodes, locator, value, steps = FAILED[name]
    failed = ClusterHistory(
        1, nodes, locator, 0.9, Limits(), tuple(steps), policies=(("ha", value),)
    )
    assert ClusterSimulation(failed).run() is None


@has_no_meaning(build_name() == "compiled", "replaces methods of the engine")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    with monkeypatch.context() as patch:
        planted.plant(patch)
        violation = ClusterSimulation(planted.history).run()
    assert violation is not None
    assert violation.kind == planted.kind, violation
    assert ClusterSimulation(planted.history).run() is None
