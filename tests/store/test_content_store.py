"""The content store case by case; the T numbers are those of the storage reference, section 5."""

import random

import pytest

from tests.support.content_driver import (
    DIRECTORY,
    STORE_ID,
    ContentDriver,
    message_of,
    number_of,
    positions_of,
    source_of,
)
from warren.store.content_records import REFERENCES_MAX
from warren.store.content_recovery import ContentRecovery
from warren.store.content_scan import CHUNK_BYTES, compact_contents, find_contents, scan_contents
from warren.store.content_store import GARBAGE_ALLOWANCE_BYTES, ContentStore
from warren.store.message import ContentRef
from warren.store.record import FILE_HEADER_BYTES

LIMIT = 4000


@pytest.fixture
def driver() -> ContentDriver:
    return ContentDriver(LIMIT)


def filled(driver: ContentDriver, files: int, size: int = 300) -> list[int]:
    """Ids of contents that fill this many files, committed one by one, and one more file that is written to."""
    ids = []
    while driver.store.file_count <= files:
        ids.append(driver.publish(size))
        driver.commit()
    return ids


def thinned(driver: ContentDriver, ids: list[int], every: int) -> list[int]:
    """Settle all but each `every`-th of `ids`; returns those that are left."""
    for place, content_id in enumerate(ids):
        if place % every:
            driver.settle(content_id)
    driver.commit()
    return ids[::every]


def paths_of(driver: ContentDriver) -> list[str]:
    return [file.path for file in driver.store.files]


# -- writing and reading ---------------------------------------------------------------------------------------------


def test_files_fill_up_to_the_limit_and_ids_ascend(driver: ContentDriver) -> None:
    ids = filled(driver, 3)
    assert ids == list(range(1, len(ids) + 1))
    assert paths_of(driver) == [f"{DIRECTORY}/{number}.rdq" for number in range(4)]
    for file in driver.store.files[:3]:
        assert LIMIT <= len(driver.disk[file.path]) < LIMIT + 400
        assert len(driver.disk[file.path]) == file.size_bytes
    driver.check()


@pytest.mark.parametrize(
    "size",
    [0, 1, 4091, 4092, 4093, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2**24 - 1, 2**24, 2**24 + 1, 2**24 + 5 * 2**20],
)  # fmt: skip
def test_sizes_around_the_limits(size: int) -> None:
    """T59: around the embed threshold, the buffer and the file size; compaction moves them all."""
    driver = ContentDriver(2**24)
    size = max(size - 4, 0)
    first, kept, last = driver.publish(10), driver.publish(size), driver.publish(10)
    driver.commit()
    driver.check()
    driver.settle(first)
    driver.settle(last)
    path, number = driver.store.locate(kept) or ("", -1)
    written: list[bytes] = []
    calls: list[int] = []

    def write(parts: list[bytes]) -> None:
        calls.append(sum(map(len, parts)))
        written.extend(parts)

    copied, damaged = compact_contents([source_of(path, driver.disk[path])], [kept], STORE_ID, 50, write)
    assert number == number_of(path) and damaged == []
    assert max(calls) <= CHUNK_BYTES
    driver.disk[driver.store.path_of(50)] = data = b"".join(written)
    assert scan_contents(*source_of("50", data)) == [(*copied[0], True)]
    assert copied[0][1] + copied[0][2] == len(data)


def test_a_content_larger_than_a_file_is_alone(driver: ContentDriver) -> None:
    ids = [driver.publish(size) for size in (10, LIMIT + 1, 10, LIMIT + 1, LIMIT + 1, 10)]
    driver.commit()
    assert [number_of((driver.store.locate(content_id) or ("", 0))[0]) for content_id in ids] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    driver.check()


def test_a_large_body_is_not_copied() -> None:
    store = ContentStore(STORE_ID, DIRECTORY, False)
    message = message_of(bytes(100_000))
    store.add(message, positions_of(message, 1), 0, 1)
    (write,) = store.take_writes()
    assert any(part is message.body for part in write.parts)
    assert write.size_bytes == sum(map(len, write.parts)) == store.total_bytes


