"""Names and directories of a vhost's store.

The functions take the vhost's directory as a `FileSystem`; those for a `Path` are for what lies above it.
"""

import contextlib
import errno
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from warrenmq.store.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.content_records import decode_content
from warrenmq.store.file_system import FileHandle, FileSystem
from warrenmq.store.layout import PERSISTENT_NAME, QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.message import Message, Position
from warrenmq.store.record import (
    CHECKPOINT_MAGIC,
    FILE_HEADER_BYTES,
    FILE_MAGIC,
    RECORD_HEADER_BYTES,
    STORE_ID_BYTES,
    RecordWriter,
    body_is_valid,
    crc_seed,
    file_header_is_valid,
    record_length,
)
from warrenmq.store.recovery import RecoveredQueue

JOURNAL_DIRECTORY: Final = "journal"
LOST_AND_FOUND: Final = "lost+found"
STORE_ID_NAME: Final = "store_id"

_JOURNAL_NAME = re.compile(r"(0|[1-9][0-9]{0,17})\.wal")


def journal_path(number: int) -> str:
    """Path of a journal file, relative to the vhost's directory."""
    return f"{JOURNAL_DIRECTORY}/{number}.wal"


def sync_directory(directory: Path) -> None:
    """Make created and renamed names in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make a file durable that others have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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


def read_whole(files: FileSystem, path: str) -> bytes:
    """The content of a file."""
    return files.read(path, 0, files.size(path))


def put_whole(files: FileSystem, path: str, data: bytes) -> None:
    """Put a file with the content `data` at `path`, durably and in one step: whatever happens, what was there before is
    there whole, or this is."""
    new_path = write_new(files, path, [data])
    try:
        files.rename(new_path, path)
    except OSError:
        remove_if_there(files, new_path)
        raise
    files.sync_directory(path.rpartition("/")[0])


def write_new(files: FileSystem, path: str, parts: list[bytes]) -> str:
    """Write and sync `parts` to a file beside `path`; returns its path. Nothing is left of it when that fails."""
    new_path, handle = begin_new(files, path)
    try:
        try:
            handle.write(0, parts)
            handle.sync()
        finally:
            handle.close()
    except OSError:
        remove_if_there(files, new_path)
        raise
    return new_path


def begin_new(files: FileSystem, path: str) -> tuple[str, FileHandle]:
    """Make an empty file beside `path`, for what is to take its place; its path and a handle."""
    new_path = path + ".new"
    try:
        return new_path, files.create(new_path)
    except FileExistsError:
        # From a life before a crash.
        files.unlink(new_path)
        return new_path, files.create(new_path)


def remove_if_there(files: FileSystem, path: str) -> None:
    """Delete a file that nobody needs; it may stay if it must."""
    with contextlib.suppress(OSError):
        files.unlink(path)


def load_store_id(
    files: FileSystem, make_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """The store id of a vhost directory; made of random bytes and synced at first use."""
    store_id, is_written = known_store_id(files)
    if not is_written:
        store_id = store_id or make_bytes(STORE_ID_BYTES)
        put_whole(files, STORE_ID_NAME, (store_id.hex() + "\n").encode("ascii"))
    return store_id


def known_store_id(files: FileSystem) -> tuple[bytes, bool]:
    """The store id (empty: there is none), and whether the file that is there to say so does.

    The files of the store say it as well, so neither a lost nor a damaged id file costs anything.
    """
    known = b""
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = bytes.fromhex(read_whole(files, STORE_ID_NAME).decode("ascii").strip())
    headers = _ids_in_headers(files)
    usual = headers.most_common(1)
    if len(known) == STORE_ID_BYTES:
        # One file of another store among none of ours says nothing.
        if known in headers or not usual or usual[0][1] < 2:
            return known, True
    return (usual[0][0] if usual else b""), False


def _ids_in_headers(files: FileSystem) -> Counter[bytes]:
    """What the checkpoints and journal files say whose they are."""
    found: Counter[bytes] = Counter()
    paths = [(CHECKPOINT_NAME, CHECKPOINT_MAGIC), (PREVIOUS_NAME, CHECKPOINT_MAGIC)]
    for name in files.list_names(JOURNAL_DIRECTORY):
        if name.endswith(".wal"):
            paths.append((f"{JOURNAL_DIRECTORY}/{name}", FILE_MAGIC))
    for path, magic in paths:
        if files.is_file(path):
            header = files.read(path, 0, FILE_HEADER_BYTES)
            if file_header_is_valid(header, magic, b""):
                found[header[12:28]] += 1
    return found


def is_directory(files: FileSystem, path: str) -> bool:
    """Is there a directory at `path`? Not so a file, a link that leads nowhere or in a circle, a socket."""
    if files.is_file(path):
        return False
    try:
        files.list_names(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise
    return True


def set_aside_strange(files: FileSystem) -> list[str]:
    """Move to `lost+found` whatever has the name of one of the vhost's directories and is none, or that of one of its files
    and is none; returns `name -> new name` of each. Without that its name could not be used."""
    moved: list[str] = []
    names = set(files.list_names(""))
    if LOST_AND_FOUND in names and not is_directory(files, LOST_AND_FOUND):
        place = f"{LOST_AND_FOUND}.strange"
        files.rename(LOST_AND_FOUND, place)
        moved.append(quarantine(files, place))
    for name in (JOURNAL_DIRECTORY, QUEUES_NAME, PERSISTENT_NAME, TRANSIENT_NAME):
        if name in names and not is_directory(files, name):
            moved.append(quarantine(files, name))
    for name in (STORE_ID_NAME, CHECKPOINT_NAME, PREVIOUS_NAME):
        if name in names and not files.is_file(name):
            moved.append(quarantine(files, name))
    return moved


def journal_numbers(files: FileSystem) -> tuple[list[int], list[str]]:
    """Numbers of the journal files, ascending, and the paths of what else lies in their directory."""
    numbers: list[int] = []
    strange: list[str] = []
    for name in files.list_names(JOURNAL_DIRECTORY):
        path = f"{JOURNAL_DIRECTORY}/{name}"
        match = _JOURNAL_NAME.fullmatch(name)
        if match and files.is_file(path):
            numbers.append(int(match.group(1)))
        else:
            strange.append(path)
    return sorted(numbers), strange


def keep_orphans(files: FileSystem, queue: RecoveredQueue, store_id: bytes) -> str:
    """Write the messages of a queue that no definition names into a journal file of their own; returns its name."""
    writer = RecordWriter(store_id)
    writer.start_file(FILE_MAGIC, 0)
    for position in queue.in_order():
        message = position.message
        if not position.has_content:
            found = _content_of(files, position, store_id)
            if found is None:
                continue
            message = found
        writer.add_publish(message, [position], 0, 1)
    files.make_directories(LOST_AND_FOUND)
    name = _free_name(files, f"queue-{queue.ledger.queue_id}.wal")
    put_whole(files, f"{LOST_AND_FOUND}/{name}", b"".join(writer.take()))
    return name


def _content_of(files: FileSystem, position: Position, store_id: bytes) -> Message | None:
    """The content of a recovered position, from where the journal says it is."""
    content = position.content_ref
    if content is None:
        return None
    path = f"{PERSISTENT_NAME}/{content.file}.rdq"
    if not files.is_file(path):
        return None
    data = files.read(path, content.offset, content.stored_bytes)
    seed = crc_seed(store_id, content.file)
    if record_length(data, 0, seed) != len(data) or not body_is_valid(data, 0, len(data)):
        return None
    stored = decode_content(data, RECORD_HEADER_BYTES, len(data))
    return stored.message if stored is not None and stored.id == content.id else None


def quarantine(files: FileSystem, path: str) -> str:
    """Move a file or directory that is not ours to `lost+found`; returns `name -> new name`.

    The move need not be durable: after a power failure the file is strange again.
    """
    files.make_directories(LOST_AND_FOUND)
    name = path.rpartition("/")[2]
    target = _free_name(files, name)
    files.rename(path, f"{LOST_AND_FOUND}/{target}")
    return f"{name} -> {target}"


def put_aside(files: FileSystem, path: str) -> str:
    """Move a file that is given up to `lost+found`; returns its new path. FileNotFoundError when it is gone.

    Its name is durable there before that is told: what takes its old name must not cost it both.
    """
    files.make_directories(LOST_AND_FOUND)
    target = f"{LOST_AND_FOUND}/{_free_name(files, path.replace('/', '-'))}"
    files.rename(path, target)
    files.sync_directory(LOST_AND_FOUND)
    return target


def keep_damage(files: FileSystem, name: str, data: bytes) -> None:
    """Put a copy of damaged bytes into `lost+found`, durably, since the store deletes its own as soon as it needs nothing
    else of the file. Not twice; and the zeros of a file that grew, and then the power failed, are nothing worth keeping.
    """
    path = f"{LOST_AND_FOUND}/{name}"
    if data.strip(b"\0") and not files.exists(path):
        files.make_directories(LOST_AND_FOUND)
        put_whole(files, path, data)


def _free_name(files: FileSystem, name: str) -> str:
    # Numbered, not stamped with the time: files keep their own, and a start on a simulated disk can be repeated.
    number = 1
    target = name
    while files.exists(f"{LOST_AND_FOUND}/{target}"):
        number += 1
        target = f"{name}.{number}"
    return target
