"""A backup of a running store contains the store of one commit, whatever happens afterwards."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME
from warrenmq.store.upkeep.backup_pins import WHOLE, BackupFile, BackupListener


class Owner(BackupListener):
    def __init__(self) -> None:
        self.answers: list[bool] = []

    def on_checkpoint(self, ok: bool) -> None:
        self.answers.append(ok)


def begin(driver: CheckedStore) -> Owner:
    owner = Owner()
    driver.store.backup.begin(owner)
    return owner


def checkpointed(driver: CheckedStore) -> Owner:
    owner = begin(driver)
    for _ in range(3):
        driver.commit()
    assert owner.answers == [True]
    return owner


def take(driver: CheckedStore, files: list[BackupFile], target: Path) -> None:
    """Link and copy the files as a backup does, then end the backup."""
    for file in files:
        place = target / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.is_sealed:
            os.link(driver.path / file.path, place)
        else:
            assert file.size_bytes != WHOLE
            data = (driver.path / file.path).read_bytes()[: file.size_bytes]
            assert len(data) == file.size_bytes
            place.write_bytes(data)
    (target / CHECKPOINT_NAME).write_bytes(driver.store.backup.checkpoint)
    driver.store.backup.end()


def opened(copy: Path, target: Path) -> CheckedStore:
    """Open a store on a copy of the backup; the backup itself stays unchanged."""
    shutil.copytree(copy, target)
    return CheckedStore(target)


def content(driver: CheckedStore) -> dict[int, dict[int, bytes]]:
    return {queue_id: driver.found(queue_id) for queue_id in QUEUES}


@pytest.mark.parametrize("seed", range(40))
def test_a_backup_is_the_store_of_one_commit(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    driver = CheckedStore(tmp_path / "store")
    driver.churn(rng, rng.randrange(0, 200))
    checkpointed(driver)
    driver.churn(rng, rng.randrange(0, 100))
    files = driver.store.backup.files()
    expected = {queue_id: dict(bodies) for queue_id, bodies in driver.bodies.items()}
    # Commits continue while the files are copied.
    driver.churn(rng, rng.randrange(0, 100))
    take(driver, files, tmp_path / "backup")
    # No later change may touch a linked file, not even a start from the checkpoint before the last.
    for _ in range(3):
        driver.churn(rng, 60)
        if rng.random() < 0.5:
            driver.close()
            if rng.random() < 0.5:
                (driver.path / CHECKPOINT_NAME).unlink()
            driver.open()
    driver.check()
    restored = opened(tmp_path / "backup", tmp_path / "restored")
    assert restored.report.damage == [] and restored.report.missing == []
    assert content(restored) == expected
    restored.bodies = expected
    restored.churn(rng, 100)
    restored.reopen()
    restored.check()


def test_nothing_is_deleted_while_a_backup_is_made(tmp_path: Path) -> None:
    driver = CheckedStore(tmp_path / "store")
    for _ in range(40):
        driver.publish(1000, 1)
        driver.publish(100, 1)
    driver.commit()
    driver.index(1)
    checkpointed(driver)
    files = driver.store.backup.files()
    driver.settle(1)
    for _ in range(8):
        driver.now_ms += 3000
        driver.checkpoint()
    assert all((driver.path / file.path).exists() for file in files)
    driver.store.backup.end()
    for _ in range(3):
        driver.now_ms += 3000
        driver.checkpoint()
    left = [file.path for file in files if (driver.path / file.path).exists()]
    # The segment and the content file that are appended to stay.
    assert len(left) <= 3 < len(files), left


def test_a_compaction_on_demand_waits_for_the_backup(tmp_path: Path) -> None:
    driver = CheckedStore(tmp_path / "store")
    for _ in range(400):
        driver.publish(1000, 1)
    driver.commit()
    driver.index(1)
    for position in driver.load(1)[::4]:
        driver.settle_one(position)
    driver.commit()
    checkpointed(driver)
    contents = driver.store.contents.persistent
    contents.want_compaction()
    wanted = len(contents.wanted_files())
    assert wanted > 1
    for _ in range(5):
        driver.commit()
    assert (contents.compactions, len(contents.wanted_files())) == (0, wanted)
    driver.store.backup.end()
    while contents.is_wanted:
        driver.commit()
    assert contents.compactions > 0 and contents.wanted_files() == []
    driver.check()


def test_only_the_first_checkpoint_is_the_backup(tmp_path: Path) -> None:
    driver = CheckedStore(tmp_path / "store")
    driver.publish(100, 1)
    owner = checkpointed(driver)
    taken = driver.store.backup.checkpoint
    assert (driver.path / CHECKPOINT_NAME).read_bytes() == taken
    driver.publish(100, 1)
    driver.checkpoint()
    assert owner.answers == [True] and driver.store.backup.checkpoint == taken
    assert (driver.path / CHECKPOINT_NAME).read_bytes() != taken


def test_a_checkpoint_that_fails_ends_the_backup(tmp_path: Path) -> None:
    driver = CheckedStore(tmp_path / "store")
    owner = begin(driver)
    # A directory in the way makes the new checkpoint fail.
    (driver.path / "checkpoint.new").mkdir()
    (driver.path / "checkpoint.new/file").touch()
    store = driver.store
    batch = store.journal.seal()
    store.advance(driver.now_ms)
    assert driver.flush(batch, driver.now_ms) is None
    driver.run_jobs(driver.now_ms)
    assert owner.answers == [False] and not store.backup.is_on
    shutil.rmtree(driver.path / "checkpoint.new")
    driver.now_ms += 1000
    driver.checkpoint()
    checkpointed(driver)


def test_a_commit_that_fails_under_the_checkpoint_ends_the_backup(tmp_path: Path) -> None:
    """A failed commit ends the backup, whose checkpoint would count contents that are not there."""
    driver = CheckedStore(tmp_path / "store")
    owner = begin(driver)
    driver.publish(1000, 1)
    store = driver.store
    batch = store.journal.seal()
    store.advance(driver.now_ms)
    driver.fail(batch, driver.now_ms)
    assert owner.answers == [False] and not store.backup.is_on
    driver.bodies[1].clear()
    driver.now_ms += 1000
    checkpointed(driver)
