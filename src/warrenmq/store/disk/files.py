"""The files and directories of a vhost's store: their names, and safe ways to write and move them.

Most functions take the vhost's directory as a `FileSystem`. The functions that take a `Path` are
for the directories above it.
"""

import contextlib
import errno
import os
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from warrenmq.store.file_system import FileHandle, FileSystem
from warrenmq.store.model.layout import JOURNAL_NAME, PERSISTENT_NAME, QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.model.message import Message, Position
from warrenmq.store.records import record
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.records.content import decode_content
from warrenmq.store.recovery import RecoveredQueue

JOURNAL_DIRECTORY: Final = JOURNAL_NAME
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
    """Make a file durable that other code has written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: Path) -> None:
    """Create `path` and its missing parents, each name durable in its parent (W28)."""
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for directory in reversed(missing):
        directory.mkdir(mode=0o750, exist_ok=True)
        # A directory above the data directory may be one that this process may enter but not read.
        with contextlib.suppress(PermissionError):
            sync_directory(directory.parent)


def read_whole(files: FileSystem, path: str) -> bytes:
    """Read a whole file."""
    return files.read(path, 0, files.size(path))


def put_whole(files: FileSystem, path: str, data: bytes) -> None:
    """Write a file durably and in one step: after a failure the old one or the new one is whole."""
    new_path = write_new(files, path, [data])
    try:
        files.rename(new_path, path)
    except OSError:
        remove_if_there(files, new_path)
        raise
    files.sync_directory(path.rpartition("/")[0])


def write_new(files: FileSystem, path: str, parts: list[bytes]) -> str:
    """Write and sync a new file beside `path`; returns its path. An error leaves no file."""
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
    """Create an empty file that will replace `path`; returns its path and a handle."""
    new_path = path + ".new"
    try:
        return new_path, files.create(new_path)
    except FileExistsError:
        # A crash left this file behind.
        files.unlink(new_path)
        return new_path, files.create(new_path)


def remove_if_there(files: FileSystem, path: str) -> None:
    """Delete a file that nothing needs; errors are ignored."""
    with contextlib.suppress(OSError):
        files.unlink(path)


def load_store_id(
    files: FileSystem, make_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """The store id of a vhost's directory; made of random bytes and synced at first use."""
    store_id, is_written = known_store_id(files)
    if not is_written:
        store_id = store_id or make_bytes(record.STORE_ID_BYTES)
        put_whole(files, STORE_ID_NAME, (store_id.hex() + "\n").encode("ascii"))
    return store_id


def known_store_id(files: FileSystem) -> tuple[bytes, bool]:
    """The store id (empty: there is none), and whether the `store_id` file has it.

    The headers of the store's files have the id as well, so a lost or damaged `store_id` file costs
    nothing.
    """
    known = b""
    with contextlib.suppress(FileNotFoundError, ValueError):
        known = bytes.fromhex(read_whole(files, STORE_ID_NAME).decode("ascii").strip())
    headers = _ids_in_headers(files)
    usual = headers.most_common(1)
    if len(known) == record.STORE_ID_BYTES:
        # Believe the `store_id` file if any header has its id, or if fewer than two headers agree
        # on another id: a single file of another store proves nothing.
        if known in headers or not usual or usual[0][1] < 2:
            return known, True
    return (usual[0][0] if usual else b""), False


def _ids_in_headers(files: FileSystem) -> Counter[bytes]:
    """Count the store ids in the headers of checkpoints and journal files."""
    found: Counter[bytes] = Counter()
    for _path, magic, header in checkpoint_and_journal_headers(files):
        if record.file_header_is_valid(header, magic, b""):
            found[header[12:28]] += 1
    if not found and is_directory(files, PERSISTENT_NAME):
        # Nothing is left but files that have left the journal.
        for name in files.list_names(PERSISTENT_NAME):
            path = f"{PERSISTENT_NAME}/{name}"
            if _JOURNAL_NAME.fullmatch(name) and files.is_file(path):
                header = files.read(path, 0, record.FILE_HEADER_BYTES)
                if record.file_header_is_valid(header, record.FILE_MAGIC, b""):
                    found[header[12:28]] += 1
    return found


