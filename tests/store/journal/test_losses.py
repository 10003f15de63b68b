"""Every loss of journal data is noticed and costs only the lost messages."""

from pathlib import Path

import pytest

from tests.support.stores.made_files import STORE_ID
from tests.support.stores.store_driver import CheckedStore
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    PUBLISH,
    RELEASE,
    crc_seed,
    record_length,
)

LARGE = 1000


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path)


def journal_file(driver: CheckedStore, number: int) -> Path:
    return driver.path / "journal" / f"{number}.wal"


def current_file(driver: CheckedStore) -> Path:
    return journal_file(driver, driver.store.journal.files[-1].number)


def records(path: Path) -> list[tuple[int, int, int]]:
    """The kind, offset and size of each record."""
    data = path.read_bytes().rstrip(b"\0")
    seed = crc_seed(STORE_ID, int(path.stem))
    found = []
    at = FILE_HEADER_BYTES
    while at < len(data):
        length = record_length(data, at, seed)
        assert length > 0
        found.append((data[at + 2], at, length))
        at += length
    return found


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def fail_commit(driver: CheckedStore) -> None:
    """Seal a batch and fail it, with none of its bytes on disk."""
    batch = driver.store.journal.seal()
    assert batch.has_work()
    driver.fail(batch, driver.now_ms)


@pytest.mark.parametrize("is_last_in_file", [False, True])
@pytest.mark.parametrize("queue_count", [2, 3])
def test_a_damaged_release_that_the_checkpoint_counts_costs_no_other_queue(
    driver: CheckedStore, queue_count: int, is_last_in_file: bool
) -> None:
    """A message that comes back releases its reference twice, without loss for the other queues."""
    body = driver.publish(LARGE, *range(1, queue_count + 1))
    driver.commit()
    driver.settle(1)
    driver.commit()
    if not is_last_in_file:
        driver.publish(10, 1)
        driver.commit()
    path = current_file(driver)
    (release,) = [offset for kind, offset, _ in records(path) if kind == RELEASE]
    driver.checkpoint()
    driver.close()
    flip(path, release + 20)
    report = driver.open()
    assert len(report.damage) == 1 and report.torn == []
    assert report.kept_references == queue_count
    assert driver.found(1)[1] == body
    driver.settle(1)
    driver.commit()
    driver.checkpoint()
    for queue_id in range(2, queue_count + 1):
        assert driver.found(queue_id) == {1: body}
    driver.reopen()
    for queue_id in range(2, queue_count + 1):
        assert driver.found(queue_id) == {1: body}


