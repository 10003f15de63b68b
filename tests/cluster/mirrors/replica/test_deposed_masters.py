"""A master that the others have given up, and that does not know it yet."""

from tests.cluster.mirrors.replica.replica_world import World


def test_a_deposed_master_confirms_nothing() -> None:
    """The other nodes have promoted a mirror, of which the old master has not heard (F3, F12)."""
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(3)
    world.run(3)
    a.is_cut_off = True
    world.cut_all(b"a")
    a.publish(4)
    world.run(50, 100)
    assert b.is_master and a.is_master, "a does not hear of the decision"
    assert world.seen.confirmed == {1, 2, 3}
    b.publish(2)
    world.run(20, 100)
    assert world.seen.confirmed == {1, 2, 3, 8, 9}
    world.link_all(b"a")
    world.run(3)
    assert world.seen.refused == {4, 5, 6, 7}, "the others have told it of their epoch"
    assert a.replica.master is None, "it delivers nothing, either, before it hears of the decision"
    world.heal()
    assert [number for _, number, _ in b.has()] == [1, 2, 3, 8, 9]
    assert a.has() == b.has() == world["c"].has()
    world.check()
    world.check_rest()


def test_a_deposed_master_buries_nobody() -> None:
    """The old master reaches the store before the other nodes, and still takes them for dead."""
    world = World()
    world.run(3)
    a = world["a"]
    a.is_cut_off = True
    world.cut_all(b"a")
    world.run(50, 100)
    a.is_cut_off = False
    world.run(3)
    b = world["b"]
    assert b.is_master and not a.is_master
    assert [member.id.node for member in world.group.living if member.id.node != b"a"] == [
        b"b",
        b"c",
    ]
    world.heal()
    assert world.masters == [(b"a", 1), (b"b", 2)]
