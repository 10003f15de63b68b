"""Passes over content files (`.rdq`): searching contents, and copying live ones (compaction).

The disk's side of the jobs FindContents and CompactContents, without a disk: `read(offset, size)`
returns the bytes of one file, fewer only where the file ends, and `write(parts)` appends to the
target. A pass reads a file front to back in chunks of 1 MiB, so it has no more than that in memory,
whatever the file holds; a content larger than a chunk is read again to be copied. Each chunk is a
call that leaves compiled code, so that other threads get their turn (G6).

Damage costs only the damaged records. A pass skips damage as recovery does (`store/recovery.py`): a
good header leads to the next record when there is one, else the next good header is searched for.
The first valid record of an id counts (T28). A search for certain contents does not check the
others: most of the contents that compaction meets are garbage.
"""

from collections.abc import Callable
from typing import Final

from crc32c import crc32c
from mypy_extensions import i64

from warrenmq.store.records.content import content_id_of
from warrenmq.store.records.record import (
    CONTENT,
    CONTENT_MAGIC,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    RecordWriter,
    body_is_valid,
    crc_seed,
    moved_header,
    next_header,
    read_u32,
    record_length,
)

Read = Callable[[int, int], bytes]
Write = Callable[[list[bytes]], None]
# One content file: its read function, its size in bytes, and the seed of its CRCs.
Source = tuple[Read, int, int]
# (content id, offset, size of the record in bytes).
Copied = tuple[i64, i64, i64]

CHUNK_BYTES: Final = 1048576
# Size in bytes of a record's header with the content id and the references behind it.
_HEAD_BYTES: Final = RECORD_HEADER_BYTES + 10


class ContentScan:
    """Steps through one content file; the result is `content_id`, `offset`, `length`, `is_valid`.

    With `wanted`, the scan skips contents of other ids without checking them for damage.
    """

    def __init__(self, read: Read, size: i64, seed: int, wanted: set[int] | None = None) -> None:
        self.content_id: i64 = -1
        self.offset: i64 = 0
        self.length: i64 = 0
        self.is_valid: bool = False
        self._read: Read = read
        self._size: i64 = size
        self._seed: int = seed
        self._wanted: set[int] | None = wanted
        self._next: i64 = FILE_HEADER_BYTES
        # The part of the file that is in memory.
        self._data: bytes = b""
        # Offset in the file at which `_data` begins.
        self._base: i64 = 0

    def advance(self) -> bool:
        """Go to the next content, or to a stretch that holds none; False at the end of the file.

        At such a stretch `is_valid` is False and `content_id` is -1. The last stretch may be an
        unfinished write, or space that was allocated ahead.
        """
        position = self._next
        bad_from: i64 = -1
        while position < self._size:
            length = self._length_at(position)
            content_id: i64 = -1
            if length >= 0 and length <= self._size - position:
                if bad_from < 0 and self._is_unwanted(position, length):
                    position += length
                    continue
                content_id = self._verify(position, length)
            if content_id >= 0 and bad_from < 0:
                self._next = position + length
                return self._found(content_id, position, length)
            if content_id >= 0:
                # Report the stretch first; the next call finds the content again.
                break
            if bad_from < 0:
                bad_from = position
            following = position + length
            if (
                length < 0
                or following > self._size
                or (following < self._size and self._length_at(following) < 0)
            ):
                following = self._search(position + 1)
            position = following
        self._next = position
        if bad_from < 0:
            return False
        return self._found(-1, bad_from, position - bad_from)

    def body(self) -> bytes:
        """Body of the record just found, which must be valid and not larger than a chunk."""
        start = self.offset - self._base
        return self._data[start + RECORD_HEADER_BYTES : start + self.length]

    def head(self) -> bytes:
        """Header, content id and references of the record just found, which must be valid."""
        start = self.offset - self._base
        if start < 0 or start + _HEAD_BYTES > len(self._data):
            return self._read(self.offset, _HEAD_BYTES)
        return self._data[start : start + _HEAD_BYTES]

    def record(self) -> bytes:
        """All bytes of the record just found, which must be valid."""
        if self.length > CHUNK_BYTES:
            return self._read(self.offset, self.length)
        start = self.offset - self._base
        return self._data[start : start + self.length]

    def _found(self, content_id: i64, offset: i64, length: i64) -> bool:
        self.content_id = content_id
        self.offset = offset
        self.length = length
        self.is_valid = content_id >= 0
        return True

    def _length_at(self, position: i64) -> i64:
        self._hold(position, RECORD_HEADER_BYTES)
        return record_length(self._data, position - self._base, self._seed)

    def _is_unwanted(self, position: i64, length: i64) -> bool:
        wanted = self._wanted
        if wanted is None or length < _HEAD_BYTES:
            return False
        self._hold(position, _HEAD_BYTES)
        start = position - self._base
        if self._data[start + 2] != CONTENT:
            return False
        content_id: int = content_id_of(
            self._data, start + RECORD_HEADER_BYTES, start + _HEAD_BYTES
        )
        return content_id not in wanted

    def _verify(self, position: i64, length: i64) -> i64:
        """Id of the content whose header is at `position`; -1 when damaged or no content."""
        if length < _HEAD_BYTES:
            return -1
        if length <= CHUNK_BYTES:
            self._hold(position, length)
            if not body_is_valid(self._data, position - self._base, length):
                return -1
        else:
            self._hold(position, _HEAD_BYTES)
            header = self._data[position - self._base : position - self._base + RECORD_HEADER_BYTES]
            body_start = position + RECORD_HEADER_BYTES
            body_bytes = length - RECORD_HEADER_BYTES
            if _crc_of(self._read, body_start, body_bytes, read_u32(header, 8)) != read_u32(
                header, 12
            ):
                return -1
        start = position - self._base
        if self._data[start + 2] != CONTENT:
            return -1
        return content_id_of(self._data, start + RECORD_HEADER_BYTES, start + length)

    def _search(self, position: i64) -> i64:
        """Offset of the next good header at or behind `position`, or the file's size: none."""
        while position < self._size:
            self._hold(position, RECORD_HEADER_BYTES)
            found = next_header(self._data, position - self._base, self._seed)
            if found < len(self._data):
                return self._base + found
            end = self._base + len(self._data)
            # A header may lie across the end of the chunk.
            following = end - RECORD_HEADER_BYTES + 1
            if end >= self._size or following <= position:
                break
            position = following
        return self._size

    def _hold(self, position: i64, size: i64) -> None:
        """Have `size` bytes from `position` on in memory, or fewer at the end of the file."""
        if position >= self._base and position + size <= self._base + len(self._data):
            return
        self._data = self._read(position, min(max(size, CHUNK_BYTES), self._size - position))
        self._base = position


