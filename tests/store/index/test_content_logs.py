"""Journal files that stay: a message that stays is written once."""

import random
from pathlib import Path

import pytest

from tests.support.stores.store_driver import SETTINGS, TURN_MS, CheckedStore, Loaded
from warrenmq.store.jobs.job import ReadRanges, RewriteSegment, StoreJob
from warrenmq.store.journal.window import may_refer
from warrenmq.store.model.message import ABSENT
from warrenmq.store.records.checkpoint import encode_queue
from warrenmq.store.records.log_places import file_of
from warrenmq.store.records.record import FILE_HEADER_BYTES
from warrenmq.store.settings import StoreSettings

DEFAULTS = StoreSettings(1 << 20)
# Two messages of a queue in one journal file are enough to refer to it.
REFERRING = (
    *SETTINGS,
    DEFAULTS.rewrite_min_bytes,
    DEFAULTS.dead_tail_bytes,
    DEFAULTS.garbage_allowance_bytes,
    DEFAULTS.buffer_bytes,
    DEFAULTS.group_bytes,
    DEFAULTS.behind_bytes,
    1,
    2,
    1,
)


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))


def logs_of(driver: CheckedStore) -> list[int]:
    """Numbers of the files that have left the journal but not the disk."""
    directory = driver.path / "msg_store_persistent"
    return sorted(int(path.stem) for path in directory.glob("*.wal"))


def deepen(driver: CheckedStore, count: int, *queue_ids: int) -> None:
    """Publish until the journal has moved what is older to the queues' indexes."""
    for _ in range(count):
        driver.publish(200, *queue_ids)
        driver.commit()
    for _ in range(3):
        driver.checkpoint()


