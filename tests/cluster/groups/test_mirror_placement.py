"""Where copies should be, and the steps that bring them there."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.groups.copies import copy, made, master_of, member, new_group
from warrenmq.cluster.groups.group import Group, fault_of
from warrenmq.cluster.groups.mirror_placement import (
    AddMirror,
    ClusterNode,
    DropCopy,
    MoveMaster,
    Step,
    first_nodes,
    next_step,
    rank_of,
    wanted_nodes,
)
from warrenmq.cluster.groups.mirror_policy import ALL, EXACTLY, NODES, UNMIRRORED, MirrorPolicy
from warrenmq.cluster.groups.succession import successor
from warrenmq.cluster.groups.transitions import (
    create,
    died,
    drop,
    in_sync,
    join,
    out_of_sync,
    promote,
    rejoin,
    transfer,
)

RUNNING = ClusterNode()
DRAINING = ClusterNode(is_draining=True)
DOWN = ClusterNode(is_running=False)
Flags = dict[bytes, ClusterNode]

EVERYWHERE = MirrorPolicy(ALL)
NOBODY = MirrorPolicy(NODES, nodes=frozenset([b"elsewhere"]))


def by_name(node: bytes) -> int:
    return node[0]


def cluster(names: str, **others: ClusterNode) -> Flags:
    """Running nodes, each one letter, and others."""
    flags = {letter.encode(): RUNNING for letter in names}
    return flags | {name.encode(): flag for name, flag in others.items()}


def exactly(copies: int) -> MirrorPolicy:
    return MirrorPolicy(EXACTLY, copies=copies)


def on(*nodes: bytes) -> MirrorPolicy:
    return MirrorPolicy(NODES, nodes=frozenset(nodes))


# -- steps -----------------------------------------------------------------------------------------


def take(group: Group, step: Step) -> Group:
    """The group after a step that its master has proposed."""
    by = master_of(group)
    match step:
        case AddMirror(node):
            return made(join(group, copy(node)))
        case DropCopy(node):
            return made(drop(group, by, node))
        case MoveMaster(node):
            return made(transfer(group, by, member(group, node).id, 100 * group.epoch, True))


def synchronised(group: Group) -> Group:
    """The group when all mirrors are in sync."""
    for mirror in group.mirrors:
        group = in_sync(group, master_of(group), mirror.copy) or group
    return group


def settled(policy: MirrorPolicy, group: Group, nodes: Flags, syncs: bool = True) -> Group:
    """The group at the end of all steps, with mirrors that become in sync now and then."""
    for _ in range(4 * len(nodes) + 8):
        step = next_step(policy, group, nodes, by_name)
        if step is not None:
            before = len(group.synced_mirrors)
            group = take(group, step)
            if isinstance(step, DropCopy) and before and len(group.mirrors) > 0 and syncs:
                assert group.synced_mirrors
        elif syncs and len(group.synced_mirrors) < len(group.mirrors):
            group = synchronised(group)
        else:
            return group
    raise AssertionError("no end of steps")


def steps(policy: MirrorPolicy, group: Group, nodes: Flags) -> list[Step]:
    """The steps up to where the master waits, or all is as it should be."""
    found = []
    while (step := next_step(policy, group, nodes, by_name)) is not None:
        found.append(step)
        group = take(group, step)
    return found


# -- new queues ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (UNMIRRORED, b"b"),
        (EVERYWHERE, b"bac"),
        (exactly(1), b"b"),
        (exactly(2), b"ba"),
        (exactly(9), b"bac"),
        (on(b"b", b"c"), b"bc"),
        (on(b"c", b"a"), b"ac"),
        (on(b"c", b"x", b"d"), b"c"),
        (NOBODY, b"b"),
    ],
)
def test_first_nodes(policy: MirrorPolicy, expected: bytes) -> None:
    """Neither unknown nodes nor those that are down or draining get a copy."""
    nodes = cluster("abc", d=DOWN, e=DRAINING)
    assert b"".join(first_nodes(policy, b"b", nodes, by_name)) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(UNMIRRORED, b"b"), (EVERYWHERE, b"ac"), (exactly(1), b"a"), (on(b"b"), b"b")],
)
def test_a_draining_node_gets_a_queue_only_if_no_other_can(
    policy: MirrorPolicy, expected: bytes
) -> None:
    nodes = cluster("ac", b=DRAINING)
    assert b"".join(first_nodes(policy, b"b", nodes, by_name)) == expected


def test_a_node_that_is_new_here_gets_its_own_queues() -> None:
    assert first_nodes(EVERYWHERE, b"z", cluster("a"), by_name) == (b"z", b"a")


# -- single steps ----------------------------------------------------------------------------------


def test_new_mirrors_come_before_superfluous_ones_go() -> None:
    assert steps(on(b"a", b"c", b"d"), new_group(b"a", b"b"), cluster("abcd")) == [
        AddMirror(b"c"),
        AddMirror(b"d"),
    ]


def test_the_last_superfluous_mirror_in_sync_waits() -> None:
    group = new_group(b"a", b"b", b"c")
    policy, nodes = on(b"a", b"d"), cluster("abcd")
    assert steps(policy, group, nodes) == [AddMirror(b"d"), DropCopy(b"b")]
    group = take(take(group, AddMirror(b"d")), DropCopy(b"b"))
    assert next_step(policy, group, nodes, by_name) is None
    assert next_step(policy, synchronised(group), nodes, by_name) == DropCopy(b"c")


def test_a_superfluous_mirror_that_is_not_in_sync_goes_first() -> None:
    group = made(join(new_group(b"a", b"b"), copy(b"c")))
    assert next_step(exactly(1), group, cluster("abc"), by_name) == DropCopy(b"c")


def test_a_master_that_is_not_wanted_moves_to_a_mirror_in_sync() -> None:
    policy, nodes = on(b"b", b"c"), cluster("abc")
    group = made(join(new_group(b"a"), copy(b"c")))
    assert steps(policy, group, nodes) == [AddMirror(b"b")]
    group = take(group, AddMirror(b"b"))
    group = made(in_sync(group, master_of(group), copy(b"b")))
    # The old master is the only other copy in sync, so it waits for one on c.
    assert steps(policy, group, nodes) == [MoveMaster(b"b")]
    # Of two mirrors in sync the older one becomes master.
    assert steps(policy, synchronised(group), nodes) == [MoveMaster(b"c"), DropCopy(b"a")]


def test_a_superfluous_mirror_in_sync_does_not_become_master() -> None:
    group = new_group(b"a", b"b")
    assert steps(on(b"c"), group, cluster("abc")) == [AddMirror(b"c")]


def test_the_master_stays_if_no_wanted_node_runs() -> None:
    group = new_group(b"a", b"b")
    assert steps(NOBODY, group, cluster("ab")) == [DropCopy(b"b")]
    assert steps(on(b"c"), group, cluster("ab", c=DOWN)) == [DropCopy(b"b")]


def test_mirroring_ends() -> None:
    group = made(died(new_group(b"a", b"b", b"c"), member(new_group(b"a", b"b"), b"b").id))
    nodes = cluster("ac", b=DOWN)
    assert steps(UNMIRRORED, group, nodes) == [DropCopy(b"b"), DropCopy(b"c")]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (EVERYWHERE, []),
        (exactly(2), [AddMirror(b"c")]),
        (on(b"a", b"b"), []),
        (on(b"a", b"c"), [AddMirror(b"c"), DropCopy(b"b")]),
        (UNMIRRORED, [DropCopy(b"b")]),
    ],
)
def test_a_copy_on_a_node_that_is_down_waits_if_it_may_be_wanted(
    policy: MirrorPolicy, expected: list[Step]
) -> None:
    group = new_group(b"a", b"b")
    group = made(died(group, member(group, b"b").id))
    nodes = cluster("a", b=DOWN) | (cluster("c") if policy != EVERYWHERE else {})
    assert steps(policy, group, nodes) == expected


def test_exactly_drops_a_copy_when_a_lost_node_is_back() -> None:
    group = new_group(b"a", b"b", b"c")
    group = made(rejoin(group, copy(b"b", "2")))
    assert steps(exactly(2), group, cluster("abc")) == [DropCopy(b"b")]


def test_present_copies_are_preferred() -> None:
    group = new_group(b"d", b"c")
    assert wanted_nodes(exactly(2), group, cluster("abcd"), by_name) == (b"d", b"c")
    assert wanted_nodes(exactly(3), group, cluster("abcd"), by_name) == (b"d", b"c", b"a")


def test_a_master_leaves_a_draining_node() -> None:
    nodes = cluster("bc", a=DRAINING)
    assert steps(EVERYWHERE, new_group(b"a", b"b", b"c"), nodes) == [MoveMaster(b"b")]
    assert steps(exactly(2), new_group(b"a", b"b"), nodes) == [
        AddMirror(b"c"),
        MoveMaster(b"b"),
    ]
    group = synchronised(take(new_group(b"a", b"b"), AddMirror(b"c")))
    assert steps(exactly(2), group, nodes) == [MoveMaster(b"b"), DropCopy(b"a")]
    assert steps(EVERYWHERE, new_group(b"a"), cluster("", a=DRAINING)) == []


def test_a_draining_node_keeps_its_copy_if_there_are_no_others() -> None:
    nodes = cluster("a", b=DRAINING)
    assert steps(exactly(2), new_group(b"a", b"b"), nodes) == []
    assert steps(exactly(2), new_group(b"a"), nodes) == []


def test_an_unmirrored_queue_stays_on_a_draining_node() -> None:
    assert steps(UNMIRRORED, new_group(b"a"), cluster("b", a=DRAINING)) == []


def test_a_master_on_an_unwanted_node_takes_a_draining_one_at_last() -> None:
    nodes = cluster("a", b=DRAINING)
    assert steps(on(b"b"), new_group(b"a", b"b"), nodes) == [MoveMaster(b"b"), DropCopy(b"a")]


def test_nothing_moves_while_there_is_no_master() -> None:
    group = new_group(b"a", b"b")
    group = made(died(group, group.master))
    assert next_step(exactly(1), group, cluster("ab"), by_name) is None


def test_queues_spread_over_the_nodes() -> None:
    nodes = [b"rabbit@one", b"rabbit@two", b"rabbit@three"]
    firsts = Counter(min(nodes, key=rank_of(b"/", b"queue %d" % n)) for n in range(900))
    assert all(240 < firsts[node] < 360 for node in nodes)
    assert rank_of(b"/", b"q")(b"a") == rank_of(b"/", b"q")(b"a")


# -- any policy, any cluster, any group ------------------------------------------------------------

LETTERS = [b"a", b"b", b"c", b"d", b"e"]
letters = st.sampled_from(LETTERS)
flags = st.sampled_from([RUNNING, RUNNING, RUNNING, DRAINING, DOWN])
clusters = st.dictionaries(letters, flags, min_size=1)
policies = st.one_of(
    st.just(UNMIRRORED),
    st.just(EVERYWHERE),
    st.integers(1, 7).map(exactly),
    st.sets(st.sampled_from([*LETTERS, b"x"]), min_size=1).map(lambda names: on(*names)),
)
# A node, and what happens there to the group.
events = st.lists(st.tuples(letters, st.sampled_from(["join", "sync", "slow", "move", "die"])))


def happened(group: Group, node: bytes, event: str) -> Group:
    found, by = group.member_of(node), master_of(group)
    if found is None:
        joins = rejoin if node in group.recoverable else join
        return (joins(group, copy(node)) or group) if event == "join" else group
    after: Group | None = None
    if event == "sync":
        after = in_sync(group, by, found.copy)
    elif event == "slow":
        after = out_of_sync(group, by, found.copy)
    elif event == "move":
        after = transfer(group, by, found.id, group.prev[-1].first_seq, True)
    elif event == "die" and found.id != group.master:
        after = died(group, found.id)
    return after or group


def followed(group: Group, nodes: Flags) -> Group:
    """The group once it follows which nodes run; it may be down then."""
    for living in group.living:
        if not nodes.get(living.id.node, DOWN).is_running:
            group = made(died(group, living.id))
    for node, flag in sorted(nodes.items()):
        if flag.is_running and node in group.recoverable and group.member_of(node) is None:
            group = made(rejoin(group, copy(node, str(group.version))))
    heir = successor(group, nodes)
    if group.is_down and heir is not None:
        group = made(promote(group, heir.id, group.prev[-1].first_seq, nodes))
    return group


def check_final(policy: MirrorPolicy, group: Group, nodes: Flags) -> None:
    """Check that the copies are where the policy wants them, in words that are not the code's."""
    assert fault_of(group) == ""
    placed = {living.id.node for living in group.living}
    running = {node for node, flag in nodes.items() if flag.is_running}
    calm = {node for node in running if not nodes[node].is_draining}
    master = group.master_node
    assert placed == set(wanted_nodes(policy, group, nodes, by_name))
    assert placed <= running
    if policy.mode == ALL:
        assert placed >= calm
    elif policy.mode == EXACTLY:
        assert min(policy.copies, len(calm)) <= len(placed) <= policy.copies
        assert placed <= calm or placed >= calm
    elif policy.mode == NODES:
        assert placed >= policy.nodes & calm
        assert placed <= policy.nodes or placed == {master}
    else:
        assert placed == {master}
    assert master in calm or not placed & calm
    stale = set(group.recoverable) - placed
    if policy.mode not in (ALL, EXACTLY):
        assert stale <= policy.nodes


