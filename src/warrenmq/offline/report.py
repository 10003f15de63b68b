"""Reports on a data directory: messages per queue, bytes by place, garbage, body sizes, ages."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.check import is_deleted_queue
from warrenmq.offline.data_directory import VhostDirectory, files_of, opened, queue_names
from warrenmq.offline.queue_copies import QueueCopy, births_of, copy_of
from warrenmq.store.disk.files import journal_path
from warrenmq.store.disk.log_reader import is_referred
from warrenmq.store.disk.snapshot import NoStore, VhostSnapshot
from warrenmq.store.model.message import Position
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES, Segment
from warrenmq.store.records.content import content_bytes_of
from warrenmq.store.records.log_places import ENTRY_BYTES, file_of, offset_of, read_bytes_of
from warrenmq.store.recovery import RecoveredQueue
from warrenmq.store.upkeep.write_figures import amplification

# Upper bounds of the histogram's size classes, in bytes of body; one more class has larger bodies.
SIZE_CLASSES: Final = (0, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 16777216)
# Bytes of an index record beside the message's address, properties and body.
_EMBEDDED_BYTES: Final = 58
# Bytes of an index record that refers to a content.
_REFERENCE_BYTES: Final = 76


@dataclass
class QueueReport:
    """The report on one queue, with all its levels."""

    id: int
    name: str
    messages: int = 0
    # Bytes of address, properties and body, wherever they are stored.
    bytes: int = 0
    # Messages that are in the journal only.
    journal_messages: int = 0
    # Messages whose content is in a content file.
    large_messages: int = 0
    # When the oldest message was published, in ms since 1970.
    oldest_ms: int = 0
    # None for a queue that was never mirrored.
    copy: QueueCopy | None = None

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        copy = None if self.copy is None else self.copy.as_json()
        return vars(self) | {"copy": copy}

    def add(self, level: "QueueReport") -> None:
        """Add the figures of a level of the queue."""
        times = [row.oldest_ms for row in (self, level) if row.messages]
        self.oldest_ms = min(times, default=0)
        self.messages += level.messages
        self.bytes += level.bytes
        self.journal_messages += level.journal_messages
        self.large_messages += level.large_messages


@dataclass
class FileReport:
    """The report on one file of the journal, an index or the content store. Sizes in bytes."""

    path: str
    size: int
    live: int

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        return {"path": self.path, "size": self.size, "live": self.live, "garbage": self.garbage}

    @property
    def garbage(self) -> int:
        """Bytes that nothing needs."""
        return max(self.size - self.live, 0)


@dataclass
class VhostReport:
    """The report on one vhost."""

    id: int
    name: str
    queues: list[QueueReport] = field(default_factory=list)
    journal: list[FileReport] = field(default_factory=list)
    index: list[FileReport] = field(default_factory=list)
    contents: list[FileReport] = field(default_factory=list)
    # Files that have left the journal and hold contents of messages in indexes.
    logs: list[FileReport] = field(default_factory=list)
    # Messages by size class; one more class than SIZE_CLASSES.
    histogram: list[int] = field(default_factory=lambda: [0] * (len(SIZE_CLASSES) + 1))
    # Bytes that clients published and the node wrote, as the last checkpoint counts them.
    published_bytes: int = 0
    written_bytes: int = 0
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        """For --json."""
        found: dict[str, Any] = {"id": self.id, "name": self.name, "error": self.error}
        found["writes"] = {
            "published_bytes": self.published_bytes,
            "total_bytes": self.written_bytes,
            "amplification": self.amplification,
        }
        found["messages"] = sum(queue.messages for queue in self.queues)
        found["queues"] = [queue.as_json() for queue in self.queues]
        for kind, files in self.files().items():
            found[kind] = {
                "size": sum(file.size for file in files),
                "live": sum(file.live for file in files),
                "garbage": sum(file.garbage for file in files),
                "files": [file.as_json() for file in files],
            }
        bounds = [*SIZE_CLASSES, None]
        found["body_sizes"] = [
            {"bytes_upto": bound, "messages": count}
            for bound, count in zip(bounds, self.histogram, strict=True)
        ]
        return found

    @property
    def amplification(self) -> float:
        """Bytes written for each byte published; 0 before the first message."""
        return amplification(self.written_bytes, self.published_bytes)

    def files(self) -> dict[str, list[FileReport]]:
        """The files by kind: journal, index, contents, logs."""
        return {
            "journal": self.journal,
            "index": self.index,
            "contents": self.contents,
            "logs": self.logs,
        }


class _LogBytes:
    """The records in journal files that indexes need, each once however many queues share it."""

    def __init__(self) -> None:
        # Offset and bytes of each record, by file number; 16 bytes a message.
        self._records: dict[int, tuple[array[int], array[int]]] = {}

    def add(self, position: Position) -> None:
        """Count the record of a position, to within 16 bytes."""
        place = position.place
        offsets, sizes = self._records.setdefault(file_of(place), (array("Q"), array("Q")))
        offsets.append(offset_of(place))
        sizes.append(read_bytes_of(place, position.content_bytes))

    def live_bytes(self, number: int) -> int:
        """Bytes of the records in a file that are needed."""
        offsets, sizes = self._records.get(number, (array("Q"), array("Q")))
        return sum(dict(zip(offsets, sizes, strict=True)).values())


def report_directory(
    path: Path, on_bytes: Callable[[int], None] = lambda size: None
) -> list[VhostReport]:
    """Report on a data directory or a backup. Raises ToolError when it cannot be read."""
    reports: list[VhostReport] = []
    with opened(path) as directory:
        for vhost in directory.vhosts:
            report = VhostReport(vhost.id, vhost.name)
            reports.append(report)
            with files_of(vhost) as files:
                try:
                    snapshot = VhostSnapshot(files, SEGMENT_ENTRIES)
                except NoStore as error:
                    report.error = str(error)
                    continue
                report_vhost(directory.definitions, vhost, snapshot, report, on_bytes)
    return reports


def report_vhost(
    definitions: Definitions,
    vhost: VhostDirectory,
    snapshot: VhostSnapshot,
    report: VhostReport,
    on_bytes: Callable[[int], None],
) -> None:
    """Fill the report on one vhost."""
    on_bytes(snapshot.report.bytes_read)
    report.published_bytes = snapshot.store.checkpoints.earlier_published_bytes
    report.written_bytes = snapshot.store.checkpoints.earlier_written_bytes
    known = queue_names(definitions, vhost.definition.name) if vhost.definition is not None else {}
    names = {queue_id: name.decode("utf-8", "replace") for queue_id, name in known.items()}
    births = births_of(definitions, vhost)
    logs = _LogBytes()
    owners = {
        part.id: part.owner
        for part in definitions.queue_parts
        if part.id in names and part.owner in names
    }
    rows = {id: QueueReport(id, name) for id, name in names.items() if id not in owners}
    for queue in snapshot.queues():
        queue_id = queue.ledger.queue_id
        if queue_id not in names and is_deleted_queue(definitions, vhost, queue_id):
            continue
        row = QueueReport(queue_id, names.get(queue_id, f"(id {queue_id})"))
        for segment in snapshot.segments(queue):
            _add_segment(snapshot, queue, segment, row, report, logs, on_bytes)
        for position in queue.in_order():
            row.journal_messages += 1
            _add(snapshot, queue, position, row, report)
        owner = owners.get(queue_id, queue_id)
        whole = rows.setdefault(owner, QueueReport(owner, row.name))
        whole.add(row)
        if owner == queue_id:
            whole.copy = copy_of(snapshot, queue_id, births.get(queue_id, 0))
    report.queues = sorted(rows.values(), key=lambda row: row.name)
    for file in snapshot.replay.files:
        live = min(int(file.live_bytes) + logs.live_bytes(file.number), int(file.size_bytes))
        report.journal.append(FileReport(journal_path(file.number), file.size_bytes, live))
    in_journal = {file.number for file in snapshot.replay.files}
    for number in sorted({*snapshot.replay.logs, *snapshot.logs.retained()} - in_journal):
        log_path = snapshot.logs.path_of(number)
        if log_path is not None:
            size = snapshot.files.size(log_path)
            report.logs.append(FileReport(log_path, size, min(logs.live_bytes(number), size)))
    for content_file in snapshot.content_files:
        report.contents.append(
            FileReport(content_file.path, content_file.size_bytes, content_file.valid_bytes)
        )


def _add_segment(
    snapshot: VhostSnapshot,
    queue: RecoveredQueue,
    segment: Segment,
    row: QueueReport,
    report: VhostReport,
    logs: _LogBytes,
    on_bytes: Callable[[int], None],
) -> None:
    path = snapshot.path_of(queue, segment)
    file = FileReport(path, segment.size_bytes, 0)
    report.index.append(file)
    if not snapshot.files.is_file(path) or segment.live_persistent == 0:
        return
    for position in snapshot.segment_positions(queue, segment, on_read=on_bytes):
        _add(snapshot, queue, position, row, report)
        if is_referred(position):
            file.live += ENTRY_BYTES
            logs.add(position)
        elif position.content_ref is None:
            file.live += position.content_bytes + _EMBEDDED_BYTES
        else:
            file.live += _REFERENCE_BYTES


def _add(
    snapshot: VhostSnapshot,
    queue: RecoveredQueue,
    position: Position,
    row: QueueReport,
    report: VhostReport,
) -> None:
    if row.messages == 0:
        row.oldest_ms = snapshot.timestamp_ms(queue, position)
    row.messages += 1
    content = position.content_ref
    if content is None:
        row.bytes += position.content_bytes
    else:
        row.large_messages += 1
        row.bytes += content_bytes_of(content)
    place = 0
    body_bytes = position.body_bytes
    while place < len(SIZE_CLASSES) and body_bytes > SIZE_CLASSES[place]:
        place += 1
    report.histogram[place] += 1
