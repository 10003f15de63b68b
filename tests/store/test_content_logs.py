"""Journal files that stay: a message that stays is written once."""

import random
from pathlib import Path

import pytest

from tests.support.stores.store_driver import SETTINGS, CheckedStore
from warrenmq.store.jobs import RewriteSegment, StoreJob
from warrenmq.store.store_settings import StoreSettings

DEFAULTS = StoreSettings(1 << 20)
# Two messages of a queue in one journal file are enough to refer to it.
REFERRING = (
    *SETTINGS,
    DEFAULTS.rewrite_min_bytes,
    DEFAULTS.dead_tail_bytes,
    DEFAULTS.garbage_allowance_bytes,
    DEFAULTS.buffer_bytes,
    DEFAULTS.group_bytes,
    DEFAULTS.behind_bytes,
    1,
    2,
    1,
)


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))


def logs_of(driver: CheckedStore) -> list[int]:
    """Numbers of the files that have left the journal but not the disk."""
    directory = driver.path / "msg_store_persistent"
    return sorted(int(path.stem) for path in directory.glob("*.wal"))


def deepen(driver: CheckedStore, count: int, *queue_ids: int) -> None:
    """Publish until the journal has moved what is older to the queues' indexes."""
    for _ in range(count):
        driver.publish(200, *queue_ids)
        driver.commit()
    for _ in range(3):
        driver.checkpoint()


def test_a_deep_message_is_written_once(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    size = sum(path.stat().st_size for path in (driver.path / "queues").rglob("*.idx"))
    indexed = int(driver.queues[1].ledger.indexed_upto)
    assert indexed > 200
    assert size < indexed * 64 + 20_000, "entries, and copies of a few"
    assert len(logs_of(driver)) > 8
    driver.check()
    driver.reopen()
    driver.check()


def test_files_go_when_their_contents_are_consumed(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    assert logs_of(driver)
    driver.settle(1)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert logs_of(driver) == []
    assert driver.store.files.logs.total_bytes() == 0


def test_a_file_stays_until_all_queues_have_consumed_it(driver: CheckedStore) -> None:
    deepen(driver, 300, 1, 2)
    before = logs_of(driver)
    driver.settle(1)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert set(logs_of(driver)) >= set(before[1:-1])
    driver.check()
    driver.settle(2)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert logs_of(driver) == []


def test_a_file_of_which_little_is_needed_is_emptied(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    rewrites: list[int] = []
    run = driver.runner.run

    def noted(job: StoreJob) -> None:
        if isinstance(job, RewriteSegment):
            rewrites.append(len(job.emptied))
        run(job)

    driver.runner.run = noted  # type: ignore[method-assign]  # sees the jobs that run
    kept = 0
    for position in driver.load(1):
        kept += 1
        if kept % 8:
            driver.settle_one(position)
    driver.commit()
    before = len(logs_of(driver))
    for _ in range(60):
        driver.checkpoint()
        driver.check()
    assert any(rewrites)
    assert len(logs_of(driver)) < before // 2
    driver.reopen()
    driver.check()


@pytest.mark.parametrize("where", ["middle", "end"])
def test_entries_in_damaged_bytes_are_found_again(driver: CheckedStore, where: str) -> None:
    deepen(driver, 300, 1, 2)
    paths = sorted((driver.path / "queues/1").glob("*.idx"), key=lambda path: int(path.stem))
    path = paths[len(paths) // 2]
    data = bytearray(path.read_bytes())
    assert driver.store.queues[1].ledger.index is not None
    if where == "middle":
        data[90] ^= 1
        path.write_bytes(data)
    else:
        path.write_bytes(data[:-30])
    driver.reopen()
    driver.check()
    assert driver.losses.lost == 0
    driver.check()


def test_a_damaged_content_costs_its_own_message(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    path = driver.path / f"msg_store_persistent/{logs_of(driver)[3]}.wal"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    driver.reopen()
    found = driver.found(1)
    assert len(found) == len(driver.bodies[1]) - 1
    assert driver.losses.lost == 1
    assert found.items() <= driver.bodies[1].items()


def test_a_missing_file_costs_its_messages_and_is_reported(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    number = logs_of(driver)[3]
    (driver.path / f"msg_store_persistent/{number}.wal").unlink()
    report = driver.reopen()
    assert [f"{number}.wal" in line for line in report.missing] == [True]
    found = driver.found(1)
    assert 0 < driver.losses.lost < 40
    assert len(found) + driver.losses.lost == len(driver.bodies[1])
    assert found.items() <= driver.bodies[1].items()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_queue_delivers_its_messages(tmp_path: Path, seed: int) -> None:
    driver = CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))
    rng = random.Random(seed)
    for _ in range(8):
        driver.churn(rng, 120)
        driver.check()
        if rng.random() < 0.5:
            driver.reopen()
            driver.check()
