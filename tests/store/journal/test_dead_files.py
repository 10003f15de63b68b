"""Journal files that nothing needs leave without new traffic, sooner while disk space is short."""

from pathlib import Path

import pytest

from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.store.journal.window import PATIENCE_MS

QUEUE = QUEUES[0]
# Journal file, content file, embed below (all bytes), entries of a segment.
SETTINGS = (4096, 8192, 2000, 8)
# Together they fill two journal files and a part of the third: less than the window.
COUNT = 10
BODY_BYTES = 1000


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    """A store with COUNT messages of one queue in its journal."""
    driver = CheckedStore(tmp_path, SETTINGS)
    for _ in range(COUNT):
        driver.publish(BODY_BYTES, QUEUE)
        driver.commit()
    assert driver.store.journal.live_bytes() > COUNT * BODY_BYTES
    return driver


def wait(driver: CheckedStore, wait_ms: int) -> None:
    """Let an idle node's turns go on for so long."""
    until_ms = driver.now_ms + wait_ms
    while driver.now_ms < until_ms:
        driver.commit()


def test_an_idle_store_frees_its_dead_files(driver: CheckedStore) -> None:
    driver.settle(QUEUE)
    wait(driver, PATIENCE_MS // 2)
    assert driver.store.journal.total_bytes() > COUNT * BODY_BYTES
    checkpoints = driver.store.checkpoints.count
    wait(driver, 2 * PATIENCE_MS)
    assert driver.store.journal.total_bytes() < BODY_BYTES
    # One for a start, and the one behind it that deletes.
    assert driver.store.checkpoints.count == checkpoints + 2
    wait(driver, 2 * PATIENCE_MS)
    assert driver.store.checkpoints.count == checkpoints + 2
    driver.reopen()
    driver.check()


def test_what_is_alive_keeps_the_files_behind_it(driver: CheckedStore) -> None:
    for position in driver.load(QUEUE)[1:]:
        driver.settle_one(position)
    wait(driver, 3 * PATIENCE_MS)
    assert driver.store.journal.total_bytes() > COUNT * BODY_BYTES
    driver.check()


@pytest.mark.parametrize("alive", [0, COUNT // 2, COUNT - 1])
def test_a_low_disk_makes_mostly_dead_files_leave(driver: CheckedStore, alive: int) -> None:
    """What is alive in them moves, even from the file that was still written."""
    for number, position in enumerate(driver.load(QUEUE)):
        if number != alive:
            driver.settle_one(position)
    driver.store.dead_files.is_disk_low = True
    wait(driver, PATIENCE_MS)
    assert driver.store.journal.total_bytes() < BODY_BYTES
    driver.check()
    driver.reopen()
    driver.check()


def test_a_low_disk_leaves_files_that_are_alive(driver: CheckedStore) -> None:
    driver.store.dead_files.is_disk_low = True
    written = driver.store.journal.written_bytes
    checkpoints = driver.store.checkpoints.count
    wait(driver, PATIENCE_MS)
    assert driver.store.journal.live_bytes() > COUNT * BODY_BYTES
    assert driver.store.journal.written_bytes == written
    assert driver.store.checkpoints.count == checkpoints


def test_the_mark_of_a_clean_stop_stays_the_last(driver: CheckedStore) -> None:
    driver.settle(QUEUE)
    driver.store.journal.request_clean_stop()
    driver.commit()
    last = driver.store.journal.files[-1].number
    wait(driver, 3 * PATIENCE_MS)
    assert driver.store.journal.files[-1].number == last
    driver.close()
    driver.open()
    assert driver.replay.is_clean
