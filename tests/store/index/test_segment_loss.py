"""Unreadable or missing files of a running store: retries, lost+found, and a new file."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stores.store_driver import CheckedStore, Loaded
from warrenmq.store.disk.append_files import AppendFiles
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.model.message import ABSENT, Position


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path)


def fill(driver: CheckedStore, count: int, *queue_ids: int, size: int = 20) -> None:
    for _ in range(count):
        driver.publish(size, *queue_ids)
    driver.commit()


def fail_reads(monkeypatch: pytest.MonkeyPatch, path: str, fails: Callable[[], bool]) -> None:
    """Make reads of `path` raise EIO while `fails` returns true."""
    read = LocalFileSystem.read_pieces

    def broken(files: LocalFileSystem, name: str, pieces: list[tuple[int, int]]) -> list[bytes]:
        if name == path and fails():
            raise OSError(errno.EIO, "broken", name)
        return read(files, name, pieces)

    monkeypatch.setattr(LocalFileSystem, "read_pieces", broken)


def loaded_in_time(driver: CheckedStore, queue_id: int, seconds: int = 8) -> list[Position]:
    """The positions that the index of a queue delivers within that many seconds."""
    found: list[Position] = []
    ledger = driver.queues[queue_id].ledger
    next_seq = 0
    ends_ms = driver.now_ms + seconds * 1000
    while next_seq < ledger.indexed_upto:
        loaded = Loaded()
        driver.queues[queue_id].load(next_seq, ledger.indexed_upto, 1 << 40, 1 << 40, loaded)
        while loaded.next_seq < 0:
            assert driver.now_ms < ends_ms
            driver.commit()
        next_seq = loaded.next_seq
        found.extend(loaded.positions)
    return found


def seqs(positions: list[Position]) -> list[int]:
    return [int(position.seq) for position in positions]


def lost_and_found(driver: CheckedStore) -> list[Path]:
    directory = driver.path / "lost+found"
    return sorted(directory.iterdir()) if directory.exists() else []


def test_a_segment_that_cannot_be_read_for_four_seconds_costs_nothing(
    driver: CheckedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(driver, 20, 1, 2)
    driver.index(1)
    driver.index(2)
    ends_ms = driver.now_ms + 4000
    fail_reads(monkeypatch, "queues/1/1.idx", lambda: driver.now_ms < ends_ms)
    waiting = Loaded()
    driver.queues[1].load(8, 16, 8, 1 << 40, waiting)
    driver.finish_jobs()
    # Queue 2 does not wait.
    assert seqs(loaded_in_time(driver, 2, 1)) == [*range(1, 21)]
    while waiting.next_seq < 0:
        driver.commit()
    assert seqs(waiting.positions) == [*range(8, 16)]
    assert ends_ms <= driver.now_ms < ends_ms + 1100
    assert (driver.losses.lost, lost_and_found(driver)) == (0, [])


def test_a_segment_that_is_to_be_written_again_is_not_put_aside(
    driver: CheckedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W27: after a failed sync, a load waits for the new copy instead of trying the old one."""
    fill(driver, 20, 1)
    driver.index(1)
    queue = driver.queues[1]
    index = queue.ledger.index
    assert index is not None
    segment = index.find(1)
    assert segment is not None
    path = index.path_of(segment)
    driver.store.rewriter.rewrite_whole(queue.ledger, segment, path)
    (rewrite,) = driver.store.take_jobs(driver.now_ms)
    # Loads put a segment aside that they cannot read for five seconds.
    ends_ms = driver.now_ms + 6000
    fail_reads(monkeypatch, path, lambda: driver.now_ms < ends_ms)
    loaded = Loaded()
    queue.load(8, 16, 8, 1 << 40, loaded)
    while driver.now_ms < ends_ms:
        driver.commit()
    driver.runner.run(rewrite)
    rewrite.finished()
    driver.finish_jobs()
    assert seqs(loaded.positions) == [*range(8, 16)]
    assert (driver.losses.lost, lost_and_found(driver)) == (0, [])


