"""The damage that a flipped bit may do: messages of the record that it hits, read before the flip.

The code here reads the formats from their description, not with the store's decoders, so that the
two check each other. A flip in a file's header may cost the whole file. A flip in a checkpoint
costs nothing, since the checkpoint before it remains. With both checkpoints damaged, a settled
message stays away only if the journal has its ack.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from crc32c import crc32c

from simulator.models.messages import number_of

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
_RETRACT: Final = 18
_CONTENT: Final = 6
_RELEASE: Final = 7


@dataclass
class Damage:
    """Messages (by number) and positions that a flip may remove, and acks that it may remove."""

    numbers: set[int] = field(default_factory=set)
    # (queue id, seq id) of positions that may be missing.
    positions: set[tuple[int, int]] = field(default_factory=set)
    # (queue id, first seq, last seq) of acks that may be missing, so that their messages return.
    acks: list[tuple[int, int, int]] = field(default_factory=list)


def damage_of(path: str, data: bytes, offset: int) -> Damage:
    """The damage that a flip at `offset` of a file may do; `data` is the file before the flip."""
    damage = Damage()
    if path.rpartition("/")[2].startswith("checkpoint"):
        return damage
    for at, end in _records(data, _seed_of(path)):
        if offset < _FILE_HEADER_BYTES or at <= offset < end:
            _add_record(damage, data[at + 2], data[at + _RECORD_HEADER_BYTES : end])
    return damage


def is_whole(data: bytes) -> bool:
    """Whether a checkpoint, or another file without allocated space, is undamaged."""
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
    """(queue id, first seq, last seq) of the acks in a journal file."""
    damage = Damage()
    for at, end in _records(data, _seed_of(path)):
        if data[at + 2] in (_ACK, _RELEASE):
            _add_record(damage, data[at + 2], data[at + _RECORD_HEADER_BYTES : end])
    return damage.acks


def _seed_of(path: str) -> int:
    """The CRC seed of a file, from its name: an earlier flip may have hit the header."""
    *_, directory, name = path.split("/")
    number = int(name.partition(".")[0])
    if name.endswith(".idx"):
        number |= int(directory) << 32
    return crc32c(number.to_bytes(8, "big"), crc32c(STORE_ID))


def _records(data: bytes, seed: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each valid record."""
    at = data.find(b"WR", _FILE_HEADER_BYTES)
    while at >= 0:
        end = _end_of_record(data, at, seed)
        if end < 0:
            # The record is torn, or damaged by an earlier flip.
            at = data.find(b"WR", at + 1)
            continue
        yield at, end
        at = data.find(b"WR", end)


def _end_of_record(data: bytes, at: int, seed: int) -> int:
    """The end of the record at `at`; -1 when there is no valid record."""
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
        # Before the positions: id, file, offset, record bytes, body bytes, references, flags,
        # timestamp.
        _add_positions(damage, body, 8 + 4 + 4 + 4 + 4 + 2 + 1 + 8)
    elif kind in (_ACK, _RETRACT):
        _add_acks(damage, body, 0)
    elif kind == _RELEASE:
        # A serial number, then each content with released references: id, references, record bytes.
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
