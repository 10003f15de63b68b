"""Records with which a mirror gets the messages that it misses from its master.

They travel as `SyncRecord` of `cluster/mirrors/records.py`: a kind and a body. Integers are
big-endian: u8, u32, i64; a `message` is that of `queues/remote/link_records.py`. The mirror draws
the number of an attempt, which is higher than all its numbers before; records of another attempt
than the current one count for nothing.

    OFFER     attempt i64, epoch i64, flags u8, levels     mirror: which messages it has
    ANSWER    attempt i64, epoch i64, flags u8, levels     master: which of them it must drop
    CHUNK     attempt i64, number i64, level u8, count u32, chunk message * count
    TAKEN     attempt i64, number i64             mirror: it has the chunks up to this one, durably
    PROGRESS  attempt i64, left i64, sent i64     master: messages left and sent; sent now and then
    DONE      attempt i64, ring i64               master: that was the last chunk; see below
    SYNCED    attempt i64                         mirror: it has all, durably
    CANCEL    attempt i64, reason u8              either: the attempt is over

`levels` is count u32, then for each level: level u8, next seq i64, known from i64, runs. Runs are a
count u32 with (first i64, last i64) each.

In an OFFER the runs are the seq ids of the messages that the mirror has. It takes further ones from
`next seq` on only, and those from `known from` on (0: none) it has got from the ring. In an ANSWER
the runs are seq ids that the mirror has and the master no longer; the attempt brings the mirror all
messages below the answer's `next seq`, and `known from` is 0. With the flag ANEW the mirror lacks
messages below its next seq: it must drop its copy and begin with an empty one.

An OFFER or ANSWER with many runs comes in pieces, and the last one has the flag LAST. A level may
be in several pieces; its runs ascend over all of them.

A chunk message is flags u8, seq i64, timestamp ms i64, [expiry ms i64], message.

DONE names the number of a ring message of the master: the mirror is complete when it has applied
the ring's messages up to that one and all chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from warrenmq.cluster.mirrors.records import MalformedMirrorRecord, SyncRecord
from warrenmq.queues.mirror.records import SEQ_END, read_runs, read_seq, write_runs
from warrenmq.queues.remote.link_records import MalformedRecordError, RecordReader, write_message
from warrenmq.store.model.message import Message
from warrenmq.store.model.runs import Runs

OFFER: Final = 32
ANSWER: Final = 33
CHUNK: Final = 34
TAKEN: Final = 35
PROGRESS: Final = 36
DONE: Final = 37
SYNCED: Final = 38
CANCEL: Final = 39

# Flag of OFFER and ANSWER: no piece follows.
LAST: Final = 1
# Flag of ANSWER: the copy must begin anew.
ANEW: Final = 2

# Flags of a message in a chunk.
PERSISTENT: Final = 1
REDELIVERED: Final = 2
EXPIRES: Final = 4

# Why an attempt ends (CANCEL). The other side has not answered in time, or knows no such attempt.
TIMED_OUT: Final = 1
# The mirror knows a higher epoch than the master.
DEPOSED: Final = 2
# The mirror cannot take more: its disk has failed.
REFUSED: Final = 3
# The queue is deleted.
GONE: Final = 4

# The most runs in one piece of an OFFER or ANSWER; each takes 16 bytes.
PIECE_RUNS: Final = 16384


@dataclass(frozen=True, slots=True)
class LevelRuns:
    """One level of an OFFER or ANSWER, or a part of it."""

    level: int
    next_seq: int
    known_from: int
    runs: Runs


@dataclass(frozen=True, slots=True)
class Levels:
    """One piece of an OFFER or ANSWER."""

    kind: int
    attempt: int
    epoch: int
    is_last: bool
    is_anew: bool
    levels: list[LevelRuns]


@dataclass(frozen=True, slots=True)
class ChunkMessage:
    """One message of a chunk. `expiry_ms` is 0 for never."""

    seq: int
    message: Message
    expiry_ms: int
    is_redelivered: bool


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk of messages of one level, ascending by seq id. `number` counts from 1."""

    attempt: int
    number: int
    level: int
    messages: list[ChunkMessage]


@dataclass(frozen=True, slots=True)
class Note:
    """A record of an attempt with at most two numbers; those that its kind does not have are 0."""

    kind: int
    attempt: int
    first: int = 0
    second: int = 0


SyncStep = Levels | Chunk | Note

# Numbers that the records of a kind have beside the attempt.
_NUMBERS: Final = {TAKEN: 1, PROGRESS: 2, DONE: 1, SYNCED: 0}


# -- encoding --------------------------------------------------------------------------------------


def encode_levels(
    kind: int, attempt: int, epoch: int, levels: list[LevelRuns], is_anew: bool = False
) -> list[SyncRecord]:
    """The pieces of an OFFER or ANSWER, in order: at least one."""
    pieces: list[list[LevelRuns]] = [[]]
    room = PIECE_RUNS
    for level in levels:
        place = 0
        while True:
            if room == 0:
                pieces.append([])
                room = PIECE_RUNS
            # A level counts as much as a run, and comes with one at least.
            end = min(len(level.runs), place + max(room - 1, 1))
            runs = level.runs[place:end]
            pieces[-1].append(LevelRuns(level.level, level.next_seq, level.known_from, runs))
            room = max(0, room - 1 - len(runs))
            place = end
            if place == len(level.runs):
                break
    flags = ANEW if is_anew else 0
    last = len(pieces) - 1
    return [
        _encode_piece(kind, attempt, epoch, flags | (LAST if place == last else 0), piece)
        for place, piece in enumerate(pieces)
    ]


