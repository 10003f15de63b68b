"""Rebuilds the queues' indexes from their segments, for a start that finds no usable checkpoint.

A segment says which messages were moved to it, but not which of them were settled since. Messages
whose ack only the lost checkpoint knew are therefore delivered again. The journal is replayed after
this as after any checkpoint and settles the rest.

The index is cut at the first seq id of a live message in the journal that the index should have and
does not have: a power failure took appends that no checkpoint had synced. Every message that the
queue got from there on is in the journal as well, since a journal file outlives the checkpoint that
it made necessary. The index is also cut where it has another message under that seq id, or one that
does not outlive a restart. Such bytes are older than a start that had cut them off or removed them;
their seq ids were given out again, and the power failure took the records that were written in
their place.

Entries of a segment that refer to journal files say which of these files are needed. Where a
segment is damaged, its entries are searched for in the files that have left the journal: a PLACES
record has many, and each has a record there.

Only a scan of all content files says where contents are. A compacted copy and the files that it was
made from may both exist. The file with the higher number was made later, and the contents that it
left out were garbage by then; so in the range of ids of a file, no file with a lower number counts.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from warrenmq.store.contents.scan import scan_contents
from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    is_directory,
    journal_numbers,
    journal_path,
    keep_damage,
    put_whole,
    quarantine,
    read_whole,
    remove_if_there,
)
from warrenmq.store.disk.log_reader import LogReader
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.entry_search import SegmentRepair
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.model.queue_index import Segment
from warrenmq.store.model.runs import add_run, contains
from warrenmq.store.records import record
from warrenmq.store.records.checkpoint import Checkpoint, CheckpointHead, CheckpointQueue
from warrenmq.store.records.index import IndexScan, behind_damage, first_seq
from warrenmq.store.records.log_places import (
    PLACES,
    PlacesWriter,
    entry_count,
    file_of,
    offset_of,
    read_bytes_of,
    read_entry,
)
from warrenmq.store.recovery import JournalReplay

SEGMENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.idx")
QUEUE_NAME: Final = re.compile(r"[1-9][0-9]{0,9}")
CONTENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.rdq")
# Bytes of a segment that are in memory at a time, unless a record is larger.
PIECE_BYTES: Final = 4194304
_NO_LIMIT: Final = 1 << 62
_U32_END: Final = 1 << 32


class RebuiltIndex:
    """The result of a rebuild: a checkpoint that was never taken, and the rebuild's findings."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        # Stretches of segments that are no records; copies are in lost+found.
        self.damaged_count = 0
        # Files moved to lost+found, as `name -> name in lost+found`.
        self.quarantined: list[str] = []
        # Large messages in the index: (queue, seq id, content).
        self.references: list[tuple[CheckpointQueue, int, ContentRef]] = []
        # Places of the contents, (file, offset, size of the record), by content id.
        self.places: dict[int, tuple[int, int, int]] = {}

    def with_references_of(
        self, contents: list[tuple[ContentRef, int]]
    ) -> list[tuple[ContentRef, int]]:
        """The contents that live positions need, as found, each with the number of positions.

        `contents` are the ones that the journal needs. The journal was replayed before, so
        positions that it settles do not count. A content that was not found has file -1. The
        content with the highest id of all files is in the result in any case.
        """
        wanted: dict[int, tuple[ContentRef, int]] = {}
        for row, seq, content in self.references:
            if not contains(row.settled, seq):
                known = wanted.get(content.id)
                wanted[content.id] = (content, 1 if known is None else known[1] + 1)
        for content, live in contents:
            known = wanted.get(content.id)
            wanted[content.id] = (content, live if known is None else known[1] + live)
        highest = max(self.places, default=0)
        found: list[tuple[ContentRef, int]] = []
        if highest > 0 and highest not in wanted:
            file, offset, size = self.places[highest]
            found.append((ContentRef(highest, file, offset, size, 1, False), 0))
        for content_id in sorted(wanted):
            content, live = wanted[content_id]
            file, offset, size = self.places.get(content_id, (-1, 0, 0))
            if size != content.stored_bytes:
                file = -1
            found.append(
                (
                    ContentRef(
                        content_id, file, offset, content.stored_bytes, content.references, False
                    ),
                    live,
                )
            )
        return found


class _Journaled(NamedTuple):
    """A live message in the journal."""

    seq: int
    # Journal file and offset of its record.
    place: tuple[int, int]
    # See `_identity`.
    identity: tuple[int, ...]


