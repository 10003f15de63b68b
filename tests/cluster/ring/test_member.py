"""A member of a ring, case by case: rounds, joins, deaths, lost frames, malformed ones."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.ring.world import World
from warrenmq.cluster.ring.early_frames import EARLY_BYTES_MAX
from warrenmq.cluster.ring.frames import (
    ACTIVITY,
    ASK,
    CATCHUP,
    MalformedRingFrame,
    RingEntry,
    decode,
    encode_entries,
)
from warrenmq.cluster.ring.member import FLUSH_BYTES, RingHost, RingMember
from warrenmq.cluster.ring.view import MemberId

A, B, C, D = (MemberId(version, name) for version, name in enumerate((b"a", b"b", b"c", b"d"), 1))
X = MemberId(9, b"x")


class Calls(RingHost):
    """An owner that notes its calls in order."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []
        self.frames: list[tuple[bytes, bytes]] = []

    def send_frame(self, node: bytes, payload: bytes) -> None:
        frame = decode(payload)
        self.frames.append((node, payload))
        entries = [(each.sender, each.first, each.pubs, each.acked) for each in frame.entries]
        self.calls.append(("send", node, frame.kind, entries or frame.members))

    def erase(self, member: MemberId) -> None:
        self.calls.append(("erase", member))

    def on_joined(self, members: list[MemberId]) -> None:
        self.calls.append(("joined", members))

    def on_members_changed(self, births: list[MemberId], deaths: list[MemberId]) -> None:
        self.calls.append(("changed", births, deaths))

    def on_message(self, sender: MemberId, payload: bytes) -> None:
        self.calls.append(("message", sender, payload))

    def on_circled(self, count: int) -> None:
        self.calls.append(("circled", count))

    def on_lost(self) -> None:
        self.calls.append(("lost",))

    def take(self) -> list[tuple[Any, ...]]:
        """The calls since the last time."""
        calls = self.calls
        self.calls = []
        return calls

    def seen(self, kind: str) -> list[tuple[Any, ...]]:
        return [call for call in self.take() if call[0] == kind]


def alive(*members: MemberId) -> list[tuple[MemberId, bool]]:
    return [(member, True) for member in members]


def member(me: MemberId, version: int, *members: MemberId) -> tuple[RingMember, Calls]:
    owner = Calls()
    ring = RingMember(me, owner)
    ring.on_view(version, alive(*members))
    return ring, owner


def frame(kind: int, version: int, *entries: RingEntry) -> bytes:
    return encode_entries(kind, version, list(entries))


def mirror_of_three() -> tuple[RingMember, Calls]:
    """B in the ring A, B, C, with nothing sent so far."""
    ring, owner = member(B, 3, A, B, C)
    ring.take_frame(b"a", frame(CATCHUP, 3))
    owner.take()
    return ring, owner


# -- alone -----------------------------------------------------------------------------------------


def test_the_founder_joins_at_once() -> None:
    ring, owner = member(A, 1, A)
    assert owner.take() == [("joined", [A])]
    assert ring.is_joined and ring.view_version == 1


def test_the_founder_does_not_wait_for_those_who_joined_since() -> None:
    _, owner = member(A, 3, A, B, C)
    assert owner.take() == [("send", b"b", CATCHUP, [(A, 0, [], -1)]), ("joined", [A, B, C])]


def test_alone_broadcasts_circle_at_the_end_of_the_turn() -> None:
    ring, owner = member(A, 1, A)
    owner.take()
    ring.broadcast(b"one")
    ring.broadcast(bytes(2 * FLUSH_BYTES))
    assert owner.take() == [] and ring.buffered_bytes == 3 + 2 * FLUSH_BYTES
    ring.end_turn()
    assert owner.take() == [("circled", 2)] and ring.buffered_bytes == 0
    ring.end_turn()
    assert owner.take() == []


def test_the_last_survivor_erases_the_others_at_the_end_of_the_turn() -> None:
    ring, owner = member(A, 3, A, B, C)
    ring.broadcast(b"one")
    ring.end_turn()
    owner.take()
    ring.on_view(4, [(A, True), (B, False), (C, False)])
    assert owner.take() == []
    ring.end_turn()
    assert sorted(owner.take()) == [("circled", 1), ("erase", B), ("erase", C)]
    ring.end_turn()
    assert owner.take() == [] and ring.buffered_bytes == 0


# -- rounds ----------------------------------------------------------------------------------------