def encode_note(kind: int, attempt: int, first: int = 0, second: int = 0) -> SyncRecord:
    """TAKEN, PROGRESS, DONE or SYNCED."""
    out = BytesWriter()
    write_i64_be(out, attempt)
    numbers = _NUMBERS[kind]
    if numbers > 0:
        write_i64_be(out, first)
    if numbers > 1:
        write_i64_be(out, second)
    return SyncRecord(kind, out.getvalue())


def encode_cancel(attempt: int, reason: int) -> SyncRecord:
    """CANCEL."""
    out = BytesWriter()
    write_i64_be(out, attempt)
    out.append(reason)
    return SyncRecord(CANCEL, out.getvalue())


class ChunkWriter:
    """Gathers the messages of one chunk."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self._out: BytesWriter = BytesWriter()

    @property
    def size_bytes(self) -> i64:
        """Bytes of the messages so far."""
        return len(self._out)

    def add(self, seq: i64, message: Message, flags: i64, expiry_ms: i64) -> None:
        """Append a message; `flags` says whether it is PERSISTENT or REDELIVERED."""
        if expiry_ms != 0:
            flags |= EXPIRES
        out = self._out
        out.append(flags)
        write_i64_be(out, seq)
        write_i64_be(out, message.timestamp_ms)
        if expiry_ms != 0:
            write_i64_be(out, expiry_ms)
        write_message(out, message)
        self.count += 1

    def encode(self, attempt: i64, number: i64, level: i64) -> SyncRecord:
        """CHUNK with the messages so far."""
        head = BytesWriter()
        write_i64_be(head, attempt)
        write_i64_be(head, number)
        head.append(level)
        write_i32_be(head, i32(self.count))
        head.write(self._out.getvalue())
        return SyncRecord(CHUNK, head.getvalue())


def _encode_piece(
    kind: int, attempt: int, epoch: int, flags: int, levels: list[LevelRuns]
) -> SyncRecord:
    out = BytesWriter()
    write_i64_be(out, attempt)
    write_i64_be(out, epoch)
    out.append(flags)
    write_i32_be(out, i32(len(levels)))
    for level in levels:
        out.append(level.level)
        write_i64_be(out, level.next_seq)
        write_i64_be(out, level.known_from)
        write_runs(out, level.runs)
    return SyncRecord(kind, out.getvalue())


# -- decoding --------------------------------------------------------------------------------------


def decode(record: SyncRecord) -> SyncStep:
    """Decode the step in `record`.

    Raises MalformedMirrorRecord unless the body is exactly one step, with possible values.
    """
    reader = RecordReader(record.body)
    try:
        step = _decode_body(record.kind, reader)
    except MalformedRecordError as error:
        raise MalformedMirrorRecord(str(error)) from error
    if reader.has_more():
        raise MalformedMirrorRecord(f"bytes follow a sync record of kind {record.kind}")
    return step


def _decode_body(kind: int, reader: RecordReader) -> SyncStep:
    if not OFFER <= kind <= CANCEL:
        raise MalformedMirrorRecord(f"a sync record has kind {kind}")
    attempt = _natural(reader, 1, "attempt")
    if kind == CHUNK:
        return _decode_chunk(attempt, reader)
    if kind == CANCEL:
        reason = reader.octet()
        if not TIMED_OUT <= reason <= GONE:
            raise MalformedMirrorRecord(f"an attempt is cancelled for reason {reason}")
        return Note(kind, attempt, reason)
    numbers = _NUMBERS.get(kind)
    if numbers is None:
        return _decode_levels(kind, attempt, reader)
    found = [_natural(reader, 0, "number") for _ in range(numbers)]
    return Note(kind, attempt, *found)


def _decode_levels(kind: int, attempt: int, reader: RecordReader) -> Levels:
    epoch = _natural(reader, 0, "epoch")
    flags = reader.octet()
    if flags > LAST | ANEW:
        raise MalformedMirrorRecord(f"an offer or answer has flags {flags}")
    levels: list[LevelRuns] = []
    for _ in range(reader.number()):
        level = reader.octet()
        next_seq = read_seq(reader)
        known_from = reader.integer()
        if not 0 <= known_from < SEQ_END:
            raise MalformedMirrorRecord("a seq id is out of range")
        runs = read_runs(reader)
        if len(runs) > 0 and runs[-1][1] >= next_seq:
            raise MalformedMirrorRecord("a copy has a message that it has not got")
        levels.append(LevelRuns(level, next_seq, known_from, runs))
    return Levels(kind, attempt, epoch, flags & LAST != 0, flags & ANEW != 0, levels)


def _decode_chunk(attempt: int, reader: RecordReader) -> Chunk:
    number = _natural(reader, 1, "chunk")
    level = reader.octet()
    messages: list[ChunkMessage] = []
    before = 0
    for _ in range(reader.number()):
        flags = reader.octet()
        if flags > PERSISTENT | REDELIVERED | EXPIRES:
            raise MalformedMirrorRecord(f"a message of a chunk has flags {flags}")
        seq = read_seq(reader)
        if seq <= before:
            raise MalformedMirrorRecord("the messages of a chunk do not ascend")
        timestamp_ms = _natural(reader, 0, "timestamp")
        expiry_ms = _natural(reader, 1, "expiry") if flags & EXPIRES else 0
        message = reader.message(flags & PERSISTENT != 0, timestamp_ms)
        messages.append(ChunkMessage(seq, message, expiry_ms, flags & REDELIVERED != 0))
        before = seq
    if len(messages) == 0:
        raise MalformedMirrorRecord("a chunk has no message")
    return Chunk(attempt, number, level, messages)


def _natural(reader: RecordReader, least: int, what: str) -> int:
    number = reader.integer()
    if number < least:
        raise MalformedMirrorRecord(f"a sync record has {what} {number}, below {least}")
    return number
