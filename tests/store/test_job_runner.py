"""Every job on a disk whose calls fail one after the other, and on one that loses power in the middle of each of them."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.failing_files import DONE, IN_PART, NOT_DONE, FailingFiles
from tests.support.journal_driver import STORE_ID
from warren.store.content_records import write_content
from warren.store.content_scan import scan_contents
from warren.store.disk.append_files import OPEN_MAX
from warren.store.disk.files import read_whole
from warren.store.disk.job_runner import SYNC_EACH_MAX, JobRunner
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.disk.space_reserve import SpaceReserve
from warren.store.file_system import FileSystem
from warren.store.jobs import (
    READ,
    AppendFile,
    CompactContents,
    FindContents,
    KeepDamage,
    ReadRanges,
    RewriteSegment,
    StoreJob,
    WriteCheckpoint,
)
from warren.store.message import Message, Position, QueueLog
from warren.store.record import CONTENT_MAGIC, INDEX_MAGIC, RecordWriter, crc_seed
from warren.testing.simulated_file_system import KILL, ORDERED, POWER, Crash, SimulatedFileSystem

SEGMENT = "queues/7/3.idx"
SEGMENT_NUMBER = 7 << 32 | 3
HOWS = (NOT_DONE, IN_PART, DONE)


def message(body: bytes) -> Message:
    return Message(b"\x00\x01q", b"\x00\x00", body, True, 1000)


def segment_records(seqs: range, number: int = SEGMENT_NUMBER, with_header: bool = True) -> list[bytes]:
    """The header of a segment, if wanted, and a record for each seq id."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(INDEX_MAGIC, number)
    parts = [b"".join(writer.take())]
    log = QueueLog(number >> 32)
    for seq in seqs:
        writer.publish(message(b"body %d" % seq * 9), [Position(message(b""), log, seq, 0)], 0, 1)
        parts.append(b"".join(writer.take()))
    return parts if with_header else parts[1:]


