"""The flusher on real files, with a disk that fails when told to: the calls it makes are replaced one at a time."""

import errno
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.journal_driver import JournalDriver
from warren.store.disk import flusher as flusher_module
from warren.store.disk.files import journal_path
from warren.store.disk.flusher import Flusher, FlushJob


class FailingOs:
    """`os` as the flusher sees it; `faults` by name of call, each used once."""

    def __init__(self) -> None:
        self.faults: dict[str, list[Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        if self.faults.get(name):
            return self.faults[name].pop(0)
        return getattr(os, name)

    def fail(self, name: str, number: int) -> None:
        def raise_it(*_arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        self.faults.setdefault(name, []).append(raise_it)

    def replace(self, name: str, call: Callable[..., Any]) -> None:
        self.faults.setdefault(name, []).append(call)


class Disk:
    """A journal whose batches go through a flusher to files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: queue.SimpleQueue[FlushJob] = queue.SimpleQueue()
        self.flusher = Flusher(self.done.put)
        self.driver = JournalDriver(2000)
        self.applied: list[object] = []
        self.apply_error: Exception | None = None

    def apply(self, changes: list[object]) -> None:
        if self.apply_error is not None:
            raise self.apply_error
        self.applied += changes

    def commit(self) -> Exception | None:
        """A group commit; returns what it failed with. The oracle is told."""
        driver = self.driver
        driver.seal()
        flight = driver.in_flight
        assert flight is not None
        self.flusher.submit(FlushJob(driver.journal, flight.batch, self.path, self.apply))
        job = self.done.get(timeout=20)
        driver.in_flight = None
        driver.journal.on_done(flight.batch, job.error is None)
        if job.error is None:
            driver.must.update(key for key in flight.published if key in driver.live)
            driver.gone.update(flight.dying)
        else:
            driver.dying += flight.published + flight.dying
        driver.check_recovery(self.files())
        return job.error

    def crash(self) -> None:
        """Start again from what is on disk."""
        self.driver.files = self.files()
        self.driver.crash()

    def files(self) -> dict[int, bytes]:
        """What is on disk, as recovery gets it."""
        found = {int(path.stem): path.read_bytes() for path in self.path.iterdir()}
        return {number: data for number, data in found.items() if len(data) >= 40}

    def numbers(self) -> list[int]:
        """Journal files there are."""
        return sorted(int(path.stem) for path in self.path.iterdir())


@pytest.fixture
def fake_os(monkeypatch: pytest.MonkeyPatch) -> FailingOs:
    fake = FailingOs()
    monkeypatch.setattr(flusher_module, "os", fake)
    return fake


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.flusher.stop()


def test_what_is_written_is_what_was_sealed(disk: Disk) -> None:
    for size in (0, 1, 5000, 100_000):
        disk.driver.publish(size, [1, 2])
        assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    disk.crash()


def test_thousands_of_parts_and_short_writes(disk: Disk, fake_os: FailingOs) -> None:
    for _ in range(1500):
        disk.driver.publish(4096, [1])
    taken: list[int] = []

    def write_little(descriptor: int, parts: Sequence[bytes]) -> int:
        # Ends in the middle of a part, of a record, of nothing at all.
        share = b"".join(parts)[: 1 + len(taken) * 997]
        taken.append(os.write(descriptor, share))
        return taken[-1]

    for _ in range(40):
        fake_os.replace("writev", write_little)
    assert disk.commit() is None
    assert len(taken) == 40


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["open", "writev", "fdatasync"])
def test_a_failing_call_fails_the_batch_and_the_next_one_succeeds(
    disk: Disk, fake_os: FailingOs, call: str, number: int
) -> None:
    for _ in range(3):
        disk.driver.publish(300, [1, 2])
    if call != "open":
        # Not the first batch of a file.
        assert disk.commit() is None
    before = disk.numbers()
    lost = disk.driver.publish(300, [1, 3])
    fake_os.fail(call, number)
    error = disk.commit()
    assert isinstance(error, OSError)
    assert error.errno == number
    # What failed stays in memory, and is not a word of the journal any more.
    assert lost[0] in disk.driver.live
    assert disk.numbers() == before
    disk.driver.publish(300, [2])
    assert disk.commit() is None
    assert disk.numbers()[-1] == (before[-1] if before else 0) + (1 if call != "open" else 2)
    disk.crash()


def test_a_write_that_fails_half_way(disk: Disk, fake_os: FailingOs) -> None:
    disk.driver.publish(100, [1])
    assert disk.commit() is None
    for _ in range(5):
        disk.driver.publish(1000, [1, 2])

    def write_half(descriptor: int, parts: Sequence[bytes]) -> int:
        data = b"".join(parts)
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "full")

    fake_os.replace("writev", write_half)
    assert disk.commit() is not None
    # Whole records of the failed batch are on disk; a consumer takes them, the ack is synced: they stay away.
    for key in list(disk.driver.live):
        disk.driver.settle(key)
    assert disk.commit() is None
    disk.crash()
    assert disk.driver.live == {}


def test_failures_do_not_leave_files_behind(disk: Disk, fake_os: FailingOs) -> None:
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    for _ in range(30):
        disk.driver.publish(10, [1])
        fake_os.fail("fdatasync", errno.EIO)
        assert disk.commit() is not None
    assert disk.numbers() == [1]
    assert len(disk.driver.journal.files) == 1
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert len(disk.numbers()) == 2


def test_a_file_that_is_in_the_way_is_not_touched(disk: Disk) -> None:
    for number in (1, 2):
        journal_path(disk.path, number).write_bytes(b"somebody's")
    for _ in range(2):
        disk.driver.publish(10, [1])
        assert isinstance(disk.commit(), FileExistsError)
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    for number in (1, 2):
        assert journal_path(disk.path, number).read_bytes() == b"somebody's"


def test_an_error_of_close_is_survived(disk: Disk, fake_os: FailingOs) -> None:
    def close_and_fail(descriptor: int) -> None:
        os.close(descriptor)
        raise OSError(errno.EIO, "late")

    for call in ("writev", "fdatasync"):
        disk.driver.publish(10, [1])
        fake_os.replace("close", close_and_fail)
        fake_os.fail(call, errno.EIO)
        assert disk.commit() is not None
        disk.driver.publish(10, [1])
        assert disk.commit() is None


def test_definitions_come_first_and_are_tried_again(disk: Disk) -> None:
    changes: list[object] = ["put queue"]
    results: list[bool] = []
    disk.driver.publish(10, [1])
    disk.driver.journal.when_durable(changes, results.append)
    disk.apply_error = RuntimeError("database is full")
    assert disk.commit() is disk.apply_error
    assert results == [False]
    # Without its definition nothing was written.
    assert disk.numbers() == []
    disk.apply_error = None
    more: list[object] = ["delete queue"]
    disk.driver.journal.add_changes(more)
    assert disk.commit() is None
    assert disk.applied == ["put queue", "delete queue"]


def test_a_file_that_cannot_be_deleted_costs_no_confirm(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {1}
    real_unlink = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if int(path.stem) in stuck:
            raise PermissionError(errno.EPERM, "immutable")
        real_unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    for _ in range(20):
        keys = disk.driver.publish(900, [1])
        assert disk.commit() is None
        for key in keys:
            disk.driver.settle(key)
        assert disk.commit() is None
    # Nothing younger was deleted before it: its acks are there.
    assert disk.numbers()[:2] == [1, 2]
    stuck.clear()
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers()[0] > 10
