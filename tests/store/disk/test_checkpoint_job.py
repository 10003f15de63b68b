"""A checkpoint job survives a failure of any call, and a power failure in any call."""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from simulator.simulated.file_system import KILL, ORDERED, POWER, Crash, SimulatedFileSystem
from tests.support.stores.failing_files import DONE, HOWS, NOT_DONE
from tests.support.stores.made_files import SEGMENT, STORE_ID, put, segment_records
from tests.support.stores.store_driver import RunnerDriver
from warrenmq.store.disk.files import read_whole
from warrenmq.store.disk.job_runner import SYNC_EACH_MAX, JobRunner
from warrenmq.store.file_system import FileSystem
from warrenmq.store.jobs.job import (
    AppendFile,
    RewriteSegment,
    WriteCheckpoint,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunnerDriver]:
    store = RunnerDriver(tmp_path)
    yield store
    store.close()


def test_the_order_of_a_checkpoint(store: RunnerDriver) -> None:
    put(store.local, "checkpoint", b"old")
    put(store.local, "journal/1.wal", b"dead")
    store.must(AppendFile(SEGMENT, 0, [b"x"], True))
    store.faults.calls.clear()
    job = store.checkpoint(
        b"new", SEGMENT, "queues/9/0.idx", delete=["journal/1.wal", "journal/0.wal"]
    )
    store.must(job)
    assert store.faults.calls == [
        "sync",
        "open",  # the directory of the deleted file
        "sync_directory",  # the directories of the queues
        "sync_directory",
        "sync_directory",  # the directory of the deleted file
        *["create", "write", "sync", "close"],
        *["exists", "rename", "rename", "sync_directory"],
        *["unlink", "unlink", "sync_directory"],
    ]
    assert store.local.list_names("") == ["checkpoint", "checkpoint.previous", "journal", "queues"]
    assert [store.read(name) for name in ("checkpoint", "checkpoint.previous")] == [b"new", b"old"]
    assert store.local.list_names("journal") == []
    assert job.undeleted == []
    store.must(store.checkpoint(b"newer"))
    assert [store.read(name) for name in ("checkpoint", "checkpoint.previous")] == [
        b"newer",
        b"new",
    ]


def test_many_files_are_synced_in_one_call(store: RunnerDriver) -> None:
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.faults.calls.clear()
    store.must(WriteCheckpoint([b"1"], paths, [], []))
    assert store.faults.calls.count("sync_all") == 1
    assert store.faults.calls.count("sync") == 1
    # Files closed before their sync are synced once more all together, and later one by one.
    store.must(AppendFile(paths[0], 1, [b"x"], False))
    for path in paths[1:]:
        store.must(AppendFile(path, 1, [b"x"], False))
    for expected in (1, 0):
        store.faults.calls.clear()
        store.must(WriteCheckpoint([b"2"], paths[:3], [], []))
        assert store.faults.calls.count("sync_all") == expected


def test_deletions_in_many_directories_are_synced_in_one_call(store: RunnerDriver) -> None:
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.must(store.checkpoint(b"1", *paths))
    store.faults.calls.clear()
    store.must(WriteCheckpoint([b"2"], [], [], paths))
    # The one `sync_directory` is for the directory of the checkpoint.
    assert (store.faults.calls.count("sync_all"), store.faults.calls.count("sync_directory")) == (
        1,
        1,
    )
    assert store.local.list_names("queues") == []


def test_a_sync_of_deletions_that_failed_may_have_been_about_anything(store: RunnerDriver) -> None:
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.must(store.checkpoint(b"1", *paths))
    store.must(AppendFile(SEGMENT, 0, [b"x"], True))
    store.faults.fail("sync_all", errno.EIO, NOT_DONE)
    store.must(WriteCheckpoint([b"2"], [], [], paths))
    job = store.checkpoint(b"3", SEGMENT)
    assert store.run(job) is not None
    assert job.unsynced == [SEGMENT]


def test_many_files_where_there_is_no_such_call(
    store: RunnerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.local, "sync_all", lambda: False)
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.faults.calls.clear()
    store.must(WriteCheckpoint([b"1"], paths, [], []))
    assert store.faults.calls.count("sync") == len(paths) + 1