def test_128_mib_are_read_and_copied_in_pieces() -> None:
    """T59: nothing of a huge content is in memory but a piece; the body is zeros, so the disk need not hold it."""
    store = ContentStore(STORE_ID, DIRECTORY, False)
    message = message_of(bytes(2**27))
    content = store.add(message, positions_of(message, 1), 0, 1)
    head = store.take_writes()[0].parts[0]
    size = len(head) + 2**27
    largest = 0

    def read(offset: int, count: int) -> bytes:
        nonlocal largest
        largest = max(largest, count)
        return (head[offset : offset + count] + bytes(count))[: min(count, size - offset)]

    seed = source_of("0", b"")[2]
    assert scan_contents(read, size, seed) == [(1, FILE_HEADER_BYTES, content.stored_bytes, True)]
    start = b""
    total = 0

    def write(parts: list[bytes]) -> None:
        nonlocal start, total
        for part in parts:
            assert len(part) <= CHUNK_BYTES
            if len(start) < len(head):
                start += part[: len(head) - len(start)]
            else:
                assert not any(part)
            total += len(part)

    assert compact_contents([(read, size, seed)], [1], STORE_ID, 9, write)[1] == []
    assert total == size and largest <= CHUNK_BYTES

    def read_copy(offset: int, count: int) -> bytes:
        return (start[offset : offset + count] + bytes(count))[: min(count, size - offset)]

    assert scan_contents(read_copy, size, source_of("9", b"")[2])[0][3]


# -- references --------------------------------------------------------------------------------------------------------


def test_a_fan_out_is_stored_once_and_removed_last(driver: ContentDriver) -> None:
    """T60."""
    shared = driver.publish(500, references=200)
    stored_bytes = driver.refs[shared].stored_bytes
    driver.commit()
    assert driver.store.total_bytes == FILE_HEADER_BYTES + stored_bytes
    for _ in range(199):
        driver.settle(shared)
        assert driver.store.valid_bytes == stored_bytes
    driver.settle(shared)
    assert driver.store.valid_bytes == 0
    driver.check()


def test_the_largest_fan_out() -> None:
    store = ContentStore(STORE_ID, DIRECTORY, False)
    message = message_of(b"x")
    positions = positions_of(message, 1) * (REFERENCES_MAX + 1)
    with pytest.raises(AssertionError):
        store.add(message, positions, 0, REFERENCES_MAX + 1)
    content = store.add(message, positions, 0, REFERENCES_MAX)
    for _ in range(REFERENCES_MAX - 1):
        store.release(content.id, content.references, content.stored_bytes)
    assert store.valid_bytes == content.stored_bytes
    store.release(content.id, content.references, content.stored_bytes)
    assert store.valid_bytes == 0 and store.unknown_releases == 0
    store.check()


def test_write_and_remove_races(driver: ContentDriver) -> None:
    """T60, T62: write, remove, write, remove with the writes under way; each order leaves what it should."""
    for plan in ["w", "wr", "wrw", "rw", "rwr", "wwrr"]:
        for ok in [True, False]:
            first = driver.publish(400)
            second = driver.publish(400)
            driver.seal()
            for step in plan:
                if step == "r" and first in driver.live:
                    driver.settle(first)
                elif step == "w":
                    driver.publish(400)
            driver.check()
            if ok:
                driver.succeed()
                assert second in driver.live
            else:
                driver.fail(0.5)
                assert second not in driver.live
            driver.check()
            driver.commit_all()
            driver.check()
    driver.crash()
    driver.check()


def test_releases_nobody_can_explain_are_counted(driver: ContentDriver) -> None:
    content_id = driver.publish(10)
    driver.commit()
    stored_bytes = driver.refs[content_id].stored_bytes
    for unknown in [0, -5, 2, 1 << 40]:
        driver.store.release(unknown, 1, stored_bytes)
    assert driver.store.unknown_releases == 4
    driver.settle(content_id)
    driver.store.release(content_id, 1, stored_bytes)
    assert driver.store.unknown_releases == 5 and driver.store.valid_bytes == 0
    driver.check()


# -- files that go -----------------------------------------------------------------------------------------------------


def test_a_file_goes_with_its_last_content_and_the_current_one_stays(driver: ContentDriver) -> None:
    """T64."""
    ids = filled(driver, 2)
    first_file = [content_id for content_id in ids if (driver.store.locate(content_id) or ("", -1))[1] == 0]
    for content_id in first_file[1:]:
        driver.settle(content_id)
    driver.commit()
    assert driver.store.take_dead_paths() == [] and driver.store.file_count == 3
    driver.settle(first_file[0])
    assert driver.store.dead_bytes == len(driver.disk[f"{DIRECTORY}/0.rdq"])
    assert driver.store.take_dead_paths() == [f"{DIRECTORY}/0.rdq"]
    assert driver.store.locate(first_file[0]) is None
    for content_id in ids[len(first_file) :]:
        driver.settle(content_id)
    assert paths_of(driver) == [f"{DIRECTORY}/2.rdq"] and driver.store.valid_bytes == 0
    driver.check()
    # As soon as it is not the current one any more, it goes as well.
    driver.publish(LIMIT)
    driver.publish(LIMIT)
    driver.commit()
    assert f"{DIRECTORY}/2.rdq" in driver.store.take_dead_paths()
    driver.check()


