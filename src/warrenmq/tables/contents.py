"""Reads the large contents of many positions: each range of a content file once, in file order.

A position says where its content was when the position was written; compaction may have moved the
content since. A content that is not there is searched by id in the file that should have it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from warrenmq.store.record import crc_seed
from warrenmq.tables.file_scan import RECORD_TYPE, Array, FileChangedError, OpenFile, scan_file
from warrenmq.tables.scan import RecordScan

# Contents that lie at most this many bytes apart are read in one go, with the bytes between them.
GAP_BYTES: Final = 16384


@dataclass(frozen=True)
class ContentTable:
    """The content files of a vhost, in the order of their content ids. Picklable."""

    # Directory of the vhost's persistent content files.
    directory: Path
    # Id of the store, which seeds checksums.
    store_id: bytes
    # Numbers of the files.
    numbers: tuple[int, ...]
    # First content id of each file, ascending.
    first_ids: tuple[int, ...]

    def file_of(self, content_id: int) -> int:
        """The number of the file that should have a content; -1 when no file should."""
        place = int(np.searchsorted(self.first_ids, content_id, "right")) - 1
        return self.numbers[place] if place >= 0 else -1

    def path_of(self, number: int) -> Path:
        """The path of a content file."""
        return self.directory / f"{number}.rdq"


@dataclass
class Contents:
    """The result of a fetch: content records, and the bytes of their parts."""

    # Bytes that the offsets of parts in `records` point into.
    data: bytes
    # Rows of RECORD_FIELDS.
    records: Array
    # Row in `records` of each requested content; -1 when it was not found.
    rows: Array


class ContentReader:
    """Reads the contents of one partition."""

    def __init__(self, table: ContentTable, verify: bool) -> None:
        self._table = table
        self._verify = verify
        # Ids, offsets and sizes of the contents in a file, by its number.
        self._listed: dict[int, tuple[Array, Array, Array]] = {}

    def fetch(self, references: Array) -> Contents:
        """The contents that rows of PUBLISH_REF records name; -1 for a lost or damaged one."""
        ids, first, inverse = np.unique(
            references["content_id"], return_index=True, return_inverse=True
        )
        wanted = np.column_stack(
            [
                references[name][first]
                for name in ("content_file", "content_offset", "content_bytes")
            ]
            + [ids]
        )
        rows = np.full(len(ids), -1)
        parts: list[bytes] = []
        records: list[Array] = []
        self._read(wanted, np.arange(len(ids)), rows, parts, records)
        lost = np.flatnonzero(rows < 0)
        moved = []
        for index in lost.tolist():
            place = self._find(int(ids[index]))
            if place is not None and place != tuple(wanted[index, :3].tolist()):
                wanted[index, :3] = place
                moved.append(index)
        if moved:
            self._read(wanted, np.array(moved), rows, parts, records)
        found = np.concatenate(records) if records else np.empty(0, RECORD_TYPE)
        return Contents(b"".join(parts), found, rows[inverse])

    def _read(
        self, wanted: Array, indexes: Array, rows: Array, parts: list[bytes], records: list[Array]
    ) -> None:
        """Read the contents at the places `indexes` of `wanted`: rows of file, offset, size and id.

        Appends to `parts` and `records`, and puts the row of each content that was found into
        `rows`.
        """
        order = indexes[np.lexsort((wanted[indexes, 1], wanted[indexes, 0]))]
        size = sum(len(part) for part in parts)
        count = sum(len(part) for part in records)
        for number in np.unique(wanted[order, 0]).tolist():
            of_file = order[wanted[order, 0] == number]
            try:
                file = OpenFile(self._table.path_of(number))
            except FileChangedError:
                continue
            with file:
                ends = np.maximum.accumulate(wanted[of_file, 1] + wanted[of_file, 2])
                breaks = np.flatnonzero(wanted[of_file, 1][1:] > ends[:-1] + GAP_BYTES) + 1
                for run in np.split(of_file, breaks):
                    start = int(wanted[run[0], 1])
                    data = file.read(start, int((wanted[run, 1] + wanted[run, 2]).max()) - start)
                    places = wanted[run][:, 1:].copy()
                    places[:, 0] -= start
                    scan = RecordScan(crc_seed(self._table.store_id, number), self._verify)
                    is_there = np.frombuffer(
                        scan.check_contents(data, places.astype("<i8").tobytes(), size), np.uint8
                    )
                    found = np.frombuffer(scan.take()[0], RECORD_TYPE)
                    if not len(found):
                        continue
                    rows[run[is_there == 1]] = np.arange(count, count + len(found))
                    count += len(found)
                    records.append(found)
                    parts.append(data)
                    size += len(data)

    def _find(self, content_id: int) -> tuple[int, int, int] | None:
        """File, offset and size of a content that has been moved; None when it is in no file."""
        number = self._table.file_of(content_id)
        if number < 0:
            return None
        if number not in self._listed:
            self._listed[number] = self._list(number)
        ids, offsets, sizes = self._listed[number]
        place = int(np.searchsorted(ids, content_id))
        if place == len(ids) or ids[place] != content_id:
            return None
        return number, int(offsets[place]), int(sizes[place])

    def _list(self, number: int) -> tuple[Array, Array, Array]:
        parts = [np.empty(0, RECORD_TYPE)]
        try:
            with OpenFile(self._table.path_of(number)) as file:
                scan = RecordScan(crc_seed(self._table.store_id, number), True)
                for piece in scan_file(file.read, file.size, scan):
                    parts.append(
                        piece.records[
                            (piece.records["content_id"] > 0) & (piece.records["ok"] == 1)
                        ]
                    )
        except FileChangedError:
            pass
        found = np.concatenate(parts)
        # The first valid record of an id is the one to use.
        ids, first = np.unique(found["content_id"], return_index=True)
        return ids, found["offset"][first], found["length"][first]
