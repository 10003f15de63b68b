"""Names and directories of the store; reading a journal directory back."""

import os
import re
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path

from warren.store.record import STORE_ID_BYTES, RecordWriter, file_header_is_valid
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


@dataclass
class JournalReport:
    """What start-up found in a journal directory, beside the live messages."""

    quarantined: list[str] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    torn_bytes: int = 0
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
        header = path.read_bytes()[:40]
        if file_header_is_valid(header, b""):
            return header[12:28]
    return b""


def read_journal(
    directory: Path, lost_and_found: Path, store_id: bytes
) -> tuple[JournalReplay, JournalReport]:
    """Replay every journal file in `directory`.

    Files that are not journal files of this store are moved to `lost_and_found`; damaged stretches of good files are
    copied there. Nothing is erased (G10, W23).
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
        if not file_header_is_valid(data, store_id):
            _quarantine(path, lost_and_found, report)
            continue
        known = len(replay.damage)
        replay.feed_file(number, data)
        for damage in replay.damage[known:]:
            _keep_damage(data, damage, lost_and_found)
    replay.finish()
    report.damage = replay.damage
    report.torn_bytes = replay.torn_bytes
    return replay, report


def keep_orphans(queue: RecoveredQueue, lost_and_found: Path, store_id: bytes) -> str:
    """Write the messages of a queue that no definition names into a journal file of their own; returns its name."""
    lost_and_found.mkdir(parents=True, exist_ok=True)
    target = lost_and_found / f"queue-{queue.log.queue_id}-{time.time_ns()}.wal"
    writer = RecordWriter(store_id)
    writer.file_header(store_id, 0)
    for position in queue.in_order():
        writer.publish(position.message, [position], 0, 1)
    target.write_bytes(b"".join(writer.take()))
    return target.name


def _quarantine(path: Path, lost_and_found: Path, report: JournalReport) -> None:
    lost_and_found.mkdir(parents=True, exist_ok=True)
    target = lost_and_found / f"{time.time_ns()}-{path.name}"
    path.rename(target)
    report.quarantined.append(f"{path.name} -> {target.name}")


def _keep_damage(data: bytes, damage: Damage, lost_and_found: Path) -> None:
    lost_and_found.mkdir(parents=True, exist_ok=True)
    target = lost_and_found / f"{damage.file_number}.wal.{damage.start}-{damage.end}.damaged"
    if not target.exists():
        target.write_bytes(data[damage.start : damage.end])
