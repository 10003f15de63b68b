"""Three replicas of one queue: confirms, promotion, slow mirrors, returns."""

import pytest

from tests.cluster.mirrors.replica.replica_world import World
from warrenmq.cluster.groups.mirror_policy import ALL, MirrorPolicy
from warrenmq.cluster.groups.transitions import STOPPED, TRANSFERRED, UNSYNCED
from warrenmq.cluster.mirrors.replica.in_sync import HELD_MS
from warrenmq.cluster.mirrors.silences import SILENT_MS
from warrenmq.cluster.mirrors.sync.target import TAKING


def test_publishes_are_confirmed_when_all_copies_have_them() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    assert a.is_master
    a.publish(5)
    a.end_turn()
    a.commit()
    assert world.seen.confirmed == set()
    world.run(3)
    assert world.seen.confirmed == {1, 2, 3, 4, 5}
    assert world["b"].has() == world["c"].has() == a.has()
    taken = a.take(3)
    a.ack(2)
    world.run(3)
    assert taken == [1, 2, 3]
    assert world["b"].has() == world["c"].has() == a.has()
    assert [number for _, number, _ in a.has()] == [3, 4, 5]


def test_a_draining_node_takes_over_only_if_no_other_copy_can() -> None:
    world = World()
    world.run(3)
    world["a"].publish(6)
    world.run(3)
    world.draining = {b"b"}
    world["a"].kill()
    world.run(4)
    assert world["c"].is_master and world.group.epoch == 2
    world["c"].kill()
    world.run(4)
    assert world["b"].is_master
    assert [number for _, number, _ in world["b"].has()] == [1, 2, 3, 4, 5, 6]


def test_the_oldest_mirror_takes_over_with_everything() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(6)
    world.run(3)
    a.take(2)
    a.ack(1)
    world.run(3)
    a.kill()
    world.run(4)
    b = world["b"]
    assert b.is_master and world.group.epoch == 2
    assert [(number, redelivered) for _, number, redelivered in b.has()] == [
        (2, True),
        (3, True),
        (4, True),
        (5, True),
        (6, True),
    ], "a may have delivered more than b has heard"
    b.publish(1)
    world.run(4)
    assert 7 in world.seen.confirmed
    assert world["c"].has() == b.has()
    a.restart()
    world.heal()
    assert a.has() == b.has()
    world.check_rest()


def test_a_master_that_cannot_record_it_confirms_nothing_alone() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    a.is_cut_off = True
    world["b"].kill()
    world["c"].kill()
    a.publish(3)
    world.run(100, 100)
    assert world.seen.confirmed == set()
    a.is_cut_off = False
    world.run(5)
    assert world.seen.confirmed == {1, 2, 3}
    assert [copy.node for copy in world.group.sync] == [b"a"]


