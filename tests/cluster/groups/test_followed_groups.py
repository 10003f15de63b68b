"""Mirrored queues as the nodes follow them: who has a copy, and what a name leads to."""

import pytest

from tests.cluster.groups.copies import copy, made, new_group
from tests.cluster.groups.watches import NotedGroups
from tests.cluster.model_cluster import NAMES, Cluster, ModelNode, queue
from warrenmq.broker.definitions.metadata import (
    NO_BIRTH,
    Definitions,
    DeleteQueue,
    DeleteVhost,
    PutBinding,
    PutParameter,
    PutQueue,
    PutVhost,
)
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_change, with_group, without_group
from warrenmq.cluster.groups.transitions import Mastership, drop, join
from warrenmq.cluster.membership.own_definitions import own_definitions
from warrenmq.queues.queue import Queue

ONE, TWO, THREE = NAMES


class MirroredCluster(Cluster):
    """Three nodes; what is told of their groups is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.watches = [NotedGroups(node.name, node.follower) for node in self.nodes]
        for node, watch in zip(self.nodes, self.watches, strict=True):
            node.follower.groups = watch

    def declare(self, name: bytes, group: Group, is_durable: bool = True) -> PutQueue:
        """Let the cluster have a mirrored queue; returns its definition."""
        wanted = PutQueue(b"/", 0, name, is_durable, False, b"")
        self.model.commit([], [with_group(wanted, group)])
        self.settle()
        return self.put(name)

    def change(self, name: bytes, group: Group) -> None:
        """Let a queue have another group."""
        assert self.model.commit(*group_change(self.put(name), group))
        self.settle()

    def put(self, name: bytes) -> PutQueue:
        """The newest definition of a queue."""
        return next(each for each in self.model.load().queues if each.name == name)


def copy_of(node: ModelNode, name: bytes) -> Queue | None:
    """The copy that a node has of a queue, hidden or not."""
    found = [each for each in node.vhost.queues_by_id.values() if each.name == name]
    assert len(found) < 2
    return found[0] if found else None


def home_of(node: ModelNode, name: bytes) -> bytes:
    """The node to which the name of a mirrored queue leads."""
    assert name not in node.vhost.queues
    return node.vhost.remote_queues[name].home.name


@pytest.fixture
def cluster() -> MirroredCluster:
    return MirroredCluster()


def test_a_mirrored_queue_leads_to_its_master_and_members_have_hidden_copies(
    cluster: MirroredCluster,
) -> None:
    put = cluster.declare(b"q", new_group(ONE, TWO))
    for node in cluster.nodes:
        assert home_of(node, b"q") == ONE
    copies = [copy_of(node, b"q") for node in cluster.nodes]
    assert [each is not None and each.is_hidden for each in copies] == [True, True, False]
    assert all(each.definition.birth == put.birth for each in copies if each is not None)
    assert cluster.watches[2].told == [("group", b"q")]


def test_a_change_of_the_group_changes_no_name_and_no_binding(cluster: MirroredCluster) -> None:
    group = new_group(ONE, TWO)
    put = cluster.declare(b"q", group)
    cluster.nodes[0].propose(PutBinding(b"/", b"amq.direct", b"q", True, b"k", b""))
    cluster.settle()
    topologies = [node.topology() for node in cluster.nodes]
    cluster.change(b"q", made(join(group, copy(THREE))))
    assert [node.topology() for node in cluster.nodes] == topologies
    assert cluster.watches[0].told == [("group", b"q")] * 2
    assert copy_of(cluster.nodes[2], b"q") is not None
    for node in cluster.nodes:
        known = node.copy.queues[b"/", b"q"]
        assert known.birth == put.birth and known.revision == cluster.put(b"q").revision


def test_a_copy_is_made_once_and_discarded(cluster: MirroredCluster) -> None:
    group = new_group(ONE, TWO)
    cluster.declare(b"q", group)
    node = cluster.nodes[1]
    first = copy_of(node, b"q")
    assert first is not None
    put = node.copy.queues[b"/", b"q"]
    assert node.follower.own_copy(node.vhost, put) is first
    node.follower.discard_copy(node.vhost, first)
    assert copy_of(node, b"q") is None and first.is_deleted
    again = node.follower.own_copy(node.vhost, put)
    assert again is not first and again.id > first.id


def test_the_row_of_a_copy_defers_the_decision(cluster: MirroredCluster) -> None:
    """No node counts a mirrored queue as followed before a crash would leave its copy there."""
    node = cluster.nodes[1]
    node.memory.holds_commits = True
    cluster.declare(b"q", new_group(ONE, TWO))
    assert cluster.nodes[0].follower.followed() == cluster.model.revision
    assert node.follower.followed() == cluster.model.revision - 1
    node.memory.holds_commits = False
    cluster.settle()
    assert node.follower.followed() == cluster.model.revision


def test_a_transient_copy_has_no_row(cluster: MirroredCluster) -> None:
    cluster.nodes[1].memory.holds_commits = True
    cluster.declare(b"q", new_group(ONE, TWO), is_durable=False)
    assert cluster.nodes[1].follower.followed() == cluster.model.revision
    assert copy_of(cluster.nodes[1], b"q") is not None


def test_a_deferral_delays_the_decision_that_is_put_in_force(cluster: MirroredCluster) -> None:
    follower = cluster.nodes[0].follower
    followed: list[str] = []
    release = follower.defer()
    cluster.declare(b"q", new_group(TWO))
    revision = cluster.model.revision
    follower.when_followed(revision, lambda: followed.append("q"))
    assert follower.revision == revision > follower.followed() and followed == []
    release()
    assert follower.followed() == revision and followed == ["q"]


def test_a_deleted_queue_takes_its_copies_along(cluster: MirroredCluster) -> None:
    cluster.declare(b"q", new_group(ONE, TWO))
    cluster.model.commit([], [DeleteQueue(b"/", 0, b"q")])
    cluster.settle()
    for node, watch in zip(cluster.nodes, cluster.watches, strict=True):
        assert node.vhost.taker(b"q") is None and copy_of(node, b"q") is None
        assert watch.told == [("group", b"q"), ("removed", b"q")]
    cluster.declare(b"q", new_group(TWO))
    assert copy_of(cluster.nodes[0], b"q") is None
    assert copy_of(cluster.nodes[1], b"q") is not None


def test_the_next_life_of_a_queue_has_other_copies(cluster: MirroredCluster) -> None:
    cluster.declare(b"q", new_group(ONE, TWO))
    first = copy_of(cluster.nodes[0], b"q")
    assert first is not None
    cluster.model.commit([], [DeleteQueue(b"/", 0, b"q")])
    put = cluster.declare(b"q", new_group(ONE, TWO))
    again = copy_of(cluster.nodes[0], b"q")
    assert again is not None and again is not first and again.definition.birth == put.birth


def test_a_queue_gets_a_group_and_loses_it(cluster: MirroredCluster) -> None:
    """The queue serves its clients all the time: its master is the queue that is there."""
    one, two, _three = cluster.nodes
    one.propose(queue(b"q"))
    cluster.settle()
    served = one.vhost.queues[b"q"]
    group = made(join(new_group(ONE), copy(TWO)))
    cluster.change(b"q", group)
    assert one.vhost.queues[b"q"] is served and not served.is_hidden
    assert one.follower.own_copy(one.vhost, one.copy.queues[b"/", b"q"]) is served
    assert home_of(two, b"q") == ONE and copy_of(two, b"q") is not None
    alone = made(drop(group, Mastership(ONE, 1), TWO))
    cluster.change(b"q", alone)
    cluster.model.commit([], [without_group(cluster.put(b"q"))])
    cluster.settle()
    assert cluster.watches[1].told == [("group", b"q")] * 3
    assert one.vhost.queues[b"q"] is served and one.copy.queues[b"/", b"q"].group == b""


def test_a_queue_that_has_served_clients_is_the_copy_when_it_is_hidden(
    cluster: MirroredCluster,
) -> None:
    one = cluster.nodes[0]
    one.propose(queue(b"q"))
    cluster.settle()
    served = one.vhost.queues[b"q"]
    cluster.change(b"q", made(join(new_group(ONE), copy(TWO))))
    other = one.vhost.new_remote_queue(served.definition, TWO, 2)
    one.vhost.replace_taker(served, other, cluster.clock.now_ms())
    assert one.follower.own_copy(one.vhost, one.copy.queues[b"/", b"q"]) is served
    assert served.is_hidden and copy_of(one, b"q") is served


def test_a_node_that_has_missed_a_change_of_a_group_is_told(cluster: MirroredCluster) -> None:
    group = new_group(ONE, TWO)
    cluster.declare(b"q", group)
    node = cluster.nodes[2]
    cluster.model.commit(*group_change(cluster.put(b"q"), made(join(group, copy(THREE)))))
    node.store.told_revision = cluster.model.revision
    node.follower.catch_up(cluster.model.load(), cluster.model.revision)
    cluster.settle()
    assert copy_of(node, b"q") is not None
    assert node.copy.queues[b"/", b"q"].revision == cluster.put(b"q").revision


def test_a_deleted_vhost_takes_mirrored_queues_along(cluster: MirroredCluster) -> None:
    cluster.declare(b"q", new_group(ONE, TWO))
    cluster.model.commit([], [DeleteVhost(b"/")])
    cluster.settle()
    assert [watch.told[-1] for watch in cluster.watches] == [("removed", b"q")] * 3
    assert cluster.nodes[0].copy.queues == {}


def test_a_watch_hears_of_policies_only(cluster: MirroredCluster) -> None:
    for component in ("policy", "operator_policy", "vhost-limits"):
        cluster.model.commit([], [PutParameter(b"/", component, "p", "{}")])
    cluster.model.commit([], [PutParameter(b"", "", "global", "1")])
    cluster.settle()
    assert cluster.watches[0].told == [("policies", b"/")] * 2


# -- starts ----------------------------------------------------------------------------------------


def rows_of(*queues: PutQueue) -> Definitions:
    rows = Definitions()
    rows.vhosts = [PutVhost(b"/", 1)]
    rows.queues = list(queues)
    rows.next_queue_id = 9
    return rows


def shared_of(*queues: PutQueue) -> Definitions:
    shared = Definitions()
    shared.vhosts = [PutVhost(b"/", 0)]
    shared.queues = list(queues)
    return shared


def mirrored(group: Group, is_durable: bool = True) -> PutQueue:
    return with_group(PutQueue(b"/", 0, b"q", is_durable, False, b"", birth=7), group)


ROW = PutQueue(b"/", 5, b"q", True, False, b"", birth=7)
GROUP = new_group(ONE, TWO)


@pytest.mark.parametrize("node", [ONE, TWO])
def test_a_start_keeps_the_copy_of_a_member(node: bytes) -> None:
    """Whoever is master: the copies of both open hidden."""
    opened, changes = own_definitions(rows_of(ROW), shared_of(mirrored(GROUP)), node)
    [own] = opened.queues
    assert (own.id, own.birth, own.group) == (5, 7, mirrored(GROUP).group) and changes == []
    cluster = Cluster()
    vhost = cluster.nodes[0].vhost
    restored = vhost.restore_queue(own, cluster.clock.now_ms())
    assert restored.is_hidden and vhost.taker(b"q") is None and vhost.queues_by_id[5] is restored


def test_a_start_gives_up_a_copy_that_its_group_has_given_up() -> None:
    dropped = made(drop(GROUP, Mastership(ONE, 1), TWO))
    opened, changes = own_definitions(rows_of(ROW), shared_of(mirrored(dropped)), TWO)
    assert opened.queues == [] and [type(each) for each in changes] == [DeleteQueue]
    kept, changes = own_definitions(rows_of(ROW), shared_of(mirrored(dropped)), ONE)
    assert len(kept.queues) == 1 and changes == []


def test_a_start_gives_up_a_copy_of_another_life() -> None:
    """The copy of this life begins when the node joins the group."""
    row = PutQueue(b"/", 5, b"q", True, False, b"", birth=6)
    opened, changes = own_definitions(rows_of(row), shared_of(mirrored(GROUP)), TWO)
    assert opened.queues == [] and [type(each) for each in changes] == [DeleteQueue]
    opened, changes = own_definitions(rows_of(), shared_of(mirrored(GROUP)), TWO)
    assert opened.queues == [] and changes == []


@pytest.mark.parametrize("birth", [7, NO_BIRTH])
def test_a_start_keeps_a_copy_whose_group_cannot_be_read(birth: int) -> None:
    row = PutQueue(b"/", 5, b"q", True, False, b"arguments", birth=birth)
    damaged = PutQueue(b"/", 0, b"q", True, False, b"", birth=7, group=b"unreadable")
    opened, changes = own_definitions(rows_of(row), shared_of(damaged), TWO)
    [own] = opened.queues
    assert (own.id, own.arguments, own.group) == (5, b"arguments", b"unreadable")
    assert not any(isinstance(each, DeleteQueue) for each in changes)
    opened, changes = own_definitions(rows_of(), shared_of(damaged), TWO)
    assert opened.queues == [] and changes == []


def test_a_start_opens_no_transient_copy() -> None:
    opened, _changes = own_definitions(rows_of(), shared_of(mirrored(GROUP, False)), ONE)
    assert opened.queues == []


def test_a_start_finds_its_copies_and_tells_of_all_groups() -> None:
    cluster = MirroredCluster()
    put = cluster.declare(b"q", GROUP)
    node = ModelNode(TWO, cluster.model, cluster.clock)
    watch = NotedGroups(TWO, node.follower)
    node.follower.groups = watch
    shared = cluster.model.load()
    shared.bindings = [
        PutBinding(b"/", b"amq.direct", b"q", True, b"k", b"", destination_birth=put.birth)
    ]
    opened, _changes = own_definitions(
        rows_of(PutQueue(b"/", 5, b"q", True, False, b"", birth=put.birth)), shared, TWO
    )
    restored = node.vhost.restore_queue(opened.queues[0], cluster.clock.now_ms())
    node.follower.load(shared, cluster.model.revision)
    assert watch.told == [("group", b"q")]
    assert copy_of(node, b"q") is restored and home_of(node, b"q") == ONE
    # The binding waits for whoever will be master.
    assert node.topology()[2] == {(b"amq.direct", b"q", True, b"k")}


class FailingGroups(NotedGroups):
    """Cannot put the queue `q` in force."""

    def on_group(self, vhost: Vhost, put: PutQueue) -> None:
        assert put.name != b"q"
        super().on_group(vhost, put)


def test_a_start_sets_a_queue_aside_whose_group_fails(caplog: pytest.LogCaptureFixture) -> None:
    cluster = MirroredCluster()
    cluster.declare(b"q", GROUP)
    cluster.declare(b"r", GROUP)
    node = ModelNode(TWO, cluster.model, cluster.clock)
    watch = FailingGroups(TWO, node.follower)
    node.follower.groups = watch
    with pytest.raises(AssertionError):
        node.follower.load(cluster.model.load(), cluster.model.revision)
    node.follower.sets_aside = True
    node.follower.load(cluster.model.load(), cluster.model.revision)
    assert watch.told == [("aside", b"q"), ("group", b"r")]
    assert "queue 'q' is set aside until the next start: AssertionError at" in caplog.text
