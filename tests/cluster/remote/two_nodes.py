"""Two brokers in one process, with links in memory between them, as one small cluster.

The front is the node of the clients, the back has the queues. Both are `MemoryBroker`s with their
own stores; what one sends to the other arrives after `delay_ms` of their common clock, in order.
`cut` takes the links down and `join` makes new ones. Decisions of the cluster happen at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.support.brokers.memory_broker import STEP_MS, MemoryBroker
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteBinding,
    DeleteExchange,
    DeleteQueue,
    PutBinding,
    PutExchange,
    PutQueue,
)
from warrenmq.broker.definitions.settings import Settings
from warrenmq.broker.definitions.shared import SharedDefinitions
from warrenmq.cluster.remote.remote_clients import RemoteClients
from warrenmq.queues.arguments import parse_arguments
from warrenmq.queues.definition import QueueDefinition
from warrenmq.queues.remote.queue_link import EVENTS, OPERATIONS, QueueLink

FRONT = b"front@host"
BACK = b"back@host"


class MemoryLink(QueueLink):
    """One direction of a link: frames of one node on their way to the other."""

    def __init__(self, cluster: TwoNodes) -> None:
        self._cluster = cluster
        self.is_open = True
        # While False, the link takes no more deliveries.
        self.is_writable = True
        # Frames with the time at which they arrive.
        self.frames: deque[tuple[int, int, bytes]] = deque()
        # All bytes that were sent.
        self.sent_bytes = 0

    def send(self, kind: int, payload: bytes) -> None:
        self.sent_bytes += len(payload)
        if self.is_open:
            due_ms = self._cluster.front.now_ms + self._cluster.delay_ms
            self.frames.append((due_ms, kind, payload))

    def has_room(self) -> bool:
        return self.is_writable


class LinkedBroker(MemoryBroker):
    """A broker of the cluster; its clients see turns of both nodes."""

    def __init__(self, cluster: TwoNodes, settings: Settings) -> None:
        self.cluster = cluster
        super().__init__(settings)

    # The disks of both nodes have the same faults: a test does not ask which of them has a message.
    @property
    def holds_commits(self) -> bool:
        return self.cluster.holds_commits

    @holds_commits.setter
    def holds_commits(self, value: bool) -> None:
        self.cluster.holds_commits = value

    @property
    def failing_commits(self) -> int:
        return self.cluster.failing_commits

    @failing_commits.setter
    def failing_commits(self, value: int) -> None:
        self.cluster.failing_commits = value

    def pump(self) -> None:
        self.cluster.pump()

    def end_turns(self) -> None:
        """End turns of this node alone until it has nothing to do."""
        super().pump()

    def advance(self, ms: int) -> None:
        self.cluster.advance(ms)


class Decisions(SharedDefinitions):
    """Decides at once, for the node `name`; the queues live on `place_at`, unless exclusive."""

    def __init__(self, cluster: TwoNodes, name: bytes) -> None:
        self._cluster = cluster
        self._name = name

    def propose(
        self, changes: list[Change], done: Callable[[str, int], None], conflict: str = ""
    ) -> None:
        for change in changes:
            self._cluster.make(change)
        done("", self._cluster.front.now_ms)

    def remove(self, changes: list[Change], done: Callable[[str, int], None] | None) -> None:
        for change in changes:
            self._cluster.remove(change)
        if done is not None:
            done("", self._cluster.front.now_ms)

    def place(self, queue: PutQueue, owner: object | None) -> None:
        cluster = self._cluster
        queue.node = cluster.place_at
        cluster.owners[queue.name] = owner
        if owner is not None and not cluster.shares_exclusive:
            queue.node = self._name


class TwoNodes:
    """The cluster; `delay_ms` is the way of a frame."""

    def __init__(self, settings: Callable[[str], Settings] | None = None) -> None:
        make = settings or (lambda name: Settings(node_name=name))
        self.delay_ms = 0
        self.holds_commits = False
        self.failing_commits = 0
        # Where new queues go.
        self.place_at = BACK
        # Exclusive queues live on the back too, which a real cluster does not do: so the tests of
        # the protocol, whose queues are mostly exclusive, test queues of another node.
        self.shares_exclusive = False
        self.owners: dict[bytes, object | None] = {}
        self._is_pumping = False
        self._births = 0
        self.front = LinkedBroker(self, make(FRONT.decode()))
        self.back = LinkedBroker(self, make(BACK.decode()))
        self.nodes = {FRONT: self.front, BACK: self.back}
        for name, node in self.nodes.items():
            node.broker.shared = Decisions(self, name)
        # What handles the operations of the other node, by node.
        self.clients: dict[bytes, RemoteClients] = {}
        # The outgoing direction of each node.
        self.links: dict[bytes, MemoryLink] = {}
        self.join()

    # -- links -------------------------------------------------------------------------------------

    def join(self) -> None:
        """Make links between the nodes."""
        for name, node in self.nodes.items():
            link = MemoryLink(self)
            self.links[name] = link
            clients = RemoteClients(node.broker, link)
            self.clients[name] = clients
            node.broker.turn_ends.append(clients)
            other = BACK if name == FRONT else FRONT
            node.broker.remote_node(other).link_up(link)

    def cut(self) -> None:
        """Take the links down; frames that have not arrived are lost."""
        now_ms = self.front.now_ms
        for link in self.links.values():
            link.is_open = False
        self.links = {}
        for name, node in self.nodes.items():
            clients = self.clients.pop(name)
            node.broker.turn_ends.remove(clients)
            clients.end(now_ms)
            other = BACK if name == FRONT else FRONT
            node.broker.remote_node(other).link_down(now_ms)
        self.pump()

    def pump(self) -> None:
        """End turns of both nodes and let frames arrive that are due, until nothing is left."""
        if self._is_pumping:
            return
        self._is_pumping = True
        while True:
            self.front.end_turns()
            self.back.end_turns()
            if not self._carry():
                break
        self._is_pumping = False

    def _carry(self) -> bool:
        has_carried = False
        for name, link in list(self.links.items()):
            other = BACK if name == FRONT else FRONT
            receiver = self.nodes[other].broker
            now_ms = self.front.now_ms
            while link.is_open and link.frames and link.frames[0][0] <= now_ms:
                _due_ms, kind, payload = link.frames.popleft()
                has_carried = True
                if kind == OPERATIONS:
                    self.clients[other].take_frame(payload, now_ms)
                else:
                    assert kind == EVENTS
                    receiver.remote_node(name).take_frame(payload, now_ms)
        return has_carried

    def advance(self, ms: int) -> None:
        """Let `ms` pass on both nodes."""
        end_ms = self.front.now_ms + ms
        while self.front.now_ms < end_ms:
            step_ms = min(STEP_MS, end_ms - self.front.now_ms)
            for node in self.nodes.values():
                node.now_ms += step_ms
                node.broker.tick(node.now_ms)
                node.broker.tick_connections(node.now_ms)
            self.pump()
            for node in self.nodes.values():
                for link in node.links:
                    link.look_at_state()

    # -- definitions -------------------------------------------------------------------------------

    def make(self, change: Change) -> None:
        """Let both nodes follow a new definition."""
        for name, node in self.nodes.items():
            vhost = node.vhost
            router = vhost.router
            if isinstance(change, PutQueue):
                self._make_queue(name, node, change)
            elif isinstance(change, PutExchange):
                if change.name not in router.exchanges:
                    exchange = router.declare_exchange(
                        change.name,
                        change.type,
                        change.durable,
                        change.auto_delete,
                        change.internal,
                        change.arguments,
                    )
                    vhost.policies.on_exchange(exchange)
            elif isinstance(change, PutBinding):
                ends = router.queues if change.destination_is_queue else router.exchanges
                router.bind(
                    router.exchanges[change.source],
                    ends[change.destination],
                    change.key,
                    change.arguments,
                )

    def _make_queue(self, name: bytes, node: LinkedBroker, change: PutQueue) -> None:
        vhost = node.vhost
        if vhost.taker(change.name) is not None:
            return
        if change.birth == 0:
            self._births += 1
            change.birth = self._births
        is_here = change.node == name
        definition = QueueDefinition(
            change.name,
            node.broker.next_queue_id() if is_here else 0,
            change.durable,
            change.auto_delete,
            self.owners.get(change.name),
            change.arguments,
            parse_arguments(change.arguments, vhost.queue_text(change.name)),
            change.birth,
        )
        if is_here:
            vhost.add_queue(definition, node.now_ms)
        else:
            vhost.add_remote_queue(definition, change.node)

    def remove(self, change: Change) -> None:
        """Let both nodes follow a removal."""
        for node in self.nodes.values():
            vhost = node.vhost
            router = vhost.router
            if isinstance(change, DeleteQueue):
                remote = vhost.remote_queues.get(change.name)
                if remote is not None:
                    vhost.remove_remote_queue(remote, node.now_ms)
            elif isinstance(change, DeleteExchange):
                exchange = router.exchanges.get(change.name)
                if exchange is not None:
                    router.delete_exchange(exchange)
            elif isinstance(change, DeleteBinding):
                ends = router.queues if change.destination_is_queue else router.exchanges
                source = router.exchanges.get(change.source)
                destination = ends.get(change.destination)
                if source is not None and destination is not None:
                    router.unbind(source, destination, change.key, change.arguments)

    def check(self) -> None:
        """Assert the invariants of both nodes."""
        for node in self.nodes.values():
            node.vhost.check()
