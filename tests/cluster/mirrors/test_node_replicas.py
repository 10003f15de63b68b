"""All replicas of a node whose cluster loses another one: which queues change first."""

import json
import logging
from collections.abc import Callable
from typing import cast

import pytest

from tests.cluster.groups.copies import copy, made, member, new_group
from tests.cluster.mirrors.test_peers import QuietLink
from tests.cluster.model_cluster import NAMES, Cluster
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_change, group_of, with_group
from warrenmq.cluster.groups.group_proposer import QUEUES_MAX
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.transitions import died, join
from warrenmq.cluster.links.link import Link
from warrenmq.cluster.metadata.conditions import NodeIs
from warrenmq.cluster.mirroring import Mirroring
from warrenmq.cluster.mirrors.place_key import place_key
from warrenmq.cluster.mirrors.records import NewerRecord, encode_record
from warrenmq.cluster.mirrors.visits import URGENT_A_TURN
from warrenmq.cluster.records import RunningNode
from warrenmq.queues.hand_out_gate import OPEN

ONE, TWO, THREE = NAMES


class Probes:
    """A prober that hears a refusal of the nodes of `refusing`, and nothing else."""

    def __init__(self) -> None:
        self.refusing: set[str] = set()

    def probe(self, name: str, record: RunningNode, refused: Callable[[], None]) -> None:
        if name in self.refusing:
            refused()


class Survivor(Cluster):
    """Three nodes; the second one has replicas, and no links."""

    def __init__(self) -> None:
        super().__init__()
        self.node = self.nodes[1]
        self.store = self.node.store
        self.probes = Probes()
        self.known = KnownNodes()
        self.mirroring = Mirroring(
            copy(TWO),
            self.probes.probe,
            self.node.memory.broker,
            self.node.follower,
            self.store,
            self.clock,
            self.known,
            lambda: None,
        )
        self.set_policy({"ha-mode": "all"})
        self.mirroring.set_running(
            {
                name.decode(): RunningNode(copy(name).replica_id, 1, "127.0.0.1", 1, "1")
                for name in NAMES
            }
        )

    def set_policy(self, definition: dict[str, object]) -> None:
        """Mirror all queues by a policy."""
        policy = {"pattern": ".*", "apply-to": "queues", "priority": 0, "definition": definition}
        self.node.vhost.put_parameter("policy", "ha", json.dumps(policy))
        self.mirroring.replicas.on_policies(self.node.vhost)

    def link(self, *names: bytes) -> None:
        """Let this node have a link to each of the nodes `names`."""
        for name in names:
            self.mirroring.link_up(cast(Link, QuietLink(name.decode(), 0)))

    def declare(self, names: list[bytes], *nodes: bytes) -> None:
        """Declare queues with copies on `nodes`, the master's first."""
        for name in names:
            put = PutQueue(b"/", 0, name, True, False, b"")
            self.model.commit([], [with_group(put, new_group(*nodes))])
        self.settle()

    def groups(self) -> dict[bytes, Group]:
        """The groups in the store."""
        found = {put.name: group_of(put) for put in self.model.load().queues}
        return {name: group for name, group in found.items() if group is not None}

    def changed(self) -> set[bytes]:
        """The queues whose groups are not as they were declared."""
        return {name for name, group in self.groups().items() if group.version > len(NAMES)}

    def use(self, name: bytes) -> None:
        """Let a record of another node come for a queue."""
        put = self.node.copy.queues[b"/", name]
        record = encode_record(place_key(put), NewerRecord(0))
        assert self.mirroring.take_record("n3", record) == ""

    def lose(self, name: bytes) -> None:
        """The host of a node refuses connections."""
        self.mirroring.peers.refused(name)
        self.mirroring.replicas.on_gone(name)

    def busy_count(self) -> int:
        """How many queues have a proposal of the node."""
        proposer = self.mirroring.replicas.proposer
        queues = self.node.copy.queues.values()
        return sum(proposer.is_busy(put.vhost, put.name, put.birth) for put in queues)

    def rest(self) -> None:
        """Let all proposals come to their end."""
        for _ in range(100):
            self.mirroring.end_turn()
            if not self.busy_count():
                return
            self.settle()
            self.clock.advance(100)
        raise AssertionError("the proposals do not come to an end")


@pytest.fixture
def survivor() -> Survivor:
    return Survivor()