@pytest.mark.parametrize("number", [1, 2])
def test_a_segment_that_stays_unreadable_is_put_aside(
    driver: CheckedStore, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """T32: any unreadable segment is replaced; its messages in memory go to the new file."""
    fill(driver, 20, 1)
    held = [driver.positions[1][seq] for seq in (9, 12, 18)]
    driver.index(1)
    driver.checkpoint()
    driver.owner.in_memory = list(held)
    path = driver.path / "queues" / "1" / f"{number}.idx"
    before, inode = path.read_bytes(), path.stat().st_ino
    fail_reads(
        monkeypatch, f"queues/1/{number}.idx", lambda: path.exists() and path.stat().st_ino == inode
    )
    in_file = range(8, 16) if number == 1 else range(16, 21)
    left = [seq for seq in range(1, 21) if seq not in in_file or seq in (9, 12, 18)]
    assert seqs(loaded_in_time(driver, 1)) == left
    (kept,) = lost_and_found(driver)
    assert (kept.name, kept.read_bytes()) == (f"queues-1-{number}.idx", before)
    assert driver.losses.lost == driver.store.files.losses.lost_count == 20 - len(left)
    assert driver.queues[1].take_lost() == 20 - len(left)
    # The queue continues, and the remaining messages are found at once and after a crash.
    fill(driver, 10, 1)
    driver.index(1)
    left += range(21, 31)
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == left
    assert driver.losses.lost == 0
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    assert lost_and_found(driver) == [kept]


def test_appends_on_their_way_to_a_segment_that_is_put_aside_are_not_lost(
    driver: CheckedStore,
) -> None:
    """Appends handed out before and after the replacement of the segment both count."""
    fill(driver, 18, 1)
    driver.index(1)
    for _ in range(4):
        driver.publish(20, 1)
    driver.commit()
    queue = driver.queues[1]
    index = queue.ledger.index
    assert index is not None
    queue.index([driver.positions[1].pop(seq) for seq in (19, 20)])
    queue.loss.replace_segment(queue.ledger, index.segments[-1])
    queue.index([driver.positions[1].pop(seq) for seq in (21, 22)])
    driver.finish_jobs()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), *range(19, 23)]
    assert driver.losses.lost == 3
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), *range(19, 23)]