def test_without_the_store_publishes_are_refused_in_the_end() -> None:
    """The mirror that is gone cannot be left out; section 5.8 of the design."""
    world = World()
    world.run(3)
    a = world["a"]
    a.is_cut_off = True
    world["c"].kill()
    a.publish(3)
    world.run(HELD_MS // 1000, 1000)
    assert world.seen.confirmed == world.seen.refused == set()
    world.run(2, 1000)
    assert world.seen.refused == {1, 2, 3}
    a.publish(1)
    world.run(2)
    assert world.seen.refused == {1, 2, 3, 4}
    a.is_cut_off = False
    world.run(5)
    assert [copy.node for copy in world.group.sync] == [b"a", b"b"]
    a.publish(1)
    world.run(3)
    assert world.seen.confirmed == {5}
    assert world["b"].has() == a.has() and len(a.has()) == 5


def test_a_dead_mirror_holds_confirms_until_its_death_is_recorded() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    world["c"].kill()
    a.publish(2)
    a.end_turn()
    a.commit()
    assert world.seen.confirmed == set()
    world.run(6)
    assert world.seen.confirmed == {1, 2}
    assert [copy.node for copy in world.group.sync] == [b"a", b"b"]
    assert a.is_master and world.group.epoch == 1


def test_a_mirror_that_is_back_before_its_death_is_recorded_stays() -> None:
    world = World()
    world.run(3)
    world.cut_all(b"c")
    world.clock.advance(SILENT_MS)
    world["a"].replica.check()
    assert world.proposals
    world.link_all(b"c")
    while world.decide():
        pass
    assert len(world.group.living) == 3
    world.heal()
    world.check_rest()


def test_a_death_is_recorded_together_with_what_confirms_need() -> None:
    """A publish may come while the record of the death waits for those of other queues."""
    world = World()
    world.run(3)
    a = world["a"]
    world["c"].kill()
    a.replica.check()
    a.publish(1)
    a.end_turn()
    assert len(world.proposals) == 1
    world.decide()
    assert [copy.node for copy in world.group.sync] == [b"a", b"b"]
    assert world.group.member_of(b"c") is None
    world.run(3)
    assert world.seen.confirmed == {1}


def test_the_first_publish_leaves_out_copies_without_a_member() -> None:
    """It need not wait for the next check."""
    world = World()
    world.run(3)
    world["a"].kill()
    world.run(6)
    b = world["b"]
    assert b.is_master and world.group.is_synced(b"a", world["a"].me.replica_id)
    assert not world.proposals
    b.publish(1)
    b.end_turn()
    world.decide()
    assert [copy.node for copy in world.group.sync] == [b"c", b"b"]


def test_a_slow_mirror_is_dropped_by_the_record_only() -> None:
    """Its disk hangs, while its process answers (F4, F22)."""
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    commit = c.commit
    c.commit = lambda: None  # type: ignore[method-assign]  # a fault
    a.publish(2)
    world.run(SILENT_MS // 100 - 1, 100)
    assert world.seen.confirmed == set() and len(world.group.sync) == 3
    world.run(4, 100)
    assert world.seen.confirmed == {1, 2}
    assert [copy.node for copy in world.group.sync] == [b"a", b"b"]
    assert len(world.group.living) == 3
    a.publish(1)
    world.run(5)
    assert world.seen.confirmed == {1, 2, 3}
    c.commit = commit  # type: ignore[method-assign]  # a fault
    world.run(60, 100)
    assert len(world.group.sync) == 3, "it has caught up, and counts again"
    assert c.has() == a.has()


def test_a_purge_is_done_when_all_copies_have_dropped_the_messages() -> None:
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(5)
    world.run(3)
    purge = a.queue.purge(a.now_ms())
    failed: list[bool] = []
    purge.when_done = lambda _now_ms: failed.append(purge.has_failed)
    a.end_turn()
    a.commit()
    assert purge.count == 5 and failed == []
    world.run(3)
    assert failed == [False]
    assert b.has() == world["c"].has() == []


def test_a_purge_that_a_new_master_has_not_heard_of_fails() -> None:
    world = World()
    world.run(3)
    a, b = world["a"], world["b"]
    a.publish(5)
    world.run(3)
    world.cut_all(b"a")
    a.is_cut_off = True
    purge = a.queue.purge(a.now_ms())
    failed: list[bool] = []
    purge.when_done = lambda _now_ms: failed.append(purge.has_failed)
    world.run(50, 100)
    assert b.is_master and failed == []
    world.heal()
    assert failed == [True] and a.queue.is_hidden
    assert len(b.has()) == 5


def test_a_master_whose_disk_hangs_hands_over() -> None:
    """Its process answers, so nobody else would notice."""
    world = World()
    world.run(3)
    a = world["a"]
    commit = a.commit
    a.commit = lambda: None  # type: ignore[method-assign]  # a fault
    a.publish(2)
    world.run(49, 100)
    assert a.is_master, "a disk may be slow"
    world.run(10, 100)
    assert world.masters == [(b"a", 1), (b"b", 2)]
    assert world.seen.refused == {1, 2}
    world["b"].publish(2)
    world.run(5)
    assert world.seen.confirmed == {3, 4}
    a.commit = commit  # type: ignore[method-assign]  # a fault
    world.run(60, 100)
    world.heal()
    world.check_rest()
    assert a.has() == world["b"].has() == world["c"].has()


def test_a_master_whose_disk_fails_confirms_nothing_of_the_batch() -> None:
    """A node seals a batch before its replicas end the turn: the next batch may be durable."""
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(2)
    batch = a.node.vhost.journal.seal()
    a.end_turn()
    a.node.driver.fail(batch, a.now_ms())
    world.run(3)
    assert (world.seen.confirmed, world.seen.refused) == (set(), {1, 2})
    a.publish(1)
    world.run(3)
    assert world.seen.confirmed == {3}
    assert world["b"].has() == world["c"].has() == a.has()


def test_a_master_whose_disk_hangs_stays_if_no_mirror_is_in_sync() -> None:
    world = World(b"a")
    world.run(3)
    a = world["a"]
    commit = a.commit
    a.commit = lambda: None  # type: ignore[method-assign]  # a fault
    a.publish(2)
    world.run(80, 100)
    assert world.masters == [(b"a", 1)] and not world.seen.refused
    a.commit = commit  # type: ignore[method-assign]  # a fault
    world.run(3)
    assert world.seen.confirmed == {1, 2}


def test_with_a_broken_link_the_living_master_wins() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    world.cut(b"a", b"b")
    a.publish(1)
    world.run(60, 100)
    assert world.masters == [(b"a", 1)]
    assert world.seen.confirmed == {1}
    world.heal()
    world.check_rest()
    assert world["b"].has() == a.has()


def test_a_node_whose_links_hang_is_not_taken_in_over_and_over() -> None:
    """It hears of decisions, and the master does not hear of it."""
    world = World()
    world.run(3)
    world.cut_all(b"c")
    world["a"].publish(1)
    world.run(600, 100)
    assert world.group.master_node == b"a" and world.group.version < 30
    assert world.seen.confirmed == {1}
    version = world.group.version
    world.link_all(b"c")
    world.run(3)
    assert world.group.member_of(b"c") is not None, "it need not wait with a new link"
    assert world.group.version > version
    world.heal()
    world.check_rest()


def test_after_a_restart_of_all_the_copies_in_sync_lead() -> None:
    world = World()
    world.run(3)
    world["a"].publish(9)
    world.run(3)
    world["c"].kill()
    world["a"].publish(3)
    world.run(10)
    assert world.seen.confirmed == set(range(1, 13))
    world["a"].kill()
    world["b"].kill()
    world["c"].restart()
    world.run(60, 100)
    assert world.group.is_down, "c lacks messages"
    world["b"].restart()
    world.run(30, 100)
    assert world["b"].is_master
    assert [number for _, number, _ in world["b"].has()] == list(range(1, 13))
    world.heal()
    world.check_rest()
    assert world["a"].has() == world["b"].has() == world["c"].has()


def test_a_copy_that_lacks_messages_leads_only_by_policy_and_alone() -> None:
    policy = MirrorPolicy(mode=ALL, is_automatic=True, promotes_unsynced_on_failure=True)
    world = World(policy=policy)
    world.run(3)
    world["c"].kill()
    world["a"].publish(3)
    world.run(10)
    world["a"].kill()
    world["b"].kill()
    world["c"].restart()
    world.run(10, 100)
    assert world["c"].is_master and world.group.reason == UNSYNCED
    assert world["c"].has() == []
    world.heal()
    assert world["a"].has() == []


@pytest.mark.parametrize("is_for_stops", [False, True])
def test_another_policy_decides_who_follows_a_master_that_stops(is_for_stops: bool) -> None:
    policy = MirrorPolicy(
        mode=ALL,
        is_automatic=True,
        promotes_unsynced_on_failure=not is_for_stops,
        promotes_unsynced_on_shutdown=is_for_stops,
    )
    world = World(policy=policy)
    world.run(3)
    a = world["a"]
    for name in "bc":
        world[name].kill()
    a.publish(3)
    world.run(10)
    assert world.seen.confirmed == {1, 2, 3}
    # A mirror is back, and a stops before it has synchronised that one.
    a.commit()
    world["b"].restart()
    while world.group.member_of(b"b") is None:
        world.round()
    world.cut_all(b"a")
    world.run(3)
    assert a.replica.leave(lambda _outcome: None)
    world.run(2)
    assert world.group.is_down and world.group.reason == STOPPED
    a.kill()
    world.run(20, 100)
    assert world["b"].is_master == is_for_stops
    a.restart()
    world.heal()
    assert len(world.master.has()) == (0 if is_for_stops else 3)


def test_a_master_that_stops_in_good_order_hands_over_with_exact_flags() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(6)
    world.run(5)
    a.take(2)
    ended: list[int] = []
    assert a.replica.leave(ended.append)
    a.take(2)
    world.run(5)
    b = world["b"]
    assert b.is_master and world.group.reason == TRANSFERRED and len(ended) == 1
    a.kill()
    assert [marked for _, _, marked in b.has()] == [True, True, False, False, False, False]


def test_a_master_that_may_be_replaced_unsafely_confirms_with_its_lease_only() -> None:
    """Without it another node may lead, which does not have what is confirmed here (F3)."""
    policy = MirrorPolicy(mode=ALL, is_automatic=False, promotes_unsynced_on_failure=True)
    world = World(policy=policy)
    world.run(3)
    a = world["a"]
    for name in "bc":
        world[name].kill()
    a.publish(1)
    world.run(10)
    assert world.seen.confirmed == {1} and len(world.group.sync) == 1
    a.is_cut_off = True
    a.publish(2)
    world.run(10)
    assert world.seen.confirmed == {1}
    a.is_cut_off = False
    world.run(3)
    assert world.seen.confirmed == {1, 2, 3}


def test_too_few_copies_refuse_publishes() -> None:
    world = World(policy=MirrorPolicy(mode=ALL, is_automatic=True, min_sync=2))
    world.run(3)
    a = world["a"]
    world["b"].kill()
    world["c"].kill()
    world.run(10)
    a.publish(2)
    world.run(10)
    assert world.seen.confirmed == set()
    assert world.seen.refused == {1, 2}


def test_a_mirror_whose_disk_fails_begins_anew_when_nothing_counts_on_it() -> None:
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    a.publish(3)
    world.run(3)
    a.publish(2)
    a.end_turn()
    for _ in range(6):
        for pair in list(world.links):
            world.deliver(*pair)
        for node in world.nodes.values():
            node.end_turn()
    c.node.commit(ok=False)
    assert world.renewed == []
    world.run(10)
    assert world.renewed == [b"c"]
    assert world.seen.confirmed == {1, 2, 3, 4, 5}
    world.run(80, 100)
    assert len(world.group.sync) == 3
    assert c.has() == a.has()


def test_a_mirror_whose_disk_fails_while_it_is_synchronised_begins_anew() -> None:
    """Nothing else would let it offer again (F16)."""
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    c.kill()
    a.publish(3)
    world.run(10)
    c.restart()
    commit = c.commit

    def fail() -> None:
        target = None if c.replica.mirror is None else c.replica.mirror.target
        if target is not None and target.state == TAKING and not world.renewed:
            c.node.commit(ok=False)
        else:
            commit()

    c.commit = fail  # type: ignore[method-assign]  # a fault
    for _ in range(20):
        for node in world.nodes.values():
            while node.follow():
                pass
            node.end_turn()
        for _ in range(len(world.proposals)):
            world.decide()
        # One frame at a time, so that the disk fails at each step.
        for pair in list(world.links):
            world.deliver(*pair)
        for node in world.nodes.values():
            node.end_turn()
            node.commit()
    assert world.renewed == [b"c"]
    world.heal()
    c.kill()
    c.restart()
    world.heal()
    world.check_rest()
    assert c.has() == a.has() == world["b"].has()


def test_a_deleted_queue_confirms_what_waits() -> None:
    world = World()
    world.run(3)
    a = world["a"]
    a.publish(2)
    a.end_turn()
    for node in world.nodes.values():
        node.replica.close()
    assert world.seen.confirmed == {1, 2}


def test_a_mirror_counts_while_its_return_is_being_decided() -> None:
    """What is confirmed then must be with the mirror, which may lead as soon as it is recorded."""
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    c.kill()
    a.publish(3)
    world.run(10)
    c.restart()
    decide = world.decide
    pending = [copy.node for copy in world.group.sync]
    assert pending == [b"a", b"b"]
    for _ in range(200):
        world.round()
        if a.replica.master is not None and b"c" in a.replica.master.in_sync.members:
            break
        world.decide = (  # type: ignore[method-assign]  # a fault
            decide if world.group.member_of(b"c") is None else lambda is_answer_lost=False: False
        )
    assert [copy.node for copy in world.group.sync] == [b"a", b"b"], "it is not decided yet"
    world.cut(b"a", b"c")
    world.cut(b"b", b"c")
    a.publish(2)
    world.run(5)
    assert world.seen.confirmed == {1, 2, 3}
    world.decide = decide  # type: ignore[method-assign]  # a fault
    world.run(5)
    assert c.me in world.group.sync
    assert world.seen.confirmed == {1, 2, 3}
    world.run(40, 100)
    assert c.me not in world.group.sync
    assert world.seen.confirmed == {1, 2, 3, 4, 5}
    world.heal()
    world.check_rest()


def test_a_mirror_drops_what_the_new_master_never_got() -> None:
    """Otherwise it would come to light behind younger messages when that mirror leads."""
    world = World()
    world.run(3)
    a, b, c = world["a"], world["b"], world["c"]
    a.publish(2)
    world.run(3)
    a.publish(3)
    a.end_turn()
    while world.deliver(b"a", b"b"):
        pass
    assert [number for _, number, _ in b.has()] == [1, 2, 3, 4, 5]
    b.is_cut_off = True
    world.cut(b"b", b"c")
    a.kill()
    world.run(50, 100)
    assert c.is_master
    c.publish(2)
    b.is_cut_off = False
    world.link_all(b"b")
    world.run(20, 100)
    assert [number for _, number, _ in c.has()] == [1, 2, 6, 7]
    assert b.has() == c.has()
    world.heal()
    world.check_rest()


def test_a_mirror_that_has_heard_less_than_the_new_master_is_synchronised() -> None:
    """The last messages of a master that dies may have reached some mirrors only."""
    world = World()
    world.run(3)
    a, b, c = world["a"], world["b"], world["c"]
    a.publish(2)
    world.run(3)
    taken = a.take(1)
    a.ack(1)
    a.publish(1)
    a.end_turn()
    while world.deliver(b"a", b"b"):
        pass
    world.cut(b"b", b"c")
    a.kill()
    assert taken == [1]
    assert [number for _, number, _ in b.has()] == [2, 3]
    assert [number for _, number, _ in c.has()] == [1, 2]
    world.run(5)
    world.link(b"b", b"c")
    world.run(20, 100)
    assert b.is_master and world.group.is_synced(b"c", "c-disk")
    assert c.has() == b.has()


def test_the_others_drop_what_a_mirror_that_had_heard_more_lacks_as_the_master() -> None:
    """It knows of acks of the first master that the second one had not heard of."""
    world = World()
    world.run(3)
    a, b, c = world["a"], world["b"], world["c"]
    a.publish(3)
    world.run(3)
    a.take(1)
    a.ack(1)
    a.end_turn()
    while world.deliver(b"a", b"b"):
        pass
    b.is_cut_off = True
    world.cut(b"b", b"c")
    a.kill()
    while not c.is_master:
        world.run(1, 100)
    b.is_cut_off = False
    world.link_all(b"b")
    world.run(5, 100)
    assert world.group.is_synced(b"b", "b-disk"), "it is complete"
    a.restart()
    world.run(20, 100)
    assert [number for _, number, _ in a.has()] == [1, 2, 3]
    assert [number for _, number, _ in b.has()] == [2, 3]
    c.kill()
    world.run(50, 100)
    assert b.is_master and a.has() == b.has()
    c.restart()
    world.heal()
    world.check_rest()


def test_a_mirror_whose_disk_takes_no_acks_is_left_out() -> None:
    """Acks wait for no disk, but a copy that could bring them back must not lead."""
    world = World()
    world.run(3)
    a, c = world["a"], world["c"]
    a.publish(3)
    world.run(3)
    assert len(world.group.sync) == 3
    c.commit = lambda: c.node.commit(ok=False)  # type: ignore[method-assign]  # a fault
    a.take(2)
    a.ack(2)
    world.run(10, 100)
    assert {copy.node for copy in world.group.sync} == {b"a", b"b"}
    del c.commit
    world.run(80, 100)
    assert len(world.group.sync) == 3
    assert c.has() == a.has()
