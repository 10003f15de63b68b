"""Opening the store of a vhost: the checkpoint, the files behind it, and a report of what was strange about them.

A total function of whatever the directory holds (G9, G10): what cannot be used is moved or copied to `lost+found` and
reported; nothing makes a start fail but a file system that does not answer.
"""

import re
from dataclasses import dataclass, field
from typing import Final

from warrenmq.store.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME, Checkpoint, decode_checkpoint
from warrenmq.store.content_file import number_in_row
from warrenmq.store.content_recovery import ContentRecovery
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
from warrenmq.store.file_system import FileSystem
from warrenmq.store.layout import PERSISTENT_NAME, QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.queue_store import QueueStore
from warrenmq.store.record import (
    CONTENT_MAGIC,
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    RecordWriter,
    crc_seed,
    file_header_is_valid,
    file_header_is_whole,
    file_header_number,
    next_header,
)
from warrenmq.store.recovery import Damage, JournalReplay
from warrenmq.store.store_settings import StoreSettings
from warrenmq.store.vhost_store import VhostStore

# How far a record is looked for in a file whose header is damaged.
_SEARCH_BYTES: Final = 4194304
_CONTENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.rdq")
_SEGMENT_NAME: Final = re.compile(r"(0|[1-9][0-9]{0,9})\.idx(\.new)?")
_QUEUE_NAME: Final = re.compile(r"[1-9][0-9]{0,9}")


@dataclass
class StoreReport:
    """What a start found, beside the live messages."""

    # Which checkpoint was used: its name, or "" when there was none that could be.
    checkpoint: str = ""
    # It has its second name only: the node ended between the two renames that put the next one in place.
    is_between_checkpoints: bool = False
    generation: int = 0
    bytes_read: int = 0
    journal_files: int = 0
    # `name -> name in lost+found`.
    quarantined: list[str] = field(default_factory=list)
    # The same, for files that were just being made when the node ended: nothing says that they ever held anything.
    unfinished: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    # Unfinished writes at the ends of journal files.
    torn: list[Damage] = field(default_factory=list)
    # Files whose header is damaged, and whose records are used.
    damaged_headers: list[str] = field(default_factory=list)
    # Content files that should be there, positions whose content is not, releases of contents nobody knows.
    missing: list[str] = field(default_factory=list)
    # Journal files that should be there, as text with their sizes.
    missing_journal: list[str] = field(default_factory=list)
    # References to contents that count as not given up, since damage hides whether they were.
    kept_references: int = 0
    missing_contents: int = 0
    # Was the index rebuilt from its segments? Damaged stretches found in doing so.
    is_rebuilt: bool = False
    index_damage: int = 0


def read_store(
    files: FileSystem, store_id: bytes, settings: StoreSettings
) -> tuple[VhostStore, JournalReplay, StoreReport]:
    """The store as it was, without its queues: those are adopted when the definitions are known (`VhostStore.adopt`)."""
    report = StoreReport()
    store = VhostStore(store_id, settings)
    for directory in (JOURNAL_DIRECTORY, QUEUES_NAME, PERSISTENT_NAME):
        files.make_directories(directory)
    if files.exists(TRANSIENT_NAME):
        files.remove_tree(TRANSIENT_NAME)
    files.make_directories(TRANSIENT_NAME)
    checkpoint = _read_checkpoint(files, store_id, report)
    rebuilt: RebuiltIndex | None = None
    has_queues = len(files.list_names(QUEUES_NAME)) > 0
    # Without segments too: only the checkpoint knew where compaction has put what the journal refers to.
    if checkpoint is None and (has_queues or files.list_names(PERSISTENT_NAME)):
        rebuilt = rebuild_index(files, store_id, settings.segment_entries)
        checkpoint = rebuilt.checkpoint
        # A node that is killed before its first checkpoint has lost none.
        report.is_rebuilt = has_queues or len(report.quarantined) > 0
        report.index_damage = rebuilt.damaged_count
        report.quarantined.extend(rebuilt.quarantined)
    replay = _read_journal(files, store_id, settings, checkpoint, store, report)
    _read_contents(files, store, checkpoint, rebuilt, replay, report)
    store.restore(checkpoint, replay)
    return store, replay, report


