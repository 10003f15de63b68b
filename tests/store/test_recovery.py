"""Recovery from damaged bytes never fails, and loses exactly what was damaged (T20-T24)."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stores.dict_disk.journal_driver import (
    SEGMENT_ENTRIES,
    JournalDriver,
    new_journal,
    replayed,
    state_of,
)
from tests.support.stores.made_files import STORE_ID
from warrenmq.build import build_name
from warrenmq.store.model.message import ContentRef, Message, MovedMessage, Position, QueueLedger
from warrenmq.store.records.content import write_publish_ref
from warrenmq.store.records.record import FILE_HEADER_BYTES, FILE_MAGIC, RecordWriter
from warrenmq.store.recovery import JournalReplay

NUMBER = 3


def record_file(
    *bodies: bytes, number: int = NUMBER, store_id: bytes = STORE_ID
) -> tuple[bytes, list[int]]:
    """A journal file with these messages in queue 1 from seq 1 on, and the end of each record."""
    writer = RecordWriter(store_id)
    writer.start_file(FILE_MAGIC, number)
    ledger = QueueLedger(1)
    parts = writer.take()
    ends = [sum(map(len, parts))]
    for seq, body in enumerate(bodies, 1):
        message = Message(b"\x00\x01q", b"\x00\x00", body, True, 1000 + seq)
        writer.add_publish(message, [Position(message, ledger, seq, 0)], 0, 1)
        parts += writer.take()
        ends.append(sum(map(len, parts)))
    return b"".join(parts), ends


def ack_of(first: int, last: int, number: int = NUMBER) -> bytes:
    """An ack record of queue 1."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, number)
    writer.take()
    writer.ack(1, [(first, last)])
    return b"".join(writer.take())


def replay_of(data: bytes, number: int = NUMBER) -> JournalReplay:
    return replayed({number: data})


def bodies_of(replay: JournalReplay) -> list[bytes]:
    """The bodies of the live messages of queue 1."""
    queue = replay.queues.get(1)
    return [place.message.body for place in queue.in_order()] if queue is not None else []


def torn_bytes(replay: JournalReplay) -> int:
    """The number of bytes after the last valid record."""
    return sum(int(tail.end - tail.start) for tail in replay.torn)


BODIES = [b"first", b"", b"x" * 300, b"last"]


def test_everything_comes_back() -> None:
    data, _ = record_file(*BODIES)
    replay = replay_of(data)
    assert bodies_of(replay) == BODIES
    assert replay.damage == []
    assert torn_bytes(replay) == 0
    position = replay.queues[1].in_order()[2]
    assert position.message.exchange() == b""
    assert position.message.routing_key() == b"q"
    assert position.message.persistent
    assert position.message.timestamp_ms == 1003


def test_tail_torn_at_every_byte() -> None:
    data, ends = record_file(*BODIES)
    for cut in range(FILE_HEADER_BYTES, len(data)):
        replay = replay_of(data[:cut])
        whole = sum(1 for end in ends[1:] if end <= cut)
        assert bodies_of(replay) == BODIES[:whole]
        assert replay.damage == []
        # Zeros at the end are space that was allocated ahead.
        assert torn_bytes(replay) == max(0, len(data[:cut].rstrip(b"\0")) - ends[whole])


@pytest.mark.parametrize(
    "tail",
    [
        bytes(1),
        bytes(5000),
        b"\xff" * 5000,
        b"WR" * 700,
        b"WR\x01\x01" * 300,
        random.Random(1).randbytes(9999),
    ],
)
def test_junk_behind_the_last_record(tail: bytes) -> None:
    data, _ = record_file(*BODIES)
    replay = replay_of(data + tail)
    assert bodies_of(replay) == BODIES
    assert replay.damage == []
    assert torn_bytes(replay) == len(tail.rstrip(b"\0"))


def test_every_flipped_bit_costs_one_message_at_most() -> None:
    data, ends = record_file(*BODIES)
    for place in range(FILE_HEADER_BYTES, len(data)):
        hit = sum(1 for end in ends[1:] if end <= place)
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            replay = replay_of(bytes(flipped))
            assert bodies_of(replay) == BODIES[:hit] + BODIES[hit + 1 :], (place, bit)
            if hit < len(BODIES) - 1:
                assert [(hole.start, hole.end) for hole in replay.damage] == [
                    (ends[hit], ends[hit + 1])
                ]
            else:
                # A damaged last record looks like an unfinished write.
                assert torn_bytes(replay) == ends[-1] - ends[-2]


