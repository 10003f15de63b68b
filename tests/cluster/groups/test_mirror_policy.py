"""What a queue's policy and arguments ask for."""

import pytest

from tests.support.brokers.amqp_frames import table
from warrenmq.broker.policies.keys import check_settings
from warrenmq.cluster.groups.mirror_policy import (
    ALL,
    EXACTLY,
    NODES,
    UNMIRRORED,
    MirrorPolicy,
    mirror_policy,
)

QUORUM = table(x__queue__type="quorum")


def policy_of(**settings: object) -> MirrorPolicy:
    definition: dict[str, object] = {
        f"ha-{name.replace('_', '-')}": value for name, value in settings.items()
    }
    assert check_settings(definition, is_operator=False) == ""
    return mirror_policy(definition, b"", is_exclusive=False)


@pytest.mark.parametrize("definition", [None, {}, {"max-length": 5}])
def test_no_policy_no_mirrors(definition: dict[str, object] | None) -> None:
    policy = mirror_policy(definition, table(x__queue__type="classic"), is_exclusive=False)
    assert policy == UNMIRRORED
    assert not policy.is_mirrored


def test_an_exclusive_queue_is_never_mirrored() -> None:
    assert mirror_policy({"ha-mode": "all"}, b"", is_exclusive=True) == UNMIRRORED


def test_defaults() -> None:
    policy = policy_of(mode="all")
    assert policy == MirrorPolicy(ALL)
    assert policy.is_mirrored
    assert (policy.is_automatic, policy.sync_batch_size, policy.min_sync) == (False, 4096, 1)
    assert not policy.promotes_unsynced_on_failure
    assert not policy.promotes_unsynced_on_shutdown


def test_modes() -> None:
    assert policy_of(mode="exactly", params=2) == MirrorPolicy(EXACTLY, copies=2)
    nodes = frozenset([b"rabbit@10.18.195.57", b"b"])
    assert policy_of(mode="nodes", params=["b", "rabbit@10.18.195.57"]) == MirrorPolicy(
        NODES, nodes=nodes
    )


@pytest.mark.parametrize(
    ("mode", "is_automatic"), [("automatic", True), ("manual", False), ("manually", False)]
)
def test_sync_modes(mode: str, is_automatic: bool) -> None:
    assert policy_of(mode="all", sync_mode=mode).is_automatic == is_automatic


def test_promotion_of_mirrors_that_are_not_in_sync() -> None:
    failure = policy_of(mode="all", promote_on_failure="always", promote_on_shutdown="when-synced")
    assert failure == MirrorPolicy(ALL, promotes_unsynced_on_failure=True)
    shutdown = policy_of(mode="all", promote_on_failure="when-synced", promote_on_shutdown="always")
    assert shutdown == MirrorPolicy(ALL, promotes_unsynced_on_shutdown=True)


def test_numbers() -> None:
    policy = policy_of(mode="all", sync_batch_size=7, min_sync=2)
    assert (policy.sync_batch_size, policy.min_sync) == (7, 2)


def test_a_quorum_queue_has_three_copies() -> None:
    wanted = MirrorPolicy(EXACTLY, copies=3, is_automatic=True)
    assert mirror_policy(None, QUORUM, is_exclusive=False) == wanted
    assert mirror_policy({"expires": 5}, QUORUM, is_exclusive=False) == wanted


def test_a_quorum_queue_says_how_many_copies_it_has() -> None:
    arguments = table(x__queue__type="quorum", x__quorum__initial__group__size=5)
    assert mirror_policy(None, arguments, is_exclusive=False).copies == 5


def test_the_policy_of_a_quorum_queue_beats_its_type() -> None:
    assert mirror_policy({"ha-mode": "all"}, QUORUM, is_exclusive=False) == MirrorPolicy(ALL)