@given(clusters, policies, st.lists(letters, min_size=1, unique=True), events)
def test_any_group_gets_where_its_policy_wants_it(
    nodes: Flags, policy: MirrorPolicy, first: list[bytes], history: list[tuple[bytes, str]]
) -> None:
    group = new_group(*first)
    for node, event in history:
        group = happened(group, node, event)
    group = followed(group, nodes)
    if not group.is_down:
        check_final(policy, settled(policy, group, nodes), nodes)


@given(st.lists(st.tuples(clusters, policies, st.integers(0, 4)), min_size=1, max_size=5), clusters)
def test_policies_and_nodes_may_change_at_any_time(
    phases: list[tuple[Flags, MirrorPolicy, int]], last: Flags
) -> None:
    group = new_group(b"a", b"b")
    for nodes, policy, count in phases:
        group = followed(group, nodes)
        for _ in range(count):
            step = next_step(policy, group, nodes, by_name)
            group = synchronised(group) if step is None and not group.is_down else group
            group = take(group, step) if step is not None else group
    group = followed(group, last)
    if not group.is_down:
        policy = phases[-1][1]
        check_final(policy, settled(policy, group, last), last)


@given(clusters, policies, st.lists(letters, min_size=1, unique=True), events)
def test_mirrors_that_are_never_synchronised_end_the_steps_too(
    nodes: Flags, policy: MirrorPolicy, first: list[bytes], history: list[tuple[bytes, str]]
) -> None:
    group = new_group(*first)
    for node, event in history:
        group = happened(group, node, event)
    group = followed(group, nodes)
    if not group.is_down:
        group = settled(policy, group, nodes, syncs=False)
        placed = {living.id.node for living in group.living}
        wanted = set(wanted_nodes(policy, group, nodes, by_name))
        # The master, and one more copy in sync, wait for a wanted one to be in sync.
        assert wanted <= placed
        assert len(placed - wanted - {group.master_node}) <= 1


@given(clusters, policies, letters)
def test_a_new_queue_is_where_its_policy_wants_it(
    nodes: Flags, policy: MirrorPolicy, chosen: bytes
) -> None:
    nodes[chosen] = nodes.get(chosen, RUNNING)
    if nodes[chosen].is_running:
        placed = first_nodes(policy, chosen, nodes, by_name)
        group = create(copy(placed[0]), [copy(node) for node in placed[1:]])
        assert next_step(policy, group, nodes, by_name) is None