def content_file(number: int, ids: range, size: int = 200) -> bytes:
    """A content file with these ids."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(CONTENT_MAGIC, number)
    log = QueueLog(1)
    for content_id in ids:
        content = message(b"%d" % content_id * size)
        write_content(writer, content_id, content, [Position(content, log, content_id, 0)], 0, 1)
    return b"".join(writer.take())


def put(files: FileSystem, path: str, data: bytes) -> None:
    files.make_directories(path.rpartition("/")[0])
    handle = files.create(path)
    handle.write(0, [data])
    handle.sync()
    handle.close()
    files.sync_directory(path.rpartition("/")[0])


class Store:
    """A runner over real files, with faults."""

    def __init__(self, path: Path, reserve_bytes: int = 0) -> None:
        self.path = path
        self.local = LocalFileSystem(path)
        self.faults = FailingFiles(self.local)
        self.pauses: list[float] = []
        self.runner = JobRunner(self.faults, STORE_ID, self.pauses.append)

    def run(self, job: StoreJob) -> Exception | None:
        self.runner.run(job)
        return job.error

    def must(self, job: StoreJob) -> None:
        assert self.run(job) is None

    def read(self, path: str) -> bytes:
        return read_whole(self.local, path)

    def checkpoint(
        self, content: bytes, *sync_paths: str, delete: list[str] | None = None
    ) -> WriteCheckpoint:
        return WriteCheckpoint(content, list(sync_paths), list(sync_paths), delete or [])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.faults.heal()
    store.runner.close()
    assert store.faults.open_handles == set()
    store.local.release()


# -- appends ---------------------------------------------------------------------------------------------------------


def test_appends_follow_each_other(store: Store) -> None:
    store.must(AppendFile(SEGMENT, 0, [b"head", b"one"], True))
    store.must(AppendFile(SEGMENT, 7, [b"two"], False))
    store.must(AppendFile(SEGMENT, 10, [], False))
    store.must(AppendFile(SEGMENT, 10, [b"three"], False))
    assert store.read(SEGMENT) == b"headonetwothree"
    assert store.faults.calls.count("create") + store.faults.calls.count("open") == 2


def test_an_append_cuts_off_what_lies_behind_its_place(store: Store) -> None:
    put(store.local, SEGMENT, b"0123456789")
    store.must(AppendFile(SEGMENT, 4, [b"A"], False))
    assert store.read(SEGMENT) == b"0123A"
    store.must(AppendFile(SEGMENT, 2, [b"B"], False))
    assert store.read(SEGMENT) == b"01B"
    # New, but begun before a crash.
    store.runner.close()
    store.must(AppendFile(SEGMENT, 0, [b"new"], True))
    assert store.read(SEGMENT) == b"new"


def test_an_append_behind_the_end_is_refused(store: Store) -> None:
    put(store.local, SEGMENT, b"0123")
    assert isinstance(store.run(AppendFile(SEGMENT, 5, [b"x"], False)), OSError)
    assert isinstance(store.run(AppendFile("queues/7/4.idx", 5, [b"x"], False)), FileNotFoundError)
    assert store.read(SEGMENT) == b"0123"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("is_new", [True, False])
def test_an_append_that_failed_is_run_again(store: Store, number: int, how: str, is_new: bool) -> None:
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


def test_a_full_disk_takes_no_more_than_64_descriptors(store: Store) -> None:
    for round_number in range(2):
        for number in range(OPEN_MAX + 20):
            store.must(AppendFile(f"queues/{number}/0.idx", round_number, [b"x"], round_number == 0))
    assert len(store.faults.open_handles) == OPEN_MAX
    # The one used last stays.
    store.faults.calls.clear()
    store.must(AppendFile(f"queues/{OPEN_MAX + 19}/0.idx", 2, [b"x"], False))
    assert store.faults.calls == ["write"]


# -- checkpoints -----------------------------------------------------------------------------------------------------


def test_the_order_of_a_checkpoint(store: Store) -> None:
    put(store.local, "checkpoint", b"old")
    put(store.local, "journal/1.wal", b"dead")
    store.must(AppendFile(SEGMENT, 0, [b"x"], True))
    store.faults.calls.clear()
    job = store.checkpoint(b"new", SEGMENT, "queues/9/0.idx", delete=["journal/1.wal", "journal/0.wal"])
    store.must(job)
    assert store.faults.calls == [
        "sync",
        "open",  # of what is gone
        "sync_directory",
        "sync_directory",  # of what is gone
        *["create", "write", "sync", "close"],
        *["exists", "rename", "rename", "sync_directory"],
        *["unlink", "unlink", "sync_directory"],
    ]
    assert store.local.list_names("") == ["checkpoint", "checkpoint.previous", "journal", "queues"]
    assert [store.read(name) for name in ("checkpoint", "checkpoint.previous")] == [b"new", b"old"]
    assert store.local.list_names("journal") == []
    assert job.undeleted == []
    store.must(store.checkpoint(b"newer"))
    assert [store.read(name) for name in ("checkpoint", "checkpoint.previous")] == [b"newer", b"new"]


def test_many_files_are_synced_in_one_call(store: Store) -> None:
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.faults.calls.clear()
    store.must(WriteCheckpoint(b"1", paths, [], []))
    assert store.faults.calls.count("sync_all") == 1
    assert store.faults.calls.count("sync") == 1
    # What was closed before it was synced: again all at once, then one by one.
    store.must(AppendFile(paths[0], 1, [b"x"], False))
    for path in paths[1:]:
        store.must(AppendFile(path, 1, [b"x"], False))
    for expected in (1, 0):
        store.faults.calls.clear()
        store.must(WriteCheckpoint(b"2", paths[:3], [], []))
        assert store.faults.calls.count("sync_all") == expected


def test_many_files_where_there_is_no_such_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.local, "sync_all", lambda: False)
    paths = [f"queues/{number}/0.idx" for number in range(SYNC_EACH_MAX + 1)]
    for path in paths:
        store.must(AppendFile(path, 0, [b"x"], True))
    store.faults.calls.clear()
    store.must(WriteCheckpoint(b"1", paths, [], []))
    assert store.faults.calls.count("sync") == len(paths) + 1


@pytest.mark.parametrize("how", [NOT_DONE, DONE])
@pytest.mark.parametrize("call", ["sync", "sync_all"])
def test_a_sync_that_failed_is_not_forgotten(store: Store, call: str, how: str) -> None:
    """The next sync would succeed and prove nothing (W27)."""
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
    # One that does not rely on them is none of their business, nor on those that go.
    store.must(WriteCheckpoint(b"0", [], [], job.unsynced[1:]))
    expected = store.read(SEGMENT)
    store.must(RewriteSegment(SEGMENT, len(expected), []))
    assert store.read(SEGMENT) == expected
    store.must(store.checkpoint(b"2", *paths))


def test_what_cannot_be_read_back_after_a_failed_sync_stays_lost(store: Store) -> None:
    parts = segment_records(range(3))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.faults.fail("sync", errno.EIO)
    assert store.run(store.checkpoint(b"1", SEGMENT)) is not None
    # The page is dropped.
    data = b"".join(parts)
    (store.path / SEGMENT).write_bytes(data[:-20] + bytes(20))
    assert store.run(RewriteSegment(SEGMENT, len(data), [])) is not None
    job = store.checkpoint(b"1", SEGMENT)
    assert store.run(job) is not None
    assert job.unsynced == [SEGMENT]


def test_without_a_descriptor_nothing_was_lost(store: Store) -> None:
    put(store.local, SEGMENT, b"x")
    store.faults.fail("open", errno.EMFILE)
    job = store.checkpoint(b"1", SEGMENT)
    assert store.run(job) is not None
    assert job.unsynced == []
    store.must(store.checkpoint(b"1", SEGMENT))


def test_what_cannot_be_deleted_is_named(store: Store) -> None:
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


def test_deletions_that_are_not_durable_are_named(store: Store) -> None:
    for name in ("a/0", "a/1", "b/0"):
        put(store.local, name, b"")
    # Behind the checkpoint itself and three deletions.
    store.faults.fail_at(10, errno.EIO)
    job = store.checkpoint(b"1", delete=["a/0", "a/1", "b/0"])
    store.must(job)
    assert store.faults.calls[10] == "sync_directory"
    assert job.undeleted == ["a/0", "a/1"]
    store.must(store.checkpoint(b"2", delete=job.undeleted))


def test_a_queue_directory_goes_with_its_last_segment(store: Store) -> None:
    for path in ("queues/7/0.idx", "queues/7/1.idx", "msg_store_persistent/0.rdq"):
        store.must(AppendFile(path, 0, [b"x"], True))
    store.must(store.checkpoint(b"1", delete=["queues/7/0.idx"]))
    assert store.local.list_names("queues/7") == ["1.idx"]
    store.must(store.checkpoint(b"2", delete=["queues/7/1.idx", "msg_store_persistent/0.rdq"]))
    assert store.local.list_names("queues") == []
    assert store.local.exists("msg_store_persistent")
    # And comes back with the next one.
    store.must(AppendFile("queues/7/2.idx", 0, [b"x"], True))


def checkpoint_of(files: FileSystem) -> bytes:
    """What a start would go by."""
    for name in ("checkpoint", "checkpoint.previous"):
        if files.exists(name):
            return read_whole(files, name)
    return b""


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_checkpoint_fails(store: Store, number: int, how: str) -> None:
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
            checkpoint_of(store.local) == new if error is None else checkpoint_of(store.local) in (old, new)
        )
        if error is None:
            assert store.local.exists(dead) <= (dead in job.undeleted)
        else:
            assert read_whole(store.local, dead) == b"dead"
            for path in job.unsynced:
                store.must(RewriteSegment(path, sum(map(len, data)), []))
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
                job = WriteCheckpoint(b"new", [SEGMENT], [SEGMENT], ["journal/1.wal"])
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
            # A start goes on from there, whatever lies about.
            again = JobRunner(disk, STORE_ID)
            next_job = WriteCheckpoint(b"next", [], [], ["journal/1.wal"])
            again.run(next_job)
            assert next_job.error is None
            assert read_whole(disk, "checkpoint") == b"next"
            assert read_whole(disk, "checkpoint.previous") == found
            if is_over:
                break
        assert crashes > 8


# -- rewriting -------------------------------------------------------------------------------------------------------


def test_a_rewritten_segment_has_what_was_not_settled(store: Store) -> None:
    parts = segment_records(range(100))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(AppendFile(SEGMENT, sum(map(len, parts)), [b"torn"], False))
    job = RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 9), (20, 97), (99, 200)])
    store.must(job)
    expected = b"".join([parts[0], *parts[11:21], parts[99]])
    assert store.read(SEGMENT) == expected
    assert job.new_size == len(expected)
    # Appends go to the new one.
    more = segment_records(range(100, 101), with_header=False)
    store.must(AppendFile(SEGMENT, job.new_size, more, False))
    assert store.read(SEGMENT) == expected + more[0]


def test_damage_is_copied_as_it_is(store: Store) -> None:
    parts = segment_records(range(10))
    parts[4] = bytes(len(parts[4]))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 1), (8, 9)]))
    assert store.read(SEGMENT) == b"".join([parts[0], *parts[3:9]])


def test_a_segment_that_is_too_short_is_left_alone(store: Store) -> None:
    parts = segment_records(range(3))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    assert store.run(RewriteSegment(SEGMENT, sum(map(len, parts)) + 1, [(0, 1)])) is not None
    assert store.read(SEGMENT) == b"".join(parts)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_rewrite_fails(store: Store, number: int, how: str) -> None:
    index = 0
    while True:
        path = f"queues/7/{index}.idx"
        parts = segment_records(range(10), 7 << 32 | index)
        old, new = b"".join(parts), b"".join([parts[0], *parts[6:]])
        store.must(AppendFile(path, 0, parts, True))
        job = RewriteSegment(path, len(old), [(0, 4)])
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


def test_a_checkpoint_waits_for_the_rename_of_a_rewritten_segment(store: Store) -> None:
    parts = segment_records(range(10))
    store.must(AppendFile(SEGMENT, 0, parts, True))
    store.must(store.checkpoint(b"1", SEGMENT))
    store.faults.fail("sync_directory", errno.EIO, times=3)
    store.must(RewriteSegment(SEGMENT, sum(map(len, parts)), [(0, 4)]))
    for _ in range(2):
        assert store.run(WriteCheckpoint(b"2", [], [], [])) is not None
    assert store.read("checkpoint") == b"1"
    store.must(WriteCheckpoint(b"2", [], [], []))


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
            job = RewriteSegment(SEGMENT, len(old), [(0, 4)])
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


# -- reading ---------------------------------------------------------------------------------------------------------


def test_ranges(store: Store) -> None:
    put(store.local, "a", b"0123456789")
    job = ReadRanges([("a", 2, 3), ("a", 8, 5), ("gone", 0, 5), ("a", 50, 1)])
    assert job.lane == READ
    store.must(job)
    assert job.results == [b"234", b"89", None, b""]


def test_a_range_that_cannot_be_read_is_lost_but_a_lack_of_descriptors_is_not(store: Store) -> None:
    put(store.local, "a", b"0123456789")
    job = ReadRanges([("a", 0, 1), ("a", 1, 1)])
    store.faults.fail("read", errno.EIO)
    store.must(job)
    assert job.results == [None, b"1"]
    for number in (errno.EMFILE, errno.ENOMEM):
        store.faults.fail("read", number)
        assert isinstance(store.run(job), OSError)
    store.must(job)
    assert job.results == [b"0", b"1"]


def test_contents_are_found(store: Store) -> None:
    data = content_file(5, range(10, 20))
    put(store.local, "msg_store_persistent/5.rdq", data)
    job = FindContents("msg_store_persistent/5.rdq", [12, 19, 30])
    store.must(job)
    assert sorted(job.found) == [12, 19]
    for offset, record in job.found.values():
        assert data[offset : offset + len(record)] == record
    assert isinstance(store.run(FindContents("msg_store_persistent/6.rdq", [12])), FileNotFoundError)


# -- compaction ------------------------------------------------------------------------------------------------------


def compaction(live_ids: list[int]) -> CompactContents:
    return CompactContents(["store/1.rdq", "store/2.rdq"], "store/9.rdq", 9, live_ids)


def test_compaction(store: Store) -> None:
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


def test_compaction_takes_its_time(store: Store) -> None:
    put(store.local, "store/1.rdq", content_file(1, range(10, 20), 500_000))
    put(store.local, "store/2.rdq", content_file(2, range(20, 21)))
    store.must(compaction(list(range(10, 20))))
    assert sum(store.pauses) == pytest.approx(10_000_000 / 67_108_864, rel=0.2)


def test_a_compaction_that_is_stopped_leaves_nothing(store: Store) -> None:
    def stop(_seconds: float) -> None:
        raise RuntimeError("no time")

    put(store.local, "store/1.rdq", content_file(1, range(10, 20), 500_000))
    put(store.local, "store/2.rdq", content_file(2, range(20, 21)))
    job = compaction(list(range(10, 20)))
    JobRunner(store.faults, STORE_ID, stop).run(job)
    assert str(job.error) == "no time"
    assert store.local.list_names("store") == ["1.rdq", "2.rdq"]


def test_a_file_in_the_way_of_a_compaction_is_not_touched(store: Store) -> None:
    for number in (1, 2):
        put(store.local, f"store/{number}.rdq", content_file(number, range(number, number + 1)))
    put(store.local, "store/9.rdq", b"somebody's")
    assert isinstance(store.run(compaction([1])), FileExistsError)
    assert store.read("store/9.rdq") == b"somebody's"


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_a_compaction_fails(store: Store, number: int, how: str) -> None:
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


# -- damage and space ------------------------------------------------------------------------------------------------


def test_damage_is_kept_once_and_zeros_are_not(store: Store) -> None:
    store.must(KeepDamage("a", b"first"))
    store.must(KeepDamage("a", b"second"))
    store.must(KeepDamage("b", bytes(100)))
    assert store.local.list_names("lost+found") == ["a"]
    assert store.read("lost+found/a") == b"first"


@pytest.mark.parametrize("how", HOWS)
def test_any_call_of_keeping_damage_fails(store: Store, how: str) -> None:
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
        lambda: WriteCheckpoint(b"x", [], [], []),
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


def test_jobs_that_nobody_knows_fail(store: Store) -> None:
    assert isinstance(store.run(StoreJob(READ)), TypeError)
