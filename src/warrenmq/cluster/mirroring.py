"""The mirrored queues of a node, on the node's loop: puts the parts of `mirrors/` together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from warrenmq.broker.broker import Broker
from warrenmq.cluster.decision_store import ClusterClock, DecisionStore
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.groups.group import Copy
from warrenmq.cluster.groups.group_proposer import GroupProposer
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.wanted_mirrors import WantedMirrors
from warrenmq.cluster.links.link import Link
from warrenmq.cluster.mirrors.control import ReplicaControl
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.replicas import Replicas
from warrenmq.cluster.records import RunningNode

# How long a host has to answer or to refuse a probe (s).
_PROBE_S: Final = 0.5

# Calls the function later if the host of the node of this name and record refuses connections.
Probe = Callable[[str, RunningNode, Callable[[], None]], None]
# Takes the records of running nodes, by name, and the names of those that are known to be dead.
NodeWatcher = Callable[[Mapping[str, RunningNode], Collection[str]], None]


class SocketProber:
    """Probes by a connection to the port for other nodes, one at a time for each node."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Probes under way, by node.
        self._probes: dict[str, asyncio.Task[None]] = {}

    def probe(self, name: str, record: RunningNode, refused: Callable[[], None]) -> None:
        """See `Probe`."""
        if name not in self._probes:
            self._probes[name] = self._loop.create_task(self._ask(name, record, refused))

    async def _ask(self, name: str, record: RunningNode, refused: Callable[[], None]) -> None:
        try:
            async with asyncio.timeout(_PROBE_S):
                _reader, writer = await asyncio.open_connection(record.host, record.port)
            writer.close()
        except ConnectionRefusedError:
            refused()
        except OSError:
            # A node that does not answer may be alive and out of reach.
            pass
        finally:
            del self._probes[name]


class Mirroring:
    """The replicas of the node of `me`, and whom they talk to."""

    def __init__(
        self,
        me: Copy,
        probe: Probe,
        broker: Broker,
        follower: Follower,
        store: DecisionStore,
        clock: ClusterClock,
        nodes: KnownNodes,
        wake: Callable[[], None],
    ) -> None:
        self._ask_host = probe
        self._wake = wake
        self._nodes = nodes
        self._running: dict[str, RunningNode] = {}
        # Gets the records of the running nodes, and the names of those among them that are dead.
        self.watcher: NodeWatcher | None = None
        self.peers = MirrorPeers(self._probe)
        proposer = GroupProposer(store, follower.copy, clock, follower.when_followed, wake)
        wanted = WantedMirrors(me.node, broker, follower.copy, nodes)
        self.replicas = Replicas(
            me, broker, follower, proposer, nodes, wanted, self.peers, clock.now_ms, wake
        )
        follower.groups = self.replicas
        self._control = ReplicaControl(self.replicas, follower.copy, nodes)
        broker.mirrors = self._control

    def set_running(self, running: dict[str, RunningNode]) -> None:
        """Take over the records of the running nodes."""
        self._running = dict(running)
        self.replicas.set_running({name.encode() for name in running})
        self._know_nodes()

    def _know_nodes(self) -> None:
        """Let placement know which nodes can have copies.

        A record stays until the lease of its node ends. A node whose host refuses connections is
        dead for certain, so its copies are replaced without that delay; a silent one may come back
        with its copies.
        """
        dead = {name for name in self._running if self.peers.is_dead(name.encode())}
        self._nodes.set_running(
            {name: record for name, record in self._running.items() if name not in dead}
        )
        if self.watcher is not None:
            self.watcher(self._running, dead)
        self.replicas.look_again()

    def leave(self, done: Callable[[], None]) -> None:
        """Call `done` when the groups know that this node stops in good order: `Replica.leave`."""
        left = 1

        def answered(_outcome: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.replicas.log.flush()
                done()

        for place in self.replicas.places.values():
            if place.replica.leave(answered):
                left += 1
        answered(0)
        self._wake()

    # -- links -------------------------------------------------------------------------------------

    def link_up(self, link: Link) -> None:
        """There is a link to a node."""
        self.peers.link_up(link)
        self._know_nodes()
        self.replicas.on_link_up(link.peer_name.encode())

    def link_down(self, name: str) -> None:
        """The link to the node `name` is lost."""
        self.peers.link_down(name.encode())
        self.replicas.on_link_down(name.encode())

    def take_record(self, name: str, payload: bytes) -> str:
        """Take a record of a replica on `name`; returns "" or what is wrong with it."""
        return self.replicas.on_record(name.encode(), payload)

    # -- probes ------------------------------------------------------------------------------------

    def _probe(self, name: str) -> None:
        record = self._running.get(name)
        if record is not None:
            self._ask_host(name, record, partial(self._on_refused, name.encode()))

    def _on_refused(self, name: bytes) -> None:
        if self.peers.refused(name):
            self._know_nodes()
            self.replicas.on_gone(name)
            self._wake()

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """See `Replicas.end_turn`."""
        self.replicas.end_turn()

    def tick(self) -> None:
        """See `Replicas.tick`."""
        self.replicas.tick()
        self._control.tick()
