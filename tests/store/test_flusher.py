"""The flusher on real files, with a disk that fails when told to, one call at a time."""

import errno
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.failing_files import DONE, IN_PART, FailingFiles
from tests.support.journal_driver import JournalDriver
from warren.store.content_file import ContentFile
from warren.store.content_store import ContentWrite
from warren.store.disk.files import JOURNAL_DIRECTORY
from warren.store.disk.flusher import BatchFlusher, Flusher, FlushJob
from warren.store.disk.local_file_system import LocalFileSystem


class Disk:
    """A journal whose batches go through a flusher to files."""

    def __init__(self, path: Path) -> None:
        self.path = path / JOURNAL_DIRECTORY
        self.path.mkdir()
        self.contents = path / "contents"
        self.contents.mkdir()
        self.local = LocalFileSystem(path)
        self.faults = FailingFiles(self.local)
        self.batch_flusher = BatchFlusher(self.faults)
        self.done: queue.SimpleQueue[FlushJob] = queue.SimpleQueue()
        self.flusher = Flusher(self.done.put)
        self.driver = JournalDriver(2000)
        self.applied: list[object] = []
        self.apply_error: Exception | None = None

    def apply(self, changes: list[object]) -> None:
        if self.apply_error is not None:
            raise self.apply_error
        self.applied += changes

    def commit(self, *content_writes: ContentWrite) -> Exception | None:
        """A group commit; returns what it failed with. The oracle is told."""
        driver = self.driver
        driver.seal()
        flight = driver.in_flight
        assert flight is not None
        flight.batch.content_writes = list(content_writes)
        self.flusher.submit(FlushJob(driver.journal, flight.batch, self.batch_flusher, self.apply))
        job = self.done.get(timeout=20)
        driver.in_flight = None
        # These are not of the journal's content store, which would look for them.
        flight.batch.content_writes = []
        driver.journal.on_done(flight.batch, job.error is None, driver.now_ms)
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

    def content_files(self) -> dict[str, bytes]:
        """Content files there are."""
        return {path.name: path.read_bytes() for path in sorted(self.contents.iterdir())}


def content_write(number: int, offset: int, parts: list[bytes], is_new: bool) -> ContentWrite:
    """Bytes for `contents/<number>.rdq`."""
    write = ContentWrite(ContentFile(number, f"contents/{number}.rdq", 0), offset, is_new)
    write.parts = parts
    return write


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    disk = Disk(tmp_path)
    yield disk
    disk.flusher.stop()
    disk.batch_flusher.close()
    assert disk.faults.open_handles == set()
    disk.local.release()


def test_what_is_written_is_what_was_sealed(disk: Disk) -> None:
    for size in (0, 1, 5000, 100_000):
        disk.driver.publish(size, [1, 2])
        assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    disk.crash()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_failing_call_fails_the_batch_and_the_next_one_succeeds(disk: Disk, call: str, number: int) -> None:
    for _ in range(3):
        disk.driver.publish(300, [1, 2])
    if call != "create":
        # Not the first batch of a file.
        assert disk.commit() is None
    before = disk.numbers()
    lost = disk.driver.publish(300, [1, 3])
    disk.faults.fail(call, number)
    error = disk.commit()
    assert isinstance(error, OSError)
    assert error.errno == number
    # What failed stays in memory, and is not a word of the journal any more.
    assert lost[0] in disk.driver.live
    assert disk.numbers() == before
    disk.driver.publish(300, [2])
    assert disk.commit() is None
    assert disk.numbers()[-1] == (before[-1] if before else 0) + (1 if call != "create" else 2)
    disk.crash()


def test_a_write_that_fails_half_way(disk: Disk) -> None:
    disk.driver.publish(100, [1])
    assert disk.commit() is None
    for _ in range(5):
        disk.driver.publish(1000, [1, 2])

    disk.faults.fail("write", errno.ENOSPC, IN_PART)
    assert disk.commit() is not None
    # Whole records of the failed batch are on disk; a consumer takes them, the ack is synced: they stay away.
    for key in list(disk.driver.live):
        disk.driver.settle(key)
    assert disk.commit() is None
    disk.crash()
    assert disk.driver.live == {}


def test_failures_do_not_leave_files_behind(disk: Disk) -> None:
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    for _ in range(30):
        disk.driver.publish(10, [1])
        disk.faults.fail("sync", errno.EIO)
        assert disk.commit() is not None
    assert disk.numbers() == [1]
    assert len(disk.driver.journal.files) == 1
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert len(disk.numbers()) == 2


def test_a_file_that_is_in_the_way_is_not_touched(disk: Disk) -> None:
    for number in (1, 2):
        (disk.path / f"{number}.wal").write_bytes(b"somebody's")
    for _ in range(2):
        disk.driver.publish(10, [1])
        assert isinstance(disk.commit(), FileExistsError)
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    for number in (1, 2):
        assert (disk.path / f"{number}.wal").read_bytes() == b"somebody's"


