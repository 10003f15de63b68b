"""A content store after a crash: references, copies, ids, and checkpoint rows."""

import random
from pathlib import Path

import pytest

from tests.support.stores.dict_disk.content_driver import (
    DIRECTORY,
    ContentDriver,
    filled,
    number_of,
    paths_of,
    source_of,
    thinned,
)
from tests.support.stores.made_files import STORE_ID, message_of
from tests.support.stores.store_driver import SETTINGS, Loaded, StoreDriver
from warrenmq.store.contents.recovery import ContentRecovery
from warrenmq.store.contents.scan import compact_contents, find_contents, scan_contents
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.model.message import ContentRef
from warrenmq.store.records.record import FILE_HEADER_BYTES
from warrenmq.store.settings import StoreSettings

LIMIT = 4000


@pytest.fixture
def driver() -> ContentDriver:
    return ContentDriver(LIMIT)


def test_references_after_recovery(driver: ContentDriver) -> None:
    """T34: live positions give the counts, twice recovered too; an emptied store has no files."""
    rng = random.Random(34)
    ids = [driver.publish(rng.choice([10, 300, 900]), rng.choice([1, 2, 5])) for _ in range(60)]
    driver.commit()
    for content_id in rng.sample(ids, 30):
        driver.settle(content_id)
    driver.commit()
    driver.take_checkpoint()
    for content_id in rng.sample(sorted(driver.live), 20):
        driver.settle(content_id)
    ids += [driver.publish(300, 4) for _ in range(20)]
    driver.commit()
    for content_id in rng.sample(sorted(driver.live), 30):
        driver.settle(content_id)
    driver.commit()
    driver.publish(500)
    driver.seal()
    driver.crash(0.7)
    driver.check()
    rows, next_id = driver.store.checkpoint_rows(), driver.store.next_id
    driver.recover()
    assert (driver.store.checkpoint_rows(), driver.store.next_id) == (rows, next_id)
    while driver.live:
        driver.settle(next(iter(driver.live)))
    driver.commit()
    assert (
        driver.store.file_count == 0
        and driver.store.total_bytes == 0
        and driver.store.unknown_releases == 0
    )
    driver.take_checkpoint()
    assert driver.disk == {}


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("copied", [0.0, 0.02, 0.5, 0.99, 1.0])
def test_a_crash_during_a_compaction(copied: float, with_checkpoint: bool) -> None:
    """T28: of a content in the source and in an unfinished copy, the source counts."""
    driver = ContentDriver(LIMIT)
    left = thinned(driver, filled(driver, 4), 3)
    if with_checkpoint:
        driver.take_checkpoint()
    assert driver.start_compaction()
    target = driver.job.target_path if driver.job is not None else ""
    # A reference count that differs from the one in the copy.
    driver.settle(left[0])
    driver.commit()
    recovery = driver.crash(copied=copied)
    assert recovery.missing_paths == [] and recovery.strange_paths == []
    assert target not in paths_of(driver)
    driver.check()
    if target in driver.disk:
        assert target in driver.store.take_dead_paths()
    assert driver.live.keys() == set(left[1:])


@pytest.mark.parametrize("deletes", [False, True])
def test_a_crash_behind_a_compaction(deletes: bool) -> None:
    """T28: once a checkpoint knows the copy, the copy counts, with the sources deleted or not."""
    driver = ContentDriver(LIMIT)
    thinned(driver, filled(driver, 4), 3)
    driver.compact_all()
    driver.take_checkpoint(deletes)
    paths = set(paths_of(driver))
    driver.crash()
    driver.check()
    assert set(paths_of(driver)) <= paths
    assert set(driver.store.take_dead_paths()) == set(driver.disk) - set(paths_of(driver))


def test_the_same_id_twice_in_one_file(driver: ContentDriver) -> None:
    """T28: the first valid record counts, for loads and for copies."""
    ids = [driver.publish(100) for _ in range(3)]
    driver.commit()
    path = f"{DIRECTORY}/0.rdq"
    data = driver.disk[path]
    driver.disk[path] = data + data[FILE_HEADER_BYTES:]
    driver.check()
    driver.damage(ids[0], 30)
    found = find_contents(*source_of(path, driver.disk[path]), ids)
    assert [found[content_id][1][-104:] for content_id in ids] == [
        driver.bodies[content_id] for content_id in ids
    ]
    written: list[bytes] = []
    copied, damaged = compact_contents(
        [source_of(path, driver.disk[path])], ids, STORE_ID, 9, written.extend
    )
    assert sorted(int(entry[0]) for entry in copied) == ids and damaged == []


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_ids_are_not_given_out_again(driver: ContentDriver, with_checkpoint: bool) -> None:
    """A new content never gets the id of garbage that reached its file but not the journal."""
    kept = driver.publish(10)
    driver.commit()
    if with_checkpoint:
        driver.take_checkpoint()
    garbage = [driver.publish(10) for _ in range(5)]
    driver.seal()
    driver.crash(kept=1.0)
    assert driver.live.keys() == {kept}
    new = driver.publish(10)
    assert new > max(garbage)
    # Neither is the id of a settled content that the journal has.
    driver.settle(new)
    driver.commit()
    driver.crash()
    assert driver.publish(10) > new