def test_queues_in_use_change_first_then_those_without_a_master(survivor: Survivor) -> None:
    survivor.declare([b"mirrored", b"used mirror"], TWO, ONE, THREE)
    survivor.declare([b"led", b"used"], ONE, TWO, THREE)
    survivor.declare([b"of others"], THREE, TWO, ONE)
    survivor.clock.advance(10_000)
    survivor.use(b"used")
    survivor.lose(ONE)
    survivor.mirroring.end_turn()
    assert survivor.store.request_count == 2, "what only tidies the group waits"
    survivor.store.answer()
    assert survivor.changed() == {b"used"}
    survivor.store.answer()
    assert survivor.changed() == {b"used", b"led"}
    survivor.settle()
    survivor.mirroring.end_turn()
    survivor.store.answer()
    assert survivor.changed() == {b"used", b"led", b"mirrored", b"used mirror"}
    survivor.rest()
    groups = survivor.groups()
    assert groups[b"of others"].member_of(ONE) is not None, "that is its master's business"
    for name in survivor.changed():
        assert groups[name].master_node == TWO and groups[name].member_of(ONE) is None
        assert groups[name].is_synced(ONE, copy(ONE).replica_id), "it may be needed again"


def test_promotions_are_measured_from_the_last_sign_of_life(survivor: Survivor) -> None:
    survivor.declare([b"mirrored"], TWO, ONE)
    survivor.declare([b"led", b"led too"], ONE, TWO)
    promotions = survivor.node.memory.broker.latencies.promotions
    survivor.link(ONE, THREE)
    survivor.mirroring.link_down(ONE.decode())
    for _ in range(6):
        survivor.clock.advance(500)
        survivor.mirroring.tick()
    survivor.lose(ONE)
    survivor.rest()
    assert sum(promotions.counts) == 2, "one queue had its master here before"
    silence_ms = survivor.mirroring.peers.silence_ms(ONE)
    assert 2 * 1_000 <= promotions.total // 1_000_000 <= 2 * silence_ms


def test_few_queues_are_looked_at_while_the_store_is_busy(survivor: Survivor) -> None:
    """What a queue needs next does not wait behind the proposals of all others."""
    names = [b"q%d" % number for number in range(3 * URGENT_A_TURN)]
    survivor.declare(names, ONE, TWO, THREE)
    survivor.lose(ONE)
    survivor.mirroring.end_turn()
    assert survivor.busy_count() == URGENT_A_TURN <= 2 * QUEUES_MAX
    for _ in range(3):
        # All transactions are under way, and more than another one takes waits.
        survivor.mirroring.end_turn()
        assert survivor.busy_count() == 2 * URGENT_A_TURN
    survivor.rest()
    assert survivor.changed() == set(names)


def test_deaths_of_mirrors_keep_no_promotion_waiting(survivor: Survivor) -> None:
    """A second node may die while the deaths of thousands of mirrors are not recorded yet."""
    survivor.declare([b"m%d" % number for number in range(3 * QUEUES_MAX)], TWO, ONE, THREE)
    survivor.declare([b"led"], THREE, TWO, ONE)
    survivor.lose(ONE)
    for _ in range(2):
        survivor.mirroring.end_turn()
    assert survivor.busy_count() == 3 * QUEUES_MAX and survivor.store.request_count == 1
    survivor.lose(THREE)
    survivor.mirroring.end_turn()
    survivor.store.answer(1)
    assert survivor.groups()[b"led"].master_node == TWO
    survivor.rest()


def test_a_queue_whose_publishes_wait_for_a_dead_mirror_is_hurried(survivor: Survivor) -> None:
    names = [b"q%02d" % number for number in range(2 * QUEUES_MAX)]
    survivor.declare(names, TWO, ONE)
    survivor.lose(ONE)
    for _ in range(2):
        survivor.mirroring.end_turn()
    queue = survivor.node.vhost.queues[names[-1]]
    party = queue.confirm_party()
    assert party is not None
    survivor.mirroring.replicas.touch(survivor.mirroring.replicas.places[
        place_key(survivor.node.copy.queues[b"/", names[-1]])])  # fmt: skip
    survivor.mirroring.end_turn()
    survivor.clock.advance(1000)
    survivor.mirroring.tick()
    survivor.mirroring.end_turn()
    assert survivor.store.request_count == 2
    survivor.store.answer(1)
    assert survivor.changed() == {names[-1]}
    assert [each.node for each in survivor.groups()[names[-1]].sync] == [TWO]
    survivor.rest()


