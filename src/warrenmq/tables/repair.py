"""Reads a damaged segment as a start would repair it; nothing on the disk changes.

Damage may have taken entries whose contents are in logs. The store finds such entries again in
these logs (`store/index/entry_search.py`), when a load meets the damage.
"""

import contextlib
from typing import Final

import numpy as np

from warrenmq.store.index.entry_search import SegmentRepair
from warrenmq.store.records.record import FILE_HEADER_BYTES, crc_seed
from warrenmq.tables import file_scan
from warrenmq.tables.parts import FilePart, Partition
from warrenmq.tables.scan import RecordScan

# The offset of an entry that was found again: the segment has no record of it.
NOWHERE: Final = -1


def repaired_segment(partition: Partition, part: FilePart) -> file_scan.Piece:
    """All whole records of a segment, and the entries that were found again, in order of seq ids.

    Raises FileChangedError when the segment is shorter than it was when the reading was planned.
    """
    data = b""
    if part.size > 0:
        with file_scan.OpenFile(partition.vhost_path / part.path) as file:
            file.must_have(part.size)
            data = file.read(0, part.size)
    queue = part.queues[0]
    settled = [(int(first), int(last)) for first, last in queue.seqs]
    repair = SegmentRepair(data, partition.store_id, part.number, settled)
    for number, first, last in part.referred.tolist():
        if repair.lacks(first, last):
            # A log that is missing has a row of its own in the table `damage`.
            with (
                contextlib.suppress(file_scan.FileChangedError),
                file_scan.OpenFile(partition.contents.log_path_of(number)) as log,
            ):
                repair.search(log.read(0, log.size), number, queue.id, first, last)
    parts = repair.content(queue.id)
    records = b"".join(parts)[FILE_HEADER_BYTES:]
    scan = RecordScan(crc_seed(partition.store_id, part.number), False)
    scan.feed(records, FILE_HEADER_BYTES, True)
    rows, positions = scan.take()
    found = np.frombuffer(rows, file_scan.RECORD_TYPE).copy()
    found["offset"] = _offsets_before(found["offset"], parts, repair.origins)
    return file_scan.Piece(records, found, np.frombuffer(positions, file_scan.POSITION_TYPE))


def _offsets_before(
    offsets: file_scan.Array, parts: list[bytes], origins: list[int]
) -> file_scan.Array:
    """Where the rows at `offsets` of the joined `parts` were before, or NOWHERE."""
    starts = np.cumsum([0, *map(len, parts[:-1])])
    of_part = np.searchsorted(starts, offsets, "right") - 1
    before = np.array(origins, np.int64)[of_part]
    found: file_scan.Array = np.where(before < 0, NOWHERE, before + offsets - starts[of_part])
    return found
