"""Reads the index of a classic queue, version 1: segments `<k>.idx` and the journal `journal.jif`.

Position s is entry s mod N of segment s div N. A publish embeds the message, or names it by its id
in the message store. The first mark after a publish means delivered, the second acked. The journal
has the entries that are not in a segment yet, and may repeat entries of a segment: the union of
both is the index. An ack without a publish belongs to a segment that was deleted.

A torn end comes from a crash. Damage before the end costs the entries up to the next embedded
message.
"""

import os
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from warrenmq.tables.rabbitmq.damage import TERM_START, find, is_zero, read_exactly

JOURNAL_NAME: Final = "journal.jif"
# `file` of an entry whose message is in the message store; other entries have an index into
# `LiveEntries.paths`.
IN_STORE: Final = -1

_BUFFER_BYTES: Final = 1 << 18
_HEAD: Final = struct.Struct(">H")
_JOURNAL_HEAD: Final = struct.Struct(">Q")
_PUBLISH: Final = struct.Struct(">16sQII")
_SEGMENT_PUBLISH_BYTES: Final = 34
_JOURNAL_PUBLISH_BYTES: Final = 40
_IS_PUBLISH: Final = 0x8000
_IS_MARK: Final = 0x4000
_IS_PERSISTENT: Final = 0x4000
_ENTRY_BITS: Final = 0x3FFF
_SEQ_BITS: Final = (1 << 62) - 1

# Reports damage: path, offset in bytes, reason.
OnIndexDamage = Callable[[str, int, str], None]
# The largest time of an array of 64-bit numbers.
_EXPIRY_MAX: Final = (1 << 63) - 1


class Publish(NamedTuple):
    """The place of a message. `file` is an index into `LiveEntries.paths`, or IN_STORE.

    `expiry` is in µs since 1970; 0 means no expiry.
    """

    is_persistent: bool
    id: bytes
    expiry: int
    file: int
    offset: int
    length: int


@dataclass
class LiveEntries:
    """The persistent messages of one queue that are not acked, as columns, by ascending seq id.

    `ids` has 16 bytes a message. `offsets` and `lengths` say where the term is in its file; they
    have no meaning where `files` is IN_STORE.
    """

    paths: list[str] = field(default_factory=list)
    seqs: "array[int]" = field(default_factory=lambda: array("q"))
    expiries: "array[int]" = field(default_factory=lambda: array("q"))
    files: "array[int]" = field(default_factory=lambda: array("i"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))
    ids: bytearray = field(default_factory=bytearray)
    # Count of transient messages, which a restart of RabbitMQ would drop too.
    transient: int = 0

    def add_file(self, path: Path) -> int:
        """Add a file that entries point into, and return its index in `paths`."""
        self.paths.append(str(path))
        return len(self.paths) - 1

    def add(self, seq: int, publish: Publish) -> None:
        """Add the next message, if it is persistent; else count it as transient."""
        if not publish.is_persistent:
            self.transient += 1
            return
        self.seqs.append(seq)
        # A time that is damaged may not fit: it is one that never comes.
        self.expiries.append(min(publish.expiry, _EXPIRY_MAX))
        self.files.append(publish.file)
        self.offsets.append(publish.offset)
        self.lengths.append(publish.length)
        self.ids += publish.id


@dataclass
class SegmentEntries:
    """The entries of one segment, by entry number."""

    publishes: dict[int, Publish] = field(default_factory=dict)
    delivered: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)


def read_index(
    directory: Path, segment_entries: int, entries: LiveEntries, on_damage: OnIndexDamage
) -> None:
    """Add the live messages of a queue's directory to `entries`; OSError for an unreadable file."""
    journal = _read_journal(directory / JOURNAL_NAME, segment_entries, entries, on_damage)
    segments = {int(path.stem): path for path in directory.glob("*.idx") if path.stem.isdecimal()}
    for number in sorted(segments.keys() | journal.keys()):
        found = SegmentEntries()
        if number in segments:
            path = segments[number]
            with path.open("rb", _BUFFER_BYTES) as file:
                reader = _SegmentReader(file, str(path), entries.add_file(path), on_damage)
                found = reader.read()
        later = journal.get(number, SegmentEntries())
        publishes = later.publishes | found.publishes
        acked = found.acked | later.acked
        for entry in sorted(publishes.keys() - acked):
            entries.add(number * segment_entries + entry, publishes[entry])


