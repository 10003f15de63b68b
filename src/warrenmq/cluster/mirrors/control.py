"""The operators' commands about copies of mirrored queues, on a node of a cluster."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from warrenmq.broker.mirrors import MasterMove, MirrorControl, MirrorFacts, MovePlan
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.mirrors.facts import facts_of_replica
from warrenmq.cluster.mirrors.place import MirrorPlace
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.rebalancing import plan_moves
from warrenmq.cluster.mirrors.replica.candidacy import may_be_unsafe
from warrenmq.cluster.mirrors.replicas import Replicas
from warrenmq.cluster.mirrors.silences import SILENT_MS
from warrenmq.vocabulary.names import name_text

# Masters that one rebalancing moves at a time.
_MOVES_MAX: Final = 8
# A master that has not moved after this time (ms) stays where it is.
_MOVE_MS: Final = 10_000


class ReplicaControl(MirrorControl):
    """Shows and steers `replicas`; `nodes` may have masters, and `copy` has all definitions."""

    def __init__(self, replicas: Replicas, copy: DefinitionsCopy, nodes: KnownNodes) -> None:
        self._replicas = replicas
        self._copy = copy
        self._nodes = nodes
        self._rebalancings: list[_Rebalancing] = []

    def facts_of(self, vhost: bytes, queue: bytes) -> MirrorFacts | None:
        """See MirrorControl."""
        place = self._place(vhost, queue)
        group = None if place is None else place.replica.group
        if place is None or group is None:
            return None
        now_ms = self._replicas.now_ms()
        return facts_of_replica(place.replica, place.birth, group, self._is_online, now_ms)

    def counts_of(self, vhost: bytes, queue: bytes) -> tuple[int, int]:
        """See MirrorControl."""
        place = self._place(vhost, queue)
        group = None if place is None else place.replica.group
        return (0, 0) if group is None else (len(group.mirrors), len(group.synced_mirrors))

    def awaits_master(self, vhost: bytes, queue: bytes) -> bool:
        """See MirrorControl."""
        place = self._place(vhost, queue)
        group = None if place is None else place.replica.group
        if place is None or group is None:
            return False
        nodes = {copy.node for copy in group.sync}
        if may_be_unsafe(group, place.replica.policy):
            nodes.update(mirror.id.node for mirror in group.mirrors)
        return any(self._may_lead(node, group) for node in nodes)

    def _may_lead(self, node: bytes, group: Group) -> bool:
        """Whether `node`, which has a copy that may lead, may do so soon."""
        peers = self._replicas.peers
        if node == self._replicas.me.node:
            return True
        if node == group.master_node:
            return peers.is_reachable(node)
        # Without a link to it, this node may hear of its promotion all the same.
        return not peers.is_dead(node) and peers.silence_ms(node) < SILENT_MS

    def synchronise(self, vhost: bytes, queue: bytes) -> str:
        """See MirrorControl."""
        place = self._place(vhost, queue)
        group = None if place is None else place.replica.group
        master = None if place is None else place.replica.master
        if place is None or group is None or master is None:
            return "the queue is not served here any more"
        lacking = [each.id.node for each in group.mirrors if each.copy not in group.sync]
        reached = [node for node in lacking if self._is_online(node)]
        for node in reached:
            master.synchronise(node)
        self._replicas.touch(place)
        if lacking and not reached:
            return "no mirror can be reached: " + ", ".join(map(name_text, lacking))
        return ""

    def cancel_sync(self, vhost: bytes, queue: bytes) -> bool:
        """See MirrorControl."""
        place = self._place(vhost, queue)
        master = None if place is None else place.replica.master
        return master is not None and master.cancel_syncs()

    def plan_rebalance(self, is_meant: Callable[[bytes, bytes], bool]) -> MovePlan:
        """See MirrorControl."""
        masters, moves = self._planned(is_meant)
        return MovePlan(
            dict(Counter(map(name_text, masters.values()))),
            [
                MasterMove(
                    name_text(place.vhost.name),
                    name_text(place.name),
                    name_text(masters[place]),
                    name_text(node),
                )
                for place, node in moves.items()
            ],
        )

    def rebalance(
        self, is_meant: Callable[[bytes, bytes], bool], done: Callable[[str], None]
    ) -> None:
        """See MirrorControl. Masters move to synchronised mirrors only, some at a time."""
        _masters, moves = self._planned(is_meant)
        self._rebalancings.append(_Rebalancing(self._replicas, moves, done))
        self.tick()

    def _planned(
        self, is_meant: Callable[[bytes, bytes], bool]
    ) -> tuple[dict[MirrorPlace, bytes], dict[MirrorPlace, bytes]]:
        """The nodes of the masters that may move, and the new nodes of those that are to."""
        masters: dict[MirrorPlace, bytes] = {}
        mirrors: dict[MirrorPlace, list[bytes]] = {}
        nodes = [
            node
            for node, known in self._nodes.by_name.items()
            if known.is_running and not known.is_draining and self._is_online(node)
        ]
        for place in self._replicas.places.values():
            group = place.replica.group
            if group is None or group.is_down or group.master_node not in nodes:
                continue
            if place.vhost.taker(place.name) is not None and is_meant(place.vhost.name, place.name):
                masters[place] = group.master_node
                mirrors[place] = [each.id.node for each in group.synced_mirrors]
        return masters, plan_moves(masters, mirrors, nodes)

    def tick(self) -> None:
        """Go on with what is under way; called about every 50 ms."""
        if self._rebalancings:
            self._rebalancings = [each for each in self._rebalancings if not each.advance()]

    def _place(self, vhost: bytes, queue: bytes) -> MirrorPlace | None:
        put = self._copy.queues.get((vhost, queue))
        return None if put is None else self._replicas.places.get(place_key(put))

    def _is_online(self, node: bytes) -> bool:
        return node == self._replicas.me.node or self._replicas.peers.is_reachable(node)


class _Rebalancing:
    """Moves the masters of queues to other nodes; `done` gets what has failed, "" for nothing."""

    def __init__(
        self,
        replicas: Replicas,
        moves: dict[MirrorPlace, bytes],
        done: Callable[[str], None],
    ) -> None:
        self._replicas = replicas
        self._waiting = deque(moves.items())
        self._done = done
        # Masters on the way, with their new nodes and the time until which they may take.
        self._moving: dict[MirrorPlace, tuple[bytes, int]] = {}
        # Queues that have not moved.
        self._failed: list[str] = []

    def advance(self) -> bool:
        """Go on; returns whether that was all."""
        now_ms = self._replicas.now_ms()
        for place, (node, until_ms) in list(self._moving.items()):
            if _is_settled(place, node):
                del self._moving[place]
            elif now_ms >= until_ms:
                del self._moving[place]
                self._failed.append(place.vhost.queue_text(place.name))
        while self._waiting and len(self._moving) < _MOVES_MAX:
            place, node = self._waiting.popleft()
            self._moving[place] = (node, now_ms + _MOVE_MS)
            self._replicas.ask_to_move(place, node)
        if self._moving:
            return False
        more = f" and of {len(self._failed) - 1} more" if len(self._failed) > 1 else ""
        self._done(f"the master of {self._failed[0]}{more} has not moved" if self._failed else "")
        self._replicas.wake()
        return True


def _is_settled(place: MirrorPlace, node: bytes) -> bool:
    """Whether a master has got to `node`, or the queue is gone or mirrored no more."""
    group = place.replica.group
    return group is None or not place.is_followed or group.master_node == node
