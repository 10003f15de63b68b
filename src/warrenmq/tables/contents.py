"""Reads contents that are not in the record of their position: in content files, and in logs.

Each range of a file is read once, in file order. A position says where its content was when the
position was written. Compaction may have moved a large content since: it is searched by id in the
file that should have it then. A content in a log stays where it is.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from warrenmq.store.model.layout import JOURNAL_NAME
from warrenmq.store.records.log_places import PLACES
from warrenmq.store.records.record import crc_seed
from warrenmq.tables.file_scan import RECORD_TYPE, Array, FileChangedError, OpenFile, scan_file
from warrenmq.tables.scan import RecordScan

# Contents that lie at most this many bytes apart are read in one go, with the bytes between them.
GAP_BYTES: Final = 16384
# The gap (bytes) for contents in logs, which are small: one more call costs less than a larger gap.
LOG_GAP_BYTES: Final = 4096


@dataclass(frozen=True)
class ContentTable:
    """The content files of a vhost, in the order of their content ids, and its logs. Picklable."""

    # Directory of the vhost's persistent content files.
    directory: Path
    # Id of the store, which seeds checksums.
    store_id: bytes
    # Numbers of the files.
    numbers: tuple[int, ...]
    # First content id of each file, ascending.
    first_ids: tuple[int, ...]
    # Numbers of the files in the journal's directory; other logs are in `directory`.
    journal: tuple[int, ...] = ()

    def file_of(self, content_id: int) -> int:
        """The number of the file that should have a content; -1 when no file should."""
        place = int(np.searchsorted(self.first_ids, content_id, "right")) - 1
        return self.numbers[place] if place >= 0 else -1

    def path_of(self, number: int) -> Path:
        """The path of a content file."""
        return self.directory / f"{number}.rdq"

    def log_path_of(self, number: int) -> Path:
        """The path of a log."""
        directory = self.directory
        if number in self.journal:
            directory = directory.parent / JOURNAL_NAME
        return directory / f"{number}.wal"


@dataclass
class Contents:
    """The result of a fetch: records with contents, and the bytes of their parts."""

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
        """The contents that rows of PUBLISH_REF and PLACES name; -1 for a lost or damaged one."""
        is_in_log = references["kind"] == PLACES
        rows = np.full(len(references), -1)
        parts: list[bytes] = []
        records: list[Array] = []
        if not is_in_log.all():
            rows[~is_in_log] = self._fetch_stored(references[~is_in_log], parts, records)
        if is_in_log.any():
            rows[is_in_log] = self._fetch_in_logs(references[is_in_log], parts, records)
        found = np.concatenate(records) if records else np.empty(0, RECORD_TYPE)
        return Contents(b"".join(parts), found, rows)

    def _fetch_in_logs(self, places: Array, parts: list[bytes], records: list[Array]) -> Array:
        """Add the records in logs to `parts` and `records`; the row of each of `places`, or -1."""
        rows = np.full(len(places), -1)
        count = sum(map(len, records))
        size = sum(map(len, parts))
        order = np.lexsort((places["content_offset"], places["content_file"]))
        numbers = places["content_file"][order]
        for of_file in np.split(order, np.flatnonzero(np.diff(numbers)) + 1):
            number = int(places["content_file"][of_file[0]])
            offsets = places["content_offset"][of_file]
            wanted = np.column_stack(
                [
                    offsets,
                    *(places[name][of_file] for name in ("content_bytes", "queue_id", "first")),
                ]
            )
            try:
                with OpenFile(self._table.log_path_of(number)) as file:
                    data, starts = file.read_ranges(wanted[:, 0], wanted[:, 1], LOG_GAP_BYTES)
            except FileChangedError:
                continue
            wanted[:, 0] = starts
            scan = RecordScan(crc_seed(self._table.store_id, number), self._verify)
            is_there = np.frombuffer(scan.check_log(data, wanted.astype("<i8").tobytes()), np.uint8)
            found = np.frombuffer(scan.take()[0], RECORD_TYPE).copy()
            for name in ("exchange", "routing_key", "properties", "body"):
                found[name] += size
            rows[of_file[is_there == 1]] = np.arange(count, count + len(found))
            count += len(found)
            size += len(data)
            records.append(found)
            parts.append(data)
        return rows

    def _fetch_stored(self, references: Array, parts: list[bytes], records: list[Array]) -> Array:
        """Add large contents to `parts` and `records`; the row of each of `references`, or -1."""
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
        return rows[inverse]

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