def test_a_file_does_not_go_before_it_was_written(driver: ContentDriver) -> None:
    """Else its deletion might overtake the write that makes it."""
    ids = [driver.publish(LIMIT) for _ in range(3)]
    driver.seal()
    for content_id in ids:
        driver.settle(content_id)
    assert driver.store.take_dead_paths() == [] and driver.store.file_count == 3
    assert not driver.store.is_written(ids[0])
    driver.succeed()
    assert driver.store.is_written(ids[2]) and not driver.store.is_written(ids[2] + 1)
    assert driver.store.take_dead_paths() == [f"{DIRECTORY}/0.rdq", f"{DIRECTORY}/1.rdq"]
    driver.check()


@pytest.mark.parametrize("kept", [0.0, 0.4, 1.0])
def test_a_failed_write_gives_its_file_up(driver: ContentDriver, kept: float) -> None:
    """W27: what was written before stays, the rest is garbage, and nothing more goes there."""
    before = driver.publish(100)
    driver.commit()
    lost = [driver.publish(100), driver.publish(LIMIT), driver.publish(10)]
    driver.seal()
    driver.settle(lost[0])
    driver.fail(kept)
    after = driver.publish(100)
    driver.commit()
    assert driver.store.locate(after) == (f"{DIRECTORY}/3.rdq", 3)
    assert driver.store.locate(before) == (f"{DIRECTORY}/0.rdq", 0)
    # Perhaps they were not even made.
    assert driver.store.take_dead_paths() == [f"{DIRECTORY}/1.rdq", f"{DIRECTORY}/2.rdq"]
    driver.store.release(lost[1], 1, driver.refs[lost[1]].stored_bytes)
    assert driver.store.unknown_releases > 0
    driver.check()
    driver.crash()
    assert driver.live.keys() == {before, after}
    driver.check()


