"""A node in its cluster, on the node's loop: lease, watch, links, and what they lead to.

    open -> attach -> begin -> stop
                        ^  |
                   resume  suspend

`open` enters the cluster before the data directory is opened, `attach` makes the queues of other
nodes known, `begin` announces the node and follows the cluster from then on. Between `suspend` and
`resume` the node is none of those that run, while its process goes on.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

import warrenmq
from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import Change, Definitions, MetadataError
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.decisions.decisions import ClusterDefinitions
from warrenmq.cluster.decisions.etcd import EtcdDecisions
from warrenmq.cluster.decisions.follower import Apply, Follower, Store
from warrenmq.cluster.decisions.placement import Placement
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.facts import LinkFacts
from warrenmq.cluster.groups.group import Copy
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.links.handshake import Identity
from warrenmq.cluster.links.link_secrets import LinkSecrets
from warrenmq.cluster.links.links import Links, shown
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.links.shell import LinkShell
from warrenmq.cluster.links.tls import LinkTls
from warrenmq.cluster.membership.control import ClusterControl
from warrenmq.cluster.membership.joining import LEASE_S, Membership, NotYet, name_of, running_node
from warrenmq.cluster.membership.lost_records import LostRecords
from warrenmq.cluster.membership.secret_rotation import SecretRotation
from warrenmq.cluster.membership.starting import ClusterStart, Patience
from warrenmq.cluster.metadata.endpoints import TlsFiles
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata, Watched
from warrenmq.cluster.metadata.keys import parts_of
from warrenmq.cluster.metadata.operations import KeyValue, RawDelete
from warrenmq.cluster.mirroring import Mirroring, SocketProber
from warrenmq.cluster.node_links import FollowedPeers, NodeLinks
from warrenmq.cluster.queue_ends import QueueEnds
from warrenmq.cluster.records import (
    META,
    NODES,
    ClusterMeta,
    RunningNode,
    copies_id,
    decode_record,
)
from warrenmq.cluster.sinks.decision import SinkContext
from warrenmq.cluster.sinks.sinks import ClusterSinks

logger = logging.getLogger("warren.cluster")

# Interval of renewals of the lease (s). They also tell whether etcd answers this node: see
# `EtcdDecisions.contact_ms`.
_RENEW_S: Final = 1.0
# How long a start waits for links to the running nodes (s).
_LINKS_S: Final = 3.0
# Pause before a step with etcd is tried again (s).
_PAUSE_S: Final = 0.5
# How long a node that comes back waits for etcd, or for the end of an earlier run (s).
_RESUME_S: Final = 15.0
# How long it has to put in force what it has missed, and to announce itself (s).
_FOLLOW_S: Final = 30.0
# How long a node that stops waits until its groups know it (s).
_LEAVE_S: Final = 2.0
DATA_FORMAT: Final = 1


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of the cluster in the configuration.

    `listen`: (host, port) for other nodes; `host`: what they dial, with `port`, 0 for the port that
    this node listens on.
    """

    cluster: str
    node: str
    secret: str
    listen: tuple[str, int]
    host: str
    port: int
    tls: LinkTls | None
    locator: str