def rebuild_index(files: FileSystem, store_id: bytes, segment_entries: int) -> RebuiltIndex:
    """Read all segments and content files of the store; returns the rebuilt checkpoint."""
    rebuilt = RebuiltIndex(Checkpoint(CheckpointHead(0, 0, 0, 0, 0, 0, 0)))
    journaled = _journaled(files, store_id, segment_entries)
    for name in files.list_names(QUEUES_NAME):
        path = f"{QUEUES_NAME}/{name}"
        if not QUEUE_NAME.fullmatch(name) or int(name) >= _U32_END or not is_directory(files, path):
            rebuilt.quarantined.append(quarantine(files, path))
            continue
        row = _QueueRebuild(files, store_id, segment_entries, int(name), rebuilt).run(
            journaled.get(int(name), [])
        )
        rebuilt.checkpoint.queues.append(row)
    rebuilt.places = find_places(files, store_id)
    return rebuilt


def scan_segment(files: FileSystem, path: str, size: int, scan: IndexScan) -> Iterator[None]:
    """Scan a segment in pieces; after each the caller takes `scan.found` and `scan.damaged`."""
    while scan.offset < size and not scan.is_over:
        wanted = min(max(PIECE_BYTES, scan.wanted_bytes), size - scan.offset)
        data = files.read(path, scan.offset, wanted)
        is_last = len(data) < wanted or scan.offset + len(data) >= size
        scan.feed(data, is_last, _NO_LIMIT, _NO_LIMIT)
        yield
        if is_last:
            return


def find_places(files: FileSystem, store_id: bytes) -> dict[int, tuple[int, int, int]]:
    """The latest place of each content in all files, (file, offset, size of the record), by id."""
    numbers = [
        int(match.group(1))
        for match in map(CONTENT_NAME.fullmatch, files.list_names(PERSISTENT_NAME))
        if match and files.is_file(f"{PERSISTENT_NAME}/{match.group()}")
    ]
    places: dict[int, tuple[int, int, int]] = {}
    # Ranges of ids, (first, last), that files with a higher number cover.
    covered: list[tuple[int, int]] = []
    for number in sorted(numbers, reverse=True):
        path = f"{PERSISTENT_NAME}/{number}.rdq"
        contents = scan_contents(
            partial(files.read, path), files.size(path), record.crc_seed(store_id, number)
        )
        ids = []
        for content_id, offset, size, is_valid in contents:
            if not is_valid or contains(covered, content_id):
                continue
            ids.append(content_id)
            places.setdefault(content_id, (number, offset, size))
        if ids:
            add_run(covered, min(ids), max(ids))
    return places


def _journaled(
    files: FileSystem, store_id: bytes, segment_entries: int
) -> dict[int, list[_Journaled]]:
    """The journal's live messages by queue id, in order."""
    replay = JournalReplay(store_id, None, segment_entries)
    if files.exists(JOURNAL_DIRECTORY):
        for number in journal_numbers(files)[0]:
            data = read_whole(files, journal_path(number))
            if (
                record.file_header_is_valid(data, record.FILE_MAGIC, store_id)
                and record.file_header_number(data) != number
            ):
                continue
            # In a file of another store no record is valid, whatever its header says.
            replay.feed_file(number, data)
    return {
        queue_id: [
            _Journaled(position.seq, _place_of(position), _identity(position))
            for position in queue.in_order()
        ]
        for queue_id, queue in replay.queues.items()
    }


def _place_of(position: Position) -> tuple[int, int]:
    message = position.message
    number = int(message.file.number) if message.file is not None else -1
    return number, int(message.offset)


def _identity(position: Position) -> tuple[int, ...]:
    """Values that tell a message from another one with the same seq id."""
    content = position.content_ref
    if content is not None:
        return content.id, content.transient
    return _message_identity(position.message)


def _message_identity(message: Message) -> tuple[int, ...]:
    return message.timestamp_ms, hash((message.address, message.properties, message.body))