def test_a_hundred_files(driver: ContentDriver) -> None:
    """T65: write, read all, delete every third, youngest first, three times; ends empty."""
    ids = filled(driver, 120)
    for _ in range(3):
        driver.check()
        for content_id in sorted(driver.live, reverse=True)[:: 3 if len(driver.live) > len(ids) // 3 else 1]:
            driver.settle(content_id)
        driver.commit()
        while driver.start_compaction():
            driver.finish_compaction()
    for content_id in sorted(driver.live, reverse=True):
        driver.settle(content_id)
    driver.commit()
    driver.take_checkpoint()
    assert driver.store.file_count == 1 and driver.store.valid_bytes == 0
    assert list(driver.disk) == paths_of(driver)
    driver.check()


# -- compaction ----------------------------------------------------------------------------------------------------


def test_compaction_waits_for_garbage_and_files(driver: ContentDriver) -> None:
    """S34."""
    ids = filled(driver, 6)
    kept = thinned(driver, ids, 2)
    if driver.store.garbage_fraction <= 0.5:
        assert not driver.start_compaction()
    driver.settle(kept[2])
    driver.settle(kept[8])
    driver.settle(kept[9])
    assert driver.store.garbage_fraction > 0.5
    assert driver.start_compaction()
    assert driver.store.pick_compaction() is None, "one at a time"
    driver.finish_compaction()
    few = ContentDriver(LIMIT)
    thinned(few, filled(few, 1), 100)
    assert few.store.garbage_fraction > 0.5 and few.store.file_count < 3
    assert not few.start_compaction()


def test_what_is_not_written_yet_is_not_copied(driver: ContentDriver) -> None:
    ids = [driver.publish(300) for _ in range(60)]
    driver.seal()
    for content_id in ids[1:]:
        if content_id % 5:
            driver.settle(content_id)
    assert driver.store.garbage_fraction > 0.5 and not driver.start_compaction()
    driver.succeed()
    assert driver.compact_all() > 0
    driver.check()


def test_the_neighbours_with_most_garbage_become_one_file(driver: ContentDriver) -> None:
    """S35, S36: the new file takes their place, what is alive in it is found, and their files are garbage."""
    ids = filled(driver, 6)
    by_file = [[i for i in ids if (driver.store.locate(i) or ("", -1))[1] == number] for number in range(6)]
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
    assert driver.store.garbage_fraction <= 0.5 or driver.store.file_count < 3
    driver.check()


def test_where_no_pair_fits_one_file_is_copied_alone() -> None:
    """Else garbage behind large contents would stay for ever (G8)."""
    driver = ContentDriver(LIMIT)
    kept = []
    for _ in range(6):
        # As large as a file may be before the content that is too much for it, which then goes.
        kept.append(driver.publish(LIMIT - 400))
        driver.publish(100)
        large = driver.publish(LIMIT - 50)
        driver.commit()
        driver.settle(large)
    driver.commit()
    assert driver.store.garbage_fraction > 0.5
    assert driver.compact_all() > 0
    assert driver.store.garbage_fraction <= 0.5
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
    # Once each had its chance they are tried again.
    assert driver.start_compaction()
    driver.finish_compaction()
    assert driver.store.failed_compactions == 0 and driver.store.compactions == 1
    driver.check()


def test_damage_costs_one_content(driver: ContentDriver) -> None:
    """G4, G10: a record that fails its CRC is reported and left behind; its neighbours move."""
    ids = filled(driver, 4)
    left = thinned(driver, ids, 4)
    driver.damage(left[1], 20)
    driver.damage(left[2], 3)
    driver.compact_all()
    assert driver.lost == {left[1], left[2]}
    driver.check()
    # Whoever had it gives it up, and the store does not mind.
    driver.settle(left[1])
    assert driver.store.unknown_releases == 1
    driver.check()


def test_readers_do_not_wait_for_compaction(driver: ContentDriver) -> None:
    """T66: who knows the old location reads there, before, during and after, up to the next checkpoint."""
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
    """T48: many queues at full rate, one that acks a message now and then, and all contents in the same files (W10)."""
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
        assert store.debt_bytes == 0
        peak = max(peak, int(store.garbage_bytes - store.valid_bytes))
    assert store.compactions > 20
    assert peak <= 4 * 20_000
    driver.check()


def test_debt() -> None:
    store = ContentStore(STORE_ID, DIRECTORY, False)
    assert store.debt_bytes == 0 and store.garbage_fraction == 0.0
    store.total_bytes = GARBAGE_ALLOWANCE_BYTES + 2_000
    store.valid_bytes = 900
    assert store.debt_bytes == 200


# -- recovery ------------------------------------------------------------------------------------------------------


def test_references_after_recovery(driver: ContentDriver) -> None:
    """T34: counts are what live positions say; recovered twice, the same; when all is consumed the store is empty."""
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
        driver.store.file_count == 0 and driver.store.total_bytes == 0 and driver.store.unknown_releases == 0
    )
    driver.take_checkpoint()
    assert driver.disk == {}


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("copied", [0.0, 0.02, 0.5, 0.99, 1.0])
def test_a_crash_during_a_compaction(copied: float, with_checkpoint: bool) -> None:
    """T28: contents are there twice, in source and copy, with more or less in the copy; the source counts."""
    driver = ContentDriver(LIMIT)
    left = thinned(driver, filled(driver, 4), 3)
    if with_checkpoint:
        driver.take_checkpoint()
    assert driver.start_compaction()
    target = driver.job.target_path if driver.job is not None else ""
    # A count that differs from what the copy would say.
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
    """T28: when a checkpoint knows the copy, the copy counts, whether the sources are gone or not."""
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
    """T28: the first record that is valid counts, for loads and for copies."""
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
    copied, damaged = compact_contents([source_of(path, driver.disk[path])], ids, STORE_ID, 9, written.extend)
    assert sorted(int(entry[0]) for entry in copied) == ids and damaged == []


@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_ids_are_not_given_out_again(driver: ContentDriver, with_checkpoint: bool) -> None:
    """A content that reached its file but not the journal is garbage; a new one must not be mistaken for it."""
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
    # Nor that of a content that is in the journal, and settled.
    driver.settle(new)
    driver.commit()
    driver.crash()
    assert driver.publish(10) > new


def test_when_a_file_is_missing_nothing_is_taken_for_garbage(driver: ContentDriver) -> None:
    """G10."""
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
    """A checkpoint that contradicts itself is refused; no bytes raise."""
    thinned(driver, filled(driver, 4), 3)
    driver.compact_all()
    rows, next_id, next_number = (
        driver.store.checkpoint_rows(),
        driver.store.next_id,
        driver.store.next_file_number,
    )

    def is_accepted(rows: list[bytes], next_id: int, next_number: int) -> bool:
        return ContentRecovery(ContentStore(STORE_ID, DIRECTORY, False)).restore(rows, next_id, next_number)

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
