"""Each change of a group: what it does, and when it is refused."""

import pytest

from tests.cluster.groups.copies import copy, made, master_of, member, new_group, nodes_of, ring
from warrenmq.cluster.groups.group import EpochStart, Group
from warrenmq.cluster.groups.succession import (
    fenced_nodes,
    is_only_complete_copy,
    successor,
    unsynced_successor,
)
from warrenmq.cluster.groups.transitions import (
    DIED,
    EPOCHS_KEPT,
    FORGOTTEN,
    PROMOTED,
    RESTARTED,
    TRANSFERRED,
    UNSYNCED,
    Mastership,
    bury,
    chained,
    create,
    died,
    drop,
    erase,
    forget_node,
    in_sync,
    join,
    out_of_sync,
    promote,
    promote_unsafe,
    rejoin,
    transfer,
)
from warrenmq.cluster.ring.view import MemberId

ALL = (b"a", b"b", b"c", b"d")


def after_death(group: Group, node: bytes) -> Group:
    return made(died(group, member(group, node).id))


def promoted(group: Group, node: bytes, first_seq: int = 100) -> Group:
    return made(promote(group, member(group, node).id, first_seq, ALL))


# -- members ---------------------------------------------------------------------------------------


def test_a_declaration_makes_all_copies_in_sync() -> None:
    group = create(copy(b"a"), [copy(b"b"), copy(b"c")], first_seq=7)
    assert ring(group) == b"ABC"
    assert (group.master_node, group.epoch, group.version) == (b"a", 1, 3)
    assert nodes_of(group.synced_mirrors) == [b"b", b"c"]
    assert group.prev == (EpochStart(1, 7),)


def test_a_queue_that_was_mirrored_before_begins_above_its_last_epoch() -> None:
    group = made(create(copy(b"a"), first_seq=9, epoch=5))
    assert (group.epoch, group.version, group.prev) == (5, 5, (EpochStart(5, 9),))
    joined = made(join(group, copy(b"b")))
    assert joined.version == 6 and ring(joined) == b"AB"


def test_a_newcomer_stands_right_of_the_chosen_member() -> None:
    group = new_group(b"a", b"b", b"c")
    joined = made(join(group, copy(b"d"), member(group, b"a").id))
    assert ring(joined) == b"ADBC"
    assert joined.version == group.version + 1
    assert member(joined, b"d").id == (joined.version, b"d")
    assert nodes_of(joined.mirrors) == [b"b", b"c", b"d"]
    assert nodes_of(joined.synced_mirrors) == [b"b", b"c"]


def test_a_newcomer_takes_no_alias_from_its_right_neighbour() -> None:
    group = after_death(new_group(b"a", b"b", b"c"), b"b")
    assert ring(made(join(group, copy(b"d")))) == b"ADbC"
    # The last member: its right neighbour is the first one.
    group = after_death(after_death(new_group(b"a", b"b", b"c"), b"a"), b"c")
    assert ring(made(join(group, copy(b"d")))) == b"aBDc"


def test_a_newcomer_of_a_group_without_living_members_is_alone() -> None:
    group = after_death(new_group(b"a"), b"a")
    joined = made(join(group, copy(b"b")))
    assert ring(joined) == b"aB"
    assert joined.is_down


@pytest.mark.parametrize("node", [b"a", b"b"])
def test_a_node_joins_once(node: bytes) -> None:
    assert join(new_group(b"a", b"b"), copy(node, "2", "new disk")) is None


def test_nobody_joins_at_a_dead_member() -> None:
    group = after_death(new_group(b"a", b"b"), b"b")
    assert join(group, copy(b"d"), MemberId(2, b"b")) is None
    assert join(group, copy(b"d"), MemberId(9, b"b")) is None


def test_a_dead_mirror_stays_in_sync_until_the_master_says_otherwise() -> None:
    group = after_death(new_group(b"a", b"b"), b"b")
    assert ring(group) == b"Ab"
    assert group.slaves == ()
    assert copy(b"b") in group.sync
    group = made(out_of_sync(group, master_of(group), copy(b"b")))
    assert group.sync == (copy(b"a"),)
    assert group.recoverable == (b"a", b"b")


def test_a_member_dies_once() -> None:
    group = after_death(new_group(b"a", b"b"), b"b")
    assert died(group, MemberId(2, b"b")) is None
    assert died(group, MemberId(9, b"b")) is None


def test_the_death_of_the_master_takes_the_group_down() -> None:
    group = after_death(new_group(b"a", b"b"), b"a")
    assert (group.is_down, group.master_node, group.epoch) == (True, b"a", 1)
    assert group.reason == DIED


