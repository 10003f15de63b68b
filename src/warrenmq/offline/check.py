"""Checks a data directory: reads everything, compares every checksum and count, changes nothing.

A *problem* is an inconsistency: damage, a loss, or a count that contradicts the files. A *note* is
a trace of a crash that the next start clears away (unfinished writes, files that nothing refers
to): a node that was killed checks clean.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from warrenmq.broker.definitions.metadata import Definitions
from warrenmq.offline.data_directory import (
    DataDirectory,
    VhostDirectory,
    files_of,
    opened,
    queue_names,
)
from warrenmq.offline.log_check import LogCheck, Referred, header_is_ours
from warrenmq.offline.problems import (
    DAMAGED,
    DEFINITIONS,
    JOURNAL_GAP,
    MISSING_CONTENT,
    MISSING_FILE,
    NO_CHECKPOINT,
    NO_DEFINITION,
    NO_DIRECTORY,
    NOT_OURS,
    WRONG_COUNT,
    CheckResult,
    Problem,
)
from warrenmq.offline.queue_copies import births_of, copy_of, member_line, member_of
from warrenmq.store.contents.file import GONE, ContentFile
from warrenmq.store.contents.scan import ContentScan
from warrenmq.store.disk.files import JOURNAL_DIRECTORY, LOST_AND_FOUND, known_store_id
from warrenmq.store.disk.index_rebuild import QUEUE_NAME, SEGMENT_NAME
from warrenmq.store.disk.log_reader import LogRows, is_referred
from warrenmq.store.disk.snapshot import NoStore, ReferenceCounts, VhostSnapshot
from warrenmq.store.file_system import FileSystem
from warrenmq.store.model.layout import QUEUES_NAME
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES, Segment
from warrenmq.store.model.runs import Runs, add_run
from warrenmq.store.records.log_places import file_of, offset_of
from warrenmq.store.records.record import (
    FILE_HEADER_BYTES,
    INDEX_MAGIC,
    RECORD_HEADER_BYTES,
    file_header_is_valid,
    file_header_number,
)
from warrenmq.store.recovery import RecoveredQueue
from warrenmq.vocabulary.names import name_text

# Called with the number of bytes of each read.
OnBytes = Callable[[int], None]


@dataclass
class SegmentFindings:
    """The result of reading one segment."""

    # Live positions.
    live: int = 0
    # References of live positions, (content id, seq id).
    references: list[tuple[int, int]] = field(default_factory=list)
    # Where the segment has bytes that are no valid record: (start, end), offsets in bytes.
    damaged: list[tuple[int, int]] = field(default_factory=list)
    # Places of live positions whose content is in a journal file, in order of their seq ids.
    referred: list[Referred] = field(default_factory=list)
    # Seq ids of the live positions.
    found: Runs = field(default_factory=list)


class FoundContent(NamedTuple):
    """A content in a content file; or, with `is_valid` False, a stretch that holds none."""

    offset: int
    end: int
    content_id: int
    references: int
    is_valid: bool


def check_directory(path: Path, on_bytes: OnBytes = lambda size: None) -> CheckResult:
    """Check a data directory or a backup. Raises ToolError when it cannot be read."""
    result = CheckResult()

    def count_bytes(size: int) -> None:
        result.bytes_read += size
        on_bytes(size)

    with opened(path) as directory:
        check_names(directory, result)
        for vhost in directory.vhosts:
            check_vhost(directory, vhost, result, count_bytes)
    return result


def check_names(directory: DataDirectory, result: CheckResult) -> None:
    """Compare the definitions with the directories of vhosts, and find names that do not belong.

    A note names the node of a cluster that the directory belongs to.
    """
    if member := member_of(directory.path):
        result.notes.append(member_line(member))
    if directory.definitions_error:
        result.add(Problem(DEFINITIONS, "", directory.definitions_error))
    for definition in directory.missing:
        name = definition.name.decode("utf-8", "replace")
        result.add(Problem(NO_DIRECTORY, name, f"the vhost has no directory {definition.id}"))
    for name in directory.strange:
        result.add(Problem(NOT_OURS, "", f"{name} is no part of a data directory"))


def check_definition(directory: DataDirectory, vhost: VhostDirectory, result: CheckResult) -> None:
    """Find out whether the vhost of a directory is defined."""
    if vhost.definition is None and not directory.definitions_error:
        text = f"no vhost is defined with id {vhost.id}: its data is kept"
        result.add(Problem(NO_DEFINITION, vhost.name, text))


def check_vhost(
    directory: DataDirectory, vhost: VhostDirectory, result: CheckResult, on_bytes: OnBytes
) -> None:
    """Check one vhost's store."""
    check_definition(directory, vhost, result)
    with files_of(vhost) as files:
        try:
            check_store(files, SEGMENT_ENTRIES, directory.definitions, vhost, result, on_bytes)
        except NoStore as error:
            if any(vhost.path.iterdir()):
                result.add(Problem(MISSING_FILE, vhost.name, str(error)))


