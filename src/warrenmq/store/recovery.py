"""Replay: turns a checkpoint and the journal files after it into the live positions of every queue.

Replay is a total function (W7): any bytes give a state and a report. A record that fails its
checksum costs that record only: replay steps over it when its header is good and leads to another
header, else it searches for the next good header. The bytes after the last valid record of a file
are a torn tail: they were never confirmed, and replay ignores them (G1, T20, T21). Publishes and
acks may repeat: the last one wins, and an ack of an unknown seq id is ignored (T27, T28). A second
replay of the same bytes gives the same result (T34).

The checkpoint names a place in the journal. Replay does not take from the journal what the
checkpoint already counts: positions that were in an index, RELEASE records before that place,
contents below the checkpoint's next content id.

A MOVE record publishes a message that is handed over: a staged message, a dead letter, a delayed
message. `moved` has the originals that must not be handed over again. An original stays alive in
its queue until the broker settles it like any other message, with its reference to a content. When
the content of a MOVE is missing, the batch of both was never finished: the message is then in its
queue and nowhere else (`return_moves`).

A RELEASE that the checkpoint counts may have become unreadable. The checkpoint has its releases,
but the positions that it settled are alive again and will release their references a second time.
So that other messages with the same contents do not pay for this, replay counts the references that
may have been released as not released (`doubtful`). At worst a content is kept that nobody needs.
"""

from collections.abc import Callable

from mypy_extensions import i64

from warrenmq.store.model.content_log import ContentLog
from warrenmq.store.model.epochs import add_epoch
from warrenmq.store.model.message import (
    WRITTEN,
    ContentRef,
    JournalFile,
    Message,
    Position,
    QueueLedger,
)
from warrenmq.store.model.queue_index import QueueIndex
from warrenmq.store.model.runs import Runs, add_run, contains, remove_run
from warrenmq.store.records import record
from warrenmq.store.records.checkpoint import Checkpoint, CheckpointQueue
from warrenmq.store.records.content import content_bytes_of, decode_publish_ref, decode_release
from warrenmq.store.records.publish_body import decode_message


class Damage:
    """A range of bytes in a journal file that replay could not use, and the reason."""

    def __init__(self, file_number: i64, start: i64, end: i64, reason: str) -> None:
        self.file_number: i64 = file_number
        self.start: i64 = start
        self.end: i64 = end
        self.reason: str = reason


class RecoveredQueue:
    """One recovered queue: numbering, index, and the live positions that only the journal has."""

    def __init__(self, queue_id: i64) -> None:
        self.ledger: QueueLedger = QueueLedger(queue_id)
        self.positions: dict[int, Position] = {}
        # Indexed seq ids that the journal settles.
        self.settled: Runs = []
        # The queue was deleted before the checkpoint, but the references in its index are not
        # released yet.
        self.is_deleted: bool = False

    def in_order(self) -> list[Position]:
        """Live positions, oldest first."""
        positions = self.positions
        return [positions[seq] for seq in sorted(positions)]


