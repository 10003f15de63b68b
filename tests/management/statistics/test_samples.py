"""Slots for samples: bounded, free again after an hour, and never of two figures at a time."""

from warrenmq.management.statistics.retention import Resolution, Retention
from warrenmq.management.statistics.samples import NO_SLOT, Samples

TICK_MS = 5_000
HOUR = Retention((Resolution(TICK_MS, 10), Resolution(20_000, 5)), "f", 512)


class Owner:
    """Has one figure."""

    def __init__(self) -> None:
        self.slot = NO_SLOT

    def lose_slot(self, figure: int, tick_ms: int) -> None:
        self.slot = NO_SLOT


def test_figures_beyond_the_bound_wait_for_a_slot_that_is_idle() -> None:
    samples = Samples(HOUR)
    now_ms = 1_000_000
    samples.begin_tick(now_ms)
    owners = [Owner() for _ in range(513)]
    for owner in owners:
        owner.slot = samples.slot_of(owner, 0)
        if owner.slot != NO_SLOT:
            samples.add(owner.slot, 3)
    assert owners[-1].slot == NO_SLOT
    assert len({owner.slot for owner in owners}) == 513
    # All but the first stay as they are, for longer than samples are kept.
    first_slot = owners[0].slot
    for _ in range(30):
        now_ms += TICK_MS
        samples.begin_tick(now_ms)
        samples.add(first_slot, 1)
    assert [owner.slot for owner in owners] == [first_slot] + [NO_SLOT] * 512
    slot = samples.slot_of(owners[-1], 0)
    samples.add(slot, 5)
    for ring in samples.rings:
        numbers = range(ring.newest - ring.resolution.kept, ring.newest + 1)
        since_ms = samples.since_ms[slot]
        assert sum([ring.difference(each, slot, since_ms) for each in numbers]) == 5


def test_a_clock_that_is_set_back_a_long_way_begins_anew() -> None:
    samples = Samples(HOUR)
    samples.begin_tick(9_000_000)
    samples.begin_tick(1_000_000)
    assert [ring.newest for ring in samples.rings] == [200, 50]
    assert [ring.tick_ms(ring.newest) for ring in samples.rings] == [1_000_000, 1_000_000]
    # A little back is nothing.
    samples.begin_tick(999_000)
    assert samples.rings[0].newest == 200