def test_only_the_dead_are_erased() -> None:
    group = new_group(b"a", b"b")
    assert erase(group, MemberId(2, b"b")) is None
    assert erase(group, MemberId(9, b"b")) is None
    group = made(erase(after_death(group, b"b"), MemberId(2, b"b")))
    assert ring(group) == b"A"
    assert copy(b"b") in group.sync


def test_a_dead_master_is_erased_before_its_mirror_is_promoted() -> None:
    """The ring tells of a death when it has erased the member, so after all of its messages."""
    group = made(erase(after_death(new_group(b"a", b"b"), b"a"), MemberId(1, b"a")))
    assert (group.is_down, group.master_node) == (True, b"a")
    assert promoted(group, b"b").master_node == b"b"


def test_a_dropped_copy_is_no_member_and_not_recoverable() -> None:
    group = new_group(b"a", b"b")
    group = made(drop(group, master_of(group), b"b"))
    assert ring(group) == b"Ab"
    assert (group.sync, group.recoverable) == ((copy(b"a"),), (b"a",))


def test_the_copy_of_a_node_that_is_down_can_be_dropped() -> None:
    group = after_death(new_group(b"a", b"b"), b"b")
    group = made(drop(group, master_of(group), b"b"))
    assert (group.sync, group.recoverable) == ((copy(b"a"),), (b"a",))
    assert rejoin(group, copy(b"b", "2")) is None


def test_the_masters_copy_is_not_dropped() -> None:
    group = new_group(b"a", b"b")
    assert drop(group, master_of(group), b"a") is None
    assert drop(group, master_of(group), b"d") is None


def test_a_restarted_mirror_is_a_new_member() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"b", "2")))
    assert ring(group) == b"ABb"
    assert member(group, b"b").copy == copy(b"b", "2")
    assert not group.is_down


def test_a_restarted_master_takes_its_group_down() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"a", "2")))
    assert (group.is_down, group.reason) == (True, RESTARTED)
    assert nodes_of(group.mirrors) == [b"b", b"a"]


def test_who_has_not_restarted_does_not_rejoin() -> None:
    assert rejoin(new_group(b"a", b"b"), copy(b"b")) is None


def test_a_node_that_was_cut_off_rejoins_in_the_same_run() -> None:
    group = made(rejoin(after_death(new_group(b"a", b"b"), b"b"), copy(b"b")))
    assert nodes_of(group.synced_mirrors) == [b"b"]


def test_an_emptied_directory_is_not_in_sync() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"b", "2", "new disk")))
    assert not group.is_synced(b"b", "new disk")
    group = after_death(group, b"a")
    assert successor(group, ALL) is None


# -- copies in sync --------------------------------------------------------------------------------


def test_the_master_takes_a_mirror_into_the_set() -> None:
    group = made(join(new_group(b"a"), copy(b"b")))
    group = made(in_sync(group, master_of(group), copy(b"b")))
    assert nodes_of(group.synced_mirrors) == [b"b"]
    assert in_sync(group, master_of(group), copy(b"b")) is None


def test_a_restarted_mirror_replaces_its_earlier_copy() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"b", "2")))
    group = made(in_sync(group, master_of(group), copy(b"b", "2")))
    assert group.sync == (copy(b"a"), copy(b"b", "2"))


def test_only_a_living_mirror_becomes_in_sync() -> None:
    group = made(join(new_group(b"a"), copy(b"b")))
    assert in_sync(group, master_of(group), copy(b"b", "2")) is None
    assert in_sync(group, master_of(group), copy(b"c")) is None
    group = after_death(group, b"b")
    assert in_sync(group, master_of(group), copy(b"b")) is None


def test_a_slow_mirror_stays_a_member() -> None:
    group = new_group(b"a", b"b")
    group = made(out_of_sync(group, master_of(group), copy(b"b")))
    assert (nodes_of(group.mirrors), group.synced_mirrors) == ([b"b"], ())
    assert out_of_sync(group, master_of(group), copy(b"b")) is None


def test_the_masters_copy_is_always_in_sync() -> None:
    group = new_group(b"a", b"b")
    assert out_of_sync(group, master_of(group), copy(b"a")) is None


@pytest.mark.parametrize(
    "by", [Mastership(b"b", 1), Mastership(b"a", 0), Mastership(b"a", 2), Mastership(b"a", 1)]
)
def test_nobody_but_the_living_master_changes_the_set(by: Mastership) -> None:
    group = made(join(new_group(b"a", b"b"), copy(b"c")))
    if by == master_of(group):
        group = after_death(group, b"a")
    assert in_sync(group, by, copy(b"c")) is None
    assert out_of_sync(group, by, copy(b"b")) is None
    assert bury(group, by, member(group, b"b").id) is None
    assert drop(group, by, b"b") is None
    assert transfer(group, by, member(group, b"b").id, 100, True) is None


