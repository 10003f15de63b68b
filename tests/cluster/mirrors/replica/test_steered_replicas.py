"""What operators ask of the replicas of a queue, and what they see of them."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.mirrors.replica.replica_world import BIRTH, NAME, World
from warrenmq.broker.mirrors import UNKNOWN, CopyFacts
from warrenmq.cluster.groups.mirror_policy import ALL, MirrorPolicy
from warrenmq.cluster.groups.transitions import TRANSFERRED, create, join
from warrenmq.cluster.mirrors.facts import facts_of_replica
from warrenmq.cluster.mirrors.rebalancing import plan_moves
from warrenmq.cluster.mirrors.records import (
    HAND_OVER,
    HandOverRecord,
    MalformedMirrorRecord,
    decode_record,
    encode_record,
)
from warrenmq.cluster.mirrors.replica.mirror_lag import Sent, SentLog
from warrenmq.queues.mirror.ring_feed import next_start
from warrenmq.store.model.message import Message

A, B, C = b"a", b"b", b"c"


def mirrors_at(world: World, name: str) -> list[CopyFacts]:
    """What the node `name` knows of the mirrors."""
    replica = world[name].replica
    assert replica.group is not None
    now_ms = world.clock.now_ms()
    found = facts_of_replica(replica, BIRTH, replica.group, lambda node: node != C, now_ms)
    return list(found.mirrors)


def test_every_node_knows_the_copies_and_the_master_their_lag() -> None:
    world = World()
    world.run(3)
    world["a"].publish(4)
    world["a"].end_turn()
    found = mirrors_at(world, "a")
    assert [(each.node, each.pid, each.is_synced, each.is_online) for each in found] == [
        ("b", "<b.3.0.2>", True, True),
        ("c", "<c.3.0.3>", True, False),
    ]
    assert [each.lag_messages for each in found] == [4, 4]
    assert all(each.lag_bytes > 0 and each.sync is None for each in found)
    world.clock.advance(40)
    world["a"].publish()
    world["a"].end_turn()
    assert [(each.lag_messages, each.lag_ms) for each in mirrors_at(world, "a")] == [(5, 40)] * 2
    world.run(3)
    level = [(each.lag_messages, each.lag_bytes, each.lag_ms) for each in mirrors_at(world, "a")]
    assert level == [(0, 0, 0)] * 2
    elsewhere = [(each.lag_messages, each.lag_ms) for each in mirrors_at(world, "c")]
    assert elsewhere == [(UNKNOWN, UNKNOWN)] * 2


def test_a_master_hands_over_when_another_node_asks() -> None:
    world = World()
    world.run(3)
    world["a"].publish(3)
    world.run(3)
    has = world["a"].has()
    world["c"].replica.send(A, HandOverRecord(world.group.epoch + 1, C))
    world.run(3)
    assert world.group.master_node == A
    world["c"].replica.send(A, HandOverRecord(world.group.epoch, C))
    world.run(5)
    assert (world.group.master_node, world.group.reason) == (C, TRANSFERRED)
    assert world["c"].has() == has
    world.heal()
    assert [each.is_synced for each in mirrors_at(world, "c")] == [True, True]


def test_a_manual_synchronisation_is_seen_from_its_request_to_its_record() -> None:
    world = World(policy=MirrorPolicy(mode=ALL))
    world.run(3)
    a = world["a"]
    world["c"].kill()
    a.publish(5)
    world.run(10, ms=500)
    world["c"].restart()
    world.run(10)
    master = a.replica.master
    assert master is not None
    [lag] = [each for each in mirrors_at(world, "a") if each.node == "c"]
    assert (lag.is_synced, lag.lag_messages, lag.sync) == (False, 5, None)
    assert not master.cancel_syncs()
    master.synchronise(C)
    [lag] = [each for each in mirrors_at(world, "a") if each.node == "c"]
    assert lag.sync is not None and (lag.sync.messages, lag.sync.total) == (0, 5)
    assert master.cancel_syncs()
    world.run(5)
    assert not world.group.is_synced(C, "c-disk") and not master.cancel_syncs()
    master.synchronise(C)
    world.run(10)
    [lag] = [each for each in mirrors_at(world, "a") if each.node == "c"]
    assert (lag.is_synced, lag.sync) == (True, None)
    # What the first attempt has sent counts, too.
    assert lag.sync_bytes > 0
    assert [each.sync_bytes for each in mirrors_at(world, "b")] == [UNKNOWN] * 2
    assert world["c"].has() == a.has()


def test_a_queue_that_was_not_mirrored_goes_on_at_another_node() -> None:
    world = World(b"ab")
    a, b = world["a"], world["b"]
    a.node.declare(NAME)
    for number in range(3):
        message = Message(b"\x00\x01q", b"\x00\x00", b"%d" % number, True, 0)
        a.queue.publish(message, -1, a.now_ms())
    a.commit()
    world.group = create(a.me, (), int(next_start(a.queue, 0)))
    a.unheard = deque([world.group])
    b.unheard = deque([world.group])
    world.history = [world.group]
    world.run(3)
    assert a.is_master and len(a.has()) == 3
    b.propose(lambda group: join(group, b.me), lambda _outcome: None)
    world.run(3)
    world.heal()
    assert len(a.has()) == 3
    assert b.has() == a.has()
    assert a.replica.master is not None and a.replica.master.hand_over(B)
    world.run(10)
    assert b.is_master and len(b.has()) == 3


def test_a_request_to_hand_over_as_bytes() -> None:
    record = HandOverRecord(3, b"n2@host")
    payload = encode_record(7, record)
    assert payload[8] == HAND_OVER and decode_record(payload) == record
    with pytest.raises(MalformedMirrorRecord):
        decode_record(payload[:16])


def test_the_lag_behind_what_was_sent() -> None:
    log = SentLog()
    for number in range(1, 6):
        log.note(Sent(number, 2 * number, 100 * number))
    assert [log.behind(mark) for mark in (0, 3, 5, 9)] == [(10, 500), (4, 200), (0, 0), (0, 0)]
    log.forget(3)
    assert [log.behind(mark) for mark in (0, 3, 4)] == [(4, 200), (4, 200), (2, 100)]


def test_masters_make_room_for_each_other() -> None:
    masters = {1: A, 2: A, 3: A, 4: B, 5: B, 6: C}
    mirrors = {1: [B], 2: [B], 3: [B], 4: [C], 5: [C], 6: [A]}
    assert plan_moves(masters, mirrors, [A, B, C]) == {1: B, 4: C}
    assert plan_moves(masters, {}, [A, B, C]) == {}
    assert plan_moves({1: A, 2: A}, {1: [B], 2: [B]}, [A]) == {}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sets(st.sampled_from("abcd"))), max_size=12))
def test_masters_are_spread(queues: list[tuple[str, set[str]]]) -> None:
    """No queue leaves its copies; with mirrors everywhere, the counts differ by 1 at most."""
    nodes = [b"a", b"b", b"c", b"d"]
    masters = {number: master.encode() for number, (master, _) in enumerate(queues)}
    mirrors = {number: [one.encode() for one in found] for number, (_, found) in enumerate(queues)}
    moves = plan_moves(masters, mirrors, nodes)
    assert all(node in mirrors[queue] and node != masters[queue] for queue, node in moves.items())
    everywhere = dict.fromkeys(masters, nodes)
    places = [*{**masters, **plan_moves(masters, everywhere, nodes)}.values()]
    counts = [places.count(node) for node in nodes]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(("on_failure", "on_shutdown"), [(True, False), (False, True)])
def test_what_a_stop_loses_depends_on_both_settings(on_failure: bool, on_shutdown: bool) -> None:
    policy = MirrorPolicy(
        mode=ALL,
        promotes_unsynced_on_failure=on_failure,
        promotes_unsynced_on_shutdown=on_shutdown,
    )
    world = World(policy=policy)
    world.run(3)
    replica = world["a"].replica
    assert replica.group is not None
    assert facts_of_replica(replica, BIRTH, replica.group, lambda node: True, 0).promotes_unsynced
