"""A master hands out messages while none of its mirrors can have deposed it."""

from typing import Any

from tests.cluster.mirrors.test_peers import QuietLink
from warrenmq.cluster.mirrors.gates import Gates
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.silences import HAND_OUT_MS
from warrenmq.queues.hand_out_gate import OPEN

ONE, TWO = b"n1@a", b"n2@b"


class Lease:
    """The lease of a node."""

    left_ms = 10_000

    def __call__(self) -> int:
        return self.left_ms


def gates_with(*links: QuietLink) -> tuple[Gates, MirrorPeers, Lease]:
    peers = MirrorPeers(lambda _node: None)
    for each in links:
        link: Any = each
        peers.link_up(link)
    lease = Lease()
    return Gates(peers, lease), peers, lease


def test_the_mirror_that_has_heard_least_decides() -> None:
    one, two = QuietLink("n1@a", 0, 1000), QuietLink("n2@b", 0, 2000)
    gates, _peers, _lease = gates_with(one, two)
    gate = gates.gate(frozenset([ONE, TWO]), False, 2000)
    assert gate.until_ms == 1000 + HAND_OUT_MS
    one.echoed_ms = 3000
    assert gates.tick(3000) == set(), "it was open all the time"
    assert gate.until_ms == 2000 + HAND_OUT_MS


def test_a_gate_that_was_shut_between_two_ticks_is_told_when_it_opens() -> None:
    one = QuietLink("n1@a", 0, 1000)
    gates, _peers, _lease = gates_with(one)
    gate = gates.gate(frozenset([ONE]), False, 1000)
    assert gates.tick(1000 + HAND_OUT_MS) == set() and gate.until_ms == 1000 + HAND_OUT_MS
    one.echoed_ms = 1000 + HAND_OUT_MS
    assert gates.tick(1050 + HAND_OUT_MS) == {gate}
    assert gates.tick(1100 + HAND_OUT_MS) == set()


def test_the_lease_counts_where_another_copy_may_lead_when_this_node_does_not_run() -> None:
    gates, _peers, lease = gates_with()
    gate = gates.gate(frozenset(), True, 1000)
    assert gate.until_ms == 11_000
    lease.left_ms = -1
    gates.tick(1050)
    assert gate.until_ms <= 1050
    assert gates.gate(frozenset(), False, 1050) is OPEN


def test_queues_with_the_same_mirrors_share_a_gate() -> None:
    gates, _peers, _lease = gates_with(QuietLink("n1@a", 0, 1000))
    gate = gates.gate(frozenset([ONE]), False, 1000)
    assert gates.gate(frozenset([ONE]), False, 1500) is gate
    assert gates.gate(frozenset([ONE]), True, 1500) is not gate