@pytest.mark.parametrize("how", [NOT_DONE, DONE])
@pytest.mark.parametrize("call", ["sync", "sync_all"])
def test_a_sync_that_failed_is_not_forgotten(store: RunnerDriver, call: str, how: str) -> None:
    """W27: a failed sync stays known, since the next sync would succeed and prove nothing."""
    paths = [
        SEGMENT,
        *[f"queues/{number}/0.idx" for number in range(100, 170 if call == "sync_all" else 102)],
    ]
    for path in paths:
        number = int(path.split("/")[1]) << 32 | int(path.split("/")[2].partition(".")[0])
        store.must(AppendFile(path, 0, segment_records(range(3), number), True))
    store.faults.fail(call, errno.EIO, how)
    job = store.checkpoint(b"1", *paths)
    assert store.run(job) is not None
    assert job.unsynced == (paths if call == "sync_all" else paths[:1])
    again = store.checkpoint(b"1", *paths)
    assert store.run(again) is not None
    assert again.unsynced == job.unsynced
    assert not store.local.exists("checkpoint")
    # A checkpoint that neither relies on the unsynced files nor keeps them succeeds.
    store.must(WriteCheckpoint([b"0"], [], [], job.unsynced[1:]))
    expected = store.read(SEGMENT)
    store.must(RewriteSegment(SEGMENT, len(expected), [], []))
    assert store.read(SEGMENT) == expected
    store.must(store.checkpoint(b"2", *paths))


def test_what_cannot_be_read_back_after_a_failed_sync_stays_lost(store: RunnerDriver) -> None:
    parts = segment_records(range(3))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.faults.fail("sync", errno.EIO)
    assert store.run(store.checkpoint(b"1", SEGMENT)) is not None
    # The kernel drops the page that it could not write.
    data = b"".join(parts)
    (store.path / SEGMENT).write_bytes(data[:-20] + bytes(20))
    assert store.run(RewriteSegment(SEGMENT, len(data), [], [])) is not None
    job = store.checkpoint(b"1", SEGMENT)
    assert store.run(job) is not None
    assert job.unsynced == [SEGMENT]


def test_without_a_descriptor_nothing_was_lost(store: RunnerDriver) -> None:
    put(store.local, SEGMENT, b"x")
    store.faults.fail("open", errno.EMFILE)
    job = store.checkpoint(b"1", SEGMENT)
    assert store.run(job) is not None
    assert job.unsynced == []
    store.must(store.checkpoint(b"1", SEGMENT))


def test_what_cannot_be_deleted_is_named(store: RunnerDriver) -> None:
    for number in range(4):
        put(store.local, f"journal/{number}.wal", b"x")
    paths = [f"journal/{number}.wal" for number in range(4)]
    store.faults.fail("unlink", errno.EPERM, NOT_DONE, times=2)
    job = store.checkpoint(b"1", delete=paths)
    store.must(job)
    assert job.undeleted == paths[:2]
    again = store.checkpoint(b"2", delete=job.undeleted)
    store.must(again)
    assert again.undeleted == []
    assert store.local.list_names("journal") == []


def test_deletions_that_are_not_durable_are_named(store: RunnerDriver) -> None:
    for name in ("a/0", "a/1", "b/0"):
        put(store.local, name, b"")
    # The failing call comes after the calls of the checkpoint itself and three deletions.
    store.faults.fail_at(10, errno.EIO)
    job = store.checkpoint(b"1", delete=["a/0", "a/1", "b/0"])
    store.must(job)
    assert store.faults.calls[10] == "sync_directory"
    assert job.undeleted == ["a/0", "a/1"]
    store.must(store.checkpoint(b"2", delete=job.undeleted))


def test_a_queue_directory_goes_with_its_last_segment(store: RunnerDriver) -> None:
    for path in ("queues/7/0.idx", "queues/7/1.idx", "msg_store_persistent/0.rdq"):
        store.must(AppendFile(path, 0, [b"x"], True))
    store.must(store.checkpoint(b"1", delete=["queues/7/0.idx"]))
    assert store.local.list_names("queues/7") == ["1.idx"]
    store.must(store.checkpoint(b"2", delete=["queues/7/1.idx", "msg_store_persistent/0.rdq"]))
    assert store.local.list_names("queues") == []
    assert store.local.exists("msg_store_persistent")
    # The queue's directory comes back with its next segment.
    store.must(AppendFile("queues/7/2.idx", 0, [b"x"], True))


