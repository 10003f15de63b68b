"""The requests of operators about a node's cluster: describe it, join, leave and forget.

Each request runs on the node's loop and ends with a call back there. Requests that change the
membership exclude each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import DeleteVhost, MetadataError, PutQueue
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.facts import NO_MEMBER, ClusterFacts, EtcdFacts, LinkFacts, RunningFacts
from warrenmq.cluster.links.node_calls import NodeCalls
from warrenmq.cluster.membership.identity import (
    DirectoryIdentity,
    IdentityError,
    forget_identity,
    read_identity,
    write_identity,
)
from warrenmq.cluster.membership.joining import LEASE_S, Membership, NotAdmitted, NotYet
from warrenmq.cluster.membership.leaving import Departures, removal_steps, without_copy
from warrenmq.cluster.membership.secret_rotation import RotationRefused, SecretRotation
from warrenmq.cluster.metadata.etcd_metadata import EtcdMetadata
from warrenmq.cluster.records import RunningNode
from warrenmq.vocabulary.error_codes import (
    EXISTS,
    INTERNAL,
    NOT_FOUND,
    PRECONDITION,
    STORAGE_FAILED,
)
from warrenmq.vocabulary.names import name_text

logger = logging.getLogger("warren.cluster")

# Queues that one turn takes out of the vhosts.
_SLICE: Final = 100
# How often the queues of a node that leaves are looked for: mirrored ones change at any time.
_ROUNDS_MAX: Final = 10
# Queues that a refusal names.
_NAMED_MAX: Final = 20
# Failures of a request that are no fault of this node.
_REFUSALS: Final = (MetadataError, NotAdmitted, NotYet, RotationRefused, IdentityError, OSError)

# Takes a code of a refused request and its text, or "" and "".
Done = Callable[[str, str], None]
_Result = TypeVar("_Result")


class Refused(Exception):
    """A request is refused: a code of `error_codes.py`, and one line of text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class MembershipHost(Protocol):
    """The node in its cluster, as far as operators change it."""

    @property
    def running(self) -> dict[str, tuple[RunningNode, int]]:
        """Running nodes by name, with the births of their records."""

    @property
    def directory(self) -> Path:
        """The data directory."""

    def links(self) -> tuple[LinkFacts, ...]:
        """The links that are up."""

    def followed(self) -> int:
        """The last decision that is in force."""

    def last_failure(self) -> str:
        """Why the last transaction has failed, or ""."""

    async def join(self) -> object:
        """Become a member, without running."""

    async def announce_draining(self, is_on: bool) -> None:
        """Let the others know whether the node is in maintenance mode.

        Raises MetadataError and NotYet.
        """

    async def suspend(self) -> None:
        """Leave the others for a while."""

    async def resume(self) -> None:
        """Come back after `suspend`."""


