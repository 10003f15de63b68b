"""Reads a vhost's directory without a node: the directory of a stopped node, or a backup.

Opening a snapshot reads the checkpoint and replays the journal, as a start does, and changes
nothing on the disk. Everything else comes from iterators, so a backlog larger than memory can be
read. Only the messages in the journal take memory, and two bytes for each large message.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from warrenmq.store.contents.file import ContentFile, index_of
from warrenmq.store.contents.scan import ContentScan
from warrenmq.store.disk.files import known_store_id, set_aside_strange
from warrenmq.store.disk.index_rebuild import PIECE_BYTES, scan_segment
from warrenmq.store.disk.log_reader import LogReader
from warrenmq.store.disk.read_only_files import ReadOnlyFiles
from warrenmq.store.disk.store_reader import StoreReport, read_store
from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.model.message import ContentRef, Message, Position, QueueLedger
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES, QueueIndex, Segment
from warrenmq.store.model.runs import Runs
from warrenmq.store.records.content import decode_content, decode_publish_ref
from warrenmq.store.records.index import IndexScan
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    PUBLISH_REF,
    RECORD_HEADER_BYTES,
    body_is_valid,
    crc_seed,
    record_length,
)
from warrenmq.store.recovery import JournalReplay, RecoveredQueue
from warrenmq.store.settings import StoreSettings
from warrenmq.store.vhost_store import VhostStore

# Called with (path, offset, bytes) of each stretch that is no record.
OnDamage = Callable[[str, int, bytes], None]
# Called with the number of bytes of each read.
OnRead = Callable[[int], None]

_NEVER: Final = 1 << 62


class NoStore(Exception):
    """Says in one line why a directory is not that of a vhost's store."""


def ignore_damage(_path: str, _offset: int, _data: bytes) -> None:
    """Do nothing: the default `on_damage`."""


def ignore_read(_size: int) -> None:
    """Do nothing: the default `on_read`."""


def find_store_id(files: FileSystem) -> bytes:
    """The store id of a vhost's directory. Raises NoStore."""
    store_id, _ = known_store_id(files)
    if not store_id:
        raise NoStore("there is no store_id and no file that names one")
    return store_id


class SegmentPlace(NamedTuple):
    """All that a reader of one segment must know; only its first `size` bytes count."""

    store_id: bytes
    queue_id: int
    number: int
    size: int
    segment_entries: int


def positions_in_segment(
    files: FileSystem,
    path: str,
    place: SegmentPlace,
    settled: Runs,
    on_damage: OnDamage = ignore_damage,
    on_read: OnRead = ignore_read,
) -> Iterator[Position]:
    """The live positions in one segment. Raises OSError when it cannot be read."""
    ledger = QueueLedger(place.queue_id)
    # The scan reads only the settled runs of this index.
    ledger.index = QueueIndex(place.queue_id, "", place.segment_entries)
    ledger.index.settled = settled
    ledger.transient_floor = _NEVER
    first = place.number * place.segment_entries
    seed = crc_seed(place.store_id, ledger.index.file_number(place.number))
    scan = IndexScan(ledger, seed, FILE_HEADER_BYTES, first, first + place.segment_entries)
    before = FILE_HEADER_BYTES
    for _ in scan_segment(files, path, place.size, scan):
        on_read(scan.offset - before)
        before = scan.offset
        found, scan.found = scan.found, []
        damaged, scan.damaged = scan.damaged, []
        for position in found:
            content = position.content_ref
            if content is None or not content.transient:
                yield position
        for offset, data in damaged:
            on_damage(path, offset, data)


