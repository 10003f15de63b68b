"""Segments from their first position to their deletion; a start reads none of them."""

import errno
from pathlib import Path

import pytest

from tests.support.stores.store_driver import QUEUES, TURN_MS, CheckedStore, Loaded
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.jobs.job import ReadRanges, RewriteSegment, StoreJob
from warrenmq.store.journal.window import WINDOW_BYTES_PER_QUEUE, WINDOW_FILES
from warrenmq.store.model.message import ABSENT
from warrenmq.store.model.queue_index import REWRITE_MIN_BYTES
from warrenmq.store.records.record import FILE_HEADER_BYTES

MIB = 1048576


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    return CheckedStore(tmp_path)


def embedding_store(path: Path, segment_entries: int) -> CheckedStore:
    """A store with large files whose segments have the contents of their messages."""
    driver = CheckedStore(path, (4 * MIB, 16 * MIB, MIB, segment_entries))
    # No queue has so many messages in one journal file that its index refers to that file.
    driver.settings.refer_entries = 1 << 40
    return driver


def fill(driver: CheckedStore, count: int, *queue_ids: int, size: int = 20) -> None:
    for _ in range(count):
        driver.publish(size, *queue_ids)
    driver.commit()


def segments_of(driver: CheckedStore, queue_id: int) -> list[int]:
    """The numbers of a queue's segment files."""
    directory = driver.path / "queues" / str(queue_id)
    return sorted(int(path.stem) for path in directory.glob("*.idx"))


def found_in_time(driver: CheckedStore, queue_id: int) -> dict[int, bytes]:
    """The bodies that a queue's index delivers, by seq id, with retries of failed reads."""
    found: dict[int, bytes] = {}
    ledger = driver.queues[queue_id].ledger
    next_seq = 0
    while next_seq < ledger.indexed_upto:
        loaded = Loaded()
        driver.queues[queue_id].load(next_seq, ledger.indexed_upto, 1 << 40, 1 << 40, loaded)
        for _ in range(50):
            driver.commit()
        assert loaded.next_seq > next_seq
        next_seq = loaded.next_seq
        found.update({position.seq: position.message.body for position in loaded.positions})
    return found


class Reads:
    """A record of all reads from its creation on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ranges: list[tuple[str, int]] = []
        read = LocalFileSystem.read_pieces

        def noted(files: LocalFileSystem, path: str, pieces: list[tuple[int, int]]) -> list[bytes]:
            self.ranges += [(path, size) for _, size in pieces]
            return read(files, path, pieces)

        monkeypatch.setattr(LocalFileSystem, "read_pieces", noted)


def test_a_start_reads_the_checkpoint_and_the_journal_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G5, W4, T72, T73: a start reads no segment and no content, however deep the queues are."""
    bytes_read: list[int] = []
    for depth in (50, 500):
        driver = CheckedStore(tmp_path / str(depth))
        fill(driver, depth, 1)
        fill(driver, depth, 1, size=300)
        driver.index(1)
        # Enough commits for the journal to delete its records of queue 1.
        for _ in range(3):
            fill(driver, 400, 2)
            driver.settle(2)
            driver.checkpoint()
        driver.close()
        reads = Reads(monkeypatch)
        report = driver.open()
        assert not [path for path, _ in reads.ranges if path.startswith("queues/")]
        assert {size for path, size in reads.ranges if path.endswith(".rdq")} == {FILE_HEADER_BYTES}
        bytes_read.append(report.bytes_read)
        driver.check()
        driver.close()
    # One more content file adds a few bytes to the checkpoint.
    assert bytes_read[1] - bytes_read[0] < 20_000
    assert bytes_read[1] < 60_000


def test_a_segment_goes_when_all_of_it_is_settled(driver: CheckedStore) -> None:
    """T64: a settled segment is deleted at the second checkpoint, unless it is appended to."""
    fill(driver, 20, 1)
    driver.index(1)
    assert segments_of(driver, 1) == [0, 1, 2]
    held = driver.load(1, 3)[2]
    for position in driver.load(1, 20):
        if position.seq != held.seq:
            driver.settle_one(position)
    for _ in range(3):
        driver.checkpoint()
    assert segments_of(driver, 1) == [0, 2]
    driver.settle_one(held)
    driver.checkpoint()
    assert segments_of(driver, 1) == [0, 2]
    driver.checkpoint()
    assert segments_of(driver, 1) == [2]
    fill(driver, 3, 1)
    driver.index(1)
    driver.check()
    driver.reopen()
    driver.check()


