"""The flusher on real files, with a disk on which chosen calls fail."""

import errno
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.awaiting import eventually
from tests.support.stores.failing_files import DONE, IN_PART
from tests.support.stores.flushed_disk import FlushedDisk
from warrenmq.store.contents.file import ContentFile
from warrenmq.store.contents.store import ContentWrite
from warrenmq.store.disk import flusher
from warrenmq.store.disk.flusher import BatchFlusher, FlushJob
from warrenmq.store.disk.space_reserve import SpaceReserve, is_want_of_space
from warrenmq.store.journal.batch import Batch
from warrenmq.store.journal.change_sets import RETRY_MS, ChangeSet, DefinitionsError
from warrenmq.store.journal.moves import Move
from warrenmq.store.journal.window import files_to_retire
from warrenmq.store.model.message import Message, MovedMessage, Position, QueueLedger


def content_write(number: int, offset: int, parts: list[bytes], is_new: bool) -> ContentWrite:
    """A write of these bytes to `contents/<number>.rdq`."""
    write = ContentWrite(ContentFile(number, f"contents/{number}.rdq", 0), offset, is_new)
    write.parts = parts
    return write


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FlushedDisk]:
    disk = FlushedDisk(tmp_path)
    yield disk
    disk.close()


def test_what_is_written_is_what_was_sealed(disk: FlushedDisk) -> None:
    for size in (0, 1, 5000, 100_000):
        disk.driver.publish(size, [1, 2])
        assert disk.commit() is None
    assert disk.numbers() == [1, 2]
    disk.crash()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("call", ["create", "write", "sync"])
def test_a_failing_call_fails_the_batch_and_the_next_one_succeeds(
    disk: FlushedDisk, call: str, number: int
) -> None:
    for _ in range(3):
        disk.driver.publish(300, [1, 2])
    if call != "create":
        # The failing batch is then not the first of its file.
        assert disk.commit() is None
    before = disk.numbers()
    lost = disk.driver.publish(300, [1, 3])
    disk.faults.fail(call, number)
    error = disk.commit()
    assert isinstance(error, OSError)
    assert error.errno == number
    # A failed publish stays in memory, and the journal has no trace of it.
    assert lost[0] in disk.driver.live
    assert disk.numbers() == before
    disk.driver.publish(300, [2])
    assert disk.commit() is None
    assert disk.numbers()[-1] == (before[-1] if before else 0) + (1 if call != "create" else 2)
    disk.crash()


def test_a_write_that_fails_half_way(disk: FlushedDisk) -> None:
    disk.driver.publish(100, [1])
    assert disk.commit() is None
    for _ in range(5):
        disk.driver.publish(1000, [1, 2])

    disk.faults.fail("write", errno.ENOSPC, IN_PART)
    assert disk.commit() is not None
    # Whole records of the failed batch are on disk. Their messages are consumed and the acks
    # synced: they must not come back.
    for key in list(disk.driver.live):
        disk.driver.settle(key)
    assert disk.commit() is None
    disk.crash()
    assert disk.driver.live == {}


def test_failures_do_not_leave_files_behind(disk: FlushedDisk) -> None:
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


def test_a_file_that_is_in_the_way_is_not_touched(disk: FlushedDisk) -> None:
    for number in (1, 2):
        (disk.path / f"{number}.wal").write_bytes(b"somebody's")
    for _ in range(2):
        disk.driver.publish(10, [1])
        assert isinstance(disk.commit(), FileExistsError)
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    for number in (1, 2):
        assert (disk.path / f"{number}.wal").read_bytes() == b"somebody's"


def test_an_error_of_close_is_survived(disk: FlushedDisk) -> None:
    for call in ("write", "sync"):
        disk.driver.publish(10, [1])
        disk.faults.fail("close", errno.EIO)
        disk.faults.fail(call, errno.EIO)
        assert disk.commit() is not None
        disk.driver.publish(10, [1])
        assert disk.commit() is None


