"""Tests that a scan agrees with the store's decoders, however a file is cut, damaged or not."""

import pytest

pytest.importorskip("pyarrow")

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.records.content import Release, write_publish_ref, write_release
from warrenmq.store.records.publish_body import decode_message
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    POSITION_BYTES,
    PUBLISH,
    RECORD_HEADER_BYTES,
    RecordWriter,
    body_is_valid,
    crc_seed,
    record_length,
)
from warrenmq.store.recovery import JournalReplay
from warrenmq.tables.file_scan import Piece, scan_file
from warrenmq.tables.scan import RecordScan

STORE_ID = b"0123456789abcdef"
SEED = crc_seed(STORE_ID, 1)

messages = st.builds(
    lambda exchange, key, properties, body, persistent: Message(
        bytes([len(exchange)]) + exchange + bytes([len(key)]) + key,
        properties,
        body,
        persistent,
        1_700_000_000_000,
    ),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.binary(max_size=100),
    st.booleans(),
)
places = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 30), st.integers(0, 1 << 40)),
    min_size=1,
    max_size=3,
)
runs = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=2)
records = st.one_of(
    st.tuples(st.just("publish"), messages, places),
    st.tuples(st.just("reference"), messages, places),
    st.tuples(st.sampled_from(("ack", "retract")), st.integers(1, 3), runs),
    st.tuples(st.just("release"), st.integers(1, 3), runs),
    st.tuples(st.just("state"), st.integers(1, 3), st.just(None)),
    st.tuples(st.just("stop"), st.just(None), st.just(None)),
    st.tuples(st.just("predecessor"), st.integers(2, 9), st.integers(0, 1 << 40)),
)


def journal_of(contents: list[tuple[str, object, object]]) -> bytes:
    """A journal file with the records `contents`."""
    writer = RecordWriter(STORE_ID)
    writer.start_file(FILE_MAGIC, 1)
    for number, (kind, what, more) in enumerate(contents, 1):
        if isinstance(what, Message):
            assert isinstance(more, list)
            positions = [
                Position(what, QueueLedger(queue), seq, expiry) for queue, seq, expiry in more
            ]
            if kind == "publish":
                writer.add_publish(what, positions, 0, len(positions))
            else:
                content = ContentRef(number, 3, 40, 5000, len(positions), False)
                write_publish_ref(writer, content, what, positions, 0, len(positions))
        elif kind == "stop":
            writer.clean_stop()
        elif kind == "predecessor":
            assert isinstance(what, int) and isinstance(more, int)
            writer.predecessor(what, more)
        elif kind == "state":
            assert isinstance(what, int)
            writer.queue_state(QueueLedger(what))
        else:
            assert isinstance(what, int) and isinstance(more, list)
            settled = [(first, first + width) for first, width in more]
            if kind == "ack":
                writer.ack(what, settled)
            elif kind == "retract":
                writer.retract(what, settled)
            else:
                content = ContentRef(number, -1, -1, 5000, 1, False)
                write_release(writer, Release(number, what, settled, [content]))
    return b"".join(writer.take())


def scanned(
    data: bytes, piece_bytes: int = 1 << 20
) -> tuple[list[Piece], list[tuple[int, int, str]]]:
    scan = RecordScan(SEED, True)
    pieces = list(
        scan_file(lambda offset, size: data[offset : offset + size], len(data), scan, piece_bytes)
    )
    return pieces, scan.damage


def rows_of(pieces: list[Piece]) -> list[tuple[object, ...]]:
    """All fields of each record whose checksum is right, with its parts as bytes."""
    rows: list[tuple[object, ...]] = []
    for piece in pieces:
        for index, record in enumerate(piece.records):
            if not record["ok"]:
                continue
            positions = piece.positions[piece.positions["record"] == index]
            parts: tuple[bytes, ...] = ()
            if record["body"]:
                exchange, key, properties, body = (
                    int(record[name]) for name in ("exchange", "routing_key", "properties", "body")
                )
                parts = (
                    piece.data[exchange : key - 1],
                    piece.data[key : properties - 4],
                    piece.data[properties : body - 4],
                    piece.data[body : body + int(record["body_bytes"])],
                )
            numbers = [
                int(record[name])
                for name in record.dtype.names
                if name not in ("exchange", "routing_key", "properties", "body")
            ]
            rows.append((*numbers, parts, [tuple(position.tolist()[1:]) for position in positions]))
    return rows


@settings(deadline=None)
@given(
    contents=st.lists(records, max_size=12),
    flips=st.lists(st.integers(0, 1 << 30), max_size=3),
    piece_bytes=st.integers(17, 500),
)
def test_it_finds_what_a_replay_finds(
    contents: list[tuple[str, object, object]], flips: list[int], piece_bytes: int
) -> None:
    damaged = bytearray(journal_of(contents))
    for flip in flips:
        if len(damaged) > FILE_HEADER_BYTES:
            damaged[FILE_HEADER_BYTES + flip % (len(damaged) - FILE_HEADER_BYTES)] ^= 1 << flip % 8
    data = bytes(damaged)
    replay = JournalReplay(STORE_ID, None, 16384)
    replay.feed_file(1, data)
    replay.finish()
    pieces, damage = scanned(data)
    rows = rows_of(pieces)
    # A replay ignores zeros at the end of a file.
    size = len(data.rstrip(b"\0"))
    expected = [(found.start, found.end) for found in (*replay.damage, *replay.torn)]
    assert [(start, min(end, size)) for start, end, _ in damage if start < size] == expected
    # The rows are the same however the file is cut.
    assert rows_of(scanned(data, piece_bytes)[0]) == rows
    check_against_decoders(data, pieces)


def check_against_decoders(data: bytes, pieces: list[Piece]) -> None:
    for piece in pieces:
        for index, record in enumerate(piece.records):
            start, length = int(record["offset"]), int(record["length"])
            assert record_length(data, start, SEED) == length
            assert body_is_valid(data, start, length) == bool(record["ok"])
            if record["kind"] != PUBLISH or not record["ok"]:
                continue
            body = start + RECORD_HEADER_BYTES
            message = decode_message(data, body, start + length)
            assert message is not None
            found = [int(record[name]) for name in ("exchange", "properties", "body")]
            assert piece.data[found[0] - 1 : found[1] - 4] == message.address
            assert piece.data[found[1] : found[2] - 4] == message.properties
            assert piece.data[found[2] : found[2] + int(record["body_bytes"])] == message.body
            assert bool(record["persistent"]) == message.persistent
            assert record["timestamp"] == message.timestamp_ms
            positions = piece.positions[piece.positions["record"] == index]
            raw = b"".join(
                int(p["queue_id"]).to_bytes(4, "big")
                + int(p["seq"]).to_bytes(8, "big")
                + int(p["expiry"]).to_bytes(8, "big")
                + bytes([int(p["flags"])])
                for p in positions
            )
            assert raw == data[body + 4 : body + 4 + len(positions) * POSITION_BYTES]


def test_a_body_is_looked_at_only_when_asked_to() -> None:
    message = Message(b"\x00\x00", b"\x00\x00", b"hello", True, 1)
    data = bytearray(journal_of([("publish", message, [(1, 1, 0)])]))
    data[-1] ^= 1
    for verify in (True, False):
        scan = RecordScan(SEED, verify)
        scan.feed(bytes(data[FILE_HEADER_BYTES:]), FILE_HEADER_BYTES, True)
        row = np.frombuffer(scan.take()[0], "<i8")
        assert row[3] == (0 if verify else 1)
        assert bool(scan.damage) == verify