class _QueueRebuild:
    """Rebuilds the index of one queue from its segments, in order."""

    def __init__(
        self,
        files: FileSystem,
        store_id: bytes,
        segment_entries: int,
        queue_id: int,
        rebuilt: RebuiltIndex,
    ) -> None:
        self._files = files
        self._store_id = store_id
        self._segment_entries = segment_entries
        self._path = f"{QUEUES_NAME}/{queue_id}"
        self._rebuilt = rebuilt
        self._row = CheckpointQueue(queue_id, 1, 0, 1, False)
        self._logs = LogReader(files, store_id)
        # The last stretch of the row may grow.
        self._is_stretch_open = False
        # Live messages in the journal that the scan has not met yet; the next one is last.
        self._journaled: list[_Journaled] = []
        # The seq id behind the last record.
        self._next_seq = 0
        # The seq id at which the index is cut before the end of its segments; -1: it is not cut.
        self._cut_seq = -1

    def run(self, journaled: list[_Journaled]) -> CheckpointQueue:
        """The queue as a checkpoint has it; `journaled` are its live messages in the journal."""
        row = self._row
        self._journaled = journaled[::-1]
        for number in self._segment_numbers():
            if self._cut_seq < 0:
                self._read(number)
            else:
                path = f"{self._path}/{number}.idx"
                self._rebuilt.quarantined.append(quarantine(self._files, path))
        if row.segments:
            row.indexed_upto = row.next_seq = (
                self._cut_seq if self._cut_seq >= 0 else max(self._next_seq, 1)
            )
            self._settle_before(row.indexed_upto)
        return row

    def _segment_numbers(self) -> list[int]:
        files = self._files
        numbers: list[int] = []
        names = files.list_names(self._path)
        for name in names:
            match = SEGMENT_NAME.fullmatch(name)
            path = f"{self._path}/{name}"
            if match and int(match.group(1)) < _U32_END and files.is_file(path):
                numbers.append(int(match.group(1)))
            elif name.endswith(".new") and name.removesuffix(".new") in names:
                # A rewritten copy that was never put in place.
                remove_if_there(files, path)
            else:
                self._rebuilt.quarantined.append(quarantine(files, path))
        return sorted(numbers)

    def _read(self, number: int) -> None:
        files = self._files
        path = f"{self._path}/{number}.idx"
        file_number = self._row.queue_id << 32 | number
        first = number * self._segment_entries
        self._mend(path, number)
        size = files.size(path)
        # A ledger without an index: no position counts as settled.
        scan = IndexScan(
            QueueLedger(self._row.queue_id),
            record.crc_seed(self._store_id, file_number),
            record.FILE_HEADER_BYTES,
            first,
            first + self._segment_entries,
        )
        segment = Segment(number)
        damaged: list[tuple[int, bytes]] = []
        for _ in scan_segment(files, path, size, scan):
            self._take(segment, scan)
            damaged.extend(scan.damaged)
            scan.damaged = []
            if self._cut_seq >= 0:
                break
        header = files.read(path, 0, record.FILE_HEADER_BYTES)
        is_ours = record.file_header_is_valid(header, record.INDEX_MAGIC, self._store_id)
        is_ours = is_ours and record.file_header_number(header) == file_number
        if not is_ours and scan.next_seq == first:
            # Neither the header nor any record belongs to this file.
            self._rebuilt.quarantined.append(quarantine(files, path))
            return
        if not is_ours:
            # The records belong to the file by their checksums; its header is not needed.
            damaged.insert(0, (0, header))
        end = scan.offset if self._cut_seq < 0 else self._cut(path, size, scan.seed)
        damaged = [(offset, stretch) for offset, stretch in damaged if offset + len(stretch) <= end]
        segment.size_bytes = max(_without_tail(end, damaged), record.FILE_HEADER_BYTES)
        segment.written_bytes = segment.size_bytes
        self._keep_damage(path, damaged)
        if segment.entries > 0:
            self._row.segments.append(segment)
        elif self._cut_seq < 0:
            # The segment is empty or unreadable (lost+found has a copy). Delete it, since appends
            # may go to its number or to a lower one.
            remove_if_there(files, path)
        else:
            self._rebuilt.quarantined.append(quarantine(files, path))

    def _take(self, segment: Segment, scan: IndexScan) -> None:
        """Count the positions that the scan has found, up to the cut."""
        row = self._row
        found, scan.found = scan.found, []
        for position in found:
            seq: int = position.seq
            if self._is_end_before(position):
                return
            self._settle_before(seq)
            self._next_seq = seq + 1
            segment.entries += 1
            content = position.content_ref
            if not position.persistent or (content is not None and content.transient):
                # A transient message from before the last start.
                add_run(row.settled, seq, seq)
                self._is_stretch_open = False
                continue
            segment.live_persistent += 1
            if content is not None:
                segment.has_references = True
                self._rebuilt.references.append((row, seq, content))
                if self._is_stretch_open:
                    self._grow_stretch(seq, row.stretches[-1][2])
            elif position.place < -1:
                segment.has_places = True
                segment.referred_bytes += read_bytes_of(position.place, position.content_bytes)
                self._grow_stretch(seq, file_of(position.place))
            else:
                self._is_stretch_open = False

    def _grow_stretch(self, seq: int, file_number: int) -> None:
        """Have the last stretch reach up to `seq`, or begin one there."""
        stretches = self._row.stretches
        if self._is_stretch_open and stretches[-1][2] == file_number:
            stretches[-1] = (stretches[-1][0], seq, file_number)
            return
        stretches.append((seq, seq, file_number))
        self._is_stretch_open = True

    def _mend(self, path: str, number: int) -> None:
        """Write a damaged segment again with the entries that are found in journal files."""
        retained = self._logs.retained()
        if not retained:
            return
        queue_id = self._row.queue_id
        file_number = queue_id << 32 | number
        data = read_whole(self._files, path)
        damaged = _damage_in(data, record.crc_seed(self._store_id, file_number))
        if not damaged:
            return
        first = number * self._segment_entries
        end = first + self._segment_entries - 1
        repair = SegmentRepair(data, self._store_id, file_number, [])
        for gap_first, gap_last, first_file, last_file in repair.gaps:
            for file in retained:
                if first_file <= file <= last_file:
                    log = read_whole(self._files, f"{PERSISTENT_NAME}/{file}.wal")
                    repair.search(log, file, queue_id, max(first, gap_first), min(end, gap_last))
        if repair.has_found:
            self._keep_damage(path, damaged)
            put_whole(self._files, path, b"".join(repair.content(queue_id)))

    def _cut(self, path: str, size: int, seed: int) -> int:
        """Where the records below the cut end; a record with entries on both sides is shortened."""
        data = self._files.read(path, 0, size)
        start, end = _last_record_below(data, seed, self._cut_seq)
        count = 0
        if end > start and data[start + 2] == PLACES:
            count = entry_count(data, start + record.RECORD_HEADER_BYTES, end)
        entries = [read_entry(data, start + record.RECORD_HEADER_BYTES, at) for at in range(count)]
        kept = [entry for entry in entries if entry.seq < self._cut_seq]
        if len(kept) == count:
            return end
        queue_id = record.read_u32(data, start + record.RECORD_HEADER_BYTES)
        writer = record.RecordWriter(self._store_id)
        writer.continue_file(self._row.queue_id << 32 | int(path.rpartition("/")[2][:-4]))
        places = PlacesWriter()
        for entry in kept:
            places.add_found(queue_id, entry, writer)
        places.flush(queue_id, writer)
        short = data[:start] + b"".join(writer.take())
        put_whole(self._files, path, short)
        return len(short)

    def _is_end_before(self, position: Position) -> bool:
        """Whether the index must be cut before `position`.

        True when the journal has a live message with a lower seq id, or another one with the same
        seq id, that the index does not have; the cut is at that message.
        """
        journaled = self._journaled
        if not journaled or journaled[-1].seq > position.seq:
            return False
        known = journaled[-1]
        if known.seq == position.seq and position.persistent and self._is_same(position, known):
            journaled.pop()
            return False
        self._cut_seq = known.seq
        return True

    def _is_same(self, position: Position, known: _Journaled) -> bool:
        """Whether a position of the index has the message that the journal has."""
        place = position.place
        if position.content_ref is not None or place >= -1:
            return known.identity == _identity(position)
        if known.place == (int(file_of(place)), int(offset_of(place))):
            return True
        message = self._logs.message(position)
        return message is not None and known.identity == _message_identity(message)

    def _settle_before(self, seq: int) -> None:
        # Seq ids that are not in the index count as settled; an ack in the journal does not count
        # them twice.
        if seq > self._next_seq:
            add_run(self._row.settled, self._next_seq, seq - 1)

    def _keep_damage(self, path: str, damaged: list[tuple[int, bytes]]) -> None:
        name = path.replace("/", "-")
        for offset, data in damaged:
            keep_damage(self._files, f"{name}.{offset}-{offset + len(data)}.damaged", data)
            if data.strip(b"\0"):
                self._rebuilt.damaged_count += 1


