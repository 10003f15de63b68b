"""Three brokers in one process, on two of which a queue has copies; its master moves between them.

The front is the node of the clients. The back has the queue first, the third a hidden copy of it.
What the master does reaches the copy at once, as if the ring took no time.
"""

from __future__ import annotations

from tests.cluster.remote.two_nodes import (
    BACK,
    FRONT,
    Decisions,
    LinkedBroker,
    MemoryLink,
    TwoNodes,
)
from tests.support.brokers.amqp_peer import ChannelPeer, Peer
from warrenmq.broker.definitions.settings import Settings
from warrenmq.cluster.remote.remote_clients import RemoteClients
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.backing.operation_feed import OperationFeed
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.entry import Entry
from warrenmq.queues.message_taker import MessageTaker
from warrenmq.queues.mirror.backing import MirrorBacking
from warrenmq.queues.queue import Queue
from warrenmq.queues.remote.queue import RemoteQueue
from warrenmq.queues.remote.queue_link import OPERATIONS
from warrenmq.store.model.runs import Runs

THIRD = b"third@host"
# Seq ids between the last one of a master and the first one of the next.
_GAP = 1000


class CopyFeed(OperationFeed):
    """Passes the operations of a master on to `copy`."""

    def __init__(self, cluster: ThreeNodes, copy: MirrorBacking) -> None:
        self._cluster = cluster
        self._copy = copy

    def published(self, entry: Entry) -> None:
        self._copy.publish_at(
            entry.seq, entry.message, entry.expiry_ms, entry.redelivered, self._cluster.front.now_ms
        )

    def delivered(self, seq: int) -> None:
        self._copy.mark_delivered([(seq, seq)])

    def leaving(self, seq: int) -> None:
        """A copy keeps it until it is settled."""

    def returned(self, seq: int) -> None:
        """It never left the copy."""

    def put_back(self, seq: int) -> None:
        self._copy.unmark_delivered([(seq, seq)])

    def settled(self, seq: int, reason: int) -> None:
        self.settled_runs([(seq, seq)], reason)

    def readers_changed(self) -> None:
        """Reader groups are none of its business."""

    def receipts_changed(self) -> None:
        """Nor are receipts."""

    def settled_runs(self, runs: Runs, reason: int) -> None:
        self._copy.settle(runs, self._cluster.front.now_ms)

    def deleted(self) -> None:
        """The tests delete no queue that is mirrored."""


