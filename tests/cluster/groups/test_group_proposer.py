"""Proposals of groups: races, lost answers, a lost etcd, many queues in one transaction."""

from collections.abc import Callable

import pytest

from tests.cluster.groups.copies import copy, made, new_group
from tests.cluster.model_cluster import NAMES, Cluster
from warrenmq.broker.definitions.metadata import DeleteQueue, PutQueue
from warrenmq.cluster.decision_store import DECIDE_MS, LOOK_AGAIN_MS, RETRY_MS
from warrenmq.cluster.groups.group import Group
from warrenmq.cluster.groups.group_change import group_change, group_of, with_group
from warrenmq.cluster.groups.group_proposer import (
    BYTES_MAX,
    DECIDED,
    LATER_PAUSES,
    QUEUES_MAX,
    REFUSED,
    UNANSWERED,
    GroupProposer,
)
from warrenmq.cluster.groups.proposal_queue import LATER, URGENT, USUAL
from warrenmq.cluster.groups.transitions import Mastership, died, drop, join, out_of_sync
from warrenmq.cluster.metadata.conditions import LastWritten

ONE, TWO, THREE = NAMES
Change = Callable[[Group], Group | None]


def joined(group: Group) -> Group | None:
    return join(group, copy(THREE))


def without_two(group: Group) -> Group | None:
    return out_of_sync(group, Mastership(ONE, 1), copy(TWO))


class Proposers(Cluster):
    """Three nodes with a proposer each; a queue `q` has its master on the first."""

    def __init__(self) -> None:
        self.proposers: list[GroupProposer] = []
        super().__init__()
        self.wakes = 0
        self.proposers = [
            GroupProposer(
                node.store, node.copy, self.clock, node.follower.when_followed, self._wake
            )
            for node in self.nodes
        ]
        self.outcomes: list[int] = []
        self.declare(b"q")

    def _wake(self) -> None:
        self.wakes += 1

    def declare(self, *names: bytes, arguments: bytes = b"") -> None:
        group = new_group(ONE, TWO)
        for name in names:
            put = with_group(PutQueue(b"/", 0, name, True, False, arguments), group)
            self.model.commit([], [put])
        self.settle()

    def put(self, name: bytes = b"q") -> PutQueue:
        return next(each for each in self.model.load().queues if each.name == name)

    def group(self, name: bytes = b"q") -> Group:
        group = group_of(self.put(name))
        assert group is not None
        return group

    def propose(self, node: int, change: Change, name: bytes = b"q", rank: int = USUAL) -> None:
        birth = self.put(name).birth
        self.proposers[node].propose(b"/", name, birth, change, self.outcomes.append, rank=rank)

    def end_turns(self) -> None:
        for proposer in self.proposers:
            proposer.end_turn()

    def settle(self) -> None:
        """Let all proposals come to their end."""
        for _ in range(100):
            self.end_turns()
            super().settle()
            self.clock.advance(RETRY_MS)
            self.end_turns()
            if not any(node.store.request_count for node in self.nodes):
                return
        raise AssertionError("the proposals do not come to an end")


@pytest.fixture
def cluster() -> Proposers:
    return Proposers()


def test_a_proposal_changes_the_group_on_all_nodes(cluster: Proposers) -> None:
    cluster.propose(0, joined)
    assert cluster.wakes == 1 and cluster.nodes[0].store.request_count == 0
    assert cluster.proposers[0].is_busy(b"/", b"q", cluster.put().birth)
    cluster.settle()
    assert cluster.outcomes == [DECIDED]
    assert cluster.group().member_of(THREE) is not None
    assert not cluster.proposers[0].is_busy(b"/", b"q", cluster.put().birth)
    for node in cluster.nodes:
        assert node.copy.queues[b"/", b"q"].revision == cluster.put().revision


def test_a_proposal_is_decided_when_its_node_has_followed_it(cluster: Proposers) -> None:
    cluster.propose(0, joined)
    cluster.end_turns()
    cluster.nodes[0].store.answer()
    assert cluster.outcomes == []
    cluster.nodes[0].store.tell()
    assert cluster.outcomes == [DECIDED]