@pytest.mark.parametrize("filler", [b"\x00", b"\xff", b"W", b"R"])
def test_overwritten_stretches(filler: bytes) -> None:
    data, ends = record_file(*[b"%d" % number * 50 for number in range(12)])
    for first in range(12):
        for last in range(first, min(first + 4, 11)):
            # The damage reaches from the middle of one record to the middle of another, lengths
            # included.
            start, end = ends[first] + 5, ends[last] + 9
            replay = replay_of(data[:start] + filler * (end - start) + data[end:])
            kept = bodies_of(replay)
            assert kept == [
                b"%d" % number * 50 for number in range(12) if not first <= number <= last
            ]
            assert len(replay.damage) == 1


def test_bytes_cut_out_of_the_middle() -> None:
    data, ends = record_file(*BODIES)
    for start in range(ends[1], ends[2]):
        replay = replay_of(data[:start] + data[ends[2] :])
        assert bodies_of(replay) == [BODIES[0], *BODIES[2:]], start


@pytest.mark.parametrize("length", [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_absurd_lengths(length: int) -> None:
    data, ends = record_file(*BODIES)
    at = ends[1] + 4
    replay = replay_of(data[:at] + length.to_bytes(4, "big") + data[at + 4 :])
    assert bodies_of(replay) == [BODIES[0], *BODIES[2:]]


def test_bodies_that_look_like_records() -> None:
    fake_store = bytes(16)
    fake, _ = record_file(b"forged", store_id=fake_store)
    ack_writer = RecordWriter(fake_store)
    ack_writer.start_file(FILE_MAGIC, NUMBER)
    ack_writer.take()
    ack_writer.ack(1, [(1, 100)])
    evil = fake[FILE_HEADER_BYTES:] + b"".join(ack_writer.take())
    data, ends = record_file(b"a", evil, b"b", evil, b"c")
    assert bodies_of(replay_of(data)) == [b"a", evil, b"b", evil, b"c"]
    # The record around the body may be damaged at its head or elsewhere: the search runs through
    # the body.
    for place in range(ends[1], ends[2]):
        broken = bytearray(data)
        broken[place] ^= 0x55
        assert bodies_of(replay_of(bytes(broken))) == [b"a", b"b", evil, b"c"]
    for cut in range(ends[3], ends[4]):
        assert bodies_of(replay_of(data[:cut])) == [b"a", evil, b"b"]


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_body_made_to_slow_the_search_down(is_torn: bool) -> None:
    # Each of half a million places looks like the head of a record that reaches almost to the end
    # of the file. Interpreted code takes longer for a header's CRC: it gets a quarter of them.
    size = 4 << 20 if build_name() == "compiled" else 1 << 20
    evil = b"".join(b"WR\x01\x01" + (size - at).to_bytes(4, "big") for at in range(64, size, 8))
    data, ends = record_file(b"a", evil, b"b")
    if is_torn:
        data = data[: ends[2] - 5]
    else:
        data = data[: ends[1]] + b"??" + data[ends[1] + 2 :]
    started = time.process_time()
    assert bodies_of(replay_of(data)) == ([b"a"] if is_torn else [b"a", b"b"])
    assert time.process_time() - started < 5


def test_records_of_another_store_or_another_file() -> None:
    data, _ = record_file(b"mine")
    other_store, _ = record_file(b"stranger", store_id=bytes(16))
    # The blocks of a deleted file of ours may turn up behind the end of this one.
    other_file, _ = record_file(b"long gone", number=NUMBER - 1)
    for foreign in (other_store, other_file):
        replay = replay_of(data + foreign[FILE_HEADER_BYTES:])
        assert bodies_of(replay) == [b"mine"]
        assert torn_bytes(replay) == len(foreign) - FILE_HEADER_BYTES


def test_repeated_records_and_acks_of_the_unknown() -> None:
    data, ends = record_file(b"one", b"two", b"three")
    again = data[ends[0] : ends[1]]
    replay = replay_of(
        data + again + again + ack_of(2, 2) + ack_of(2, 2) + ack_of(70, 1 << 60) + ack_of(9, 8)
    )
    assert bodies_of(replay) == [b"one", b"three"]
    assert replay.damage == []
    # The numbering continues after the highest seq id ever seen.
    assert replay.queues[1].ledger.next_seq == (1 << 60) + 1
    live = {(hole.number, hole.live_bytes) for hole in replay.files}
    assert live == {(NUMBER, ends[1] - ends[0] + ends[3] - ends[2])}


def test_copies_count_once() -> None:
    old, _ = record_file(b"one", b"two", number=1)
    young, ends = record_file(b"one", number=2)
    replay = replayed({1: old, 2: young})
    assert bodies_of(replay) == [b"one", b"two"]
    by_number = {file.number: file.live_bytes for file in replay.files}
    assert by_number[2] == ends[1] - ends[0]
    assert 0 < by_number[1] < len(old) - FILE_HEADER_BYTES


@pytest.mark.parametrize("data_size", [0, 1, 39])
def test_less_than_a_header(data_size: int) -> None:
    data, _ = record_file(b"x")
    assert bodies_of(replay_of(data[:data_size])) == []


@given(st.binary(max_size=400), st.integers(0, 10**6))
def test_any_bytes_give_a_state(junk: bytes, seed: int) -> None:
    data, ends = record_file(*BODIES)
    shuffled = random.Random(seed)
    start = shuffled.randrange(FILE_HEADER_BYTES, len(data))
    mixed = data[:start] + junk + data[shuffled.randrange(start, len(data)) :]
    replay = replay_of(mixed)
    assert set(bodies_of(replay)) <= set(BODIES)
    assert state_of(replay) == state_of(replay_of(mixed))
    whole = sum(1 for end in ends[1:] if end <= start)
    assert bodies_of(replay)[:whole] == BODIES[:whole]


def test_valid_records_with_contents_of_nonsense() -> None:
    # A bug of ours might write a record with a valid checksum and a content of nonsense.
    replay = JournalReplay(STORE_ID, None, SEGMENT_ENTRIES)
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, NUMBER)
    ledger = QueueLedger(1)
    for address in (b"", b"\x05", b"\xff\xff", b"\x00"):
        message = Message(address, b"", b"", True, 0)
        writer.add_publish(message, [Position(message, ledger, 1, 0)], 0, 1)
    message = Message(b"\x00\x01q", b"\x00\x00", b"fine", True, 0)
    writer.add_publish(message, [Position(message, ledger, 2, 0)], 0, 1)
    replay.feed_file(NUMBER, b"".join(writer.take()))
    replay.finish()
    assert bodies_of(replay)[-1:] == [b"fine"]


def test_a_fan_out_beyond_sixteen_bits() -> None:
    count = 70_000
    message = Message(b"\x00\x01q", b"\x00\x00", b"to all", True, 0)
    positions = [Position(message, QueueLedger(queue_id), 1, 0) for queue_id in range(1, count + 1)]
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, NUMBER)
    writer.add_publish(message, positions, 0, count)
    replay = replay_of(b"".join(writer.take()))
    assert len(replay.queues) == count
    assert all(len(queue.positions) == 1 for queue in replay.queues.values())


