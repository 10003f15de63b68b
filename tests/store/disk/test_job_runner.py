"""Every job survives a failure of any of its calls, and a power failure in any of its calls."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from simulator.simulated.file_system import KILL, ORDERED, POWER, Crash, SimulatedFileSystem
from tests.support.stores.failing_files import DONE, HOWS, FailingFiles
from tests.support.stores.made_files import SEGMENT, STORE_ID, content_file, put, segment_records
from tests.support.stores.store_driver import RunnerDriver
from warrenmq.store.contents.scan import scan_contents
from warrenmq.store.disk.append_files import OPEN_MAX
from warrenmq.store.disk.files import read_whole
from warrenmq.store.disk.job_runner import COMPACT_BYTES_PER_S, URGENT_BYTES_PER_S, JobRunner
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.jobs.job import (
    READ,
    AppendFile,
    CompactContents,
    FindContents,
    KeepDamage,
    LeavingFile,
    ReadRanges,
    RewriteSegment,
    StoreJob,
    WriteCheckpoint,
)
from warrenmq.store.records.record import crc_seed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunnerDriver]:
    store = RunnerDriver(tmp_path)
    yield store
    store.close()


# -- appends ---------------------------------------------------------------------------------------


def test_appends_follow_each_other(store: RunnerDriver) -> None:
    store.must(AppendFile(SEGMENT, 0, [b"head", b"one"], True))
    store.must(AppendFile(SEGMENT, 7, [b"two"], False))
    store.must(AppendFile(SEGMENT, 10, [], False))
    store.must(AppendFile(SEGMENT, 10, [b"three"], False))
    assert store.read(SEGMENT) == b"headonetwothree"
    assert store.faults.calls.count("create") + store.faults.calls.count("open") == 2


def test_an_append_cuts_off_what_lies_behind_its_place(store: RunnerDriver) -> None:
    put(store.local, SEGMENT, b"0123456789")
    store.must(AppendFile(SEGMENT, 4, [b"A"], False))
    assert store.read(SEGMENT) == b"0123A"
    store.must(AppendFile(SEGMENT, 2, [b"B"], False))
    assert store.read(SEGMENT) == b"01B"
    # A crash may leave a file that the job is to create.
    store.runner.close()
    store.must(AppendFile(SEGMENT, 0, [b"new"], True))
    assert store.read(SEGMENT) == b"new"


def test_an_append_behind_the_end_is_refused(store: RunnerDriver) -> None:
    put(store.local, SEGMENT, b"0123")
    assert isinstance(store.run(AppendFile(SEGMENT, 5, [b"x"], False)), OSError)
    assert isinstance(store.run(AppendFile("queues/7/4.idx", 5, [b"x"], False)), FileNotFoundError)
    assert store.read(SEGMENT) == b"0123"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("is_new", [True, False])
def test_an_append_that_failed_is_run_again(
    store: RunnerDriver, number: int, how: str, is_new: bool
) -> None:
    index = 0
    while True:
        path = f"queues/{index}/0.idx"
        start = 0
        if not is_new:
            store.must(AppendFile(path, 0, [b"head"], True))
            store.runner.close()
            start = 4
        job = AppendFile(path, start, [b"some ", b"thing"], is_new)
        store.faults.fail_at(index, number, how)
        error = store.run(job)
        was_left = store.faults.heal()
        if error is not None:
            assert isinstance(error, OSError)
            assert error.errno == number
        store.must(job)
        store.must(AppendFile(path, start + 10, [b"!"], False))
        assert store.read(path) == b"head"[:start] + b"some thing!"
        if was_left:
            break
        index += 1
    assert index >= 3


def test_a_full_disk_takes_no_more_than_64_descriptors(store: RunnerDriver) -> None:
    for round_number in range(2):
        for number in range(OPEN_MAX + 20):
            store.must(
                AppendFile(f"queues/{number}/0.idx", round_number, [b"x"], round_number == 0)
            )
    assert len(store.faults.open_handles) == OPEN_MAX
    # The file that was used last stays open.
    store.faults.calls.clear()
    store.must(AppendFile(f"queues/{OPEN_MAX + 19}/0.idx", 2, [b"x"], False))
    assert store.faults.calls == ["write"]


# -- rewriting -------------------------------------------------------------------------------------


def test_a_rewritten_segment_has_what_was_not_settled(store: RunnerDriver) -> None:
    parts = segment_records(range(100))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(AppendFile(SEGMENT, sum(map(len, parts)), [b"torn"], False))
    job = RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 9), (20, 97), (99, 200)], [])
    store.must(job)
    expected = b"".join([parts[0], *parts[11:21], parts[99]])
    assert store.read(SEGMENT) == expected
    assert job.new_size == len(expected)
    # Appends go to the rewritten segment.
    more = segment_records(range(100, 101), with_header=False)
    store.must(AppendFile(SEGMENT, job.new_size, more, False))
    assert store.read(SEGMENT) == expected + more[0]


def test_damage_is_copied_as_it_is(store: RunnerDriver) -> None:
    parts = segment_records(range(10))
    parts[4] = bytes(len(parts[4]))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 1), (8, 9)], []))
    assert store.read(SEGMENT) == b"".join([parts[0], *parts[3:9]])


def test_a_segment_that_is_too_short_is_left_alone(store: RunnerDriver) -> None:
    parts = segment_records(range(3))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    job = RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 1)], [])
    store.must(AppendFile(SEGMENT, sum(map(len, parts)) - 1, [], False))
    assert store.run(job) is not None
    assert store.read(SEGMENT) == b"".join(parts)[:-1]
    # A segment whose rewrite a crash made the node forget is shorter too, and can be rewritten.
    store.must(AppendFile(SEGMENT, sum(map(len, parts[:-1])), [], False))
    store.must(job)
    assert store.read(SEGMENT) == b"".join([parts[0], *parts[3:-1]]) and job.new_size == len(
        store.read(SEGMENT)
    )


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_rewrite_fails(store: RunnerDriver, number: int, how: str) -> None:
    index = 0
    while True:
        path = f"queues/7/{index}.idx"
        parts = segment_records(range(10), 7 << 32 | index)
        old, new = b"".join(parts), b"".join([parts[0], *parts[6:]])
        store.must(AppendFile(path, 0, parts, True))
        job = RewriteSegment(path, len(old), [(0, 4)], [])
        store.faults.fail_at(index, number, how)
        error = store.run(job)
        was_left = store.faults.heal()
        if error is None:
            assert store.read(path) == new
            assert job.new_size == len(new)
        else:
            assert store.read(path) == old
        if how != DONE or store.faults.calls[-1] != "create":
            assert not store.local.exists(path + ".new")
        if was_left:
            break
        index += 1
    assert index > 6


def test_a_checkpoint_waits_for_the_rename_of_a_rewritten_segment(store: RunnerDriver) -> None:
    parts = segment_records(range(10))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(store.checkpoint(b"1", SEGMENT))
    store.faults.fail("sync_directory", errno.EIO, times=3)
    store.must(RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 4)], []))
    for _ in range(2):
        assert store.run(WriteCheckpoint([b"2"], [], [], [])) is not None
    assert store.read("checkpoint") == b"1"
    store.must(WriteCheckpoint([b"2"], [], [], []))


@pytest.mark.parametrize("rule", [KILL, POWER, ORDERED])
def test_power_fails_in_any_call_of_a_rewrite(rule: str) -> None:
    parts = segment_records(range(10))
    old, new = b"".join(parts), b"".join([parts[0], *parts[6:]])
    for seed in range(6):
        crashes = 0
        while True:
            disk = SimulatedFileSystem()
            put(disk, SEGMENT, old)
            runner = JobRunner(disk, STORE_ID)
            disk.crash_after = crashes
            job = RewriteSegment(SEGMENT, len(old), [(0, 4)], [])
            try:
                runner.run(job)
            except Crash:
                crashes += 1
            is_over = not disk.is_crashed
            disk.crash(Random(seed * 1000 + crashes), rule)
            assert read_whole(disk, SEGMENT) in ((new,) if is_over else (old, new))
            if is_over:
                break
        assert crashes >= 6


# -- reading ---------------------------------------------------------------------------------------


def test_ranges(store: RunnerDriver) -> None:
    put(store.local, "a", b"0123456789")
    job = ReadRanges([("a", 2, 3), ("a", 8, 5), ("gone", 0, 5), ("a", 50, 1)], 1)
    assert job.lane == READ
    store.must(job)
    assert job.results == [b"234", b"89", None, b""]


def test_a_range_that_cannot_be_read_is_lost_but_a_lack_of_descriptors_is_not(
    store: RunnerDriver,
) -> None:
    put(store.local, "a", b"0123456789")
    job = ReadRanges([("a", 0, 1), ("a", 1, 1)], 1)
    # The pieces are read together, then each alone.
    store.faults.fail("read", errno.EIO, times=2)
    store.must(job)
    assert job.results == [None, b"1"]
    for number in (errno.EMFILE, errno.ENOMEM):
        store.faults.fail("read", number)
        assert isinstance(store.run(job), OSError)
    store.must(job)
    assert job.results == [b"0", b"1"]


def test_contents_are_found(store: RunnerDriver) -> None:
    data = content_file(5, range(10, 20))
    put(store.local, "msg_store_persistent/5.rdq", data)
    job = FindContents("msg_store_persistent/5.rdq", [12, 19, 30], 1)
    store.must(job)
    assert sorted(job.found) == [12, 19]
    for offset, record in job.found.values():
        assert data[offset : offset + len(record)] == record
    assert isinstance(
        store.run(FindContents("msg_store_persistent/6.rdq", [12], 1)), FileNotFoundError
    )


# -- compaction ------------------------------------------------------------------------------------


def compaction(live_ids: list[int]) -> CompactContents:
    return CompactContents(["store/1.rdq", "store/2.rdq"], "store/9.rdq", 9, live_ids)


def test_compaction(store: RunnerDriver) -> None:
    put(store.local, "store/1.rdq", content_file(1, range(10)))
    put(store.local, "store/2.rdq", content_file(2, range(10, 20)))
    job = compaction([3, 12, 13, 77])
    store.must(job)
    assert job.damaged == [77]
    target = store.read("store/9.rdq")

    def read(offset: int, size: int) -> bytes:
        return target[offset : offset + size]

    found = scan_contents(read, len(target), crc_seed(STORE_ID, 9))
    assert [(number, offset, size) for number, offset, size, _ in found] == job.copied
    assert [number for number, *_ in found] == [3, 12, 13]
    assert store.local.list_names("store") == ["1.rdq", "2.rdq", "9.rdq"]


@pytest.mark.parametrize("is_urgent", [False, True])
def test_compaction_takes_its_time(store: RunnerDriver, is_urgent: bool) -> None:
    put(store.local, "store/1.rdq", content_file(1, range(10, 20), 500_000))
    put(store.local, "store/2.rdq", content_file(2, range(20, 21)))
    job = compaction(list(range(10, 20)))
    job.is_urgent = is_urgent
    store.must(job)
    # The job reads as many bytes as it writes.
    rate = URGENT_BYTES_PER_S if is_urgent else COMPACT_BYTES_PER_S
    assert sum(store.pauses) == pytest.approx(20_000_000 / rate, rel=0.2)


def test_compaction_writes_back_as_it_goes(store: RunnerDriver) -> None:
    """Compaction writes back by pieces, since one large sync would delay the journal's sync."""
    put(store.local, "store/1.rdq", content_file(1, range(10, 20), 500_000))
    put(store.local, "store/2.rdq", content_file(2, range(20, 21)))
    store.must(compaction(list(range(10, 20))))
    calls = [call for call in store.faults.calls if call in ("write", "write_back", "sync")]
    pieces = calls.index("sync") // 2
    assert pieces >= 5
    assert calls == ["write", "write_back"] * pieces + ["sync"]