def test_a_deposed_master_changes_nothing() -> None:
    group = new_group(b"a", b"b", b"c")
    old = master_of(group)
    group = promoted(after_death(group, b"a"), b"b")
    assert out_of_sync(group, old, copy(b"c")) is None
    assert bury(group, old, member(group, b"b").id) is None
    assert drop(group, old, b"c") is None


# -- the master ------------------------------------------------------------------------------------


def test_the_oldest_mirror_in_sync_is_promoted() -> None:
    group = made(join(new_group(b"a"), copy(b"b")))
    group = chained(
        group,
        lambda group: join(group, copy(b"c")),
        lambda group: in_sync(group, master_of(group), copy(b"c")),
        lambda group: join(group, copy(b"d")),
        lambda group: in_sync(group, master_of(group), copy(b"d")),
    ) or group  # fmt: skip
    group = after_death(group, b"a")
    assert successor(group, ALL) == member(group, b"c")
    assert successor(group, [b"b", b"d"]) == member(group, b"d")
    assert promote(group, member(group, b"b").id, 100, ALL) is None
    assert promote(group, member(group, b"d").id, 100, ALL) is None
    version = group.version
    group = promoted(group, b"c")
    assert (group.master_node, group.epoch, group.version) == (b"c", 2, version + 1)
    assert group.prev == (EpochStart(1, 0), EpochStart(2, 100))
    assert nodes_of(group.mirrors) == [b"b", b"d"]
    assert group.sync == (copy(b"a"), copy(b"d"), copy(b"c"))
    assert group.reason == PROMOTED


def test_nobody_is_promoted_beside_a_master() -> None:
    group = new_group(b"a", b"b")
    assert promote(group, member(group, b"b").id, 100, ALL) is None
    assert promote_unsafe(group, member(group, b"b").id, 100, [b"b"]) is None


def test_death_and_promotion_are_one_change() -> None:
    group = new_group(b"a", b"b")
    after = chained(
        group,
        lambda group: died(group, group.master),
        lambda group: promote(group, member(group, b"b").id, 100, ALL),
    )
    assert made(after).master_node == b"b"
    assert chained(group, lambda _: None, lambda group: group) is None
    assert chained(None, lambda group: group) is None


def test_a_mirror_that_has_restarted_is_promoted_last() -> None:
    group = made(rejoin(new_group(b"a", b"b", b"c"), copy(b"b", "2")))
    group = after_death(group, b"a")
    assert successor(group, ALL) == member(group, b"c")
    assert successor(group, [b"b"]) == member(group, b"b")
    group = made(promote(group, member(group, b"b").id, 100, [b"b"]))
    assert group.sync == (copy(b"a"), copy(b"c"), copy(b"b", "2"))


def test_a_lone_master_that_restarts_promotes_itself() -> None:
    group = made(rejoin(new_group(b"a"), copy(b"a", "2")))
    group = promoted(group, b"a")
    assert (group.master_node, group.epoch, group.sync) == (b"a", 2, (copy(b"a", "2"),))


def test_sequence_numbers_of_epochs_never_fall() -> None:
    group = promoted(after_death(new_group(b"a", b"b", b"c"), b"a"), b"b", 100)
    group = after_death(group, b"b")
    assert promote(group, member(group, b"c").id, 99, ALL) is None
    assert promoted(group, b"c", 100).prev[-1] == EpochStart(3, 100)


def test_a_group_remembers_the_latest_epochs() -> None:
    group = new_group(b"a")
    for run in range(2, EPOCHS_KEPT + 5):
        group = promoted(made(rejoin(group, copy(b"a", str(run)))), b"a", run)
        group = made(
            erase(
                group, group.members[0].id if not group.members[0].is_alive else group.members[1].id
            )
        )
    assert len(group.prev) == EPOCHS_KEPT
    assert group.prev[-1].epoch == group.epoch


def without_sync() -> Group:
    """A group whose master has died with the only complete copy."""
    group = made(join(made(join(new_group(b"a"), copy(b"b"))), copy(b"c")))
    return after_death(group, b"a")


def test_a_mirror_that_is_not_in_sync_is_promoted_only_on_demand() -> None:
    group = without_sync()
    candidate = member(group, b"b")
    assert successor(group, ALL) is None
    assert promote(group, candidate.id, 100, ALL) is None
    assert unsynced_successor(group, ALL) == candidate
    assert fenced_nodes(group, candidate) == {b"a"}
    group = made(promote_unsafe(group, candidate.id, 100, ALL))
    assert (group.master_node, group.epoch, group.reason) == (b"b", 2, UNSYNCED)
    assert group.sync == (copy(b"b"),)
    assert group.recoverable == (b"a", b"b", b"c")


