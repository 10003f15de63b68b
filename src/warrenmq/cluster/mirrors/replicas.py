"""All replicas of mirrored queues on one node: joins them with its links, decisions and vhosts.

The follower tells of groups in the order of decisions (`GroupWatch`). Each group has a `Replica`
here, whether this node is a member or not: a node that was one has to notice it. What a replica
asks of the node goes through a host of its own (`_ReplicaHost`), which knows its queue.

A queue has one taker in its vhost at any time: this node's copy while it is the master and in
force, else a remote queue of the master's node. The vhost replaces one by the other
(`VhostQueues.replace_taker`), and bindings and consumers go along.

Only replicas that something has happened to are visited at the end of a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.follower import Follower
from warrenmq.cluster.groups.group import Copy, Group
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.group_proposer import UNANSWERED, GroupProposer
from warrenmq.cluster.groups.group_watch import GroupWatch
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import AddMirror, DropCopy, MoveMaster
from warrenmq.cluster.groups.mirror_policy import UNMIRRORED, MirrorPolicy
from warrenmq.cluster.groups.proposal_queue import URGENT
from warrenmq.cluster.groups.queue_policy import policy_of
from warrenmq.cluster.groups.transitions import (
    UNSYNCED,
    Mastership,
    Transition,
    create,
    drop,
    join,
)
from warrenmq.cluster.groups.wanted_mirrors import BeginGroup, WantedMirrors, WantedStep
from warrenmq.cluster.mirrors.early_records import EarlyRecords
from warrenmq.cluster.mirrors.in_sync import InSync
from warrenmq.cluster.mirrors.mirror_copy import MirrorCopy
from warrenmq.cluster.mirrors.node_host import NodeHost
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.records import HandOverRecord, MalformedMirrorRecord, key_of
from warrenmq.cluster.mirrors.replica import MASTER, Replica
from warrenmq.cluster.mirrors.visits import Visits
from warrenmq.cluster.ring.frames import MalformedRingFrame
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote_queue import RemoteQueue
from warrenmq.queues.ring_feed import next_start
from warrenmq.vocabulary.names import name_text
from warrenmq.wire.errors import AmqpError

logger = logging.getLogger("warren.mirrors")

# Interval at which a replica with open business is checked (ms).
_CHECK_MS: Final = 250
# A step of a queue's placement that led to nothing is taken again after this time (ms).
_STEP_MS: Final = 2_000
# The placement of each queue is looked at again after this time (ms), whatever has happened.
_LOOK_MS: Final = 60_000
# A queue is in use for this time (ms) after a record of another node.
_USED_MS: Final = 5_000


class Replicas(GroupWatch):
    """The replicas of the node with the data directory and run of `me`.

    `now_ms` tells the time, which never goes back; `wake` asks for the end of a turn.
    """

    def __init__(
        self,
        me: Copy,
        broker: Broker,
        follower: Follower,
        proposer: GroupProposer,
        nodes: KnownNodes,
        wanted: WantedMirrors,
        peers: MirrorPeers,
        now_ms: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        self.me = me
        self.peers = peers
        self.follower = follower
        self.proposer = proposer
        self.now_ms = now_ms
        self.wake = wake
        # By `place_key`.
        self.places: dict[int, MirrorPlace] = {}
        self._broker = broker
        self._nodes = nodes
        self._wanted = wanted
        # Places that the end of this turn visits.
        self._due: dict[MirrorPlace, None] = {}
        # Masters that wait for mirrors, or synchronise some.
        self._open: dict[MirrorPlace, None] = {}
        self._checked_ms = 0
        self._visits: Visits[MirrorPlace] = Visits(self.places.values)
        # Records for queues that this node does not know.
        self._early = EarlyRecords()

    def begin_run(self, me: Copy) -> None:
        """Go on as `me`, another run of this node: all copies count as restarted (I6)."""
        if me == self.me:
            return
        self.me = me
        for place in self.places.values():
            place.begin_run()

    # -- groups ------------------------------------------------------------------------------------

    def on_group(self, vhost: Vhost, put: PutQueue) -> None:
        group = group_of(put)
        key = place_key(put)
        place = self.places.get(key)
        if group is None:
            if place is not None:
                del self.places[key]
                self._forget(place)
                place.end(put)
                # A policy may want mirrors again since the end of the group was proposed.
                self._wanted.look_at(vhost.name, put.name)
                self.wake()
            return
        if place is None:
            place = self.places[key] = MirrorPlace(self, vhost, put)
        place.follow(put, group)
        self._wanted.look_at(vhost.name, put.name)
        for node, payload in self._early.take(key):
            self._deliver(place, node, payload)

    def on_removed(self, vhost: Vhost, put: PutQueue) -> None:
        key = place_key(put)
        place = self.places.pop(key, None)
        if place is not None:
            self._forget(place)
            place.let_go()
        self._early.take(key)

    def on_policies(self, vhost: Vhost) -> None:
        found = [place for place in self.places.values() if place.vhost is vhost]
        for place in found:
            place.has_new_policy = True
        self._visits.hurry(found)
        self._wanted.look_again(vhost.name)
        self.wake()

    def _forget(self, place: MirrorPlace) -> None:
        self._due.pop(place, None)
        self._open.pop(place, None)
        self._visits.forget(place)

    # -- other nodes -------------------------------------------------------------------------------

    def on_record(self, node: bytes, payload: bytes) -> str:
        """Take a record of `node`; returns "" or why it is none: the link must go down then."""
        try:
            key = key_of(payload)
        except MalformedMirrorRecord as error:
            return str(error)
        place = self.places.get(key)
        if place is not None:
            return self._deliver(place, node, payload)
        if not self._early.keep(key, node, payload, self.now_ms()):
            return "this node has not followed the decisions on the queues of many records"
        return ""

    def _deliver(self, place: MirrorPlace, node: bytes, payload: bytes) -> str:
        try:
            place.heard_ms = self.now_ms()
            place.replica.on_record(node, payload)
        except (MalformedMirrorRecord, MalformedRingFrame) as error:
            return str(error)
        self.touch(place)
        return ""

    def on_link_up(self, node: bytes) -> None:
        """There is a new link to `node`."""
        for place in list(self.places.values()):
            place.replica.on_link_up(node)
            self.touch(place)
        self._visits.hurry(place for place in self.places.values() if place.is_left_out_by(node))

    def on_link_down(self, node: bytes) -> None:
        """The link to `node` is lost."""
        self._early.drop_of(node)

    def on_gone(self, node: bytes) -> None:
        """The process of `node` does not run, or is silent: queues with a member there change."""
        now_ms = self.now_ms()
        used: list[MirrorPlace] = []
        led: list[MirrorPlace] = []
        mirrored: list[MirrorPlace] = []
        for place in self.places.values():
            group = place.replica.group
            if group is not None and group.member_of(node) is not None:
                if now_ms - place.heard_ms < _USED_MS:
                    used.append(place)
                else:
                    (led if group.master_node == node else mirrored).append(place)
        # Queues in use come first, then those without a master.
        self._visits.hurry(used)
        self._visits.hurry(led)
        self._visits.hurry(mirrored)
        self.wake()

    def set_running(self, names: set[bytes]) -> None:
        """Take over which nodes have a record in the cluster."""
        for node in self.peers.set_running(names):
            if self.peers.is_dead(node):
                self.on_gone(node)
        self._wanted.look_again()
        self.wake()

    # -- turns -------------------------------------------------------------------------------------

    def touch(self, place: MirrorPlace) -> None:
        """Visit a place at the end of the turn."""
        if not self._due:
            self.wake()
        self._due[place] = None

    def end_turn(self) -> None:
        """Send what the turn has brought, and propose what has to change."""
        if self.proposer.has_room:
            # What the first queues need next must not wait behind the proposals of all others.
            for place in self._visits.take_urgent():
                self._visit(place)
            if self._visits.has_urgent:
                self.wake()
        due, self._due = self._due, {}
        for place in due:
            place.replica.end_turn()
            master = place.replica.master
            if master is not None and (master.in_sync.is_waiting or master.is_syncing):
                self._open[place] = None
            else:
                self._open.pop(place, None)
        if self._wanted.has_more:
            for put, step in self._wanted.advance():
                self._take_step(put, step)
            if self._wanted.has_more:
                self.wake()
        self.proposer.end_turn()

    def tick(self) -> None:
        """Look after what only time changes; called about every 50 ms."""
        now_ms = self.now_ms()
        for node in self.peers.tick(now_ms):
            self.on_gone(node)
        is_check = now_ms - self._checked_ms >= _CHECK_MS
        for place in list(self._open):
            if is_check:
                place.replica.check()
                if place.is_waited_for(now_ms):
                    self.proposer.hurry(place.vhost.name, place.name, place.birth)
            self.touch(place)
        if is_check:
            self._checked_ms = now_ms
            self._early.expire(now_ms)
        for place in self._visits.take_of_round():
            if self.places.get(place.key) is place:
                self._visit(place)
                if place.has_master_here and place.wants_look(now_ms):
                    place.looked_ms = now_ms
                    self._wanted.look_at(place.vhost.name, place.name)

    def _visit(self, place: MirrorPlace) -> None:
        if place.has_new_policy:
            place.obey_policy()
        place.replica.check()
        self.touch(place)

    # -- where copies should be --------------------------------------------------------------------

    def _take_step(self, put: PutQueue, step: WantedStep) -> None:
        place = self.places.get(place_key(put))
        if isinstance(step, BeginGroup):
            self._begin_group(put)
        elif place is not None:
            now_ms = self.now_ms()
            if now_ms - place.stepped_ms >= _STEP_MS or place.stepped_version != place.version:
                place.stepped_ms = now_ms
                place.stepped_version = place.version
                self._propose_step(place, step)

    def _begin_group(self, put: PutQueue) -> None:
        """Propose the first group of a queue of this node, which has the only copy."""
        vhost = self._broker.vhosts.get(put.vhost)
        queue = None if vhost is None else vhost.queues.get(put.name)
        if queue is None:
            return
        first_seq, epoch = int(next_start(queue, 0)), int(queue.epoch) + 1

        def done(outcome: int) -> None:
            if outcome == UNANSWERED:
                self._wanted.look_at(put.vhost, put.name)
                self.wake()

        self.proposer.propose_first(
            put.vhost, put.name, put.birth, lambda: create(self.me, (), first_seq, epoch), done
        )

    def _propose_step(self, place: MirrorPlace, step: WantedStep) -> None:
        group = place.replica.group
        if group is None:
            return
        by = Mastership(self.me.node, group.epoch)
        if isinstance(step, AddMirror):
            copy = self._nodes.copy_of(step.node)
            if copy is not None and self.peers.is_reachable(step.node):
                place.log(f"Adding mirror on node '{name_text(step.node)}'")
                added = copy
                place.propose(lambda newest: join(newest, added))
        elif isinstance(step, DropCopy):
            place.log(f"Dropping queue mirror on node '{name_text(step.node)}'")
            node = step.node
            place.propose(lambda newest: drop(newest, by, node))
        elif isinstance(step, MoveMaster):
            self.move_master(place, step.node)
        else:
            put = place.put
            self.proposer.propose_end(put.vhost, put.name, put.birth, _ignore)

    def move_master(self, place: MirrorPlace, node: bytes) -> bool:
        """Propose to hand the mastership of a queue over to its mirror on `node`.

        Returns whether this node is the master, and the mirror in sync; see `MasterSide.hand_over`.
        """
        master = place.replica.master
        if master is None or not master.hand_over(node):
            return False
        place.log(f"Moving the leader to node '{name_text(node)}'")
        self.touch(place)
        return True

    def ask_to_move(self, place: MirrorPlace, node: bytes) -> None:
        """Let the master of a queue, on this node or another one, hand over to `node`.

        The group tells whether it does so.
        """
        group = place.replica.group
        if group is not None and not self.move_master(place, node):
            place.replica.send(group.master_node, HandOverRecord(group.epoch, node))


def _ignore(_outcome: int) -> None:
    """The group tells what became of a proposal."""


class MirrorPlace:
    """One mirrored queue on this node: its replica, and what stands for it in its vhost."""

    def __init__(self, replicas: Replicas, vhost: Vhost, put: PutQueue) -> None:
        self.vhost = vhost
        self.put = put
        self.name = put.name
        self.birth = put.birth
        self.key = place_key(put)
        # The last step of placement: when it was proposed, from which version of the group.
        self.stepped_ms = -_STEP_MS
        self.stepped_version = 0
        # When the last record of another node came.
        self.heard_ms = 0
        # When the round has let the placement be looked at.
        self.looked_ms = replicas.now_ms()
        # A policy of the vhost has changed since `obey_policy`.
        self.has_new_policy = False
        self._replicas = replicas
        self.replica = Replica(self.key, replicas.me, _ReplicaHost(replicas, self))
        self.obey_policy()

    @property
    def version(self) -> int:
        """The version of the group that is in force here."""
        return 0 if self.replica.group is None else self.replica.group.version

    @property
    def is_followed(self) -> bool:
        """Whether the queue still exists and is mirrored."""
        return self._replicas.places.get(self.key) is self

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
        return self.replica.mirror is not None and now_ms - self.heard_ms < _USED_MS

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Log what happens to the queue, in words that operators of RabbitMQ look for."""
        logger.log(level, "Mirrored %s: %s", self.vhost.queue_text(self.name), text)

    def obey_policy(self) -> None:
        """Let the replica obey the policies that apply now."""
        self.has_new_policy = False
        self.replica.set_policy(self._policy())

    def wants_look(self, now_ms: int) -> bool:
        """Whether to look again where copies should be: the last step may have led to nothing."""
        has_stopped = self.stepped_version == self.version and now_ms - self.stepped_ms >= _STEP_MS
        return has_stopped or now_ms - self.looked_ms >= _LOOK_MS

    def _policy(self) -> MirrorPolicy:
        try:
            return policy_of(self.vhost, self.put)
        except AmqpError:
            # Arguments that no queue can have were refused when it was declared.
            return UNMIRRORED

    def propose(self, transition: Transition) -> None:
        """Propose a change of the group; the group itself tells what became of it."""
        self._replicas.proposer.propose(self.vhost.name, self.name, self.birth, transition, _ignore)

    def begin_run(self) -> None:
        """Begin again as another run of this node, with the copy that it has."""
        replica, group = self.replica, self.replica.group
        if group is None:
            return
        is_master = self.has_master_here
        replica.end_run()
        if is_master and replica.copy is not None:
            self.step_down(replica.copy)
        self.replica = Replica(self.key, self._replicas.me, _ReplicaHost(self._replicas, self))
        self.obey_policy()
        self.replica.on_group(group)
        self._replicas.touch(self)

    # -- the group ---------------------------------------------------------------------------------

    def follow(self, put: PutQueue, group: Group) -> None:
        """Put a version of the group in force."""
        self.put = put
        if self.replica.group is None:
            self._begin(group)
        self.replica.on_group(group)
        self._stand_for(group)
        self._replicas.touch(self)

    def _begin(self, group: Group) -> None:
        """Hide a queue that was not mirrored until now: it becomes the first copy."""
        taker = self.vhost.taker(self.name)
        if isinstance(taker, Queue):
            # Known as the copy while it serves; hidden, it would not be found.
            self._replicas.follower.own_copy(self.vhost, self.put)
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

    def _replace(self, old: MessageTaker, new: MessageTaker) -> None:
        self.vhost.replace_taker(old, new, self._replicas.now_ms())

    def let_go(self) -> None:
        """Let go of the queue, which the cluster has deleted, alone or with its vhost."""
        copy = self.replica.copy
        is_master = self.has_master_here
        self.replica.close()
        if is_master and copy is not None:
            # Nobody decides on its end any more.
            self.vhost.set_confirm_source(copy.queue, None)

    def end(self, put: PutQueue) -> None:
        """Go on without a group: the queue of `put` is mirrored no more."""
        copy = self.replica.copy
        is_master = self.has_master_here
        self.replica.end_group()
        if is_master:
            assert copy is not None
            self.vhost.set_confirm_source(copy.queue, None)
            return
        taker = self.vhost.taker(self.name)
        if isinstance(taker, RemoteQueue):
            taker.keep_consumers(False)
            taker.epoch = 0
        self._replicas.follower.drop_copy(self.vhost, put)

    # -- the copy ----------------------------------------------------------------------------------

    def open_copy(self) -> MirrorCopy:
        """See ReplicaHost."""
        queue = self._replicas.follower.own_copy(self.vhost, self.put)
        return MirrorCopy(queue, self.vhost.journal)

    def renew_copy(self, copy: MirrorCopy) -> MirrorCopy:
        """See ReplicaHost."""
        self._replicas.follower.discard_copy(self.vhost, copy.queue)
        return self.open_copy()

    def drop_copy(self) -> None:
        """See ReplicaHost."""
        self._replicas.follower.drop_copy(self.vhost, self.put)

    def take_over(self, copy: MirrorCopy, source: InSync) -> None:
        """See ReplicaHost."""
        queue = copy.queue
        self.vhost.set_confirm_source(queue, source)
        taker = self.vhost.taker(self.name)
        if taker is not None and taker is not queue:
            group = self.replica.group
            assert group is not None
            # A new queue begins with its master: nobody is promoted.
            if group.epoch > 1:
                here = name_text(self._replicas.me.node)
                if group.reason == UNSYNCED:
                    text = f"Promoting unsynchronised mirror on node '{here}' to leader"
                    self.log(f"{text}; messages that it lacks are lost", logging.WARNING)
                else:
                    self.log(f"Promoting mirror on node '{here}' to leader")
            self._replace(taker, queue)

    def step_down(self, copy: MirrorCopy) -> None:
        """See ReplicaHost."""
        group = self.replica.group
        assert group is not None
        if copy.queue.is_deleted:
            # What stood for it is gone, too.
            return
        self.log("This node is not the leader any more")
        self._replace(copy.queue, self._remote_queue(group))
        self.vhost.set_confirm_source(copy.queue, None)


class _ReplicaHost(NodeHost):
    """The node, for the replica at `place`."""

    def __init__(self, replicas: Replicas, place: MirrorPlace) -> None:
        super().__init__(replicas.me.node, replicas.peers, replicas.proposer, place.put)
        self._replicas = replicas
        self._place = place

    def now_ms(self) -> int:
        return self._replicas.now_ms()

    def _rank(self, is_later: bool) -> int:
        if self._place.is_waited_for(self._replicas.now_ms()) and not is_later:
            return URGENT
        return super()._rank(is_later)

    def wake(self) -> None:
        self._replicas.touch(self._place)

    def open_copy(self) -> MirrorCopy:
        return self._place.open_copy()

    def renew_copy(self, copy: MirrorCopy) -> MirrorCopy:
        return self._place.renew_copy(copy)

    def drop_copy(self) -> None:
        self._place.drop_copy()

    def take_over(self, copy: MirrorCopy, source: InSync) -> None:
        self._place.take_over(copy, source)

    def step_down(self, copy: MirrorCopy) -> None:
        self._place.step_down(copy)
