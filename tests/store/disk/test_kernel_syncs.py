"""Short batches are synced by the kernel, without a thread: in order, and with the same faults."""

import errno
import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores.failing_files import HOWS
from tests.support.stores.flushed_disk import FlushedDisk
from warrenmq.store.disk import flusher
from warrenmq.store.disk.flusher import FlusherCall, FlushJob
from warrenmq.store.disk.kernel_syncs import KernelSyncs


class FailingSyncs(KernelSyncs):
    """Syncs of the kernel that fail with `error`, or that it does `refuse`, as error numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.error = 0
        self.refusal = 0

    def begin(self, descriptor: int) -> None:
        self.begun += 1
        if self.refusal:
            raise OSError(self.refusal, os.strerror(self.refusal))
        super().begin(descriptor)

    def end(self) -> int:
        assert super().end() == 0
        error, self.error = self.error, 0
        return error


@pytest.fixture
def syncs() -> FailingSyncs:
    try:
        return FailingSyncs()
    except OSError as error:
        pytest.skip(f"the kernel syncs nothing by itself: {error}")


@pytest.fixture
def disk(
    tmp_path: Path, syncs: FailingSyncs, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FlushedDisk]:
    # No write counts as slow, however busy the machine is.
    monkeypatch.setattr(flusher, "_SLOW_WRITE_NS", 1 << 62)
    disk = FlushedDisk(tmp_path, syncs)
    disk.driver.publish(10, [1])
    # The thread makes the file.
    assert disk.commit() is None
    assert syncs.begun == 0
    yield disk
    disk.close()


def sealed(disk: FlushedDisk) -> FlushJob:
    """The job of one more message."""
    disk.driver.publish(10, [1])
    disk.driver.seal()
    assert disk.driver.in_flight is not None
    return disk.job(disk.driver.in_flight.batch)


def test_many_syncs_one_after_another(tmp_path: Path, syncs: FailingSyncs) -> None:
    with (tmp_path / "file").open("wb") as file:
        for _ in range(1000):
            syncs.begin(file.fileno())
            assert select.select([syncs.event], [], [], 20)[0]
            assert syncs.end() == 0
    syncs.close()


def test_a_file_that_cannot_be_synced_is_refused(syncs: FailingSyncs) -> None:
    for descriptor in os.pipe():
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            syncs.begin(descriptor)
        os.close(descriptor)
    syncs.close()


def test_a_short_batch_is_synced_by_the_kernel(disk: FlushedDisk, syncs: FailingSyncs) -> None:
    for _ in range(5):
        disk.driver.publish(100, [1, 2])
        disk.faults.calls.clear()
        assert disk.commit() is None
        # The sync of a thread would be a call of the file.
        assert disk.faults.calls == ["write"]
    assert syncs.begun == 5
    disk.crash()


def test_a_large_batch_and_one_that_needs_a_new_file_go_to_the_thread(
    disk: FlushedDisk, syncs: FailingSyncs
) -> None:
    disk.driver.publish(flusher.SHORT_BYTES, [1])
    assert disk.commit() is None
    # The file is full by now.
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    assert syncs.begun == 0


def test_a_sync_of_the_kernel_that_fails_fails_the_batch(
    disk: FlushedDisk, syncs: FailingSyncs
) -> None:
    lost = disk.driver.publish(10, [1])
    syncs.error = errno.EIO
    error = disk.commit()
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert lost[0] in disk.driver.live
    # The file is given up: after a failed sync nobody knows what it has.
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    disk.crash()


@pytest.mark.parametrize("how", HOWS)
def test_a_write_that_fails_fails_the_batch(
    disk: FlushedDisk, syncs: FailingSyncs, how: str
) -> None:
    disk.driver.publish(1000, [1, 2])
    disk.faults.fail("write", errno.ENOSPC, how)
    error = disk.commit()
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    assert syncs.begun == 0
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    disk.crash()


def test_a_file_that_is_deleted_meanwhile_fails_the_batch(
    disk: FlushedDisk, syncs: FailingSyncs
) -> None:
    (disk.path / "1.wal").unlink()
    disk.driver.must.clear()
    disk.driver.publish(10, [1])
    assert isinstance(disk.commit(), FileNotFoundError)
    assert syncs.begun == 1
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [2]


def test_what_is_submitted_meanwhile_waits_for_the_sync(disk: FlushedDisk) -> None:
    first = sealed(disk)
    disk.flusher.submit(first)
    assert disk.flusher.is_syncing
    done: list[str] = []
    disk.flusher.call(FlusherCall(lambda: done.append("called"), lambda error: None))
    disk.driver.publish(10, [2])
    second = disk.job(disk.driver.journal.seal())
    disk.flusher.submit(second)
    assert second.begun.locked()
    assert done == []
    disk.end_sync()
    assert disk.done.get(timeout=20) is first
    assert disk.done.get(timeout=20) is second
    assert done == ["called"]
    assert first.error is None
    assert second.error is None


def test_a_kernel_that_refuses_is_not_asked_again(disk: FlushedDisk, syncs: FailingSyncs) -> None:
    syncs.refusal = errno.EINVAL
    for _ in range(2):
        disk.driver.publish(10, [1])
        assert disk.commit() is None
    assert syncs.begun == 1
    disk.crash()


def test_the_loop_keeps_away_from_a_disk_on_which_writes_wait(
    disk: FlushedDisk, syncs: FailingSyncs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "_AWAY_FACTOR", 1 << 40)
    monkeypatch.setattr(flusher, "_SLOW_WRITE_NS", 0)
    for _ in range(3):
        disk.driver.publish(10, [1])
        assert disk.commit() is None
    assert syncs.begun == 1