class ClusterControl:
    """The cluster of the node `name`, for its operators."""

    def __init__(
        self,
        node: MembershipHost,
        name: str,
        cluster: str,
        loop: asyncio.AbstractEventLoop,
        broker: Broker,
        copy: DefinitionsCopy,
        metadata: EtcdMetadata,
        membership: Membership,
        rotation: SecretRotation,
        calls: NodeCalls,
        now_ms: Callable[[], int],
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.calls = calls
        self._node = node
        self._loop = loop
        self._broker = broker
        self._copy = copy
        self._metadata = metadata
        self._membership = membership
        self._rotation = rotation
        self._departures = Departures(cluster, metadata)
        self._now_ms = now_ms
        # The members as etcd last had them.
        self._members: tuple[str, ...] = ()
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- other nodes -------------------------------------------------------------------------------

    def running(self) -> list[str]:
        """The running nodes, this one included, as far as this node knows; sorted."""
        return sorted(self._node.running)

    def records(self) -> dict[str, RunningNode]:
        """The records of the running nodes, this one included, as far as this node knows."""
        return {name: record for name, (record, _birth) in self._node.running.items()}

    def reachable(self) -> list[str]:
        """The other nodes to which there is a link; sorted."""
        return [link.peer for link in self._node.links()]

    def links(self) -> tuple[LinkFacts, ...]:
        """The links that are up, by the name of the other node."""
        return self._node.links()

    def followed(self) -> int:
        """The last decision that is in force on this node."""
        return self._node.followed()

    def ask(
        self, node: str, request: bytes, wait_ms: int, done: Callable[[bytes, str], None]
    ) -> None:
        """Ask another node; see `NodeCalls.ask`."""
        self.calls.ask(node, request, self._now_ms(), done, wait_ms)

    # -- requests ----------------------------------------------------------------------------------

    def describe(self, done: Callable[[ClusterFacts], None]) -> None:
        """Describe the cluster; takes some seconds when etcd does not answer."""

        async def work() -> None:
            done(await self._describe())

        self._start(work())

    def forget(self, node: str, is_forced: bool, done: Done) -> None:
        """Remove a member that does not run.

        Durable queues without a complete copy elsewhere are deleted only if forced; a mirrored one
        is then kept with the best copy that is left.
        """
        self._run(lambda: self._forget(node, is_forced), done)

    def join(self, seed: str, done: Done) -> None:
        """Become a member of the cluster of `seed`. EXISTS: the node is one already."""
        self._run(lambda: self._join(seed), done)

    def leave(self, is_forced: bool, done: Done) -> None:
        """Leave the cluster for good; if forced, also when etcd does not answer.

        The node is suspended. Afterwards it shares no definitions; the caller deletes those that it
        has, and then calls `forget_directory`.
        """
        self._run(lambda: self._leave(is_forced), done)

    def set_draining(self, is_on: bool, done: Done) -> None:
        """Take the node into maintenance mode, or out of it, as far as other nodes see it.

        While it is in that mode, new queues go to other nodes.
        """
        self._run(lambda: self._node.announce_draining(is_on), done)

    def rotate_secret(self, is_end: bool, done: Done) -> None:
        """Give the nodes a new secret; `is_end`: put the one before out of use.

        The end is refused while a running node is not known to have heard of the new one.
        """
        self._run(self._end_rotation if is_end else self._begin_rotation, done)

    def suspend(self, done: Done) -> None:
        """Let the node leave the others for a while; its queues are down."""
        self._run(self._node.suspend, done)

    def resume(self, done: Done) -> None:
        """Come back after `suspend`; a node that has left joins again."""
        self._run(self._node.resume, done)

    def forget_directory(self) -> None:
        """Let the data directory, which is empty, belong to no cluster. Raises OSError."""
        forget_identity(self._node.directory)

    # -- description -------------------------------------------------------------------------------

    async def _describe(self) -> ClusterFacts:
        running = {name: record for name, (record, _birth) in self._node.running.items()}

        def ask() -> EtcdFacts:
            nonlocal running
            status = self._metadata.gateway.status()
            self._members = tuple(sorted(self._membership.members()))
            # Etcd is asked: the state that this node has followed may be a moment old.
            running = self._membership.running()
            return EtcdFacts(
                "",
                status.version,
                status.db_size_bytes,
                {member.name: member.client_urls for member in status.members},
                status.alarms,
                self._node.last_failure(),
            )

        try:
            etcd = await self._loop.run_in_executor(None, ask)
        except MetadataError as error:
            etcd = EtcdFacts(str(error), last_failure=self._node.last_failure())
        facts = {
            name: RunningFacts(
                record.version, record.host, record.port, record.listeners, record.is_draining
            )
            for name, record in sorted(running.items())
        }
        # Without etcd, those that run are known to be members.
        members = self._members or tuple(facts)
        return ClusterFacts(
            self.cluster, members, facts, self._node.followed(), self._node.links(), etcd
        )

    # -- the secret --------------------------------------------------------------------------------

    async def _begin_rotation(self) -> None:
        await self._wait(self._rotation.begin)
        logger.info("the cluster has a new secret")

    async def _end_rotation(self) -> None:
        begun_at = await self._wait(self._rotation.begun_at)
        followed = {link.peer: link.followed for link in self._node.links()}
        followed[self.name] = self._node.followed()
        running = await self._wait(self._membership.running)
        behind = [name for name in sorted(running) if followed.get(name, 0) < begun_at]
        if behind:
            raise Refused(
                PRECONDITION,
                f"not known to have heard of the new secret: {', '.join(behind)}. Repeat the command "
                "when cluster_status shows links to all running nodes, or restart those",
            )
        await self._wait(lambda: self._rotation.end(begun_at))
        logger.info("the secret before is out of use")

    # -- membership --------------------------------------------------------------------------------

    async def _forget(self, node: str, is_forced: bool) -> None:
        members = await self._wait(self._membership.members)
        if node not in members:
            raise Refused(NOT_FOUND, NO_MEMBER)
        if node in await self._wait(self._membership.running):
            raise self._refused_for_running(node)
        lost, _kept = await self._parted_from(node, is_forced)
        durable = [queue for queue in lost if queue.durable]
        if durable and not is_forced:
            raise Refused(PRECONDITION, _lost_with(node, durable))
        lost_count = await self._remove_queues(node, is_forced)
        if not await self._wait(lambda: self._departures.remove_member(node)):
            raise self._refused_for_running(node)
        logger.info("node %s is forgotten, and %d of its queues", node, lost_count)

    def _refused_for_running(self, node: str) -> Refused:
        """The refusal for a node that runs, or that has died and is not known to be dead yet."""
        if any(link.peer == node for link in self._node.links()):
            return _runs(node)
        return Refused(
            PRECONDITION,
            f"there is no link to node {node}, but its lease in etcd has not ended yet: repeat the "
            f"command when cluster_status lists the node under Disk Nodes only, some {LEASE_S} s "
            "after its death",
        )

    async def _join(self, seed: str) -> None:
        known = read_identity(self._node.directory)
        if known is not None and known.has_joined:
            raise Refused(EXISTS, "The node is already a member of this cluster")
        if seed not in await self._wait(self._membership.running):
            text = f"no node '{seed}' runs in cluster '{self.cluster}'"
            raise Refused(NOT_FOUND, text)
        await self._node.join()

    async def _leave(self, is_forced: bool) -> None:
        await self._node.suspend()
        directory = self._node.directory
        known = read_identity(directory)
        if known is not None:
            # A node that is killed from here on joins again at its next start, with its data.
            write_identity(directory, msgspec.structs.replace(known, has_joined=False))
            try:
                await self._leave_as(known)
            except MetadataError as error:
                if not is_forced:
                    write_identity(directory, known)
                    raise
                logger.warning("the cluster still has this node: %s", error)
        self._broker.shared = None
        for name in list(self._copy.vhosts):
            self._copy.apply(DeleteVhost(name))

    async def _leave_as(self, known: DirectoryIdentity) -> None:
        """Remove the member whose data directory has the identity `known`."""
        members = await self._wait(self._membership.members)
        own = members.get(self.name)
        if own is None or own.replica_id != known.replica_id:
            # This node was forgotten, or another one has its name.
            return
        if len(members) == 1 and await self._wait(
            lambda: self._departures.remove_cluster(self.name)
        ):
            logger.info("the cluster is removed with this node, its last member")
            return
        await self._remove_queues(self.name, is_forced=False)
        await self._wait(lambda: self._departures.remove_member(self.name, is_own=True))
        logger.info("this node has left the cluster")

    async def _parted_from(
        self, node: str, is_forced: bool
    ) -> tuple[list[PutQueue], list[PutQueue]]:
        """The queues that go with `node`, and those that stay, without their copies there."""
        lost: list[PutQueue] = []
        kept: list[PutQueue] = []
        for queue in await self._wait(lambda: self._departures.queues_of(node)):
            rest = without_copy(queue, node, is_forced)
            if rest is None:
                lost.append(queue)
            else:
                kept.append(rest)
        return lost, kept

    async def _remove_queues(self, node: str, is_forced: bool) -> int:
        """Remove what `node` has of queues and stages; returns how many queues go with it."""
        lost_count = 0
        for _ in range(_ROUNDS_MAX):
            lost, kept = await self._parted_from(node, is_forced)
            has_no_stages = await self._wait(lambda: self._departures.give_up_stages(node))
            if not lost and not kept and has_no_stages:
                return lost_count
            lost_count += len(lost)
            await self._remove(lost)
            await self._wait(partial(self._departures.give_up, kept))
        raise Refused(PRECONDITION, f"queues or sinks of node {node} are changing; try again")

    async def _remove(self, queues: list[PutQueue]) -> None:
        for start in range(0, len(queues), _SLICE):
            few = queues[start : start + _SLICE]
            steps = removal_steps(self._broker, self._copy, few, self._now_ms())
            await self._wait(partial(self._departures.remove, steps))

    async def _wait(self, step: Callable[[], _Result]) -> _Result:
        """Run a step that waits for etcd in a thread."""
        return await self._loop.run_in_executor(None, step)

    # -- tasks -------------------------------------------------------------------------------------

    def _run(self, request: Callable[[], Coroutine[Any, Any, None]], done: Done) -> None:
        async def work() -> None:
            async with self._lock:
                try:
                    await request()
                except Refused as refused:
                    done(refused.code, refused.text)
                except _REFUSALS as error:
                    code = STORAGE_FAILED if isinstance(error, MetadataError) else PRECONDITION
                    done(code, str(error) or "it has taken too long; the log may say why")
                except Exception as error:  # A bug costs this request, not the node.
                    logger.error("internal error", exc_info=error)
                    done(INTERNAL, "internal error; the node's log has the details")
                else:
                    done("", "")

        self._start(work())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        # The loop itself keeps no reference to a task.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _runs(node: str) -> Refused:
    return Refused(
        PRECONDITION,
        f"RabbitMQ on node {node} must be stopped with 'warrenctl -n {node} stop_app' before it "
        "can be removed",
    )


def _lost_with(node: str, queues: list[PutQueue]) -> str:
    names = [
        f"'{name_text(queue.name)}' in vhost '{name_text(queue.vhost)}'"
        for queue in queues[:_NAMED_MAX]
    ]
    more = len(queues) - len(names)
    listed = ", ".join(names) + (f" and {more} more" if more else "")
    return (
        f"node {node} has {len(queues)} durable queues, whose messages are on its disk only: "
        f"{listed}. Start the node to keep them, or delete them with --force"
    )