def test_a_compaction_that_is_stopped_leaves_nothing(store: RunnerDriver) -> None:
    def stop(_seconds: float) -> None:
        raise RuntimeError("no time")

    put(store.local, "store/1.rdq", content_file(1, range(10, 20), 500_000))
    put(store.local, "store/2.rdq", content_file(2, range(20, 21)))
    job = compaction(list(range(10, 20)))
    JobRunner(store.faults, STORE_ID, stop).run(job)
    assert str(job.error) == "no time"
    assert store.local.list_names("store") == ["1.rdq", "2.rdq"]


def test_a_file_in_the_way_of_a_compaction_is_not_touched(store: RunnerDriver) -> None:
    for number in (1, 2):
        put(store.local, f"store/{number}.rdq", content_file(number, range(number, number + 1)))
    put(store.local, "store/9.rdq", b"somebody's")
    assert isinstance(store.run(compaction([1])), FileExistsError)
    assert store.read("store/9.rdq") == b"somebody's"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_compaction_fails(store: RunnerDriver, number: int, how: str) -> None:
    sources = {name: content_file(name, range(name * 10, name * 10 + 10)) for name in (1, 2)}
    for name, data in sources.items():
        put(store.local, f"store/{name}.rdq", data)
    index = 0
    while True:
        job = compaction([13, 24])
        store.faults.fail_at(index, number, how)
        error = store.run(job)
        was_left = store.faults.heal()
        for name, data in sources.items():
            assert store.read(f"store/{name}.rdq") == data
        if error is None:
            assert len(job.copied) == 2
            store.local.unlink("store/9.rdq")
        assert store.local.list_names("store")[:2] == ["1.rdq", "2.rdq"]
        assert not store.local.exists("store/9.rdq")
        if was_left:
            break
        index += 1
    assert index > 8


