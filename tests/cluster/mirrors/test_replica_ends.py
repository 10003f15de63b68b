"""What becomes of publishes that wait for a copy when the copy, the group or the run ends."""

import pytest

from tests.cluster.mirrors.replica.replica_world import World
from warrenmq.cluster.groups.group_proposer import UNANSWERED
from warrenmq.cluster.mirrors.records import MalformedMirrorRecord, encode_message


def test_a_queue_that_is_mirrored_no_more_confirms_what_its_own_disk_has() -> None:
    world = World(b"a")
    world.run(3)
    a = world["a"]
    a.publish(2)
    a.end_turn()
    a.publish(1)
    a.replica.end_group()
    assert world.seen.confirmed == set(), "nothing is on the disk yet"
    a.commit()
    assert world.seen.confirmed == {1, 2, 3}


def test_a_disk_that_fails_refuses_what_waits_when_the_group_ends() -> None:
    world = World(b"a")
    world.run(3)
    a = world["a"]
    a.publish(2)
    a.end_turn()
    a.replica.end_group()
    a.node.commit(ok=False)
    assert world.seen.refused == {1, 2}


def test_a_run_that_ends_refuses_what_mirrors_may_lack() -> None:
    """The node leaves the others and comes back: its mirrors may have gone on without it."""
    world = World()
    world.run(3)
    a = world["a"]
    world.cut_all(b"a")
    a.publish(2)
    a.end_turn()
    a.commit()
    a.replica.end_run()
    assert world.seen.confirmed == set()
    assert world.seen.refused == {1, 2}


def _with_mirror_on_its_way(world: World) -> None:
    """Let c come back, until its master waits for the store to record it as in sync."""
    world.run(3)
    a, c = world["a"], world["c"]
    c.kill()
    a.publish(1)
    world.run(10)
    c.restart()
    master = a.replica.master
    assert master is not None
    while b"c" not in master.in_sync.members:
        world.round()
    assert c.me not in world.group.sync and len(world.proposals) == 1


def test_a_mirror_that_dies_before_it_is_recorded_counts_no_more() -> None:
    """The store does not answer in time, and then decides on the death."""
    world = World()
    _with_mirror_on_its_way(world)
    a, c = world["a"], world["c"]
    c.kill()
    a.replica.check()
    world.proposals.popleft().done(UNANSWERED)
    assert world.decide() and world.group.member_of(b"c") is None
    a.publish(2)
    world.run(20, 100)
    assert world.seen.confirmed == {1, 2, 3}


def test_a_mirror_that_loses_its_copy_while_it_is_recorded_is_taken_out_again() -> None:
    """It would lead with nothing if the others died."""
    world = World()
    _with_mirror_on_its_way(world)
    c = world["c"]
    c.replica.begin_anew()
    assert world.renewed == [b"c"]
    while world.deliver(b"c", b"a"):
        pass
    world.run(2)
    assert c.me not in world.group.sync
    assert any(c.me in group.sync for group in world.history[-2:])
    world.heal()
    world.check_rest()
    assert c.has() == world["a"].has()


def test_mirrors_that_cannot_read_a_ring_message_are_synchronised() -> None:
    """Otherwise they would lack the rest of that message, and still count as in sync."""
    world = World()
    world.run(3)
    a = world["a"]
    master, ring = a.replica.master, a.replica.ring
    assert master is not None and ring is not None
    a.publish(1)
    operations = master.feed.take(1)
    ring.broadcast(encode_message(int(master.feed.taken_count), operations[:8] + b"\xff"))
    a.end_turn()
    for node in (b"b", b"c"):
        with pytest.raises(MalformedMirrorRecord):
            while world.deliver(b"a" if node == b"b" else b"b", node):
                pass
        world.cut_all(node)
        world.link_all(node)
    a.publish(2)
    world.run(20)
    assert world.seen.confirmed == {1, 2, 3}
    assert world["b"].has() == world["c"].has() == a.has()


def test_a_mirror_whose_disk_failed_says_so_again_on_a_new_link() -> None:
    """Otherwise it would count as in sync until a publish had waited for it."""
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    a.publish(2)
    world.run(3)
    world.cut(b"a", b"c")
    c.replica.begin_anew()
    assert c.me in world.group.sync and world.renewed == []
    world.link(b"a", b"c")
    world.run(5)
    assert world.renewed == [b"c"]
    world.heal()
    assert c.has() == a.has()


def test_a_dead_member_is_erased_when_the_store_answers_again() -> None:
    """Nothing else changes the group, so that no new view repeats the request."""
    world = World()
    world.run(3)
    world["c"].kill()
    while len(world.group.living) == len(world.group.members):
        world.round()
    while not world.proposals:
        world.round()
    world.proposals.popleft().done(UNANSWERED)
    world.run(3)
    assert world.group.members == world.group.living
