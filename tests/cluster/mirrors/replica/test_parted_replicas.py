"""Parted nodes: what was acked stays acked, one node hands out, the living master stays."""

from tests.cluster.mirrors.replica.replica_world import World
from warrenmq.cluster.mirrors.silences import HAND_OUT_MS


def test_a_mirror_that_died_before_the_acks_does_not_serve_what_was_acked() -> None:
    """Nobody publishes, so no confirm waits for the dead mirrors."""
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(6)
    world.run(5)
    world["b"].kill()
    world["c"].kill()
    world.run(5)
    a.take(4)
    a.ack(4)
    world.run(5)
    a.kill()
    world["b"].restart()
    world.run(60, 100)
    assert world.group.is_down, "only a has the acks"
    a.restart()
    world.run(30, 100)
    assert [number for _, number, _ in a.has()] == [5, 6]


def test_mirrors_that_miss_nothing_stay_in_sync_when_they_die() -> None:
    """The whole cluster may stop, and whoever starts first serves."""
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(3)
    world.run(10)
    world["b"].kill()
    world["c"].kill()
    world.run(60, 100)
    a.kill()
    world["c"].restart()
    world.run(20, 100)
    assert [number for _, number, _ in world["c"].has()] == [1, 2, 3] and world["c"].is_master


def test_the_living_master_wins_when_all_reach_the_store() -> None:
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(400)
    world.run(5)
    world.cut_all(b"a")
    for _ in range(400):
        a.take(1)
        a.ack(1)
        world.round(100)
    assert len(world.seen.acked) == 400 and a.has() == []
    world.link_all(b"a")
    world.run(60, 100)
    assert {group.epoch for group in world.history} == {1}, "nobody has deposed the master"
    world.heal()
    assert a.is_master and b.has() == world["c"].has() == []


def test_a_mirror_that_comes_back_to_the_store_first_deposes_nobody() -> None:
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    a.publish(30)
    world.run(5)
    c.is_cut_off = True
    world.cut_all(b"c")
    world.run(150, 100)
    c.is_cut_off = False
    world.run(80, 100)
    world.link_all(b"c")
    world.run(60, 100)
    assert {group.epoch for group in world.history} == {1} and a.is_master
    assert c.has() == a.has()


def test_a_master_that_may_be_deposed_hands_out_nothing() -> None:
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(100)
    world.run(5)
    a.is_cut_off = True
    world.cut_all(b"a")
    while not b.is_master:
        before = len(world.seen.deliveries)
        a.take(1)
        world.round(100)
    assert a.is_master and len(world.seen.deliveries) == before, "it does not know it yet"
    assert 25 <= before <= HAND_OUT_MS // 100, "it went on for as long as it could"
    b.take(50)
    again = [marked for number, marked in world.seen.deliveries[before:] if number <= before]
    assert all(again) and len(again) == before


def test_a_master_goes_on_once_silent_mirrors_are_left_out() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(50)
    world.run(5)
    world.cut_all(b"a")
    for _ in range(50):
        a.take(1)
        world.round(100)
    assert len(world.seen.deliveries) == 50


def test_a_deposed_master_hands_out_nothing_when_its_links_are_back() -> None:
    """It hears of its end by the new link before it hears that its mirrors hear it."""
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(40)
    world.run(5)
    a.take(3)
    a.is_cut_off = True
    world.cut_all(b"a")
    world.run(60, 100)
    assert b.is_master and a.is_master
    world.link_all(b"a")
    before = len(world.seen.deliveries)
    a.take(1)
    assert len(world.seen.deliveries) == before
    while world.deliver(b"b", b"a"):
        pass
    assert not a.is_master