class Definitions:
    """A store of definitions that refuses chosen changes and records each call."""

    def __init__(self, disk: FlushedDisk) -> None:
        self.stored: list[object] = []
        self.calls: list[list[object]] = []
        self.refused: set[object] = set()
        self.error: Exception = DefinitionsError("no room", may_be_full=True)
        self.told: list[tuple[object, bool]] = []
        self._disk = disk
        disk.apply = self.apply

    def apply(self, changes: list[object]) -> None:
        self.calls.append(list(changes))
        if not self.refused.isdisjoint(changes):
            raise self.error
        self.stored += changes

    def add(
        self,
        name: object,
        is_kept: bool = False,
        is_patient: bool = False,
        needs: Iterable[ChangeSet] = (),
    ) -> ChangeSet:
        """Add a change set of one change, whose author listens for the outcome."""
        line = self._disk.driver.journal.definitions
        change_set = line.add([name], is_kept, is_patient)
        change_set.needs = list(needs)
        change_set.callbacks.append(lambda ok, _now_ms: self.told.append((name, ok)))
        return change_set


@pytest.fixture
def definitions(disk: FlushedDisk) -> Definitions:
    return Definitions(disk)


def test_one_that_cannot_be_stored_is_refused_alone(
    disk: FlushedDisk, definitions: Definitions
) -> None:
    kept = disk.driver.publish(10, [1])[0]
    assert disk.commit() is None
    disk.driver.settle(kept)
    definitions.refused = {"b"}
    for name in "abc":
        definitions.add(name)
    disk.driver.publish(10, [2])
    assert disk.commit() is None
    assert definitions.stored == ["a", "c"]
    assert definitions.told == [("a", True), ("b", False), ("c", True)]
    # The batch's ack and publish are on disk.
    disk.crash()
    assert [key[0] for key in disk.driver.live] == [2]
    # The change was refused for good.
    disk.driver.publish(10, [2])
    assert disk.commit() is None
    assert len(definitions.calls) == 4


@pytest.mark.parametrize("is_same_batch", [True, False])
def test_one_that_needs_a_refused_one_is_refused_too(
    disk: FlushedDisk, definitions: Definitions, is_same_batch: bool
) -> None:
    definitions.refused = {"exchange"}
    needed = definitions.add("exchange")
    queue = definitions.add("queue")
    if not is_same_batch:
        assert disk.commit() is None
        # The room that there is at this point does not bring the exchange back.
        definitions.refused = set()
    definitions.add("binding", needs=[needed, queue])
    definitions.add("other", needs=[queue])
    assert disk.commit() is None
    assert definitions.stored == ["queue", "other"]
    assert definitions.told == [
        ("exchange", False),
        ("queue", True),
        ("binding", False),
        ("other", True),
    ]


def test_what_has_happened_is_kept_and_tried_again_in_order(
    disk: FlushedDisk, definitions: Definitions
) -> None:
    line = disk.driver.journal.definitions
    definitions.refused = {"gone"}
    definitions.add("before")
    definitions.add("gone", is_kept=True)
    definitions.add("too", is_kept=True)
    definitions.add("sink", is_kept=True, is_patient=True)
    definitions.add("again")
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    # No change after a kept one may be stored: it could undo it.
    assert definitions.stored == ["before"]
    assert definitions.told == [("before", True), ("gone", False), ("too", False), ("again", False)]
    # Kept changes are stored together, in a second attempt too, since the reserve may have helped.
    together = ["gone", "too", "sink"]
    assert definitions.calls == [["before", *together, "again"], ["before"], together, together]
    # The next attempt waits.
    now_ms = disk.driver.now_ms
    assert not line.is_due(now_ms)
    assert line.is_due(now_ms + RETRY_MS)
    assert line.has_kept()
    assert disk.driver.journal.has_pending()
    definitions.add("later")
    assert disk.commit() is None
    assert definitions.told[4:] == [("later", False)]
    definitions.refused = set()
    definitions.add("last")
    assert disk.commit() is None
    assert definitions.stored == ["before", *together, "last"]
    assert definitions.told[5:] == [("sink", True), ("last", True)]
    assert line.is_empty()
    assert not line.has_kept()


