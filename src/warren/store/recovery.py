"""Replay: the bytes of the journal files, oldest first, become the live positions of every queue.

A total function (W7): any bytes give a state and a report. A record that fails its checksum costs that record only:
when its length still leads to a valid record it is stepped over, else the next valid record is searched for. What
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
    crc_seed,
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
        self.queues: dict[int, RecoveredQueue] = {}
        self.files: list[JournalFile] = []
        self.damage: list[Damage] = []
        self.torn_bytes: i64 = 0
        self.record_count: i64 = 0
        # Was the last record the mark of an orderly stop?
        self.is_clean: bool = False
        self._seed: int = crc_seed(store_id)

    def feed_file(self, number: i64, data: bytes) -> None:
        """Replay one file whose header the caller has checked."""
        file = JournalFile(number)
        self.files.append(file)
        position: i64 = FILE_HEADER_BYTES
        # Space that was allocated ahead and never written.
        size: i64 = max(len(data.rstrip(b"\x00")), FILE_HEADER_BYTES)
        file.size_bytes = size
        while position < size:
            length = record_length(data, position, self._seed)
            if length >= 0:
                if not self._apply(file, data, position, length):
                    self.damage.append(Damage(number, position, position + length, "malformed record"))
                position += length
                # A body of zeros reaches beyond where the zeros seemed to begin.
                file.size_bytes = max(file.size_bytes, position)
                continue
            following = self._next_valid(data, position)
            if following < 0:
                self.torn_bytes += size - position
                return
            self.damage.append(Damage(number, position, following, "checksum or length wrong"))
            position = following

    def finish(self) -> None:
        """Count what each file still holds; afterwards positions and files are ready for the journal."""
        for queue in self.queues.values():
            for position in queue.positions.values():
                message = position.message
                message.journal_refs += 1
                file = message.file
                if message.journal_refs == 1 and file is not None:
                    file.live_bytes += message.stored_bytes

    def _next_valid(self, data: bytes, start: i64) -> i64:
        size: i64 = len(data)
        if size - start >= RECORD_HEADER_BYTES:
            # Trust the length of a damaged record only if a valid record follows it.
            stepped = start + RECORD_HEADER_BYTES + read_u32(data, start + 4)
            if stepped < size and record_length(data, stepped, self._seed) >= 0:
                return stepped
        position: i64 = data.find(b"\x57\x52", start + 1)
        while position >= 0:
            if record_length(data, position, self._seed) >= 0:
                return position
            position = data.find(b"\x57\x52", position + 1)
        return -1

    def _apply(self, file: JournalFile, data: bytes, start: i64, length: i64) -> bool:
        kind: i64 = i64(data[start + 2])
        body = start + RECORD_HEADER_BYTES
        end = start + length
        self.record_count += 1
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
        if end - start < 2:
            return False
        count: i64 = (i64(data[start]) << 8) | i64(data[start + 1])
        at = start + 2 + count * POSITION_BYTES
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
        at = start + 2
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
