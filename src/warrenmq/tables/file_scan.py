"""Reads a file of a store piece by piece, as numpy arrays of records and positions (scan.py)."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from warrenmq.store.records.record import FILE_HEADER_BYTES
from warrenmq.tables.scan import POSITION_FIELDS, RECORD_FIELDS, RecordScan

Array = np.ndarray[Any, Any]
# `read(offset, size)` returns bytes of one file; fewer than `size` only at the end of the file.
Read = Callable[[int, int], bytes]

RECORD_TYPE: Final = np.dtype([(name, "<i8") for name in RECORD_FIELDS])
POSITION_TYPE: Final = np.dtype([(name, "<i8") for name in POSITION_FIELDS])
# Bytes of a file that are in memory at a time; more when a record is larger.
PIECE_BYTES: Final = 16 * 1024 * 1024


class FileChangedError(Exception):
    """A file has changed since reading was planned; the text is one line."""


@dataclass
class Piece:
    """Whole records of a file; the parts of messages in `records` point into `data`."""

    data: bytes
    records: Array
    positions: Array

    def records_at(self, places: Array) -> Array:
        """The records at `places`.

        When these are all records, as in most segments, the array is returned without a copy.
        """
        if len(places) == len(self.records) and np.array_equal(places, np.arange(len(places))):
            return self.records
        rows: Array = self.records[places]
        return rows


def scan_file(
    read: Read, size: int, scan: RecordScan, piece_bytes: int = PIECE_BYTES
) -> Iterator[Piece]:
    """The records of a file's first `size` bytes, in order; `scan.damage` collects the damage."""
    base = FILE_HEADER_BYTES
    wanted = piece_bytes
    while base < size:
        data = read(base, min(wanted, size - base))
        is_last = base + len(data) >= size or len(data) < min(wanted, size - base)
        taken = scan.feed(data, base, is_last)
        records, positions = scan.take()
        yield Piece(
            data, np.frombuffer(records, RECORD_TYPE), np.frombuffer(positions, POSITION_TYPE)
        )
        if is_last:
            return
        base += taken
        wanted = max(piece_bytes, scan.wanted_bytes)


class OpenFile:
    """An open file for reading, as a context manager.

    The file is never mapped: a mapped file that shrinks ends the process.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise FileChangedError(
                f"{path} is gone: something has changed the store since it was planned"
            ) from None
        self.path = path

    def __enter__(self) -> "OpenFile":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return os.fstat(self._descriptor).st_size

    def must_have(self, size: int) -> None:
        """Raise FileChangedError if the file has less than `size` bytes."""
        if self.size < size:
            raise FileChangedError(
                f"{self.path} is shorter than it was: something has changed the store since it was planned"
            )

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes from `offset` on; fewer only at the end of the file."""
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_ranges(self, offsets: Array, sizes: Array, gap: int) -> tuple[bytes, Array]:
        """The bytes of many ranges, whose `offsets` ascend, and where each begins in these bytes.

        Ranges at most `gap` bytes apart are read in one go, with the bytes between them. At the end
        of the file there are fewer bytes.
        """
        ends = np.maximum.accumulate(offsets + sizes)
        firsts = np.append(0, np.flatnonzero(offsets[1:] > ends[:-1] + gap) + 1)
        starts = offsets[firsts]
        lengths = ends[np.append(firsts[1:], len(offsets)) - 1] - starts
        bounds = list(zip(starts.tolist(), lengths.tolist(), strict=True))
        if len(bounds) > 1:
            # The disk takes scattered reads best when it knows of many.
            for start, length in bounds:
                os.posix_fadvise(self._descriptor, start, length, os.POSIX_FADV_WILLNEED)
        parts = [self.read(start, length) for start, length in bounds]
        begins = np.cumsum([0, *map(len, parts[:-1])])
        of_range = np.repeat(np.arange(len(firsts)), np.diff(np.append(firsts, len(offsets))))
        return b"".join(parts), begins[of_range] + offsets - starts[of_range]
