"""Figures of what a store writes: bytes by kind, the amplification, and files that stay."""

from pathlib import Path

import pytest

from tests.store.index.test_content_logs import REFERRING
from tests.support.stores.store_driver import CheckedStore
from warrenmq.store.disk.files import read_whole
from warrenmq.store.figures import StoreFigures, payable_bytes
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME
from warrenmq.store.upkeep.write_figures import WriteFigures, amplification, write_figures_of


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))


def deepen(driver: CheckedStore, count: int, *queue_ids: int) -> None:
    for _ in range(count):
        driver.publish(200, *queue_ids)
        driver.commit()
    for _ in range(3):
        driver.checkpoint()


def writes_of(driver: CheckedStore) -> WriteFigures:
    return write_figures_of(driver.store.journal, driver.store.files)


def files_of(driver: CheckedStore, *patterns: str) -> int:
    """Bytes of the files that match, without zeros at the end of journal files."""
    size = 0
    for pattern in patterns:
        for path in driver.path.glob(pattern):
            data = path.read_bytes()
            size += len(data.rstrip(b"\0") if path.suffix == ".wal" else data)
    return size


def test_all_bytes_of_a_store_are_counted_once(driver: CheckedStore) -> None:
    """Nothing was deleted but journal files that were empty: what was written is what is there."""
    for _ in range(20):
        driver.publish(200, 1)
        driver.publish(5000, 1, 2)
    driver.commit()
    writes = writes_of(driver)
    in_journal = files_of(driver, "journal/*.wal")
    assert in_journal <= writes.journal_bytes <= in_journal + 400
    assert writes.content_bytes == files_of(driver, "msg_store_persistent/*.rdq")
    assert writes.rewritten_bytes == writes.compacted_bytes == 0
    driver.index(1)
    driver.commit()
    assert writes_of(driver).index_bytes == files_of(driver, "queues/*/*.idx")


def test_a_message_counts_once_as_published_however_many_queues_it_has(
    driver: CheckedStore,
) -> None:
    before = int(writes_of(driver).published_bytes)
    driver.publish(300, 1, 2, 3)
    driver.commit()
    one = int(writes_of(driver).published_bytes) - before
    assert 300 <= one < 330
    driver.publish(300, 1)
    driver.commit()
    assert writes_of(driver).published_bytes == before + 2 * one


def test_a_deep_message_is_not_amplified(driver: CheckedStore) -> None:
    """The 200-byte body has 94 bytes of record and 32 of entry, and checkpoints cost the rest."""
    deepen(driver, 400, 1)
    writes = writes_of(driver)
    beside_checkpoints = int(writes.total_bytes - writes.checkpoint_bytes)
    published = int(writes.published_bytes)
    assert beside_checkpoints < 1.75 * published
    assert int(writes.index_bytes) < 0.35 * published
    assert amplification(writes.total_bytes, writes.published_bytes) > 1


def test_a_store_that_has_published_nothing_has_no_amplification(driver: CheckedStore) -> None:
    writes = writes_of(driver)
    assert writes.published_bytes == 0
    assert amplification(writes.total_bytes, 0) == 0.0


def test_checkpoints_carry_the_totals_over_starts(driver: CheckedStore) -> None:
    published = written = 0
    for _ in range(3):
        deepen(driver, 20, 1)
        writes = writes_of(driver)
        published += int(writes.published_bytes)
        # A checkpoint's totals leave out its own bytes.
        written += int(writes.total_bytes) - len(read_whole(driver.files, CHECKPOINT_NAME))
        driver.reopen()
        checkpoints = driver.store.checkpoints
        assert checkpoints.earlier_published_bytes == published
        assert checkpoints.earlier_written_bytes == written


def test_files_that_stay_count_as_space_and_as_alive(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    figures = StoreFigures(driver.store)
    on_disk = files_of(driver, "msg_store_persistent/*.wal")
    assert figures.logs.files > 4
    assert figures.logs.total_bytes == on_disk
    assert figures.logs.live_bytes == figures.logs.total_bytes
    total = files_of(
        driver, "journal/*.wal", "msg_store_persistent/*", "queues/*/*.idx", "msg_store_*/*.rdq"
    )
    assert total - 2000 <= figures.disk_bytes <= total + 2000
    assert int(figures.live_bytes) > 0.8 * int(figures.disk_bytes)
    driver.settle(1)
    driver.commit()
    assert StoreFigures(driver.store).logs.live_bytes == 0


def test_garbage_in_files_that_stay_is_payable(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    assert payable_bytes(driver.store) < 20_000
    log_bytes = int(StoreFigures(driver.store).logs.total_bytes)
    for place, position in enumerate(driver.load(1)):
        if place % 8:
            driver.settle_one(position)
    driver.commit()
    logs = driver.store.files.logs
    payable = int(logs.payable_bytes(50, set()))
    assert 0.7 * log_bytes < payable < log_bytes
    assert payable_bytes(driver.store) >= payable
    assert logs.payable_bytes(50, set(logs.retained)) == 0
    for _ in range(60):
        driver.checkpoint()
    assert logs.payable_bytes(50, set()) < payable // 4
    assert writes_of(driver).rewritten_bytes > 0
    driver.check()