def _read_journal(
    path: Path, segment_entries: int, entries: LiveEntries, on_damage: OnIndexDamage
) -> dict[int, SegmentEntries]:
    """The entries of the journal, by segment number."""
    found: defaultdict[int, SegmentEntries] = defaultdict(SegmentEntries)
    if not path.exists():
        return found
    with path.open("rb", _BUFFER_BYTES) as file:
        size = os.fstat(file.fileno()).st_size
        file_number = entries.add_file(path) if size else IN_STORE
        at = 0
        while at + 8 <= size:
            (head,) = _JOURNAL_HEAD.unpack(read_exactly(file, 8))
            kind, seq = head >> 62, head & _SEQ_BITS
            number, entry = divmod(seq, segment_entries)
            if kind == 2:
                found[number].delivered.add(entry)
                at += 8
            elif kind == 3:
                found[number].acked.add(entry)
                at += 8
            else:
                fields = file.read(_PUBLISH.size)
                if head == 0 and fields.count(0) == len(fields):
                    # Zeros: a crash came before the file system had written these blocks.
                    return found
                if len(fields) < _PUBLISH.size:
                    break
                message_id, expiry, _, embedded = _PUBLISH.unpack(fields)
                at += _JOURNAL_PUBLISH_BYTES + embedded
                if at > size:
                    break
                place = file_number if embedded else IN_STORE
                publish = Publish(kind == 0, message_id, expiry, place, at - embedded, embedded)
                found[number].publishes.setdefault(entry, publish)
                file.seek(embedded, os.SEEK_CUR)
        if at != size:
            on_damage(str(path), min(at, size), "the journal ends in the middle of a record")
    return found


class _SegmentReader:
    """Reads one segment from its start to its end."""

    def __init__(self, file: BinaryIO, path: str, number: int, on_damage: OnIndexDamage) -> None:
        self._file = file
        self._path = path
        self._number = number
        self._on_damage = on_damage
        self._size = os.fstat(file.fileno()).st_size
        self._found = SegmentEntries()

    def read(self) -> SegmentEntries:
        """All entries of the segment that can be read."""
        at = 0
        while at < self._size:
            following = self._read_records(at)
            if following >= self._size:
                break
            at = self._behind_damage(following)
        return self._found

    def _read_records(self, at: int) -> int:
        """Read records from `at` on; returns the offset of the first one that is not valid."""
        file, size, found = self._file, self._size, self._found
        publishes, delivered = found.publishes, found.delivered
        file.seek(at)
        while at + 2 <= size:
            (head,) = _HEAD.unpack(read_exactly(file, 2))
            entry = head & _ENTRY_BITS
            if head & _IS_PUBLISH:
                if at + _SEGMENT_PUBLISH_BYTES > size:
                    return at
                message_id, expiry, _, embedded = _PUBLISH.unpack(read_exactly(file, _PUBLISH.size))
                start = at + _SEGMENT_PUBLISH_BYTES
                if start + embedded > size:
                    return at
                place = self._number if embedded else IN_STORE
                is_persistent = head & _IS_PERSISTENT != 0
                if entry not in publishes:
                    publishes[entry] = Publish(
                        is_persistent, message_id, expiry, place, start, embedded
                    )
                file.seek(embedded, os.SEEK_CUR)
                at = start + embedded
            elif head & _IS_MARK:
                if entry in delivered:
                    found.acked.add(entry)
                else:
                    delivered.add(entry)
                at += 2
            else:
                return at
        return at

    def _behind_damage(self, at: int) -> int:
        """Where records continue after a bad one at `at`: at the next embedded message.

        The term of an embedded message contains the message's id, which identifies it.
        """
        candidate = at + 1
        while True:
            term = find(self._file, TERM_START, candidate, self._size)
            if term < 0:
                break
            start = term - _SEGMENT_PUBLISH_BYTES
            if start > at and self._is_publish(start):
                self._on_damage(
                    self._path, at, f"{start - at} bytes of a segment that are no records"
                )
                return start
            candidate = term + 1
        if not is_zero(self._file, at, self._size):
            reason = f"{self._size - at} bytes at the end of a segment that are no whole record"
            self._on_damage(self._path, at, reason)
        return self._size

    def _is_publish(self, start: int) -> bool:
        self._file.seek(start)
        (head,) = _HEAD.unpack(read_exactly(self._file, 2))
        message_id, _, _, embedded = _PUBLISH.unpack(read_exactly(self._file, _PUBLISH.size))
        if not head & _IS_PUBLISH or start + _SEGMENT_PUBLISH_BYTES + embedded > self._size:
            return False
        return message_id in self._file.read(embedded)
