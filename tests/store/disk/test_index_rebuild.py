"""A start without a checkpoint derives the indexes from their segments and loses nothing."""

import random
from pathlib import Path

import pytest

from tests.support.stores.made_files import STORE_ID
from tests.support.stores.store_driver import QUEUES, CheckedStore
from warrenmq.store.disk.index_rebuild import find_places, rebuild_index
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path)


def lose_checkpoints(driver: CheckedStore) -> None:
    for name in (CHECKPOINT_NAME, PREVIOUS_NAME):
        (driver.path / name).unlink(missing_ok=True)


def restart_without_checkpoint(driver: CheckedStore) -> None:
    driver.close()
    lose_checkpoints(driver)
    report = driver.open()
    assert report.is_rebuilt and report.checkpoint == ""
    assert report.missing == [] and report.missing_contents == 0


def fill(driver: CheckedStore, count: int, *queue_ids: int, size: int = 20) -> None:
    for _ in range(count):
        driver.publish(size, *queue_ids)
    driver.commit()


def counts_of(driver: CheckedStore, queue_id: int) -> list[tuple[int, int, int, int]]:
    """Number, records, live records and bytes of each segment of a queue."""
    index = driver.queues[queue_id].ledger.index
    assert index is not None
    return [
        (int(one.number), int(one.entries), int(one.live), int(one.size_bytes))
        for one in index.segments
    ]


