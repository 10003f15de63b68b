"""What a mirrored queue loses when a node stops: T13's cases, without a cluster."""

from tests.support.brokers.mirrors import MASTER, copy, facts
from warrenmq.admin.control.stop_losses import lost_if_stops
from warrenmq.admin.protocol.mirrors import StopLoss
from warrenmq.broker.mirrors import MirrorFacts


def of_master(found: MirrorFacts) -> StopLoss:
    """The loss with the master, of ten messages, three of them transient."""
    return lost_if_stops(found, 10, 3)[MASTER]


def test_a_synchronised_mirror_takes_over_without_loss() -> None:
    found = facts(copy("a", is_synced=False), copy("b", is_online=False), copy("c"))
    assert of_master(found) == StopLoss(0, "nothing: c takes over")


def test_without_one_the_queue_waits_for_its_node() -> None:
    down = StopLoss(
        3,
        f"the queue is down until {MASTER} is back, with 7 messages; 3 transient messages are lost",
    )
    for found in (
        facts(),
        facts(copy("a", is_synced=False)),
        facts(copy("a", is_online=False)),
        facts(copy("a", is_synced=False, is_online=False), promotes_unsynced=True),
    ):
        assert of_master(found) == down


def test_a_policy_may_let_an_unsynchronised_mirror_take_over() -> None:
    """F1: only by an explicit policy, and then everybody can see what it costs."""
    late = copy("a", is_synced=False, lag=(6, 600))
    found = facts(late, promotes_unsynced=True)
    assert of_master(found) == StopLoss(
        6, "6 messages: a, which is not synchronised, takes over"
    )  # fmt: skip
    unknown = facts(copy("a", is_synced=False, lag=(-1, -1)), promotes_unsynced=True)
    assert of_master(unknown).messages is None
    synchronised = facts(late, copy("b"), promotes_unsynced=True)
    assert of_master(synchronised) == StopLoss(0, "nothing: b takes over")


def test_a_mirror_takes_no_message_with_it() -> None:
    two = facts(copy("a"), copy("b"), copy("c", is_synced=False), min_sync=2)
    losses = lost_if_stops(two, 10, 3)
    assert {losses[node].text for node in "abc"} == {"nothing"}
    one = facts(copy("a"), copy("c", is_synced=False))
    assert lost_if_stops(one, 10, 3)["a"].text == (
        f"nothing; {MASTER} then has the only synchronised copy"
    )
    needed = facts(copy("a"), min_sync=2)
    assert "publishes are refused until 2 copies" in lost_if_stops(needed, 10, 3)["a"].text


def test_a_queue_that_is_down_has_no_master_to_lose() -> None:
    assert list(lost_if_stops(facts(copy("a"), is_down=True), 10, 3)) == ["a"]