def test_large_sequence_ids() -> None:
    message = Message(b"\x00\x01q", b"\x00\x00", b"late", True, 0)
    for seq in (2**31 - 1, 2**31, 2**32, 2**62):
        writer = RecordWriter(STORE_ID)
        writer.start_file(FILE_MAGIC, NUMBER)
        writer.add_publish(message, [Position(message, QueueLedger(2**31 - 1), seq, 2**62)], 0, 1)
        queue = replay_of(b"".join(writer.take())).queues[2**31 - 1]
        assert [(place.seq, place.expiry_ms) for place in queue.in_order()] == [(seq, 2**62)]
        assert queue.ledger.next_seq == seq + 1


def test_clean_stop_keeps_numbering_and_deliveries() -> None:
    driver = JournalDriver(1 << 20)
    keys = [driver.publish(3, [1])[0] for _ in range(5)]
    for key in keys:
        driver.settle(key)
    driver.publish(3, [2])
    driver.logs[1].delivered_upto = 5
    driver.journal.request_clean_stop()
    driver.commit()
    replay = replayed(driver.files)
    assert replay.is_clean
    assert (replay.queues[1].ledger.next_seq, replay.queues[1].ledger.delivered_upto) == (6, 5)
    assert replay.queues[2].ledger.next_seq == 2