def check_store(
    files: FileSystem,
    segment_entries: int,
    definitions: Definitions,
    vhost: VhostDirectory,
    result: CheckResult,
    on_bytes: OnBytes = lambda size: None,
) -> None:
    """Check the store of `vhost` in `files`. Raises NoStore when there is none."""
    snapshot = VhostSnapshot(files, segment_entries, has_moved=True)
    VhostCheck(definitions, vhost, snapshot, result, on_bytes).run()


def is_deleted_queue(definitions: Definitions, vhost: VhostDirectory, queue_id: int) -> bool:
    """Whether a queue with this id existed and was deleted."""
    if vhost.definition is None or queue_id >= definitions.next_queue_id:
        return False
    return queue_id not in queue_names(definitions, vhost.definition.name)


class VhostCheck:
    """The check of one vhost.

    Only `scan_segment`, `scan_contents` and `scan_log` read much; a subclass overrides them when
    other processes have done the reading already.
    """

    def __init__(
        self,
        definitions: Definitions,
        vhost: VhostDirectory,
        snapshot: VhostSnapshot,
        result: CheckResult,
        on_bytes: OnBytes,
    ) -> None:
        self.definitions = definitions
        self.vhost = vhost
        self.snapshot = snapshot
        self.result = result
        self.on_bytes = on_bytes
        self.counts = ReferenceCounts(snapshot.content_files)
        self._logs = LogCheck()
        self.names = (
            queue_names(definitions, vhost.definition.name) if vhost.definition is not None else {}
        )
        self.defined = set(self.names)

    def run(self) -> None:
        """Check everything, in the order in which a start reads it."""
        self._check_start()
        self._note_copies()
        for queue in self.snapshot.queues():
            self._check_queue(queue)
        self._check_queue_directories()
        for index, file in enumerate(self.snapshot.content_files):
            self._check_contents(index, file)
        self._check_logs()
        if self.snapshot.files.exists(LOST_AND_FOUND):
            count = len(self.snapshot.files.list_names(LOST_AND_FOUND))
            self._note(
                f"{LOST_AND_FOUND} has {count} files that earlier starts have put aside; salvage reads the messages in them"
            )
        for path in self.snapshot.dead_paths:
            self._note(f"{path} holds nothing that is needed; the next start removes it")
        result = self.result
        name = self.vhost.definition.name if self.vhost.definition is not None else None
        result.queues += sum(queue.vhost == name for queue in self.definitions.queues)

    def _problem(
        self,
        kind: str,
        text: str,
        count: int = 1,
        path: str | None = None,
        stretch: tuple[int, int] | None = None,
        queue_id: int | None = None,
        seq: int | None = None,
    ) -> None:
        start, end = stretch or (None, None)
        problem = Problem(kind, self.vhost.name, text, count, path, start, end, queue_id, seq)
        self.result.add(problem)

    def _note(self, text: str) -> None:
        self.result.notes.append(f"vhost '{self.vhost.name}': {text}")

    def _note_copies(self) -> None:
        births = births_of(self.definitions, self.vhost)
        for queue_id, birth in births.items():
            copy = copy_of(self.snapshot, queue_id, birth)
            if copy is not None:
                self._note(copy.line(name_text(self.names[queue_id])))

    # -- checkpoint and journal --------------------------------------------------------------------

    def _check_start(self) -> None:
        report = self.snapshot.report
        self.on_bytes(report.bytes_read)
        if not known_store_id(self.snapshot.files)[1]:
            self._problem(
                MISSING_FILE, "store_id is lost or damaged; the other files say what it was"
            )
        for line in report.quarantined:
            self._problem(NOT_OURS, f"not a usable file of this vhost: {line.partition(' -> ')[0]}")
        for line in report.unfinished:
            self._note(
                f"{line.partition(' -> ')[0]} was never finished; the next start puts it aside"
            )
        if report.is_rebuilt:
            self._problem(
                NO_CHECKPOINT,
                "there is no usable checkpoint; acks and epochs of queues that only it knew are lost",
            )
        elif report.is_between_checkpoints:
            self._note(
                f"there is {report.checkpoint} and no checkpoint, as when the node ends while it puts the next one in its "
                "place; a start takes the one that is there, and nothing is lost"
            )
        elif report.checkpoint not in ("", "checkpoint"):
            self._problem(NO_CHECKPOINT, f"the checkpoint is not usable; {report.checkpoint} is")
        for damage in report.damage:
            self._problem(
                DAMAGED,
                f"{JOURNAL_DIRECTORY}/{damage.file_number}.wal, bytes {damage.start} to {damage.end}: {damage.reason}",
                path=f"{JOURNAL_DIRECTORY}/{damage.file_number}.wal",
                stretch=(damage.start, damage.end),
            )
        for path in report.damaged_headers:
            if path in self.snapshot.dead_paths:
                self._note(f"{path} has no whole header")
            else:
                self._problem(
                    DAMAGED,
                    f"{path} has a damaged header",
                    path=path,
                    stretch=(0, FILE_HEADER_BYTES),
                )
        if report.index_damage:
            self._problem(
                DAMAGED, "stretches of index segments are damaged", count=report.index_damage
            )
        for torn in report.torn:
            self._note(
                f"{JOURNAL_DIRECTORY}/{torn.file_number}.wal ends in {torn.end - torn.start} bytes of an unfinished write"
            )
        for path in report.missing:
            self._problem(
                MISSING_FILE, f"{path} is missing, and something in it is needed", path=path
            )
        if report.missing_contents:
            self._problem(
                MISSING_CONTENT,
                "messages in the journal whose content is not there",
                count=report.missing_contents,
            )
        for line in report.missing_journal:
            self._problem(JOURNAL_GAP, f"{line} is missing")
        if report.kept_references:
            self._note(
                f"damage in the journal hides whether {report.kept_references} references to contents were given up"
            )

    # -- queues ------------------------------------------------------------------------------------

    def _check_queue(self, queue: RecoveredQueue) -> None:
        queue_id = queue.ledger.queue_id
        is_alive = queue_id in self.defined
        before = self.result.messages
        for segment in self.snapshot.segments(queue):
            self._check_segment(queue, segment)
        for position in queue.in_order():
            self.result.messages += 1
            if position.content_ref is not None:
                self._count(position.content_ref.id, queue_id, position.seq)
        live = self.result.messages - before
        if is_alive:
            return
        if is_deleted_queue(self.definitions, self.vhost, queue_id):
            self.result.messages = before
            if live:
                self._note(f"queue id {queue_id} is deleted; the next start removes what it left")
        elif live and not self.result.problem_counts[DEFINITIONS]:
            self._problem(
                NO_DEFINITION,
                f"no queue is defined with id {queue_id}: its messages are kept",
                live,
            )

    def _check_segment(self, queue: RecoveredQueue, segment: Segment) -> None:
        snapshot = self.snapshot
        path = snapshot.path_of(queue, segment)
        queue_id = queue.ledger.queue_id
        if not snapshot.files.is_file(path):
            if segment.live_persistent > 0:
                self._problem(
                    MISSING_FILE,
                    f"{path} is missing",
                    count=segment.live_persistent,
                    path=path,
                    queue_id=queue_id,
                )
                self._logs.add_lost(queue, segment.number, [])
            return
        size = snapshot.files.size(path)
        # The file may be shorter than the checkpoint says, since a rewritten one may have replaced
        # it. The live positions are counted in any case.
        if size > segment.size_bytes:
            self._note(
                f"{path} ends in {size - segment.size_bytes} bytes that no checkpoint counts"
            )
        header = snapshot.files.read(path, 0, FILE_HEADER_BYTES)
        number = queue_id << 32 | segment.number
        if (
            not file_header_is_valid(header, INDEX_MAGIC, snapshot.store_id)
            or file_header_number(header) != number
        ):
            self._problem(
                DAMAGED,
                f"{path} has a damaged header",
                path=path,
                stretch=(0, FILE_HEADER_BYTES),
                queue_id=queue_id,
            )
        found = self.scan_segment(queue, segment)
        for start, end in found.damaged:
            self._problem(
                DAMAGED,
                f"{path}, bytes {start} to {end}",
                path=path,
                stretch=(start, end),
                queue_id=queue_id,
            )
        for content_id, seq in found.references:
            self._count(content_id, queue_id, seq)
        strays = self._logs.add(queue, found.referred)
        if strays:
            self._problem(
                WRONG_COUNT,
                f"{path} has {strays} messages whose contents are in journal files that the checkpoint does not count as needed",
                strays,
                path=path,
                queue_id=queue_id,
            )
        if found.damaged or (found.live < segment.live_persistent and not found.live):
            self._logs.add_lost(queue, segment.number, found.found)
        self.result.messages += found.live
        if found.live != segment.live_persistent and not found.damaged:
            self._problem(
                WRONG_COUNT,
                f"{path} has {found.live} live messages; the checkpoint and the journal count {segment.live_persistent}",
                path=path,
                queue_id=queue_id,
            )

    def scan_segment(self, queue: RecoveredQueue, segment: Segment) -> SegmentFindings:
        """Read an existing segment."""
        found = SegmentFindings()

        def on_damage(_path: str, offset: int, data: bytes) -> None:
            found.damaged.append((offset, offset + len(data)))

        for position in self.snapshot.segment_positions(queue, segment, on_damage, self.on_bytes):
            found.live += 1
            if position.content_ref is not None:
                found.references.append((position.content_ref.id, position.seq))
            elif is_referred(position):
                place = position.place
                found.referred.append((file_of(place), offset_of(place), position.seq))
            add_run(found.found, position.seq, position.seq)
        return found

    def _count(self, content_id: int, queue_id: int, seq: int) -> None:
        if not self.counts.add(content_id):
            self._problem(
                MISSING_CONTENT,
                f"content {content_id} of message {seq} of queue id {queue_id} is in no file",
                queue_id=queue_id,
                seq=seq,
            )

    def _check_queue_directories(self) -> None:
        files = self.snapshot.files
        for name in files.list_names(QUEUES_NAME):
            path = f"{QUEUES_NAME}/{name}"
            if not QUEUE_NAME.fullmatch(name) or files.is_file(path):
                self._problem(NOT_OURS, f"{path} is not a queue's")
                continue
            queue = self.snapshot.queue(int(name))
            segments = self.snapshot.segments(queue) if queue is not None else []
            known = {segment.number for segment in segments}
            self._check_directory(path, int(name), known)

    def _check_directory(self, path: str, queue_id: int, known: set[int]) -> None:
        left = 0
        for name in self.snapshot.files.list_names(path):
            match = SEGMENT_NAME.fullmatch(name)
            if match is None and not name.endswith(".idx.new"):
                self._problem(NOT_OURS, f"{path}/{name} is not a segment")
            elif match is None or int(match.group(1)) not in known:
                left += 1
        if not left:
            return
        is_known = queue_id in self.defined or is_deleted_queue(
            self.definitions, self.vhost, queue_id
        )
        if is_known or self.result.problem_counts[DEFINITIONS]:
            self._note(f"{path} has {left} files that no checkpoint counts")
        else:
            self._problem(NO_DEFINITION, f"{path} belongs to no queue that is defined", left)

    # -- contents ----------------------------------------------------------------------------------

    def _check_contents(self, index: int, file: ContentFile) -> None:
        counted = self.counts.of_file(index)
        seen = bytearray(file.count)
        valid_bytes = 0
        damaged: list[tuple[int, int]] = []
        needed_end = 0
        for found in self.scan_contents(file):
            if not found.is_valid:
                damaged.append((found.offset, found.end))
                continue
            place = file.place_of(found.content_id)
            if place < 0:
                continue
            if seen[place]:
                text = f"{file.path} has content {found.content_id} twice"
                self._problem(WRONG_COUNT, text, path=file.path, stretch=(found.offset, found.end))
                continue
            seen[place] = 1
            if file.released_at(place) != GONE:
                valid_bytes += found.end - found.offset
                needed_end = found.end
                self.result.contents += 1
            self._check_references(file, place, found.references, counted[place])
        lost = sum(counted[place] for place in range(file.count) if not seen[place])
        unseen = sum(
            not seen[place] and not counted[place] and file.released_at(place) != GONE
            for place in range(file.count)
        )
        self._report_damage(file, damaged, needed_end, lost + unseen)
        if lost:
            self._problem(
                MISSING_CONTENT,
                f"{file.path} lacks contents that messages refer to",
                lost,
                path=file.path,
            )
        if unseen:
            self._problem(
                WRONG_COUNT,
                f"{file.path} lacks contents that count as valid",
                unseen,
                path=file.path,
            )
        if not lost and not unseen and valid_bytes != file.valid_bytes:
            self._problem(
                WRONG_COUNT,
                f"{file.path} has {valid_bytes} valid bytes; {file.valid_bytes} are counted",
                path=file.path,
            )

    def scan_contents(self, file: ContentFile) -> Iterator[FoundContent]:
        """Read a content file: yields its contents and damaged stretches, in order."""
        scan = self.snapshot.content_scan(file)
        before = 0
        while scan.advance():
            end = scan.offset + scan.length
            self.on_bytes(end - before)
            before = end
            references = references_of(scan) if scan.is_valid else 0
            yield FoundContent(scan.offset, end, scan.content_id, references, scan.is_valid)

    def _report_damage(
        self, file: ContentFile, damaged: list[tuple[int, int]], needed_end: int, missing: int
    ) -> None:
        for start, end in damaged:
            if start >= needed_end and not missing:
                # The stretch is (part of) an unfinished write, or space that was allocated ahead.
                self._note(
                    f"{file.path}, bytes {start} to {end}: no content, behind all that are needed"
                )
            else:
                text = f"{file.path}, bytes {start} to {end}"
                self._problem(DAMAGED, text, path=file.path, stretch=(start, end))

    def _check_references(
        self, file: ContentFile, place: int, references: int, counted: int
    ) -> None:
        released = file.released_at(place)
        expected = 0 if released == GONE else references - released
        if counted != expected:
            self._problem(
                WRONG_COUNT,
                f"content {file.id_at(place)} in {file.path}: {counted} messages refer to it, {expected} are counted",
                path=file.path,
            )

    # -- contents in journal files -----------------------------------------------------------------

    def _check_logs(self) -> None:
        known = self.snapshot.replay.logs
        found_again = 0
        for number in sorted({*known, *self._logs.files()}):
            path = self.snapshot.logs.path_of(number)
            if path is None:
                count = self._logs.entries_in(number)
                if count:
                    self._problem(
                        MISSING_CONTENT,
                        f"journal file {number}, which has contents of messages in indexes, is missing",
                        count,
                    )
                continue
            found_again += self._check_log(number, path)
        if found_again:
            self.result.messages += found_again
            self._note(
                f"{found_again} messages whose index entries are damaged are found in journal files; a start finds them too"
            )

    def _check_log(self, number: int, path: str) -> int:
        """Check one file; returns the number of messages without entries that are in it."""
        files = self.snapshot.files
        self.on_bytes(files.size(path))
        found = self._logs.compare(number, self.scan_log(path, number))
        is_replayed = any(file.number == number for file in self.snapshot.replay.files)
        if not is_replayed:
            # A start has read the others, and reported their damage.
            header = files.read(path, 0, FILE_HEADER_BYTES)
            if not header_is_ours(header, number, self.snapshot.store_id):
                text = f"{path} has a damaged header"
                self._problem(DAMAGED, text, path=path, stretch=(0, FILE_HEADER_BYTES))
            for start, end in found.damaged:
                text = f"{path}, bytes {start} to {end}"
                if start >= found.needed_end and not found.wrong:
                    self._note(f"{text}: no record, behind all that are needed")
                else:
                    self._problem(DAMAGED, text, path=path, stretch=(start, end))
        for entry in found.wrong:
            self._problem(
                MISSING_CONTENT,
                f"message {entry.seq} of queue id {entry.queue_id}: the record in {path} at byte {entry.offset} {entry.reason}",
                queue_id=entry.queue_id,
                seq=entry.seq,
            )
        return found.found_again

    def scan_log(self, path: str, number: int) -> LogRows:
        """Read an existing journal file with contents."""
        return self.snapshot.logs.rows(path, number)


def references_of(scan: ContentScan) -> int:
    """The number of positions that shared the content at the scan's place from the start."""
    start = RECORD_HEADER_BYTES + 8
    return int.from_bytes(scan.head()[start : start + 2], "big")
