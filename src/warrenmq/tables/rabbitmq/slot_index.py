"""Reads the index of a classic queue, version 2: slots in `<k>.qi`, small messages in `<k>.qs`.

All slots have the same size. A slot is written together with its message, and overwritten with
zeros when the message is acked. A message that was only in memory when the node was killed has no
slot, or a slot without a place.
"""

import struct
import zlib
from pathlib import Path
from typing import Final

from warrenmq.tables.rabbitmq.external_term import TermError
from warrenmq.tables.rabbitmq.queue_index import IN_STORE, LiveEntries, OnIndexDamage, Publish

SLOTS_PER_FILE: Final = 4096

_HEADER_BYTES: Final = 64
_SLOT_BYTES: Final = 32
_HEADER: Final = struct.Struct(">4sBQQ")
_IN_QUEUE_STORE: Final = struct.Struct(">QI")
_NUMBERS: Final = struct.Struct(">IQ")
_INDEX_MAGIC: Final = b"RCQI"
_VERSION: Final = 2
STORE_SUFFIX: Final = ".qs"
# Bytes of an entry's head: length, flags, the low 16 bits of the CRC-32, a zero byte.
ENTRY_HEAD_BYTES: Final = 8
_ENTRY_HEAD: Final = struct.Struct(">IBHB")
_HAS_CRC: Final = 1


def read_slots(directory: Path, entries: LiveEntries, on_damage: OnIndexDamage) -> None:
    """Add the live messages of a queue's directory to `entries`; OSError for an unreadable file."""
    files = {int(path.stem): path for path in directory.glob("*.qi") if path.stem.isdecimal()}
    for number in sorted(files):
        _read_file(files[number], number, entries, on_damage)


def _read_file(path: Path, number: int, entries: LiveEntries, on_damage: OnIndexDamage) -> None:
    data = (
        path.read_bytes()
        if path.stat().st_size <= _HEADER_BYTES + SLOTS_PER_FILE * _SLOT_BYTES
        else b""
    )
    if len(data) < _HEADER_BYTES:
        on_damage(str(path), 0, "an index file of the wrong size")
        return
    magic, version, first_seq, _ = _HEADER.unpack_from(data)
    if magic != _INDEX_MAGIC or version != _VERSION or first_seq != number * SLOTS_PER_FILE:
        on_damage(str(path), 0, "an index file with an unknown header")
        return
    store = path.with_suffix(STORE_SUFFIX)
    store_size = store.stat().st_size if store.exists() else 0
    store_number = entries.add_file(store) if store_size else IN_STORE
    for at in range(_HEADER_BYTES, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
        status, flags = data[at], data[at + 1]
        if status == 0:
            continue
        seq = first_seq + (at - _HEADER_BYTES) // _SLOT_BYTES
        place = data[at + 3]
        _, expiry = _NUMBERS.unpack_from(data, at + 20)
        is_persistent = flags & 1 != 0
        if status != 1 or place > 2:
            on_damage(str(path), at, f"a slot with status {status} and place {place}")
        elif place == 1:
            entries.add(seq, Publish(is_persistent, data[at + 4 : at + 20], expiry, IN_STORE, 0, 0))
        elif place == 2:
            offset, length = _IN_QUEUE_STORE.unpack_from(data, at + 4)
            if offset + ENTRY_HEAD_BYTES + length > store_size:
                on_damage(str(path), at, f"a slot that points behind the end of {store.name}")
            else:
                # An index of version 2 has no id for a message in a queue's store file: use zeros.
                publish = Publish(
                    is_persistent,
                    bytes(16),
                    expiry,
                    store_number,
                    offset,
                    ENTRY_HEAD_BYTES + length,
                )
                entries.add(seq, publish)
        elif is_persistent:
            on_damage(str(path), at, "a message that was in memory only")
    if (len(data) - _HEADER_BYTES) % _SLOT_BYTES:
        on_damage(str(path), len(data) - len(data) % _SLOT_BYTES, "a torn slot")


def term_of_entry(data: bytes) -> bytes:
    """The term in a whole entry of a store file; TermError when length or checksum is wrong."""
    size, flags, crc, _ = _ENTRY_HEAD.unpack_from(data)
    term = data[ENTRY_HEAD_BYTES:]
    if size != len(term) or (flags & _HAS_CRC and zlib.crc32(term) & 0xFFFF != crc):
        raise TermError("the entry's length or checksum is wrong")
    return term
