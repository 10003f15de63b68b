"""Journal files that stay, in bad times: starts, unreadable bytes, files that somebody deletes."""

import errno
import itertools
from pathlib import Path

import pytest

from tests.store.index.test_content_logs import REFERRING, deepen, logs_of, settle_all_but_few
from tests.support.stores.store_driver import TURN_MS, CheckedStore, Loaded, StoreDriver
from warrenmq.store.jobs.job import RepairSegment, RewriteSegment, StoreJob
from warrenmq.store.model.content_log import ContentLog, ContentLogs


def a_store(path: Path) -> CheckedStore:
    return CheckedStore(path, tuple(int(each) for each in REFERRING))


def test_messages_of_a_deleted_journal_file_are_copied_to_indexes(tmp_path: Path) -> None:
    """Only memory has them: an entry would name a file that is not there."""
    driver = a_store(tmp_path)
    for _ in range(10):
        driver.publish(200, 1)
        driver.commit()
    (tmp_path / f"journal/{driver.store.journal.files[-1].number}.wal").unlink()
    driver.publish(200, 2)
    assert [type(error) for error in driver.turn()] == [FileNotFoundError]
    driver.bodies[2].clear()
    driver.positions[2].clear()
    for _ in range(4):
        driver.checkpoint()
    driver.reopen()
    driver.check()
    assert len(driver.bodies[1]) == 10


def test_a_queue_without_a_usable_definition_keeps_no_file(tmp_path: Path) -> None:
    driver = a_store(tmp_path)
    for _ in range(300):
        driver.publish(200, 1)
        driver.publish(20, 3)
        driver.commit()
    for _ in range(3):
        driver.checkpoint()
    driver.close()
    StoreDriver.open(driver)
    driver.add_queue(1).delete()
    assert len(driver.replay.logs) > 8
    driver.store.forget_queue(driver.replay.queues[3], driver.now_ms)
    driver.store.journal.request_file()
    for _ in range(4):
        driver.checkpoint()
    assert logs_of(driver) == []


@pytest.mark.parametrize("failures", [1, 5])
def test_a_repair_that_fails_for_want_of_space_is_repeated(tmp_path: Path, failures: int) -> None:
    driver = a_store(tmp_path)
    deepen(driver, 300, 1)
    queue = driver.queues[1]
    index = queue.ledger.index
    assert index is not None
    damaged = index.segments[len(index.segments) // 2]
    path = tmp_path / index.path_of(damaged)
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    run = driver.runner.run
    # Times (ms) at which a repair has failed.
    failed: list[int] = []

    def run_on_full_disk(job: StoreJob) -> None:
        if isinstance(job, RepairSegment) and len(failed) < failures:
            failed.append(driver.now_ms)
            job.error = OSError(errno.ENOSPC, "the disk is full")
        else:
            run(job)

    driver.runner.run = run_on_full_disk  # type: ignore[method-assign]  # sees the jobs that run
    first = damaged.number * index.segment_entries
    loaded = Loaded()
    queue.load(first, first + index.segment_entries, 1 << 40, 1 << 40, loaded)
    while loaded.next_seq < 0 and len(failed) <= failures:
        driver.now_ms += TURN_MS
        driver.store.advance(driver.now_ms)
        driver.run_all_jobs()
        if failed and failed[-1] < driver.now_ms and loaded.next_seq < 0:
            assert driver.store.has_more, "a node without clients repeats the repair, too"
    assert len(loaded.positions) == index.segment_entries
    assert len(failed) == failures
    assert all(later - before >= 250 for before, later in itertools.pairwise(failed))
    assert driver.losses.lost == 0
    driver.check()
    driver.reopen()
    driver.check()


def test_segments_that_cannot_be_rewritten_keep_their_own_files_only(tmp_path: Path) -> None:
    driver = a_store(tmp_path)
    driver.settings.empty_files_min = 1
    deepen(driver, 400, 1)
    settle_all_but_few(driver)
    before = logs_of(driver)
    run = driver.runner.run
    # The segments of the first two files that are to be emptied.
    unreadable: set[str] = set()
    kept: set[int] = set()

    def run_on_bad_disk(job: StoreJob) -> None:
        if not isinstance(job, RewriteSegment) or not job.emptied:
            run(job)
            return
        if len(unreadable) < 2:
            unreadable.add(job.path)
        if job.path in unreadable:
            kept.update(number for number, _ in job.emptied)
            job.error = OSError(errno.EIO, "bad sectors")
        else:
            run(job)

    driver.runner.run = run_on_bad_disk  # type: ignore[method-assign]  # sees the jobs that run
    for _ in range(120):
        # Longer than the pause after a failed rewrite.
        driver.now_ms += 2000
        driver.store.checkpoints.want()
        for _ in range(3):
            driver.turn()
    assert len(unreadable) == 2
    left = set(logs_of(driver)) & set(before[:-2])
    assert left <= kept and len(kept) <= 4
    driver.runner.run = run  # type: ignore[method-assign]  # all jobs run again
    for _ in range(60):
        driver.now_ms += 2000
        driver.checkpoint()
    assert not set(logs_of(driver)) & kept, "they are tried again"
    driver.check()
    driver.reopen()
    driver.check()


def test_a_larger_file_with_less_garbage_is_in_no_way() -> None:
    logs = ContentLogs()
    sizes = {1: (100, 60), 2: (30, 1), 3: (30, 2)}
    for number, (size, live) in sizes.items():
        log = ContentLog(number)
        log.stretches = 1
        log.entries = size
        log.live_entries = live
        logs.retain(log, size)
    assert logs.choose_emptied(3, 50, False)
    assert [log.number for log in logs.retained.values() if log.is_emptied] == [2]