def clear_queues(
    files: FileSystem, store: VhostStore, next_queue_id: int, report: StoreReport
) -> None:
    """Bring `queues` in line with `store`, which has adopted its queues.

    Directories of deleted queues (ids below `next_queue_id`) go, and segments that the checkpoint does not know: the
    journal has what they hold. Whatever else is not ours is moved to lost+found (W23).
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
            report.quarantined.append(quarantine(files, path))


def _clear_queue(files: FileSystem, queue: QueueStore, path: str, report: StoreReport) -> None:
    index = queue.ledger.index
    known = {f"{segment.number}.idx" for segment in index.segments} if index is not None else set()
    for name in files.list_names(path):
        if name in known:
            continue
        if _SEGMENT_NAME.fullmatch(name):
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
    """Replay the journal files that the checkpoint needs; older ones are left to be deleted.

    Files that are not journal files of this store, or a copy under another number (its acks would be missing), are moved
    to `lost+found`; damaged stretches of good files are copied there, and so are unfinished writes, from which a
    damaged last record cannot be told.
    """
    replay = JournalReplay(store_id, checkpoint, settings.segment_entries)
    # Files of which not even the header was written, by number.
    headless: dict[int, str] = {}
    numbers, strange = journal_numbers(files)
    for path in strange:
        report.quarantined.append(quarantine(files, path))
    if checkpoint is not None:
        # One that was rebuilt names no file.
        replay.next_file_number = max(replay.next_file_number, checkpoint.head.first_journal_file)
    for number in numbers:
        path = journal_path(number)
        # Also of those that are moved away or about to be deleted.
        replay.next_file_number = max(replay.next_file_number, number + 1)
        if checkpoint is not None and number < checkpoint.head.first_journal_file:
            store.files.needs.delete_later(path)
            continue
        data = read_whole(files, path)
        report.bytes_read += len(data)
        if not _is_ours(data, FILE_MAGIC, number, store_id, path, report):
            put_aside = quarantine(files, path)
            if _is_begun(data, FILE_MAGIC, number, store_id):
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
        # What a killed process has written counts from now on, also when the power fails before the kernel wrote it; the
        # mark of an orderly stop may be among it.
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


def _is_begun(data: bytes, magic: bytes, number: int, store_id: bytes) -> bool:
    """Is there at the beginning of `data`, where there is no whole header, nothing but a part of one?"""
    writer = RecordWriter(store_id)
    writer.start_file(magic, number)
    return b"".join(writer.take()).startswith(data[:FILE_HEADER_BYTES].rstrip(b"\0"))


def _add_headless(headless: dict[int, str], needed: set[int], report: StoreReport) -> None:
    """Files without a header and records, by number: those that nothing refers to were never finished."""
    for number, put_aside in headless.items():
        (report.quarantined if number in needed else report.unfinished).append(put_aside)


def _missing_journal(replay: JournalReplay) -> list[str]:
    """The journal files that should be there. Only the one before each that is there is known."""
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
    """Does `data`, the beginning of a file, belong to file `number` of this store?"""
    if file_header_is_valid(data, magic, store_id):
        return file_header_number(data) == number
    if file_header_is_whole(data):
        # Of another kind, a later version, or another store.
        return False
    if next_header(data, FILE_HEADER_BYTES, crc_seed(store_id, number)) == len(data):
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
        elif name.endswith(".rdq.new"):
            # A copy that was never finished.
            store.files.needs.delete_later(f"{PERSISTENT_NAME}/{name}")
        else:
            report.quarantined.append(quarantine(files, f"{PERSISTENT_NAME}/{name}"))
    for number in sorted(numbers):
        path = store.contents.persistent.path_of(number)
        if files.size(path) == 0:
            # Made, and then the power failed.
            files.unlink(path)
            continue
        header = files.read(path, 0, FILE_HEADER_BYTES)
        if not file_header_is_valid(header, CONTENT_MAGIC, store.store_id):
            header = files.read(path, 0, _SEARCH_BYTES)
        if not _is_ours(header, CONTENT_MAGIC, number, store.store_id, path, report):
            put_aside = quarantine(files, path)
            if _is_begun(header, CONTENT_MAGIC, number, store.store_id):
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
