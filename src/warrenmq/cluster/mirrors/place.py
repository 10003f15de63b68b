"""One mirrored queue on one node: its replica, and what stands for it in its vhost.

A queue has one taker in its vhost at any time: this node's copy while it is the master and in
force, else a remote queue of the master's node. The vhost replaces one by the other
(`VhostQueues.replace_taker`), and bindings and consumers go along.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.groups.group import Copy, Group
from warrenmq.cluster.groups.group_proposer import GroupProposer
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_policy import UNMIRRORED, MirrorPolicy
from warrenmq.cluster.groups.proposal_queue import LATER, URGENT, USUAL
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.cluster.groups.transitions import PROMOTED, UNSYNCED, Transition
from warrenmq.cluster.mirrors.gates import Gates
from warrenmq.cluster.mirrors.log.group_events import events_of
from warrenmq.cluster.mirrors.log.group_lines import lines_of
from warrenmq.cluster.mirrors.log.mirror_log import MirrorLog
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.replica.host import Fence, ReplicaHost
from warrenmq.cluster.mirrors.replica.in_sync import InSync
from warrenmq.cluster.mirrors.replica.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.replica.replica import MASTER, Replica
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.hand_out_gate import HandOutGate
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.wire.errors import AmqpError

# A step of a queue's placement that led to nothing is taken again after this time (ms).
_STEP_MS: Final = 2_000
# The placement of each queue is looked at again after this time (ms), whatever has happened.
_LOOK_MS: Final = 60_000
# A queue is in use for this time (ms) after a record of another node.
_USED_MS: Final = 5_000


class PlaceHost(ABC):
    """The node of a place: its run, its links, and what it follows and proposes."""

    me: Copy
    peers: MirrorPeers
    follower: Follower
    proposer: GroupProposer
    nodes: KnownNodes
    gates: Gates
    log: MirrorLog
    # The time (ms), which never goes back.
    now_ms: Callable[[], int]

    @abstractmethod
    def touch(self, place: MirrorPlace) -> None:
        """Visit a place at the end of the turn."""

    @abstractmethod
    def has_place(self, place: MirrorPlace) -> bool:
        """Whether the queue of `place` still exists and is mirrored."""


def ignore_outcome(_outcome: int) -> None:
    """Ignore the outcome of a proposal: the group tells what became of it."""


class MirrorPlace(ReplicaHost):
    """One mirrored queue on this node: its replica, and what stands for it in its vhost."""

    def __init__(self, host: PlaceHost, vhost: Vhost, put: PutQueue) -> None:
        self.vhost = vhost
        self.put = put
        self.name = put.name
        self.birth = put.birth
        self.key = place_key(put)
        # When placement proposed its last step, and from which version of the group.
        self._stepped_ms = -_STEP_MS
        self._stepped_version = 0
        # When the last record of another node came.
        self.heard_ms = 0
        # When the round has let the placement be looked at.
        self.looked_ms = host.now_ms()
        # A policy of the vhost has changed since `obey_policy`.
        self.has_new_policy = False
        # The node of the last master that another one has followed; "" once that is measured.
        self._deposed = b""
        self._host = host
        self.replica = Replica(self.key, host.me, self)
        self.obey_policy()

    @property
    def version(self) -> int:
        """The version of the group that is in force here."""
        return 0 if self.replica.group is None else self.replica.group.version

    @property
    def is_followed(self) -> bool:
        """Whether the queue still exists and is mirrored."""
        return self._host.has_place(self)

    @property
    def has_master_here(self) -> bool:
        """Whether this node's copy serves clients."""
        return self.replica.role == MASTER

    def is_left_out_by(self, node: bytes) -> bool:
        """Whether the group, whose master is on `node`, has this node's copy and no member here."""
        replica, group = self.replica, self.replica.group
        if group is None or replica.member is not None or group.master_node != node:
            return False
        return replica.me.node in group.recoverable

    def is_waited_for(self, now_ms: int) -> bool:
        """Whether clients are known to wait for the group to change, or likely to."""
        master = self.replica.master
        if master is not None:
            return master.in_sync.is_waiting
        return self.replica.mirror is not None and self.is_used(now_ms)

    def log(self, text: str, event: str = "") -> None:
        """Log what happens to the queue, in words that operators of RabbitMQ look for.

        `event`: see `MirrorLog.write`.
        """
        self._host.log.write(self.vhost.queue_text(self.name), text, event)

    def obey_policy(self) -> None:
        """Let the replica obey the policies that apply now."""
        self.has_new_policy = False
        self.replica.set_policy(self._policy())

    def is_used(self, now_ms: int) -> bool:
        """Whether another node has sent a record for the queue a moment ago."""
        return now_ms - self.heard_ms < _USED_MS

    def begin_step(self, now_ms: int) -> bool:
        """Whether a step of placement may be proposed, which is noted: not twice in a short time.

        A step from another version of the group is another one.
        """
        if now_ms - self._stepped_ms < _STEP_MS and self._stepped_version == self.version:
            return False
        self._stepped_ms = now_ms
        self._stepped_version = self.version
        return True

    def wants_look(self, now_ms: int) -> bool:
        """Whether to look again where copies should be: the last step may have led to nothing."""
        has_stopped = (
            self._stepped_version == self.version and now_ms - self._stepped_ms >= _STEP_MS
        )
        return has_stopped or now_ms - self.looked_ms >= _LOOK_MS

    def _policy(self) -> MirrorPolicy:
        try:
            return policy_of(self.vhost, self.put)
        except AmqpError:
            # Arguments that no queue can have were refused when it was declared.
            return UNMIRRORED

    def propose_step(self, transition: Transition) -> None:
        """Propose a change of the group; the group itself tells what became of it."""
        self._host.proposer.propose(
            self.vhost.name, self.name, self.birth, transition, ignore_outcome
        )

    def begin_run(self) -> None:
        """Begin again as another run of this node, with the copy that it has."""
        replica, group = self.replica, self.replica.group
        if group is None:
            return
        is_master = self.has_master_here
        replica.end_run()
        if is_master and replica.copy is not None:
            self.step_down(replica.copy)
        self.replica = Replica(self.key, self._host.me, self)
        self.obey_policy()
        self.replica.on_group(group)
        self._host.touch(self)

    # -- the group ---------------------------------------------------------------------------------

    def follow(self, put: PutQueue, group: Group) -> None:
        """Put a version of the group in force."""
        self.put = put
        before = self.replica.group
        if before is None:
            self._begin(group)
        elif before.version < group.version:
            queue = self.vhost.queue_text(self.name)
            for line in lines_of(before, group, self._host.me.node):
                self._host.log.write(queue, line.text, level=line.level)
            for event, fields in events_of(self.name, before, group, self._host.me.node):
                self.vhost.announce(event, fields)
            if group.epoch > before.epoch:
                self._deposed = before.master_node
        self.replica.on_group(group)
        self._stand_for(group)
        self._host.touch(self)

    def _begin(self, group: Group) -> None:
        """Hide a queue that was not mirrored until now: it becomes the first copy."""
        taker = self.vhost.taker(self.name)
        if isinstance(taker, Queue):
            # Known as the copy while it serves; hidden, it would not be found.
            self._host.follower.own_copy(self.vhost, self.put)
            self._replace(taker, self._remote_queue(group))
            self.vhost.set_confirm_source(taker, None)

    def _stand_for(self, group: Group) -> None:
        """Let a queue of the master's node take the place of this queue, unless it serves here."""
        taker = self.vhost.taker(self.name)
        if isinstance(taker, RemoteQueue) and (
            taker.home.name != group.master_node or taker.epoch != group.epoch
        ):
            self._replace(taker, self._remote_queue(group))
        elif isinstance(taker, RemoteQueue):
            taker.keep_consumers()

    def _remote_queue(self, group: Group) -> RemoteQueue:
        definition = self.vhost_definition()
        queue = self.vhost.new_remote_queue(definition, group.master_node, group.epoch)
        queue.keep_consumers()
        return queue

    def vhost_definition(self) -> QueueDefinition:
        """The declaration of the queue, as its taker has it."""
        taker = self.vhost.taker(self.name)
        assert taker is not None
        return taker.definition

    def _replace(self, old: MessageTaker, new: MessageTaker, is_complete: bool = True) -> None:
        self.vhost.replace_taker(old, new, self._host.now_ms(), is_complete)

    def let_go(self) -> None:
        """Let go of the queue, which the cluster has deleted, alone or with its vhost."""
        copy = self.replica.copy
        is_master = self.has_master_here
        self.replica.close()
        if is_master and copy is not None:
            # Nobody decides on its end any more.
            self.vhost.set_confirm_source(copy.queue, None)

    def end(self, put: PutQueue) -> None:
        """Go on without a group: the queue of `put` is mirrored no more.

        Its node may be another one than this node has heard of: it may have missed decisions.
        """
        copy = self.replica.copy
        was_master = self.has_master_here
        if was_master and put.node == self._host.me.node:
            self.replica.end_group()
            assert copy is not None
            self.vhost.set_confirm_source(copy.queue, None)
            return
        self.replica.end_run()
        taker = self.vhost.taker(self.name)
        if isinstance(taker, RemoteQueue) and taker.home.name == put.node:
            taker.keep_consumers(False)
            taker.epoch = 0
        elif taker is not None:
            self._replace(taker, self.vhost.new_remote_queue(taker.definition, put.node))
        if was_master:
            assert copy is not None
            self.vhost.set_confirm_source(copy.queue, None)
        self._host.follower.drop_copy(self.vhost, put)

    # -- for the replica ---------------------------------------------------------------------------

    def now_ms(self) -> int:
        return self._host.now_ms()

    def wake(self) -> None:
        self._host.touch(self)

    def send(self, node: bytes, payload: bytes, is_urgent: bool = False) -> None:
        self._host.peers.send(node, payload, is_urgent)

    def silence_ms(self, node: bytes) -> int:
        return 0 if node == self._host.me.node else self._host.peers.silence_ms(node)

    def is_reachable(self, node: bytes) -> bool:
        return self._host.peers.is_reachable(node)

    def is_dead(self, node: bytes) -> bool:
        return node != self._host.me.node and self._host.peers.is_dead(node)

    def propose(
        self,
        transition: Transition,
        done: Callable[[int], None],
        fence: Fence | None = None,
        is_later: bool = False,
    ) -> None:
        if is_later:
            rank = LATER
        else:
            rank = URGENT if self.is_waited_for(self.now_ms()) else USUAL
        self._host.proposer.propose(
            self.vhost.name, self.name, self.birth, transition, done, fence, rank
        )

    def is_draining(self, node: bytes) -> bool:
        return self._host.nodes.is_draining(node)

    def contact_ms(self) -> int:
        return self._host.proposer.contact_ms()

    def gate(self, nodes: frozenset[bytes], needs_lease: bool) -> HandOutGate:
        return self._host.gates.gate(nodes, needs_lease, self.now_ms())

    # -- the copy ----------------------------------------------------------------------------------

    def open_copy(self) -> MirrorCopy:
        queue = self._host.follower.own_copy(self.vhost, self.put)
        return MirrorCopy(queue, self.vhost.journal)

    def renew_copy(self, copy: MirrorCopy) -> MirrorCopy:
        self._host.follower.discard_copy(self.vhost, copy.queue)
        return self.open_copy()

    def drop_copy(self) -> None:
        self._host.follower.drop_copy(self.vhost, self.put)

    def take_over(self, copy: MirrorCopy, source: InSync) -> None:
        queue = copy.queue
        self._measure_promotion()
        self.vhost.set_confirm_source(queue, source)
        taker = self.vhost.taker(self.name)
        if taker is not None and taker is not queue:
            group = self.replica.group
            assert group is not None
            self._replace(taker, queue, group.reason != UNSYNCED)

    def _measure_promotion(self) -> None:
        group = self.replica.group
        deposed, self._deposed = self._deposed, b""
        if deposed and group is not None and group.reason in (PROMOTED, UNSYNCED):
            silence_ns = self.silence_ms(deposed) * 1_000_000
            self.vhost.node.latencies.promotions.add(silence_ns)

    def step_down(self, copy: MirrorCopy) -> None:
        group = self.replica.group
        assert group is not None
        self.log("This node is not the leader any more")
        self._replace(copy.queue, self._remote_queue(group))
        self.vhost.set_confirm_source(copy.queue, None)