class ThreeNodes(TwoNodes):
    """The cluster; `links` and `clients` are those from one node to another."""

    def __init__(self) -> None:
        self.third_node: LinkedBroker | None = None
        self.pairs: dict[tuple[bytes, bytes], MemoryLink] = {}
        self.users: dict[tuple[bytes, bytes], RemoteClients] = {}
        self.epoch = 0
        super().__init__()

    @property
    def third(self) -> LinkedBroker:
        return self.nodes[THIRD]

    def join(self) -> None:
        if THIRD not in self.nodes:
            self.nodes[THIRD] = LinkedBroker(self, Settings(node_name=THIRD.decode()))
            self.third.broker.shared = Decisions(self, THIRD)
        for one in self.nodes:
            for other in self.nodes:
                if one < other:
                    self.join_pair(one, other)

    def join_pair(self, one: bytes, other: bytes) -> None:
        """Make the link between two nodes, unless it is there."""
        if (one, other) in self.pairs:
            return
        for name, peer in ((one, other), (other, one)):
            broker = self.nodes[name].broker
            link = MemoryLink(self)
            self.pairs[name, peer] = link
            clients = RemoteClients(broker, link)
            self.users[name, peer] = clients
            broker.turn_ends.append(clients)
            broker.remote_node(peer).link_up(link)

    def isolate(self, node: bytes) -> None:
        """Take down the links of `node`; frames that have not arrived are lost."""
        now_ms = self.front.now_ms
        pairs = [pair for pair in self.pairs if node in pair]
        for pair in pairs:
            self.pairs[pair].is_open = False
        for name, peer in pairs:
            del self.pairs[name, peer]
            clients = self.users.pop((name, peer))
            broker = self.nodes[name].broker
            broker.turn_ends.remove(clients)
            clients.end(now_ms)
            broker.remote_node(peer).link_down(now_ms)
        self.pump()

    def pump(self) -> None:
        if self._is_pumping or THIRD not in self.nodes:
            return
        self._is_pumping = True
        while True:
            for node in self.nodes.values():
                node.end_turns()
            if not self._carry():
                break
        self._is_pumping = False

    def _carry(self) -> bool:
        has_carried = False
        now_ms = self.front.now_ms
        for (sender, receiver), link in list(self.pairs.items()):
            while link.is_open and link.frames and link.frames[0][0] <= now_ms:
                _due_ms, kind, payload = link.frames.popleft()
                has_carried = True
                if kind == OPERATIONS:
                    self.users[receiver, sender].take_frame(payload, now_ms)
                else:
                    self.nodes[receiver].broker.remote_node(sender).take_frame(payload, now_ms)
        return has_carried

    # -- the queue that moves ----------------------------------------------------------------------

    def queue(self, node: bytes, name: bytes = b"q") -> Queue:
        """What `node` has of the queue: the queue itself, or its hidden copy."""
        (found,) = [
            queue for queue in self.nodes[node].vhost.queues_by_id.values() if queue.name == name
        ]
        return found

    def mirror(self, name: bytes = b"q") -> None:
        """Give the queue, whose master is the back, a copy on the third node."""
        definition = self.queue(BACK, name).definition
        vhost = self.third.vhost
        copy = vhost.add_hidden_queue(
            QueueDefinition(
                name,
                self.third.broker.next_queue_id(),
                definition.durable,
                definition.auto_delete,
                None,
                definition.arguments,
                parse_arguments(definition.arguments, ""),
                definition.birth,
            ),
            self.third.now_ms,
        )
        self._feed(self.queue(BACK, name), copy)
        for node in (self.front, self.third):
            node.vhost.remote_queues[name].keep_consumers()

    def _feed(self, master: Queue, copy: Queue) -> None:
        master.backing.feed = CopyFeed(self, MirrorBacking(copy.backing, copy))

    def promote(self, node: bytes, name: bytes = b"q", is_fed: bool = False) -> None:
        """Let the copy of `node` begin an epoch and be the master, as `node` knows."""
        self.epoch += 1
        queue = self.queue(node, name)
        queue.backing.ledger.next_seq += _GAP
        queue.begin_epoch(self.epoch)
        if is_fed:
            self._feed(queue, self.queue(BACK if node == THIRD else THIRD, name))
        vhost = self.nodes[node].vhost
        vhost.replace_taker(self._taker(node, name), queue, self.front.now_ms)
        self.pump()

    def follow(self, node: bytes, master: bytes, name: bytes = b"q") -> None:
        """Let `node` know that `master` has the queue now."""
        vhost = self.nodes[node].vhost
        old = self._taker(node, name)
        new = vhost.new_remote_queue(old.definition, master, self.epoch)
        new.keep_consumers()
        vhost.replace_taker(old, new, self.front.now_ms)
        self.pump()

    def _taker(self, node: bytes, name: bytes) -> MessageTaker:
        taker = self.nodes[node].vhost.taker(name)
        assert isinstance(taker, RemoteQueue | Queue)
        return taker

    def fail_over(self, name: bytes = b"q") -> None:
        """Lose the back, and let the third node take over."""
        self.isolate(BACK)
        self.promote(THIRD, name)
        self.follow(FRONT, THIRD, name)

    def hand_over(self, name: bytes = b"q") -> None:
        """Move the master from the back to the third node, while all nodes are there."""
        self.follow(BACK, THIRD, name)
        self.promote(THIRD, name)
        self.follow(FRONT, THIRD, name)


def channel_at(nodes: ThreeNodes, node: bytes, wants_notice: bool = True) -> ChannelPeer:
    """A channel at `node`; its client can be told of cancelled consumers, or not."""
    capabilities: dict[str, object] = {"consumer_cancel_notify": wants_notice}
    return Peer(nodes.nodes[node].connect()).open(capabilities=capabilities).channel()


def mirrored(nodes: ThreeNodes, *bodies: bytes, arguments: bytes = b"") -> ChannelPeer:
    """A channel of the front, and the queue `q` with `bodies`, whose master is the back."""
    channel = channel_at(nodes, FRONT)
    channel.declare(b"q", durable=True, arguments=arguments)
    nodes.mirror()
    channel.publish_each(b"q", *bodies)
    channel.quiet()
    return channel


def left(nodes: ThreeNodes) -> list[bytes]:
    """What the new master has ready."""
    return channel_at(nodes, THIRD).drain(b"q")