class VhostSnapshot:
    """The store in `files`, a vhost's directory.

    A published message of a sink is in its queues. With `has_moved` it is in its stage as well
    until it is settled there, as the accounts of the content store count it.
    """

    def __init__(
        self, files: FileSystem, segment_entries: int = SEGMENT_ENTRIES, has_moved: bool = False
    ) -> None:
        self.files = ReadOnlyFiles(files)
        strange = set_aside_strange(self.files)
        self.store_id = find_store_id(self.files)
        # Journal files with contents of indexes.
        self.logs = LogReader(self.files, self.store_id)
        self.store: VhostStore
        self.replay: JournalReplay
        self.report: StoreReport
        self.store, self.replay, self.report = read_store(
            self.files, self.store_id, StoreSettings(1 << 26, segment_entries=segment_entries)
        )
        self.report.quarantined[:0] = strange
        if not has_moved:
            self.replay.settle_moved()
        # Content files that a crash left behind; the next start removes them.
        self.dead_paths = self.store.contents.persistent.take_dead_paths()
        for number in self.logs.retained():
            if number not in self.replay.logs:
                self.dead_paths.append(f"{PERSISTENT_NAME}/{number}.wal")

    # -- queues ------------------------------------------------------------------------------------

    def queues(self) -> list[RecoveredQueue]:
        """All recovered queues, in order of their ids."""
        return [self.replay.queues[queue_id] for queue_id in sorted(self.replay.queues)]

    def queue(self, queue_id: int) -> RecoveredQueue | None:
        """The recovered queue; None when the store has nothing of it."""
        return self.replay.queues.get(queue_id)

    def segments(self, queue: RecoveredQueue) -> list[Segment]:
        """The segments of the queue's index, oldest first."""
        index = queue.ledger.index
        return list(index.segments) if index is not None else []

    def path_of(self, queue: RecoveredQueue, segment: Segment) -> str:
        """Path of a segment, relative to the vhost's directory."""
        return f"{QUEUES_NAME}/{queue.ledger.queue_id}/{segment.number}.idx"

    def positions(
        self,
        queue: RecoveredQueue,
        on_damage: OnDamage = ignore_damage,
        on_read: OnRead = ignore_read,
    ) -> Iterator[Position]:
        """All live positions of a queue, in order; `message` reads those without `has_content`."""
        for segment in self.segments(queue):
            if segment.live_persistent > 0:
                yield from self.segment_positions(queue, segment, on_damage, on_read)
        yield from queue.in_order()

    def segment_positions(
        self,
        queue: RecoveredQueue,
        segment: Segment,
        on_damage: OnDamage = ignore_damage,
        on_read: OnRead = ignore_read,
    ) -> Iterator[Position]:
        """The live positions in one segment. Raises OSError when it cannot be read."""
        index = queue.ledger.index
        assert index is not None
        yield from positions_in_segment(
            self.files,
            self.path_of(queue, segment),
            SegmentPlace(
                self.store_id,
                queue.ledger.queue_id,
                segment.number,
                segment.size_bytes,
                index.segment_entries,
            ),
            index.settled,
            on_damage,
            on_read,
        )

    def timestamp_ms(self, queue: RecoveredQueue, position: Position) -> int:
        """The time at which the message was published, in ms since 1970; 0 if unreadable."""
        if position.has_content or position.place < 0:
            message = self.message(position)
            timestamp: int = message.timestamp_ms if message is not None else 0
            return timestamp
        index = queue.ledger.index
        assert index is not None
        number = position.seq // index.segment_entries
        data = self.files.read(
            f"{QUEUES_NAME}/{queue.ledger.queue_id}/{number}.idx", position.place, PIECE_BYTES
        )
        length = record_length(data, 0, crc_seed(self.store_id, index.file_number(number)))
        if length < 0 or data[2] != PUBLISH_REF or not body_is_valid(data, 0, length):
            return 0
        ref = decode_publish_ref(data, RECORD_HEADER_BYTES, length)
        return ref.timestamp_ms if ref is not None else 0

    # -- contents ----------------------------------------------------------------------------------

    @property
    def content_files(self) -> list[ContentFile]:
        """The content files with valid contents, in order of their ids."""
        return self.store.contents.persistent.files

    def content_scan(self, file: ContentFile) -> ContentScan:
        """A scan of one content file, damaged stretches included."""
        return ContentScan(
            partial(self.files.read, file.path),
            self.files.size(file.path),
            crc_seed(self.store_id, file.number),
        )

    def message(self, position: Position) -> Message | None:
        """The message at a position; None when its content cannot be read."""
        if position.has_content:
            return position.message
        content = position.content_ref
        if content is not None:
            return self.content(content)
        return self.logs.message(position) if position.place < -1 else None

    def content(self, content: ContentRef) -> Message | None:
        """A large message, from its known place, else from the file that has its id."""
        path = self.store.contents.persistent.path_of(content.file)
        if self.store.contents.persistent.is_current_location(content) and self.files.is_file(path):
            data = self.files.read(path, content.offset, content.stored_bytes)
            message = self._decode(data, content, content.file)
            if message is not None:
                return message
        located = self.store.contents.persistent.locate(content.id)
        if located is None or not self.files.is_file(located[0]):
            return None
        path, number = located
        scan = ContentScan(
            partial(self.files.read, path), self.files.size(path), crc_seed(self.store_id, number)
        )
        while scan.advance():
            if scan.content_id == content.id:
                return self._decode(scan.record(), content, number)
        return None

    def _decode(self, data: bytes, content: ContentRef, number: int) -> Message | None:
        length = record_length(data, 0, crc_seed(self.store_id, number))
        if length < 0 or not body_is_valid(data, 0, length):
            return None
        stored = decode_content(data, RECORD_HEADER_BYTES, length)
        return stored.message if stored is not None and stored.id == content.id else None


class ReferenceCounts:
    """Counts the live positions that refer to each content of `files` (in order of their ids)."""

    def __init__(self, files: list[ContentFile]) -> None:
        self.files = files
        self._counts = [array("H", bytes(2 * file.count)) for file in files]

    def add(self, content_id: int) -> bool:
        """Count one more position of a content; False when no file has the content."""
        index = index_of(self.files, content_id)
        place = self.files[index].place_of(content_id) if index >= 0 else -1
        if place < 0:
            return False
        self._counts[index][place] += 1
        return True

    def of_file(self, index: int) -> "array[int]":
        """The counts of the file at `index`, by place of the content in the file."""
        return self._counts[index]