def test_a_clean_stop_that_is_not_whole_is_none() -> None:
    """A batch torn by a power failure may keep its end, the mark, without the delivered seq ids."""
    driver = JournalDriver(1 << 20)
    driver.publish(3, [1])
    driver.commit()
    written = len(driver.files[1])
    driver.logs[1].delivered_upto = 1
    driver.journal.request_clean_stop()
    driver.commit()
    data = driver.files[1]
    for start, end in ((written, written + 40), (written + 5, written + 6)):
        replay = replayed(
            {1: data[:start] + bytes(byte ^ 255 for byte in data[start:end]) + data[end:]}
        )
        assert len(replay.damage) == 1
        assert not replay.is_clean


def move_ref_file(*more: bytes) -> bytes:
    """A message with content 7 in queue 1, moved from place 5 of stage 9 (content 3 there)."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, NUMBER)
    staged = Message(b"\x00\x01q", b"\x00\x00", bytes(9000), True, 1000)
    first = ContentRef(3, 0, 0, 9033, 1, False)
    write_publish_ref(writer, first, staged, [Position(staged, QueueLedger(9), 5, 0)], 0, 1)
    moved = MovedMessage(b"\x00\x01q", b"\x00\x00", bytes(9000), True, 1000, 9, 5)
    second = ContentRef(7, 0, 9033, 9033, 1, False)
    write_publish_ref(writer, second, moved, [Position(moved, QueueLedger(1), 4, 0)], 0, 1, moved)
    return b"".join([*writer.take(), *more])


def test_a_move_whose_content_is_there_counts() -> None:
    replay = replay_of(move_ref_file())
    assert replay.return_moves(lambda _position: False) == []
    assert list(replay.moved[9]) == [5]
    assert list(replay.queues[1].positions) == [4]


def test_a_message_whose_moved_content_is_gone_is_where_it_was_staged() -> None:
    replay = replay_of(move_ref_file())
    (position,) = replay.return_moves(
        lambda position: position.content_ref is not None and position.content_ref.id == 7
    )
    assert (position.ledger.queue_id, position.seq) == (1, 4)
    assert replay.moved[9] == {}
    assert replay.queues[1].positions == {} and list(replay.queues[9].positions) == [5]


def test_a_message_that_is_not_where_it_was_staged_any_more_stays_moved() -> None:
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, NUMBER)
    writer.take()
    writer.ack(9, [(5, 5)])
    replay = replay_of(move_ref_file(*writer.take()))
    assert replay.return_moves(lambda position: True) == []
    assert list(replay.queues[1].positions) == [4]


def test_the_mark_of_a_clean_stop_ends_with_the_next_start() -> None:
    driver = JournalDriver(1 << 20)
    driver.publish(3, [1])
    driver.journal.request_clean_stop()
    driver.commit()
    assert replayed(driver.files).is_clean
    # After another start, a delivery and a kill, the delivered seq ids are unknown.
    driver.start(driver.files)
    driver.journal.request_file()
    driver.commit()
    assert not replayed(driver.files).is_clean
    # A power failure may leave only a part of the new file, down to its header.
    last = max(driver.files)
    whole = driver.files[last]
    for end in range(FILE_HEADER_BYTES, len(whole)):
        assert not replayed({**driver.files, last: whole[:end]}).is_clean


def test_a_journal_that_keeps_up_writes_nothing() -> None:
    journal = new_journal(1 << 20)
    ledger = QueueLedger(1)
    journal.ledgers[1] = ledger
    for seq in range(1, 100):
        message = Message(b"\x00\x01q", b"\x00\x00", bytes(1000), True, 0)
        position = Position(message, ledger, seq, 0)
        journal.append(position, 0)
        journal.settle(position, 0)
    assert journal.pending_bytes == 0
    batch = journal.seal()
    assert sum(map(len, batch.parts)) < 200