def test_when_a_file_is_missing_nothing_is_taken_for_garbage(driver: ContentDriver) -> None:
    """G10: while one file is missing, a file that no checkpoint knows may not be deleted."""
    left = thinned(driver, filled(driver, 4), 3)
    driver.take_checkpoint()
    driver.compact_all()
    gone = f"{DIRECTORY}/0.rdq"
    copy = set(driver.disk) - {f"{DIRECTORY}/{number}.rdq" for number in range(5)}
    del driver.disk[gone]
    store = ContentStore(STORE_ID, DIRECTORY, False, LIMIT)
    recovery = ContentRecovery(store)
    assert recovery.restore(
        driver.checkpoint.rows, driver.checkpoint.next_id, driver.checkpoint.next_file_number
    )
    for path in driver.disk:
        recovery.restore_file(number_of(path), len(driver.disk[path]))
    recovery.finish()
    store.check()
    assert recovery.missing_paths == [gone] and recovery.strange_paths == sorted(copy) and copy
    assert not copy & set(store.take_dead_paths())
    assert store.locate(left[0]) is None and store.locate(left[-1]) is not None


def test_without_a_checkpoint_places_come_from_a_scan(driver: ContentDriver) -> None:
    """A scan finds contents although compaction left old ids in files with high numbers."""
    thinned(driver, filled(driver, 6), 4)
    driver.publish(300)
    driver.commit()
    assert driver.compact_all() > 0
    numbers = [file.number for file in driver.store.files if file.valid_bytes > 0]
    assert numbers != sorted(numbers)
    paths = paths_of(driver)
    store = ContentStore(STORE_ID, DIRECTORY, False, LIMIT)
    recovery = ContentRecovery(store)
    for path in paths:
        recovery.restore_file(number_of(path), len(driver.disk[path]))
    for path in paths:
        for content_id, offset, size, _valid in scan_contents(*source_of(path, driver.disk[path])):
            place = ContentRef(content_id, number_of(path), offset, size, 1, False)
            assert recovery.add_recovered(place, driver.live.get(int(content_id), 0))
    recovery.finish()
    assert recovery.strange_paths == [] and recovery.missing_paths == []
    store.check()
    driver.store = store
    driver.check()


def test_a_content_far_from_its_neighbours_costs_no_memory(driver: ContentDriver) -> None:
    recovery = ContentRecovery(driver.store)
    recovery.restore_file(0, 500)
    for content_id in [5, 1 << 50]:
        assert recovery.add_recovered(ContentRef(content_id, 0, 40, 100, 3, False), 2)
    recovery.finish()
    (row,) = driver.store.checkpoint_rows()
    assert len(row) < 100
    driver.store.check()
    for _ in range(2):
        assert driver.store.valid_bytes == 200
        driver.store.release(1 << 50, 3, 100)
    assert driver.store.valid_bytes == 100 and driver.store.locate(1 << 49) is None


def test_a_content_of_the_tail_that_is_not_there(driver: ContentDriver) -> None:
    recovery = ContentRecovery(driver.store)
    assert recovery.restore([], 1, 0)
    recovery.restore_file(0, 500)
    assert recovery.add_recovered(ContentRef(1, 0, 40, 100, 1, False), 1)
    assert not recovery.add_recovered(ContentRef(2, 0, 440, 100, 1, False), 1), "cut off"
    assert not recovery.add_recovered(ContentRef(3, 1, 40, 100, 1, False), 1), "no such file"
    recovery.finish()
    driver.store.check()
    assert driver.store.valid_bytes == 100 and driver.store.next_id > 3


def test_releases_of_several_lives_without_a_checkpoint_all_count(tmp_path: Path) -> None:
    """A RELEASE record of a later life must not look like a repeated one of an earlier life."""
    driver = StoreDriver(tmp_path, StoreSettings(*SETTINGS))
    queue = driver.add_queue(1)
    placed = [driver.publish_message(message_of(bytes(1000)), 1)[0] for _ in range(3)]
    driver.commit()
    queue.index(placed)
    driver.store.checkpoints.want()
    for _ in range(3):
        driver.commit()
    assert driver.store.checkpoints.count == 1
    for position in placed:
        driver.reopen()
        queue = driver.add_queue(1)
        loaded = Loaded()
        queue.load(position.seq, position.seq + 1, 1, 1 << 40, loaded)
        driver.finish_jobs()
        driver.settle_one(loaded.positions[0])
        driver.commit()
        assert driver.store.checkpoints.count == 0
    driver.reopen()
    assert driver.store.contents.persistent.valid_bytes == 0
    driver.store.check()


def test_rows_are_encoded_again_only_after_a_change(driver: ContentDriver) -> None:
    ids = filled(driver, 3)
    rows = driver.store.checkpoint_rows()
    assert all(new is old for new, old in zip(driver.store.checkpoint_rows(), rows, strict=True))
    driver.settle(ids[0])
    again = driver.store.checkpoint_rows()
    assert again[0] != rows[0] and again[1] is rows[1]
    driver.publish(10)
    assert driver.store.checkpoint_rows()[-1] != again[-1]


def test_rows_that_do_not_add_up(driver: ContentDriver) -> None:
    """A checkpoint that contradicts itself is refused; no bytes raise an exception."""
    thinned(driver, filled(driver, 4), 3)
    driver.compact_all()
    rows, next_id, next_number = (
        driver.store.checkpoint_rows(),
        driver.store.next_id,
        driver.store.next_file_number,
    )

    def is_accepted(rows: list[bytes], next_id: int, next_number: int) -> bool:
        return ContentRecovery(ContentStore(STORE_ID, DIRECTORY, False)).restore(
            rows, next_id, next_number
        )

    assert is_accepted(rows, int(next_id), int(next_number))
    assert not is_accepted(rows, int(next_id) - 1, int(next_number))
    assert not is_accepted(rows, int(next_id), 1)
    assert not is_accepted(rows + rows[-1:], int(next_id), int(next_number))
    assert not is_accepted(rows[::-1], int(next_id), int(next_number))
    for row in rows:
        for end in range(len(row)):
            assert not is_accepted([row[:end]], int(next_id), int(next_number))
        for place in range(len(row)):
            is_accepted([row[:place] + b"\xff" + row[place + 1 :]], int(next_id), int(next_number))