class JournalReplay:
    """Replays the journal of one vhost: feed the files in ascending order, then call `finish`."""

    def __init__(
        self, store_id: bytes, checkpoint: Checkpoint | None, segment_entries: i64
    ) -> None:
        self.store_id: bytes = store_id
        self.queues: dict[int, RecoveredQueue] = {}
        self.files: list[JournalFile] = []
        # Above every number that a journal file has or had, even a file that is not replayed.
        self.next_file_number: i64 = 1
        self.damage: list[Damage] = []
        # Unfinished writes at the ends of files.
        self.torn: list[Damage] = []
        # Missing files, (number, size in bytes): the next file or the checkpoint names them.
        self.missing: list[tuple[int, int]] = []
        # Whether the last record marks an orderly stop, in a file without damage.
        self.is_clean: bool = False
        self.release_serial: i64 = 0
        # References released since the checkpoint, to contents that the checkpoint knows.
        self.releases: list[ContentRef] = []
        # References of live positions that the checkpoint may count as released.
        self.doubtful: list[ContentRef] = []
        # Contents that the checkpoint does not know, each with its number of live positions (0 or
        # more).
        self.new_contents: list[tuple[ContentRef, int]] = []
        # Messages that were handed over and not settled since: by queue id and seq id of the
        # original, the journal file with the MOVE record.
        self.moved: dict[int, dict[int, JournalFile]] = {}
        # Content id in the last MOVE of a message, by (queue id, seq id) of the original.
        self._moved_contents: dict[tuple[int, int], int] = {}
        # Contents of the journal that the checkpoint does not know, by id.
        self._tail_contents: dict[int, ContentRef] = {}
        # The checkpoint knows the contents below this id.
        self._known_contents: i64 = 0
        # The oldest file that the checkpoint needs; 0 without a checkpoint.
        self.first_file: i64 = 0
        # The checkpoint counts the journal up to `_counted_offset` (bytes) in this file.
        self._counted_file: i64 = 0
        self._counted_offset: i64 = 0
        # Damaged ranges, (file, start, end), that the checkpoint does not count.
        self._known_damage: set[tuple[int, int, int]] = set()
        # Sizes in bytes that files are known to have had, by file number.
        self._known_sizes: dict[int, int] = {}
        # Serials of the applied RELEASE records: a failed batch may have left its records on the
        # disk, and the next batch has them again.
        self._serials: set[int] = set()
        self._segment_entries: i64 = segment_entries
        # Files that hold contents of indexes, by number.
        self.logs: dict[int, ContentLog] = {}
        if checkpoint is not None:
            head = checkpoint.head
            self._known_contents = head.next_content_id
            self.release_serial = head.release_serial
            self.first_file = head.first_journal_file
            self._counted_file = head.journal_file
            self._counted_offset = head.journal_offset
            self._known_damage = set(head.damage)
            if head.journal_offset > 0:
                self._known_sizes[head.journal_file] = head.journal_offset
            for row in checkpoint.queues:
                self._restore(row)

    def feed_file(self, number: i64, data: bytes) -> None:
        """Replay one file whose header the caller has checked."""
        # A mark of an orderly stop counts in the last file only.
        self.is_clean = False
        known_damage = len(self.damage)
        seed = record.crc_seed(self.store_id, number)
        file = JournalFile(number)
        log = self.logs.get(number)
        if log is not None:
            file.log = log
        self.files.append(file)
        position: i64 = record.FILE_HEADER_BYTES
        # Zeros at the end are space that was allocated ahead and never written.
        size: i64 = max(len(data.rstrip(b"\x00")), record.FILE_HEADER_BYTES)
        file.size_bytes = size
        # Start of the bytes that are no valid record; -1: there are none so far.
        bad_from: i64 = -1
        while position < size:
            length = record.record_length(data, position, seed)
            if length >= 0 and record.body_is_valid(data, position, length):
                if bad_from >= 0:
                    self.damage.append(Damage(number, bad_from, position, "checksum wrong"))
                    bad_from = -1
                if not self._apply(file, data, position, length):
                    self.damage.append(
                        Damage(number, position, position + length, "malformed record")
                    )
                position += length
                # A body that ends in zeros reaches beyond `size`.
                file.size_bytes = max(file.size_bytes, position)
                continue
            if bad_from < 0:
                bad_from = position
            following = position + length
            if (
                length < 0
                or following > size
                or (following < size and record.record_length(data, following, seed) < 0)
            ):
                following = record.next_header(data, position + 1, seed)
            position = following
        if bad_from >= 0:
            self.torn.append(Damage(number, bad_from, size, "unfinished write"))
            file.size_bytes = bad_from
        # The last file is synced before any batch.
        file.synced_bytes = file.size_bytes
        if len(self.damage) > known_damage:
            # The power may have failed during the write of the mark: the queue states before it,
            # with `delivered_upto`, may be damaged.
            self.is_clean = False

    def finish(self) -> None:
        """Count the live bytes of each file; makes positions and files ready for the journal."""
        self._find_losses()
        doubtful_file = self._last_doubtful_file()
        live: dict[int, int] = {}
        for queue in self.queues.values():
            index = queue.ledger.index
            if index is not None and len(queue.settled) > 0:
                index.settle(queue.settled, queue.ledger.indexed_upto)
            ends: dict[int, int] = {}
            for seq, position in queue.positions.items():
                message = position.message
                message.journal_refs += 1
                file = message.file
                if file is None:
                    continue
                if message.journal_refs == 1:
                    file.live_bytes += message.stored_bytes
                ends[file.number] = max(ends.get(file.number, 0), seq + 1)
                content = message.content_ref
                if content is not None:
                    live[content.id] = live.get(content.id, 0) + 1
                    if content.id < self._known_contents and file.number <= doubtful_file:
                        self.doubtful.append(content)
            for file in self.files:
                if file.number in ends:
                    file.ledgers.append(queue.ledger)
                    file.ends.append(ends[file.number])
        for content_id, ref in self._tail_contents.items():
            self.new_contents.append((ref, live.get(content_id, 0)))

    def return_moves(self, is_lacking: Callable[[Position], bool]) -> list[Position]:
        """Take back the MOVEs whose content is missing.

        Call it after `finish`. Returns the positions that were removed from the target queues:
        their originals are alive. An original on another node comes again, so nothing may say that
        it is here; whether there is one, this node does not know.
        """
        places: dict[int, tuple[int, int]] = {
            content_id: place
            for place, content_id in self._moved_contents.items()
            if place[1] in self.moved[place[0]]
        }
        returned: list[Position] = []
        if len(places) == 0:
            return returned
        for queue in self.queues.values():
            for seq, position in list(queue.positions.items()):
                content = position.content_ref
                if content is not None and content.id in places and is_lacking(position):
                    origin_id, origin_seq = places[content.id]
                    self.moved[origin_id].pop(origin_seq, None)
                    if self.is_alive(origin_id, origin_seq):
                        del queue.positions[seq]
                        returned.append(position)
        return returned

    def is_alive(self, queue_id: i64, seq: i64) -> bool:
        """Whether a queue, a part of one or a stage still has a message."""
        queue = self.queues.get(queue_id)
        if queue is None:
            return False
        index = queue.ledger.index
        if index is None or seq >= queue.ledger.indexed_upto:
            return seq in queue.positions
        return not contains(index.settled, seq) and not contains(queue.settled, seq)

    def settle_moved(self) -> None:
        """Remove the originals of messages that were handed over; for readers, after `finish`."""
        for queue_id, seqs in self.moved.items():
            queue = self._queue(queue_id)
            index = queue.ledger.index
            for seq in seqs:
                queue.positions.pop(seq, None)
                if index is not None and seq < queue.ledger.indexed_upto:
                    index.settle([(seq, seq)], queue.ledger.indexed_upto)

    def _find_losses(self) -> None:
        """Find missing files, and torn ends that are damage because more bytes are known."""
        sizes: dict[int, int] = {}
        for file in self.files:
            sizes[file.number] = file.size_bytes
        torn_ends: dict[int, int] = {}
        for torn in self.torn:
            torn_ends[torn.file_number] = torn.end
        for number in sorted(self._known_sizes):
            known: i64 = self._known_sizes[number]
            if number not in sizes:
                self.missing.append((number, known))
            elif sizes[number] < known:
                end: i64 = max(known, torn_ends.get(number, 0))
                self.damage.append(
                    Damage(number, sizes[number], end, "damaged or cut off at its end")
                )
                self.torn = [torn for torn in self.torn if torn.file_number != number]

    def losses(self) -> list[tuple[int, int, int]]:
        """Damaged ranges and missing files, as (file number, first lost byte, end of the loss)."""
        lost: list[tuple[int, int, int]] = []
        for damage in self.damage:
            lost.append((damage.file_number, damage.start, damage.end))
        for number, size in self.missing:
            lost.append((number, 0, size))
        return lost

    def _last_doubtful_file(self) -> i64:
        """The last file with a loss that the checkpoint may have counted; -1: there is none."""
        last: i64 = -1
        for loss in self.losses():
            number, start, _end = loss
            if self._is_counted(number, start) and loss not in self._known_damage:
                last = max(last, number)
        return last

    def _restore(self, row: CheckpointQueue) -> None:
        queue = self._queue(row.queue_id)
        queue.is_deleted = row.is_deleted
        ledger = queue.ledger
        ledger.next_seq = row.next_seq
        ledger.delivered_upto = row.delivered_upto
        ledger.delivered.above = row.delivered
        ledger.epochs = row.epochs
        ledger.indexed_upto = row.indexed_upto
        if len(row.segments) > 0 or len(row.settled) > 0:
            index = QueueIndex(row.queue_id, f"queues/{row.queue_id}", self._segment_entries)
            index.settled = row.settled
            index.segments = row.segments
            record_bytes = index.referred_record_bytes()
            for first, last, number in row.stretches:
                log = self.logs.get(number)
                if log is None:
                    log = ContentLog(number)
                    self.logs[number] = log
                index.stretches.restore(log, first, last, row.settled, record_bytes)
            ledger.index = index

    def _apply(self, file: JournalFile, data: bytes, start: i64, length: i64) -> bool:
        kind: i64 = i64(data[start + 2])
        body = start + record.RECORD_HEADER_BYTES
        end = start + length
        self.is_clean = kind == record.CLEAN_STOP
        if kind == record.PUBLISH:
            return self._apply_publish(file, data, body, end, length)
        if kind == record.PUBLISH_REF:
            return self._apply_publish_ref(file, data, body, end, length) is not None
        if kind in (record.MOVE, record.MOVE_REF):
            return self._apply_move(file, data, body, end, length)
        if kind == record.ACK:
            return self._apply_ack(data, body, end, self._is_counted(file.number, start))
        if kind == record.RETRACT:
            return self._apply_retract(data, body, end)
        if kind == record.RELEASE:
            return self._apply_release(data, body, end, self._is_counted(file.number, start))
        if kind == record.PREDECESSOR:
            return self._apply_predecessor(data, body, end)
        if kind == record.QUEUE_STATE:
            return self._apply_queue_state(data, body, end, self._is_counted(file.number, start))
        if kind == record.EPOCH:
            return self._apply_epoch(data, body, end)
        return kind == record.CLEAN_STOP

    def _is_counted(self, file_number: i64, offset: i64) -> bool:
        """Whether the checkpoint counts the journal at `offset` of a file."""
        return file_number < self._counted_file or (
            file_number == self._counted_file and offset < self._counted_offset
        )

    def _apply_publish(
        self, file: JournalFile, data: bytes, start: i64, end: i64, length: i64
    ) -> bool:
        message = decode_message(data, start, end)
        if message is None:
            return False
        message.file = file
        message.offset = end - length
        message.stored_bytes = length
        at = start + 4
        for _ in range(record.read_u32(data, start)):
            self._add_position(message, data, at)
            at += record.POSITION_BYTES
        return True

    def _apply_publish_ref(
        self, file: JournalFile, data: bytes, start: i64, end: i64, length: i64
    ) -> ContentRef | None:
        """Apply a publish with a reference; returns the content, None when malformed."""
        ref = decode_publish_ref(data, start, end)
        if ref is None:
            return None
        message = Message(b"\x00\x00", b"\x00\x00", b"", ref.persistent, ref.timestamp_ms)
        message.file = file
        message.stored_bytes = length
        message.content_ref = ref.content
        if ref.content.id >= self._known_contents:
            self._tail_contents[ref.content.id] = ref.content
        at = ref.positions_start
        for _ in range(ref.position_count):
            position = self._add_position(message, data, at)
            if position is not None:
                position.has_content = False
                position.content_ref = ref.content
                position.body_bytes = ref.body_bytes
                position.content_bytes = content_bytes_of(ref.content)
            at += record.POSITION_BYTES
        return ref.content

    def _apply_move(
        self, file: JournalFile, data: bytes, start: i64, end: i64, length: i64
    ) -> bool:
        publish = start + record.MOVE_HEAD_BYTES
        if publish > end:
            return False
        content: ContentRef | None = None
        if data[start - record.RECORD_HEADER_BYTES + 2] == record.MOVE_REF:
            content = self._apply_publish_ref(file, data, publish, end, length)
            if content is None:
                return False
        elif not self._apply_publish(file, data, publish, end, length):
            return False
        origin_id: int = record.read_u32(data, start)
        origin_seq: int = record.read_u64(data, start + 4)
        self.moved.setdefault(origin_id, {})[origin_seq] = file
        self._moved_contents.pop((origin_id, origin_seq), None)
        if content is not None:
            self._moved_contents[origin_id, origin_seq] = content.id
        return True

    def _add_position(self, message: Message, data: bytes, at: i64) -> Position | None:
        queue = self._queue(record.read_u32(data, at))
        ledger = queue.ledger
        seq = record.read_u64(data, at + 4)
        ledger.next_seq = max(ledger.next_seq, seq + 1)
        if seq < ledger.indexed_upto:
            # The position is in the index, or settled. Older versions wrote an ack to retract a
            # failed batch. This record comes after such an ack, so the ack must not settle it.
            remove_run(queue.settled, seq, seq)
            return None
        position = Position(message, ledger, seq, record.read_u64(data, at + 12))
        position.redelivered = (data[at + 20] & record.FLAG_REDELIVERED) != 0
        position.journal_state = WRITTEN
        queue.positions[seq] = position
        return position

    def _apply_predecessor(self, data: bytes, start: i64, end: i64) -> bool:
        if end - start != 16:
            return False
        number = record.read_u64(data, start)
        # Without a checkpoint, a file before the oldest existing one may have been deleted on
        # purpose.
        if number >= self.first_file and (self.first_file > 0 or len(self.files) > 1):
            known: i64 = self._known_sizes.get(number, 0)
            self._known_sizes[number] = max(known, record.read_u64(data, start + 8))
        return True

    def _apply_queue_state(self, data: bytes, start: i64, end: i64, is_counted: bool) -> bool:
        run_count = record.queue_state_runs(data, start, end)
        if run_count < 0:
            return False
        ledger = self._queue(record.read_u32(data, start)).ledger
        ledger.next_seq = max(ledger.next_seq, record.read_u64(data, start + 4))
        if not is_counted:
            ledger.delivered_upto = record.read_u64(data, start + 12)
            ledger.delivered.above = record.read_runs(
                data, start + record.QUEUE_STATE_BYTES + 4, run_count
            )
        return True

    def _apply_epoch(self, data: bytes, start: i64, end: i64) -> bool:
        if end - start != record.EPOCH_BYTES:
            return False
        ledger = self._queue(record.read_u32(data, start)).ledger
        first_seq = record.read_u64(data, start + 12)
        add_epoch(ledger.epochs, record.read_u64(data, start + 4), first_seq)
        ledger.next_seq = max(ledger.next_seq, first_seq)
        return True

    def _apply_release(self, data: bytes, start: i64, end: i64, is_counted: bool) -> bool:
        release = decode_release(data, start, end)
        if release is None:
            return False
        self._settle(release.queue_id, release.runs, is_counted)
        if not is_counted and release.serial not in self._serials:
            self._serials.add(release.serial)
            for content in release.contents:
                if content.id < self._known_contents:
                    self.releases.append(content)
        self.release_serial = max(self.release_serial, release.serial)
        return True

    def _apply_ack(self, data: bytes, start: i64, end: i64, is_counted: bool) -> bool:
        runs = _runs_in(data, start, end)
        if runs is None:
            return False
        self._settle(record.read_u32(data, start), runs, is_counted)
        return True

    def _apply_retract(self, data: bytes, start: i64, end: i64) -> bool:
        runs = _runs_in(data, start, end)
        if runs is None:
            return False
        queue = self._queue(record.read_u32(data, start))
        for first, last in runs:
            self._drop_run(queue, first, last)
        return True

    def _settle(self, queue_id: i64, runs: Runs, is_counted: bool) -> None:
        queue = self._queue(queue_id)
        ledger = queue.ledger
        index = ledger.index
        for first, last in runs:
            # The checkpoint knows which positions of its index are settled. Older versions also
            # wrote acks to retract a failed batch, whose messages may be in the index since then.
            if not is_counted and index is not None and first < ledger.indexed_upto:
                add_run(queue.settled, first, min(last, ledger.indexed_upto - 1))
            self._drop_run(queue, first, last)
        moved = self.moved.get(queue_id)
        if moved is not None:
            for first, last in runs:
                for known in [seq for seq in moved if first <= seq <= last]:
                    del moved[known]

    def _drop_run(self, queue: RecoveredQueue, first: i64, last: i64) -> None:
        positions = queue.positions
        queue.ledger.next_seq = max(queue.ledger.next_seq, last + 1)
        if last - first < len(positions):
            seq = first
            while seq <= last:
                positions.pop(seq, None)
                seq += 1
            return
        # The run is longer than the queue: walk the known positions instead of the run.
        for known in [seq for seq in positions if first <= seq <= last]:
            del positions[known]

    def _queue(self, queue_id: i64) -> RecoveredQueue:
        queue = self.queues.get(queue_id)
        if queue is None:
            queue = RecoveredQueue(queue_id)
            self.queues[queue_id] = queue
        return queue


def _runs_in(data: bytes, start: i64, end: i64) -> Runs | None:
    """The runs in the body of an ACK or RETRACT; None when it is malformed."""
    if end - start < 8:
        return None
    count = record.read_u32(data, start + 4)
    if end - start != 8 + count * record.RUN_BYTES or not record.are_runs(data, start + 8, end):
        return None
    return record.read_runs(data, start + 8, count)