def test_a_deep_message_is_written_once(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    size = sum(path.stat().st_size for path in (driver.path / "queues").rglob("*.idx"))
    indexed = int(driver.queues[1].ledger.indexed_upto)
    assert indexed > 200
    assert size < indexed * 64 + 20_000, "entries, and copies of a few"
    assert len(logs_of(driver)) > 8
    driver.check()
    driver.reopen()
    driver.check()


def test_files_go_when_their_contents_are_consumed(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    assert logs_of(driver)
    driver.settle(1)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert logs_of(driver) == []
    assert driver.store.files.logs.total_bytes() == 0


def test_a_file_stays_until_all_queues_have_consumed_it(driver: CheckedStore) -> None:
    deepen(driver, 300, 1, 2)
    before = logs_of(driver)
    driver.settle(1)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert set(logs_of(driver)) >= set(before[1:-1])
    driver.check()
    driver.settle(2)
    driver.commit()
    for _ in range(4):
        driver.checkpoint()
    assert logs_of(driver) == []


def test_a_file_of_which_little_is_needed_is_emptied(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    rewrites: list[int] = []
    run = driver.runner.run

    def noted(job: StoreJob) -> None:
        if isinstance(job, RewriteSegment):
            rewrites.append(len(job.emptied))
        run(job)

    driver.runner.run = noted  # type: ignore[method-assign]  # sees the jobs that run
    for number, position in enumerate(driver.load(1)):
        if number % 8:
            driver.settle_one(position)
    driver.commit()
    before = len(logs_of(driver))
    for _ in range(60):
        driver.checkpoint()
        driver.check()
    assert any(rewrites)
    assert len(logs_of(driver)) < before // 2
    driver.reopen()
    driver.check()


@pytest.mark.parametrize("where", ["middle", "end", "header only", "nothing", "gone"])
def test_entries_in_damaged_bytes_are_found_again(driver: CheckedStore, where: str) -> None:
    deepen(driver, 300, 1, 2)
    paths = sorted((driver.path / "queues/1").glob("*.idx"), key=lambda path: int(path.stem))
    path = paths[len(paths) // 2]
    data = bytearray(path.read_bytes())
    assert driver.store.queues[1].ledger.index is not None
    match where:
        case "middle":
            data[90] ^= 1
        case "end":
            del data[-30:]
        case "header only":
            del data[FILE_HEADER_BYTES:]
        case "nothing":
            data.clear()
    path.write_bytes(data)
    if where == "gone":
        path.unlink()
    driver.reopen()
    driver.check()
    assert driver.losses.lost == 0
    assert path.stat().st_size > FILE_HEADER_BYTES
    driver.check()


def test_a_damaged_content_costs_its_own_message(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    path = driver.path / f"msg_store_persistent/{logs_of(driver)[3]}.wal"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    driver.reopen()
    found = driver.found(1)
    assert len(found) == len(driver.bodies[1]) - 1
    assert driver.losses.lost == 1
    assert found.items() <= driver.bodies[1].items()


def test_a_missing_file_costs_its_messages_and_is_reported(driver: CheckedStore) -> None:
    deepen(driver, 300, 1)
    number = logs_of(driver)[3]
    (driver.path / f"msg_store_persistent/{number}.wal").unlink()
    report = driver.reopen()
    assert [f"{number}.wal" in line for line in report.missing] == [True]
    found = driver.found(1)
    assert 0 < driver.losses.lost < 40
    assert len(found) + driver.losses.lost == len(driver.bodies[1])
    assert found.items() <= driver.bodies[1].items()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_queue_delivers_its_messages(tmp_path: Path, seed: int) -> None:
    driver = CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))
    rng = random.Random(seed)
    for _ in range(8):
        driver.churn(rng, 120)
        driver.check()
        if rng.random() < 0.5:
            driver.reopen()
            driver.check()


def settle_all_but_few(driver: CheckedStore) -> None:
    """Settle the indexed messages of queue 1, except one of 16."""
    for position in driver.load(1):
        if position.seq < driver.queues[1].ledger.indexed_upto and position.seq % 16 != 7:
            driver.settle_one(position)
    driver.commit()


def advance(driver: CheckedStore) -> list[StoreJob]:
    """Begin a checkpoint; returns the jobs that are due, none of which has run."""
    driver.now_ms += TURN_MS
    driver.store.checkpoints.want()
    batch = driver.store.journal.seal()
    driver.store.advance(driver.now_ms)
    assert driver.flush(batch, driver.now_ms) is None
    return driver.store.take_jobs(driver.now_ms)


def emptying_of(driver: CheckedStore, path: str) -> RewriteSegment:
    """Take checkpoints until `path` is rewritten with contents; the job has not finished yet."""
    for _ in range(200):
        jobs = advance(driver)
        while jobs:
            for job in jobs:
                driver.runner.run(job)
                if isinstance(job, RewriteSegment) and job.path == path and job.emptied:
                    return job
                job.finished()
            jobs = driver.store.take_jobs(driver.now_ms)
    raise AssertionError("the segment is never rewritten")


def test_entries_of_settled_messages_are_left_out(tmp_path: Path) -> None:
    """W24: a segment of entries is rewritten like one of contents, and refers to the same files."""
    driver = CheckedStore(tmp_path, tuple(int(each) for each in REFERRING))
    driver.settings.rewrite_min_bytes = 200
    driver.settings.empty_files_min = 1 << 40
    driver.reopen()
    deepen(driver, 400, 1)
    paths = sorted((tmp_path / "queues/1").glob("*.idx"), key=lambda path: int(path.stem))
    before = {path: path.stat().st_size for path in paths}
    settle_all_but_few(driver)
    for _ in range(60):
        driver.checkpoint()
    rewritten = [path for path in paths[:-2] if path.exists()]
    assert len(rewritten) > 10
    for path in rewritten:
        # A file header, and one record with one entry.
        assert path.stat().st_size < min(before[path], 120)
    driver.check()
    driver.reopen()
    driver.check()


@pytest.mark.parametrize("is_emptying_first", [False, True])
def test_a_segment_is_emptied_while_it_is_loaded(
    driver: CheckedStore, is_emptying_first: bool
) -> None:
    """A load of entries that are replaced by contents delivers each message once."""
    driver.settings.empty_files_min = 1
    deepen(driver, 400, 1)
    settle_all_but_few(driver)
    wanted = {seq: body for seq, body in driver.bodies[1].items() if seq < 160}
    loaded = Loaded()
    driver.queues[1].load(0, 160, 1 << 40, 1 << 40, loaded)
    jobs = driver.store.take_jobs(driver.now_ms)
    (read,) = (job for job in jobs if isinstance(job, ReadRanges))
    path = read.ranges[0][0]
    for job in jobs:
        if job is not read:
            driver.runner.run(job)
            job.finished()
    emptying = emptying_of(driver, path)
    driver.runner.run(read)
    for job in (emptying, read) if is_emptying_first else (read, emptying):
        job.finished()
    for _ in range(8):
        driver.commit()
    found = {int(each.seq): each.message.body for each in loaded.positions}
    while loaded.next_seq < 160:
        from_seq = loaded.next_seq
        loaded = Loaded()
        driver.queues[1].load(from_seq, 160, 1 << 40, 1 << 40, loaded)
        driver.finish_jobs()
        found.update({int(each.seq): each.message.body for each in loaded.positions})
    assert found == wanted
    assert driver.losses.damage == [] and driver.losses.lost == 0


def test_contents_of_a_file_that_was_emptied_take_one_more_read(driver: CheckedStore) -> None:
    """A position in memory may name a file that is gone; its segment has the content by then."""
    deepen(driver, 400, 1)
    settle_all_but_few(driver)
    kept = [each for each in driver.load(1) if each.place < -1]
    before = logs_of(driver)
    for _ in range(80):
        driver.checkpoint()
    gone = set(before) - set(logs_of(driver))
    stale = [each for each in kept if int(file_of(each.place)) in gone]
    assert len(stale) > 4
    for position in stale:
        position.message = ABSENT
        position.has_content = False
    filled = Loaded()
    driver.queues[1].load_contents(list(stale), filled)
    driver.finish_jobs()
    assert filled.lost == []
    assert {int(each.seq): each.message.body for each in stale} == {
        int(each.seq): driver.bodies[1][int(each.seq)] for each in stale
    }


def test_entries_in_damaged_bytes_are_found_before_their_file_is_emptied(
    driver: CheckedStore,
) -> None:
    deepen(driver, 400, 1)
    settle_all_but_few(driver)
    index = driver.store.queues[1].ledger.index
    assert index is not None
    damaged = index.segments[len(index.segments) // 2]
    path = driver.path / index.path_of(damaged)
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    before = len(logs_of(driver))
    for _ in range(60):
        driver.checkpoint()
    assert len(logs_of(driver)) < before // 2
    assert damaged.rewrites > 0
    driver.check()
    assert driver.losses.lost == 0
    driver.reopen()
    driver.check()
    assert driver.losses.lost == 0


@pytest.mark.parametrize("small_count", [199, 203])
def test_a_file_does_not_stay_for_contents_that_are_elsewhere(
    driver: CheckedStore, small_count: int
) -> None:
    """A stretch reaches over messages of the content store, and over whole segments of them.

    Segments have 8 positions, the first one 7: it ends in the midst of one, or does not.
    """

    deepen(driver, small_count, 1)
    for _ in range(64):
        # Too large for the index.
        driver.publish(300, 1)
    deepen(driver, 300, 2)
    queue = driver.queues[1]
    assert queue.row == encode_queue(queue.ledger, False), "the checkpoint has the shorter stretch"
    for position in driver.load(1):
        if position.content_bytes < 256:
            driver.settle_one(position)
    driver.settle(2)
    driver.commit()
    driver.store.settings.empty_files_min = 1
    for _ in range(20):
        driver.checkpoint()
        driver.check()
    assert logs_of(driver) == []


def test_garbage_counts_after_a_restart(driver: CheckedStore) -> None:
    deepen(driver, 400, 1)
    settle_all_but_few(driver)
    driver.checkpoint()
    driver.reopen()
    before = len(logs_of(driver))
    assert before > 8
    for _ in range(60):
        driver.checkpoint()
    assert len(logs_of(driver)) < before // 2
    driver.check()


def test_a_file_that_someone_has_deleted_is_not_referred_to(driver: CheckedStore) -> None:
    for _ in range(60):
        driver.publish(200, 1)
        driver.commit()
    journal = driver.store.journal
    file = journal.files[-2]
    assert may_refer(journal, file)
    journal.gone_upto = file.number
    assert not may_refer(journal, file)


def test_a_file_that_stays_for_few_messages_is_emptied(driver: CheckedStore) -> None:
    """What was consumed before a file left the journal is garbage too."""
    for number in range(600):
        driver.publish(200, 1 if number % 3 else 2)
        driver.commit()
        if number % 30 == 29:
            # Queue 2 is never indexed: most of it is consumed in the journal.
            driver.settle(2)
    driver.settle(2)
    for _ in range(3):
        driver.checkpoint()
    for log in driver.store.files.logs.retained.values():
        assert log.garbage_bytes * 5 > log.size_bytes
