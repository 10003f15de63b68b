"""Nodes that decide definitions together: races, lost answers, a lost etcd, convergence."""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.brokers.amqp_peer import Peer
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.broker.definitions.metadata import (
    Change,
    DeleteExchange,
    PutBinding,
    PutExchange,
    PutQueue,
    PutVhost,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.decision_store import ClusterClock, Peers
from warrenmq.cluster.decisions import DECIDE_MS, ClusterDefinitions
from warrenmq.cluster.definitions_copy import DefinitionsCopy
from warrenmq.cluster.follower import Follower, RemoteEnds
from warrenmq.cluster.metadata.conditions import NodeIs
from warrenmq.cluster.placement import CLIENT_LOCAL, Placement
from warrenmq.queues.definition import QueueDefinition
from warrenmq.testing.cluster.etcd_model import EtcdModel, ModelledStore

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


class NoPeers(Peers):
    """Other nodes that are never behind."""

    def when_followed(self, revision: int, callback: Callable[[], None]) -> None:
        callback()


class Ends(RemoteEnds):
    """The remote queues of a node without links."""

    def add(self, vhost: Vhost, definition: QueueDefinition, node: bytes) -> None:
        vhost.add_remote_queue(definition, node)

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
        self.shared = ClusterDefinitions(self.store, self.follower, placement, NoPeers(), clock)
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


def binding(source: bytes, destination: bytes, key: bytes = b"k") -> PutBinding:
    return PutBinding(b"/", source, destination, True, key, b"")


def delete_exchange(node: ModelNode, name: bytes) -> None:
    vhost = node.vhost
    vhost.add_changes(vhost.forget(vhost.router.delete_exchange(vhost.router.exchanges[name])))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_what_one_node_declares_is_there_on_all(cluster: Cluster) -> None:
    one, two, three = cluster.nodes
    one.propose(exchange(b"x"))
    two.propose(queue(b"q"))
    cluster.settle()
    three.propose(binding(b"x", b"q"))
    cluster.settle()
    assert [node.outcomes for node in cluster.nodes] == [[""], [""], [""]]
    assert one.topology() == two.topology() == three.topology()
    assert b"q" in two.vhost.queues and b"q" in one.vhost.remote_queues
    assert one.topology()[2] == {(b"x", b"q", True, b"k")}


def test_of_two_declarations_at_once_one_makes_the_queue(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.propose(queue(b"q"))
    cluster.settle()
    assert [node.outcomes for node in cluster.nodes] == [[""], [""], [""]]
    assert [b"q" in node.vhost.queues for node in cluster.nodes] == [True, False, False]
    assert [b"q" in node.vhost.remote_queues for node in cluster.nodes] == [False, True, True]


def test_a_binding_is_not_made_to_another_life_of_its_exchange(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"), queue(b"q"))
    cluster.settle()
    two.propose(binding(b"x", b"q"))
    # Before that is decided, the exchange is deleted and declared again.
    delete_exchange(one, b"x")
    one.store.answer()
    one.propose(exchange(b"x"))
    cluster.settle()
    assert two.outcomes == [""] and one.topology() == two.topology()
    assert one.topology()[2] == set()


def test_a_lost_answer_leaves_the_thing_found_by_the_next_look(cluster: Cluster) -> None:
    one = cluster.nodes[0]
    one.store.loses_answers = True
    one.propose(queue(b"q"))
    one.store.answer()
    one.store.loses_answers = False
    assert one.outcomes == []
    cluster.settle()
    cluster.clock.advance(1000)
    cluster.settle()
    assert one.outcomes == [""] and b"q" in one.vhost.queues


def test_without_etcd_a_proposal_fails_in_time_and_changes_nothing(cluster: Cluster) -> None:
    one = cluster.nodes[0]
    one.store.is_reachable = False
    one.propose(queue(b"q"))
    for _ in range(DECIDE_MS // 100 + 10):
        while one.store.request_count:
            one.store.answer()
        cluster.clock.advance(100)
    assert one.outcomes == ["etcd does not answer"]
    one.store.is_reachable = True
    cluster.settle()
    assert cluster.model.revision == 1


def test_a_removal_is_repeated_until_etcd_takes_it(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"))
    cluster.settle()
    one.store.is_reachable = False
    delete_exchange(one, b"x")
    one.store.answer()
    assert b"x" in two.vhost.router.exchanges
    one.store.is_reachable = True
    cluster.clock.advance(1000)
    cluster.settle()
    assert b"x" not in two.vhost.router.exchanges
    assert cluster.model.load().exchanges == []


def test_an_old_removal_spares_the_next_life(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"))
    cluster.settle()
    # Both delete it; the removal of the first is decided late.
    delete_exchange(one, b"x")
    two.shared.remove([DeleteExchange(b"/", b"x")], None)
    two.store.answer()
    while two.store.tell():
        pass
    two.propose(exchange(b"x"))
    two.store.answer()
    cluster.settle()
    assert all(b"x" in node.vhost.router.exchanges for node in cluster.nodes)
    assert len(cluster.model.load().exchanges) == 1


def test_what_is_deleted_and_declared_at_once_is_there(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"))
    cluster.settle()
    delete_exchange(one, b"x")
    one.propose(exchange(b"x"))
    # Etcd may carry out the younger of two requests first.
    one.store.answer(one.store.request_count - 1)
    cluster.settle()
    assert b"x" in one.vhost.router.exchanges and b"x" in two.vhost.router.exchanges


def test_a_removal_goes_on_when_a_part_of_it_is_gone_already(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"), exchange(b"y"), queue(b"q"))
    cluster.settle()
    one.propose(binding(b"x", b"q"), binding(b"y", b"q"))
    cluster.settle()
    delete_exchange(two, b"x")
    two.store.answer()
    one.vhost.delete_queue(one.vhost.queues[b"q"], cluster.clock.now_ms())
    cluster.settle()
    assert cluster.model.load().queues == [] and cluster.model.load().bindings == []
    assert two.topology() == one.topology()


def test_a_binding_that_is_tried_again_finds_its_queue_gone(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"), queue(b"q"))
    cluster.settle()
    two.store.is_reachable = False
    two.propose(binding(b"x", b"q"))
    two.store.answer()
    one.vhost.delete_queue(one.vhost.queues[b"q"], cluster.clock.now_ms())
    two.store.is_reachable = True
    cluster.settle()
    cluster.clock.advance(1000)
    cluster.settle()
    assert two.outcomes == [""]
    assert [key for key in cluster.model.keys if b"/b/" in key] == []


def test_a_removal_without_the_lease_is_repeated(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x"))
    cluster.settle()
    birth = cluster.model.put_node(b"n1")
    cluster.model.drop_node(b"n1")
    one.store.lease = NodeIs(b"n1", birth)
    delete_exchange(one, b"x")
    one.store.answer()
    one.store.lease = NodeIs(b"n1", cluster.model.put_node(b"n1"))
    cluster.settle()
    cluster.clock.advance(1000)
    cluster.settle()
    assert b"x" not in two.vhost.router.exchanges
    assert cluster.model.load().exchanges == []


def test_an_auto_deleted_exchange_goes_everywhere_if_its_last_queue_was_just_bound(
    cluster: Cluster,
) -> None:
    one, two, _three = cluster.nodes
    one.propose(exchange(b"x", is_auto_delete=True), queue(b"q"))
    cluster.settle()
    two.propose(binding(b"x", b"q"))
    two.store.answer()
    # The node of the queue does not know the binding yet.
    one.vhost.delete_queue(one.vhost.queues[b"q"], cluster.clock.now_ms())
    cluster.settle()
    assert one.topology() == two.topology()
    assert b"x" not in one.vhost.router.exchanges and cluster.model.load().exchanges == []


def test_an_exclusive_queue_goes_if_its_client_has_left_before_it_was_made(
    cluster: Cluster,
) -> None:
    one, two, _three = cluster.nodes
    peer = Peer(one.memory.connect()).open()
    wanted = PutQueue(b"/", 0, b"q", False, False, b"")
    one.shared.place(wanted, one.memory.broker.connections[0])
    one.shared.propose([wanted], lambda failure, _now_ms: one.outcomes.append(failure))
    peer.drop()
    cluster.settle()
    assert two.vhost.taker(b"q") is None and cluster.model.load().queues == []


class Convergence(RuleBasedStateMachine):
    """Whatever is declared and deleted where and in which order, at rest all nodes are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()

    nodes = st.sampled_from(range(len(NAMES)))
    names = st.sampled_from([b"a", b"b"])

    @rule(node=nodes, name=names, is_auto_delete=st.booleans())
    def declare_exchange(self, node: int, name: bytes, is_auto_delete: bool) -> None:
        if name not in self.cluster.nodes[node].vhost.router.exchanges:
            self.cluster.nodes[node].propose(exchange(name, is_auto_delete))

    @rule(node=nodes, name=names)
    def declare_queue(self, node: int, name: bytes) -> None:
        if self.cluster.nodes[node].vhost.taker(name) is None:
            self.cluster.nodes[node].propose(queue(name))

    @rule(node=nodes, source=names, destination=names)
    def bind(self, node: int, source: bytes, destination: bytes) -> None:
        vhost = self.cluster.nodes[node].vhost
        if source in vhost.router.exchanges and vhost.taker(destination) is not None:
            self.cluster.nodes[node].propose(binding(source, destination))

    @rule(node=nodes, source=names, destination=names)
    def unbind(self, node: int, source: bytes, destination: bytes) -> None:
        vhost = self.cluster.nodes[node].vhost
        found, end = vhost.router.exchanges.get(source), vhost.taker(destination)
        if found is not None and end is not None:
            removed = vhost.router.unbind(found, end, b"k", b"")
            if removed is not None:
                vhost.add_changes(vhost.forget(removed))

    @rule(node=nodes, name=names)
    def delete_exchange(self, node: int, name: bytes) -> None:
        if name in self.cluster.nodes[node].vhost.router.exchanges:
            delete_exchange(self.cluster.nodes[node], name)

    @rule(name=names)
    def delete_queue(self, name: bytes) -> None:
        for node in self.cluster.nodes:
            found = node.vhost.queues.get(name)
            if found is not None:
                node.vhost.delete_queue(found, self.cluster.clock.now_ms())

    @rule(node=nodes, place=st.integers(0, 2))
    def answer(self, node: int, place: int) -> None:
        if self.cluster.nodes[node].store.request_count > place:
            self.cluster.nodes[node].store.answer(place)

    @rule(node=nodes)
    def tell(self, node: int) -> None:
        self.cluster.nodes[node].store.tell()

    @rule(node=nodes, is_reachable=st.booleans())
    def cut(self, node: int, is_reachable: bool) -> None:
        self.cluster.nodes[node].store.is_reachable = is_reachable

    @rule(node=nodes, loses=st.booleans())
    def lose_answers(self, node: int, loses: bool) -> None:
        self.cluster.nodes[node].store.loses_answers = loses

    @rule()
    def settle(self) -> None:
        if all(node.store.is_reachable for node in self.cluster.nodes):
            self.cluster.settle()

    @rule(ms=st.integers(1, 2000))
    def wait(self, ms: int) -> None:
        self.cluster.clock.advance(ms)

    @invariant()
    def nodes_are_sound(self) -> None:
        for node in self.cluster.nodes:
            node.vhost.router.check()

    def teardown(self) -> None:
        for node in self.cluster.nodes:
            node.store.is_reachable = True
            node.store.loses_answers = False
        self.cluster.clock.advance(DECIDE_MS)
        self.cluster.settle()
        self.cluster.clock.advance(DECIDE_MS)
        self.cluster.settle()
        one, two, three = (node.topology() for node in self.cluster.nodes)
        assert one == two == three
        definitions = self.cluster.model.load()
        queues = {each.name: each.node for each in definitions.queues}
        assert one[1] == set(queues)
        for node in self.cluster.nodes:
            assert set(node.vhost.queues) == {
                name for name, home in queues.items() if home == node.name
            }
        assert one[2] == {
            (each.source, each.destination, True, each.key) for each in definitions.bindings
        }


TestConvergence = Convergence.TestCase
TestConvergence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
