"""Replay: the bytes of the journal files, oldest first, become the live positions of every queue.

A total function (W7): any bytes give a state and a report. A record that fails its checksum costs that record only:
when its header is good and leads to another one it is stepped over, else the next good header is searched for. What
follows the last valid record of a file is a torn tail: it was never confirmed, and is simply not there (G1, T20, T21).
Publishes and acks may repeat, relocation writes a live publish again: the last one wins, an ack of an unknown seq id
is ignored (T27, T28). Running it twice over the same bytes gives the same result (T34).
"""

from mypy_extensions import i64

from warren.store.message import WRITTEN, JournalFile, Message, Position, QueueLog
from warren.store.record import (
    ACK,
    CLEAN_STOP,
    FILE_HEADER_BYTES,
    FLAG_PERSISTENT,
    FLAG_REDELIVERED,
    POSITION_BYTES,
    PUBLISH,
    QUEUE_STATE,
    RECORD_HEADER_BYTES,
    RUN_BYTES,
    body_is_valid,
    crc_seed,
    next_header,
    read_u32,
    read_u64,
    record_length,
)


class Damage:
    """Bytes of a journal file that could not be used."""

    def __init__(self, file_number: i64, start: i64, end: i64, reason: str) -> None:
        self.file_number: i64 = file_number
        self.start: i64 = start
        self.end: i64 = end
        self.reason: str = reason


class RecoveredQueue:
    """What the journal knows of one queue: live positions by seq id, and the numbering."""

    def __init__(self, queue_id: i64) -> None:
        self.log: QueueLog = QueueLog(queue_id)
        self.positions: dict[int, Position] = {}

    def in_order(self) -> list[Position]:
        """Live positions, oldest first."""
        positions = self.positions
        return [positions[seq] for seq in sorted(positions)]


class JournalReplay:
    """Feed it the files in ascending order, then call `finish`."""

    def __init__(self, store_id: bytes) -> None:
        self.store_id: bytes = store_id
        self.queues: dict[int, RecoveredQueue] = {}
        self.files: list[JournalFile] = []
        self.damage: list[Damage] = []
        self.torn: list[Damage] = []
        # Was the last record the mark of an orderly stop?
        self.is_clean: bool = False

    def feed_file(self, number: i64, data: bytes) -> None:
        """Replay one file whose header the caller has checked."""
        seed = crc_seed(self.store_id, number)
        file = JournalFile(number)
        self.files.append(file)
        position: i64 = FILE_HEADER_BYTES
        # Space that was allocated ahead and never written.
        size: i64 = max(len(data.rstrip(b"\x00")), FILE_HEADER_BYTES)
        file.size_bytes = size
        # Where bytes begin that are no valid record; -1: all is well so far.
        bad_from: i64 = -1
        while position < size:
            length = record_length(data, position, seed)
            if length >= 0 and body_is_valid(data, position, length):
                if bad_from >= 0:
                    self.damage.append(Damage(number, bad_from, position, "checksum wrong"))
                    bad_from = -1
                if not self._apply(file, data, position, length):
                    self.damage.append(Damage(number, position, position + length, "malformed record"))
                position += length
                # A body of zeros reaches beyond where the zeros seemed to begin.
                file.size_bytes = max(file.size_bytes, position)
                continue
            if bad_from < 0:
                bad_from = position
            following = position + length
            if (
                length < 0
                or following > size
                or (following < size and record_length(data, following, seed) < 0)
            ):
                following = next_header(data, position + 1, seed)
            position = following
        if bad_from >= 0:
            self.torn.append(Damage(number, bad_from, size, "unfinished write"))

    def finish(self) -> None:
        """Count what each file still holds; afterwards positions and files are ready for the journal."""
        for queue in self.queues.values():
            for position in queue.positions.values():
                message = position.message
                message.journal_refs += 1
                file = message.file
                if message.journal_refs == 1 and file is not None:
                    file.live_bytes += message.stored_bytes

    def _apply(self, file: JournalFile, data: bytes, start: i64, length: i64) -> bool:
        kind: i64 = i64(data[start + 2])
        body = start + RECORD_HEADER_BYTES
        end = start + length
        self.is_clean = kind == CLEAN_STOP
        if kind == PUBLISH:
            return self._apply_publish(file, data, body, end, length)
        if kind == ACK:
            return self._apply_ack(data, body, end)
        if kind == QUEUE_STATE:
            if end - body != 20:
                return False
            log = self._queue(read_u32(data, body)).log
            log.next_seq = max(log.next_seq, read_u64(data, body + 4))
            log.delivered_upto = max(log.delivered_upto, read_u64(data, body + 12))
            return True
        return kind == CLEAN_STOP

    def _apply_publish(self, file: JournalFile, data: bytes, start: i64, end: i64, length: i64) -> bool:
        if end - start < 4:
            return False
        count = read_u32(data, start)
        at = start + 4 + count * POSITION_BYTES
        # Behind the positions: timestamp 8, flags 1, two short strings of at least 1 each.
        if end - at < 11:
            return False
        timestamp_ms = read_u64(data, at)
        persistent = (data[at + 8] & FLAG_PERSISTENT) != 0
        address_start = at + 9
        key_start = address_start + 1 + i64(data[address_start])
        if key_start >= end:
            return False
        properties_start = key_start + 1 + i64(data[key_start])
        if properties_start + 4 > end:
            return False
        body_start = properties_start + 4 + read_u32(data, properties_start)
        if body_start + 4 > end or body_start + 4 + read_u32(data, body_start) != end:
            return False
        message = Message(
            data[address_start:properties_start],
            data[properties_start + 4 : body_start],
            data[body_start + 4 : end],
            persistent,
            timestamp_ms,
        )
        message.file = file
        message.stored_bytes = length
        at = start + 4
        for _ in range(count):
            queue = self._queue(read_u32(data, at))
            seq = read_u64(data, at + 4)
            position = Position(message, queue.log, seq, read_u64(data, at + 12))
            position.redelivered = (data[at + 20] & FLAG_REDELIVERED) != 0
            position.journal_state = WRITTEN
            queue.positions[seq] = position
            queue.log.next_seq = max(queue.log.next_seq, seq + 1)
            at += POSITION_BYTES
        return True

    def _apply_ack(self, data: bytes, start: i64, end: i64) -> bool:
        if end - start < 8:
            return False
        count = read_u32(data, start + 4)
        if end - start != 8 + count * RUN_BYTES:
            return False
        queue = self._queue(read_u32(data, start))
        at = start + 8
        for _ in range(count):
            self._drop_run(queue, read_u64(data, at), read_u64(data, at + 8))
            at += RUN_BYTES
        return True

    def _drop_run(self, queue: RecoveredQueue, first: i64, last: i64) -> None:
        positions = queue.positions
        queue.log.next_seq = max(queue.log.next_seq, last + 1)
        if last - first < len(positions):
            seq = first
            while seq <= last:
                positions.pop(seq, None)
                seq += 1
            return
        # A run longer than the queue: look at what there is instead of counting through it.
        for known in [seq for seq in positions if first <= seq <= last]:
            del positions[known]

    def _queue(self, queue_id: i64) -> RecoveredQueue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = RecoveredQueue(queue_id)
            self.queues[queue_id] = queue
        return queue