def checkpoint_and_journal_headers(files: FileSystem) -> Iterator[tuple[str, bytes, bytes]]:
    """The path, the right magic and the header, maybe damaged, of checkpoints and journal files."""
    paths = [(CHECKPOINT_NAME, record.CHECKPOINT_MAGIC), (PREVIOUS_NAME, record.CHECKPOINT_MAGIC)]
    if is_directory(files, JOURNAL_DIRECTORY):
        for name in files.list_names(JOURNAL_DIRECTORY):
            if name.endswith(".wal"):
                paths.append((f"{JOURNAL_DIRECTORY}/{name}", record.FILE_MAGIC))
    for path, magic in paths:
        if files.is_file(path):
            yield path, magic, files.read(path, 0, record.FILE_HEADER_BYTES)


def is_directory(files: FileSystem, path: str) -> bool:
    """Whether `path` is a directory, which no file, socket, broken or circular link is."""
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
    """Move things that block the name of a vhost's file or directory to `lost+found`.

    Moved is whatever has the name of one of the directories and is no directory, or the name of one
    of the files and is no file, so that the store can use the name. Returns `name -> new name` of
    each.
    """
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
    """The numbers of the journal files, ascending, and the paths of other things beside them."""
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
    """Write an undefined queue's messages to a journal file in lost+found; returns its name."""
    writer = record.RecordWriter(store_id)
    writer.start_file(record.FILE_MAGIC, 0)
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
    """The content of a recovered position, at the place that the journal names; None if absent."""
    content = position.content_ref
    if content is None:
        return None
    path = f"{PERSISTENT_NAME}/{content.file}.rdq"
    if not files.is_file(path):
        return None
    data = files.read(path, content.offset, content.stored_bytes)
    seed = record.crc_seed(store_id, content.file)
    if record.record_length(data, 0, seed) != len(data) or not record.body_is_valid(
        data, 0, len(data)
    ):
        return None
    stored = decode_content(data, record.RECORD_HEADER_BYTES, len(data))
    return stored.message if stored is not None and stored.id == content.id else None


def quarantine(files: FileSystem, path: str) -> str:
    """Move a foreign file or directory to `lost+found`; returns `name -> new name`.

    The move need not be durable: after a power failure the next start finds and moves it again.
    """
    files.make_directories(LOST_AND_FOUND)
    name = path.rpartition("/")[2]
    target = _free_name(files, name)
    files.rename(path, f"{LOST_AND_FOUND}/{target}")
    return f"{name} -> {target}"


def put_aside(files: FileSystem, path: str) -> str:
    """Move an unusable file to `lost+found`; returns its new path. FileNotFoundError if gone.

    The new name is durable on return, since the caller puts another file under the old one: a power
    failure must not cost the file both names.
    """
    files.make_directories(LOST_AND_FOUND)
    target = f"{LOST_AND_FOUND}/{_free_name(files, path.replace('/', '-'))}"
    files.rename(path, target)
    files.sync_directory(LOST_AND_FOUND)
    return target


def keep_damage(files: FileSystem, name: str, data: bytes) -> None:
    """Copy damaged bytes to `lost+found`, durably; skips zeros and a name that exists already.

    The store deletes the file with the damage as soon as nothing else in it is needed. Zeros are
    not worth keeping: a file that grew just before a power failure ends in them.
    """
    path = f"{LOST_AND_FOUND}/{name}"
    if data.strip(b"\0") and not files.exists(path):
        files.make_directories(LOST_AND_FOUND)
        put_whole(files, path, data)


def _free_name(files: FileSystem, name: str) -> str:
    # Number the names instead of adding the time: files keep their own times, and a start on a
    # simulated disk can be repeated.
    number = 1
    target = name
    while files.exists(f"{LOST_AND_FOUND}/{target}"):
        number += 1
        target = f"{name}.{number}"
    return target
