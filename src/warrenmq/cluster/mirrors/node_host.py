"""What a replica asks of its node that is alike for all queues: other nodes, and decisions."""

from __future__ import annotations

from collections.abc import Callable

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group_proposer import GroupProposer
from warrenmq.cluster.groups.proposal_queue import LATER, USUAL
from warrenmq.cluster.groups.transitions import Transition
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.replica.host import Fence, ReplicaHost


class NodeHost(ReplicaHost):
    """The node `node`, for the replica of the queue that `put` has declared."""

    def __init__(
        self, node: bytes, peers: MirrorPeers, proposer: GroupProposer, put: PutQueue
    ) -> None:
        self._node = node
        self._peers = peers
        self._proposer = proposer
        self._put = put

    def send(self, node: bytes, payload: bytes, is_urgent: bool = False) -> None:
        """See ReplicaHost."""
        self._peers.send(node, payload, is_urgent)

    def silence_ms(self, node: bytes) -> int:
        """See ReplicaHost."""
        return 0 if node == self._node else self._peers.silence_ms(node)

    def is_dead(self, node: bytes) -> bool:
        """See ReplicaHost."""
        return node != self._node and self._peers.is_dead(node)

    def propose(
        self,
        transition: Transition,
        done: Callable[[int], None],
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        """See ReplicaHost."""
        put = self._put
        rank = self._rank(is_later)
        self._proposer.propose(put.vhost, put.name, put.birth, transition, done, fence, rank)

    def _rank(self, is_later: bool) -> int:
        """The rank of a proposal of the queue; see `proposal_queue.py`."""
        return LATER if is_later else USUAL

    def contact_ms(self) -> int:
        """See ReplicaHost."""
        return self._proposer.contact_ms()

    def is_reachable(self, node: bytes) -> bool:
        """See ReplicaHost."""
        return self._peers.is_reachable(node)