def scan_contents(read: Read, size: i64, seed: int) -> list[tuple[i64, i64, i64, bool]]:
    """(id, offset, size in bytes, is it valid) of all contents of a file.

    A stretch that is no valid record has the id -1.
    """
    found: list[tuple[i64, i64, i64, bool]] = []
    scan = ContentScan(read, size, seed)
    while scan.advance():
        found.append((scan.content_id, scan.offset, scan.length, scan.is_valid))
    return found


def find_contents(
    read: Read, size: i64, seed: int, wanted: list[i64]
) -> dict[int, tuple[int, bytes]]:
    """(offset, record's bytes) by id, of the contents `wanted` that are in the file and valid."""
    missing: set[int] = set(wanted)
    found: dict[int, tuple[int, bytes]] = {}
    scan = ContentScan(read, size, seed, missing)
    while len(missing) > 0 and scan.advance():
        content_id: int = scan.content_id
        if content_id in missing:
            missing.discard(content_id)
            found[content_id] = (scan.offset, scan.record())
    return found


def compact_contents(
    sources: list[Source], live_ids: list[i64], store_id: bytes, target_number: i64, write: Write
) -> tuple[list[Copied], list[i64]]:
    """Copy the contents `live_ids` from `sources` into a new file; returns copied and missing ones.

    The second list has the ids that could not be copied. `write` gets the target's bytes, beginning
    with its header, at most about 1 MiB at a time. Errors of `read` and `write` go through to the
    caller.
    """
    missing: set[int] = set(live_ids)
    copied: list[Copied] = []
    writer = RecordWriter(store_id)
    writer.start_file(CONTENT_MAGIC, target_number)
    offset: i64 = FILE_HEADER_BYTES
    for read, size, seed in sources:
        scan = ContentScan(read, size, seed, missing)
        while len(missing) > 0 and scan.advance():
            content_id: int = scan.content_id
            if content_id not in missing:
                # The stretch is no record.
                continue
            missing.discard(content_id)
            length = scan.length
            if writer.size_bytes > 0 and writer.size_bytes + length > CHUNK_BYTES:
                write(writer.take())
            if length > CHUNK_BYTES:
                _copy_large(read, scan.offset, length, crc_seed(store_id, target_number), write)
            else:
                writer.raw_record(CONTENT, b"", scan.body())
            copied.append((scan.content_id, offset, length))
            offset += length
    if writer.size_bytes > 0:
        write(writer.take())
    damaged: list[i64] = []
    for live_id in live_ids:
        if live_id in missing:
            damaged.append(live_id)
    return copied, damaged


def _copy_large(read: Read, offset: i64, length: i64, target_seed: int, write: Write) -> None:
    header = read(offset, RECORD_HEADER_BYTES)
    body_start = offset + RECORD_HEADER_BYTES
    end = offset + length
    header_crc: int = crc32c(header[:8], target_seed)
    body_crc = _crc_of(read, body_start, end - body_start, header_crc)
    write([moved_header(header, header_crc, body_crc)])
    position = body_start
    while position < end:
        chunk = read(position, min(CHUNK_BYTES, end - position))
        if len(chunk) == 0:
            raise EOFError(f"content file ends at {position}, {end} expected")
        write([chunk])
        position += len(chunk)


def _crc_of(read: Read, start: i64, size: i64, seed: int) -> int:
    crc = seed
    end = start + size
    while start < end:
        chunk = read(start, min(CHUNK_BYTES, end - start))
        if len(chunk) == 0:
            break
        crc = crc32c(chunk, crc)
        start += len(chunk)
    return crc
