"""Records of a synchronisation survive the way over a link; anything else is refused."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warrenmq.cluster.mirrors.records import MalformedMirrorRecord, SyncRecord
from warrenmq.cluster.mirrors.sync import records as sync_records
from warrenmq.cluster.mirrors.sync.records import (
    ANSWER,
    CANCEL,
    CHUNK,
    DONE,
    OFFER,
    PERSISTENT,
    PROGRESS,
    REDELIVERED,
    SYNCED,
    TAKEN,
    TIMED_OUT,
    Chunk,
    ChunkWriter,
    LevelRuns,
    Levels,
    Note,
    decode,
    encode_cancel,
    encode_levels,
    encode_note,
)
from warrenmq.cluster.mirrors.sync.scan import Pieces
from warrenmq.store.model.message import Message

LEVEL = LevelRuns(3, 1000, 7, [(1, 5), (9, 9), (600, 999)])


def chunk() -> SyncRecord:
    """A chunk with one message of each kind."""
    writer = ChunkWriter()
    plain = Message(b"\x00\x01q", b"\x00\x00", b"body", True, 1_700_000_000_000)
    writer.add(5, plain, PERSISTENT, 0)
    transient = Message(b"\x01x\x01q", b"\x80\x00\x01a", b"", False, 0)
    writer.add(9, transient, REDELIVERED, 1_700_000_000_001)
    return writer.encode(11, 2, 4)


RECORDS = [
    *encode_levels(OFFER, 11, 2, [LEVEL]),
    *encode_levels(ANSWER, 11, 3, [], True),
    chunk(),
    encode_note(TAKEN, 11, 2),
    encode_note(PROGRESS, 11, 100, 50),
    encode_note(DONE, 11, 77),
    encode_note(SYNCED, 11),
    encode_cancel(11, TIMED_OUT),
]


def test_every_record_says_what_was_written() -> None:
    steps = [decode(record) for record in RECORDS]
    assert steps[0] == Levels(OFFER, 11, 2, True, False, [LEVEL])
    assert steps[1] == Levels(ANSWER, 11, 3, True, True, [])
    assert steps[3:] == [
        Note(TAKEN, 11, 2),
        Note(PROGRESS, 11, 100, 50),
        Note(DONE, 11, 77),
        Note(SYNCED, 11),
        Note(CANCEL, 11, TIMED_OUT),
    ]


def test_a_chunk_carries_contents_and_flags() -> None:
    step = decode(chunk())
    assert isinstance(step, Chunk)
    assert (step.attempt, step.number, step.level) == (11, 2, 4)
    first, second = step.messages
    assert (first.seq, first.message.body, first.message.timestamp_ms) == (
        5,
        b"body",
        1_700_000_000_000,
    )
    assert first.message.persistent
    assert (first.expiry_ms, first.is_redelivered) == (0, False)
    assert (second.seq, second.message.address, second.message.properties) == (
        9,
        b"\x01x\x01q",
        b"\x80\x00\x01a",
    )
    assert not second.message.persistent
    assert (second.expiry_ms, second.is_redelivered) == (1_700_000_000_001, True)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: str(record.kind))
def test_a_record_that_is_cut_or_too_long_is_refused(record: SyncRecord) -> None:
    for size in range(len(record.body)):
        with pytest.raises(MalformedMirrorRecord):
            decode(SyncRecord(record.kind, record.body[:size]))
    with pytest.raises(MalformedMirrorRecord):
        decode(SyncRecord(record.kind, record.body + b"\x00"))


@given(st.sampled_from(RECORDS), st.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_never_raises_anything_else(record: SyncRecord, data: st.DataObject) -> None:
    body = bytearray(record.body)
    if body:
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    kind = data.draw(st.sampled_from([record.kind, *range(30, 66)]))
    with contextlib.suppress(MalformedMirrorRecord):
        decode(SyncRecord(kind, bytes(body)))


@pytest.mark.parametrize(
    "level",
    [
        LevelRuns(0, 0, 0, []),
        LevelRuns(0, 1 << 46, 0, []),
        LevelRuns(0, 10, -1, []),
        LevelRuns(0, 10, 0, [(0, 5)]),
        LevelRuns(0, 10, 0, [(5, 4)]),
        LevelRuns(0, 10, 0, [(1, 10)]),
        LevelRuns(0, 10, 0, [(1, 2), (3, 4)]),
        LevelRuns(0, 10, 0, [(3, 4), (1, 1)]),
    ],
)
def test_levels_that_cannot_be_true_are_refused(level: LevelRuns) -> None:
    (record,) = encode_levels(OFFER, 1, 1, [level])
    with pytest.raises(MalformedMirrorRecord):
        decode(record)


@pytest.mark.parametrize("seqs", [[], [0], [2, 2], [3, 2]])
def test_a_chunk_with_messages_out_of_order_or_without_any_is_refused(seqs: list[int]) -> None:
    writer = ChunkWriter()
    for seq in seqs:
        writer.add(seq, Message(b"\x00\x00", b"\x00\x00", b"", True, 0), 0, 0)
    with pytest.raises(MalformedMirrorRecord):
        decode(writer.encode(1, 1, 0))


@pytest.mark.parametrize("counts", [[0], [1], [3, 3], [4], [5], [9], [0, 0, 0, 12, 0]])
def test_a_large_offer_comes_in_pieces(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sync_records, "PIECE_RUNS", 4)
    levels = [
        LevelRuns(number, 1000, 0, [(2 * n + 1, 2 * n + 1) for n in range(count)])
        for number, count in enumerate(counts)
    ]
    pieces = [decode(record) for record in encode_levels(OFFER, 5, 1, levels)]
    found: dict[int, LevelRuns] = {}
    for place, piece in enumerate(pieces):
        assert isinstance(piece, Levels)
        assert piece.is_last == (place == len(pieces) - 1)
        assert sum(len(level.runs) for level in piece.levels) <= 4
        for level in piece.levels:
            known = found.setdefault(level.level, LevelRuns(level.level, 1000, 0, []))
            known.runs.extend(level.runs)
    assert list(found.values()) == levels


def test_a_chunk_knows_its_size() -> None:
    writer = ChunkWriter()
    assert writer.size_bytes == 0
    writer.add(1, Message(b"\x00\x00", b"\x00\x00", bytes(100), True, 0), 0, 0)
    assert 100 < writer.size_bytes < 150
    assert writer.encode(1, 1, 0).kind == CHUNK


@pytest.mark.parametrize("second", [(5, 8), (9, 9), (10, 12)])
def test_pieces_of_a_level_that_do_not_follow_each_other_are_refused(
    second: tuple[int, int],
) -> None:
    pieces = Pieces()
    first = Levels(OFFER, 1, 1, False, False, [LevelRuns(0, 90, 0, [(1, 3), (7, 9)])])
    assert pieces.take(first) is None
    with pytest.raises(MalformedMirrorRecord):
        pieces.take(Levels(OFFER, 1, 1, True, False, [LevelRuns(0, 90, 0, [second])]))


def test_pieces_are_joined_level_by_level() -> None:
    pieces = Pieces()
    first = [LevelRuns(1, 90, 0, [(1, 3)]), LevelRuns(0, 90, 0, [(7, 9)])]
    assert pieces.take(Levels(OFFER, 1, 1, False, False, first)) is None
    last = pieces.take(Levels(OFFER, 1, 1, True, False, [LevelRuns(0, 90, 0, [(11, 12)])]))
    assert last == [LevelRuns(1, 90, 0, [(1, 3)]), LevelRuns(0, 90, 0, [(7, 9), (11, 12)])]
