"""Fixtures of two nodes, and the tests of the protocol with all queues on another node."""

from collections.abc import Iterator

import pytest

from tests.cluster.remote.three_nodes import ThreeNodes
from tests.cluster.remote.two_nodes import TwoNodes
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from tests.support.brokers.fixtures import Amqp
from tests.support.brokers.memory_broker import EngineLink
from tests.support.skips import does_not_apply
from warrenmq.admin.protocol.control import PolicyKind
from warrenmq.broker.definitions.settings import Settings


class FarAmqp(Amqp):
    """Peers at the front of a cluster whose queues are at the back."""

    def __init__(self) -> None:
        super().__init__("")
        self.cluster = TwoNodes()
        self.cluster.shares_exclusive = True
        self.memory = self.cluster.front

    def set_policy(self, queue: bytes, kind: PolicyKind = "policy", **definition: object) -> None:
        for node in (self.cluster.back, self.cluster.front):
            self.memory = node
            super().set_policy(queue, kind, **definition)

    def clear_policy(self, queue: bytes, kind: PolicyKind = "policy") -> None:
        name = queue.decode()
        self._policies.remove((kind, name))
        for node in self.cluster.nodes.values():
            node.vhost.delete_parameter(kind, name)

    def configure(self, settings: Settings) -> None:
        does_not_apply("settings of its own")


@pytest.fixture
def amqp() -> Iterator[FarAmqp]:
    """The front of a cluster, as the tests of the protocol want their broker."""
    far = FarAmqp()
    yield far
    far.close()
    far.cluster.check()


@pytest.fixture
def cluster() -> TwoNodes:
    """Two nodes with links."""
    return TwoNodes()


@pytest.fixture
def nodes() -> Iterator[ThreeNodes]:
    """Three nodes; all invariants hold in the end."""
    cluster = ThreeNodes()
    yield cluster
    cluster.pump()
    cluster.check()


def read_arrived(peer: Peer) -> None:
    """Take all frames that have come, without a wait."""
    link = peer.link
    assert isinstance(link, EngineLink)
    while link.arrived or peer.has_frame():
        peer.read()


def near(cluster: TwoNodes) -> ChannelPeer:
    """A channel at the node of the queues."""
    return Peer(cluster.back.connect()).open().channel()


def far(cluster: TwoNodes) -> ChannelPeer:
    """A channel at the other node."""
    return Peer(cluster.front.connect()).open().channel()
