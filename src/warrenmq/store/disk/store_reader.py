"""Opens a vhost's store: reads the checkpoint and the files after it, and reports damage.

Opening is a total function of the directory (G9, G10): files that cannot be used are moved to
`lost+found`, damaged bytes are copied there, and both are reported. Only a file system that does
not answer makes a start fail.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from warrenmq.store.contents.file import number_in_row
from warrenmq.store.contents.recovery import ContentRecovery
from warrenmq.store.disk.files import (
    JOURNAL_DIRECTORY,
    is_directory,
    journal_numbers,
    journal_path,
    keep_damage,
    quarantine,
    read_whole,
)
from warrenmq.store.disk.index_rebuild import RebuiltIndex, rebuild_index
from warrenmq.store.disk.log_reader import LOG_NAME
from warrenmq.store.disk.orphans import embed_contents
from warrenmq.store.file_system import FileSystem
from warrenmq.store.index.queue_store import QueueStore
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.records import record
from warrenmq.store.records.checkpoint import (
    CHECKPOINT_NAME,
    PREVIOUS_NAME,
    Checkpoint,
    decode_checkpoint,
)
from warrenmq.store.recovery import Damage, JournalReplay
from warrenmq.store.settings import StoreSettings
from warrenmq.store.vhost_store import VhostStore

# A file with a damaged header is searched this far (bytes) for a record.
_SEARCH_BYTES: Final = 4194304
_CONTENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.rdq")
_SEGMENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.idx(\.new)?")
_QUEUE_NAME: Final = re.compile(r"[1-9][0-9]{0,9}")


@dataclass
class StoreReport:
    """The findings of a start, beside the live messages."""

    # Name of the checkpoint that was used; "" without a usable one.
    checkpoint: str = ""
    # Only `checkpoint.previous` exists: the node ended between the two renames of the next
    # checkpoint.
    is_between_checkpoints: bool = False
    generation: int = 0
    bytes_read: int = 0
    journal_files: int = 0
    # Files moved to lost+found, as `name -> name in lost+found`.
    quarantined: list[str] = field(default_factory=list)
    # Files moved to lost+found that the node was just creating when it ended, as in `quarantined`:
    # nothing shows that they ever held a record.
    unfinished: list[str] = field(default_factory=list)
    # Damaged stretches of journal files.
    damage: list[Damage] = field(default_factory=list)
    # Unfinished writes at the ends of journal files.
    torn: list[Damage] = field(default_factory=list)
    # Files with a damaged header whose records are used.
    damaged_headers: list[str] = field(default_factory=list)
    # Content files that are missing, as text.
    missing: list[str] = field(default_factory=list)
    # Journal files that are missing, as text with their sizes.
    missing_journal: list[str] = field(default_factory=list)
    # References to contents that count as not released, since damage hides whether they were.
    kept_references: int = 0
    # Live positions whose content is missing.
    missing_contents: int = 0
    # The index was rebuilt from its segments.
    is_rebuilt: bool = False
    # Damaged stretches of segments, found by the rebuild.
    index_damage: int = 0


def _empty(files: FileSystem, directory: str) -> None:
    """Delete what is in `directory`, which stays: a full disk has no room for a new one."""
    for name in files.list_names(directory):
        path = f"{directory}/{name}"
        try:
            files.unlink(path)
        except OSError:
            files.remove_tree(path)


def read_store(
    files: FileSystem, store_id: bytes, settings: StoreSettings
) -> tuple[VhostStore, JournalReplay, StoreReport]:
    """Open the store; `VhostStore.adopt` adds its queues once the definitions are known."""
    report = StoreReport()
    store = VhostStore(store_id, settings)
    for directory in (JOURNAL_DIRECTORY, QUEUES_NAME, PERSISTENT_NAME, TRANSIENT_NAME):
        files.make_directories(directory)
    _empty(files, TRANSIENT_NAME)
    checkpoint = _read_checkpoint(files, store_id, report)
    rebuilt: RebuiltIndex | None = None
    has_queues = len(files.list_names(QUEUES_NAME)) > 0
    # Rebuild even without segments: only the checkpoint knew where compaction has put the contents
    # that the journal refers to.
    if checkpoint is None and (has_queues or files.list_names(PERSISTENT_NAME)):
        rebuilt = rebuild_index(files, store_id, settings.segment_entries)
        checkpoint = rebuilt.checkpoint
        # A node that was killed before its first checkpoint has lost no checkpoint.
        report.is_rebuilt = has_queues or len(report.quarantined) > 0
        report.index_damage = rebuilt.damaged_count
        report.quarantined.extend(rebuilt.quarantined)
    replay = _read_journal(files, store_id, settings, checkpoint, store, report)
    _read_contents(files, store, checkpoint, rebuilt, replay, report)
    _measure_rewritten(files, replay)
    store.restore(checkpoint, replay)
    return store, replay, report


def clear_queues(
    files: FileSystem, store: VhostStore, next_queue_id: int, report: StoreReport
) -> None:
    """Clear the directory `queues` of entries unknown to `store`, which has adopted its queues.

    Directories of deleted queues (ids below `next_queue_id`) are deleted, and so are segments that
    the checkpoint does not know, since the journal has their messages. Any other unknown file is
    moved to lost+found (W23).
    """
    for name in files.list_names(QUEUES_NAME):
        path = f"{QUEUES_NAME}/{name}"
        queue = store.queues.get(int(name)) if _QUEUE_NAME.fullmatch(name) else None
        if not is_directory(files, path):
            report.quarantined.append(quarantine(files, path))
        elif queue is not None:
            _clear_queue(files, queue, path, report)
        elif _QUEUE_NAME.fullmatch(name) and int(name) < next_queue_id:
            files.remove_tree(path)
        else:
            if _QUEUE_NAME.fullmatch(name):
                embed_contents(files, store.store_id, int(name))
            report.quarantined.append(quarantine(files, path))


def _clear_queue(files: FileSystem, queue: QueueStore, path: str, report: StoreReport) -> None:
    index = queue.ledger.index
    known = {f"{segment.number}.idx" for segment in index.segments} if index is not None else set()
    for name in files.list_names(path):
        is_file = files.is_file(f"{path}/{name}")
        if name in known and is_file:
            continue
        if _SEGMENT_NAME.fullmatch(name) and is_file:
            files.unlink(f"{path}/{name}")
        else:
            report.quarantined.append(quarantine(files, f"{path}/{name}"))


def _read_checkpoint(files: FileSystem, store_id: bytes, report: StoreReport) -> Checkpoint | None:
    is_damaged = False
    for name in (CHECKPOINT_NAME, PREVIOUS_NAME):
        if not files.exists(name):
            continue
        data = read_whole(files, name)
        report.bytes_read += len(data)
        checkpoint = decode_checkpoint(data, store_id)
        if checkpoint is not None:
            report.checkpoint = name
            report.is_between_checkpoints = name == PREVIOUS_NAME and not is_damaged
            report.generation = checkpoint.head.generation
            return checkpoint
        is_damaged = True
        report.quarantined.append(quarantine(files, name))
    return None


def _read_journal(
    files: FileSystem,
    store_id: bytes,
    settings: StoreSettings,
    checkpoint: Checkpoint | None,
    store: VhostStore,
    report: StoreReport,
) -> JournalReplay:
    """Replay the journal files that the checkpoint needs; the next checkpoint deletes older ones.

    Files that are not journal files of this store are moved to `lost+found`, and so is a copy under
    another number, since its acks would be missing. Damaged stretches of good files are copied
    there; so are unfinished writes, since a damaged last record looks the same.
    """
    replay = JournalReplay(store_id, checkpoint, settings.segment_entries)
    # Files without even a whole header, by number: their names in lost+found.
    headless: dict[int, str] = {}
    numbers, strange = journal_numbers(files)
    for path in strange:
        report.quarantined.append(quarantine(files, path))
    if checkpoint is not None:
        # A rebuilt checkpoint names no journal file.
        replay.next_file_number = max(replay.next_file_number, checkpoint.head.first_journal_file)
    for number in numbers:
        path = journal_path(number)
        # The next file number is above that of every file, even one that is moved away or deleted.
        replay.next_file_number = max(replay.next_file_number, number + 1)
        if checkpoint is not None and number < checkpoint.head.first_journal_file:
            log = replay.logs.get(number)
            if log is None:
                store.files.needs.delete_later(path)
            else:
                # The node ended before it had moved the file.
                log.size_bytes = files.size(path)
                store.checkpoints.move_later(log)
            continue
        data = read_whole(files, path)
        report.bytes_read += len(data)
        if not _is_ours(data, record.FILE_MAGIC, number, store_id, path, report):
            put_aside = quarantine(files, path)
            if _is_begun(data, record.FILE_MAGIC, number, store_id):
                headless[number] = put_aside
            else:
                report.quarantined.append(put_aside)
            continue
        report.journal_files += 1
        known, known_torn = len(replay.damage), len(replay.torn)
        replay.feed_file(number, data)
        for damage in replay.damage[known:] + replay.torn[known_torn:]:
            name = f"{number}.wal.{damage.start}-{damage.end}.damaged"
            keep_damage(files, name, data[damage.start : damage.end])
    if replay.files:
        # Sync the last file: bytes that a killed process wrote count from here on, even if the
        # power fails before the kernel has written them; the mark of an orderly stop may be among
        # them.
        handle = files.open(journal_path(replay.files[-1].number))
        try:
            handle.sync()
        finally:
            handle.close()
    replay.finish()
    _add_headless(headless, {number for number, _ in replay.missing}, report)
    report.missing_journal = _missing_journal(replay)
    report.kept_references = len(replay.doubtful)
    report.damage = replay.damage
    report.torn = replay.torn
    return replay


def _measure_rewritten(files: FileSystem, replay: JournalReplay) -> None:
    """Take the sizes of complete segments that a rewrite has made longer since the checkpoint."""
    for queue in replay.queues.values():
        index = queue.ledger.index
        if index is None:
            continue
        for segment in index.segments:
            is_complete = (segment.number + 1) * index.segment_entries <= queue.ledger.indexed_upto
            if not segment.has_places or not is_complete:
                continue
            path = index.path_of(segment)
            if files.is_file(path):
                size = max(int(segment.size_bytes), files.size(path))
                segment.size_bytes = segment.written_bytes = size


def _add_log(
    files: FileSystem, store: VhostStore, replay: JournalReplay, path: str, report: StoreReport
) -> None:
    """Take over a file that has left the journal, or have it deleted if no index needs it."""
    number = int(path.rpartition("/")[2].removesuffix(".wal"))
    # The journal must not reach the number again: its file would take this one's place.
    replay.next_file_number = max(replay.next_file_number, number + 1)
    log = replay.logs.get(number)
    if log is None:
        header = files.read(path, 0, record.FILE_HEADER_BYTES)
        if (
            record.file_header_is_valid(header, record.FILE_MAGIC, store.store_id)
            and record.file_header_number(header) == number
        ):
            store.files.needs.delete_later(path)
        else:
            report.quarantined.append(quarantine(files, path))
        return
    log.is_moved = True
    log.size_bytes = files.size(path)


def _is_begun(data: bytes, magic: bytes, number: int, store_id: bytes) -> bool:
    """Whether `data`, which has no whole header, begins with nothing but a part of its header."""
    writer = record.RecordWriter(store_id)
    writer.start_file(magic, number)
    return b"".join(writer.take()).startswith(data[: record.FILE_HEADER_BYTES].rstrip(b"\0"))


def _add_headless(headless: dict[int, str], needed: set[int], report: StoreReport) -> None:
    """Report files without header and records; one that nothing refers to was never finished."""
    for number, put_aside in headless.items():
        (report.quarantined if number in needed else report.unfinished).append(put_aside)


def _missing_journal(replay: JournalReplay) -> list[str]:
    """One line for each missing journal file; of others only each file's predecessor is known."""
    numbers = [int(file.number) for file in replay.files]
    lines: list[str] = []
    for number, size in replay.missing:
        before = max(
            (known for known in numbers if known < number), default=int(replay.first_file) - 1
        )
        line = f"{journal_path(number)} with {size} bytes of messages and acks"
        if 0 < before + 1 < number:
            line += f", and whatever there was of {before + 1} to {number - 1}"
        lines.append(line)
    return lines


