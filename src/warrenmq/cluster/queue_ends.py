"""Queues across nodes: those of other nodes here, and those of this node for others.

A queue of another node is a `RemoteQueue` in its vhost, whether that node is running or not; what
it does goes over the link to the node, in a `RemoteNode`. What clients of another node do with the
queues of this one arrives over the same link, and a `RemoteClients` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change
from warrenmq.broker.definitions.removal_changes import removal_changes
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decisions.follower import FollowerHost
from warrenmq.cluster.remote.remote_clients import RemoteClients
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.remote.queue_link import QueueLink

# Time (ms) between two looks for transient queues of dead nodes.
_SWEEP_MS: Final = 2_000


class QueueEnds(FollowerHost):
    """The ends of queues across nodes, at the node `node`; `now_ms` tells the time."""

    def __init__(self, node: str, broker: Broker, now_ms: Callable[[], int]) -> None:
        self._node = node
        self._broker = broker
        self._now_ms = now_ms
        # Clients of other nodes that use queues of this one, by node.
        self._clients: dict[str, RemoteClients] = {}
        # When `sweep` looks again (ms).
        self._sweep_ms: int = 0

    # -- queues of other nodes ---------------------------------------------------------------------

    def add(self, vhost: Vhost, definition: QueueDefinition, node: bytes, epoch: int = 0) -> None:
        vhost.add_remote_queue(definition, node, epoch)

    def remove(self, vhost: Vhost, name: bytes, birth: int) -> list[Change]:
        queue = vhost.remote_queues.get(name)
        if queue is None or queue.definition.birth != birth:
            return []
        removed = vhost.remove_remote_queue(queue, self._now_ms())
        return removal_changes(vhost.name, removed, with_transient=True)

    def remove_transient(self, running: set[str]) -> None:
        """Remove from the cluster the transient queues of all nodes but those that are running.

        A mirrored queue, which has an epoch, waits for a promotion instead, or for its node.
        """
        for vhost in self._broker.vhosts.values():
            for queue in list(vhost.remote_queues.values()):
                is_lost = not queue.durable and queue.epoch == 0
                if is_lost and queue.home.name.decode() not in running:
                    vhost.add_changes(vhost.delete_abandoned(queue, self._now_ms()))

    def sweep(self, running: set[str]) -> None:
        """Look now and then for transient queues that came after the death of their node.

        A declaration may wait for the store of the cluster while the node that it chose dies.
        """
        now_ms = self._now_ms()
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + _SWEEP_MS
            self.remove_transient(running)

    # -- links -------------------------------------------------------------------------------------

    def link_up(self, name: str, link: QueueLink) -> None:
        """There is a link to the node `name`."""
        clients = RemoteClients(self._broker, link)
        self._clients[name] = clients
        self._broker.turn_ends.append(clients)
        self._broker.remote_node(name.encode()).link_up(link)

    def link_down(self, name: str) -> None:
        """The link to the node `name` is gone."""
        now_ms = self._now_ms()
        clients = self._clients.pop(name)
        self._broker.turn_ends.remove(clients)
        clients.end(now_ms)
        self._broker.remote_node(name.encode()).link_down(now_ms)

    def take_operations(self, name: str, payload: bytes) -> None:
        """Carry out what clients of the node `name` do. Raises MalformedRecordError."""
        self._clients[name].take_frame(payload, self._now_ms())

    def take_events(self, name: str, payload: bytes) -> None:
        """Take what became of operations of clients of this node. Raises MalformedRecordError."""
        self._broker.remote_node(name.encode()).take_frame(payload, self._now_ms())

    def is_reachable(self, name: str) -> bool:
        """Whether there is a link to the node `name`."""
        return name in self._clients

    def reachable(self) -> list[bytes]:
        """The names of this node and of all nodes to which there is a link."""
        return [self._node.encode(), *(name.encode() for name in self._clients)]
