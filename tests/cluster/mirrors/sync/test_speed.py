"""The speed of a synchronisation is that of its last seconds."""

from warrenmq.cluster.mirrors.sync.speed import SAMPLE_MS, SyncSpeed


def test_the_speed_is_that_of_the_last_seconds() -> None:
    speed = SyncSpeed()
    speed.begin(1000, 50, 5000)
    assert speed.by_second() == (0, 0)
    speed.note(1500, 100, 10_000)
    assert speed.by_second() == (100, 10_000)
    fast_until_ms = 1000 + SAMPLE_MS
    speed.note(fast_until_ms, 250, 25_000)
    assert speed.by_second() == (100, 10_000)
    # Nothing goes on any more.
    speed.note(fast_until_ms + SAMPLE_MS, 250, 25_000)
    assert speed.by_second() == (0, 0)


def test_a_synchronisation_that_goes_on_later_is_measured_anew() -> None:
    speed = SyncSpeed()
    speed.begin(1000, 0, 0)
    speed.note(2000, 1000, 10_000)
    speed.begin(60_000, 1000, 10_000)
    speed.note(61_000, 1200, 12_000)
    assert speed.by_second() == (200, 2000)
