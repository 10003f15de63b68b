"""Random histories of three replicas, with lost links, kills, a store that answers late or never.

At the end all nodes run and reach each other. Then nothing that was confirmed is lost (I1), the
order is that of the publishes, and the copies are equal.
"""

from random import Random

import pytest

from tests.cluster.mirrors.replica.replica_world import World
from warrenmq.cluster.groups.transitions import PROMOTED, UNSYNCED

HISTORIES = 200
STEPS = 60


class RandomHistory:
    """One history, decided by `seed`."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        # Some histories have no restarts: flags of redelivery are exact then.
        self.restarts = self.random.random() < 0.5
        self.log: list[str] = []

    def run(self) -> None:
        self.world.run(self.random.randrange(4))
        for _ in range(STEPS):
            self.step()
            self.world.check()
        self.world.heal()
        self.world.run(5)
        self.world.check()
        self.world.check_rest()
        self.check_copies()
        self.check_flags()
        rest = set(self.world.drain())
        assert self.world.seen.confirmed <= rest | self.world.seen.acked.keys()

    def step(self) -> None:
        world, random = self.world, self.random
        names = list(world.nodes)
        node = world.nodes[random.choice(names)]
        masters = [each for each in world.nodes.values() if each.is_master]
        kind = random.random()
        if kind < 0.2 and masters:
            random.choice(masters).publish(random.randint(1, 4))
        elif kind < 0.28 and masters:
            master = random.choice(masters)
            master.take(random.randint(1, 3))
        elif kind < 0.33:
            node.ack(random.randint(1, 3))
        elif kind < 0.36:
            node.requeue(random.randint(0, 2))
        elif kind < 0.6:
            pairs = list(world.links)
            for _ in range(random.randint(1, 8)):
                if pairs:
                    world.deliver(*random.choice(pairs))
        elif kind < 0.7:
            node.end_turn()
        elif kind < 0.75:
            node.commit()
        elif kind < 0.8:
            world.decide(is_answer_lost=random.random() < 0.1)
        elif kind < 0.85:
            node.follow()
        elif kind < 0.9:
            self.world.run(random.randint(1, 3), random.choice([1, 50, 500]))
        elif kind < 0.94:
            world.clock.advance(random.choice([10, 500, 2000, 5000]))
            for each in world.nodes.values():
                if each.is_running:
                    each.replica.check()
        else:
            self.disturb(node.name)

    def disturb(self, name: bytes) -> None:
        world, random = self.world, self.random
        node = world.nodes[name]
        other = random.choice([each for each in world.nodes if each != name])
        kind = random.random()
        if kind < 0.25:
            world.cut(name, other)
        elif kind < 0.5:
            world.link(name, other)
        elif kind < 0.6:
            world.cut_all(name)
        elif kind < 0.75:
            node.is_cut_off = not node.is_cut_off
        elif self.restarts and node.is_running:
            node.kill()
        elif not node.is_running:
            node.restart()

    def check_copies(self) -> None:
        """All copies are equal in messages, order and flags (C9), with one exception.

        Deliveries and acks wait for no mirror (5.4). So the last ones of a master that is deposed
        may be known to some mirrors, and not to the next master. That one has the messages still,
        and delivers them again (C6). A mirror that has settled one does not get it back: copies
        grow at their ends only, and to begin anew for a message that nobody misses would cost a
        whole copy. If that mirror leads next, the message is gone, as its consumer wanted it to be.
        A mirror that knows of a delivery keeps the mark: it is true, and the message comes as
        redelivered should that mirror lead. What the present master has done is no excuse, and no
        copy has a message, or lacks a mark, that the master does not.
        """
        seen, epoch = self.world.seen, self.world.group.epoch
        rows = {
            name: {seq: (number, redelivered) for seq, number, redelivered in node.has()}
            for name, node in self.world.nodes.items()
        }
        of_master = rows[self.world.master.name]
        for name, own in rows.items():
            assert own.keys() <= of_master.keys(), f"{own.keys() - of_master.keys()} at {name!r}"
            for seq, (number, is_marked) in of_master.items():
                if seq not in own:
                    assert seen.acked.get(number, epoch) < epoch, f"{number} not at {name!r}"
                elif own[seq] != (number, is_marked):
                    assert own[seq] == (number, True), f"{number} differs at {name!r}"
                    assert seen.delivered.get(number, epoch) < epoch, f"{number} marked at {name!r}"

    def check_flags(self) -> None:
        """A message comes again marked, and no other one is, unless a master has died (F18)."""
        delivered: set[int] = set()
        for number, redelivered in self.world.seen.deliveries:
            assert redelivered or number not in delivered, f"{number} comes again unmarked"
            delivered.add(number)
        reasons = {group.reason for group in self.world.history}
        if self.world.restarts > 0 or reasons & {PROMOTED, UNSYNCED}:
            return
        for node in self.world.nodes.values():
            marked = {number for _, number, redelivered in node.has() if redelivered}
            assert marked <= delivered, f"{sorted(marked - delivered)} at {node.name!r}"


@pytest.mark.parametrize("part", range(4))
def test_random_histories(part: int) -> None:
    for seed in range(part, HISTORIES, 4):
        try:
            RandomHistory(seed).run()
        except Exception as error:  # whatever it is, the report names the seed
            raise AssertionError(f"history {seed}") from error