def test_a_segment_with_little_alive_is_rewritten(tmp_path: Path) -> None:
    """W24: one remaining message does not keep a megabyte of settled ones on disk."""
    driver = embedding_store(tmp_path, 8)
    fill(driver, 18, 1, size=200_000)
    driver.index(1)
    path = tmp_path / "queues" / "1" / "1.idx"
    assert path.stat().st_size > REWRITE_MIN_BYTES
    for position in driver.load(1):
        if position.seq != 10:
            driver.settle_one(position)
    for _ in range(4):
        driver.checkpoint()
    assert path.stat().st_size < 300_000
    driver.check()
    for _ in range(2):
        driver.reopen()
        driver.check()
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    assert not path.exists()


def test_all_segments_with_little_alive_are_rewritten(tmp_path: Path) -> None:
    """W24: segments are rewritten even if nothing more happens to their queue."""
    driver = embedding_store(tmp_path, 8)
    fill(driver, 40, 1, size=200_000)
    driver.index(1)
    for position in driver.load(1):
        if position.seq % 8 != 2:
            driver.settle_one(position)
    for _ in range(10):
        driver.checkpoint()
    # The last segment is still appended to.
    sizes = [path.stat().st_size for path in sorted((tmp_path / "queues" / "1").iterdir())]
    assert max(sizes[:-1]) < 300_000
    driver.check()


def reads_of(driver: CheckedStore) -> list[StoreJob]:
    """The reads that are due; all other jobs are run."""
    reads: list[StoreJob] = []
    for job in driver.store.take_jobs(driver.now_ms):
        if isinstance(job, ReadRanges):
            reads.append(job)
        else:
            driver.runner.run(job)
            job.finished()
    return reads


def rewrite_of(driver: CheckedStore) -> RewriteSegment:
    """Take checkpoints until a segment is rewritten; the job has run but has not finished yet."""
    for _ in range(10):
        driver.now_ms += TURN_MS
        driver.store.checkpoints.want()
        batch = driver.store.journal.seal()
        driver.store.advance(driver.now_ms)
        assert driver.flush(batch, driver.now_ms) is None
        while jobs := driver.store.take_jobs(driver.now_ms):
            for job in jobs:
                driver.runner.run(job)
                if isinstance(job, RewriteSegment):
                    return job
                job.finished()
    raise AssertionError("no segment is rewritten")


@pytest.mark.parametrize("is_rewrite_first", [False, True])
def test_a_segment_is_rewritten_while_it_is_loaded(tmp_path: Path, is_rewrite_first: bool) -> None:
    """A load that a rewrite overtakes starts again and skips no message, whichever ends first."""
    driver = embedding_store(tmp_path, 16)
    fill(driver, 36, 1, size=100_000)
    driver.index(1)
    queue = driver.queues[1]
    for position in driver.load(1):
        if position.seq not in (13, 14, 15):
            driver.settle_one(position)
    driver.commit()
    loaded = Loaded()
    queue.load(1, 16, 100, 1 << 20, loaded)
    path = tmp_path / "queues" / "1" / "0.idx"
    before = path.stat().st_size
    (first,) = reads_of(driver)
    driver.runner.run(first)
    first.finished()
    # All of the first piece is settled. The segment is replaced before the second piece is read.
    (second,) = reads_of(driver)
    rewrite = rewrite_of(driver)
    driver.runner.run(second)
    for job in (rewrite, second) if is_rewrite_first else (second, rewrite):
        job.finished()
    assert path.stat().st_size < before
    driver.finish_jobs()
    assert [int(position.seq) for position in loaded.positions] == [13, 14, 15]
    assert driver.losses.damage == [] and driver.losses.lost == 0
    driver.check()


def test_a_segment_dies_while_it_is_loaded(driver: CheckedStore) -> None:
    """A load whose segment is deleted before its read continues after it and loses nothing."""
    fill(driver, 20, 1)
    driver.index(1)
    queue = driver.queues[1]
    positions = driver.load(1)
    loaded = Loaded()
    queue.load(8, 1 << 40, 100, 1 << 40, loaded)
    (read,) = reads_of(driver)
    for position in positions:
        if position.seq < 16:
            driver.settle_one(position)
    for _ in range(4):
        driver.checkpoint()
    assert not (driver.path / "queues" / "1" / "1.idx").exists()
    driver.runner.run(read)
    read.finished()
    driver.finish_jobs()
    assert [int(position.seq) for position in loaded.positions] == [*range(16, 21)]
    assert driver.losses.damage == [] and driver.losses.lost == 0
    driver.check()


