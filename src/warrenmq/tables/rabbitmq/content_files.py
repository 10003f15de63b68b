"""Finds the place of each message in the files `<n>.rdq` of a message store.

A record is its size, the id of its message, the term, and a byte 255; it has no checksum. Where the
chain of sizes breaks, the scan searches byte by byte for the next record of a wanted message. A
file `<n>.rdt` is left by an interrupted merge and has copies of the same records. Any copy of a
message is good.
"""

import os
import re
import struct
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from warrenmq.tables.rabbitmq.damage import TERM_START, find, is_zero, read_exactly
from warrenmq.tables.rabbitmq.queue_index import OnIndexDamage

ID_BYTES: Final = 16
IDS: Final = np.dtype(f"S{ID_BYTES}")

_BUFFER_BYTES: Final = 1 << 16
_HEAD: Final = struct.Struct(">Q16sH")
_SIZE_BYTES: Final = 8
_TERM_OFFSET: Final = _SIZE_BYTES + ID_BYTES
_END: Final = b"\xff"
_TERM_HEAD: Final = int.from_bytes(TERM_START, "big")
_FILE_NAME: Final = re.compile(r"([0-9]{1,18})\.(rdq|rdt)")


@dataclass
class Contents:
    """The records of a message store, in columns; `lookup` finds records by message id."""

    # Paths of the files; `files` has indexes into this list.
    paths: list[str] = field(default_factory=list)
    ids: bytearray = field(default_factory=bytearray)
    files: "array[int]" = field(default_factory=lambda: array("i"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))

    def lookup(self, wanted: bytearray) -> tuple[Any, Any, Any]:
        """File number, offset and length of the term of each message; file -1 for a missing one.

        `wanted` has the message ids, 16 bytes each.
        """
        ids = np.frombuffer(self.ids, IDS)
        # A stable sort, so that the search finds the first of several copies.
        order = np.argsort(ids, kind="stable")
        keys = np.frombuffer(wanted, IDS)
        if not len(ids):
            nothing = np.zeros(len(keys), np.int64)
            return nothing - 1, nothing, nothing
        at = np.searchsorted(ids, keys, sorter=order)
        records = order[np.minimum(at, len(ids) - 1)]
        files = np.where(ids[records] == keys, np.frombuffer(self.files, np.int32)[records], -1)
        return (
            files,
            np.frombuffer(self.offsets, np.int64)[records],
            np.frombuffer(self.lengths, np.int64)[records],
        )


def scan_store(directory: Path, wanted: bytearray, on_damage: OnIndexDamage) -> Contents:
    """Find all records of a message store; unreadable files and stretches go to `on_damage`.

    `wanted` has the ids of the messages that indexes refer to, 16 bytes each.
    """
    contents = Contents()
    try:
        names = os.listdir(directory)
    except OSError as error:
        on_damage(str(directory), 0, f"the message store cannot be read: {error.strerror}")
        return contents
    matches = [match for match in map(_FILE_NAME.fullmatch, names) if match]
    for match in sorted(matches, key=lambda match: (int(match[1]), match[2])):
        path = directory / match[0]
        try:
            with path.open("rb", _BUFFER_BYTES) as file:
                _Scan(file, str(path), contents, wanted, on_damage).run()
        except OSError as error:
            on_damage(str(path), 0, f"cannot be read: {error.strerror}")
    return contents


class _Scan:
    """Scans one file of a message store."""

    def __init__(
        self,
        file: BinaryIO,
        path: str,
        contents: Contents,
        wanted: bytearray,
        on_damage: OnIndexDamage,
    ) -> None:
        self._file = file
        self._path = path
        self._size = os.fstat(file.fileno()).st_size
        self._contents = contents
        self._number = len(contents.paths)
        contents.paths.append(path)
        self._wanted = wanted
        # `wanted` as a sorted array; the first search makes it.
        self._wanted_sorted: Any = None
        self._on_damage = on_damage

    def run(self) -> None:
        at = 0
        while at < self._size:
            last, following = self._walk(at)
            if following >= self._size:
                return
            # A damaged size may have led here, so the search begins inside the last record.
            at = self._behind_damage(last + 1, following)

    def _walk(self, at: int) -> tuple[int, int]:
        """Follow the chain of sizes; return the start of the last record and of the broken one."""
        file, size = self._file, self._size
        ids, files = self._contents.ids, self._contents.files
        offsets, lengths = self._contents.offsets, self._contents.lengths
        last = at
        file.seek(at)
        while at + _HEAD.size < size:
            record_size, message_id, term_head = _HEAD.unpack(read_exactly(file, _HEAD.size))
            end = at + _SIZE_BYTES + record_size
            if term_head != _TERM_HEAD or record_size < ID_BYTES + 2 or end >= size:
                break
            file.seek(record_size - ID_BYTES - 2, os.SEEK_CUR)
            if file.read(1) != _END:
                break
            ids += message_id
            files.append(self._number)
            offsets.append(at + _TERM_OFFSET)
            lengths.append(record_size - ID_BYTES)
            last, at = at, end + 1
        return last, at

    def _behind_damage(self, start: int, broken: int) -> int:
        """Where the chain continues: at the next record of a wanted message, from `start` on."""
        candidate = start + _TERM_OFFSET
        while True:
            term = find(self._file, TERM_START, candidate, self._size)
            if term < 0:
                following = self._size
                break
            following = term - _TERM_OFFSET
            if self._is_wanted_record(following):
                break
            candidate = term + 1
        if following > broken and not is_zero(self._file, broken, following):
            self._on_damage(self._path, broken, f"{following - broken} bytes that are no records")
        return following

    def _is_wanted_record(self, at: int) -> bool:
        self._file.seek(at)
        record_size, message_id, _ = _HEAD.unpack(read_exactly(self._file, _HEAD.size))
        end = at + _SIZE_BYTES + record_size
        if record_size < ID_BYTES + 2 or end >= self._size:
            return False
        self._file.seek(end)
        return self._file.read(1) == _END and self._is_wanted(message_id)

    def _is_wanted(self, message_id: bytes) -> bool:
        if self._wanted_sorted is None:
            self._wanted_sorted = np.sort(np.frombuffer(self._wanted, IDS))
        at = int(np.searchsorted(self._wanted_sorted, np.array(message_id, IDS)))
        return at < len(self._wanted_sorted) and bool(
            self._wanted_sorted[at] == np.array(message_id, IDS)
        )
