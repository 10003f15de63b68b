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

Only a scan of all content files says where contents are. A compacted copy and the files that it was
made from may both exist. The file with the higher number was made later, and the contents that it
left out were garbage by then; so in the range of ids of a file, no file with a lower number counts.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from warrenmq.store.checkpoint import Checkpoint, CheckpointHead, CheckpointQueue
from warrenmq.store.content_scan import scan_contents
from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    is_directory,
    journal_numbers,
    journal_path,
    keep_damage,
    quarantine,
    read_whole,
    remove_if_there,
)
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index_records import IndexScan
from warrenmq.store.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.message import ContentRef, Position, QueueLedger
from warrenmq.store.queue_index import Segment
from warrenmq.store.record import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    INDEX_MAGIC,
    crc_seed,
    file_header_is_valid,
    file_header_number,
)
from warrenmq.store.recovery import JournalReplay
from warrenmq.store.runs import add_run, contains

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
            partial(files.read, path), files.size(path), crc_seed(store_id, number)
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
) -> dict[int, list[tuple[int, tuple[int, ...]]]]:
    """By queue id, (seq id, message identity) of the journal's live messages, in order."""
    replay = JournalReplay(store_id, None, segment_entries)
    if files.exists(JOURNAL_DIRECTORY):
        for number in journal_numbers(files)[0]:
            data = read_whole(files, journal_path(number))
            if (
                file_header_is_valid(data, FILE_MAGIC, store_id)
                and file_header_number(data) != number
            ):
                continue
            # In a file of another store no record is valid, whatever its header says.
            replay.feed_file(number, data)
    return {
        queue_id: [(position.seq, _identity(position)) for position in queue.in_order()]
        for queue_id, queue in replay.queues.items()
    }


def _identity(position: Position) -> tuple[int, ...]:
    """Values that tell a message from another one with the same seq id."""
    content = position.content_ref
    if content is not None:
        return content.id, content.transient
    message = position.message
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
        # (seq id, message identity) of live messages in the journal that the scan has not met yet;
        # the next one is last.
        self._journaled: list[tuple[int, tuple[int, ...]]] = []
        # The seq id behind the last record.
        self._next_seq = 0
        # The seq id at which the index is cut before the end of its segments; -1: it is not cut.
        self._cut_seq = -1

    def run(self, journaled: list[tuple[int, tuple[int, ...]]]) -> CheckpointQueue:
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
        size = files.size(path)
        file_number = self._row.queue_id << 32 | number
        first = number * self._segment_entries
        # A ledger without an index: no position counts as settled.
        scan = IndexScan(
            QueueLedger(self._row.queue_id),
            crc_seed(self._store_id, file_number),
            FILE_HEADER_BYTES,
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
        header = files.read(path, 0, FILE_HEADER_BYTES)
        is_ours = file_header_is_valid(header, INDEX_MAGIC, self._store_id)
        is_ours = is_ours and file_header_number(header) == file_number
        if not is_ours and scan.next_seq == first:
            # Neither the header nor any record belongs to this file.
            self._rebuilt.quarantined.append(quarantine(files, path))
            return
        if not is_ours:
            # The records belong to the file by their checksums; its header is not needed.
            damaged.insert(0, (0, header))
        end = scan.offset if self._cut_seq < 0 else segment.size_bytes
        damaged = [(offset, stretch) for offset, stretch in damaged if offset + len(stretch) <= end]
        segment.size_bytes = max(_without_tail(end, damaged), FILE_HEADER_BYTES)
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
                segment.size_bytes = position.place
                return
            self._settle_before(seq)
            self._next_seq = seq + 1
            segment.entries += 1
            content = position.content_ref
            if not position.persistent or (content is not None and content.transient):
                # A transient message from before the last start.
                add_run(row.settled, seq, seq)
                continue
            segment.live_persistent += 1
            if content is not None:
                segment.has_references = True
                self._rebuilt.references.append((row, seq, content))

    def _is_end_before(self, position: Position) -> bool:
        """Whether the index must be cut before `position`.

        True when the journal has a live message with a lower seq id, or another one with the same
        seq id, that the index does not have; the cut is at that message.
        """
        journaled = self._journaled
        if not journaled or journaled[-1][0] > position.seq:
            return False
        seq, identity = journaled[-1]
        if seq == position.seq and position.persistent and identity == _identity(position):
            journaled.pop()
            return False
        self._cut_seq = seq
        return True

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


def _without_tail(end: int, damaged: list[tuple[int, bytes]]) -> int:
    """The end of the records: the next append cuts off damage that reaches `end`."""
    for offset, data in reversed(damaged):
        if offset + len(data) != end:
            break
        end = offset
    return end