def test_appends_behind_a_failed_one_keep_what_is_written(
    driver: CheckedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk, the later appends of a group find the file shorter than their offset.

    Appends to another file are between them: they would be one append without.
    """
    fill(driver, 17, 1)
    driver.index(1)
    refused = refuse_next_appends(monkeypatch, "queues/1/2.idx")
    for first in (18, 20, 22):
        for number in (1, 2, 1):
            driver.publish(20, number)
        driver.commit()
        for number, seq in ((1, first), (2, first // 2 - 8), (1, first + 1)):
            driver.queues[number].index([driver.positions[number].pop(seq)])
        refused.append(True)
        assert run_on(driver) == 2
        assert refused == [] and driver.store.jobs.lane.is_idle()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 24)]
    assert driver.losses.lost == 0
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 24)]


def refuse_next_appends(monkeypatch: pytest.MonkeyPatch, refused_path: str) -> list[bool]:
    """Returns a list; each element that a test adds makes one append to the path find no space."""
    refused: list[bool] = []
    append = AppendFiles.append

    def maybe_append(
        files: AppendFiles, path: str, offset: int, parts: list[bytes], is_new: bool, fill: bool
    ) -> None:
        if path == refused_path and refused:
            refused.pop()
            raise OSError(errno.ENOSPC, "no space", path)
        append(files, path, offset, parts, is_new, fill)

    monkeypatch.setattr(AppendFiles, "append", maybe_append)
    return refused


def run_on(driver: CheckedStore, turns: int = 30) -> int:
    """Run that many turns; returns the number of failed flushes and jobs."""
    return sum(len(driver.turn()) for _ in range(turns))


def publish_and_index(driver: CheckedStore, count: int) -> None:
    """Publish messages to queue 1 and start appending them to its index."""
    for _ in range(count):
        driver.publish(20, 1)
    run_on(driver, 1)
    waiting = driver.positions[1]
    driver.queues[1].index([waiting.pop(seq) for seq in sorted(waiting)])


@pytest.mark.parametrize("is_open", [True, False])
def test_a_segment_that_is_deleted_while_it_is_appended_to_costs_what_only_it_had(
    driver: CheckedStore, is_open: bool
) -> None:
    """T26: no append is retried for ever; the queue continues with a new file, past a crash too."""
    fill(driver, 20, 1)
    held = [driver.positions[1][seq] for seq in (17, 19)]
    driver.index(1)
    driver.checkpoint()
    driver.owner.in_memory = list(held)
    if not is_open:
        driver.runner.close()
    path = driver.path / "queues" / "1" / "2.idx"
    path.unlink()
    publish_and_index(driver, 2)
    assert run_on(driver) == 1
    assert driver.store.jobs.lane.is_idle()
    left = [*range(1, 16), 17, 19, 21, 22]
    assert seqs(loaded_in_time(driver, 1)) == left
    assert driver.losses.lost == driver.store.files.losses.lost_count == 3
    publish_and_index(driver, 2)
    assert run_on(driver) == 0
    left += [23, 24]
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == left
    assert driver.losses.lost == 0


def test_a_crash_before_the_checkpoint_knows_of_the_new_file(driver: CheckedStore) -> None:
    """A file shorter than its checkpoint says delivers what it has; the rest counts as lost."""
    fill(driver, 20, 1)
    driver.index(1)
    driver.checkpoint()
    (driver.path / "queues" / "1" / "2.idx").unlink()
    publish_and_index(driver, 2)
    run_on(driver, 15)
    driver.reopen()
    # The journal has the two messages as well, so they are indexed once more.
    assert sorted(seqs(driver.load(1))) == [*range(1, 16), 21, 22]
    driver.index(1)
    run_on(driver)
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), 21, 22]
    run_on(driver)
    assert driver.losses.lost == 5
    publish_and_index(driver, 3)
    run_on(driver)
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), *range(21, 26)]
    assert driver.store.jobs.lane.is_idle()


@pytest.mark.parametrize("is_loaded_first", [True, False])
def test_a_segment_that_is_cut_off_keeps_what_is_left(
    driver: CheckedStore, is_loaded_first: bool
) -> None:
    """T26: a segment's end is missing at a start, and either a load or an append meets it first."""
    fill(driver, 20, 1)
    places = [driver.positions[1][seq] for seq in (18, 19)]
    driver.index(1)
    driver.checkpoint()
    driver.close()
    path = driver.path / "queues" / "1" / "2.idx"
    path.write_bytes(path.read_bytes()[: places[0].place + 5])
    driver.open()
    left = [*range(1, 16), 16, 17]
    if is_loaded_first:
        assert seqs(loaded_in_time(driver, 1)) == left
        run_on(driver)
        assert driver.losses.lost == 3
    publish_and_index(driver, 3)
    run_on(driver)
    left += [21, 22, 23]
    for _ in range(2):
        assert seqs(loaded_in_time(driver, 1)) == left
        assert driver.losses.lost == 3
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == left


def test_a_checkpoint_notices_a_segment_that_was_deleted(driver: CheckedStore) -> None:
    """A deleted segment is noticed before a load asks for it; messages in memory are rewritten."""
    fill(driver, 20, 1)
    driver.checkpoint()
    held = driver.positions[1][18]
    driver.index(1)
    driver.owner.in_memory = [held]
    (driver.path / "queues" / "1" / "2.idx").unlink()
    driver.checkpoint()
    run_on(driver)
    assert driver.losses.lost == 4
    driver.checkpoint()
    driver.reopen()
    assert seqs(loaded_in_time(driver, 1)) == [*range(1, 16), 18]


def test_a_transient_content_file_that_is_deleted_costs_what_was_in_it(
    driver: CheckedStore,
) -> None:
    """Later contents are written to a file of the same name at their own offsets."""
    queue = driver.queues[1]
    positions: list[Position] = []
    for _ in range(4):
        driver.publish(1000, 1, persistent=False)
        positions.append(driver.positions[1][driver.queues[1].ledger.next_seq - 1])
    for position in positions[:2]:
        queue.content_to_transient(position)
    run_on(driver, 1)
    (path,) = (driver.path / "msg_store_transient").glob("*.rdq")
    path.unlink()
    for position in positions[2:]:
        queue.content_to_transient(position)
    assert run_on(driver) >= 1
    assert driver.store.jobs.lane.is_idle()
    for position in positions:
        position.message = ABSENT
        position.has_content = False
    loaded = Loaded()
    queue.load_contents(list(positions), loaded)
    run_on(driver)
    assert loaded.lost == positions[:2]
    assert [position.has_content for position in positions] == [False, False, True, True]


def test_a_journal_file_that_is_deleted_costs_nothing_that_is_in_memory(
    driver: CheckedStore,
) -> None:
    """The batch that notices fails; earlier messages move to the index and survive a crash."""
    fill(driver, 6, 1)
    number = driver.store.journal.files[-1].number
    (driver.path / "journal" / f"{number}.wal").unlink()
    driver.publish(20, 1)
    failed = driver.store.journal.failed_count
    run_on(driver)
    assert driver.store.journal.failed_count == failed + 1
    assert driver.store.journal.first_needed_file() > number
    driver.reopen()
    assert set(driver.found(1)) >= set(range(1, 7))
    assert driver.report.missing_journal == []