def test_a_broadcast_goes_round_and_its_ack_too() -> None:
    """M59: send, forward, back at the sender, ack, everyone forgets."""
    ring, owner = member(A, 2, A, B)
    owner.take()
    assert [ring.broadcast(b"x"), ring.broadcast(b"y")] == [0, 1]
    assert owner.take() == []
    ring.end_turn()
    assert owner.take() == [("send", b"b", ACTIVITY, [(A, 0, [b"x", b"y"], -1)])]
    ring.take_frame(b"b", frame(CATCHUP, 2, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == [("circled", 1)] and ring.buffered_bytes == 1
    ring.end_turn()
    assert owner.take() == [("send", b"b", ACTIVITY, [(A, 2, [], 0)])]
    ring.take_frame(b"b", frame(ACTIVITY, 2, RingEntry(A, 1, [b"y"], -1)))
    ring.take_frame(b"b", frame(ACTIVITY, 2, RingEntry(A, 2, [], 0)))
    ring.end_turn()
    assert owner.take() == [("circled", 1), ("send", b"b", ACTIVITY, [(A, 2, [], 1)])]
    assert ring.buffered_bytes == 0


def test_a_mirror_forwards_before_its_owner_is_told() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x", b"yy"], -1)))
    assert owner.take() == [
        ("send", b"c", ACTIVITY, [(A, 0, [b"x", b"yy"], -1)]),
        ("message", A, b"x"),
        ("message", A, b"yy"),
    ]
    assert ring.buffered_bytes == 3
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 2, [], 1)))
    assert owner.take() == [] and ring.buffered_bytes == 0
    ring.end_turn()
    assert owner.take() == [("send", b"c", ACTIVITY, [(A, 2, [], 1)])]


def test_what_is_known_is_not_forwarded_again() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    ring.end_turn()
    owner.take()
    for kind in (ACTIVITY, CATCHUP):
        ring.take_frame(b"a", frame(kind, 3, RingEntry(A, 0, [b"x"], -1)))
        ring.end_turn()
    assert owner.take() == []


def test_much_does_not_wait_for_the_end_of_the_turn() -> None:
    ring, owner = member(A, 2, A, B)
    owner.take()
    ring.broadcast(bytes(FLUSH_BYTES - 1))
    assert owner.take() == []
    ring.broadcast(b"x")
    assert [call[1:3] for call in owner.take()] == [(b"b", ACTIVITY)]
    ring.broadcast(bytes(FLUSH_BYTES - 1))
    assert owner.take() == []
    ring.end_turn()
    assert len(owner.take()) == 1
    ring.broadcast(bytes(FLUSH_BYTES - 1))
    assert owner.take() == []


def test_the_number_of_a_message_is_known_while_it_is_received() -> None:
    numbers: list[int] = []

    class Counting(Calls):
        def on_message(self, sender: MemberId, payload: bytes) -> None:
            numbers.append(ring.received(sender))

    ring = RingMember(B, Counting())
    ring.on_view(3, alive(A, B, C))
    assert ring.received(A) == -1
    ring.take_frame(b"a", frame(CATCHUP, 3, RingEntry(A, 4, [b"x", b"y"], 3)))
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 6, [b"", b"z"], 3)))
    assert numbers == [4, 5, 7] and ring.received(A) == 7


def test_an_owner_may_broadcast_whenever_it_is_called() -> None:
    class Answering(Calls):
        def on_message(self, sender: MemberId, payload: bytes) -> None:
            ring.broadcast(b"re: " + payload)

    owner = Answering()
    ring = RingMember(B, owner)
    ring.on_view(2, alive(A, B))
    ring.take_frame(b"a", frame(CATCHUP, 2, RingEntry(A, 0, [b"x"], -1)))
    ring.end_turn()
    assert owner.calls[-1] == ("send", b"a", ACTIVITY, [(B, 0, [b"re: x"], -1)])


# -- joining ---------------------------------------------------------------------------------------


def test_nothing_is_broadcast_before_the_state_is_there() -> None:
    ring, owner = member(B, 2, A, B)
    assert not ring.is_joined
    with pytest.raises(AssertionError):
        ring.broadcast(b"x")
    ring.end_turn()
    assert owner.take() == [("send", b"a", ASK, [B])]