def test_what_is_in_the_index_comes_back(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    fill(driver, 5, 1)
    before = counts_of(driver, 1)
    restart_without_checkpoint(driver)
    assert counts_of(driver, 1) == before
    assert driver.queues[1].ledger.indexed_upto == 21 and driver.queues[1].ledger.next_seq == 26
    driver.check()


def test_journal_files_count_up_from_1_when_there_is_none(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    driver.close()
    lose_checkpoints(driver)
    for path in (driver.path / "journal").iterdir():
        path.unlink()
    assert driver.open().is_rebuilt
    fill(driver, 1, 2)
    assert [path.name for path in (driver.path / "journal").iterdir()] == ["1.wal"]


def test_contents_before_the_first_checkpoint_are_no_reason_to_complain(
    driver: CheckedStore,
) -> None:
    fill(driver, 20, 1, size=900)
    driver.close()
    lose_checkpoints(driver)
    report = driver.open()
    assert not report.is_rebuilt and report.missing_contents == 0
    driver.check()


def test_acks_in_the_journal_count(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.settle(1, 3)
    driver.commit()
    driver.index(1)
    driver.settle(1, 6)
    driver.commit()
    restart_without_checkpoint(driver)
    driver.check()
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    restart_without_checkpoint(driver)
    driver.check()


def test_what_only_the_checkpoint_knew_is_delivered_again(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    driver.settle(1, 3)
    driver.checkpoint()
    # Enough commits to delete the journal file with the acks.
    fill(driver, 300, 2)
    for _ in range(4):
        driver.settle(2)
        fill(driver, 300, 2)
        driver.checkpoint()
    assert min(int(path.stem) for path in (driver.path / "journal").iterdir()) > 2
    restart_without_checkpoint(driver)
    assert list(driver.found(1)) == list(range(1, 21))
    assert driver.found(2) == driver.bodies[2]


def test_transient_messages_of_an_earlier_life_do_not_count(driver: CheckedStore) -> None:
    for number in range(12):
        driver.publish(10, 1, persistent=number % 3 == 0)
    driver.commit()
    driver.index(1)
    restart_without_checkpoint(driver)
    assert driver.queues[1].ledger.indexed_upto == 13
    driver.check()
    fill(driver, 3, 1)
    driver.index(1)
    driver.check()
    driver.reopen()
    driver.check()


def test_large_messages_are_counted_once_each(driver: CheckedStore) -> None:
    for _ in range(10):
        driver.publish(1000, 1, 2)
    driver.commit()
    driver.index(1)
    driver.settle(2, 4)
    driver.commit()
    restart_without_checkpoint(driver)
    driver.check()
    for queue_id in QUEUES:
        driver.settle(queue_id)
    driver.commit()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_contents_that_compaction_has_moved_are_found(driver: CheckedStore) -> None:
    for number in range(60):
        driver.publish(1000, 1 if number % 4 == 0 else 2)
    driver.commit()
    driver.index(1)
    driver.index(2)
    driver.settle(2)
    for _ in range(8):
        driver.checkpoint()
    fill(driver, 8, 3, size=1000)
    assert driver.store.contents.persistent.compactions > 0
    restart_without_checkpoint(driver)
    driver.check()
    driver.reopen()
    driver.check()
    # The accounts of the files are good enough to empty them.
    for queue_id in QUEUES:
        driver.settle(queue_id)
    driver.checkpoint()
    driver.checkpoint()
    assert driver.store.contents.persistent.valid_bytes == 0


def test_where_the_journal_knows_of_a_message_that_the_index_lacks_the_index_ends(
    driver: CheckedStore,
) -> None:
    """A power failure may lose appends that no checkpoint had synced while later ones survive."""
    fill(driver, 30, 1)
    driver.index(1)
    segments = sorted((driver.path / "queues/1").iterdir(), key=lambda path: int(path.stem))
    driver.close()
    segments[1].unlink()
    lose_checkpoints(driver)
    report = driver.open()
    assert driver.queues[1].ledger.indexed_upto == 8
    assert [line.partition(" ")[0] for line in report.quarantined] == ["2.idx", "3.idx"]
    driver.check()
    driver.index(1)
    driver.reopen()
    driver.check()


def test_a_hole_within_a_segment(driver: CheckedStore) -> None:
    fill(driver, 7, 1)
    driver.index(1)
    path = driver.path / "queues/1/0.idx"
    data = bytearray(path.read_bytes())
    middle = data.index(b"4.xxx")
    data[middle : middle + 100] = bytes(100)
    driver.close()
    path.write_bytes(data)
    lose_checkpoints(driver)
    driver.open()
    assert driver.queues[1].ledger.indexed_upto == 4
    driver.check()
    driver.index(1)
    driver.check()
    driver.reopen()
    driver.check()


@pytest.mark.parametrize("size", [20, 1000])
@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_segment_of_an_earlier_life_does_not_stand_for_messages_of_this_one(
    driver: CheckedStore, is_persistent: bool, size: int
) -> None:
    """A segment's removal is undone by a power failure after its seq ids were given out again."""
    for _ in range(5):
        driver.publish(20, 1, persistent=is_persistent)
    batch = driver.store.journal.seal()
    driver.index(1)
    driver.fail(batch, driver.now_ms)
    driver.bodies[1].clear()
    path = driver.path / "queues/1/0.idx"
    left = path.read_bytes()
    driver.reopen()
    assert driver.queues[1].ledger.next_seq == 1
    path.unlink()
    fill(driver, 3, 1, size=size)
    driver.index(1)
    driver.close()
    path.write_bytes(left)
    lose_checkpoints(driver)
    driver.open()
    driver.check()
    fill(driver, 3, 1)
    driver.index(1)
    driver.reopen()
    driver.check()


def test_damage_that_nobody_can_mend_costs_its_own_message(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    driver.checkpoint()
    driver.checkpoint()
    driver.close()
    for path in (driver.path / "journal").iterdir():
        path.unlink()
    path = driver.path / "queues/1/1.idx"
    data = bytearray(path.read_bytes())
    data[data.index(b"10.xxx")] ^= 1
    path.write_bytes(data)
    lose_checkpoints(driver)
    report = driver.open()
    assert report.is_rebuilt and report.index_damage == 1
    kept = [found.read_bytes() for found in (driver.path / "lost+found").iterdir()]
    assert len(kept) == 1 and b"0.xxxx" in kept[0]
    del driver.bodies[1][10]
    driver.check()


def test_a_damaged_header_of_a_segment_costs_nothing(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    driver.close()
    path = driver.path / "queues/1/1.idx"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    lose_checkpoints(driver)
    assert driver.open().index_damage == 1
    driver.check()


def test_what_is_not_ours_is_kept(driver: CheckedStore) -> None:
    fill(driver, 20, 1)
    driver.index(1)
    driver.close()
    queues = driver.path / "queues"
    (queues / "notes").write_text("not a directory")
    (queues / "2").write_text("a file")
    (queues / "1/readme.txt").write_text("strange")
    (queues / "1/7.idx").write_bytes(bytes(100))
    (queues / "1/0.idx.new").write_bytes(b"half a copy")
    (queues / "9").mkdir()
    (queues / "9/0.idx").write_bytes((queues / "1/0.idx").read_bytes())
    lose_checkpoints(driver)
    report = driver.open()
    assert sorted(line.partition(" ")[0] for line in report.quarantined) == [
        "0.idx",
        "2",
        "7.idx",
        "notes",
        "readme.txt",
    ]
    assert not (queues / "1/0.idx.new").exists()
    driver.check()


def test_an_unfinished_append_is_no_damage(driver: CheckedStore) -> None:
    fill(driver, 5, 1)
    driver.index(1)
    driver.close()
    path = driver.path / "queues/1/0.idx"
    path.write_bytes(path.read_bytes()[:-10] + bytes(4096))
    lose_checkpoints(driver)
    driver.open()
    driver.check()
    driver.index(1)
    driver.reopen()
    driver.check()


def test_a_second_time_it_is_the_same(driver: CheckedStore) -> None:
    fill(driver, 20, 1, 2)
    fill(driver, 20, 1, 3, size=900)
    driver.index(1)
    driver.close()
    lose_checkpoints(driver)
    files = LocalFileSystem(driver.path)
    found = []
    for _ in range(2):
        rebuilt = rebuild_index(files, STORE_ID, 8)
        found.append(
            (
                [
                    (row.queue_id, row.indexed_upto, row.settled, len(row.segments))
                    for row in rebuilt.checkpoint.queues
                ],
                rebuilt.places,
                rebuilt.damaged_count,
            )
        )
    assert found[0] == found[1] and len(found[0][1]) == 20
    assert find_places(files, STORE_ID) == found[0][1]
    files.release()


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happened_before_nothing_is_lost(driver: CheckedStore, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(rng.randrange(1, 4)):
        driver.churn(rng, 150)
        restart_without_checkpoint_or_contents_that_are_gone(driver)
        for queue_id in QUEUES:
            found = driver.found(queue_id)
            assert list(found) == sorted(found)
            assert driver.bodies[queue_id].items() <= found.items()
            # Acks that only the checkpoint knew are lost.
            driver.bodies[queue_id] = found
        driver.reopen()
        driver.check()


def restart_without_checkpoint_or_contents_that_are_gone(driver: CheckedStore) -> None:
    """Restart without a checkpoint; large messages whose acks only it knew may be lost."""
    driver.close()
    lose_checkpoints(driver)
    assert driver.open().is_rebuilt
