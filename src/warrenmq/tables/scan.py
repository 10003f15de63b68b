"""Turns the records of one file into rows of numbers, without a Python object for each record.

Each record becomes a row of RECORD_FIELDS, and each position in it a row of POSITION_FIELDS. All
fields are little-endian 64-bit integers, so that numpy can use the bytes as they are. The decoders
of the store decode the records. Damage is skipped as a load of an index skips it, and noted.
"""

from typing import Final

from crc32c import crc32c
from librt.strings import BytesWriter, read_i64_le, write_i64_le
from mypy_extensions import i64

from warrenmq.store.records import log_places, record
from warrenmq.store.records.content import (
    CONTENT_HEAD_BYTES,
    content_id_of,
    decode_publish_ref,
    decode_release,
    references_of,
)
from warrenmq.store.records.index import behind_damage
from warrenmq.store.records.publish_body import message_bounds

# Fields of a record:
# - `offset`: offset in the file; `length`: bytes of the record with its header.
# - `ok`: 0 when the checksum of the body is wrong; all fields after it are 0 then.
# - `positions`: number of rows of positions; for ACK, RETRACT, RELEASE, QUEUE_STATE and EPOCH the
#   number of seq ids that the record says are settled or retracted.
# - `first`, `last`: the seq ids that the record names; for a publish the one of its first position.
# - `exchange`, `routing_key`, `properties`, `body`: where the part begins in the bytes that were
#   given; a part ends where the length of the next one begins.
# - `content_file`, `content_offset`, `content_bytes`: where the content is, if it is elsewhere.
# Each entry of a PLACES record has a row, as if it were a record: its `content_file` is a log, the
# first one has the record's head too, and its timestamp is 0 because only the log says it.
RECORD_FIELDS: Final = (
    "offset",
    "length",
    "kind",
    "ok",
    "positions",
    "queue_id",
    "first",
    "last",
    "timestamp",
    "persistent",
    "exchange",
    "routing_key",
    "properties",
    "body",
    "body_bytes",
    "content_id",
    "content_file",
    "content_offset",
    "content_bytes",
    "references",
    "in_transient_store",
)
# Fields of a position; `record` is the row of the record that has the position.
POSITION_FIELDS: Final = ("record", "queue_id", "seq", "expiry", "flags")

CHECKSUM_WRONG: Final = "checksum wrong"
MALFORMED: Final = "malformed record"


