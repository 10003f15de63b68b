"""A record that `RecordWriter` copies into another file equals one that is written anew."""

import random

import pytest

from tests.support.stores.made_files import STORE_ID
from warrenmq.store.model.message import JournalFile, Message, Position, QueueLedger
from warrenmq.store.records.record import RecordWriter, body_is_valid, crc_seed, record_length

INDEX_FILE = 7 << 32


def written_by(
    writer: RecordWriter, file_number: int, message: Message, positions: list[Position]
) -> bytes:
    writer.continue_file(file_number)
    writer.add_publish(message, positions, 0, len(positions))
    return b"".join(writer.take())


def position_of(message: Message, seq: int, expiry_ms: int = 0) -> Position:
    position = Position(message, QueueLedger(7), seq, expiry_ms)
    position.persistent = True
    return position


def message_of(size: int, properties: bytes = b"\x10\x00\x02") -> Message:
    return Message(
        b"\x00\x05queue", properties, random.Random(size).randbytes(size), True, 1_700_000_000_000
    )


def check_again(again: RecordWriter, position: Position, source: JournalFile | None) -> None:
    """Check the record that `again`, a writer with a past, writes against one of a new writer."""
    again.continue_file(INDEX_FILE)
    again.add_publish_copy(position.message, position, source)
    record = b"".join(again.take())
    seed = crc_seed(STORE_ID, INDEX_FILE)
    assert record_length(record, 0, seed) == len(record)
    assert body_is_valid(record, 0, len(record))
    assert record == written_by(RecordWriter(STORE_ID), INDEX_FILE, position.message, [position])


def test_records_of_a_queue_with_two_files_of_the_journal_and_some_lengths() -> None:
    journal, again = RecordWriter(STORE_ID), RecordWriter(STORE_ID)
    seq = 0
    for number in (3, 4, 3):
        file = JournalFile(number)
        for size in (0, 1, 1024, 1024, 1, 1024, 300, 5000, 1024, 5000, 0):
            seq += 1
            position = position_of(message_of(size), seq, expiry_ms=1_800_000_000_000 * (seq % 2))
            written_by(journal, number, position.message, [position])
            check_again(again, position, file)


def test_many_lengths() -> None:
    journal, again, file = RecordWriter(STORE_ID), RecordWriter(STORE_ID), JournalFile(3)
    lengths = [*range(1, 1300), *range(1, 1300, 100)]
    for seq, size in enumerate(lengths):
        position = position_of(message_of(size), seq)
        written_by(journal, 3, position.message, [position])
        check_again(again, position, file)


@pytest.mark.parametrize(
    "change", ["redelivered", "transient", "shared", "not journaled", "redelivered before"]
)
def test_what_the_journal_says_differently_is_written_anew(change: str) -> None:
    journal, again, file = RecordWriter(STORE_ID), RecordWriter(STORE_ID), JournalFile(3)
    for seq in range(3):
        position = position_of(message_of(1024), seq)
        written_by(journal, 3, position.message, [position])
        check_again(again, position, file)
    position = position_of(message_of(1024), 3)
    position.redelivered = change == "redelivered before"
    positions = [position, position_of(position.message, 4)] if change == "shared" else [position]
    written_by(journal, 3, position.message, positions)
    if change == "redelivered":
        position.redelivered = True
    elif change == "transient":
        position.persistent = False
    elif change == "redelivered before":
        position.redelivered = False
    check_again(again, position, None if change == "not journaled" else file)
    last = position_of(message_of(1024), 5)
    written_by(journal, 3, last.message, [last])
    check_again(again, last, file)
