"""W21: the reserve takes real bytes while there is room and frees them when there is none."""

import errno

import pytest

from simulator.simulated.file_system import SimulatedFileSystem
from tests.support.stores.dict_disk.journal_driver import JournalDriver
from tests.support.stores.failing_files import FailingFiles
from warrenmq.store.disk.files import put_whole
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.space_reserve import SpaceReserve

# Bytes that the simulated disk allocates at a time.
SIZE = 2_000
FULL = OSError(errno.ENOSPC, "full")


def disk_of(capacity: int) -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.capacity = capacity
    files.make_directories("msg_stores")
    return files


def test_it_takes_real_space_and_gives_it_back() -> None:
    files = disk_of(5 * SIZE)
    reserve = SpaceReserve(files, size_bytes=SIZE)
    assert reserve.keep()
    assert files.free_bytes("") == 4 * SIZE
    assert reserve.keep()
    for error in (OSError(errno.EIO, "broken"), ValueError("no"), OSError("nothing")):
        reserve.on_error(error)
        assert reserve.keep()
    reserve.on_error(FULL)
    reserve.on_error(FULL)
    assert files.free_bytes("") == 5 * SIZE


def test_it_is_made_again_when_there_is_plenty() -> None:
    files = disk_of(5 * SIZE)
    reserve = SpaceReserve(files, size_bytes=SIZE)
    assert reserve.keep()
    handle = files.create("others")
    handle.write(0, [bytes(4 * SIZE)])
    reserve.on_error(OSError(errno.EDQUOT, "quota"))
    # The reserve would take the last room.
    assert not reserve.keep()
    handle.truncate(2 * SIZE)
    assert not reserve.keep()
    handle.truncate(SIZE)
    assert reserve.keep()


def test_a_reserve_that_is_there_is_taken_over() -> None:
    files = disk_of(5 * SIZE)
    assert SpaceReserve(files, size_bytes=SIZE).keep()
    handle = files.create("others")
    handle.write(0, [bytes(4 * SIZE)])
    assert SpaceReserve(files, size_bytes=SIZE).keep()


def test_what_lacks_space_is_written_with_its_help() -> None:
    files = disk_of(5 * SIZE)
    files.make_directories("others")
    reserve = SpaceReserve(files, size_bytes=SIZE)
    assert reserve.keep()
    files.create("filler").write(0, [bytes(4 * SIZE)])
    reserve.helps(lambda: put_whole(files, "others/small", bytes(100)))
    assert files.size("others/small") == 100
    with pytest.raises(OSError, match="No space"):
        reserve.helps(lambda: put_whole(files, "others/large", bytes(2 * SIZE)))
    assert files.list_names("others") == ["small"]


@pytest.mark.parametrize("call", ["create", "open", "allocate", "sync", "free_bytes", "close"])
def test_a_disk_that_fails_gives_no_reserve(call: str) -> None:
    files = FailingFiles(disk_of(5 * SIZE))
    reserve = SpaceReserve(files, size_bytes=SIZE)
    files.fail(call, errno.EIO)
    assert not reserve.keep()
    assert reserve.keep()
    files.fail("truncate", errno.EIO)
    reserve.on_error(FULL)
    assert files.open_handles == set()


def test_a_commit_that_finds_no_space_leaves_room_for_the_next() -> None:
    files = disk_of(4 * SIZE + 1000)
    files.make_directories("journal")
    reserve = SpaceReserve(files, size_bytes=SIZE)
    assert reserve.keep()
    handle = files.create("others")
    handle.write(0, [bytes(3 * SIZE + 900)])
    flusher = BatchFlusher(files, reserve)
    driver = JournalDriver(20_000)

    def commit() -> Exception | None:
        driver.seal()
        flight = driver.in_flight
        assert flight is not None
        job = FlushJob(driver.journal, flight.batch, flusher, lambda changes: None)
        flusher.flush(job)
        driver.land(job.error is None)
        return job.error

    driver.publish(500, [1])
    error = commit()
    assert isinstance(error, OSError)
    assert error.errno == errno.ENOSPC
    driver.publish(500, [1])
    assert commit() is None
    flusher.close()
