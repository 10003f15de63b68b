"""Compaction: which files it picks, what may happen meanwhile, and that garbage is bounded (G8)."""

import random

import pytest

from tests.support.stores.dict_disk.content_driver import (
    DIRECTORY,
    ContentDriver,
    filled,
    paths_of,
    thinned,
)

LIMIT = 4000


@pytest.fixture
def driver() -> ContentDriver:
    return ContentDriver(LIMIT)


def garbage_part(driver: ContentDriver) -> float:
    """The share of garbage in all bytes, 0 to 1."""
    return int(driver.store.garbage_bytes) / int(driver.store.total_bytes)


def test_compaction_waits_for_garbage_and_files(driver: ContentDriver) -> None:
    """S34: compaction needs enough garbage and enough files."""
    ids = filled(driver, 6)
    kept = thinned(driver, ids, 2)
    if garbage_part(driver) <= 0.5:
        assert not driver.start_compaction()
    driver.settle(kept[2])
    driver.settle(kept[8])
    driver.settle(kept[9])
    assert garbage_part(driver) > 0.5
    assert driver.start_compaction()
    assert driver.store.pick_compaction() is None, "one at a time"
    driver.finish_compaction()
    few = ContentDriver(LIMIT)
    thinned(few, filled(few, 1), 100)
    assert garbage_part(few) > 0.5 and few.store.file_count < 3
    assert not few.start_compaction()


def test_on_demand_each_file_with_garbage_is_copied_once(driver: ContentDriver) -> None:
    """Garbage below the half waits for somebody who asks; what comes later is not meant."""
    for content_id in filled(driver, 6)[::4]:
        driver.settle(content_id)
    driver.commit()
    before = int(driver.store.garbage_bytes)
    assert 0.1 < garbage_part(driver) < 0.5 and not driver.start_compaction()
    driver.store.want_compaction()
    wanted = {file.path for file in driver.store.wanted_files()}
    assert len(wanted) >= 5
    seen: list[str] = []
    while driver.start_compaction():
        assert driver.job is not None and driver.store.pick_compaction() is None
        seen += driver.job.source_paths
        assert driver.store.is_wanted and driver.store.wanted_files()
        for content_id in driver.job.live_ids[:2]:
            # Garbage of the copy itself.
            driver.settle(int(content_id))
        driver.finish_compaction()
        driver.check()
    assert not driver.store.is_wanted and driver.store.wanted_files() == []
    assert wanted <= set(seen) and len(seen) == len(set(seen))
    assert int(driver.store.garbage_bytes) < before
    driver.store.want_compaction()
    assert driver.compact_all() > 0
    driver.store.want_compaction()
    assert driver.compact_all() == 0, "there is nothing to do"


def test_a_file_that_cannot_be_copied_ends_no_compaction_on_demand(driver: ContentDriver) -> None:
    for content_id in filled(driver, 4)[::4]:
        driver.settle(content_id)
    driver.commit()
    driver.store.want_compaction()
    tried = 0
    while driver.start_compaction():
        driver.finish_compaction(ok=False)
        tried += 1
        assert tried < 10
    assert tried > 1 and not driver.store.is_wanted
    driver.store.want_compaction()
    assert driver.compact_all() > 0
    driver.check()


def test_what_is_not_written_yet_is_not_copied(driver: ContentDriver) -> None:
    ids = [driver.publish(300) for _ in range(60)]
    driver.seal()
    for content_id in ids[1:]:
        if content_id % 5:
            driver.settle(content_id)
    assert garbage_part(driver) > 0.5 and not driver.start_compaction()
    driver.succeed()
    assert driver.compact_all() > 0
    driver.check()


def test_the_neighbours_with_most_garbage_become_one_file(driver: ContentDriver) -> None:
    """S35, S36: the copy replaces both files in place, with all live contents; they are garbage."""
    ids = filled(driver, 6)
    by_file = [
        [i for i in ids if (driver.store.locate(i) or ("", -1))[1] == number] for number in range(6)
    ]
    for number, left in enumerate([5, 5, 2, 1, 4, 4]):
        for content_id in by_file[number][left:]:
            driver.settle(content_id)
    driver.commit()
    assert driver.start_compaction()
    job = driver.job
    assert job is not None and job.source_paths == [f"{DIRECTORY}/2.rdq", f"{DIRECTORY}/3.rdq"]
    assert job.live_ids == [*by_file[2][:2], by_file[3][0]]
    driver.finish_compaction()
    assert paths_of(driver) == [f"{DIRECTORY}/{number}.rdq" for number in (0, 1, 7, 4, 5, 6)]
    moved, stayed = driver.refs[by_file[2][0]], driver.refs[by_file[1][0]]
    assert driver.store.locate(moved.id) == (f"{DIRECTORY}/7.rdq", 7)
    assert not driver.store.is_current_location(moved) and driver.store.is_current_location(stayed)
    assert driver.store.take_dead_paths() == [f"{DIRECTORY}/2.rdq", f"{DIRECTORY}/3.rdq"]
    driver.check()
    driver.compact_all()
    assert garbage_part(driver) <= 0.5 or driver.store.file_count < 3
    driver.check()


