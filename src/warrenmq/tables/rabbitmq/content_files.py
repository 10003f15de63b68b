"""Which message is where in the files `<n>.rdq` of a message store.

A record is its size, the id of its message, the term, and a byte 255; there is no checksum. Where the chain of sizes
breaks, the next record that holds a message somebody wants is searched for byte by byte. A file `<n>.rdt` is what a merge
that was interrupted left behind, of the same records. Of several copies of a message any is good.
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
    """All records found. `lookup` finds some by their ids."""

    paths: list[str] = field(default_factory=list)
    ids: bytearray = field(default_factory=bytearray)
    files: "array[int]" = field(default_factory=lambda: array("i"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    lengths: "array[int]" = field(default_factory=lambda: array("q"))

    def lookup(self, wanted: bytearray) -> tuple[Any, Any, Any]:
        """File number, offset and length of the terms of the messages `wanted` (16 bytes each); file -1: not there."""
        ids = np.frombuffer(self.ids, IDS)
        # Stable, so that the first copy of several is the one that is found.
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
    """Look through a message store; `wanted` are the ids (16 bytes each) of what indexes refer to.

    What cannot be read is damage.
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
    """One file."""

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
        # Made when a search needs it.
        self._wanted_sorted: Any = None
        self._on_damage = on_damage

    def run(self) -> None:
        at = 0
        while at < self._size:
            last, following = self._walk(at)
            if following >= self._size:
                return
            # A damaged size may have led here: what lies in the record before is looked through as well.
            at = self._behind_damage(last + 1, following)

    def _walk(self, at: int) -> tuple[int, int]:
        """Follow the chain of sizes; the start of the last record, and where the chain breaks."""
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
        """Where the chain goes on: the next record with a wanted message, from `start` on."""
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