def checkpoint_of(files: FileSystem) -> bytes:
    """The checkpoint that a start would read."""
    for name in ("checkpoint", "checkpoint.previous"):
        if files.exists(name):
            return read_whole(files, name)
    return b""


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_checkpoint_fails(store: RunnerDriver, number: int, how: str) -> None:
    store.must(store.checkpoint(b"generation -1"))
    index = 0
    while True:
        old, new = b"generation %d" % (index - 1), b"generation %d" % index
        dead = f"queues/7/{index}.idx"
        segment = f"queues/8/{index}.idx"
        put(store.local, dead, b"dead")
        data = segment_records(range(2), 8 << 32 | index)
        store.must(AppendFile(segment, 0, data, True))
        job = store.checkpoint(new, segment, delete=[dead])
        store.faults.fail_at(index, number, how)
        error = store.run(job)
        was_left = store.faults.heal()
        assert (
            checkpoint_of(store.local) == new
            if error is None
            else checkpoint_of(store.local) in (old, new)
        )
        if error is None:
            assert store.local.exists(dead) <= (dead in job.undeleted)
        else:
            assert read_whole(store.local, dead) == b"dead"
            for path in job.unsynced:
                store.must(RewriteSegment(path, sum(map(len, data)), [], []))
            store.must(store.checkpoint(new, segment, delete=[dead]))
        assert store.read("checkpoint") == new
        assert not store.local.exists("checkpoint.new")
        if was_left:
            break
        index += 1
    assert index > 10


@pytest.mark.parametrize("rule", [KILL, POWER, ORDERED])
def test_power_fails_in_any_call_of_a_checkpoint(rule: str) -> None:
    data = b"".join(segment_records(range(5)))
    for seed in range(6):
        crashes = 0
        while True:
            disk = SimulatedFileSystem()
            put(disk, "journal/1.wal", b"dead")
            put(disk, "checkpoint", b"old")
            put(disk, "checkpoint.previous", b"older")
            runner = JobRunner(disk, STORE_ID)
            runner.run(AppendFile(SEGMENT, 0, [data], True))
            disk.crash_after = crashes
            try:
                job = WriteCheckpoint([b"new"], [SEGMENT], [SEGMENT], ["journal/1.wal"])
                runner.run(job)
            except Crash:
                crashes += 1
            else:
                assert job.error is None
            is_over = not disk.is_crashed
            disk.crash(Random(seed * 1000 + crashes), rule)
            found = checkpoint_of(disk)
            assert found in (b"old", b"new")
            if found == b"new":
                assert read_whole(disk, SEGMENT) == data
            else:
                assert disk.exists("journal/1.wal")
            # A start continues from this state, whatever files lie about.
            again = JobRunner(disk, STORE_ID)
            next_job = WriteCheckpoint([b"next"], [], [], ["journal/1.wal"])
            again.run(next_job)
            assert next_job.error is None
            assert read_whole(disk, "checkpoint") == b"next"
            assert read_whole(disk, "checkpoint.previous") == found
            if is_over:
                break
        assert crashes > 8


def test_many_new_queues_take_one_sync(
    store: RunnerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many new queues take one sync, not one for each directory and each file."""
    paths = [f"queues/{number}/0.idx" for number in range(1, 2 * SYNC_EACH_MAX)]
    put(store.local, "queues/1000/0.idx", b"x")
    synced: list[str] = []
    monkeypatch.setattr(store.local, "sync_directory", synced.append)
    store.faults.calls.clear()
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    assert synced == [] and "sync" not in store.faults.calls
    store.must(store.checkpoint(b"new", *paths))
    assert store.faults.calls.count("sync_all") == 1
    # The one `sync` is for the checkpoint file; the synced directory has its name.
    assert store.faults.calls.count("sync") == 1 and synced == [""]