def test_nothing_is_tried_one_by_one_while_somebody_has_the_definitions_locked(
    disk: FlushedDisk, definitions: Definitions
) -> None:
    definitions.error = DefinitionsError("locked", is_locked=True)
    definitions.refused = {"a"}
    for name in ("a", "b"):
        definitions.add(name)
    definitions.add("c", is_kept=True)
    assert disk.commit() is None
    assert len(definitions.calls) == 1
    assert definitions.told == [("a", False), ("b", False), ("c", False)]
    definitions.refused = set()
    assert disk.commit() is None
    assert definitions.stored == ["c"]


@pytest.mark.parametrize("is_kept", [False, True])
def test_definitions_without_room_open_the_reserve(
    disk: FlushedDisk, definitions: Definitions, is_kept: bool
) -> None:
    opened: list[Exception] = []

    class Reserve(SpaceReserve):
        def on_error(self, error: Exception) -> None:
            assert is_want_of_space(error)
            opened.append(error)
            # With the room of the reserve, the kept change succeeds.
            definitions.refused = set()

    disk.batch_flusher = BatchFlusher(disk.faults, Reserve(disk.local))
    definitions.refused = {"a"}
    definitions.add("a", is_kept)
    assert disk.commit() is None
    assert len(opened) == 1
    assert definitions.told == [("a", is_kept)]


def test_definitions_are_stored_before_anything_is_written(
    disk: FlushedDisk, definitions: Definitions
) -> None:
    definitions.add("a")
    disk.driver.publish(10, [1])
    disk.faults.fail("sync", errno.EIO)
    assert disk.commit() is not None
    assert definitions.told == [("a", True)]
    assert definitions.stored == ["a"]


# -- large contents --------------------------------------------------------------------------------


def test_contents_are_durable_before_the_journal_is_written(disk: FlushedDisk) -> None:
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 0, [b"head", b"first"], True)) is None
    calls = disk.faults.calls
    content = ["create", "write", "sync", "sync_directory"]
    journal = ["create", "allocate", "write", "sync", "sync_directory"]
    assert calls == content + journal
    calls.clear()
    # The content file stays open, and one sync covers several writes to it.
    disk.driver.publish(10, [1])
    assert (
        disk.commit(content_write(0, 9, [b"second"], False), content_write(0, 15, [b"!"], False))
        is None
    )
    assert calls == ["write", "write", "sync", "write", "sync"]
    calls.clear()
    # At the next content file, the one before it is synced and closed.
    disk.driver.publish(10, [1])
    assert (
        disk.commit(content_write(0, 16, [b"third"], False), content_write(1, 0, [b"new"], True))
        is None
    )
    assert calls == [
        "write",
        "sync",
        "close",
        "create",
        "write",
        "sync",
        "sync_directory",
        "write",
        "sync",
    ]
    assert disk.content_files() == {"0.rdq": b"headfirstsecond!third", "1.rdq": b"new"}


def test_contents_alone_are_a_batch(disk: FlushedDisk) -> None:
    assert disk.commit(content_write(3, 0, [b"content"], True)) is None
    assert disk.content_files() == {"3.rdq": b"content"}
    assert disk.numbers() == []


@pytest.mark.parametrize("how", [IN_PART, DONE])
def test_any_call_of_a_batch_fails(disk: FlushedDisk, how: str) -> None:
    """A failed batch leaves no new file, and of an older file at least its durable bytes."""
    old = b"durable"
    disk.driver.publish(10, [1])
    assert disk.commit(content_write(0, 0, [old], True)) is None
    number = 1
    index = 0
    while True:
        # A failed sync ends the current journal file, so that each batch creates one.
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
                # Created, but nothing shows that this call created it.
                assert found.pop(f"{number}.rdq") == b""
            assert set(found) <= {"0.rdq", *[f"{other}.rdq" for other in range(1, number)]}
        number += 1
        index += 1
    assert index > 10
    disk.crash()


def test_a_content_file_goes_on_behind_a_failure(disk: FlushedDisk) -> None:
    assert disk.commit(content_write(0, 0, [b"durable"], True)) is None
    disk.faults.fail("write", errno.ENOSPC, IN_PART)
    assert disk.commit(content_write(0, 7, [b"a long content that fails"], False)) is not None
    assert disk.commit(content_write(0, 7, [b"next"], False)) is None
    assert disk.content_files() == {"0.rdq": b"durablenext"}


