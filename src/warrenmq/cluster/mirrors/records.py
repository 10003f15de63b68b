"""Records between replicas of one mirrored queue: one in a frame of kind MIRRORS.

A payload begins with the key of the queue (i64, `place_key.py`) and the kind of the record
(u8). Integers are big-endian.

    RING      the bytes of a ring frame (`cluster/ring/frames.py`)
    DURABLE   epoch i64, number i64   the sender's copy has the ring messages of the master up to
                                      `number` on disk, or in memory if they need no disk
    FAILED    epoch i64               the disk of the sender's copy has failed
    NEWER     epoch i64               answers a record of a lower epoch: the sender knows this one
    HAND_OVER epoch i64, node bytes   asks the master of `epoch` to let the mirror on `node` lead
    32 to 63  bytes                   records of a synchronisation (`sync/records.py`)

A ring message of a master is its number (i64, from 1, counted for each master of an epoch) and the
operations of a turn. Between the two, the first one has what its master has heard of the epochs
before (`Heard`: epoch i64, number i64).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from librt.strings import BytesWriter, read_i64_be, write_i64_be

RING: Final = 1
DURABLE: Final = 2
FAILED: Final = 3
NEWER: Final = 4
HAND_OVER: Final = 5
# The kinds of a synchronisation, first and last.
SYNC_FIRST: Final = 32
SYNC_LAST: Final = 63

_HEAD_BYTES: Final = 9
_NUMBER_BYTES: Final = 8


class Heard(NamedTuple):
    """How far a copy has followed its masters: up to ring message `number` of `epoch`.

    It has all that they did till then. Of two copies, the one that has heard more has all that the
    other one has.
    """

    epoch: int
    number: int


# NEWBORN: a copy of a new queue. UNKNOWN: a copy of which nobody knows what it has heard.
NEWBORN: Final = Heard(0, 0)
UNKNOWN: Final = Heard(-1, 0)
# The value that an UNKNOWN copy sends as the master: no mirror can have heard so much.
_NEVER_HEARD: Final = Heard((1 << 63) - 1, 0)


class MalformedMirrorRecord(Exception):
    """A payload that is no record between replicas; the link must go down."""


class RingRecord(NamedTuple):
    """A ring frame."""

    frame: bytes


class DurableRecord(NamedTuple):
    """The sender has all ring messages up to `number` of the master of `epoch`."""

    epoch: int
    number: int


class FailedRecord(NamedTuple):
    """The sender, a mirror in `epoch`, cannot write to its disk."""

    epoch: int


class NewerRecord(NamedTuple):
    """The sender refuses what is older than `epoch`."""

    epoch: int


class HandOverRecord(NamedTuple):
    """The sender asks the master of `epoch` to let the mirror on `node` lead."""

    epoch: int
    node: bytes


class SyncRecord(NamedTuple):
    """A record of a synchronisation; its body is not checked yet."""

    kind: int
    body: bytes


MirrorRecord = RingRecord | DurableRecord | FailedRecord | NewerRecord | HandOverRecord | SyncRecord


def encode_record(key: int, record: MirrorRecord) -> bytes:
    """The payload of a record of the queue with this key."""
    out = BytesWriter()
    write_i64_be(out, key)
    match record:
        case RingRecord(frame):
            out.append(RING)
            out.write(frame)
        case DurableRecord(epoch, number):
            out.append(DURABLE)
            write_i64_be(out, epoch)
            write_i64_be(out, number)
        case FailedRecord(epoch):
            out.append(FAILED)
            write_i64_be(out, epoch)
        case NewerRecord(epoch):
            out.append(NEWER)
            write_i64_be(out, epoch)
        case HandOverRecord(epoch, node):
            out.append(HAND_OVER)
            write_i64_be(out, epoch)
            out.write(node)
        case SyncRecord(kind, body):
            out.append(kind)
            out.write(body)
    return out.getvalue()


def key_of(payload: bytes) -> int:
    """The key of the queue that a payload is about. Raises MalformedMirrorRecord."""
    if len(payload) < _HEAD_BYTES:
        raise MalformedMirrorRecord("a record between replicas is too short")
    return int(read_i64_be(payload, 0))


def decode_record(payload: bytes) -> MirrorRecord:
    """The record in a payload. Raises MalformedMirrorRecord."""
    key_of(payload)
    kind = payload[_HEAD_BYTES - 1]
    if kind == RING:
        return RingRecord(payload[_HEAD_BYTES:])
    if SYNC_FIRST <= kind <= SYNC_LAST:
        return SyncRecord(kind, payload[_HEAD_BYTES:])
    if kind == DURABLE:
        epoch, number = _integers(payload, 2)
        return DurableRecord(epoch, number)
    if kind == FAILED:
        return FailedRecord(_integers(payload, 1)[0])
    if kind == NEWER:
        return NewerRecord(_integers(payload, 1)[0])
    if kind == HAND_OVER:
        end = _HEAD_BYTES + 8
        return HandOverRecord(_integers(payload[:end], 1)[0], payload[end:])
    raise MalformedMirrorRecord(f"replicas send no records of kind {kind}")


def _integers(payload: bytes, count: int) -> list[int]:
    """The `count` numbers of which the record consists; none is negative."""
    if len(payload) != _HEAD_BYTES + 8 * count:
        raise MalformedMirrorRecord(f"a record between replicas has {len(payload)} bytes")
    found = [int(read_i64_be(payload, _HEAD_BYTES + 8 * place)) for place in range(count)]
    if min(found) < 0:
        raise MalformedMirrorRecord("a number between replicas is negative")
    return found


def encode_message(number: int, operations: bytes, heard: Heard = NEWBORN) -> bytes:
    """The ring message `number` of a master, which has `heard` so much of earlier ones."""
    out = BytesWriter()
    write_i64_be(out, number)
    if number == 1:
        told = _NEVER_HEARD if heard == UNKNOWN else heard
        write_i64_be(out, told.epoch)
        write_i64_be(out, told.number)
    out.write(operations)
    return out.getvalue()


def decode_message(message: bytes) -> tuple[int, Heard, bytes]:
    """The number of a ring message, what its master had heard, and the operations.

    Only the first message tells the second. Raises MalformedMirrorRecord.
    """
    number = _number_at(message, 0)
    if number < 1:
        raise MalformedMirrorRecord(f"a ring message has the number {number}")
    if number > 1:
        return number, NEWBORN, message[_NUMBER_BYTES:]
    heard = Heard(_number_at(message, _NUMBER_BYTES), _number_at(message, 2 * _NUMBER_BYTES))
    return number, heard, message[3 * _NUMBER_BYTES :]


def _number_at(message: bytes, at: int) -> int:
    if len(message) < at + _NUMBER_BYTES:
        raise MalformedMirrorRecord("a ring message lacks a number")
    return int(read_i64_be(message, at))
