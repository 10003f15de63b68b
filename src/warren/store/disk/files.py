"""Names and directories of the store; reading a journal directory back."""

import contextlib
import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from warren.store.record import (
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    STORE_ID_BYTES,
    RecordWriter,
    file_header_is_valid,
    file_header_number,
)
from warren.store.recovery import Damage, JournalReplay, RecoveredQueue

_JOURNAL_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.wal")


def journal_path(directory: Path, number: int) -> Path:
    """Path of a journal file."""
    return directory / f"{number}.wal"


def sync_directory(directory: Path) -> None:
    """Make created and renamed names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Make `path` and what is missing above it, each name durable in its parent (W28)."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o750, exist_ok=True)
        # Above the data directory there may be one that we may pass through but not read.
        with contextlib.suppress(PermissionError):
            sync_directory(directory.parent)


@dataclass
class JournalReport:
    """What start-up found in a journal directory, beside the live messages."""

    quarantined: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    # Unfinished writes at the ends of files.
    torn: list[Damage] = field(default_factory=list)
    bytes_read: int = 0


def load_store_id(directory: Path) -> bytes:
    """The store id of a vhost directory; made and synced at first use."""
    path = directory / "store_id"
    try:
        store_id = bytes.fromhex(path.read_text().strip())
        if len(store_id) == STORE_ID_BYTES:
            return store_id
    except (FileNotFoundError, ValueError):
        pass
    found = _store_id_of_journal(directory / "journal")
    store_id = found or secrets.token_bytes(STORE_ID_BYTES)
    temporary = path.with_suffix(".new")
    with open(temporary, "w", encoding="ascii") as file:
        file.write(store_id.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_directory(directory)
    return store_id


def _store_id_of_journal(directory: Path) -> bytes:
    # The id file is lost but the journal is there: every journal file carries the id.
    for path in sorted(directory.glob("*.wal")):
        with open(path, "rb") as file:
            header = file.read(FILE_HEADER_BYTES)
        if file_header_is_valid(header, FILE_MAGIC, b""):
            return header[12:28]
    return b""


def read_journal(
    directory: Path, lost_and_found: Path, store_id: bytes
) -> tuple[JournalReplay, JournalReport]:
    """Replay every journal file in `directory`.

    Files that are not journal files of this store, or a copy under another number (its acks would be missing), are moved
    to `lost_and_found`; damaged stretches of good files are copied there, and so are unfinished writes, from which a
    damaged last record cannot be told. Nothing is erased (G10, W23).
    """
    replay = JournalReplay(store_id)
    report = JournalReport()
    numbers: list[int] = []
    for path in sorted(directory.iterdir()):
        match = _JOURNAL_NAME.fullmatch(path.name)
        if match and path.is_file():
            numbers.append(int(match.group(1)))
        else:
            _quarantine(path, lost_and_found, report)
    for number in sorted(numbers):
        path = journal_path(directory, number)
        data = path.read_bytes()
        report.bytes_read += len(data)
        if not file_header_is_valid(data, FILE_MAGIC, store_id) or file_header_number(data) != number:
            _quarantine(path, lost_and_found, report)
            continue
        known, known_torn = len(replay.damage), len(replay.torn)
        replay.feed_file(number, data)
        for damage in replay.damage[known:] + replay.torn[known_torn:]:
            _keep_damage(data, damage, lost_and_found)
    replay.finish()
    report.damage = replay.damage
    report.torn = replay.torn
    return replay, report


def keep_orphans(queue: RecoveredQueue, lost_and_found: Path, store_id: bytes) -> str:
    """Write the messages of a queue that no definition names into a journal file of their own; returns its name."""
    target = lost_and_found / f"queue-{queue.log.queue_id}-{time.time_ns()}.wal"
    writer = RecordWriter(store_id)
    writer.file_header(store_id, 0)
    for position in queue.in_order():
        writer.publish(position.message, [position], 0, 1)
    _keep(target, b"".join(writer.take()))
    return target.name


def _quarantine(path: Path, lost_and_found: Path, report: JournalReport) -> None:
    make_directories(lost_and_found)
    target = lost_and_found / f"{time.time_ns()}-{path.name}"
    path.rename(target)
    report.quarantined.append(f"{path.name} -> {target.name}")


def _keep_damage(data: bytes, damage: Damage, lost_and_found: Path) -> None:
    damaged = data[damage.start : damage.end]
    target = lost_and_found / f"{damage.file_number}.wal.{damage.start}-{damage.end}.damaged"
    # The zeros of a file that grew, and then the power failed, are nothing worth keeping.
    if damaged.strip(b"\0") and not target.exists():
        _keep(target, damaged)


def _keep(target: Path, data: bytes) -> None:
    # Synced: the journal deletes its own copy as soon as it needs nothing else of the file.
    make_directories(target.parent)
    with open(target, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(target.parent)
