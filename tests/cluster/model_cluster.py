"""Three nodes of a cluster in memory, which decide in a model of etcd: no links, no clock."""

from collections.abc import Callable

from simulator.cluster.etcd_model import EtcdModel, ModelledStore
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.definitions.metadata import Change, PutExchange, PutQueue, PutVhost
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import ClusterClock
from warrenmq.cluster.decisions.decisions import ClusterDefinitions
from warrenmq.cluster.decisions.follower import Follower, FollowerHost
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL, Placement
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.queues.definition import QueueDefinition

NAMES = (b"n1", b"n2", b"n3")


class Timers(ClusterClock):
    """Time that a test moves."""

    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self._due.append((self._now_ms + delay_ms, len(self._due), callback))

    def advance(self, ms: int) -> None:
        """Let `ms` pass; timers fire in order."""
        end_ms = self._now_ms + ms
        while self._due and min(self._due)[0] <= end_ms:
            due = min(self._due)
            self._due.remove(due)
            self._now_ms = max(self._now_ms, due[0])
            due[2]()
        self._now_ms = end_ms


def _nobody_is_behind(_revision: int, callback: Callable[[], None]) -> None:
    """Other nodes follow at once."""
    callback()


class Ends(FollowerHost):
    """The remote queues of a node without links."""

    def add(self, vhost: Vhost, definition: QueueDefinition, node: bytes, epoch: int = 0) -> None:
        vhost.add_remote_queue(definition, node, epoch)

    def remove(self, vhost: Vhost, name: bytes, birth: int) -> list[Change]:
        queue = vhost.remote_queues.get(name)
        if queue is None or queue.definition.birth != birth:
            return []
        return vhost.forget(vhost.remove_remote_queue(queue, 0))


class ModelNode:
    """A node of a cluster without links: a broker in memory that proposes and follows."""

    def __init__(self, name: bytes, model: EtcdModel, clock: Timers) -> None:
        self.name = name
        self.memory = MemoryBroker()
        self.copy = DefinitionsCopy()
        self.follower = Follower(
            name,
            self.memory.broker,
            self.copy,
            Ends(),
            lambda changes, done: done(""),
            lambda changes, done: done(""),
            clock.now_ms,
        )
        self.store = ModelledStore(model, self.follower.follow)
        placement = Placement(name, self.memory.broker, self.copy, lambda: [name], CLIENT_LOCAL)
        self.shared = ClusterDefinitions(
            self.store, self.follower, placement, _nobody_is_behind, clock
        )
        self.memory.broker.shared = self.shared
        self.outcomes: list[str] = []

    @property
    def vhost(self) -> Vhost:
        """The vhost /."""
        return self.memory.vhost

    def propose(self, *changes: Change) -> None:
        """Propose changes; the outcome is noted."""
        for change in changes:
            if isinstance(change, PutQueue):
                self.shared.place(change, None)
        self.shared.propose(list(changes), lambda failure, _now_ms: self.outcomes.append(failure))

    def topology(self) -> tuple[object, ...]:
        """What clients of this node see: exchanges, queues, bindings."""
        vhost = self.vhost
        bindings = {
            (
                binding.source.name,
                binding.destination.name,
                binding.destination.is_queue,
                binding.key,
            )
            for exchange in vhost.router.exchanges.values()
            for binding in exchange.outgoing.values()
        }
        return set(vhost.router.exchanges), set(vhost.router.queues), bindings


class Cluster:
    """Three nodes and their store; nothing happens until a test lets it."""

    def __init__(self) -> None:
        self.model = EtcdModel()
        self.clock = Timers()
        self.model.commit([], [PutVhost(b"/", 0)])
        self.nodes = [ModelNode(name, self.model, self.clock) for name in NAMES]
        self.settle()

    def settle(self) -> None:
        """Let everything that is under way come to its end."""
        for _ in range(1000):
            is_busy = False
            for node in self.nodes:
                while node.store.request_count:
                    node.store.answer()
                    is_busy = True
                while node.store.tell():
                    is_busy = True
                node.memory.pump()
            if not is_busy:
                return
            self.clock.advance(25)
        raise AssertionError("the cluster does not come to rest")


def exchange(name: bytes, is_auto_delete: bool = False) -> PutExchange:
    return PutExchange(b"/", name, b"direct", is_auto_delete, False, b"")


def queue(name: bytes) -> PutQueue:
    return PutQueue(b"/", 0, name, True, False, b"")