def test_of_two_proposals_at_once_both_are_made_one_after_the_other(cluster: Proposers) -> None:
    cluster.propose(0, without_two)
    cluster.propose(2, joined)
    cluster.end_turns()
    for node in cluster.nodes:
        while node.store.request_count:
            node.store.answer()
    cluster.settle()
    group = cluster.group()
    assert cluster.outcomes == [DECIDED, DECIDED] and group.version == 4
    assert group.member_of(THREE) is not None and group.sync == (copy(ONE),)


def test_a_proposal_that_the_newer_group_does_not_allow_is_refused(cluster: Proposers) -> None:
    """Its maker obeys what was decided instead."""
    cluster.propose(0, lambda group: died(group, made(group).members[1].id))
    cluster.propose(2, joined)
    other: list[int] = []
    birth = cluster.put().birth
    cluster.proposers[1].propose(b"/", b"q", birth, without_two, other.append)
    cluster.model.commit(
        *group_change(cluster.put(), made(drop(cluster.group(), Mastership(ONE, 1), TWO)))
    )
    cluster.settle()
    assert cluster.outcomes == [DECIDED, REFUSED] or cluster.outcomes == [REFUSED, DECIDED]
    assert other == [REFUSED]


def test_proposals_of_one_queue_are_made_in_order(cluster: Proposers) -> None:
    seen: list[int] = []

    def noting(change: Change) -> Change:
        def change_and_note(group: Group) -> Group | None:
            seen.append(group.version)
            return change(group)

        return change_and_note

    cluster.propose(0, noting(without_two))
    cluster.propose(0, noting(joined))
    cluster.end_turns()
    assert cluster.nodes[0].store.request_count == 1
    cluster.settle()
    assert seen == [2, 3] and cluster.outcomes == [DECIDED, DECIDED]


def test_a_proposal_for_another_life_or_no_queue_is_refused(cluster: Proposers) -> None:
    proposer = cluster.proposers[0]
    proposer.propose(b"/", b"q", cluster.put().birth + 1, joined, cluster.outcomes.append)
    proposer.propose(b"/", b"r", 1, joined, cluster.outcomes.append)
    cluster.end_turns()
    assert cluster.outcomes == [REFUSED, REFUSED]


def test_a_queue_that_is_deleted_meanwhile_ends_its_proposals(cluster: Proposers) -> None:
    cluster.propose(0, joined)
    cluster.propose(0, without_two)
    cluster.model.commit([], [DeleteQueue(b"/", 0, b"q")])
    cluster.settle()
    assert cluster.outcomes == [REFUSED, REFUSED] and cluster.model.load().queues == []


def test_a_lost_answer_leaves_the_change_found(cluster: Proposers) -> None:
    store = cluster.nodes[0].store
    store.loses_answers = True
    cluster.propose(0, joined)
    cluster.end_turns()
    store.answer()
    store.loses_answers = False
    assert cluster.outcomes == []
    cluster.settle()
    assert cluster.outcomes == [DECIDED] and cluster.group().version == 3


def test_a_lost_answer_that_is_followed_late_leaves_the_change_found(cluster: Proposers) -> None:
    """The repetition collides with the first attempt."""
    store = cluster.nodes[0].store
    store.loses_answers = True
    cluster.propose(0, joined)
    cluster.end_turns()
    store.answer()
    store.loses_answers = False
    cluster.clock.advance(RETRY_MS)
    cluster.end_turns()
    store.answer()
    cluster.settle()
    assert cluster.outcomes == [DECIDED] and cluster.group().version == 3


