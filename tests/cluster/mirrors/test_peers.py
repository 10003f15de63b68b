"""How long a node of the cluster has been silent."""

from dataclasses import dataclass
from typing import Any

from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.silences import HAND_OUT_MS, MASTER_SILENT_MS

NODE = b"n2@b"


@dataclass
class QuietLink:
    """A link on which nothing has arrived for some time."""

    peer_name: str
    silence_ms: int
    echoed_ms: int = 0

    def send(self, lane: int, kind: int, payload: bytes) -> None:
        """Nobody is at the other end."""


def test_the_silence_of_a_lost_link_counts() -> None:
    peers = MirrorPeers(lambda _node: None)
    link: Any = QuietLink(NODE.decode(), 3000)
    peers.link_up(link)
    peers.link_down(NODE)
    for now_ms in range(100, 1100, 100):
        peers.tick(now_ms)
    assert peers.silence_ms(NODE) == 4000


def test_a_node_that_falls_silent_is_told_once_for_each_limit() -> None:
    peers = MirrorPeers(lambda _node: None)
    link: Any = QuietLink(NODE.decode(), 0)
    peers.link_up(link)
    told = []
    for silent_ms in range(0, 5000, 500):
        link.silence_ms = silent_ms
        if peers.tick(1000 + silent_ms):
            told.append(silent_ms)
        if silent_ms == 3500:
            peers.link_down(NODE)
    assert told == [3000, 3500], "at both limits, seen at the next tick"
    peers.link_up(link)
    link.silence_ms = 0
    assert peers.tick(7000) == set()
    link.silence_ms = 3000
    assert peers.tick(10_000) == {NODE}


def test_a_node_whose_link_is_lost_is_probed_often_at_first() -> None:
    probes: list[str] = []
    peers = MirrorPeers(probes.append)
    link: Any = QuietLink(NODE.decode(), 300)
    peers.link_up(link)
    peers.tick(1000)
    # The process dies: its listener may accept this probe still, and refuses the next one.
    peers.link_down(NODE)
    assert len(probes) == 1
    for now_ms in range(1050, 1501, 50):
        peers.tick(now_ms)
    assert len(probes) == 11
    # From then on it is dead, or out of reach for longer.
    for now_ms in range(1550, 3501, 50):
        peers.tick(now_ms)
    assert len(probes) == 15
    peers.link_up(link)
    peers.tick(4000)
    assert len(probes) == 15


def test_a_node_that_refuses_is_probed_now_and_then() -> None:
    probes: list[str] = []
    peers = MirrorPeers(probes.append)
    link: Any = QuietLink(NODE.decode(), 0)
    peers.link_up(link)
    peers.tick(1000)
    peers.link_down(NODE)
    assert peers.refused(NODE)
    for now_ms in range(1050, 2001, 50):
        peers.tick(now_ms)
    assert len(probes) == 3


def test_a_lost_record_is_a_death_once_the_node_is_silent_too() -> None:
    """Records go with their leases, as after a pause of etcd; then healthy links are left."""
    peers = MirrorPeers(lambda _node: None)
    link: Any = QuietLink(NODE.decode(), 0)
    peers.set_running({NODE})
    peers.link_up(link)
    assert peers.set_running(set()) == {NODE}
    assert not peers.is_dead(NODE)
    peers.link_down(NODE)
    for now_ms in range(500, MASTER_SILENT_MS, 500):
        peers.tick(now_ms)
        assert not peers.is_dead(NODE), "it may not know yet that it is on its own"
    peers.tick(4000)
    assert peers.is_dead(NODE)
    assert peers.is_dead(b"n3@c"), "of which nothing was ever heard"


def test_a_node_that_does_not_know_yet_who_runs_holds_nobody_dead() -> None:
    """A start follows the groups before it reads the records of the running nodes."""
    peers = MirrorPeers(lambda _node: None)
    assert not peers.is_dead(NODE)
    assert peers.set_running({NODE}) == set() and not peers.is_dead(NODE)
    assert peers.set_running(set()) == {NODE} and peers.is_dead(NODE)


def test_a_mirror_is_certain_to_follow_for_some_time_after_it_has_heard() -> None:
    peers = MirrorPeers(lambda _node: None)
    link: Any = QuietLink(NODE.decode(), 0, echoed_ms=5000)
    peers.link_up(link)
    link.echoed_ms = 6000
    assert peers.heard_until_ms(NODE, 1 << 40) == 6000 + HAND_OUT_MS
    peers.link_down(NODE)
    assert peers.heard_until_ms(NODE, 1 << 40) == 6000 + HAND_OUT_MS
    new_link: Any = QuietLink(NODE.decode(), 0)
    peers.link_up(new_link)
    assert peers.heard_until_ms(NODE, 1 << 40) == 6000 + HAND_OUT_MS, "it has said nothing yet"
    peers.link_down(NODE)
    peers.refused(NODE)
    assert peers.heard_until_ms(NODE, 20_000) == 20_000, "the lease keeps it from taking over"
    assert peers.heard_until_ms(NODE, 0) == 6000 + HAND_OUT_MS
