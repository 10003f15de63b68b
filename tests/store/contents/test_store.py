"""The content store: writes, references, deleted files; T numbers are in test_storage_facts.py."""

import pytest

from tests.support.stores.dict_disk.content_driver import (
    DIRECTORY,
    ContentDriver,
    filled,
    number_of,
    paths_of,
    positions_of,
    source_of,
)
from tests.support.stores.made_files import STORE_ID, message_of
from warrenmq.store.contents.scan import CHUNK_BYTES, compact_contents, scan_contents
from warrenmq.store.contents.store import ContentStore
from warrenmq.store.records.content import REFERENCES_MAX
from warrenmq.store.records.record import FILE_HEADER_BYTES

LIMIT = 4000


@pytest.fixture
def driver() -> ContentDriver:
    return ContentDriver(LIMIT)


# -- writing and reading ---------------------------------------------------------------------------


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
    """T59: sizes around embed threshold, buffer and file size are read; compaction moves them."""
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

    copied, damaged = compact_contents(
        [source_of(path, driver.disk[path])], [kept], STORE_ID, 50, write
    )
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
    """T59: only one piece of a huge content is in memory; its zeros take no space on the disk."""
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


# -- references ------------------------------------------------------------------------------------


def test_a_fan_out_is_stored_once_and_removed_last(driver: ContentDriver) -> None:
    """T60: a fan-out takes the space of one content until its last reference is released."""
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
    """T60, T62: any order of writes and removals during a commit leaves what it should."""
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


# -- files that go ---------------------------------------------------------------------------------


def test_a_file_goes_with_its_last_content_and_the_current_one_stays(driver: ContentDriver) -> None:
    """T64: a file whose contents are all settled is deleted, the current file stays."""
    ids = filled(driver, 2)
    first_file = [
        content_id for content_id in ids if (driver.store.locate(content_id) or ("", -1))[1] == 0
    ]
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
    # The file is deleted as soon as it is not the current one.
    driver.publish(LIMIT)
    driver.publish(LIMIT)
    driver.commit()
    assert f"{DIRECTORY}/2.rdq" in driver.store.take_dead_paths()
    driver.check()


def test_a_file_does_not_go_before_it_was_written(driver: ContentDriver) -> None:
    """A file is deleted only after its write, which the deletion might overtake otherwise."""
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
    """W27: earlier contents stay, the failed ones are garbage, and nothing more is added."""
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
    # The failed write may not even have made these files.
    assert driver.store.take_dead_paths() == [f"{DIRECTORY}/1.rdq", f"{DIRECTORY}/2.rdq"]
    driver.store.release(lost[1], 1, driver.refs[lost[1]].stored_bytes)
    assert driver.store.unknown_releases > 0
    driver.check()
    driver.crash()
    assert driver.live.keys() == {before, after}
    driver.check()


def test_a_hundred_files(driver: ContentDriver) -> None:
    """T65: a hundred files are written, read, thinned youngest first, and emptied."""
    ids = filled(driver, 120)
    for _ in range(3):
        driver.check()
        for content_id in sorted(driver.live, reverse=True)[
            :: 3 if len(driver.live) > len(ids) // 3 else 1
        ]:
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
