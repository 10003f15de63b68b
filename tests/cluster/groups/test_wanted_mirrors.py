"""Which queues need a step, and the first groups of new queues."""

import json

import pytest

from tests.cluster.groups.copies import copy, made, new_group
from tests.cluster.model_cluster import NAMES, Cluster
from warrenmq.broker.definitions.metadata import PutQueue
from warrenmq.cluster.decisions.placement import CLIENT_LOCAL, Placement
from warrenmq.cluster.groups.group import Copy, Group
from warrenmq.cluster.groups.group_change import group_of, with_group
from warrenmq.cluster.groups.known_nodes import KnownNodes
from warrenmq.cluster.groups.mirror_placement import AddMirror, DropCopy
from warrenmq.cluster.groups.transitions import Mastership, died, drop
from warrenmq.cluster.groups.wanted_mirrors import BeginGroup, EndGroup, WantedMirrors
from warrenmq.cluster.records import RunningNode
from warrenmq.wire.field_table import Field, encode_table

ONE, TWO, THREE = NAMES


def running(*names: bytes, draining: tuple[bytes, ...] = ()) -> dict[str, RunningNode]:
    """The records of running nodes."""
    return {
        name.decode(): RunningNode(
            f"disk of {name.decode()}", 1, "192.0.2.1", 1, "0", is_draining=name in draining
        )
        for name in names
    }


