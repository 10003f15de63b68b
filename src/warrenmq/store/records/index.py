"""The records of an index segment: positions, with their contents or references to them.

A PUBLISH holds one position and its content; a PUBLISH_REF refers to a content store; a PLACES has
several positions whose contents are in one journal file.
"""

from mypy_extensions import i64

from warrenmq.store.model.message import ABSENT, INDEXED, Message, Position, QueueLedger
from warrenmq.store.model.runs import Runs, contains
from warrenmq.store.records import record
from warrenmq.store.records.content import content_bytes_of, decode_publish_ref
from warrenmq.store.records.log_places import PLACES, PlaceEntry, entry_count, place_of
from warrenmq.store.records.publish_body import decode_message


def first_seq(records: bytes) -> i64:
    """Seq id of the first record in `records`, which holds whole records of a segment."""
    if records[2] == record.PUBLISH:
        return record.read_u64(records, record.RECORD_HEADER_BYTES + 8)
    if records[2] == PLACES:
        return record.read_u64(records, record.RECORD_HEADER_BYTES + 12)
    return record.read_u64(
        records, record.RECORD_HEADER_BYTES + i64(record.read_u32(records, 4)) - 17
    )


def end_below(data: bytes, seed: int, seq: i64) -> i64:
    """Offset in the segment `data` behind its last whole record of a seq id below `seq`.

    Records behind the first whole record of a seq id of `seq` or more are not considered.
    """
    at: i64 = record.FILE_HEADER_BYTES
    end: i64 = at
    while at < len(data):
        length = record.record_length(data, at, seed)
        if length < 0 or not record.body_is_valid(data, at, length):
            at = behind_damage(data, at, length, seed, True)
            continue
        if first_seq(data[at : at + length]) >= seq:
            break
        at += length
        end = at
    return end