class NodeClock(ClusterClock):
    """The clock of the node and the timers of its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._now_ms = now_ms
        self._wake = wake

    def now_ms(self) -> int:
        return self._now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        def call() -> None:
            callback()
            self._wake()

        self._loop.call_later(delay_ms / 1000, call)


class ClusterNode:
    """This node in the cluster of `settings`; `metadata` is the cluster's, behind etcd.

    `now_ms` is the node's clock, `wake` asks for the end of a turn, `read_buffer` is shared with
    the sockets of clients.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        metadata: EtcdMetadata,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        read_buffer: memoryview,
    ) -> None:
        self.settings = settings
        # Running nodes by name, this one included, with the births of their records.
        self.running: dict[str, tuple[RunningNode, int]] = {}
        self._lost = LostRecords(self._is_linked)
        self._metadata = metadata
        self._loop = loop
        self._broker = broker
        self._now_ms = now_ms
        self._wake = wake
        self._read_buffer = read_buffer
        self._membership = Membership(
            settings.cluster, settings.node, metadata, secrets.token_bytes, now_ms
        )
        self._start = ClusterStart(settings.node, settings.secret, self._membership, metadata)
        self._clock = NodeClock(loop, now_ms, wake)
        self.decisions = EtcdDecisions(loop, metadata, settings.node.encode(), wake)
        self.copy = DefinitionsCopy()
        self.peers = FollowedPeers()
        self.calls = NodeCalls(wake)
        self._follower: Follower | None = None
        self._shared: ClusterDefinitions | None = None
        self._ends = QueueEnds(settings.node, broker, now_ms)
        self._nodes = KnownNodes()
        # The mirrored queues; None before `attach`.
        self._mirroring: Mirroring | None = None
        # The sinks; None before `attach`.
        self._sinks: ClusterSinks | None = None
        self._links: Links | None = None
        self._handler: NodeLinks | None = None
        self._shell: LinkShell | None = None
        self._record: RunningNode | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._is_stopping = False
        # Arguments that `resume` needs again: the data directory, the definitions of a new cluster,
        # the listeners for clients.
        self.directory = Path()
        self._first: list[Change] = []
        self._listeners: list[tuple[str, str, int]] = []
        self.control = ClusterControl(
            self,
            settings.node,
            settings.cluster,
            loop,
            broker,
            self.copy,
            metadata,
            self._membership,
            SecretRotation(settings.cluster, metadata, secrets.token_bytes),
            self.calls,
            now_ms,
        )

    @property
    def replica_id(self) -> str:
        """The id of the data directory; only after `open`."""
        assert self._start.identity is not None
        return self._start.identity.replica_id

    # -- start -------------------------------------------------------------------------------------

    def open(
        self, directory: Path, rows: Definitions, first: list[Change]
    ) -> tuple[Definitions, list[Change]]:
        """Enter the cluster; see `ClusterStart.open`. Blocks until etcd has answered."""
        self.directory = directory
        self._first = first
        return self._start.open(directory, rows, first)

    def attach(self, apply: Apply, store: Store) -> None:
        """Make known to the broker, whose vhosts are open, what else the cluster has.

        `apply` and `store` are those of `Follower`.
        """
        follower = Follower(
            self.settings.node.encode(),
            self._broker,
            self.copy,
            self._ends,
            apply,
            store,
            self._now_ms,
        )
        self._mirroring = Mirroring(
            self._own_copy(),
            SocketProber(self._loop).probe,
            self._broker,
            follower,
            self.decisions,
            self._clock,
            self._nodes,
            self._wake,
        )
        self._sinks = ClusterSinks(
            SinkContext(
                self.settings.node.encode(),
                self.copy,
                self.decisions,
                self._clock,
                follower.when_followed,
            ),
            self._broker,
        )
        follower.sinks = self._sinks
        self._mirroring.watcher = self._sinks.set_running
        follower.sets_aside = True
        follower.load(self._start.shared, self._start.revision)
        self._follower = follower
        placement = Placement(
            self.settings.node.encode(),
            self._broker,
            self.copy,
            self._placeable,
            self.settings.locator,
            mirrors=self._nodes,
        )
        self._shared = ClusterDefinitions(
            self.decisions, follower, placement, self.peers.when_followed, self._clock
        )
        self._broker.shared = self._shared

    def _own_copy(self) -> Copy:
        """The identity that a copy of a queue gets on this node, until the node is restarted."""
        identity = self._start.identity
        assert identity is not None
        name = self.settings.node.encode()
        directory = copies_id(identity.replica_id, identity.restored)
        return Copy(name, directory, str(identity.incarnation))

    async def begin(self) -> str:
        """Announce the node, link it with the others, and follow the cluster.

        Returns HOST:PORT of the listener for nodes. Raises ClusterError if that cannot be opened.
        """
        start, follower = self._start, self._follower
        assert start.meta is not None and start.identity is not None and follower is not None
        identity = Identity(
            start.meta.id,
            self.settings.cluster,
            self.settings.node,
            start.identity.replica_id,
            start.identity.incarnation,
            warrenmq.__version__,
            DATA_FORMAT,
        )
        self._handler = NodeLinks(
            self._ends, self.peers, self.calls, self._mirroring, follower.followed, self._now_ms
        )
        self._links = Links(identity, _link_secrets(start.meta), self._handler, secrets.token_bytes)
        self._use_secrets(start.meta)
        self._shell = LinkShell(
            self._loop,
            self._links,
            self._now_ms,
            self._wake,
            self._read_buffer,
            self.settings.tls,
        )
        host, port = self._shell.start(*self.settings.listen)
        self._record = RunningNode(
            start.identity.replica_id,
            start.identity.incarnation,
            self.settings.host,
            self.settings.port or port,
            warrenmq.__version__,
            restored=start.identity.restored,
        )
        await self._register()
        self._set_running(await self.decisions.run(self._load_running))
        self.decisions.watch(start.revision + 1, self._follow, self._on_lost)
        self._renewing = self._loop.create_task(self._renew())
        await self._link_all()
        return shown((host, port))

    async def announce(self, listeners: list[tuple[str, str, int]]) -> None:
        """Let the others know the listeners for clients: (protocol, interface, port)."""
        self._listeners = listeners
        assert self._record is not None
        record = msgspec.structs.replace(self._record, listeners=tuple(listeners))
        self._record = record
        lease, birth = self.decisions.lease, self.decisions.birth
        try:
            await self.decisions.run(lambda: self._membership.update(record, lease, birth))
        except MetadataError as error:
            logger.warning("the listeners of the node are not announced: %s", error)

    async def announce_draining(self, is_on: bool) -> None:
        """Let the others know whether this node is in maintenance mode; a run begins without it.

        Raises MetadataError, and NotYet if the node's record is gone with its lease.
        """
        assert self._record is not None
        record = msgspec.structs.replace(self._record, is_draining=is_on)
        lease, birth = self.decisions.lease, self.decisions.birth
        if not await self.decisions.run(lambda: self._membership.update(record, lease, birth)):
            raise NotYet("the node to be announced again")
        self._record = record
        # The watch brings the record, too, but the next queue must not come here before that.
        known = self.running.get(self.settings.node)
        if known is not None:
            self.running[self.settings.node] = (record, known[1])

    def _placeable(self) -> list[bytes]:
        """The names of the nodes that can take a new queue: running, reachable, not in maintenance.

        Nobody would remove the transient queue of a node that dies without a record.
        """
        own = self.settings.node
        running = {
            name for name, (record, _birth) in self.running.items() if not record.is_draining
        }
        if own not in self.running:
            running.add(own)
        return [name for name in self._ends.reachable() if name.decode() in running]

    async def _register(self) -> None:
        record = self._record
        assert record is not None
        reason = ""
        while not self._is_stopping:
            began_s = time.monotonic()
            try:
                lease, birth = await self.decisions.run(lambda: self._membership.register(record))
            except (MetadataError, NotYet) as error:
                if str(error) != reason:
                    reason = str(error)
                    logger.warning("waiting to announce the node: %s", reason)
                await asyncio.sleep(_PAUSE_S)
            else:
                self.decisions.lease = lease
                self.decisions.birth = birth
                self.decisions.renewed(began_s, LEASE_S)
                return

    async def _link_all(self) -> None:
        """Wait, for a moment, for the links to the nodes that run."""
        deadline = self._loop.time() + _LINKS_S
        while self._loop.time() < deadline:
            names = {name for name in self.running if name != self.settings.node}
            if all(self._ends.is_reachable(name) for name in names):
                return
            await asyncio.sleep(0.02)

    # -- the lease ---------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Keep the lease. When it has ended in spite of that, announce the node again."""
        while not self._is_stopping:
            await asyncio.sleep(_RENEW_S)
            keep_alive = partial(self._metadata.gateway.keep_alive, self.decisions.lease)
            began_s = time.monotonic()
            try:
                left_s = await self.decisions.run(keep_alive)
            except MetadataError as error:
                if not self.decisions.failure:
                    logger.warning("etcd does not answer: %s", error)
                self.decisions.failure = str(error)
                continue
            self.decisions.renewed(began_s, left_s)
            if self.decisions.failure:
                logger.info("etcd answers again")
                self.decisions.failure = ""
            if left_s == 0 and not self._is_stopping:
                logger.warning("the lease of this node has ended; it is announced again")
                self.decisions.birth = 0
                await self._register()

    # -- the cluster -------------------------------------------------------------------------------

    def _follow(self, revision: int, changes: list[Watched]) -> None:
        definitions: list[Change] = []
        for change in changes:
            if isinstance(change, Change):
                definitions.append(change)
            elif parts_of(change.key)[0] == NODES:
                if isinstance(change, KeyValue):
                    self._put_node(change)
                else:
                    self._drop_node(change, revision)
            elif parts_of(change.key)[0] == META and isinstance(change, KeyValue):
                self._follow_meta(change)
        assert self._follower is not None
        self._follower.follow(revision, definitions)

    def _follow_meta(self, record: KeyValue) -> None:
        try:
            meta = decode_record(record.value, ClusterMeta)
        except MetadataError as error:
            logger.error("the secret of the cluster stays as it is: %s", error)
            return
        logger.info(
            "the secret of the cluster has number %d%s",
            meta.secret_number,
            "; the one before serves, too" if meta.previous_secret else "",
        )
        self._use_secrets(meta)

    def _use_secrets(self, meta: ClusterMeta) -> None:
        """Use the secrets of `meta` for new links, and for tickets of all nodes."""
        known = _link_secrets(meta)
        if self._broker.access.tickets is not None:
            self._broker.access.tickets.share(known.current, known.previous)
        if self._links is not None:
            self._links.secrets = known

    def _load_running(self) -> list[KeyValue]:
        return self._metadata.records(NODES)

    def _set_running(self, records: list[KeyValue]) -> None:
        """Take over which nodes run; the events of earlier revisions may follow once more."""
        before, self.running = self.running, {}
        for record in records:
            running = running_node(record)
            if running is not None:
                self.running[name_of(record.key)] = (running, record.create_revision)
        for name in before.keys() - self.running.keys():
            self._lost.add(name, before[name][0], self._now_ms())
        # At once: a node that comes later in the list is no stranger meanwhile.
        self._set_peers()
        self._forget_the_dead()

    def _put_node(self, record: KeyValue) -> None:
        name = name_of(record.key)
        known = self.running.get(name)
        running = running_node(record)
        if running is not None and (known is None or known[1] <= record.create_revision):
            self.running[name] = (running, record.create_revision)
            self._lost.discard(name)
            self._set_peers()

    def _drop_node(self, record: RawDelete, revision: int) -> None:
        """Take over that the record of a node was deleted at `revision`.

        The node may have a newer one already, which the events to come do not put again.
        """
        name = name_of(record.key)
        if name == self.settings.node:
            if self.decisions.birth < revision:
                self.decisions.birth = 0
            return
        known = self.running.get(name)
        if known is not None and known[1] < revision:
            logger.warning("node %s has left, is dead, or has lost its lease", name)
            self._lost.add(name, known[0], self._now_ms())
            del self.running[name]
            self._set_peers()
            self._forget_the_dead()

    def _forget_the_dead(self) -> None:
        """Remove the transient queues of all nodes that do not run, if it is this node's turn.

        The one whose turn it was may have died before it has done so.
        """
        if self.settings.node == min(self.running, default=""):
            self._ends.remove_transient(set(self.running))

    def _is_linked(self, name: str) -> bool:
        return self._links is not None and self._links.link_to(name) is not None

    def _set_peers(self) -> None:
        if self._links is not None:
            others = self._lost.records()
            others.update((name, record) for name, (record, _birth) in self.running.items())
            peers = {
                name: (record.host, record.port)
                for name, record in others.items()
                if name != self.settings.node
            }
            self._links.set_peers(peers, self._now_ms())
        if self._mirroring is not None:
            self._mirroring.set_running({name: each for name, (each, _) in self.running.items()})

    def _on_lost(self, reason: str) -> None:
        """Etcd has compacted decisions that this node has not followed: start again from it all."""
        logger.error("this node has missed decisions of the cluster: %s", reason)
        self._loop.create_task(self._load_again())

    async def _load_again(self) -> None:
        assert self._follower is not None
        while not self._is_stopping:
            try:
                shared, revision = await self.decisions.run(self._metadata.load_at)
                running = await self.decisions.run(self._load_running)
                meta = await self.decisions.run(self._membership.meta)
            except MetadataError as error:
                logger.warning("waiting for etcd: %s", error)
                await asyncio.sleep(_PAUSE_S)
            else:
                self._follower.catch_up(shared, revision)
                self._set_running(running)
                if meta is not None:
                    self._use_secrets(meta)
                self.decisions.watch(revision + 1, self._follow, self._on_lost)
                return

    # -- turns -------------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Send to other nodes what has gathered in the turn, before clients get their output."""
        if self._shell is not None and self._handler is not None:
            if self._mirroring is not None:
                self._mirroring.end_turn()
            self._handler.end_turn()
            self.calls.end_turn()
            self._shell.write_out()

    def tick(self) -> None:
        """Give up what other nodes do not answer; called about every 50 ms."""
        self.calls.tick(self._now_ms())
        if self._lost.expire(self._now_ms()):
            self._set_peers()
        if self.settings.node == min(self.running, default=""):
            self._ends.sweep({*self.running, *self._lost.records()})
        if self._mirroring is not None and self._shell is not None:
            self._mirroring.tick()

    # -- certificates ------------------------------------------------------------------------------

    def use_link_tls(self, tls: LinkTls) -> None:
        """Use `tls` for links from now on; those that are up live on."""
        self.settings = replace(self.settings, tls=tls)
        if self._shell is not None:
            self._shell.tls = tls

    def use_etcd_tls(self, files: TlsFiles) -> None:
        """Read `files` anew for connections to etcd from now on. Raises EtcdRefused."""
        self._metadata.gateway.reload_tls(files)

    # -- for operators -----------------------------------------------------------------------------

    def links(self) -> tuple[LinkFacts, ...]:
        """The links that are up, by the name of the other node."""
        return () if self._handler is None else self._handler.facts()

    def followed(self) -> int:
        """The last decision that is in force on this node."""
        return 0 if self._follower is None else self._follower.followed()

    def last_failure(self) -> str:
        """Why the last transaction, or renewal of the lease, has failed; ""."""
        return self.decisions.failure

    # -- suspended, stopped ------------------------------------------------------------------------

    async def suspend(self) -> None:
        """Leave the others: the node's record goes and its membership stays; it follows nothing."""
        self._is_stopping = True
        if self._renewing is not None:
            self._renewing.cancel()
        if self._sinks is not None:
            self._sinks.set_running({}, ())
        await self._leave_groups()
        if self._shell is not None:
            await self._shell.stop(f"node {self.settings.node} stops")
            self._shell = None
        await self._loop.run_in_executor(None, self.decisions.end_watch)
        lease, self.decisions.lease, self.decisions.birth = self.decisions.lease, 0, 0
        if lease:
            try:
                await self.decisions.run(lambda: self._metadata.gateway.revoke(lease))
            except MetadataError as error:
                logger.warning("the node's lease ends by itself: %s", error)
        self.running = {}
        self._lost.clear()

    async def _leave_groups(self) -> None:
        """Tell groups that have to know it that this node stops, if etcd answers in time."""
        if self._mirroring is None or self._shell is None:
            return
        told = self._loop.create_future()
        self._mirroring.leave(lambda: None if told.done() else told.set_result(None))
        try:
            async with asyncio.timeout(_LEAVE_S):
                await told
        except TimeoutError:
            logger.warning("etcd does not answer: mirrored queues count this stop as a failure")

    async def resume(self) -> None:
        """Come back after `suspend`; a node that has left the cluster joins it again.

        Does nothing if the node is not suspended. Raises what `open` and `begin` raise, and NotYet
        if the node would have to wait for long; it stays suspended then.
        """
        if not self._is_stopping:
            return
        start = await self.join()
        assert self._follower is not None
        self._is_stopping = False
        self._broker.shared = self._shared
        if self._mirroring is not None:
            self._mirroring.replicas.begin_run(self._own_copy())
        try:
            async with asyncio.timeout(_FOLLOW_S):
                self._follower.catch_up(start.shared, start.revision)
                await self._followed(start.revision)
                await self.begin()
                await self.announce(self._listeners)
        except OSError:
            # A TimeoutError is one of them.
            await self.suspend()
            raise

    async def join(self) -> ClusterStart:
        """Become a member, or check that the node is one; raises what `open` raises, and NotYet."""
        start = ClusterStart(
            self.settings.node,
            self.settings.secret,
            self._membership,
            self._metadata,
            Patience(_RESUME_S).pause,
        )
        directory, first = self.directory, self._first
        await self.decisions.run(lambda: start.open(directory, Definitions(), first))
        self._start = start
        return start

    async def _followed(self, revision: int) -> None:
        """Return when `revision` is in force here."""
        assert self._follower is not None
        followed = self._loop.create_future()
        self._follower.when_followed(
            revision, lambda: None if followed.done() else followed.set_result(None)
        )
        await followed

    async def stop(self) -> None:
        """Leave the others for good, as far as this process goes."""
        await self.suspend()
        await self._loop.run_in_executor(None, self.decisions.stop)
        self._metadata.close()


def _link_secrets(meta: ClusterMeta) -> LinkSecrets:
    return LinkSecrets(meta.secret_number, meta.secret.encode(), meta.previous_secret.encode())
