"""A start without checkpoints finds what indexes need in journal files that stay."""

import random
from pathlib import Path

import pytest

from tests.store.disk.test_index_rebuild import lose_checkpoints
from tests.store.index.test_content_logs import REFERRING, deepen, logs_of
from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.store.records.log_places import PLACES, PlacesWriter, entry_count, read_entry
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RecordWriter,
    crc_seed,
    record_length,
)


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))


def segments_of(driver: CheckedStore, queue_id: int) -> list[Path]:
    directory = driver.path / f"queues/{queue_id}"
    return sorted(directory.glob("*.idx"), key=lambda path: int(path.stem))


def places_in(path: Path) -> list[tuple[int, int, list[int]]]:
    """(start, end, seq ids) of each PLACES record in a segment."""
    data = path.read_bytes()
    seed = crc_seed(data[12:28], int.from_bytes(data[28:36], "big"))
    found = []
    at = FILE_HEADER_BYTES
    while at < len(data) and (length := record_length(data, at, seed)) > 0:
        if data[at + 2] == PLACES:
            body = at + RECORD_HEADER_BYTES
            count = entry_count(data, body, at + length)
            seqs = [int(read_entry(data, body, place).seq) for place in range(count)]
            found.append((at, at + int(length), seqs))
        at += length
    return found


def restart(driver: CheckedStore) -> None:
    driver.close()
    lose_checkpoints(driver)
    report = driver.open()
    assert report.is_rebuilt and report.missing == [] and report.quarantined == []


def test_the_files_are_found_and_kept(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    before = logs_of(driver)
    restart(driver)
    driver.check()
    assert driver.losses.lost == 0
    for _ in range(4):
        driver.checkpoint()
    assert set(logs_of(driver)) >= set(before) and before
    driver.reopen()
    driver.check()
    driver.settle(1)
    for _ in range(5):
        driver.checkpoint()
    assert logs_of(driver) == []


def test_what_two_queues_share(driver: CheckedStore) -> None:
    deepen(driver, 300, 1, 2)
    driver.settle(1)
    for _ in range(4):
        driver.checkpoint()
    restart(driver)
    assert driver.found(2) == driver.bodies[2]
    driver.settle(2)
    driver.settle(1)
    for _ in range(5):
        driver.checkpoint()
    assert logs_of(driver) == []


def test_entries_in_damaged_bytes_are_found_again(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    paths = segments_of(driver, 1)
    driver.close()
    for path in paths[2:5]:
        start, _, _ = places_in(path)[0]
        data = bytearray(path.read_bytes())
        data[start + 20] ^= 1
        path.write_bytes(data)
    paths[6].write_bytes(paths[6].read_bytes()[:60])
    lose_checkpoints(driver)
    report = driver.open()
    assert report.index_damage == 4
    driver.check()
    assert driver.losses.lost == 0
    assert len(list((driver.path / "lost+found").iterdir())) == 4


def test_an_index_is_cut_within_a_record(driver: CheckedStore) -> None:
    """Entries behind a message that the journal has and the index lacks are cut off."""
    for _ in range(2):
        for _ in range(9):
            driver.publish(200, 1)
        driver.commit()
        driver.index(1)
    paths = segments_of(driver, 1)
    records = [(path, *place) for path in paths for place in places_in(path)]
    path, start, end, seqs = next(record for record in records if len(record[3]) > 3)
    data = path.read_bytes()
    writer = RecordWriter(data[12:28])
    writer.continue_file(int.from_bytes(data[28:36], "big"))
    places = PlacesWriter()
    for place, seq in enumerate(seqs):
        if seq != seqs[2]:
            places.add_found(1, read_entry(data, start + RECORD_HEADER_BYTES, place), writer)
    places.flush(1, writer)
    driver.close()
    path.write_bytes(data[:start] + b"".join(writer.take()) + data[end:])
    lose_checkpoints(driver)
    driver.open()
    assert driver.queues[1].ledger.indexed_upto == seqs[2]
    assert places_in(path)[-1][2] == seqs[:2]
    driver.check()
    driver.index(1)
    driver.check()
    driver.reopen()
    driver.check()


def test_numbers_of_files_are_not_given_out_again(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    known = driver.found(1)
    highest = logs_of(driver)[-1]
    driver.close()
    lose_checkpoints(driver)
    for path in (driver.path / "journal").iterdir():
        path.unlink()
    driver.open()
    driver.publish(20, 2)
    driver.commit()
    assert min(int(path.stem) for path in (driver.path / "journal").iterdir()) > highest
    found = driver.found(1)
    assert found.items() <= known.items() and len(found) > 100


def test_a_missing_file_is_reported(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    number = logs_of(driver)[2]
    (driver.path / f"msg_store_persistent/{number}.wal").unlink()
    driver.close()
    lose_checkpoints(driver)
    report = driver.open()
    assert [f"{number}.wal" in line for line in report.missing] == [True]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happened_before_nothing_is_lost(driver: CheckedStore, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(6):
        driver.churn(rng, 120)
        driver.close()
        lose_checkpoints(driver)
        driver.open()
        for queue_id in QUEUES:
            assert driver.found(queue_id).items() >= driver.bodies[queue_id].items()
            # Messages come back of which only the checkpoint knew that they were acked.
            driver.bodies[queue_id] = driver.found(queue_id)
        driver.store.check()