def test_a_release_of_a_failed_batch_is_due_again(driver: CheckedStore) -> None:
    """The content would otherwise keep its space until somebody publishes or acks again."""
    driver.publish(LARGE, 1)
    driver.commit()
    driver.settle(1)
    fail_commit(driver)
    assert driver.store.journal.is_due(driver.now_ms)
    driver.commit()
    assert not driver.store.journal.has_pending()
    driver.reopen()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_a_damaged_release_behind_the_checkpoint_does_not_count(driver: CheckedStore) -> None:
    driver.publish(LARGE, 1, 2)
    driver.commit()
    driver.checkpoint()
    driver.settle(1)
    driver.commit()
    driver.publish(10, 2)
    driver.commit()
    path = current_file(driver)
    (release,) = [offset for kind, offset, _ in records(path) if kind == RELEASE]
    driver.close()
    flip(path, release + 20)
    report = driver.open()
    assert len(report.damage) == 1 and report.kept_references == 0
    for queue_id in (1, 2):
        driver.settle(queue_id)
    driver.commit()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_damage_that_an_earlier_start_met_hides_nothing_from_later_ones(
    driver: CheckedStore,
) -> None:
    """A checkpoint after the damage counts releases itself, so no content stays for ever."""
    driver.publish(LARGE, 1, 2)
    driver.publish(10, 3)
    driver.publish(10, 3)
    driver.commit()
    path = current_file(driver)
    _, (_, damaged, _), _ = records(path)
    driver.close()
    flip(path, damaged + 20)
    report = driver.open()
    assert len(report.damage) == 1 and report.kept_references == 0
    driver.settle(1)
    driver.checkpoint()
    for _ in range(2):
        report = driver.reopen()
        assert len(report.damage) == 1 and report.kept_references == 0
        driver.checkpoint()
    driver.settle(2)
    driver.commit()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_a_missing_file_that_an_earlier_start_missed_hides_nothing_from_later_ones(
    driver: CheckedStore,
) -> None:
    driver.publish(LARGE, 1, 2)
    driver.commit()
    for _ in range(2):
        driver.publish(10, 3)
        driver.store.journal.request_file()
        driver.commit()
    driver.checkpoint()
    lost = driver.store.journal.files[-2].number
    driver.close()
    journal_file(driver, lost).unlink()
    assert driver.open().missing_journal
    driver.settle(1)
    driver.checkpoint()
    report = driver.reopen()
    assert report.missing_journal and report.kept_references == 0
    driver.settle(2)
    driver.commit()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_later_damage_in_a_file_that_was_damaged_before_may_hide_a_release(
    driver: CheckedStore,
) -> None:
    body = driver.publish(LARGE, 1, 2)
    driver.publish(10, 3)
    driver.commit()
    driver.settle(1)
    driver.commit()
    path = current_file(driver)
    (damaged,) = [offset for kind, offset, _ in records(path) if kind == PUBLISH]
    (release,) = [offset for kind, offset, _ in records(path) if kind == RELEASE]
    driver.close()
    flip(path, damaged + 20)
    assert driver.open().kept_references == 0
    driver.checkpoint()
    driver.close()
    flip(path, release + 20)
    assert driver.open().kept_references == 2
    driver.settle(1)
    driver.commit()
    assert driver.found(2) == {1: body}


def test_no_checkpoint_counts_a_release_that_failed_and_is_not_written_again_yet(
    driver: CheckedStore,
) -> None:
    """Such a checkpoint and a crash would bring the message back without its reference."""
    body = driver.publish(LARGE, 1, 2)
    driver.publish(10, 3)
    driver.commit()
    driver.settle(1)
    fail_commit(driver)
    store = driver.store
    before = store.checkpoints.count
    store.checkpoints.want()
    store.advance(driver.now_ms)
    driver.finish_jobs()
    assert store.checkpoints.count == before and store.journal.is_wanted
    driver.reopen()
    driver.settle(1)
    driver.commit()
    assert driver.found(2) == {1: body}


def file_of_its_own(driver: CheckedStore, size: int) -> Path:
    """Write a message of this size to a new journal file."""
    driver.publish(size, 1)
    driver.store.journal.request_file()
    driver.commit()
    return current_file(driver)


def test_a_file_that_is_missing_in_the_middle_is_reported(driver: CheckedStore) -> None:
    files = [file_of_its_own(driver, 20 + number) for number in range(3)]
    size = driver.store.journal.files[-2].size_bytes
    driver.close()
    files[1].unlink()
    report = driver.open()
    assert report.missing_journal == [
        f"journal/{files[1].name} with {size} bytes of messages and acks"
    ]
    assert list(driver.found(1)) == [1, 3]


def test_what_is_missing_before_a_missing_file_may_be_more(driver: CheckedStore) -> None:
    files = [file_of_its_own(driver, 20 + number) for number in range(4)]
    driver.close()
    files[1].unlink()
    files[2].unlink()
    (line,) = driver.open().missing_journal
    assert line.startswith(f"journal/{files[2].name} with ")
    assert line.endswith(f"and whatever there was of {files[1].stem} to {files[1].stem}")


def test_the_newest_file_is_missed_by_the_checkpoint(driver: CheckedStore) -> None:
    driver.publish(20, 1)
    driver.checkpoint()
    path = current_file(driver)
    driver.close()
    path.unlink()
    (line,) = driver.open().missing_journal
    assert line.startswith(f"journal/{path.name} with ")


