"""Copies a segment for a rewrite: without settled positions, and without the use of some files.

Records keep their bytes, as the file number and so every CRC stays the same. Only a position whose
content is in a journal file that is to be emptied gets a new record, with the content. A stretch
that is no record is copied as it is, since nobody can know what it held.
"""

from mypy_extensions import i64

from warrenmq.store.model.message import Position, QueueLedger
from warrenmq.store.model.runs import Runs, contains, remove_run
from warrenmq.store.records import log_places, record
from warrenmq.store.records.index import behind_damage
from warrenmq.store.records.run_check import RunCheck


def places_in(
    data: bytes, seed: int, settled: Runs, numbers: list[i64]
) -> dict[int, list[tuple[int, int]]]:
    """The places of unsettled entries of segment `data` in each of the journal files `numbers`.

    A place is (offset, size) in bytes; `seed` is that of the segment (`crc_seed`).
    """
    found: dict[int, list[tuple[int, int]]] = {}
    for number in numbers:
        found[number] = []
    entry = log_places.PlaceEntry(0, 0)
    at: i64 = record.FILE_HEADER_BYTES
    size: i64 = len(data)
    while at < size:
        length = record.record_length(data, at, seed)
        if length < 0 or not record.body_is_valid(data, at, length):
            at = behind_damage(data, at, length, seed, True)
            continue
        if i64(data[at + 2]) == log_places.PLACES:
            body = at + record.RECORD_HEADER_BYTES
            for place in range(log_places.entry_count(data, body, at + length)):
                entry.read(data, body, place)
                of_file = found.get(entry.file_number)
                if of_file is not None and not contains(settled, entry.seq):
                    of_file.append((entry.offset, entry.stored_bytes))
        at += length
    return found


class SegmentCopy:
    """The copy of segment `data`, whose header has file number `number`.

    Left out are records of the seq ids in `settled`; of transient positions, those in
    `settled_transient`. `logs` has records of each journal file that is to be emptied: by the
    file's number, then by the record's offset (`places_in`); `wanted`, the seq ids whose contents
    these files may hold.
    """

    def __init__(
        self,
        data: bytes,
        store_id: bytes,
        number: i64,
        settled: Runs,
        settled_transient: Runs,
        logs: dict[int, dict[int, bytes]],
        wanted: Runs,
    ) -> None:
        self.parts: list[bytes] = []
        # Bytes of records in journal files that entries of the copy refer to.
        self.referred_bytes: i64 = 0
        # Seq ids of `wanted` that no whole record has, at the end.
        self.missing: Runs = list(wanted)
        self._data: bytes = data
        self._store_id: bytes = store_id
        self._seed: int = record.crc_seed(store_id, number)
        self._settled: Runs = settled
        self._settled_transient: Runs = settled_transient
        self._logs: dict[int, dict[int, bytes]] = logs
        self._writer: record.RecordWriter = record.RecordWriter(store_id)
        self._writer.continue_file(number)
        self._places: log_places.PlacesWriter = log_places.PlacesWriter()
        self._at: i64 = record.FILE_HEADER_BYTES
        self._kept_from: i64 = 0

    def step(self, records: i64) -> bool:
        """Copy up to `records` more records; False when the end is reached."""
        data = self._data
        at = self._at
        size: i64 = len(data)
        while at < size and records > 0:
            records -= 1
            length = record.record_length(data, at, self._seed)
            if length < 0 or not record.body_is_valid(data, at, length):
                at = behind_damage(data, at, length, self._seed, True)
                continue
            if i64(data[at + 2]) == log_places.PLACES:
                self._copy_places(at, length)
            else:
                seq_at = self._seq_at(at, length)
                self._note(record.read_u64(data, seq_at))
                if self._is_settled(seq_at):
                    self._leave_out(at, at + length)
            at += length
        self._at = at
        if at < size:
            return True
        self._leave_out(size, size)
        return False

    def _leave_out(self, start: i64, end: i64) -> None:
        """Copy what is before `start`, and go on at `end`."""
        if start > self._kept_from:
            self.parts.append(self._data[self._kept_from : start])
        self._kept_from = end

    def _note(self, seq: i64) -> None:
        if len(self.missing) > 0:
            remove_run(self.missing, seq, seq)

    def _seq_at(self, at: i64, length: i64) -> i64:
        """Where the record of one message has its seq id."""
        kind: i64 = i64(self._data[at + 2])
        return (
            at + length - 17 if kind == record.PUBLISH_REF else at + record.RECORD_HEADER_BYTES + 8
        )

    def _is_settled(self, seq_at: i64) -> bool:
        data = self._data
        is_transient = (i64(data[seq_at + 16]) & record.FLAG_TRANSIENT) != 0
        return contains(
            self._settled_transient if is_transient else self._settled,
            record.read_u64(data, seq_at),
        )

    def _copy_places(self, at: i64, length: i64) -> None:
        data = self._data
        body = at + record.RECORD_HEADER_BYTES
        count = log_places.entry_count(data, body, at + length)
        kept: list[log_places.PlaceEntry] = []
        for number in range(count):
            entry = log_places.read_entry(data, body, number)
            self._note(entry.seq)
            if not contains(self._settled, entry.seq):
                kept.append(entry)
        log = self._logs.get(kept[0].file_number) if len(kept) > 0 else None
        if log is None and len(kept) == count:
            for entry in kept:
                self.referred_bytes += entry.stored_bytes
            return
        self._leave_out(at, at + length)
        queue_id = record.read_u32(data, body)
        for entry in kept:
            if log is None or not self._embed(entry, log, queue_id):
                self.referred_bytes += entry.stored_bytes
                self._places.add_found(queue_id, entry, self._writer)
        self._places.flush(queue_id, self._writer)
        self.parts.extend(self._writer.take())

    def _embed(self, entry: log_places.PlaceEntry, log: dict[int, bytes], queue_id: i64) -> bool:
        """Write the record of an entry with its content; False when the content is damaged."""
        seed = record.crc_seed(self._store_id, entry.file_number)
        check = RunCheck(log.get(entry.offset, b""), seed)
        message = log_places.message_at(check, 0, queue_id, entry.seq)
        if message is None:
            return False
        self._places.flush(queue_id, self._writer)
        position = Position(message, QueueLedger(queue_id), entry.seq, entry.expiry_ms)
        position.persistent = True
        position.redelivered = (entry.flags & record.FLAG_REDELIVERED) != 0
        self._writer.add_publish(message, [position], 0, 1)
        return True