def test_contents_in_a_segment_that_was_rewritten_take_one_more_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stale places, of the longer old copy, cost one read of the whole file; failed reads retry."""
    driver = embedding_store(tmp_path, 128)
    fill(driver, 130, 1, size=20_000)
    kept = [driver.positions[1][seq] for seq in range(20, 127, 5)]
    driver.index(1)
    for position in driver.load(1):
        if position.seq < 128 and position.seq not in {one.seq for one in kept}:
            driver.settle_one(position)
    for _ in range(4):
        driver.checkpoint()
    assert driver.store.rewriter.rewrite_count == 1
    for position in kept:
        position.message = ABSENT
        position.has_content = False
    reads = Reads(monkeypatch)
    loaded = Loaded()
    failures = 0
    driver.queues[1].load_contents(list(kept), loaded)
    for _ in range(50):
        driver.now_ms += 30
        driver.store.advance(driver.now_ms)
        for job in driver.store.take_jobs(driver.now_ms):
            assert isinstance(job, ReadRanges)
            if len(job.ranges) == 1 and failures == 0:
                failures += 1
                job.results = [None]
            else:
                driver.runner.run(job)
            job.finished()
    assert loaded.lost == [] and failures == 1
    assert {position.seq: position.message.body for position in kept} == {
        position.seq: driver.bodies[1][position.seq] for position in kept
    }
    # One read at the first position's place, still inside the file, and one of the whole file.
    assert len(reads.ranges) == 2
    driver.close()


def test_a_lost_segment_costs_what_was_in_it(driver: CheckedStore) -> None:
    """T26, T32: the loss is counted and reported at the first load; all queues continue."""
    fill(driver, 20, 1, 2)
    driver.index(1)
    driver.index(2)
    driver.checkpoint()
    driver.close()
    (driver.path / "queues" / "1" / "1.idx").unlink()
    report = driver.open()
    assert report.missing == []
    found = found_in_time(driver, 1)
    assert list(found) == [*range(1, 8), *range(16, 21)]
    assert driver.losses.lost == 8
    assert driver.found(2) == driver.bodies[2]
    fill(driver, 5, 1)
    driver.index(1)
    assert list(found_in_time(driver, 1)) == [*range(1, 8), *range(16, 26)]
    assert driver.losses.lost == 8


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_damaged_segment_costs_one_message_and_still_goes(
    driver: CheckedStore, is_mixed: bool
) -> None:
    """T32, G10: damaged bytes are copied to lost+found and do not keep their segment alive."""
    for number in range(20):
        # In a mixed queue every third message is transient.
        driver.publish(20, 1, persistent=not is_mixed or number % 3 > 0)
    driver.commit()
    driver.index(1)
    driver.checkpoint()
    path = driver.path / "queues" / "1" / "1.idx"
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + 100] ^= 4
    path.write_bytes(data)
    assert len(driver.load(1)) == 19
    assert [name for name, _, _ in driver.losses.damage] == ["queues/1/1.idx"]
    assert driver.losses.lost == 1
    assert len(list((driver.path / "lost+found").iterdir())) == 1
    driver.store.check()
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    assert segments_of(driver, 1) == [2]


def test_records_that_are_damaged_after_they_were_loaded_cost_nobody_else(
    driver: CheckedStore,
) -> None:
    """Damage under settled messages, which are not counted as alive, deletes no live message."""
    fill(driver, 20, 1)
    driver.index(1)
    driver.checkpoint()
    loaded = [position for position in driver.load(1) if 8 <= position.seq < 16]
    path = driver.path / "queues" / "1" / "1.idx"
    data = bytearray(path.read_bytes())
    for position in loaded[:3]:
        data[position.place + 30] ^= 4
    path.write_bytes(data)
    # Another load of the segment meets the damage.
    assert [position.seq for position in driver.load(1)] == [*range(1, 8), *range(11, 21)]
    for position in loaded[:6]:
        driver.settle_one(position)
    driver.checkpoint()
    driver.checkpoint()
    left = [*range(1, 8), *range(14, 21)]
    assert list(driver.found(1)) == left
    driver.reopen()
    assert list(driver.found(1)) == left


def test_a_damaged_segment_is_counted_though_there_is_no_descriptor_at_first(
    driver: CheckedStore,
) -> None:
    """A lost message that still counts as alive would keep the segment for good."""
    fill(driver, 20, 1)
    driver.index(1)
    driver.checkpoint()
    path = driver.path / "queues" / "1" / "1.idx"
    data = bytearray(path.read_bytes())
    data[FILE_HEADER_BYTES + 100] ^= 4
    path.write_bytes(data)
    loaded = Loaded()
    driver.queues[1].load(8, 16, 8, 1 << 40, loaded)
    reads = 0
    while jobs := driver.store.take_jobs(driver.now_ms):
        for job in jobs:
            reads += isinstance(job, ReadRanges)
            if isinstance(job, ReadRanges) and reads == 2:
                job.error = OSError(errno.EMFILE, "too many open files")
            else:
                driver.runner.run(job)
            job.finished()
    # The load waits until it is known what is lost.
    assert (reads, len(loaded.positions), driver.losses.lost) == (2, 0, 0)
    driver.now_ms += 250
    driver.store.advance(driver.now_ms)
    driver.finish_jobs()
    assert (len(loaded.positions), driver.losses.lost) == (7, 1)
    assert driver.queues[1].take_lost() == 1
    driver.settle(1)
    driver.checkpoint()
    driver.checkpoint()
    assert segments_of(driver, 1) == [2]


def test_transient_messages_are_paged_and_do_not_outlive_the_node(driver: CheckedStore) -> None:
    """T61: small and large transient messages leave no trace in counts or files."""
    for number in range(16):
        driver.publish(1000 if number % 2 else 10, 1, persistent=False)
    driver.publish(10, 1)
    driver.commit()
    driver.index(1)
    assert len(driver.load(1)) == 17
    assert list((driver.path / "msg_store_transient").glob("*.rdq"))
    driver.checkpoint()
    driver.reopen()
    assert not list((driver.path / "msg_store_transient").glob("*.rdq"))
    index = driver.queues[1].ledger.index
    assert index is not None
    assert index.live_count(0, 1 << 40) == 1
    assert len(driver.load(1)) == 1
    driver.check()
    driver.checkpoint()
    driver.checkpoint()
    assert segments_of(driver, 1) == [2]


def test_the_embed_threshold_may_change_between_starts(driver: CheckedStore) -> None:
    """T58: each record says itself where its content is."""
    for threshold in (256, 0, 1024, 4096, 64, 256):
        driver.settings.embed_below = threshold
        driver.reopen()
        # Address and properties have 10 bytes, and the number in a body takes a few more.
        for size in (0, threshold - 14, threshold - 13, threshold - 12, threshold, 2 * threshold):
            for queue_id in QUEUES:
                driver.publish(max(size, 0), queue_id)
        driver.commit()
        driver.check()
        driver.index(1)
        driver.check()
        driver.settle(2, 3)
        driver.commit()
    driver.reopen()
    driver.check()


def test_the_journal_stays_within_its_window(driver: CheckedStore) -> None:
    """G8, W24: messages that nobody consumes move to the index; the journal writes each once."""
    window = WINDOW_FILES * driver.settings.journal_file_size_limit + WINDOW_BYTES_PER_QUEUE * len(
        QUEUES
    )
    driver.publish(20, 3)
    largest = 0
    for _ in range(300):
        fill(driver, 10, 1, size=100)
        largest = max(largest, driver.store.journal.total_bytes())
    assert largest > window / 2
    # Files that are not needed are deleted at the second checkpoint after that.
    assert largest < 2 * window + 4 * driver.settings.journal_file_size_limit
    driver.check()
    driver.reopen()
    driver.check()


def test_what_moves_to_the_index_after_its_batch_failed_survives_with_a_checkpoint(
    driver: CheckedStore,
) -> None:
    """An ack that retracts a failed batch at a start leaves its messages in the index."""
    driver.publish(10, 1)
    driver.fail(driver.store.journal.seal(), driver.now_ms)
    (position,) = driver.positions[1].values()
    driver.index(1)
    queue = driver.queues[1]
    assert not queue.survives_crash(position)
    driver.checkpoint()
    assert queue.survives_crash(position)
    driver.reopen()
    driver.check()