def test_where_no_pair_fits_one_file_is_copied_alone() -> None:
    """A file is copied alone, or garbage behind large contents would stay for ever (G8)."""
    driver = ContentDriver(LIMIT)
    kept = []
    for _ in range(6):
        # The file is nearly full; the large content does not fit, begins another, and is settled.
        kept.append(driver.publish(LIMIT - 400))
        driver.publish(100)
        large = driver.publish(LIMIT - 50)
        driver.commit()
        driver.settle(large)
    driver.commit()
    assert garbage_part(driver) > 0.5
    assert driver.compact_all() > 0
    assert garbage_part(driver) <= 0.5
    for content_id in kept:
        assert driver.store.locate(content_id) is not None
    driver.check()


def test_releases_during_a_compaction(driver: ContentDriver) -> None:
    shared = driver.publish(300, references=3)
    ids = filled(driver, 4)
    left = thinned(driver, ids, 5)
    driver.settle(shared)
    driver.commit()
    while driver.start_compaction():
        job = driver.job
        assert job is not None
        victim = next((i for i in left if i in driver.live and i in job.live_ids), None)
        if victim is not None:
            driver.settle(victim)
        if shared in job.live_ids and driver.live[shared] > 1:
            driver.settle(shared)
        driver.check()
        driver.finish_compaction()
        driver.check()
    assert driver.live[shared] < 3
    driver.commit()
    driver.take_checkpoint()
    driver.crash()
    driver.check()
    while shared in driver.live:
        driver.settle(shared)
    driver.check()


def test_everything_is_released_while_it_is_copied(driver: ContentDriver) -> None:
    for ok in [True, False]:
        ids = filled(driver, int(driver.store.file_count) + 4)
        thinned(driver, ids, 5)
        assert driver.start_compaction()
        job = driver.job
        assert job is not None
        for content_id in job.live_ids:
            driver.settle(int(content_id))
        assert not set(driver.store.take_dead_paths()) & set(job.source_paths), "the job reads them"
        driver.finish_compaction(ok)
        assert set(driver.store.take_dead_paths()) >= {*job.source_paths, job.target_path}
        driver.check()


def test_a_failed_compaction_changes_nothing_and_others_come_first(driver: ContentDriver) -> None:
    ids = filled(driver, 6)
    thinned(driver, ids, 5)
    before = (paths_of(driver), driver.store.total_bytes, driver.store.valid_bytes)
    seen: list[str] = []
    while driver.start_compaction():
        assert driver.job is not None
        seen += driver.job.source_paths
        target = driver.job.target_path
        driver.finish_compaction(False, 0.5)
        assert (paths_of(driver), driver.store.total_bytes, driver.store.valid_bytes) == before
        assert driver.store.take_dead_paths() == [target]
    assert sorted(seen) == paths_of(driver)[:6] and driver.store.failed_compactions >= 3
    # The files whose compaction failed are retried after each of the others had its chance.
    assert driver.start_compaction()
    driver.finish_compaction()
    assert driver.store.failed_compactions == 0 and driver.store.compactions == 1
    driver.check()


def test_damage_costs_one_content(driver: ContentDriver) -> None:
    """G4, G10: a record that fails its CRC is reported and stays behind; its neighbours move."""
    ids = filled(driver, 4)
    left = thinned(driver, ids, 4)
    driver.damage(left[1], 20)
    driver.damage(left[2], 3)
    driver.compact_all()
    assert driver.lost == {left[1], left[2]}
    driver.check()
    # The owner of the lost content releases it; the store only counts the release.
    driver.settle(left[1])
    assert driver.store.unknown_releases == 1
    driver.check()


def test_readers_do_not_wait_for_compaction(driver: ContentDriver) -> None:
    """T66: a reader with the old location can use it until the next checkpoint."""
    ids = filled(driver, 4)
    left = thinned(driver, ids, 5)
    located = {content_id: driver.store.locate(content_id) for content_id in left}

    def read_all() -> None:
        for content_id, place in located.items():
            content = driver.refs[content_id]
            assert place is not None
            record = driver.disk[place[0]][content.offset : content.offset + content.stored_bytes]
            assert record.endswith(driver.bodies[content_id])

    while driver.start_compaction():
        read_all()
        driver.finish_compaction()
        read_all()
    assert any(driver.store.locate(content_id) != place for content_id, place in located.items())
    driver.take_checkpoint(deletes=False)
    read_all()
    driver.check()


def test_the_garbage_stays_bounded_with_a_slow_consumer() -> None:
    """T48, W10: queues at full rate share files with a slow consumer, and garbage stays bounded."""
    rng = random.Random(48)
    driver = ContentDriver(20_000)
    store = driver.store
    quick: list[int] = []
    slow: list[int] = []
    peak = 0
    for turn in range(400):
        for _ in range(20):
            quick.append(driver.publish(rng.choice([100, 400, 900])))
        slow.append(driver.publish(500))
        driver.commit()
        while len(quick) > 40:
            driver.settle(quick.pop(rng.randrange(len(quick))))
        if turn % 10 == 0 and len(slow) > 20:
            driver.settle(slow.pop(rng.randrange(len(slow))))
        driver.commit()
        # The compactor does one job in the time of a commit.
        if driver.start_compaction():
            driver.finish_compaction()
        if turn % 8 == 0:
            driver.take_checkpoint()
        peak = max(peak, int(store.garbage_bytes - store.valid_bytes))
    assert store.compactions > 20
    assert peak <= 4 * 20_000
    driver.check()
