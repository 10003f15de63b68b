"""G8: a store takes at most twice its live bytes plus an allowance, whatever is settled."""

import random
from pathlib import Path

import pytest

from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.store.figures import StoreFigures, update_debt
from warrenmq.store.model.message import Position
from warrenmq.store.model.queue_index import REWRITE_MIN_BYTES

KIB = 1024
ALLOWANCE = 256 * KIB
# Journal file, content file, embed below, entries of a segment, rewritten from, tail left from,
# allowance. Segments are far smaller than the size rewritten without debt; the allowance covers the
# journal's window.
SETTINGS = (4 * KIB, 64 * KIB, KIB, 16, REWRITE_MIN_BYTES, 4 * KIB, ALLOWANCE)


def pay_debts(driver: CheckedStore, seconds: int) -> None:
    """Run a node's own work of that many seconds."""
    store = driver.store
    for _ in range(seconds):
        update_debt(store)
        store.files.needs.is_wanted = store.debt.payable_bytes > 0
        for _ in range(33):
            driver.commit()


def disk_bytes(driver: CheckedStore) -> int:
    """Bytes on disk; of a journal file, allocated ahead, only the written bytes count."""
    size = int(driver.store.journal.total_bytes())
    for pattern in ("queues/*/*.idx", "msg_store_*/*.rdq", "msg_store_transient/queues/*/*.idx"):
        size += sum(path.stat().st_size for path in driver.path.glob(pattern))
    return size


def fill(driver: CheckedStore, choose: random.Random, count: int) -> None:
    for _ in range(count):
        size = choose.choice([300, 600, 900])
        driver.publish(
            size, *choose.sample(QUEUES, choose.randint(1, 2)), persistent=choose.random() < 0.8
        )
    driver.commit()
    for queue_id in QUEUES:
        driver.index(queue_id)


def thin(driver: CheckedStore, choose: random.Random, alive: float) -> int:
    """Settle random messages of each queue except a share `alive`; returns the body bytes left."""
    left = 0
    for queue_id in QUEUES:
        positions: list[Position] = driver.load(queue_id)
        for position in positions:
            if choose.random() < alive:
                left += int(position.body_bytes)
            else:
                driver.settle_one(position)
    driver.commit()
    return left


@pytest.mark.parametrize("alive", [0.03, 0.3, 0.45])
def test_g8_segments_of_which_less_than_half_is_alive(tmp_path: Path, alive: float) -> None:
    driver = CheckedStore(tmp_path, SETTINGS)
    choose = random.Random(int(alive * 100))
    fill(driver, choose, 4500)
    live = thin(driver, choose, alive)
    assert disk_bytes(driver) > 2 * live + ALLOWANCE + 100 * KIB
    assert StoreFigures(driver.store).debt_bytes > 0
    pay_debts(driver, 60)
    assert StoreFigures(driver.store).debt_bytes == 0
    assert driver.store.debt.payable_bytes == 0
    assert disk_bytes(driver) <= 2 * live + ALLOWANCE
    assert driver.store.rewriter.rewrite_count > 20
    driver.check()
    # The remaining messages are all there, after a crash too, and their debt is paid again.
    assert thin(driver, choose, 1.0) == live
    driver.reopen()
    driver.check()
    live = thin(driver, choose, 0.2)
    pay_debts(driver, 60)
    assert disk_bytes(driver) <= 2 * live + ALLOWANCE
    driver.check()
    driver.close()


def test_g8_while_messages_come_and_go(tmp_path: Path) -> None:
    """The bound holds after each pause, for which files still appended to are ended too."""
    driver = CheckedStore(tmp_path, SETTINGS)
    choose = random.Random(8)
    for _ in range(12):
        fill(driver, choose, 400)
        live = thin(driver, choose, 0.4)
        pay_debts(driver, 6)
        assert disk_bytes(driver) <= 2 * live + ALLOWANCE
        driver.check()
    driver.close()


@pytest.mark.parametrize("persistent", [True, False])
def test_g8_where_the_newest_messages_are_in_the_journal_only(
    tmp_path: Path, persistent: bool
) -> None:
    """The bound holds though the last segment has little alive and its next messages wait."""
    driver = CheckedStore(
        tmp_path, (4 * KIB, 64 * KIB, KIB, 2048, REWRITE_MIN_BYTES, 4 * KIB, ALLOWANCE)
    )
    choose = random.Random(9)
    fill(driver, choose, 1500)
    live = thin(driver, choose, 0.1)
    for queue_id in QUEUES:
        for _ in range(3):
            driver.publish(500, queue_id, persistent=persistent)
            live += 500
    driver.commit()
    assert disk_bytes(driver) > 2 * live + ALLOWANCE
    pay_debts(driver, 20)
    assert disk_bytes(driver) <= 2 * live + ALLOWANCE
    assert StoreFigures(driver.store).debt_bytes == 0
    driver.check()
    driver.reopen()
    driver.check()
    driver.close()