def test_a_content_file_whose_beginning_failed_is_not_continued(
    disk: FlushedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start would put it aside, with what was confirmed behind the header that is missing."""

    def unlink(path: str) -> None:
        raise OSError(errno.EIO, "the disk is failing", path)

    monkeypatch.setattr(disk.faults, "unlink", unlink)
    disk.faults.fail("write", errno.EIO, IN_PART)
    assert disk.commit(content_write(0, 0, [b"a header and a content"], True)) is not None
    assert "0.rdq" in disk.content_files()
    assert disk.commit(content_write(0, 22, [b"next"], False)) is not None
    assert disk.commit(content_write(1, 0, [b"whole"], True)) is None
    assert disk.content_files()["1.rdq"] == b"whole"


def test_an_idle_thread_has_begun_a_batch_when_it_is_submitted(
    disk: FlushedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not waited for while it is busy, while consumers keep up, or for a few messages."""
    monkeypatch.setattr(flusher, "_BEGIN_S", 60.0)
    monkeypatch.setattr(flusher, "_AWAITED_MESSAGES", 2)
    is_let_go = threading.Event()

    class Waiting(BatchFlusher):
        def flush(self, job: FlushJob) -> None:
            is_let_go.wait(60)

    disk.driver.publish(10, [1])
    assert disk.commit() is None
    message = Message(b"\x00\x00", b"\x00\x00", b"", True, 0)
    position = Position(message, QueueLedger(1), 1, 0)
    moved = MovedMessage(b"\x00\x00", b"\x00\x00", b"", True, 0, 1, 1)

    def job(count: int, settled_count: int = 0, move_count: int = 0) -> FlushJob:
        batch = Batch(1)
        batch.positions = [position] * count
        batch.moves = [Move(moved, [])] * move_count
        batch.settled_count = settled_count
        return FlushJob(disk.driver.journal, batch, Waiting(disk.faults), disk.apply)

    eventually(lambda: disk.flusher.is_idle, "an idle thread")
    first, second = job(1, move_count=1), job(2)
    disk.flusher.submit(first)
    assert not disk.flusher.is_idle
    disk.flusher.submit(second)
    assert not is_let_go.is_set()
    is_let_go.set()
    assert disk.done.get(timeout=20) is first
    assert disk.done.get(timeout=20) is second
    for hurried in (job(2, settled_count=1), job(1)):
        eventually(lambda: disk.flusher.is_idle, "an idle thread")
        disk.flusher.submit(hurried)
        assert disk.done.get(timeout=20) is hurried
        # A submit that waits for the start holds this lock afterwards.
        assert not hurried.begun.locked()


def test_a_journal_file_that_is_deleted_while_it_is_written_is_noticed(disk: FlushedDisk) -> None:
    """The next batch after a deletion fails, the one after it gets a new file.
    The contents of the deleted file must be moved to the indexes at once.
    """
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert files_to_retire(disk.driver.journal, 0, False) == []
    (disk.path / "1.wal").unlink()
    disk.driver.must.clear()
    disk.driver.publish(10, [1])
    assert isinstance(disk.commit(), FileNotFoundError)
    disk.driver.publish(10, [1])
    assert disk.commit() is None
    assert disk.numbers() == [2]
    assert [file.number for file in files_to_retire(disk.driver.journal, 0, False)] == [1]
    assert files_to_retire(disk.driver.journal, 2, False) == []


def test_a_content_file_that_is_deleted_while_it_is_written_fails_the_batch(
    disk: FlushedDisk,
) -> None:
    """The content store begins another file after a failed batch."""
    assert disk.commit(content_write(0, 0, [b"first"], True)) is None
    (disk.contents / "0.rdq").unlink()
    assert isinstance(disk.commit(content_write(0, 5, [b"more"], False)), FileNotFoundError)
    assert disk.commit(content_write(1, 0, [b"new"], True)) is None
    assert disk.content_files() == {"1.rdq": b"new"}