def test_an_error_of_close_is_survived(disk: Disk) -> None:
    for call in ("write", "sync"):
        disk.driver.publish(10, [1])
        disk.faults.fail("close", errno.EIO)
        disk.faults.fail(call, errno.EIO)
        assert disk.commit() is not None
        disk.driver.publish(10, [1])
        assert disk.commit() is None


def test_definitions_come_first_and_are_tried_again(disk: Disk) -> None:
    changes: list[object] = ["put queue"]
    results: list[bool] = []
    disk.driver.publish(10, [1])
    disk.driver.journal.when_durable(changes, lambda ok, _now_ms: results.append(ok))
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


# -- large contents --------------------------------------------------------------------------------------------------


def test_contents_are_durable_before_the_journal_is_written(disk: Disk) -> None:
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 0, [b"head", b"first"], True)) is None
    calls = disk.faults.calls
    content = ["create", "write", "sync", "sync_directory"]
    journal = ["create", "allocate", "write", "sync", "sync_directory"]
    assert calls == content + journal
    calls.clear()
    # The file stays open; several writes to it are synced together.
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 9, [b"second"], False), content_write(0, 15, [b"!"], False)) is None
    assert calls == ["write", "write", "sync", "write", "sync"]
    calls.clear()
    # The next file: the one before it is synced and closed.
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 16, [b"third"], False), content_write(1, 0, [b"new"], True)) is None
    assert calls == ["write", "sync", "close", "create", "write", "sync", "sync_directory", "write", "sync"]
    assert disk.content_files() == {"0.rdq": b"headfirstsecond!third", "1.rdq": b"new"}


def test_contents_alone_are_a_batch(disk: Disk) -> None:
    assert disk.commit(content_write(3, 0, [b"content"], True)) is None
    assert disk.content_files() == {"3.rdq": b"content"}
    assert disk.numbers() == []


@pytest.mark.parametrize("how", [IN_PART, DONE])
def test_any_call_of_a_batch_fails(disk: Disk, how: str) -> None:
    """A failed batch leaves no file that it made, and of an older one what was durable before, at least."""
    old = b"durable"
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 0, [old], True)) is None
    number = 1
    index = 0
    while True:
        # Ends the journal file under way, so that each batch makes one.
        disk.faults.fail("sync", errno.EIO)
        disk.driver.publish(10, [1])
        assert disk.commit() is not None
        disk.faults.heal()
        disk.driver.publish(10, [1, 2])
        disk.faults.fail_at(index, errno.EIO, how)
        error = disk.commit(
            content_write(0, len(old), [b"more"], False), content_write(number, 0, [b"new"], True)
        )
        if disk.faults.heal():
            assert error is None
            break
        if error is not None:
            found = disk.content_files()
            assert found["0.rdq"][: len(old)] == old
            if how == DONE and disk.faults.calls[-1] == "create":
                # Made, but who could know that it was this call.
                assert found.pop(f"{number}.rdq") == b""
            assert set(found) <= {"0.rdq", *[f"{other}.rdq" for other in range(1, number)]}
        number += 1
        index += 1
    assert index > 10
    disk.crash()


def test_a_content_file_goes_on_behind_a_failure(disk: Disk) -> None:
    assert disk.commit(content_write(0, 0, [b"durable"], True)) is None
    disk.faults.fail("write", errno.ENOSPC, IN_PART)
    assert disk.commit(content_write(0, 7, [b"a long content that fails"], False)) is not None
    assert disk.commit(content_write(0, 7, [b"next"], False)) is None
    assert disk.content_files() == {"0.rdq": b"durablenext"}


def test_a_journal_file_that_is_deleted_while_it_is_written_is_noticed(disk: Disk) -> None:
    """The next batch fails and is not confirmed, the one behind it has a new file; what was in the deleted one is to
    be moved to the indexes at once."""
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.driver.journal.files_to_retire(0) == []
    (disk.path / "1.wal").unlink()
    disk.driver.must.clear()
    disk.driver.publish(10, [1])
    assert isinstance(disk.commit(), FileNotFoundError)
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [2]
    assert [file.number for file in disk.driver.journal.files_to_retire(0)] == [1]
    assert disk.driver.journal.files_to_retire(2) == []


def test_a_content_file_that_is_deleted_while_it_is_written_fails_the_batch(disk: Disk) -> None:
    """The content store begins another file behind a failed batch."""
    assert disk.commit(content_write(0, 0, [b"first"], True)) is None
    (disk.contents / "0.rdq").unlink()
    assert isinstance(disk.commit(content_write(0, 5, [b"more"], False)), FileNotFoundError)
    assert disk.commit(content_write(1, 0, [b"new"], True)) is None
    assert disk.content_files() == {"1.rdq": b"new"}