def _is_ours(
    data: bytes, magic: bytes, number: int, store_id: bytes, path: str, report: StoreReport
) -> bool:
    """Whether `data`, the beginning of a file, belongs to file `number` of this store."""
    if record.file_header_is_valid(data, magic, store_id):
        return record.file_header_number(data) == number
    if record.file_header_is_whole(data):
        # The file is of another kind, a later version, or another store.
        return False
    if record.next_header(data, record.FILE_HEADER_BYTES, record.crc_seed(store_id, number)) == len(
        data
    ):
        return False
    # The checksums of records begin with the file's number: only the header is damaged.
    report.damaged_headers.append(path)
    return True


def _read_contents(
    files: FileSystem,
    store: VhostStore,
    checkpoint: Checkpoint | None,
    rebuilt: RebuiltIndex | None,
    replay: JournalReplay,
    report: StoreReport,
) -> None:
    recovery = ContentRecovery(store.contents.persistent)
    if checkpoint is not None and rebuilt is None:
        head = checkpoint.head
        if not recovery.restore(
            checkpoint.content_rows, head.next_content_id, head.next_content_file
        ):
            report.missing.append("the checkpoint's list of content files contradicts itself")
    headless: dict[int, str] = {}
    numbers: list[int] = []
    for name in files.list_names(PERSISTENT_NAME):
        match = _CONTENT_NAME.fullmatch(name)
        if match and files.is_file(f"{PERSISTENT_NAME}/{name}"):
            numbers.append(int(match.group(1)))
        elif LOG_NAME.fullmatch(name) and files.is_file(f"{PERSISTENT_NAME}/{name}"):
            _add_log(files, store, replay, f"{PERSISTENT_NAME}/{name}", report)
        elif name.endswith(".rdq.new"):
            # The copy of a compaction that was never finished.
            store.files.needs.delete_later(f"{PERSISTENT_NAME}/{name}")
        else:
            report.quarantined.append(quarantine(files, f"{PERSISTENT_NAME}/{name}"))
    in_journal = {file.number for file in replay.files}
    for log in replay.logs.values():
        is_retained = log.number < replay.first_file or rebuilt is not None
        if is_retained and log.number not in in_journal and log.size_bytes == 0:
            report.missing.append(
                f"{log.moved_path} with the contents of {log.live_entries} messages"
            )
    for number in sorted(numbers):
        path = store.contents.persistent.path_of(number)
        if files.size(path) == 0:
            # The power failed right after the file was created.
            files.unlink(path)
            continue
        header = files.read(path, 0, record.FILE_HEADER_BYTES)
        if not record.file_header_is_valid(header, record.CONTENT_MAGIC, store.store_id):
            header = files.read(path, 0, _SEARCH_BYTES)
        if not _is_ours(header, record.CONTENT_MAGIC, number, store.store_id, path, report):
            put_aside = quarantine(files, path)
            if _is_begun(header, record.CONTENT_MAGIC, number, store.store_id):
                headless[number] = put_aside
            else:
                report.quarantined.append(put_aside)
            continue
        recovery.restore_file(number, files.size(path))
    contents = list(replay.new_contents)
    if rebuilt is not None:
        contents = rebuilt.with_references_of(contents)
    needed = {
        int(number_in_row(row))
        for row in (checkpoint.content_rows if checkpoint is not None else [])
    }
    needed.update(int(content.file) for content, live in contents if live > 0)
    _add_headless(headless, needed, report)
    for content, live in contents:
        if not recovery.add_recovered(content, live):
            report.missing_contents += live
    for content in replay.doubtful:
        recovery.keep(content.id, content.references, content.stored_bytes)
    for content in replay.releases:
        recovery.release(content.id, content.references, content.stored_bytes)
    recovery.finish()
    report.missing.extend(recovery.missing_paths)
    for path in recovery.strange_paths:
        report.quarantined.append(quarantine(files, path))