def _damage_in(data: bytes, seed: int) -> list[tuple[int, bytes]]:
    """(offset, bytes) of the stretches of a segment that are no records."""
    damaged: list[tuple[int, bytes]] = []
    at: int = record.FILE_HEADER_BYTES
    while at < len(data):
        length = record.record_length(data, at, seed)
        if length >= 0 and record.body_is_valid(data, at, length):
            at += length
            continue
        following = behind_damage(data, at, length, seed, True)
        damaged.append((at, data[at:following]))
        at = following
    return damaged


def _last_record_below(data: bytes, seed: int, seq: int) -> tuple[int, int]:
    """(start, end) of a segment's last whole record before the first one of `seq` or more."""
    at: int = record.FILE_HEADER_BYTES
    last = (at, at)
    while at < len(data):
        length = record.record_length(data, at, seed)
        if length < 0 or not record.body_is_valid(data, at, length):
            at = behind_damage(data, at, length, seed, True)
            continue
        if first_seq(data[at : at + length]) >= seq:
            break
        last = (at, at + length)
        at += length
    return last


def _without_tail(end: int, damaged: list[tuple[int, bytes]]) -> int:
    """The end of the records: the next append cuts off damage that reaches `end`."""
    for offset, data in reversed(damaged):
        if offset + len(data) != end:
            break
        end = offset
    return end
