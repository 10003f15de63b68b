"""Random joins, deaths, losses and delays: the ring keeps its promises (T4).

The checks are those of `world.py`. `test_a_storm_keeps_the_promises` draws long histories by seed;
the state machine draws short ones that shrink.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.cluster.ring.world import World
from tests.support.explored import explored_seeds
from warrenmq.cluster.ring.member import FLUSH_BYTES

SIZES = (0, 0, 0, 10, FLUSH_BYTES)
SEEDS = 300
EXPLORED = 150


class Storm:
    """The steps of a history, with their frequencies for this seed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(random.choice((2, 3, 3, 4, 5, 6)))
        names = self.world.names
        if random.random() < 0.8:
            self.world.create(names[: random.randint(1, len(names))])
            if random.random() < 0.7:
                self.world.settle()
        choice = random.choice
        self.steps: dict[Callable[[], None], float] = {
            self.broadcast: choice((4, 10, 20)),
            self.end_turn: 3,
            self.deliver: choice((6, 15, 30)),
            self.see_view: choice((3, 8)),
            self.skip_views: choice((0, 0, 1)),
            self.link_down: choice((0, 0.3, 1, 2)),
            self.link_up: 3,
            self.crash: choice((0.1, 0.3, 0.3, 1)),
            self.start: 1,
            self.join: choice((0.3, 1, 2)),
            self.die: choice((0.3, 1, 3)),
            self.declare_dead: choice((0, 0.2)),
            self.erase: 2,
        }

    def run(self, count: int) -> None:
        for step in self.random.choices(list(self.steps), list(self.steps.values()), k=count):
            self.world.step += 1
            step()
        self.world.settle()

    def running(self) -> bytes | None:
        return self.random.choice(list(self.world.processes) or [None])

    def broadcast(self) -> None:
        if name := self.running():
            self.world.broadcast(name, self.random.choice(SIZES))

    def end_turn(self) -> None:
        if name := self.running():
            self.world.end_turn(name)

    def deliver(self) -> None:
        pairs = self.world.loaded_pairs()
        if pairs:
            pair = self.random.choice(pairs)
            self.world.deliver(*pair)
            if pair[1] in self.world.processes and self.random.random() < 0.5:
                self.world.end_turn(pair[1])

    def see_view(self) -> None:
        if name := self.running():
            self.world.see_view(name)

    def skip_views(self) -> None:
        if name := self.running():
            self.world.see_view(name, skips=True)

    def link_down(self) -> None:
        self.world.link_down(*self.random.sample(self.world.names, 2))

    def link_up(self) -> None:
        pairs = self.world.pairs_without_link()
        if pairs:
            self.world.link_up(*self.random.choice(pairs))

    def crash(self) -> None:
        if name := self.running():
            self.world.crash(name)

    def start(self) -> None:
        stopped = self.world.stopped()
        if stopped:
            self.world.start(self.random.choice(stopped))

    def join(self) -> None:
        names = self.world.able_to_join()
        if names:
            name = self.random.choice(names)
            skipped = self.random.choice((0, 0, 1)) if self.world.views else 0
            self.world.decide_join(name, self.random.randrange(6), skipped)

    def die(self) -> None:
        members = self.world.crashed_members()
        if members:
            self.world.decide_death(self.random.choice(members))

    def declare_dead(self) -> None:
        members = [id for id, is_alive in self.world.members if is_alive]
        if members:
            self.world.decide_death(self.random.choice(members))

    def erase(self) -> None:
        if self.world.erasable:
            self.world.decide_erase(self.random.choice(sorted(self.world.erasable)))


@pytest.mark.parametrize("seeds", [range(SEEDS), explored_seeds(EXPLORED)], ids=["fixed", "new"])
def test_a_storm_keeps_the_promises(seeds: range) -> None:
    for seed in seeds:
        random = Random(seed)
        try:
            Storm(random).run(random.choice((40, 80, 200, 400)))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


class RingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(0)

    @initialize(nodes=st.integers(2, 5), members=st.integers(0, 5))
    def begin(self, nodes: int, members: int) -> None:
        self.world = World(nodes)
        if members > 0:
            self.world.create(self.world.names[:members])
        for name in self.world.names:
            self.world.see_view(name)

    def running(self, number: int) -> bytes:
        processes = list(self.world.processes)
        return processes[number % len(processes)]

    def has_running(self) -> bool:
        return len(self.world.processes) > 0

    @precondition(has_running)
    @rule(number=st.integers(0, 4), size=st.sampled_from(SIZES), ends=st.booleans())
    def broadcast(self, number: int, size: int, ends: bool) -> None:
        self.world.step += 1
        self.world.broadcast(self.running(number), size)
        if ends:
            self.world.end_turn(self.running(number))

    @precondition(has_running)
    @rule(number=st.integers(0, 4))
    def end_turn(self, number: int) -> None:
        self.world.step += 1
        self.world.end_turn(self.running(number))

    @precondition(lambda self: self.world.loaded_pairs())
    @rule(number=st.integers(0, 20), count=st.integers(1, 4))
    def deliver(self, number: int, count: int) -> None:
        self.world.step += 1
        pairs = self.world.loaded_pairs()
        source, target = pairs[number % len(pairs)]
        for _ in range(count):
            self.world.deliver(source, target)
        if target in self.world.processes:
            self.world.end_turn(target)

    @precondition(has_running)
    @rule(number=st.integers(0, 4), skips=st.booleans())
    def see_view(self, number: int, skips: bool) -> None:
        self.world.step += 1
        self.world.see_view(self.running(number), skips)

    @precondition(has_running)
    @rule(number=st.integers(0, 4), other=st.integers(1, 4))
    def lose_link(self, number: int, other: int) -> None:
        """Frames in flight are lost; at once there is a new link."""
        self.world.step += 1
        one, two = self.running(number), self.running(number + other)
        if one != two:
            self.world.link_down(one, two)
            self.world.link_up(one, two)

    @precondition(has_running)
    @rule(number=st.integers(0, 4), is_decided=st.booleans())
    def crash(self, number: int, is_decided: bool) -> None:
        self.world.step += 1
        name = self.running(number)
        member = self.world.living_on(name)
        self.world.crash(name)
        if is_decided and member is not None:
            self.world.decide_death(member)

    @precondition(lambda self: self.world.stopped())
    @rule(number=st.integers(0, 4))
    def start(self, number: int) -> None:
        self.world.step += 1
        stopped = self.world.stopped()
        self.world.start(stopped[number % len(stopped)])

    @precondition(lambda self: self.world.able_to_join())
    @rule(number=st.integers(0, 4), place=st.integers(0, 4))
    def join(self, number: int, place: int) -> None:
        self.world.step += 1
        names = self.world.able_to_join()
        self.world.decide_join(names[number % len(names)], place)

    @precondition(lambda self: self.world.crashed_members())
    @rule(number=st.integers(0, 4))
    def die(self, number: int) -> None:
        self.world.step += 1
        members = self.world.crashed_members()
        self.world.decide_death(members[number % len(members)])

    @precondition(lambda self: self.world.erasable)
    @rule()
    def erase(self) -> None:
        self.world.step += 1
        self.world.decide_erase(min(self.world.erasable))

    def teardown(self) -> None:
        self.world.step += 1
        self.world.settle()


TestRing = RingMachine.TestCase
TestRing.settings = settings(max_examples=60, stateful_step_count=50)
