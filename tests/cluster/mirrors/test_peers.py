"""How long a node of the cluster has been silent."""

from dataclasses import dataclass
from typing import Any

from warrenmq.cluster.mirrors.peers import MirrorPeers

NODE = b"n2@b"


@dataclass
class QuietLink:
    """A link on which nothing has arrived for some time."""

    peer_name: str
    silence_ms: int


def test_the_silence_of_a_lost_link_counts() -> None:
    peers = MirrorPeers(lambda _node: None)
    link: Any = QuietLink(NODE.decode(), 3000)
    peers.link_up(link)
    peers.link_down(NODE)
    for now_ms in range(100, 1100, 100):
        peers.tick(now_ms)
    assert peers.silence_ms(NODE) == 4000


def test_a_node_that_falls_silent_is_told_once_for_each_limit() -> None:
    peers = MirrorPeers(lambda _node: None, 3000, 4000)
    link: Any = QuietLink(NODE.decode(), 0)
    peers.link_up(link)
    told = []
    for silent_ms in range(0, 5000, 500):
        link.silence_ms = silent_ms
        if peers.tick(1000 + silent_ms):
            told.append(silent_ms)
        if silent_ms == 3500:
            peers.link_down(NODE)
    assert told == [3000, 4000]
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