class IndexScan:
    """Reads positions from successive pieces of one segment.

    The caller feeds the bytes from `offset` on. The scan takes as many whole records as the bounds
    allow and leaves `offset` behind the last one. `wanted_bytes` is set when the next record is
    longer than the piece.
    """

    def __init__(
        self, ledger: QueueLedger, seed: int, offset: i64, from_seq: i64, end_seq: i64
    ) -> None:
        self.ledger: QueueLedger = ledger
        self.seed: int = seed
        self.offset: i64 = offset
        # The scan skips positions below this seq id.
        self.next_seq: i64 = from_seq
        # The scan is over at this seq id.
        self.end_seq: i64 = end_seq
        self.is_over: bool = False
        self.found: list[Position] = []
        self.found_bytes: i64 = 0
        self.wanted_bytes: i64 = 0
        # (offset, bytes) of stretches that are no valid records.
        self.damaged: list[tuple[int, bytes]] = []
        # Offset in the segment of the first byte of the piece that is being read.
        self._base: i64 = 0
        self._max_messages: i64 = 0
        self._max_bytes: i64 = 0
        self._settled: Runs = ledger.index.settled if ledger.index is not None else []
        # Seq ids settled since the last seal; the segment's counts learn of them at the next one.
        self._unsealed: Runs = ledger.indexed.gathered()
        self._settled_transient: Runs = (
            ledger.index.settled_transient if ledger.index is not None else []
        )

    def count_unsealed(self) -> None:
        """Treat positions settled since the last seal as live, as the segment's counts still do."""
        self._unsealed = []

    def feed(
        self, data: bytes, is_last: bool, max_messages: i64, max_bytes: i64, begin: i64 = 0
    ) -> None:
        """Take records from `data` until `max_messages` or `max_bytes` were found in all.

        `data` holds the segment's bytes from `offset` on, at its place `begin`.
        The scan takes at least one live position whatever the bounds: a scan that stopped before it
        would look like the end of the segment. `is_last`: nothing follows `data`, so an unfinished
        record at its end is damage.
        """
        at = begin
        size: i64 = len(data)
        self._base = self.offset - begin
        self.wanted_bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        while at < size and not self.is_over:
            if self._is_full():
                break
            length = record.record_length(data, at, self.seed)
            if length >= 0 and at + length > size and not is_last:
                self.wanted_bytes = length
                break
            if length >= 0 and record.body_is_valid(data, at, length):
                if not self._take(data, at, length):
                    break
                at += length
                continue
            if length < 0 and size - at < record.RECORD_HEADER_BYTES and not is_last:
                self.wanted_bytes = record.RECORD_HEADER_BYTES
                break
            following = behind_damage(data, at, length, self.seed, is_last)
            self._add_damage(at, data[at:following])
            at = following
        self.offset = self._base + at

    def _is_full(self) -> bool:
        return len(self.found) > 0 and (
            len(self.found) >= self._max_messages or self.found_bytes >= self._max_bytes
        )

    def _add_damage(self, at: i64, stretch: bytes) -> None:
        if len(self.damaged) > 0:
            offset, before = self.damaged[-1]
            if offset + len(before) == self._base + at:
                self.damaged[-1] = (offset, before + stretch)
                return
        self.damaged.append((self._base + at, stretch))

    def _take(self, data: bytes, start: i64, length: i64) -> bool:
        """Take one record; False when the scan is over or full before its end."""
        kind: i64 = i64(data[start + 2])
        body = start + record.RECORD_HEADER_BYTES
        end = start + length
        if kind == PLACES:
            return self._take_places(data, start, body, end)
        place: i64 = 0
        size: i64 = end - body
        if (
            kind == record.PUBLISH
            and size >= record.ONE_POSITION_BYTES
            and record.read_u32(data, body) == 1
        ):
            place = body + 4
        elif kind == record.PUBLISH_REF and size >= record.POSITION_BYTES:
            place = end - record.POSITION_BYTES
        else:
            self.damaged.append((self._base + start, data[start:end]))
            return True
        seq = record.read_u64(data, place + 4)
        if seq >= self.end_seq:
            self.is_over = True
            return False
        if seq < self.next_seq or record.read_u32(data, place) != self.ledger.queue_id:
            return True
        flags: i64 = i64(data[place + 20])
        is_transient = (flags & record.FLAG_TRANSIENT) != 0
        if is_transient:
            # Transient positions from before the start are gone.
            is_gone = seq < self.ledger.transient_floor or contains(self._settled_transient, seq)
        else:
            is_gone = self._is_settled(seq)
        if is_gone:
            self.next_seq = seq + 1
            return True
        position = self._position(data, kind, body, end, seq, record.read_u64(data, place + 12))
        if position is None:
            self.damaged.append((self._base + start, data[start:end]))
            return True
        self.next_seq = seq + 1
        position.persistent = not is_transient
        position.redelivered = (flags & record.FLAG_REDELIVERED) != 0
        position.journal_state = INDEXED
        position.place = self._base + start
        self.found.append(position)
        self.found_bytes += position.content_bytes
        return True

    def _take_places(self, data: bytes, start: i64, body: i64, end: i64) -> bool:
        count = entry_count(data, body, end)
        if count < 0:
            self.damaged.append((self._base + start, data[start:end]))
            return True
        if record.read_u32(data, body) != self.ledger.queue_id:
            return True
        number: i64 = 0
        entry = PlaceEntry(0, 0)
        while number < count:
            if self._is_full():
                return False
            entry.read(data, body, number)
            number += 1
            if entry.seq >= self.end_seq:
                self.is_over = True
                return False
            if entry.seq < self.next_seq:
                continue
            self.next_seq = entry.seq + 1
            if not self._is_settled(entry.seq):
                self._add_referred(entry)
        return True

    def _is_settled(self, seq: i64) -> bool:
        return contains(self._settled, seq) or contains(self._unsealed, seq)

    def _add_referred(self, entry: PlaceEntry) -> None:
        position = self.ledger.make_position(ABSENT, entry.seq, entry.expiry_ms)
        position.has_content = False
        position.persistent = True
        position.redelivered = (entry.flags & record.FLAG_REDELIVERED) != 0
        position.body_bytes = entry.body_bytes
        position.content_bytes = entry.content_bytes
        position.journal_state = INDEXED
        position.place = place_of(
            entry.file_number, entry.offset, entry.stored_bytes, entry.content_bytes
        )
        self.found.append(position)
        self.found_bytes += entry.content_bytes

    def _position(
        self, data: bytes, kind: i64, body: i64, end: i64, seq: i64, expiry_ms: i64
    ) -> Position | None:
        if kind == record.PUBLISH:
            message = decode_message(data, body, end)
            if message is None:
                return None
            return self.ledger.make_position(message, seq, expiry_ms)
        ref = decode_publish_ref(data, body, end)
        if ref is None:
            return None
        position = self.ledger.make_position(ABSENT, seq, expiry_ms)
        position.has_content = False
        position.content_ref = ref.content
        position.body_bytes = ref.body_bytes
        position.content_bytes = content_bytes_of(ref.content)
        return position


def find_messages(data: bytes, seed: int, wanted: set[int]) -> dict[int, Message]:
    """Messages of the seq ids `wanted` whose content is in `data`, a whole segment."""
    found: dict[int, Message] = {}
    at: i64 = record.FILE_HEADER_BYTES
    size: i64 = len(data)
    while at < size and len(found) < len(wanted):
        length = record.record_length(data, at, seed)
        if length < 0:
            at = record.next_header(data, at + 1, seed)
            continue
        body = at + record.RECORD_HEADER_BYTES
        end = at + length
        # The record's one position follows the count.
        if i64(data[at + 2]) == record.PUBLISH and body + 4 + record.POSITION_BYTES <= end <= size:
            seq = record.read_u64(data, body + 8)
            if seq in wanted and record.body_is_valid(data, at, length):
                message = decode_message(data, body, end)
                if message is not None:
                    found[seq] = message
        at = end
    return found


def behind_damage(data: bytes, start: i64, length: i64, seed: int, is_last: bool) -> i64:
    """Offset at which to continue behind the invalid record at `start`.

    `length` is the result of `record_length` for this record. The rule is that of recovery: a good
    header leads to the next record; without one, the next good header is searched for.
    """
    size: i64 = len(data)
    following = start + length
    if length >= 0 and following <= size:
        if following == size or record.record_length(data, following, seed) >= 0:
            return following
        if not is_last and size - following < record.RECORD_HEADER_BYTES:
            return following
    following = record.next_header(data, start + 1, seed)
    if following == size and not is_last:
        # A header may lie across the end of the piece.
        following = max(start + 1, size - record.RECORD_HEADER_BYTES + 1)
    return following
