"""Journal files that stay, in bad times: starts, unreadable bytes, files that somebody deletes."""

import errno
import itertools
from pathlib import Path

import pytest

from tests.store.test_content_logs import REFERRING, deepen, logs_of
from tests.support.stores.store_driver import TURN_MS, CheckedStore, Loaded, StoreDriver
from warrenmq.store.jobs import RepairSegment, StoreJob


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
