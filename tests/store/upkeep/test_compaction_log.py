"""What is remembered of compactions: their files, why they were made, and what they gave back."""

from tests.support.stores.dict_disk.content_driver import ContentDriver, filled, thinned
from warrenmq.store.contents.store import Compaction
from warrenmq.store.upkeep.compaction_log import RUNS_MAX, CompactionLog, CompactionRun

LIMIT = 4000
ENDED_MS = 1_700_000_000_000


def compact(driver: ContentDriver) -> Compaction:
    assert driver.start_compaction()
    job = driver.job
    assert isinstance(job, Compaction)
    driver.finish_compaction()
    return job


def run_of(job: Compaction) -> CompactionRun:
    log = CompactionLog()
    log.add(job, ENDED_MS)
    return log.runs[0]


def test_a_compaction_that_was_due_gives_garbage_back() -> None:
    driver = ContentDriver(LIMIT)
    thinned(driver, filled(driver, 6), 4)
    before = int(driver.store.total_bytes)
    job = compact(driver)
    job.run_ns = 250_000_000
    run = run_of(job)
    assert (run.is_asked, run.is_failed, run.is_transient) == (False, False, False)
    assert (run.began_ms, run.ended_ms) == (ENDED_MS - 250, ENDED_MS)
    assert run.freed_bytes == before - int(driver.store.total_bytes) > 0
    assert run.target not in run.files and run.size_bytes > run.freed_bytes


def test_who_asks_is_told_apart() -> None:
    driver = ContentDriver(LIMIT)
    for content_id in filled(driver, 6)[::4]:
        driver.settle(content_id)
    driver.commit()
    driver.store.want_compaction()
    assert run_of(compact(driver)).is_asked


def test_a_failed_compaction_gives_nothing_back() -> None:
    driver = ContentDriver(LIMIT)
    thinned(driver, filled(driver, 6), 4)
    assert driver.start_compaction()
    job = driver.job
    assert isinstance(job, Compaction)
    job.error = OSError("no space")
    run = run_of(job)
    assert run.is_failed and run.freed_bytes == 0 and run.size_bytes > 0


def test_the_oldest_compactions_are_forgotten() -> None:
    driver = ContentDriver(LIMIT)
    thinned(driver, filled(driver, 6), 4)
    job = compact(driver)
    log = CompactionLog()
    for number in range(RUNS_MAX + 3):
        log.add(job, ENDED_MS + number)
    assert [run.ended_ms - ENDED_MS for run in log.runs] == list(range(3, RUNS_MAX + 3))
