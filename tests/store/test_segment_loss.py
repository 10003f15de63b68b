"""Segments whose file cannot be read, or is gone, under a running store: patience, lost+found, and another file."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.engine_driver import EngineDriver, Loaded
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.message import Position
from warren.store.segment_loss import give_up_segment


@pytest.fixture
def driver(tmp_path: Path) -> EngineDriver:
    return EngineDriver(tmp_path)


def fill(driver: EngineDriver, count: int, *queue_ids: int, size: int = 20) -> None:
    for _ in range(count):
        driver.publish(size, *queue_ids)
    driver.commit()


def fail_reads(monkeypatch: pytest.MonkeyPatch, path: str, fails: Callable[[], bool]) -> None:
    """Reads of `path` give EIO as long as `fails` says so."""
    read = LocalFileSystem.read

    def broken(files: LocalFileSystem, name: str, offset: int, size: int) -> bytes:
        if name == path and fails():
            raise OSError(errno.EIO, "broken", name)
        return read(files, name, offset, size)

    monkeypatch.setattr(LocalFileSystem, "read", broken)


def loaded_in_time(driver: EngineDriver, queue_id: int, seconds: int = 8) -> list[Position]:
    """What the index of a queue delivers in so many seconds."""
    found: list[Position] = []
    log = driver.queues[queue_id].log
    next_seq = 0
    ends_ms = driver.now_ms + seconds * 1000
    while next_seq < log.indexed_upto:
        loaded = Loaded()
        driver.queues[queue_id].load(next_seq, log.indexed_upto, 1 << 40, 1 << 40, loaded)
        while loaded.next_seq < 0:
            assert driver.now_ms < ends_ms
            driver.commit()
        next_seq = loaded.next_seq
        found.extend(loaded.positions)
    return found


def seqs(positions: list[Position]) -> list[int]:
    return [int(position.seq) for position in positions]


def lost_and_found(driver: EngineDriver) -> list[Path]:
    directory = driver.path / "lost+found"
    return sorted(directory.iterdir()) if directory.exists() else []


def test_a_segment_that_cannot_be_read_for_four_seconds_costs_nothing(
    driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(driver, 20, 1, 2)
    driver.index(1)
    driver.index(2)
    ends_ms = driver.now_ms + 4000
    fail_reads(monkeypatch, "queues/1/1.idx", lambda: driver.now_ms < ends_ms)
    waiting = Loaded()
    driver.queues[1].load(8, 16, 8, 1 << 40, waiting)
    driver.run_jobs()
    # Nobody else waits.
    assert seqs(loaded_in_time(driver, 2, 1)) == [*range(1, 21)]
    while waiting.next_seq < 0:
        driver.commit()
    assert seqs(waiting.positions) == [*range(8, 16)]
    assert ends_ms <= driver.now_ms < ends_ms + 1100
    assert (driver.owner.lost, lost_and_found(driver)) == (0, [])


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_stays_unreadable_is_put_aside(
    driver: EngineDriver, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """T32: whether it is appended to (the last one) or not; what is in memory goes to the file in its place."""
    fill(driver, 20, 1)
    held = [driver.positions[1][seq] for seq in (9, 12, 18)]
    driver.index(1)
    driver.checkpoint()
    driver.owner.in_memory = list(held)
    path = driver.path / "queues" / "1" / f"{number}.idx"
    before, inode = path.read_bytes(), path.stat().st_ino
    fail_reads(monkeypatch, f"queues/1/{number}.idx", lambda: path.exists() and path.stat().st_ino == inode)
    in_file = range(8, 16) if number == 1 else range(16, 21)
    left = [seq for seq in range(1, 21) if seq not in in_file or seq in (9, 12, 18)]
    assert seqs(loaded_in_time(driver, 1)) == left
    (kept,) = lost_and_found(driver)
    assert (kept.name, kept.read_bytes()) == (f"queues-1-{number}.idx", before)
    assert driver.owner.lost == driver.store.lost_count == 20 - len(left)
    # The queue goes on, and what is left is found again: here and after a crash.
    fill(driver, 10, 1)
    driver.index(1)
    left += range(21, 31)
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == left
    assert driver.owner.lost == 0
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    assert lost_and_found(driver) == [kept]


def test_appends_on_their_way_to_a_segment_that_is_put_aside_are_not_lost(driver: EngineDriver) -> None:
    """Those that were handed out before it was given up, and those after it."""
    fill(driver, 18, 1)
    driver.index(1)
    for _ in range(4):
        driver.publish(20, 1)
    driver.commit()
    queue = driver.queues[1]
    index = queue.log.index
    assert index is not None
    queue.index([driver.positions[1].pop(seq) for seq in (19, 20)])
    give_up_segment(queue, index.segments[-1], None)
    queue.index([driver.positions[1].pop(seq) for seq in (21, 22)])
    driver.run_jobs()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), *range(19, 23)]
    assert driver.owner.lost == 3
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), *range(19, 23)]
