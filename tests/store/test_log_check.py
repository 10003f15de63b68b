"""`warren store check` compares index entries with the records in journal files that stay."""

import random
import shutil
from pathlib import Path

import pytest

from tests.store.disk.test_index_rebuild import lose_checkpoints
from tests.store.disk.test_log_rebuild import places_in, segments_of
from tests.store.index.test_content_logs import REFERRING, deepen, logs_of
from tests.support.stores.checked_directory import checked, edit
from tests.support.stores.store_driver import CheckedStore
from warrenmq.offline.problems import (
    DAMAGED,
    MISSING_CONTENT,
    MISSING_FILE,
    NO_CHECKPOINT,
    NOT_OURS,
)
from warrenmq.store.records.log_places import ENTRY_BYTES, PLACES_HEAD_BYTES
from warrenmq.store.records.record import RECORD_HEADER_BYTES, RecordWriter


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    """A closed store: queues 1 and 2 share deep messages."""
    driver = CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))
    deepen(driver, 300, 1, 2)
    driver.close()
    assert len(logs_of(driver)) > 5
    return driver


def log_of(driver: CheckedStore, place: int) -> Path:
    return driver.path / f"msg_store_persistent/{logs_of(driver)[place]}.wal"


def messages_of(driver: CheckedStore) -> int:
    return sum(len(bodies) for bodies in driver.bodies.values())


def replace_entry(path: Path, is_next: bool) -> int:
    """Have an entry of a segment name the next record, or none; returns its seq id."""
    records = places_in(path)
    start, end, seqs = records[len(records) // 2]
    data = path.read_bytes()
    body = bytearray(data[start + RECORD_HEADER_BYTES : end])
    at = PLACES_HEAD_BYTES + 4
    assert len(body) >= PLACES_HEAD_BYTES + ENTRY_BYTES
    offset = int.from_bytes(body[at : at + 4], "big")
    size = int.from_bytes(body[at + 4 : at + 8], "big")
    body[at : at + 4] = (offset + (size if is_next else 1)).to_bytes(4, "big")
    writer = RecordWriter(data[12:28])
    writer.continue_file(int.from_bytes(data[28:36], "big"))
    writer.raw_record(data[start + 2], bytes(body), b"")
    path.write_bytes(data[:start] + b"".join(writer.take()) + data[end:])
    return seqs[0]


def test_a_whole_store_is_clean(driver: CheckedStore) -> None:
    result = checked(driver)
    assert result.problems == []
    assert result.messages == messages_of(driver)


def test_a_store_without_checkpoints(driver: CheckedStore) -> None:
    lose_checkpoints(driver)
    result = checked(driver)
    assert set(result.problem_counts) == {NO_CHECKPOINT}
    assert result.messages == messages_of(driver)


def test_a_missing_file(driver: CheckedStore) -> None:
    log_of(driver, 3).unlink()
    result = checked(driver)
    assert set(result.problem_counts) == {MISSING_FILE, MISSING_CONTENT}
    assert result.problem_counts[MISSING_FILE] == 1
    assert 2 < result.problem_counts[MISSING_CONTENT] < 60


def test_a_damaged_content(driver: CheckedStore) -> None:
    path = log_of(driver, 3)
    edit(path, lambda data: data.__setitem__(len(data) // 2, data[len(data) // 2] ^ 1))
    result = checked(driver)
    assert dict(result.problem_counts) == {DAMAGED: 1, MISSING_CONTENT: 2}
    assert all(path.name in problem.text for problem in result.problems)


def test_a_damaged_header(driver: CheckedStore) -> None:
    edit(log_of(driver, 3), lambda data: data.__setitem__(20, data[20] ^ 1))
    assert dict(checked(driver).problem_counts) == {DAMAGED: 1}


def test_bytes_behind_all_contents_are_a_note(driver: CheckedStore) -> None:
    edit(log_of(driver, 3), lambda data: data.extend(b"unfinished write" * 10))
    result = checked(driver)
    assert result.problems == []
    assert any("behind all that are needed" in note for note in result.notes)


@pytest.mark.parametrize("is_next", [False, True])
def test_an_entry_whose_record_is_another_one(driver: CheckedStore, is_next: bool) -> None:
    paths = segments_of(driver, 1)
    seq = replace_entry(paths[len(paths) // 3], is_next)
    (problem,) = checked(driver).problems
    assert problem.kind == MISSING_CONTENT
    assert (problem.queue_id, problem.seq) == (1, seq)
    assert "another message's" in problem.text


@pytest.mark.parametrize("is_gone", [False, True])
def test_damaged_entries_are_found_again(driver: CheckedStore, is_gone: bool) -> None:
    path = segments_of(driver, 1)[3]
    start, _, _ = places_in(path)[0]
    edit(path, lambda data: data.__setitem__(start + 30, data[start + 30] ^ 1))
    if is_gone:
        segments_of(driver, 2)[4].unlink()
    result = checked(driver)
    assert set(result.problem_counts) == ({DAMAGED, MISSING_FILE} if is_gone else {DAMAGED})
    assert result.messages == messages_of(driver)
    assert any("found in journal files" in note for note in result.notes)
    driver.open()
    driver.check()


def test_a_file_that_nothing_needs(driver: CheckedStore) -> None:
    path = log_of(driver, 0)
    kept = driver.path / "kept"
    shutil.copy(path, kept)
    driver.open()
    for queue_id in (1, 2):
        driver.settle(queue_id, 60)
    for _ in range(5):
        driver.checkpoint()
    driver.close()
    assert not path.exists()
    kept.rename(path)
    result = checked(driver)
    assert result.problems == []
    assert any(f"{path.name} holds nothing" in note for note in result.notes)
    driver.open()
    driver.checkpoint()
    driver.checkpoint()
    assert not path.exists()


def test_a_file_that_is_not_ours(driver: CheckedStore) -> None:
    path = driver.path / "msg_store_persistent/999999.wal"
    path.write_bytes(b"noise" * 100)
    assert dict(checked(driver).problem_counts) == {NOT_OURS: 1}
    report = driver.open()
    assert [line.partition(" ")[0] for line in report.quarantined] == ["999999.wal"]
    driver.check()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_a_check_is_clean(tmp_path: Path, seed: int) -> None:
    driver = CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))
    rng = random.Random(seed)
    for _ in range(6):
        driver.churn(rng, 100)
        driver.close()
        result = checked(driver)
        assert result.problems == []
        assert result.messages == messages_of(driver)
        driver.open()