def test_a_node_asks_to_be_taken_in_when_it_has_a_link_to_the_master(survivor: Survivor) -> None:
    """The round over thousands of queues would come to them late."""
    survivor.declare([b"q", b"r"], ONE, TWO, THREE)
    replicas = survivor.mirroring.replicas
    for put in survivor.model.load().queues:
        group = made(group_of(put))
        survivor.model.commit(*group_change(put, made(died(group, member(group, TWO).id))))
    survivor.settle()
    survivor.mirroring.end_turn()
    assert survivor.busy_count() == 0, "it was given up soon, so it waits"
    replicas.on_link_up(THREE)
    survivor.mirroring.end_turn()
    assert survivor.busy_count() == 0
    survivor.link(ONE)
    survivor.rest()
    assert all(group.member_of(TWO) is not None for group in survivor.groups().values())


def test_clients_wait_for_a_master_only_while_one_can_come(survivor: Survivor) -> None:
    """The second node has the only link to clients here; the first and the third one lead."""
    survivor.declare([b"ours"], ONE, TWO)
    survivor.declare([b"elsewhere"], ONE, THREE)
    survivor.declare([b"unsynced"], THREE)
    survivor.declare([b"alone"], ONE)
    for put in survivor.model.load().queues:
        if put.name == b"unsynced":
            joined = made(join(made(group_of(put)), copy(TWO)))
            survivor.model.commit(*group_change(put, joined))
    survivor.settle()
    control = survivor.node.memory.broker.mirrors
    assert control is not None

    def awaited() -> set[bytes]:
        names = (b"ours", b"elsewhere", b"unsynced", b"alone", b"no queue")
        return {name for name in names if control.awaits_master(b"/", name)}

    # Nothing was heard of the others yet, which may still be electing.
    assert awaited() == {b"ours", b"elsewhere"}
    survivor.lose(THREE)
    assert awaited() == {b"ours"}, "its only other copy is dead, too"
    survivor.link(ONE)
    assert awaited() == {b"ours", b"elsewhere", b"alone"}, "their home is back"
    survivor.set_policy({"ha-mode": "all", "ha-promote-on-failure": "always"})
    for place in survivor.mirroring.replicas.places.values():
        place.obey_policy()
    assert b"unsynced" in awaited()


def test_a_new_lease_opens_no_gate_before_what_was_decided_without_one(survivor: Survivor) -> None:
    """A node that has stood still may have been deposed, and hear of its new lease first."""
    survivor.set_policy({"ha-mode": "all", "ha-promote-on-failure": "always"})
    survivor.declare([b"q"], TWO)
    gate = survivor.node.vhost.queues[b"q"].demand.gate

    def is_open() -> bool:
        survivor.mirroring.tick()
        return survivor.clock.now_ms() < int(gate.until_ms)

    assert gate is not OPEN and is_open()
    survivor.store.lease = NodeIs(TWO, survivor.model.put_node(TWO))
    assert not is_open()
    assert survivor.store.tell() and is_open()


@pytest.mark.parametrize("is_certain", [True, False], ids=["dead", "silent"])
def test_a_mirror_is_replaced_at_once_if_its_death_is_certain(
    survivor: Survivor, is_certain: bool
) -> None:
    """A silent node may come back with its copy: until its lease ends its queues prefer it."""
    survivor.set_policy({"ha-mode": "exactly", "ha-params": 2})
    names = [b"q%d" % number for number in range(8)]
    survivor.declare(names, TWO, ONE)
    survivor.link(ONE, THREE)
    if is_certain:
        survivor.probes.refusing.add(ONE.decode())
    survivor.mirroring.link_down(ONE.decode())
    for _ in range(6):
        survivor.clock.advance(500)
        survivor.mirroring.tick()
    survivor.rest()
    has_new = {name for name, group in survivor.groups().items() if group.member_of(THREE)}
    assert survivor.changed() == set(names), "the death of each mirror is recorded"
    assert (has_new == set(names)) == is_certain
    survivor.link(ONE)
    assert set(survivor.known.by_name) == set(NAMES), "it has come back"


def test_a_policy_that_mirrors_a_queue_promotes_nobody(
    survivor: Survivor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "warren.mirrors")
    put = PutQueue(b"/", 0, b"q", True, False, b"", node=TWO)
    survivor.model.commit([], [put])
    survivor.settle()
    survivor.link(ONE, THREE)
    for definition in ('{"ha-mode": "all"}', '{"max-length": 9}', '{"ha-mode": "all"}'):
        survivor.set_policy(json.loads(definition))
        for _ in range(4):
            survivor.clock.advance(3000)
            survivor.mirroring.tick()
            survivor.rest()
    assert survivor.groups()[b"q"].epoch > 1, "its master is another one than that of before"
    for node in ("n1", "n3"):
        adding = f"Mirrored queue 'q' in vhost '/': Adding mirror on node '{node}'"
        assert caplog.messages.count(adding) == 2, "once for each policy"
    assert "Promoting" not in caplog.text and "leads" not in caplog.text