def test_a_younger_mirror_is_promoted_unsafely_only_if_older_ones_are_unreachable() -> None:
    group = without_sync()
    assert promote_unsafe(group, member(group, b"c").id, 100, ALL) is None
    assert made(promote_unsafe(group, member(group, b"c").id, 100, [b"c"])).master_node == b"c"


def test_a_mirror_in_sync_is_never_passed_over() -> None:
    group = after_death(made(join(new_group(b"a", b"b"), copy(b"c"))), b"a")
    assert unsynced_successor(group, ALL) is None
    assert promote_unsafe(group, member(group, b"c").id, 100, ALL) is None
    assert unsynced_successor(group, [b"c"]) == member(group, b"c")
    assert fenced_nodes(group, member(group, b"c")) == {b"a", b"b"}


def test_an_emptied_directory_of_the_old_master_is_not_fenced_from_itself() -> None:
    group = made(rejoin(new_group(b"a"), copy(b"a", "2", "new disk")))
    candidate = member(group, b"a")
    assert fenced_nodes(group, candidate) == frozenset()
    group = made(promote_unsafe(group, candidate.id, 100, ALL))
    assert group.sync == (copy(b"a", "2", "new disk"),)


def test_a_transfer_keeps_the_old_master_as_a_mirror() -> None:
    group = new_group(b"a", b"b", b"c")
    group = made(transfer(group, master_of(group), member(group, b"c").id, 100, True))
    assert (group.master_node, group.epoch, group.reason) == (b"c", 2, TRANSFERRED)
    assert nodes_of(group.synced_mirrors) == [b"a", b"b"]
    assert group.prev[-1] == EpochStart(2, 100)


def test_an_old_master_that_is_not_level_leaves_the_set() -> None:
    group = new_group(b"a", b"b")
    group = made(transfer(group, master_of(group), member(group, b"b").id, 100, False))
    assert (nodes_of(group.mirrors), group.sync) == ([b"a"], (copy(b"b"),))


def test_mastership_goes_only_to_a_mirror_in_sync() -> None:
    group = made(rejoin(new_group(b"a", b"b"), copy(b"b", "2")))
    by = master_of(group)
    assert transfer(group, by, member(group, b"b").id, 100, True) is None
    assert transfer(group, by, group.master, 100, True) is None


# -- a node leaves the cluster ---------------------------------------------------------------------


def test_a_forgotten_mirror_is_gone() -> None:
    group = made(forget_node(after_death(new_group(b"a", b"b"), b"b"), b"b"))
    assert (group.master_node, group.is_down) == (b"a", False)
    assert (group.sync, group.recoverable) == ((copy(b"a"),), (b"a",))
    assert forget_node(group, b"b") is None


def test_a_complete_copy_takes_over_from_a_forgotten_home() -> None:
    group = after_death(new_group(b"a", b"b", b"c"), b"a")
    group = made(forget_node(group, b"a"))
    assert (group.master_node, group.is_down, group.epoch) == (b"b", True, 2)
    assert group.reason == FORGOTTEN
    group = promoted(group, b"b")
    assert (group.master_node, group.epoch) == (b"b", 3)
    assert [start.epoch for start in group.prev] == [1, 3]
    assert b"a" not in group.recoverable


def test_a_stopped_node_with_a_complete_copy_becomes_home() -> None:
    group = after_death(after_death(new_group(b"a", b"b"), b"b"), b"a")
    group = made(forget_node(made(erase(group, MemberId(2, b"b"))), b"a"))
    assert (group.master_node, group.is_down) == (b"b", True)
    group = promoted(made(rejoin(group, copy(b"b", "2"))), b"b")
    assert group.master_node == b"b"


def test_the_only_complete_copy_is_given_up_by_force_alone() -> None:
    group = without_sync()
    assert is_only_complete_copy(group, b"a")
    assert forget_node(group, b"a") is None
    group = made(forget_node(group, b"a", is_forced=True))
    assert (group.master_node, group.is_down, group.reason) == (b"b", True, UNSYNCED)
    # Its master lacks messages, which reader groups have to be told.
    group = promoted(group, b"b")
    assert (group.master_node, group.reason) == (b"b", UNSYNCED)


def test_force_takes_a_stopped_copy_if_there_is_no_other() -> None:
    group = after_death(after_death(without_sync(), b"b"), b"c")
    assert made(forget_node(group, b"a", is_forced=True)).sync == (copy(b"c"),)


def test_a_queue_without_any_other_copy_is_not_kept() -> None:
    group = after_death(new_group(b"a"), b"a")
    assert is_only_complete_copy(group, b"a")
    assert forget_node(group, b"a", is_forced=True) is None


def test_several_complete_copies_are_not_only_ones() -> None:
    group = new_group(b"a", b"b")
    assert not is_only_complete_copy(group, b"a")
    assert not is_only_complete_copy(group, b"d")