def test_the_number_of_a_failed_commit_is_not_missed(driver: CheckedStore) -> None:
    driver.publish(20, 1)
    driver.commit()
    driver.publish(20, 2)
    driver.store.journal.request_file()
    fail_commit(driver)
    driver.bodies[2].clear()
    driver.publish(20, 1)
    driver.commit()
    numbers = [file.number for file in driver.store.journal.files]
    assert numbers[-1] == numbers[-2] + 2
    report = driver.reopen()
    assert report.missing_journal == [] and report.damage == []
    driver.bodies[2].clear()
    assert driver.found(1) == driver.bodies[1]


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("has_next_file", [False, True])
def test_the_end_of_a_file_that_is_damaged_or_cut_is_no_unfinished_write(
    driver: CheckedStore, has_next_file: bool, is_cut: bool
) -> None:
    """The next file or the checkpoint says how many bytes there were."""
    driver.publish(20, 1)
    driver.commit()
    driver.publish(20, 1)
    driver.commit()
    path = current_file(driver)
    _, last, length = records(path)[-1]
    if has_next_file:
        driver.store.journal.request_file()
        driver.publish(20, 1)
        driver.commit()
    else:
        driver.checkpoint()
    driver.close()
    if is_cut:
        path.write_bytes(path.read_bytes()[:last])
    else:
        flip(path, last + 20)
    report = driver.open()
    assert report.torn == []
    assert [(damage.start, damage.end) for damage in report.damage] == [(last, last + length)]
    del driver.bodies[1][2]
    assert driver.found(1) == driver.bodies[1]


def test_the_rest_of_a_failed_write_is_no_damage(driver: CheckedStore) -> None:
    driver.publish(20, 1)
    driver.commit()
    path = current_file(driver)
    size = driver.store.journal.files[-1].size_bytes
    driver.publish(20, 2)
    fail_commit(driver)
    assert driver.store.journal.files[-1].size_bytes == size
    with path.open("r+b") as file:
        file.seek(size)
        file.write(b"the beginning of a write that failed")
    driver.publish(20, 1)
    driver.commit()
    report = driver.reopen()
    assert report.damage == [] and len(report.torn) == 1
    assert driver.found(1) == driver.bodies[1]


def test_a_requested_file_is_begun_although_one_is_open(driver: CheckedStore) -> None:
    driver.publish(20, 1)
    driver.commit()
    before = len(driver.store.journal.files)
    driver.store.journal.request_file()
    driver.store.journal.request_file()
    driver.publish(20, 1)
    driver.commit()
    driver.publish(20, 1)
    driver.commit()
    assert len(driver.store.journal.files) == before + 1


@pytest.mark.parametrize("name", ["journal/{}.wal", "msg_store_persistent/{}.rdq"])
def test_a_file_that_was_just_being_made_is_no_damage(driver: CheckedStore, name: str) -> None:
    """A power failure may leave a file whose bytes are no header."""
    driver.publish(LARGE, 1)
    driver.commit()
    driver.close()
    path = driver.path / name.format(77)
    path.write_bytes(bytes(60))
    report = driver.open()
    assert report.quarantined == []
    assert report.unfinished == [f"{path.name} -> {path.name}"]
    driver.check()


def test_a_file_without_a_header_that_is_needed_is_damage(driver: CheckedStore) -> None:
    driver.publish(LARGE, 1)
    driver.commit()
    driver.checkpoint()
    numbered = [current_file(driver), driver.path / "msg_store_persistent" / "0.rdq"]
    driver.close()
    for path in numbered:
        path.write_bytes(bytes(path.stat().st_size))
    report = driver.open()
    assert sorted(report.quarantined) == sorted(f"{path.name} -> {path.name}" for path in numbered)
    assert report.unfinished == []
