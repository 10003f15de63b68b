"""The end of a run is decided on snapshots alone."""

import pytest

from warrenmq.perf.options import PerfOptions
from warrenmq.perf.progress import SETTLE_NS_MAX, Progress
from warrenmq.perf.snapshot import Snapshot, decode_snapshot

SECOND = 1_000_000_000


def tick(progress: Progress, seconds: float, **counters: int) -> None:
    """Update with the snapshots of two processes, of which only the first has counters."""
    snapshot = Snapshot()
    snapshot.counters.update(counters)
    progress.update([snapshot, Snapshot()], int(seconds * SECOND))


def started(options: PerfOptions) -> Progress:
    progress = Progress(options)
    progress.start(0)
    return progress


def is_over(progress: Progress) -> bool:
    return progress.is_over


def test_time_ends_producers_then_the_run() -> None:
    progress = started(PerfOptions(time=5.0))
    tick(progress, 4.9, publishers_open=1, consumers_open=1, published=10)
    assert progress.producers_ended_ns == 0
    tick(progress, 5.0, publishers_open=1, consumers_open=1, published=20)
    assert progress.producers_ended_ns == 5 * SECOND
    assert not is_over(progress)
    tick(progress, 5.1, consumers_open=1, published=21, received=3)
    assert is_over(progress)
    assert not progress.is_drained()


def test_drain_waits_for_what_was_routed() -> None:
    progress = started(PerfOptions(time=5.0, drain=10.0))
    tick(progress, 5.0, publishers_open=1, consumers_open=1)
    tick(progress, 5.1, consumers_open=1, published=20, returned=3, nacked=2, received=14)
    assert not is_over(progress)
    tick(progress, 5.2, consumers_open=1, published=20, returned=3, nacked=2, received=15)
    assert is_over(progress)
    assert progress.is_drained()


def test_drain_ends_at_its_time() -> None:
    progress = started(PerfOptions(time=5.0, drain=10.0))
    tick(progress, 5.0, publishers_open=1, consumers_open=1)
    tick(progress, 14.9, consumers_open=1, published=20)
    assert not is_over(progress)
    tick(progress, 15.0, consumers_open=1, published=20)
    assert is_over(progress)


def test_confirms_owed_are_waited_for() -> None:
    progress = started(PerfOptions(time=5.0, consumers=0))
    tick(progress, 5.0, publishers_open=1, unsettled=5)
    tick(progress, 5.1, unsettled=1)
    assert not is_over(progress)
    tick(progress, 5.0 + SETTLE_NS_MAX / SECOND, unsettled=1)
    assert is_over(progress)


def test_producers_limits_end_a_run_without_time() -> None:
    progress = started(PerfOptions(pmessages=20))
    tick(progress, 1.0, publishers_open=1, consumers_open=1)
    assert progress.producers_ended_ns == 0
    tick(progress, 2.0, consumers_open=1, published=20, received=19)
    tick(progress, 2.1, consumers_open=1, published=20, received=19)
    assert not is_over(progress)
    tick(progress, 2.2, consumers_open=1, published=20, received=20)
    assert is_over(progress)


def test_consumers_limits_end_a_run_of_unlimited_producers() -> None:
    progress = started(PerfOptions(cmessages=20))
    tick(progress, 2.0, publishers_open=1, published=40, received=20)
    assert progress.producers_ended_ns > 0
    tick(progress, 2.1, published=40, received=20)
    assert is_over(progress)


@pytest.mark.parametrize(
    ("open_consumers", "seconds", "expected"), [(1, 4.0, False), (0, 4.0, True), (1, 5.0, True)]
)
def test_consumers_alone(open_consumers: int, seconds: float, expected: bool) -> None:
    progress = started(PerfOptions(producers=0, cmessages=20, time=5.0))
    tick(progress, seconds, consumers_open=open_consumers)
    assert is_over(progress) == expected


def test_intervals_are_differences() -> None:
    progress = started(PerfOptions(interval=1.0))
    rates = []
    for number, published in enumerate([10, 30, 30], start=1):
        snapshot = Snapshot()
        snapshot.counters.update(published=published, publishers_open=1, consumers_open=1)
        snapshot.latency.record(1000 * number, number)
        interval = progress.update([decode_snapshot(snapshot.encode())], number * SECOND)
        assert interval is not None
        rates.append((interval.published_rate, int(interval.latency.count)))
    assert rates == [(10.0, 1), (20.0, 2), (0.0, 3)]
    assert progress.latency.count == 6