class RecordScan:
    """Reads records from successive pieces of one file, whose `crc_seed` is `seed`.

    With `verify` the checksum of each body is compared. The checksums of headers are always
    compared, because a header says where the next record begins.
    """

    def __init__(self, seed: int, verify: bool) -> None:
        self.seed: int = seed
        self.verify: bool = verify
        # Bytes of the next record when it is longer than the bytes that were given, else 0.
        self.wanted_bytes: i64 = 0
        # (offset, end, reason) of each stretch of the file that has no valid record.
        self.damage: list[tuple[int, int, str]] = []
        self._records: BytesWriter = BytesWriter()
        self._positions: BytesWriter = BytesWriter()
        self._count: i64 = 0

    def take(self) -> tuple[bytes, bytes]:
        """The rows of records and of positions since the last call."""
        records = self._records.getvalue()
        positions = self._positions.getvalue()
        self._records.truncate(0)
        self._positions.truncate(0)
        self._count = 0
        return records, positions

    def feed(self, data: bytes, base: i64, is_last: bool) -> i64:
        """Read the whole records in `data`, return their length; `base` is its offset in the file.

        With `is_last` no bytes follow `data`, so an unfinished record at its end is damage.
        """
        at: i64 = 0
        size: i64 = len(data)
        self.wanted_bytes = 0
        while at < size:
            length = record.record_length(data, at, self.seed)
            if length >= 0 and at + length > size and not is_last:
                self.wanted_bytes = length
                break
            if length >= 0 and at + length <= size:
                if not self.verify or record.body_is_valid(data, at, length):
                    if not self._add(data, base, at, length):
                        self.damage.append((base + at, base + at + length, MALFORMED))
                    at += length
                    continue
                self._add_row(base + at, length, i64(data[at + 2]), 0)
                self._fill(17)
            elif length < 0 and size - at < record.RECORD_HEADER_BYTES and not is_last:
                self.wanted_bytes = record.RECORD_HEADER_BYTES
                break
            following = behind_damage(data, at, length, self.seed, is_last)
            self._add_damage(base + at, base + following)
            at = following
        return at

    def check_contents(self, data: bytes, places: bytes, base: i64) -> bytes:
        """Read the CONTENT records at `places` in `data`; one byte for each: 1 for a valid record.

        `places` has rows of (offset in `data`, size, content id), 8 bytes each. A valid record
        becomes the next row of records. `base` is added to the offsets of its parts, for a caller
        that joins several `data`.
        """
        found = BytesWriter()
        at: i64 = 0
        while at < len(places):
            start = read_i64_le(places, at)
            length = read_i64_le(places, at + 8)
            content_id = read_i64_le(places, at + 16)
            at += 24
            is_there = (
                start >= 0
                and start + length <= len(data)
                and record.record_length(data, start, self.seed) == length
                and i64(data[start + 2]) == record.CONTENT
                and content_id_of(data, start + record.RECORD_HEADER_BYTES, start + length)
                == content_id
                and (not self.verify or record.body_is_valid(data, start, length))
                and self._add_content(data, start, length, start, base)
            )
            found.append(1 if is_there else 0)
        return found.getvalue()

    def check_log(self, data: bytes, places: bytes) -> bytes:
        """Read the publishes at `places` in `data`, of a log; one byte for each: 1 for a valid one.

        `places` has rows of (offset in `data`, size, queue id, seq), 8 bytes each. A valid publish
        of that position becomes the next row of records.
        """
        found = BytesWriter()
        at: i64 = 0
        while at < len(places):
            start = read_i64_le(places, at)
            length = read_i64_le(places, at + 8)
            queue_id = read_i64_le(places, at + 16)
            seq = read_i64_le(places, at + 24)
            at += 32
            is_there = (
                start >= 0
                and start + length <= len(data)
                and record.record_length(data, start, self.seed) == length
                and (not self.verify or record.body_is_valid(data, start, length))
                and self._add_referred(data, start, length, queue_id, seq)
            )
            found.append(1 if is_there else 0)
        return found.getvalue()

    def _add_referred(self, data: bytes, start: i64, length: i64, queue_id: i64, seq: i64) -> bool:
        kind: i64 = i64(data[start + 2])
        body = start + record.RECORD_HEADER_BYTES
        end = start + length
        if kind == record.MOVE:
            body += record.MOVE_HEAD_BYTES
        elif kind != record.PUBLISH:
            return False
        return log_places.has_position(data, body, end, queue_id, seq) and self._add_publish(
            data, start, length, record.PUBLISH, body, end
        )

    def _add_damage(self, start: i64, end: i64) -> None:
        if len(self.damage) > 0:
            first, before, reason = self.damage[-1]
            if before == start and reason == CHECKSUM_WRONG:
                self.damage[-1] = (first, end, reason)
                return
        self.damage.append((start, end, CHECKSUM_WRONG))

    def _add(self, data: bytes, base: i64, at: i64, length: i64) -> bool:
        """Add the rows of a record whose checksums are right; False when its body is malformed."""
        kind: i64 = i64(data[at + 2])
        body = at + record.RECORD_HEADER_BYTES
        end = at + length
        if kind in (record.MOVE, record.MOVE_REF):
            # The publish of a staged message: only a start needs to know from which stage it came.
            body += record.MOVE_HEAD_BYTES
            kind = record.PUBLISH if kind == record.MOVE else record.PUBLISH_REF
            if body > end:
                return False
        if kind == record.PUBLISH:
            return self._add_publish(data, base + at, length, record.PUBLISH, body, end)
        if kind == record.PUBLISH_HEAD:
            return self._add_publish(data, base + at, length, record.PUBLISH_HEAD, body, end)
        if kind == record.CONTENT:
            return self._add_content(data, at, length, base + at, 0)
        if kind == record.PUBLISH_REF:
            return self._add_reference(data, base + at, length, body, end)
        if kind == log_places.PLACES:
            return self._add_places(data, base + at, body, end)
        if kind in (record.ACK, record.RETRACT):
            return self._add_runs(data, base + at, length, kind, body, end)
        if kind == record.RELEASE:
            release = decode_release(data, body, end)
            if release is None:
                return False
            count = record.count_runs(data, end - len(release.runs) * record.RUN_BYTES, end)
            if count < 0:
                return False
            self._add_row(base + at, length, kind, 1)
            self._add_settled(count, release.queue_id, release.runs[0][0] if release.runs else 0)
            self._end_settled(release.runs[-1][1] if release.runs else 0)
            return True
        if kind == record.QUEUE_STATE:
            if record.queue_state_runs(data, body, end) < 0:
                return False
            self._add_row(base + at, length, kind, 1)
            self._add_settled(0, record.read_u32(data, body), record.read_u64(data, body + 4))
            self._end_settled(record.read_u64(data, body + 12))
            return True
        if kind == record.EPOCH:
            if end - body != record.EPOCH_BYTES:
                return False
            self._add_row(base + at, length, kind, 1)
            self._add_settled(0, record.read_u32(data, body), record.read_u64(data, body + 12))
            self._end_settled(record.read_u64(data, body + 12))
            return True
        if kind != record.CLEAN_STOP and (kind != record.PREDECESSOR or end - body != 16):
            return False
        self._add_row(base + at, length, kind, 1)
        self._fill(17)
        return True

    def _add_runs(
        self, data: bytes, offset: i64, length: i64, kind: i64, body: i64, end: i64
    ) -> bool:
        if end - body < 8 or end - body != 8 + record.read_u32(data, body + 4) * record.RUN_BYTES:
            return False
        count = record.count_runs(data, body + 8, end)
        if count < 0:
            return False
        has_runs = end - body > 8
        self._add_row(offset, length, kind, 1)
        self._add_settled(
            count, record.read_u32(data, body), record.read_u64(data, body + 8) if has_runs else 0
        )
        self._end_settled(record.read_u64(data, end - 8) if has_runs else 0)
        return True

    def _add_publish(
        self, data: bytes, offset: i64, length: i64, kind: i64, body: i64, end: i64
    ) -> bool:
        at, address, properties, message_body = message_bounds(
            data, body, end, kind == record.PUBLISH
        )
        if at < 0:
            return False
        self._add_positions(data, body + 4, record.read_u32(data, body))
        out = self._add_message(data, offset, length, kind, body + 4, record.read_u32(data, body))
        write_i64_le(out, record.read_u64(data, at))
        write_i64_le(out, i64(data[at + 8]) & record.FLAG_PERSISTENT)
        write_i64_le(out, address + 1)
        write_i64_le(out, address + 2 + i64(data[address]))
        write_i64_le(out, properties)
        write_i64_le(out, message_body)
        write_i64_le(out, record.read_u32(data, message_body - 4))
        self._fill(6)
        return True

    def _add_content(self, data: bytes, start: i64, length: i64, offset: i64, base: i64) -> bool:
        body = start + record.RECORD_HEADER_BYTES
        end = start + length
        content_id = content_id_of(data, body, end)
        if content_id < 0:
            return False
        publish = body + CONTENT_HEAD_BYTES
        at, address, properties, message_body = message_bounds(data, publish, end)
        references = references_of(data, body)
        if at < 0 or references == 0 or record.read_u32(data, publish) != references:
            return False
        self._add_positions(data, publish + 4, references)
        out = self._add_message(data, offset, length, record.CONTENT, publish + 4, references)
        write_i64_le(out, record.read_u64(data, at))
        write_i64_le(out, i64(data[at + 8]) & record.FLAG_PERSISTENT)
        write_i64_le(out, base + address + 1)
        write_i64_le(out, base + address + 2 + i64(data[address]))
        write_i64_le(out, base + properties)
        write_i64_le(out, base + message_body)
        write_i64_le(out, end - message_body)
        write_i64_le(out, content_id)
        write_i64_le(out, 0)
        write_i64_le(out, 0)
        write_i64_le(out, length)
        write_i64_le(out, references)
        write_i64_le(out, 0)
        return True

    def _add_reference(self, data: bytes, offset: i64, length: i64, body: i64, end: i64) -> bool:
        ref = decode_publish_ref(data, body, end)
        if ref is None:
            return False
        self._add_positions(data, ref.positions_start, ref.position_count)
        out = self._add_message(
            data, offset, length, record.PUBLISH_REF, ref.positions_start, ref.position_count
        )
        write_i64_le(out, ref.timestamp_ms)
        write_i64_le(out, record.FLAG_PERSISTENT if ref.persistent else 0)
        self._fill(4)
        write_i64_le(out, ref.body_bytes)
        content = ref.content
        write_i64_le(out, content.id)
        write_i64_le(out, content.file)
        write_i64_le(out, content.offset)
        write_i64_le(out, content.stored_bytes)
        write_i64_le(out, content.references)
        write_i64_le(out, 1 if content.transient else 0)
        return True

    def _add_places(self, data: bytes, offset: i64, body: i64, end: i64) -> bool:
        count = log_places.entry_count(data, body, end)
        queue_id = record.read_u32(data, body) if count > 0 else 0
        number: i64 = 0
        length = record.RECORD_HEADER_BYTES + log_places.PLACES_HEAD_BYTES + log_places.ENTRY_BYTES
        while number < count:
            entry = log_places.read_entry(data, body, number)
            positions = self._positions
            write_i64_le(positions, self._count)
            write_i64_le(positions, queue_id)
            write_i64_le(positions, entry.seq)
            write_i64_le(positions, entry.expiry_ms)
            write_i64_le(positions, entry.flags)
            self._add_row(offset, length, log_places.PLACES, 1)
            out = self._records
            write_i64_le(out, 1)
            write_i64_le(out, queue_id)
            write_i64_le(out, entry.seq)
            write_i64_le(out, entry.seq)
            write_i64_le(out, 0)
            write_i64_le(out, record.FLAG_PERSISTENT)
            self._fill(4)
            write_i64_le(out, entry.body_bytes)
            write_i64_le(out, 0)
            write_i64_le(out, entry.file_number)
            write_i64_le(out, entry.offset)
            write_i64_le(out, entry.stored_bytes)
            self._fill(2)
            offset += length
            length = log_places.ENTRY_BYTES
            number += 1
        return count > 0

    def _add_positions(self, data: bytes, start: i64, count: i64) -> None:
        out = self._positions
        at = start
        end = start + count * record.POSITION_BYTES
        while at < end:
            write_i64_le(out, self._count)
            write_i64_le(out, record.read_u32(data, at))
            write_i64_le(out, record.read_u64(data, at + 4))
            write_i64_le(out, record.read_u64(data, at + 12))
            write_i64_le(out, i64(data[at + 20]))
            at += record.POSITION_BYTES

    def _add_message(
        self, data: bytes, offset: i64, length: i64, kind: i64, positions: i64, count: i64
    ) -> BytesWriter:
        """Write the first fields of a message's row; the caller writes all from `timestamp` on."""
        self._add_row(offset, length, kind, 1)
        out = self._records
        write_i64_le(out, count)
        write_i64_le(out, record.read_u32(data, positions) if count > 0 else 0)
        seq = record.read_u64(data, positions + 4) if count > 0 else 0
        write_i64_le(out, seq)
        write_i64_le(out, seq)
        return out

    def _add_row(self, offset: i64, length: i64, kind: i64, ok: i64) -> None:
        out = self._records
        self._count += 1
        write_i64_le(out, offset)
        write_i64_le(out, length)
        write_i64_le(out, kind)
        write_i64_le(out, ok)

    def _add_settled(self, count: i64, queue_id: i64, first: i64) -> None:
        out = self._records
        write_i64_le(out, count)
        write_i64_le(out, queue_id)
        write_i64_le(out, first)

    def _end_settled(self, last: i64) -> None:
        write_i64_le(self._records, last)
        self._fill(13)

    def _fill(self, count: i64) -> None:
        while count > 0:
            write_i64_le(self._records, 0)
            count -= 1


def checksums(data: bytes, bounds: bytes) -> bytes:
    """The CRC-32C of each slice of `data`, 8 bytes each; `bounds` has starts and ends likewise."""
    found = BytesWriter()
    at: i64 = 0
    while at < len(bounds):
        start = read_i64_le(bounds, at)
        end = read_i64_le(bounds, at + 8)
        write_i64_le(found, crc32c(data[start:end]))
        at += 16
    return found.getvalue()
