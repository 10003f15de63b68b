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
