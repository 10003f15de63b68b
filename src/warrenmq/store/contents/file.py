"""One content file (`<number>.rdq`) in memory: which contents it holds, and their references.

Contents get consecutive ids in the order in which they are appended, so a file that was never
compacted is described by its first id and a count, whatever the number of contents; a compacted
file lists its ids, 8 bytes each. From the first release on there are 2 bytes for each content of
the file: the number of its released references, or GONE.

Invariant: contents with references left have `valid_bytes` bytes together; when that is 0 the file
can be deleted.

A row of a checkpoint (big-endian): number u64 · first id u64 · content count u32 · size in bytes
u64 · valid bytes u64 · id count u32 + ids u64 each (none: consecutive from the first) · released
count u32 + released references u16 each (none: no reference was released; 65535: all were).
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, mypyc_attr, u8

from warrenmq.store.records.record import FILE_HEADER_BYTES, read_u32, read_u64

# Stands for a count of released references: the content is garbage.
GONE: Final = 0xFFFF

# Outcomes of a release: references are left; it was the last one; the content was garbage before.
STILL_SHARED: Final = 0
WAS_LAST: Final = 1
WAS_GONE: Final = 2

_FIXED_BYTES: Final = 40


@mypyc_attr(acyclic=True)
class ContentFile:
    """A file with contents of the ids [first_id, end_id): all of them, or those in `ids`.

    `place` is the rank of a content in its file, from 0.
    """

    def __init__(self, number: i64, path: str, first_id: i64) -> None:
        self.number: i64 = number
        # Path relative to the vhost's directory.
        self.path: str = path
        self.first_id: i64 = first_id
        self.end_id: i64 = first_id
        # Number of contents in the file, with or without references.
        self.count: i64 = 0
        # Ids of the contents of a compacted file, eight bytes each; empty: ids are consecutive.
        self.ids: bytes = b""
        self.size_bytes: i64 = FILE_HEADER_BYTES
        self.valid_bytes: i64 = 0
        # Writes to the file that gather or were handed out, and have not come back.
        self.writes_under_way: i64 = 0
        self.is_compacting: bool = False
        # Whether the last compaction of the file failed: other files come first then.
        self.was_refused: bool = False
        self._released: BytesWriter | None = None
        self._row: bytes | None = None

    # -- contents ----------------------------------------------------------------------------------

    def place_of(self, content_id: i64) -> i64:
        """Rank of `content_id` among the contents of the file; -1: it is not in the file."""
        if content_id < self.first_id or content_id >= self.end_id:
            return -1
        ids = self.ids
        if len(ids) == 0:
            return content_id - self.first_id
        low: i64 = 0
        high: i64 = self.count
        while low < high:
            middle = (low + high) >> 1
            if read_u64(ids, middle << 3) < content_id:
                low = middle + 1
            else:
                high = middle
        if low < self.count and read_u64(ids, low << 3) == content_id:
            return low
        return -1

    def id_at(self, place: i64) -> i64:
        """Id of the content at `place`."""
        if len(self.ids) == 0:
            return self.first_id + place
        return read_u64(self.ids, place << 3)

    def append(self, stored_bytes: i64) -> None:
        """Count the next id as a content of `stored_bytes` at the end of the file."""
        released = self._released
        if released is not None:
            released.append(0)
            released.append(0)
        self._row = None
        self.count += 1
        self.end_id += 1
        self.size_bytes += stored_bytes
        self.valid_bytes += stored_bytes

    def append_gone(self, upto_id: i64) -> None:
        """Count the ids from `end_id` to `upto_id`, exclusive, as garbage contents of the file."""
        more = upto_id - self.end_id
        self._own_released().write(b"\xff\xff" * more)
        self._row = None
        self.count += more
        self.end_id = upto_id

    def set_ids(self, ids: bytes) -> None:
        """Set the contents to those with `ids`, 8 bytes each, ascending; the file has none yet."""
        count: i64 = len(ids) >> 3
        self.count = count
        self.first_id = read_u64(ids, 0)
        self.end_id = read_u64(ids, (count - 1) << 3) + 1
        self.ids = b"" if self.end_id - self.first_id == count else ids

    # -- references --------------------------------------------------------------------------------

    def released_at(self, place: i64) -> i64:
        """Number of released references of the content at `place`; GONE when all are released."""
        released = self._released
        if released is None:
            return 0
        return (i64(released[place << 1]) << 8) | i64(released[(place << 1) + 1])

    def set_released(self, place: i64, count: i64) -> None:
        """Set the number of a content's released references; `valid_bytes` is up to the caller."""
        released = self._own_released()
        released[place << 1] = u8(count >> 8)
        released[(place << 1) + 1] = u8(count & 0xFF)
        self._row = None

    def release(self, place: i64, references: i64, stored_bytes: i64) -> i64:
        """Release one of the `references` of a content of `stored_bytes`; returns the outcome.

        The outcome is STILL_SHARED, WAS_LAST or WAS_GONE.
        """
        released = self.released_at(place)
        if released == GONE:
            return WAS_GONE
        if released + 1 < references:
            self.set_released(place, released + 1)
            return STILL_SHARED
        self.set_released(place, GONE)
        self.valid_bytes -= stored_bytes
        return WAS_LAST

    def live_ids(self) -> list[i64]:
        """Ids of contents with references left, ascending."""
        found: list[i64] = []
        place: i64 = 0
        while place < self.count:
            if self.released_at(place) != GONE:
                found.append(self.id_at(place))
            place += 1
        return found

    def _own_released(self) -> BytesWriter:
        released = self._released
        if released is None:
            released = BytesWriter()
            released.write(bytes(2 * self.count))
            self._released = released
        return released

    # -- checkpoint --------------------------------------------------------------------------------

    def row(self) -> bytes:
        """The file as a row of a checkpoint; encoded again only after a change."""
        row = self._row
        if row is not None:
            return row
        out = BytesWriter()
        write_i64_be(out, self.number)
        write_i64_be(out, self.first_id)
        write_i32_be(out, i32(self.count))
        write_i64_be(out, self.size_bytes)
        write_i64_be(out, self.valid_bytes)
        write_i32_be(out, i32(len(self.ids) >> 3))
        out.write(self.ids)
        released = self._released
        if released is None:
            write_i32_be(out, 0)
        else:
            write_i32_be(out, i32(self.count))
            out.write(released.getvalue())
        row = out.getvalue()
        self._row = row
        return row

    def restore(self, row: bytes) -> bool:
        """Restore all but number and path from a checkpoint's row; False when it is malformed."""
        size: i64 = len(row)
        if size < _FIXED_BYTES + 4:
            return False
        count = read_u32(row, 16)
        id_count = read_u32(row, 36)
        released_start = _FIXED_BYTES + id_count * 8 + 4
        if (id_count > 0 and id_count != count) or released_start > size:
            return False
        released_count = read_u32(row, released_start - 4)
        if (
            released_count > 0 and released_count != count
        ) or released_start + released_count * 2 != size:
            return False
        self.first_id = read_u64(row, 8)
        self.end_id = self.first_id + count
        self.count = count
        if id_count > 0:
            self.set_ids(row[_FIXED_BYTES : released_start - 4])
        self.size_bytes = read_u64(row, 20)
        self.valid_bytes = read_u64(row, 28)
        if released_count > 0:
            released = BytesWriter()
            released.write(row[released_start:])
            self._released = released
        self._row = row
        return True


def number_in_row(row: bytes) -> i64:
    """The file number at the head of a row; -1 when the row is too short."""
    return read_u64(row, 0) if len(row) >= 8 else -1


def index_of(files: list[ContentFile], content_id: i64) -> i64:
    """Index of the last of `files` that begins at or before `content_id`; -1: none.

    `files` are in order of their ids.
    """
    low: i64 = 0
    high: i64 = len(files)
    while low < high:
        middle = (low + high) >> 1
        if files[middle].first_id <= content_id:
            low = middle + 1
        else:
            high = middle
    return low - 1