class Wanted:
    """The first of three nodes, with the policies of its vhost and all three running."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.node = self.cluster.nodes[0]
        self.known = KnownNodes()
        self.known.set_running(running(*NAMES))
        self.mirrors = WantedMirrors(ONE, self.node.memory.broker, self.node.copy, self.known)
        self.placement = Placement(
            ONE, self.node.memory.broker, self.node.copy, lambda: [ONE], CLIENT_LOCAL,
            mirrors=self.known,
        )  # fmt: skip

    def policy(self, **settings: object) -> None:
        """Let a policy with these keys apply to queues called `m...`."""
        definition = {f"ha-{key}": value for key, value in settings.items()}
        value = {"pattern": "^m", "priority": 1, "definition": definition}
        self.node.vhost.policies.put("policy", "p", json.dumps(value))

    def declare(self, *names: bytes, group: Group | None = None, node: bytes = ONE) -> None:
        for name in names:
            put = PutQueue(b"/", 0, name, True, False, b"", node=node)
            self.cluster.model.commit([], [put if group is None else with_group(put, group)])
        self.cluster.settle()

    def steps(self, limit: int = 256) -> list[tuple[bytes, object]]:
        """What the next slice finds."""
        return [(put.name, step) for put, step in self.mirrors.advance(limit)]

    def first(self, name: bytes, arguments: bytes = b"", is_exclusive: bool = False) -> PutQueue:
        """A new queue as it is proposed."""
        put = PutQueue(b"/", 0, name, True, False, arguments)
        put.is_exclusive = is_exclusive
        self.placement.place(put)
        return put


@pytest.fixture
def wanted() -> Wanted:
    return Wanted()


def nodes_of(put: PutQueue) -> set[bytes]:
    group = group_of(put)
    assert group is not None and group.master_node == put.node
    assert {each.node for each in group.sync} == {each.id.node for each in group.living}
    return {each.node for each in group.sync}


# -- steps -----------------------------------------------------------------------------------------


def test_a_queue_gets_a_group_and_mirrors_when_a_policy_wants_them(wanted: Wanted) -> None:
    wanted.declare(b"m", b"other")
    wanted.policy(mode="nodes", params=["n1", "n2"])
    wanted.mirrors.look_again(b"/")
    assert wanted.steps() == [(b"m", BeginGroup())]
    wanted.declare(b"m1", group=new_group(ONE))
    wanted.mirrors.look_at(b"/", b"m1")
    assert wanted.steps() == [(b"m1", AddMirror(TWO))]
    assert not wanted.mirrors.has_more and wanted.steps() == []


def test_a_queue_loses_its_mirrors_and_then_its_group_without_a_policy(wanted: Wanted) -> None:
    wanted.declare(b"m", group=new_group(ONE, TWO))
    wanted.declare(b"m1", group=new_group(ONE))
    wanted.mirrors.look_again()
    assert wanted.steps() == [(b"m", DropCopy(TWO)), (b"m1", EndGroup())]


def test_a_dead_copy_is_given_up_before_the_group_ends(wanted: Wanted) -> None:
    group = new_group(ONE, TWO)
    dead = made(died(group, group.members[1].id))
    wanted.declare(b"m", group=dead)
    wanted.mirrors.look_again()
    assert wanted.steps() == [(b"m", DropCopy(TWO))]
    wanted.declare(b"m1", group=made(drop(dead, Mastership(ONE, 1), TWO)))
    wanted.mirrors.look_again()
    assert wanted.steps()[-1] == (b"m1", EndGroup())


def test_only_the_node_of_the_master_takes_steps(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    wanted.declare(b"m", group=new_group(TWO, ONE))
    wanted.declare(b"m1", node=TWO)
    wanted.mirrors.look_again()
    wanted.mirrors.look_at(b"/", b"m")
    assert wanted.steps() == []


def test_a_group_that_waits_for_its_master_needs_no_step(wanted: Wanted) -> None:
    group = new_group(ONE)
    wanted.declare(b"q", group=made(died(group, group.master)))
    wanted.mirrors.look_again()
    assert wanted.steps() == []


def test_running_nodes_are_what_the_records_say(wanted: Wanted) -> None:
    wanted.policy(mode="exactly", params=2)
    wanted.declare(b"m", group=new_group(ONE, TWO))
    wanted.mirrors.look_again()
    assert wanted.steps() == []
    assert wanted.known.set_running(running(ONE, TWO, THREE, draining=(TWO,)))
    assert not wanted.known.set_running(running(ONE, TWO, THREE, draining=(TWO,)))
    wanted.mirrors.look_again()
    assert wanted.steps() == [(b"m", AddMirror(THREE))]
    assert wanted.known.copy_of(TWO) == Copy(TWO, "disk of n2", "1")
    assert wanted.known.set_running(running(ONE))
    assert wanted.known.copy_of(TWO) is None


def test_many_queues_are_looked_at_in_slices(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    names = [b"m%d" % number for number in range(10)]
    wanted.declare(*names)
    wanted.mirrors.look_again()
    found = [wanted.steps(4) for _ in range(3)]
    assert [len(each) for each in found] == [4, 4, 2]
    assert [name for each in found for name, _step in each] == names


def test_a_queue_that_was_deleted_is_left_out(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    wanted.declare(b"m")
    wanted.mirrors.look_again()
    wanted.node.copy.queues.clear()
    assert wanted.steps() == []


def test_a_group_that_cannot_be_read_stops_no_other_queue(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    wanted.declare(b"m", b"m1")
    wanted.node.copy.queues[b"/", b"m"].group = b"{}"
    wanted.mirrors.look_again()
    assert wanted.steps() == [(b"m1", BeginGroup())]


# -- new queues ------------------------------------------------------------------------------------


def test_a_new_queue_has_its_mirrors_from_the_beginning(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    put = wanted.first(b"m")
    assert put.node == ONE and nodes_of(put) == set(NAMES)
    plain = wanted.first(b"plain")
    assert (plain.node, plain.group) == (ONE, b"")


def test_a_policy_of_other_nodes_takes_the_master_there(wanted: Wanted) -> None:
    wanted.policy(mode="nodes", params=["n2", "n3"])
    put = wanted.first(b"m")
    assert put.node in (TWO, THREE) and nodes_of(put) == {TWO, THREE}


def test_a_node_that_does_not_run_gets_no_first_mirror(wanted: Wanted) -> None:
    wanted.known.set_running(running(ONE, THREE))
    wanted.policy(mode="all")
    assert nodes_of(wanted.first(b"m")) == {ONE, THREE}


def test_an_exclusive_queue_has_no_group(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    assert wanted.first(b"m", is_exclusive=True).group == b""


def test_a_quorum_queue_is_mirrored_whatever_the_policy_of_classic_queues(wanted: Wanted) -> None:
    wanted.policy(mode="nodes", params=["n1"])
    arguments = encode_table({"x-queue-type": Field(ord("S"), b"quorum")})
    assert nodes_of(wanted.first(b"m", arguments)) == set(NAMES)
    group = new_group(ONE, TWO)
    put = with_group(PutQueue(b"/", 0, b"m2", True, False, arguments), group)
    wanted.cluster.model.commit([], [put])
    wanted.cluster.settle()
    assert wanted.mirrors.of_queue(wanted.node.copy.queues[b"/", b"m2"]) == AddMirror(THREE)


def test_a_queue_that_is_placed_again_has_the_group_of_the_newest_policy(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    put = wanted.first(b"m")
    wanted.node.vhost.policies.clear("policy", "p")
    wanted.placement.place(put)
    assert put.group == b""


def test_without_mirrors_no_queue_gets_a_group(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    put = PutQueue(b"/", 0, b"m", True, False, b"")
    wanted.node.shared.place(put, None)
    assert (put.node, put.group) == (ONE, b"")


def test_a_declaration_is_one_decision_with_its_group(wanted: Wanted) -> None:
    wanted.policy(mode="all")
    put = wanted.first(b"m")
    before = wanted.cluster.model.revision
    wanted.node.shared.propose([put], lambda failure, _now_ms: wanted.node.outcomes.append(failure))
    wanted.cluster.settle()
    assert wanted.cluster.model.revision == before + 1 and wanted.node.outcomes == [""]
    for node in wanted.cluster.nodes:
        assert nodes_of(node.copy.queues[b"/", b"m"]) == set(NAMES)
        assert node.vhost.remote_queues[b"m"].home.name == ONE
    assert copy(ONE) in made(group_of(wanted.node.copy.queues[b"/", b"m"])).sync
