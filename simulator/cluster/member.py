"""A node of a simulated cluster: a simulated node with all parts of the cluster but the sockets.

It stands for `cluster/node.py` and `cluster/membership/starting.py`: a start opens what the cluster
still has of the node's rows, makes the rest known, announces the node, and follows from there.
Whoever drives the cluster decides when the node hears of decisions and of other nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from simulator.cluster.etcd_model import EtcdModel, ModelledStore, Run
from simulator.cluster.network import Network
from simulator.models.commit_token import CommitToken
from simulator.simulated.file_system import PLENTY
from simulator.simulated.node import USER, VHOST, Limits, SimulatedDisk, SimulatedNode
from simulator.simulated.node_parts import NodeParts
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    DeleteExchange,
    DeleteParameter,
    DeleteQueue,
    PutExchange,
    PutParameter,
    PutPermission,
    PutQueue,
    PutVhost,
)
from warrenmq.broker.definitions.settings import Settings
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.decisions.decisions import ClusterDefinitions
from warrenmq.cluster.decisions.etcd import CONTACT_S
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.decisions.placement import Placement
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group import Copy
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.succession import is_only_complete_copy
from warrenmq.cluster.links.handshake import Identity
from warrenmq.cluster.links.link_secrets import LinkSecrets
from warrenmq.cluster.links.links import Links
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.membership.lost_records import LostRecords
from warrenmq.cluster.membership.own_definitions import own_definitions
from warrenmq.cluster.metadata.conditions import Alive, NodeIs
from warrenmq.cluster.mirroring import Mirroring
from warrenmq.cluster.node_links import FollowedPeers, NodeLinks
from warrenmq.cluster.queue_ends import QueueEnds
from warrenmq.cluster.records import RunningNode
from warrenmq.cluster.sinks.carrier import StagedCarrier
from warrenmq.cluster.sinks.decision import SinkContext
from warrenmq.cluster.sinks.receiver import StagedReceiver
from warrenmq.cluster.sinks.sinks import ClusterSinks

# As in `cluster/membership/joining.py`, `cluster/node.py` and `cluster/decisions/etcd.py`.
LEASE_MS: Final = 10_000
RENEW_MS: Final = 1000
_LEASE_MARGIN_MS: Final = 1000
_SECRET: Final = b"secret"


class _Unwatched:
    """Nobody watches single commits: the oracle judges what clients see."""

    def seal(self) -> CommitToken:
        return CommitToken([], [], [], 0)

    def committed(self, token: CommitToken, has_definitions: bool) -> None:
        """Nobody watches."""

    def commit_failed(self, token: CommitToken) -> None:
        """Nobody watches."""


class MemberClock(ClusterClock):
    """The clock of a simulated node."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def now_ms(self) -> int:
        return self._member.now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._member.clock.call_later(delay_ms / 1000, callback)


class MemberStore(ModelledStore):
    """Etcd as a simulated node reaches it, and its lease as `EtcdDecisions` knows it."""

    def __init__(
        self,
        model: EtcdModel,
        follow: Callable[[int, list[Change]], None],
        now_ms: Callable[[], int],
    ) -> None:
        super().__init__(model, follow)
        # The last renewal, and the first one of those without a break before it (ms).
        self.renewed_ms = 0
        self._contact_since_ms = 0
        self._now_ms = now_ms

    def lease_left_ms(self) -> int:
        """See DecisionStore."""
        return self.renewed_ms + LEASE_MS - _LEASE_MARGIN_MS - self._now_ms()

    def contact_ms(self) -> int:
        """See DecisionStore."""
        now_ms = self._now_ms()
        is_broken = now_ms - self.renewed_ms > CONTACT_S * 1000
        return 0 if is_broken else now_ms - self._contact_since_ms

    def renewed(self, is_new: bool) -> None:
        """The lease was renewed; `is_new`: it is another one than before."""
        if is_new or not self.contact_ms():
            self._contact_since_ms = self._now_ms()
        self.renewed_ms = self._now_ms()


class MemberWatch(ABC):
    """Sees the turns of simulated nodes."""

    @abstractmethod
    def turn_ends(self, member: Member) -> None:
        """The turn has ended, and clients have not got the output of it."""


class MemberProber:
    """Probes of a simulated node, which the network answers when the driver lets it."""

    def __init__(self) -> None:
        # Callbacks by the name of a node, for the news that its host refuses connections.
        self.asked: dict[str, Callable[[], None]] = {}

    def probe(self, name: str, record: RunningNode, refused: Callable[[], None]) -> None:
        self.asked[name] = refused


