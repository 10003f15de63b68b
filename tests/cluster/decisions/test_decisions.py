"""Nodes that decide definitions together: races, lost answers, a lost etcd, convergence."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.cluster.model_cluster import NAMES, Cluster, ModelNode, exchange, queue
from tests.support.brokers.amqp_peer import Peer
from warrenmq.broker.definitions.metadata import (
    DeleteExchange,
    DeleteUser,
    PutBinding,
    PutParameter,
    PutPermission,
    PutQueue,
    PutTopicPermission,
    PutUser,
    PutVhost,
)
from warrenmq.cluster.decision_store import DECIDE_MS
from warrenmq.cluster.metadata.conditions import NodeIs


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


def test_a_user_and_a_vhost_come_with_what_belongs_to_them(cluster: Cluster) -> None:
    """An import of definitions is one proposal."""
    one = cluster.nodes[0]
    one.propose(
        PutUser(b"ann", b"", "", []),
        PutVhost(b"new", 1),
        PutPermission(b"new", b"ann", ".*", ".*", ".*"),
        PutTopicPermission(b"new", b"ann", b"", ".*", ".*"),
        PutParameter(b"new", "policy", "p", "{}"),
    )
    cluster.settle()
    assert one.outcomes == [""]
    found = cluster.model.load()
    assert [(each.vhost, each.user) for each in found.permissions] == [(b"new", b"ann")]
    assert [(each.vhost, each.user) for each in found.topic_permissions] == [(b"new", b"ann")]
    assert [each.name for each in found.parameters] == ["p"]


def test_permissions_of_a_user_who_goes_meanwhile_are_refused(cluster: Cluster) -> None:
    one, two, _three = cluster.nodes
    one.propose(PutUser(b"ann", b"", "", []))
    cluster.settle()
    one.propose(DeleteUser(b"ann"))
    two.shared.propose(
        [PutPermission(b"/", b"ann", ".*", ".*", ".*")],
        lambda failure, _now_ms: two.outcomes.append(failure),
        "it has changed",
    )
    one.store.answer()
    cluster.settle()
    assert two.outcomes == ["it has changed"]
    assert cluster.model.load().permissions == []


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
    one.shared.place(wanted, next(iter(one.memory.broker.connections)))
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