# -- damage and space ------------------------------------------------------------------------------


def test_damage_is_kept_once_and_zeros_are_not(store: RunnerDriver) -> None:
    store.must(KeepDamage("a", b"first"))
    store.must(KeepDamage("a", b"second"))
    store.must(KeepDamage("b", bytes(100)))
    assert store.local.list_names("lost+found") == ["a"]
    assert store.read("lost+found/a") == b"first"


@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_keeping_damage_fails(store: RunnerDriver, how: str) -> None:
    index = 0
    while True:
        store.faults.fail_at(index, errno.ENOSPC, how)
        error = store.run(KeepDamage(f"{index}", b"damage"))
        if store.faults.heal():
            break
        if error is not None and store.local.exists(f"lost+found/{index}"):
            assert store.read(f"lost+found/{index}") == b"damage"
        store.must(KeepDamage(f"{index}", b"damage"))
        assert store.read(f"lost+found/{index}") == b"damage"
        index += 1
    assert index > 5


@pytest.mark.parametrize(
    "make_job",
    [
        lambda: AppendFile("x", 0, [b"x"], True),
        lambda: WriteCheckpoint([b"x"], [], [], []),
    ],
)
def test_a_full_disk_releases_the_reserve(tmp_path: Path, make_job: Callable[[], StoreJob]) -> None:
    files = LocalFileSystem(tmp_path)
    reserve = SpaceReserve(files, "reserve", 100_000)
    assert reserve.keep()
    faults = FailingFiles(files)
    runner = JobRunner(faults, STORE_ID, None, reserve)
    for number, size in ((errno.EIO, 100_000), (errno.ENOSPC, 0)):
        faults.fail("write", number)
        runner.run(make_job())
        assert files.size("reserve") == size
    runner.close()
    files.release()


def test_jobs_that_nobody_knows_fail(store: RunnerDriver) -> None:
    assert isinstance(store.run(StoreJob(READ)), TypeError)


# -- files that leave the journal ------------------------------------------------------------------


def test_a_file_leaves_the_journal_for_another_file_system(
    store: RunnerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator may have put the directory elsewhere."""
    rename = store.local.rename

    def renamed(path: str, target: str) -> None:
        if path.rpartition("/")[0] != target.rpartition("/")[0]:
            raise OSError(errno.EXDEV, "another file system", path)
        rename(path, target)

    monkeypatch.setattr(store.local, "rename", renamed)
    content = Random(1).randbytes(5000)
    put(store.local, "journal/7.wal", content)
    store.local.make_directories("msg_store_persistent")
    job = store.checkpoint(b"1")
    job.leaving = [LeavingFile(7, "journal/7.wal", "msg_store_persistent/7.wal", True)]
    store.must(job)
    assert job.unmoved == []
    assert store.read("msg_store_persistent/7.wal") == content
    assert not store.local.exists("journal/7.wal")