class Member(SimulatedNode):
    """The node `name` in its `incarnation`, on `disk`."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        disk: SimulatedDisk,
        limits: Limits,
        now_ms: int,
        model: EtcdModel,
        network: Network,
        locator: str,
        rng: Random,
        watch: MemberWatch,
    ) -> None:
        super().__init__(disk, limits, _Unwatched(), now_ms, NodeParts())
        self.name = name
        # The node has received something and has not ended its turn.
        self.has_news = False
        # The disk does nothing for now.
        self.is_stalled = False
        # Publishes wait for the end of an alarm.
        self.is_alarmed = False
        # The process has stopped, and goes on later; its sockets stay open.
        self.is_frozen = False
        self.incarnation = incarnation
        self._model = model
        self._network = network
        self._locator = locator
        self._rng = rng
        self._turns = watch
        self._shared = Definitions()
        self._revision = 0
        # The running nodes as the node has followed them, and those that have only links.
        self._running: dict[str, RunningNode] = {}
        self._lost = LostRecords(self._is_linked)

    # -- start -------------------------------------------------------------------------------------

    def settings(self) -> Settings:
        return Settings(
            node_name=self.name,
            cluster_name="model",
            msg_store_io_batch_size=self.limits.page_batch,
            vm_memory_high_watermark_absolute=PLENTY,
        )

    def definitions(self) -> Definitions:
        """The rows of the node that the cluster still has; see `ClusterStart.open`."""
        name = self.name.encode()
        self._model.drop_node(name)
        self._shared, self._revision = self._model.load(), self._model.revision
        self._forget_transient(self._shared)
        rows = self.disk.metadata.load()
        rows.vhosts = [PutVhost(VHOST, 1)]
        opened, changes = own_definitions(rows, self._shared, name)
        if changes:
            self.disk.metadata.apply(list(changes))
        opened.users = [USER]
        opened.permissions = [PutPermission(VHOST, USER.name, ".*", ".*", ".*")]
        return opened

    def _forget_transient(self, shared: Definitions) -> None:
        """As `Membership.forget_transient`."""
        name = self.name.encode()
        gone: list[PutQueue | PutExchange] = [
            queue
            for queue in shared.queues
            if queue.node == name and not queue.durable and not _is_elsewhere(queue)
        ]
        if not self._model.running:
            gone.extend(each for each in shared.exchanges if not each.durable)
        for each in gone:
            removal: Change = DeleteExchange(each.vhost, each.name)
            if isinstance(each, PutQueue):
                removal = DeleteQueue(each.vhost, 0, each.name)
            self._model.commit([Alive(each, each.birth)], [removal])
        births = {each.birth for each in gone}
        shared.queues = [each for each in shared.queues if each.birth not in births]
        shared.exchanges = [each for each in shared.exchanges if each.birth not in births]
        shared.bindings = [
            each
            for each in shared.bindings
            if not births & {each.source_birth, each.destination_birth}
        ]

    def attach(self) -> None:
        """See `ClusterNode.attach` and `ClusterNode.begin`."""
        name = self.name.encode()
        copy = DefinitionsCopy()
        nodes = KnownNodes()
        clock = MemberClock(self)
        self.ends = QueueEnds(self.name, self.broker, self._time)
        self.follower = Follower(
            name, self.broker, copy, self.ends, self._apply, _apply_nothing, self._time
        )
        self.etcd = MemberStore(self._model, self._follow, self._time)
        self.etcd.told_revision = self._revision
        self.prober = MemberProber()
        self.mirroring = Mirroring(
            self.own_copy,
            self.prober.probe,
            self.broker,
            self.follower,
            self.etcd,
            clock,
            nodes,
            self.wake,
        )
        self.follower.sinks = ClusterSinks(
            SinkContext(name, copy, self.etcd, clock, self.follower.when_followed), self.broker
        )
        self.mirroring.watcher = self.follower.sinks.set_running
        self.follower.load(self._shared, self._revision)
        placement = Placement(
            name, self.broker, copy, self._placeable, self._locator, self._rng.choice, nodes
        )
        peers = FollowedPeers()
        self.broker.shared = ClusterDefinitions(
            self.etcd, self.follower, placement, peers.when_followed, clock
        )
        self._calls = NodeCalls(self.wake)
        # Nodes of a simulation ask each other nothing else.
        self._calls.answerer = StagedReceiver(
            self.broker, self.follower.followed, self._time, lambda _node, _request, _reply: None
        ).answer
        self.broker.slice_carrier = StagedCarrier(self.broker, self._calls, clock)
        self._handler = NodeLinks(
            self.ends, peers, self._calls, self.mirroring, self.follower.followed, self._time
        )
        identity = Identity("model", "model", self.name, self.name, self.incarnation, "1", 1)
        self.links = Links(identity, LinkSecrets(0, _SECRET), self._handler, self._rng.randbytes)
        self._announce()
        self._set_running(self._model.running)

    @property
    def own_copy(self) -> Copy:
        """The name of a copy of a queue that this run of the node would have."""
        return Copy(self.name.encode(), self.name, str(self.incarnation))

    def _time(self) -> int:
        return self.now_ms

    # -- the cluster -------------------------------------------------------------------------------

    def _follow(self, revision: int, changes: list[Change]) -> None:
        running = self._model.running_at.get(revision)
        if running is not None:
            self._set_running(running)
        self.follower.follow(revision, changes)

    def _set_running(self, running: dict[bytes, Run]) -> None:
        """As `ClusterNode._set_running`."""
        before = self._running
        self._running = {name.decode(): run.record for name, run in running.items()}
        for name in before.keys() - self._running.keys():
            self._lost.add(name, before[name], self.now_ms)
        for name in self._running:
            self._lost.discard(name)
        self._set_peers()
        names = {*self._running, self.name}
        if self.name == min(names):
            self.ends.remove_transient(names)

    def _placeable(self) -> list[bytes]:
        """As `ClusterNode._placeable`."""
        running = {*self._running, self.name}
        return [name for name in self.ends.reachable() if name.decode() in running]

    def _is_linked(self, name: str) -> bool:
        return self.links.link_to(name) is not None

    def _set_peers(self) -> None:
        """As `ClusterNode._set_peers`."""
        names = sorted({*self._lost.records(), *self._running, self.name})
        self.links.set_peers({name: (name, 1) for name in names}, self.now_ms)
        self.mirroring.set_running(self._running)

    def _apply(self, changes: list[Change], done: Callable[[str], None]) -> None:
        """Put policies in force; users and vhosts do not change."""
        known = self.broker.parameters
        for change in changes:
            if isinstance(change, PutParameter):
                known[change.vhost, change.component, change.name] = change.value
                self.vhost.put_parameter(change.component, change.name, change.value)
            elif isinstance(change, DeleteParameter):
                known.pop((change.vhost, change.component, change.name), None)
                self.vhost.delete_parameter(change.component, change.name)
        done("")

    def renew(self) -> None:
        """Renew the lease if that is due; announce the node again if the lease has ended."""
        if self.now_ms >= self.etcd.renewed_ms + RENEW_MS and self.etcd.has_answers:
            if self.name.encode() in self._model.running:
                self.etcd.renewed(False)
            else:
                self._announce()

    def _announce(self) -> None:
        name = self.name.encode()
        record = RunningNode(self.name, self.incarnation, self.name, 1, "1")
        self.etcd.lease = NodeIs(name, self._model.put_node(name, record))
        self.etcd.renewed(True)

    def is_announced(self) -> bool:
        """Whether the others know that the node runs, and it has its lease."""
        lease = self.etcd.lease
        run = None if lease is None else self._model.running.get(lease.node)
        return lease is not None and run is not None and run.birth == lease.birth

    def lose_lease(self) -> None:
        """The lease ends, because the node has not renewed it, or by hand."""
        self._model.drop_node(self.name.encode())

    @property
    def lease_ends_ms(self) -> int:
        """When the lease ends unless it is renewed."""
        return self.etcd.renewed_ms + LEASE_MS

    def catch_up(self) -> None:
        """Etcd has compacted what the node has not followed: it compares the states."""
        model = self._model
        self.etcd.told_revision = model.revision
        self.follower.catch_up(model.load(), model.revision)
        self._set_running(model.running)

    def is_followed(self) -> bool:
        """Whether the node has followed everything, and nothing of its own is undecided."""
        return self.follower.followed() == self._model.revision and not self.etcd.request_count

    # -- links -------------------------------------------------------------------------------------

    def link_moved(self) -> None:
        """See LinkedNode."""
        self.has_news = True

    def wake(self) -> None:
        super().wake()
        self.has_news = True

    def send(self) -> None:
        """Send to other nodes what has gathered in the turn, as `ClusterNode.end_turn`."""
        self.mirroring.end_turn()
        self._handler.end_turn()
        self._calls.end_turn()
        self._network.write_out(self, self.links.take_dirty(), self.now_ms)
        self._turns.turn_ends(self)

    def dial(self, members: dict[str, Member]) -> None:
        """Dial the nodes to which there should be links."""
        now_ms = self.now_ms
        for name, _address in self.links.take_dials(now_ms):
            other = members.get(name)
            fault = "connection refused"
            if other is not None:
                fault = self._network.connect(
                    self,
                    other,
                    partial(self.links.dialled, name, name, now_ms),
                    partial(other.links.accepted, self.name, now_ms),
                )
            if fault:
                self.links.dial_failed(name, name, fault, now_ms)
            self.has_news = True

    def beat(self) -> None:
        """Run the timers of the node and of its links, then a turn."""
        self.links.tick(self.now_ms)
        self._calls.tick(self.now_ms)
        names = {*self._running, self.name}
        if self.name == min(names):
            self.ends.sweep({*names, *self._lost.records()})
        if self._lost.expire(self.now_ms):
            self._set_peers()
        self.mirroring.tick()
        self.tick()

    def refuse(self, is_refused: Callable[[str], bool]) -> None:
        """Answer the probes of this node; `is_refused` tells of the host of each node."""
        asked, self.prober.asked = self.prober.asked, {}
        for name, refused in asked.items():
            if is_refused(name):
                refused()
                self.has_news = True


def _apply_nothing(changes: list[Change], done: Callable[[str], None]) -> None:
    """The rows of vhosts do not change."""
    done("")


def _is_elsewhere(queue: PutQueue) -> bool:
    """As in `Membership.forget_transient`."""
    group = group_of(queue)
    return group is not None and not is_only_complete_copy(group, queue.node)