def test_without_etcd_a_proposal_ends_unanswered(cluster: Proposers) -> None:
    store = cluster.nodes[0].store
    store.is_reachable = False
    cluster.propose(0, joined)
    for _ in range(DECIDE_MS // RETRY_MS + 2):
        cluster.end_turns()
        while store.request_count:
            store.answer()
        cluster.clock.advance(RETRY_MS)
    assert cluster.outcomes == [UNANSWERED]
    store.is_reachable = True
    cluster.settle()
    assert cluster.group().version == 2


def test_queues_of_one_turn_share_transactions(cluster: Proposers) -> None:
    names = [b"q%d" % number for number in range(QUEUES_MAX + 5)]
    cluster.declare(*names)
    for name in names:
        cluster.propose(0, joined, name)
    before = cluster.model.revision
    cluster.end_turns()
    assert cluster.nodes[0].store.request_count == 2
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * len(names)
    assert cluster.model.revision == before + 2


def test_large_definitions_have_transactions_of_their_own(cluster: Proposers) -> None:
    cluster.declare(b"a", b"b", b"c", arguments=bytes(BYTES_MAX // 3))
    for name in (b"a", b"b", b"c"):
        cluster.propose(0, joined, name)
    cluster.end_turns()
    assert cluster.nodes[0].store.request_count == 2
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * 3


def test_one_queue_that_has_changed_does_not_stop_the_others(cluster: Proposers) -> None:
    """The transaction is cut until the others pass; the changed one follows when that is known."""
    names = [b"q%d" % number for number in range(10)]
    cluster.declare(*names)
    for name in names:
        cluster.propose(0, joined, name)
    changed = made(out_of_sync(cluster.group(b"q3"), Mastership(ONE, 1), copy(TWO)))
    cluster.model.commit(*group_change(cluster.put(b"q3"), changed))
    store = cluster.nodes[0].store
    for _ in range(10):
        cluster.end_turns()
        while store.request_count:
            store.answer()
        cluster.clock.advance(LOOK_AGAIN_MS)
    missing = [name for name in names if cluster.group(name).member_of(THREE) is None]
    assert missing == [b"q3"]
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * len(names)
    assert cluster.group(b"q3").sync == (copy(ONE),)


def test_few_transactions_are_under_way_at_once(cluster: Proposers) -> None:
    """A declaration does not wait behind thousands of groups."""
    names = [b"q%d" % number for number in range(6)]
    cluster.declare(*names, arguments=bytes(BYTES_MAX))
    for name in names:
        cluster.propose(0, joined, name)
    cluster.end_turns()
    assert cluster.nodes[0].store.request_count == 2
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * len(names)


def test_urgent_proposals_do_not_wait_for_others(cluster: Proposers) -> None:
    names = [b"q%d" % number for number in range(9)]
    cluster.declare(*names, arguments=bytes(BYTES_MAX))
    for name in names[:6]:
        cluster.propose(0, joined, name)
    cluster.end_turns()
    for name in names[6:]:
        cluster.propose(0, joined, name, URGENT)
    cluster.end_turns()
    store = cluster.nodes[0].store
    assert store.request_count == 4
    for _ in range(4):
        store.answer()
    while store.tell():
        pass
    found = [name for name in names if cluster.group(name).member_of(THREE) is not None]
    assert found == [b"q0", b"q1", b"q6", b"q7"]
    cluster.end_turns()
    assert store.request_count == 2, "the last urgent one and another"
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * len(names)


def test_what_may_come_later_waits_for_all_others_and_pauses(cluster: Proposers) -> None:
    names = [b"q%d" % number for number in range(3 * QUEUES_MAX)]
    cluster.declare(*names)
    for name in names[:-1]:
        cluster.propose(0, joined, name, LATER)
    cluster.propose(0, joined, names[-1])
    proposer, store = cluster.proposers[0], cluster.nodes[0].store
    assert proposer.has_room, "they keep no others waiting"
    cluster.end_turns()
    assert store.request_count == 1
    store.answer()
    assert cluster.group(names[-1]).member_of(THREE) is not None
    cluster.end_turns()
    cluster.end_turns()
    assert store.request_count == 1, "one transaction at a time"
    took_ms = 10
    cluster.clock.advance(took_ms)
    store.answer()
    cluster.clock.advance(LATER_PAUSES * took_ms - 1)
    cluster.end_turns()
    assert store.request_count == 0
    wakes = cluster.wakes
    cluster.clock.advance(1)
    assert cluster.wakes > wakes
    cluster.end_turns()
    assert store.request_count == 1
    cluster.settle()
    assert cluster.outcomes == [DECIDED] * len(names)


def test_a_node_that_stood_still_lets_what_may_come_later_wait_no_longer_for_that(
    cluster: Proposers,
) -> None:
    cluster.declare(b"r")
    store = cluster.nodes[0].store
    cluster.propose(0, joined, b"q", LATER)
    cluster.end_turns()
    hour_ms = 3_600_000
    cluster.clock.advance(hour_ms)
    store.answer()
    cluster.propose(0, joined, b"r", LATER)
    cluster.clock.advance(LATER_PAUSES * DECIDE_MS)
    cluster.end_turns()
    assert store.request_count == 1
    cluster.settle()
    assert cluster.outcomes == [DECIDED, DECIDED]


def test_what_may_come_later_is_hurried_when_somebody_waits_for_it(cluster: Proposers) -> None:
    cluster.declare(b"r")
    proposer, store = cluster.proposers[0], cluster.nodes[0].store
    cluster.propose(0, joined, b"q", LATER)
    cluster.end_turns()
    cluster.clock.advance(10)
    store.answer()
    cluster.propose(0, joined, b"r", LATER)
    cluster.end_turns()
    assert store.request_count == 0
    wakes = cluster.wakes
    proposer.hurry(b"/", b"r", cluster.put(b"r").birth)
    assert cluster.wakes == wakes + 1
    cluster.end_turns()
    assert store.request_count == 1
    cluster.settle()
    assert cluster.outcomes == [DECIDED, DECIDED]


def test_a_proposer_has_room_while_less_than_a_transaction_waits(cluster: Proposers) -> None:
    names = [b"q%d" % number for number in range(5 * QUEUES_MAX)]
    cluster.declare(*names)
    rooms: list[bool] = []
    for name in names:
        rooms.append(cluster.proposers[0].has_room)
        cluster.propose(0, joined, name)
    assert rooms == [True] * QUEUES_MAX + [False] * 4 * QUEUES_MAX
    # Two transactions are under way now, and three wait.
    cluster.end_turns()
    assert not cluster.proposers[0].has_room
    cluster.settle()
    assert [each.has_room for each in cluster.proposers] == [True] * 3


def test_a_fence_refuses_a_change_while_a_node_runs(cluster: Proposers) -> None:
    cluster.model.put_node(TWO)
    cluster.settle()
    for is_running in (True, False):
        cluster.proposers[0].propose(
            b"/", b"q", cluster.put().birth, joined, cluster.outcomes.append, lambda group: {TWO}
        )
        cluster.settle()
        cluster.model.drop_node(TWO)
        cluster.settle()
        assert (cluster.group().member_of(THREE) is None) == is_running
    assert cluster.outcomes == [REFUSED, DECIDED]


def test_a_queue_gets_its_first_group_once(cluster: Proposers) -> None:
    cluster.model.commit([], [PutQueue(b"/", 0, b"plain", True, False, b"", node=ONE)])
    cluster.settle()
    birth = cluster.put(b"plain").birth
    for _ in range(2):
        cluster.proposers[0].propose_first(
            b"/", b"plain", birth, lambda: new_group(ONE), cluster.outcomes.append
        )
    cluster.propose(1, joined, b"plain")
    cluster.settle()
    assert sorted(cluster.outcomes) == [DECIDED, REFUSED, REFUSED]
    assert cluster.group(b"plain") == new_group(ONE)


def test_a_group_ends_when_its_master_is_alone(cluster: Proposers) -> None:
    proposer, birth = cluster.proposers[0], cluster.put().birth
    proposer.propose_end(b"/", b"q", birth, cluster.outcomes.append)
    cluster.propose(0, lambda group: drop(group, Mastership(ONE, 1), TWO))
    proposer.propose_end(b"/", b"q", birth, cluster.outcomes.append)
    cluster.settle()
    put = cluster.put()
    assert cluster.outcomes == [REFUSED, DECIDED, DECIDED]
    assert (put.group, put.node, put.birth) == (b"", ONE, birth)


def test_an_older_record_of_a_group_is_not_written_over_a_newer_one(cluster: Proposers) -> None:
    put = cluster.put()
    conditions, changes = group_change(put, made(joined(cluster.group())))
    assert conditions == [LastWritten(put, put.revision)]
    assert cluster.model.commit(conditions, changes)
    assert not cluster.model.commit(conditions, changes)
