"""Loads that go on where the last one stopped, and what the disk is told to read for the next."""

import random
from pathlib import Path

import pytest

from tests.support.stores.store_driver import SETTINGS, CheckedStore, Loaded
from warrenmq.store.index.pieces import PIECES_MAX, SEQS_AHEAD, IndexPiece, IndexPieces
from warrenmq.store.jobs.job import ReadAheadRanges, ReadRanges
from warrenmq.store.model.message import Message, Position, QueueLedger
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.records.log_places import PlaceEntry, PlacesWriter
from warrenmq.store.records.record import FILE_HEADER_BYTES, INDEX_MAGIC, RecordWriter, crc_seed

STORE_ID = bytes(range(16))
QUEUE_ID = 7
SEGMENT = 3


def entry(seq: int, file_number: int, offset: int, size: int) -> PlaceEntry:
    made = PlaceEntry(seq, file_number)
    made.offset, made.stored_bytes = offset, size
    return made


def written(entries: list[PlaceEntry]) -> bytes:
    """The records of a segment with these entries."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(INDEX_MAGIC, SEGMENT)
    places = PlacesWriter()
    for one in entries:
        places.add_found(QUEUE_ID, one, writer)
    places.flush(QUEUE_ID, writer)
    return b"".join(writer.take())[FILE_HEADER_BYTES:]


SEED = crc_seed(STORE_ID, SEGMENT)


def piece(data: bytes, begin: int = 0, offset: int = 40) -> IndexPiece:
    return IndexPiece(Segment(SEGMENT), offset, data, begin, SEED)


def places_ahead(of: IndexPiece, next_seq: int) -> list[tuple[int, int, int]]:
    return [(int(a), int(b), int(c)) for a, b, c in of.places_ahead(next_seq)]


def test_near_places_are_one_range_and_others_are_not() -> None:
    data = written(
        [
            entry(1, 5, 100, 50),
            entry(2, 5, 150, 50),
            entry(3, 5, 300, 10),
            entry(4, 5, 1_000_000, 10),
            entry(5, 6, 1_000_010, 10),
            # An older place of the same file.
            entry(6, 6, 20, 10),
        ]
    )
    whole = [(5, 100, 210), (5, 1_000_000, 10), (6, 1_000_010, 10), (6, 20, 10)]
    assert places_ahead(piece(data), 0) == whole
    assert places_ahead(piece(data), 3) == [(5, 300, 10), *whole[1:]]
    assert places_ahead(piece(data), 7) == []


def test_each_load_names_the_places_that_the_ones_before_have_not() -> None:
    """Contents are named as far ahead of each load, in whole records of 64 entries."""
    count = 3 * SEQS_AHEAD
    kept = piece(written([entry(seq, 1, seq * 10, 10) for seq in range(1, count + 1)]))
    upto = 0
    for next_seq in range(5, count, 100):
        ranges = places_ahead(kept, next_seq)
        wanted = next_seq + SEQS_AHEAD
        if upto < min(wanted, count):
            ((number, offset, size),) = ranges
            assert (number, offset) == (1, 10 * max(upto + 1, next_seq))
            upto = (offset + size) // 10 - 1
            assert wanted <= upto < wanted + 64 or upto == count
        else:
            assert ranges == []
    assert upto == count


def test_nothing_behind_damage_is_named() -> None:
    """A record that is cut off or broken ends the places; none of it raises an error."""
    data = written([entry(seq, 1, seq * 10, 10) for seq in range(1, 200)])
    whole = places_ahead(piece(data), 0)
    for size in range(0, len(data), 37):
        found = places_ahead(piece(data[:size]), 0)
        assert found == [] or found[0][:2] == whole[0][:2]
    rng = random.Random(1)
    for _ in range(300):
        broken = bytearray(data)
        for _ in range(20):
            broken[rng.randrange(len(data))] = rng.randrange(256)
        places_ahead(piece(bytes(broken)), 0)


def test_only_whole_records_of_places_are_kept() -> None:
    """A load that answered with a message at once would do so amid the work that asked for it."""
    data = written([entry(seq, 1, seq * 10, 10) for seq in range(1, 200)])
    assert piece(data).end == len(data)
    ledger = QueueLedger(QUEUE_ID)
    message = Message(b"\x00\x00", b"\x00\x00", b"body", True, 0)
    writer = RecordWriter(STORE_ID)
    writer.continue_file(SEGMENT)
    writer.add_publish(message, [Position(message, ledger, 200, 0)], 0, 1)
    publish = b"".join(writer.take())
    assert piece(data + publish + data).data == data
    assert piece(publish + data).end == 0
    begun = piece(publish + data + publish, len(publish))
    assert begun.data == publish + data and begun.end - begun.begin == len(data)
    last = 16 + 20 + 32 * (199 % 64)
    assert piece(data[:-1]).end == len(data) - last


def test_a_piece_is_for_its_own_place_only() -> None:
    pieces = IndexPieces()
    segment, other = Segment(1), Segment(1)
    data = written([entry(1, 1, 10, 10), entry(2, 2, 10, 10)])
    begin = len(data) // 2

    def keep() -> IndexPiece:
        kept = IndexPiece(segment, 40, data, begin, SEED)
        pieces.keep(QUEUE_ID, kept)
        return kept

    for wrong, offset in ((other, 40 + begin), (segment, 41 + begin)):
        keep()
        assert pieces.take(QUEUE_ID, wrong, offset) is None
        assert pieces.take(QUEUE_ID, segment, 40 + begin) is None
    keep()
    segment.rewrites += 1
    assert pieces.take(QUEUE_ID, segment, 40 + begin) is None
    kept = keep()
    assert pieces.take(QUEUE_ID, segment, 40 + begin) is kept


def test_few_pieces_are_kept() -> None:
    pieces = IndexPieces()
    segment = Segment(1)
    data = written([entry(1, 1, 10, 10)])
    for queue_id in (*range(PIECES_MAX), 0, PIECES_MAX):
        pieces.keep(queue_id, IndexPiece(segment, 40, data, 0, SEED))
    kept = [one for one in range(PIECES_MAX + 1) if pieces.take(one, segment, 40)]
    # The piece of queue 0 was replaced, so that of queue 1 was the oldest.
    assert kept == [0, *range(2, PIECES_MAX + 1)]


@pytest.fixture
def driver(tmp_path: Path) -> CheckedStore:
    driver = CheckedStore(tmp_path, SETTINGS)
    driver.settings.refer_entries = 2
    driver.settings.refer_bytes = 1
    driver.settings.empty_files_min = 2
    driver.settings.segment_entries = 64
    driver.reopen()
    return driver


def deepen(driver: CheckedStore, count: int) -> None:
    """Publish until the journal has moved what is older to the indexes of queues 1 and 2."""
    for number in range(count):
        driver.publish(200, 1 + number % 2)
        driver.commit()
    for _ in range(3):
        driver.checkpoint()


def load(driver: CheckedStore, queue_id: int, from_seq: int, count: int) -> tuple[Loaded, int, int]:
    """Load some messages; returns the answer, and how often the index and ahead were read."""
    queue = driver.queues[queue_id]
    loaded = Loaded()
    queue.load(from_seq, queue.ledger.indexed_upto, count, 1 << 40, loaded)
    index_reads = aheads = 0
    while loaded.next_seq < 0:
        for job in driver.store.take_jobs(driver.now_ms):
            if isinstance(job, ReadRanges) and job.ranges[0][0].endswith(".idx"):
                index_reads += 1
            aheads += isinstance(job, ReadAheadRanges)
            driver.runner.run(job)
            job.finished()
    return loaded, index_reads, aheads


def test_loads_one_after_the_other_read_the_index_once(driver: CheckedStore) -> None:
    deepen(driver, 600)
    index = driver.queues[1].ledger.index
    assert index is not None
    segments = sum(segment.has_places for segment in index.segments)
    reads = aheads = seq = count = 0
    while seq < driver.queues[1].ledger.indexed_upto:
        loaded, index_reads, ahead = load(driver, 1, seq, 5)
        for position in loaded.positions:
            assert position.message.body == driver.bodies[1][int(position.seq)]
        seq, count = loaded.next_seq, count + len(loaded.positions)
        reads, aheads = reads + index_reads, aheads + ahead
    assert count > 200
    assert reads <= 2 * len(index.segments)
    assert aheads >= segments - 1


@pytest.mark.parametrize("seed", range(3))
def test_loads_find_what_is_alive_whatever_happens_between_them(
    driver: CheckedStore, seed: int
) -> None:
    """Messages are settled, segments rewritten and files emptied between two loads."""
    rng = random.Random(seed)
    deepen(driver, 300)
    seqs = {1: 0, 2: 0}
    for _ in range(120):
        queue_id = rng.choice((1, 1, 2))
        queue = driver.queues[queue_id]
        from_seq = seqs[queue_id]
        end_seq = int(queue.ledger.indexed_upto)
        if from_seq >= end_seq:
            seqs[queue_id] = 0
            deepen(driver, 40)
            continue
        loaded, _, _ = load(driver, queue_id, from_seq, rng.choice((1, 3, 20)))
        found = {int(each.seq): each.message.body for each in loaded.positions}
        upto = min(int(loaded.next_seq), end_seq)
        bodies = driver.bodies[queue_id]
        assert found == {seq: bodies[seq] for seq in bodies if from_seq <= seq < upto}
        seqs[queue_id] = loaded.next_seq
        for position in loaded.positions:
            if rng.random() < 0.6:
                driver.settle_one(position)
        if rng.random() < 0.3:
            driver.checkpoint()
    driver.check()