def test_a_newcomer_passes_the_state_on_and_receives_what_is_pending() -> None:
    """M52; of senders that are no members any more it takes nothing."""
    ring, owner = member(B, 3, A, B, C)
    owner.take()
    pending = RingEntry(A, 4, [b"x"], 3)
    ring.take_frame(b"a", frame(CATCHUP, 3, pending, RingEntry(X, 0, [b"old"], -1)))
    assert owner.take() == [
        ("send", b"c", CATCHUP, [(B, 0, [], -1), (A, 4, [b"x"], 3)]),
        ("joined", [A, B, C]),
        ("message", A, b"x"),
    ]
    ring.broadcast(b"y")


def test_activity_before_the_state_is_ignored() -> None:
    ring, owner = member(B, 2, A, B)
    owner.take()
    ring.take_frame(b"a", frame(ACTIVITY, 2, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == []


def test_the_left_neighbour_answers_with_everything() -> None:
    ring, owner = member(A, 2, A, B)
    ring.broadcast(b"x")
    ring.end_turn()
    owner.take()
    asking, questions = member(B, 2, A, B)
    ring.take_frame(b"b", questions.frames[0][1])
    assert owner.take() == [("send", b"b", CATCHUP, [(A, 0, [b"x"], -1)])]
    asking.take_frame(b"a", owner.frames[-1][1])
    assert questions.seen("message") == [("message", A, b"x")]


def test_a_newcomer_without_state_passes_the_question_on() -> None:
    ring, owner = member(C, 4, B, C, D)
    owner.take()
    _, questions = member(D, 4, B, C, D)
    ring.take_frame(b"d", questions.frames[0][1])
    assert owner.take() == [("send", b"b", ASK, [D, C])]


def test_newcomers_among_themselves_begin_with_nothing() -> None:
    """All members with a state have died; a question that comes back shows it."""
    world = World(3)
    for place, name in enumerate(world.names):
        world.decide_join(name, place)
    for name in world.names[1:]:
        for _ in world.views:
            world.see_view(name)
    world.crash(b"n0")
    world.settle()
    assert [world.owners[id].joined_at >= 0 for id, _ in world.members] == [True, True]


def test_a_member_that_is_alone_begins_with_nothing() -> None:
    ring, owner = member(B, 2, A, B)
    owner.take()
    ring.on_view(3, [(A, False), (B, True)])
    assert owner.take() == [("joined", [A, B])]
    ring.end_turn()
    assert owner.take() == [("erase", A)]


# -- views -----------------------------------------------------------------------------------------


def test_a_new_right_neighbour_is_told_everything() -> None:
    ring, owner = member(A, 3, A, B, C)
    ring.broadcast(b"x")
    owner.take()
    ring.on_view(4, [(A, True), (B, False), (C, True)])
    assert owner.take() == [("send", b"c", CATCHUP, [(A, 0, [b"x"], -1)])]
    ring.on_view(5, [(A, True), (B, False), (C, True)])
    ring.end_turn()
    assert owner.take() == []


def test_a_skipped_view_may_have_had_another_neighbour() -> None:
    ring, owner = member(A, 2, A, B)
    owner.take()
    ring.on_view(4, alive(A, B))
    assert owner.take() == [("send", b"b", CATCHUP, [(A, 0, [], -1)])]


def test_births_and_deaths_are_reported_by_the_list_of_members() -> None:
    ring, owner = member(A, 3, A, B, C)
    owner.take()
    ring.on_view(4, [(A, True), (B, False), (C, True)])
    ring.on_view(5, [(A, True), (D, True), (B, False), (C, True)])
    ring.on_view(6, alive(A, D, C))
    assert owner.seen("changed") == [("changed", [D], []), ("changed", [], [B])]


def test_frames_of_others_than_the_left_neighbour_are_ignored() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"c", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    ring.take_frame(b"x", frame(CATCHUP, 3, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == []


def test_frames_from_before_the_neighbour_was_one_are_ignored() -> None:
    ring, owner = mirror_of_three()
    ring.on_view(4, [(A, False), (B, True), (C, True)])
    owner.take()
    ring.take_frame(b"c", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == []
    ring.take_frame(b"c", frame(ACTIVITY, 4, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == []
    ring.take_frame(b"c", frame(CATCHUP, 4, RingEntry(A, 0, [b"x"], -1)))
    assert ("message", A, b"x") in owner.take()


def test_a_state_from_an_older_view_is_asked_for_again() -> None:
    """A newcomer whose first view comes late knows its left neighbour for a shorter time."""
    ring, owner = member(B, 3, A, B, C)
    owner.take()
    ring.take_frame(b"a", frame(CATCHUP, 2, RingEntry(A, 0, [b"x"], -1)))
    assert owner.take() == [("send", b"a", ASK, [B])]


def test_an_older_frame_of_the_same_neighbour_counts() -> None:
    ring, owner = mirror_of_three()
    ring.on_view(4, alive(A, B, C, D))
    owner.take()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    assert owner.seen("message") == [("message", A, b"x")]


def test_a_newer_frame_waits_for_its_view() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 5, RingEntry(A, 0, [b"x"], -1)))
    ring.on_view(4, alive(A, B, C, D))
    assert owner.seen("message") == []
    ring.on_view(5, alive(A, B, C))
    assert owner.seen("message") == [("message", A, b"x")]


def test_frames_that_found_no_room_are_asked_for() -> None:
    ring, owner = mirror_of_three()
    big = bytes(EARLY_BYTES_MAX)
    ring.take_frame(b"a", frame(ACTIVITY, 4, RingEntry(A, 0, [big], -1)))
    ring.on_view(4, alive(A, B, C))
    assert owner.take() == [("send", b"a", ASK, [B]), ("send", b"c", CATCHUP, [(B, 0, [], -1)])]
    ring.take_frame(b"a", frame(ACTIVITY, 4, RingEntry(A, 1, [b"y"], -1)))
    assert owner.take() == []
    ring.take_frame(b"a", frame(CATCHUP, 4, RingEntry(A, 0, [big, b"y"], -1)))
    # No comparison of large payloads: the report of a failure would take minutes.
    assert [len(call[2]) for call in owner.seen("message")] == [len(big), 1]


def test_a_waiting_frame_that_contradicts_is_asked_for_again() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 4, RingEntry(A, 7, [b"x"], -1)))
    ring.on_view(4, alive(A, B, C))
    assert owner.take() == [("send", b"a", ASK, [B])]


def test_membership_is_lost_once() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    ring.broadcast(b"y")
    owner.take()
    ring.on_view(4, [(A, True), (B, False), (C, True)])
    assert owner.take() == [("lost",)]
    assert not ring.is_joined and ring.buffered_bytes == 0
    ring.on_view(5, alive(A, C))
    ring.take_frame(b"a", frame(CATCHUP, 4, RingEntry(A, 1, [b"x"], -1)))
    ring.on_link_up(b"c")
    ring.end_turn()
    assert owner.take() == []


# -- links -----------------------------------------------------------------------------------------


def test_a_new_link_to_the_right_begins_with_everything() -> None:
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    owner.take()
    ring.on_link_up(b"x")
    ring.on_link_up(b"a")
    assert owner.take() == []
    ring.on_link_up(b"c")
    assert owner.take() == [("send", b"c", CATCHUP, [(B, 0, [], -1), (A, 0, [b"x"], -1)])]


def test_a_newcomer_asks_again_on_a_new_link_to_the_left() -> None:
    ring, owner = member(B, 3, A, B, C)
    owner.take()
    ring.on_link_up(b"c")
    assert owner.take() == []
    ring.on_link_up(b"a")
    assert owner.take() == [("send", b"a", ASK, [B])]


@pytest.mark.parametrize(
    "entry",
    [
        RingEntry(A, 1, [b"y"], -1),
        RingEntry(A, 1, [], 0),
        RingEntry(B, 0, [b"y"], -1),
    ],
    ids=["gap", "acked before it came", "own, never sent"],
)
def test_a_frame_that_contradicts_changes_nothing(entry: RingEntry) -> None:
    ring, owner = mirror_of_three()
    with pytest.raises(MalformedRingFrame):
        ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(C, 0, [b"z"], -1), entry))
    ring.end_turn()
    assert owner.take() == [] and ring.buffered_bytes == 0


# -- deaths ----------------------------------------------------------------------------------------


def settled(prepare: Callable[[World], None], nodes: int = 4) -> World:
    world = World(nodes)
    world.create(world.names)
    for name in world.names:
        world.see_view(name)
    world.settle()
    world.step += 1
    prepare(world)
    world.settle()
    return world


def texts(world: World, sender: MemberId) -> dict[bytes, list[int]]:
    """The broadcasts of a sender that the living members have received."""
    return {
        id.node: list(world.owners[id].arrived.get(sender, {}))
        for id, is_alive in world.members
        if is_alive and id != sender
    }


def test_what_reached_one_survivor_of_a_dead_sender_reaches_all() -> None:
    def prepare(world: World) -> None:
        world.broadcast(b"n0")
        world.end_turn(b"n0")
        world.deliver(b"n0", b"n1")
        world.link_down(b"n1", b"n2")
        world.crash(b"n0")

    world = settled(prepare)
    assert texts(world, MemberId(1, b"n0")) == {b"n1": [0], b"n2": [0], b"n3": [0]}


def test_two_deaths_in_a_row_lose_nothing_that_survived() -> None:
    def prepare(world: World) -> None:
        world.broadcast(b"n0")
        world.end_turn(b"n0")
        world.deliver(b"n0", b"n1")
        world.deliver(b"n1", b"n2")
        world.crash(b"n0")
        world.crash(b"n1")

    world = settled(prepare)
    assert texts(world, MemberId(1, b"n0")) == {b"n2": [0], b"n3": [0]}


def test_newcomers_beside_a_dead_sender_get_what_others_know() -> None:
    """The first of them stands in for the sender, but knows less than members further right.

    What it learns when its round is over has still to reach the other newcomer: another round.
    """
    n0, n1, n2, n3, n4 = (b"n%d" % number for number in range(5))
    sender = MemberId(1, n0)
    world = World(5)
    world.create([n0, n1, n2])
    world.settle()
    world.broadcast(n0)
    world.end_turn(n0)
    world.deliver(n0, n1)
    # The broadcast is on its way from n1 to n2. Newcomers, in ring order: n3, n4.
    world.decide_join(n4, 0)
    world.decide_join(n3, 0)
    world.crash(n0)
    world.decide_death(sender)
    for name in (n1, n2, n3, n4):
        for _ in range(3):
            world.see_view(name)
    assert [id.node for id, _ in world.members] == [n0, n3, n4, n1, n2]

    for source, target in ((n2, n3), (n3, n4), (n3, n4), (n4, n1), (n1, n2)):
        world.step += 1
        world.end_turn(source)
        while (source, target) in world.loaded_pairs():
            world.deliver(source, target)
    ring = world.processes[n3].ring
    assert ring is not None and ring.view is not None
    assert ring.view.living[ring.me].aliases == [sender]
    assert ring.received(sender) == -1 and not world.erasable
    world.end_turn(n2)
    while (n2, n3) in world.loaded_pairs():
        world.deliver(n2, n3)
    assert ring.received(sender) == 0 and not world.erasable
    world.settle()
    assert texts(world, sender) == {n1: [0], n2: [0], n3: [0], n4: [0]}


def test_a_dead_sender_is_acked_without_waiting_for_the_group() -> None:
    """Memory is freed as soon as everyone has its broadcasts, even if the store is away."""
    ring, owner = mirror_of_three()
    ring.take_frame(b"a", frame(ACTIVITY, 3, RingEntry(A, 0, [b"x"], -1)))
    ring.on_view(4, [(A, False), (B, True), (C, True)])
    ring.end_turn()
    owner.take()
    known = (RingEntry(A, 0, [b"x"], -1), RingEntry(B, 0, [b""], -1))
    ring.take_frame(b"c", frame(CATCHUP, 4, *known))
    assert owner.take() == [("erase", A)] and ring.buffered_bytes == 0
    ring.end_turn()
    assert owner.take() == [("send", b"c", ACTIVITY, [(B, 1, [], 0), (A, 1, [], 0)])]


def test_a_request_to_erase_is_repeated_in_a_new_view() -> None:
    ring, owner = member(A, 2, A, B)
    ring.on_view(3, [(A, True), (B, False)])
    ring.end_turn()
    assert owner.seen("erase") == [("erase", B)]
    ring.on_view(4, [(A, True), (B, False)])
    ring.end_turn()
    assert owner.seen("erase") == [("erase", B)]
    ring.on_view(5, alive(A))
    ring.end_turn()
    assert owner.take() == [("changed", [], [B])]


def test_a_node_that_joins_again_is_another_member() -> None:
    def prepare(world: World) -> None:
        world.broadcast(b"n1")
        world.end_turn(b"n1")
        world.deliver(b"n1", b"n2")
        world.crash(b"n1")
        world.start(b"n1")
        world.decide_join(b"n1", 0)
        for name in world.names:
            world.see_view(name)
        world.broadcast(b"n0")

    world = settled(prepare)
    again = world.living_on(b"n1")
    assert again is not None and again.version == 5
    assert texts(world, MemberId(2, b"n1"))[b"n3"] == [0]
    assert world.owners[again].joined_at >= 0
