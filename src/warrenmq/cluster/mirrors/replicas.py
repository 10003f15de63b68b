"""All replicas of mirrored queues on one node: joins them with its links, decisions and vhosts.

The follower tells of groups in the order of decisions (`GroupHost`). Each group has a `Replica`
here (`MirrorPlace`), whether this node is a member or not: a node that was one has to notice it.

Only replicas that something has happened to are visited at the end of a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decisions.follower import Follower
from warrenmq.cluster.groups.group import Copy
from warrenmq.cluster.groups.group_change import group_of
from warrenmq.cluster.groups.group_host import GroupHost
from warrenmq.cluster.groups.group_proposer import UNANSWERED, GroupProposer
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import AddMirror, DropCopy, MoveMaster
from warrenmq.cluster.groups.transitions import (
    Mastership,
    create,
    drop,
    join,
)
from warrenmq.cluster.groups.wanted_mirrors import BeginGroup, WantedMirrors, WantedStep
from warrenmq.cluster.mirrors.early_records import EarlyRecords
from warrenmq.cluster.mirrors.gates import Gates
from warrenmq.cluster.mirrors.log.mirror_log import MirrorLog
from warrenmq.cluster.mirrors.peers import MirrorPeers
from warrenmq.cluster.mirrors.place import MirrorPlace, PlaceHost, ignore_outcome
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.records import HandOverRecord, MalformedMirrorRecord, key_of
from warrenmq.cluster.mirrors.visits import Visits
from warrenmq.cluster.ring.frames import MalformedRingFrame
from warrenmq.queues.hand_out_gate import HandOutGate
from warrenmq.queues.mirror.ring_feed import next_start
from warrenmq.vocabulary.names import name_text

# Interval at which a replica with open business is checked (ms).
_CHECK_MS: Final = 250


class Replicas(GroupHost, PlaceHost):
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
        self.nodes = nodes
        self.now_ms = now_ms
        self.wake = wake
        self.log = MirrorLog(now_ms)
        self.gates = Gates(peers, self._lease_left_ms)
        # By `place_key`.
        self.places: dict[int, MirrorPlace] = {}
        # Keys of queues that this run does not follow.
        self._aside: set[int] = set()
        self._broker = broker
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
        if key in self._aside:
            return
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

    def set_aside(self, put: PutQueue) -> None:
        key = place_key(put)
        self._aside.add(key)
        place = self.places.pop(key, None)
        if place is not None:
            self._forget(place)

    def on_policies(self, vhost: Vhost) -> None:
        found = [place for place in self.places.values() if place.vhost is vhost]
        for place in found:
            place.has_new_policy = True
        self._visits.hurry(found)
        self._wanted.look_again(vhost.name)
        self.wake()

    def has_place(self, place: MirrorPlace) -> bool:
        """See PlaceHost."""
        return self.places.get(place.key) is place

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
                if place.is_used(now_ms):
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

    def look_again(self) -> None:
        """Look at the placement of all queues that this node leads: the nodes have changed."""
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
            # Urgent visits come first, so that they do not wait behind the proposals of all queues.
            for place in self._visits.take_urgent():
                self._visit(place)
            if self._visits.has_urgent:
                self.wake()
        due, self._due = self._due, {}
        for place in due:
            place.replica.end_turn()
            master = place.replica.master
            if master is not None and master.has_open_business:
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
        self.log.tick()
        for node in self.peers.tick(now_ms):
            self.on_gone(node)
        self._resume(self.gates.tick(now_ms))
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
            if self.has_place(place):
                self._visit(place)
                if place.has_master_here and place.wants_look(now_ms):
                    place.looked_ms = now_ms
                    self._wanted.look_at(place.vhost.name, place.name)

    def _lease_left_ms(self) -> int:
        """For how long (ms) the lease of this node keeps others from leading its queues.

        They may lead since an earlier lease has ended, so a new one counts when all decisions
        before it are in force here.
        """
        if self.follower.revision < self.proposer.lease_birth():
            return 0
        return self.proposer.lease_left_ms()

    def _resume(self, gates: set[HandOutGate]) -> None:
        """Let the masters of `gates`, which were shut, hand out messages again."""
        if not gates:
            return
        for place in self.places.values():
            copy = place.replica.copy
            if place.has_master_here and copy is not None and copy.queue.demand.gate in gates:
                copy.queue.resume_hand_outs()
        self.wake()

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
        elif place is not None and place.begin_step(self.now_ms()):
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
            copy = self.nodes.copy_of(step.node)
            if copy is not None and self.peers.is_reachable(step.node):
                added = copy
                place.propose_step(lambda newest: join(newest, added))
        elif isinstance(step, DropCopy):
            node = step.node
            place.propose_step(lambda newest: drop(newest, by, node))
        elif isinstance(step, MoveMaster):
            self.move_master(place, step.node)
        else:
            put = place.put
            self.proposer.propose_end(put.vhost, put.name, put.birth, ignore_outcome)

    def move_master(self, place: MirrorPlace, node: bytes) -> bool:
        """Propose to hand the mastership of a queue over to its mirror on `node`.

        Returns whether this node is the master, and the mirror in sync; see `MasterRole.hand_over`.
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
