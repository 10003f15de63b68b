"""The disk monitor measures at the right intervals, informs the broker, and survives errors."""

import asyncio
from pathlib import Path

import pytest

from tests.support.awaiting import eventually_in_loop
from tests.support.brokers.memory_broker import MemoryBroker
from warrenmq.server.resources import disk_monitor
from warrenmq.server.resources.disk_monitor import DiskMonitor, free_bytes, interval_ms

GB = 10**9


@pytest.mark.parametrize(
    ("free", "limit", "expected"),
    [
        (0, 1, 10_000),  # an alarm is on: the longest interval
        (50_000_000, 50_000_000, 100),
        (60_000_000, 50_000_000, 100),
        (2 * GB, 1 * GB, 2_000),
        (500_000_000, 0, 1_000),
        (1000 * GB, 50_000_000, 10_000),
    ],
)
def test_the_less_is_free_the_sooner_it_looks_again(free: int, limit: int, expected: int) -> None:
    assert interval_ms(free, limit) == expected


def test_free_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    assert free_bytes(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        free_bytes(tmp_path / "missing")


class Measured:
    """A disk that returns or raises each of `results` once, then the last one always."""

    def __init__(self, *results: int | OSError) -> None:
        self.results = list(results)
        self.looks = 0

    def __call__(self) -> int:
        result = self.results[min(self.looks, len(self.results) - 1)]
        self.looks += 1
        if isinstance(result, OSError):
            raise result
        return result


def run(measure: Measured, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the free bytes that the broker knows after the first measurement and after several."""
    broker = MemoryBroker().broker
    broker.set_disk_free_limit(100, 0, 0)
    monkeypatch.setattr(disk_monitor, "INTERVAL_MIN_MS", 1)
    monkeypatch.setattr(disk_monitor, "INTERVAL_MAX_MS", 1)
    known: list[int] = []

    async def look() -> None:
        monitor = DiskMonitor(asyncio.get_running_loop(), broker, lambda: 7, measure)
        await monitor.start()
        known.append(broker.alarms.disk_free_bytes)
        # A measurement begins only after the broker has the result of the one before.
        await eventually_in_loop(lambda: measure.looks > 5, "more looks")
        known.append(broker.alarms.disk_free_bytes)
        monitor.stop()
        await asyncio.sleep(0.01)

    asyncio.run(look())
    return known


def test_the_first_look_is_before_the_start_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(Measured(5, 7), monkeypatch) == [5, 7]


def test_a_disk_that_does_not_answer_leaves_what_was_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(Measured(5, OSError(5, "Input/output error")), monkeypatch) == [5, 5]
    # The repeated error gives one log line.
    assert [record.getMessage() for record in caplog.records if record.name == "warren.disk"] == [
        "free disk space cannot be determined: [Errno 5] Input/output error"
    ]
