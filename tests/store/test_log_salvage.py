"""Salvage and reports of stores whose indexes refer to journal files that stay."""

import shutil
from pathlib import Path

import pytest

from tests.store.disk.test_index_rebuild import lose_checkpoints
from tests.store.disk.test_log_rebuild import places_in, segments_of
from tests.store.index.test_content_logs import REFERRING, deepen, logs_of
from tests.store.test_check import flip
from tests.support.stores.checked_directory import reported, salvaged
from tests.support.stores.made_files import STORE_ID
from tests.support.stores.store_driver import CheckedStore
from warrenmq.store.disk.files import known_store_id
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.orphans import embed_contents


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    """A closed store: queues 1 and 2 share deep messages."""
    driver = CheckedStore(tmp_path / "store", tuple(int(each) for each in REFERRING))
    deepen(driver, 300, 1, 2)
    driver.settle(1, 5)
    driver.commit()
    driver.close()
    assert len(logs_of(driver)) > 5
    return driver


def test_all_of_a_whole_store(driver: CheckedStore) -> None:
    found, result = salvaged(driver)
    assert found == driver.bodies
    assert result.losses == [] and result.lost == 0


def test_lost_segments(driver: CheckedStore) -> None:
    """Records in journal files name the queue and seq id of each message."""
    shutil.rmtree(driver.path / "queues")
    found, result = salvaged(driver)
    # Of the newest segments some messages are embedded; both queues are alike.
    for queue_id in (1, 2):
        assert found[queue_id].items() <= driver.bodies[queue_id].items()
        assert list(found[queue_id]) == sorted(found[queue_id])
    assert len(found[1]) > 200
    assert result.lost == sum(len(driver.bodies[each]) - len(found[each]) for each in (1, 2))


def test_journal_files_alone(driver: CheckedStore) -> None:
    shutil.rmtree(driver.path / "queues")
    lose_checkpoints(driver)
    shutil.rmtree(driver.path / "journal")
    files = LocalFileSystem(driver.path)
    (driver.path / "store_id").unlink(missing_ok=True)
    assert known_store_id(files) == (STORE_ID, False)
    files.release()
    found, result = salvaged(driver)
    assert len(found[2]) > 100
    assert found[2].items() <= driver.bodies[2].items()
    assert set(found[1]) - set(driver.bodies[1]) <= set(range(6))
    assert "there is no usable checkpoint" in " ".join(result.notes) or result.notes == []


def test_damaged_entries(driver: CheckedStore) -> None:
    for path in segments_of(driver, 1)[2:5]:
        start, _, _ = places_in(path)[0]
        flip(path, start + 30)
    found, result = salvaged(driver)
    assert found == driver.bodies
    assert result.lost == 0 and sum(queue.found_again for queue in result.queues) >= 3


def test_a_damaged_content_and_a_missing_file(driver: CheckedStore) -> None:
    paths = [driver.path / f"msg_store_persistent/{number}.wal" for number in logs_of(driver)]
    flip(paths[3], paths[3].stat().st_size // 2)
    paths[5].unlink()
    found, result = salvaged(driver)
    lost = 0
    for queue_id, bodies in driver.bodies.items():
        assert found.get(queue_id, {}).items() <= bodies.items()
        lost += len(bodies) - len(found.get(queue_id, {}))
    assert 4 <= result.lost == lost < 100


def test_what_is_put_aside_needs_no_journal_file(driver: CheckedStore) -> None:
    files = LocalFileSystem(driver.path)
    store_id = segments_of(driver, 2)[0].read_bytes()[12:28]
    embed_contents(files, store_id, 2)
    files.release()
    assert all(places_in(path) == [] for path in segments_of(driver, 2))
    (driver.path / "lost+found").mkdir()
    (driver.path / "queues/2").rename(driver.path / "lost+found/2")
    for path in (driver.path / "msg_store_persistent").glob("*.wal"):
        path.unlink()
    found, _ = salvaged(driver)
    (put_aside,) = [seqs for queue_id, seqs in found.items() if queue_id > 3]
    indexed = int(driver.queues[2].ledger.indexed_upto)
    assert list(put_aside) == list(range(1, indexed)) and indexed > 100
    assert put_aside.items() <= driver.bodies[2].items()


def test_a_report_counts_the_files(driver: CheckedStore) -> None:
    report = reported(driver)
    assert [file.path for file in report.logs] == [
        f"msg_store_persistent/{number}.wal" for number in logs_of(driver)
    ]
    assert sum(queue.messages for queue in report.queues) == 595
    assert all(0.8 * file.size < file.live <= file.size for file in report.logs[1:])
    live = sum(file.live for file in report.logs)
    driver.open()
    driver.settle(1)
    driver.settle(2, 150)
    driver.checkpoint()
    driver.close()
    report = reported(driver)
    assert sum(file.live for file in report.logs) < 0.7 * live
    assert report.as_json()["logs"]["size"] == sum(file.size for file in report.logs)
