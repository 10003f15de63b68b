"""What a flipped bit may cost: which messages the record that it hit speaks of, read from the bytes before the flip.

The formats are read by hand here, from their description and not with the store's own decoders, so that the two check
each other. A flip in a file's header costs all of the file; one in a checkpoint costs nothing, since there is the one before.
With both checkpoints hit, what is settled stays away only as far as the journal has its ack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from warrenmq.testing.models.messages import number_of

# The id of every simulated store.
STORE_ID: Final = bytes(range(1, 17))
_FILE_HEADER_BYTES: Final = 40
_RECORD_HEADER_BYTES: Final = 16
_POSITION: Final = struct.Struct(">IQQB")

_PUBLISH: Final = 1
_ACK: Final = 2
_PUBLISH_REF: Final = 5
_MOVE: Final = 13
_MOVE_REF: Final = 14
_CONTENT: Final = 6
_RELEASE: Final = 7


@dataclass
class Damage:
    """What may be missing, or may come back, after a flip: messages by number, positions by (queue id, seq)."""

    numbers: set[int] = field(default_factory=set)
    positions: set[tuple[int, int]] = field(default_factory=set)
    # (queue id, first seq, last seq) of acks that may be forgotten.
    acks: list[tuple[int, int, int]] = field(default_factory=list)


def damage_of(path: str, data: bytes, offset: int) -> Damage:
    """What a flip at `offset` of the file may cost."""
    damage = Damage()
    if path.rpartition("/")[2].startswith("checkpoint"):
        return damage
    for at, end in _records(data, _seed_of(path)):
        if offset < _FILE_HEADER_BYTES or at <= offset < end:
            _add_record(damage, data[at + 2], data[at + _RECORD_HEADER_BYTES : end])
    return damage


def is_whole(data: bytes) -> bool:
    """Is a checkpoint, or any file without space allocated ahead, as it was written?"""
    if int.from_bytes(data[_FILE_HEADER_BYTES - 4 : _FILE_HEADER_BYTES], "big") != crc32c(
        data[: _FILE_HEADER_BYTES - 4]
    ):
        return False
    reached = _FILE_HEADER_BYTES
    for at, end in _records(data, crc32c(data[28:36], crc32c(data[12:28]))):
        if at != reached:
            return False
        reached = end
    return reached == len(data)


def acks_in(path: str, data: bytes) -> list[tuple[int, int, int]]:
    """(queue id, first seq, last seq) of what a journal file settles."""
    damage = Damage()
    for at, end in _records(data, _seed_of(path)):
        if data[at + 2] in (_ACK, _RELEASE):
            _add_record(damage, data[at + 2], data[at + _RECORD_HEADER_BYTES : end])
    return damage.acks


def _seed_of(path: str) -> int:
    """What checksums in a file begin with; its name says it when its header was hit before."""
    *_, directory, name = path.split("/")
    number = int(name.partition(".")[0])
    if name.endswith(".idx"):
        number |= int(directory) << 32
    return crc32c(number.to_bytes(8, "big"), crc32c(STORE_ID))


def _records(data: bytes, seed: int) -> Iterator[tuple[int, int]]:
    """Where each valid record begins and ends."""
    at = data.find(b"WR", _FILE_HEADER_BYTES)
    while at >= 0:
        end = _end_of_record(data, at, seed)
        if end < 0:
            # Torn, or hit before.
            at = data.find(b"WR", at + 1)
            continue
        yield at, end
        at = data.find(b"WR", end)


def _end_of_record(data: bytes, at: int, seed: int) -> int:
    """Where the record at `at` ends, if it is one; else -1."""
    if at + _RECORD_HEADER_BYTES > len(data):
        return -1
    length, header_crc, crc = struct.unpack_from(">III", data, at + 4)
    end = at + _RECORD_HEADER_BYTES + length
    if crc32c(data[at : at + 8], seed) != header_crc or end > len(data):
        return -1
    return end if crc32c(data[at + _RECORD_HEADER_BYTES : end], header_crc) == crc else -1


def _add_record(damage: Damage, kind: int, body: bytes) -> None:
    if kind == _MOVE:
        _add_publish(damage, body[12:])
    elif kind == _MOVE_REF:
        _add_record(damage, _PUBLISH_REF, body[12:])
    elif kind == _PUBLISH:
        _add_publish(damage, body)
    elif kind == _CONTENT:
        _add_publish(damage, body[10:])
    elif kind == _PUBLISH_REF:
        # Before the positions: id, file, offset, record bytes, body bytes, references, flags, timestamp.
        _add_positions(damage, body, 8 + 4 + 4 + 4 + 4 + 2 + 1 + 8)
    elif kind == _ACK:
        _add_acks(damage, body, 0)
    elif kind == _RELEASE:
        # A serial number, then what is given up of each content: id, references, record bytes.
        (count,) = struct.unpack_from(">I", body, 8)
        _add_acks(damage, body, 12 + (8 + 2 + 4) * count)


def _add_acks(damage: Damage, body: bytes, at: int) -> None:
    queue_id, count = struct.unpack_from(">II", body, at)
    for first, last in struct.iter_unpack(">QQ", body[at + 8 : at + 8 + 16 * count]):
        damage.acks.append((queue_id, first, last))


def _add_positions(damage: Damage, body: bytes, at: int) -> int:
    (count,) = struct.unpack_from(">I", body, at)
    at += 4
    for _ in range(count):
        queue_id, seq, _, _ = _POSITION.unpack_from(body, at)
        damage.positions.add((queue_id, seq))
        at += _POSITION.size
    return at


def _add_publish(damage: Damage, body: bytes) -> None:
    at = _add_positions(damage, body, 0) + 9
    at += 1 + body[at]
    at += 1 + body[at]
    at += 4 + int.from_bytes(body[at : at + 4], "big")
    damage.numbers.add(number_of(body[at + 4 :]))
