"""The simulated disk keeps synced changes, and treats others as a real disk might."""

import errno
from random import Random

import pytest

from simulator.simulated.file_system import (
    KILL,
    ORDERED,
    POWER,
    Crash,
    Fault,
    SimulatedFileSystem,
)
from warrenmq.store.disk.space_reserve import SpaceReserve

RUNS = 200


def written(path: str = "a/file", synced: bytes = b"synced") -> SimulatedFileSystem:
    """A disk with one durable file in a durable directory."""
    files = SimulatedFileSystem()
    files.make_directories("a")
    handle = files.create(path)
    handle.write(0, [synced])
    handle.sync()
    handle.close()
    files.sync_directory("a")
    return files


def after_crash(
    files: SimulatedFileSystem, seed: int, rule: str = POWER, path: str = "a/file"
) -> bytes | None:
    files.crash(Random(seed), rule)
    return files.read(path, 0, 1 << 20) if files.exists(path) else None


def test_what_is_synced_and_named_survives() -> None:
    for seed in range(RUNS):
        assert after_crash(written(), seed) == b"synced"


def test_an_unsynced_write_is_kept_dropped_or_torn() -> None:
    found = set()
    for seed in range(RUNS):
        files = written()
        files.open("a/file").write(6, [b"-more"])
        left = after_crash(files, seed)
        assert left is not None and left[:6] == b"synced"
        assert left[6:].rstrip(b"\0") in {b"-more"[:length] for length in range(6)}
        found.add(left)
    assert {b"synced", b"synced-more", b"synced-m"} <= found
    assert b"synced" + bytes(5) in found, "a file may have grown by zeros"


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    found = set()
    for seed in range(RUNS):
        files = written()
        handle = files.open("a/file")
        handle.write(6, [b"11"])
        handle.write(8, [b"22"])
        found.add(after_crash(files, seed))
    assert b"synced\0\x0022" in found


def test_a_kill_keeps_everything() -> None:
    files = written()
    files.open("a/file").write(6, [b"-more"])
    files.rename("a/file", "a/other")
    assert after_crash(files, 1, KILL, "a/other") == b"synced-more"


def test_a_failed_sync_loses_its_data_for_good() -> None:
    """W27: the process sees the data, a later sync succeeds, and the data are not on disk."""
    lost = 0
    for seed in range(RUNS):
        files = written()
        files.rng = Random(seed)
        handle = files.open("a/file")
        handle.write(6, [b"-more"])
        files.faults.append(Fault(("sync",), 0, errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            handle.sync()
        assert files.read("a/file", 0, 100) == b"synced-more"
        handle.write(11, [b"!"])
        handle.sync()
        left = after_crash(files, seed)
        assert left in (b"synced\0\0\0\0\0!", b"synced-more!")
        lost += left != b"synced-more!"
    assert lost > RUNS // 2


def test_a_name_needs_its_directory_synced() -> None:
    found = set()
    for seed in range(RUNS):
        files = written()
        handle = files.create("a/new")
        handle.write(0, [b"new"])
        handle.sync()
        found.add(after_crash(files, seed, POWER, "a/new"))
    assert found == {None, b"new"}


def test_a_rename_happens_or_not() -> None:
    found = set()
    for seed in range(RUNS):
        files = written()
        handle = files.create("a/new")
        handle.write(0, [b"new"])
        handle.sync()
        files.sync_directory("a")
        files.rename("a/new", "a/file")
        left = after_crash(files, seed)
        assert files.exists("a/new") == (left == b"synced")
        found.add(left)
    assert found == {b"synced", b"new"}


def test_names_go_out_of_order_unless_the_file_system_has_a_journal() -> None:
    for rule, is_possible in ((POWER, True), (ORDERED, False)):
        found = set()
        for seed in range(RUNS):
            files = written()
            files.create("a/first")
            files.create("a/second")
            files.crash(Random(seed), rule)
            found.add((files.exists("a/first"), files.exists("a/second")))
        assert ((False, True) in found) == is_possible


def test_a_full_disk_takes_a_part() -> None:
    files = written()
    files.capacity = 10
    handle = files.open("a/file")
    with pytest.raises(OSError, match="No space"):
        handle.write(6, [b"123456789"])
    assert 6 <= files.size("a/file") <= 10
    files.capacity = 0
    handle.write(6, [b"123456789"])
    assert files.read("a/file", 0, 100) == b"synced123456789"


def test_a_crash_strikes_inside_a_call_and_nothing_runs_after_it() -> None:
    files = written()
    files.crash_after = 1
    handle = files.open("a/file")
    with pytest.raises(Crash):
        handle.write(6, [b"-more"])
    with pytest.raises(Crash):
        handle.sync()
    assert after_crash(files, 3) is not None


def test_space_that_was_allocated_reads_as_zeros() -> None:
    files = written()
    handle = files.open("a/file")
    handle.allocate(6, 4)
    assert files.size("a/file") == 10
    assert files.read("a/file", 4, 100) == b"ed\0\0\0\0"
    handle.truncate(6)
    assert files.size("a/file") == 6


def test_a_copy_is_a_disk_of_its_own() -> None:
    files = written()
    files.crash(Random(1), POWER)
    twin = files.fork()
    twin.unlink("a/file")
    twin.create("a/other")
    assert files.list_names("a") == ["file"]


def test_a_flipped_bit_of_what_is_not_synced_yet_stays_flipped() -> None:
    files = written()
    handle = files.open("a/file")
    handle.write(6, [b"-more"])
    files.flip("a/file", 7, 0)
    handle.sync()
    assert after_crash(files, 1) == b"synced-lore"


@pytest.mark.timeout(60)
def test_who_holds_a_lock_is_not_interrupted_by_who_wants_it() -> None:
    """Two simulated threads that release the reserve at once do not deadlock.

    The second one runs after the first.
    """
    files = SimulatedFileSystem()
    files.locked_path = "reserve"
    reserve = SpaceReserve(files, "reserve", 512)
    assert reserve.keep()
    files.interrupt, files.interrupt_after = reserve.release, 0
    reserve.release()
    assert files.size("reserve") == 0
    files.read("reserve", 0, 1)
    assert files.interrupt_after == 0, "the interrupt is still planned"
