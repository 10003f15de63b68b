"""A data directory as the tools see it: its lock, its definitions, its vhosts.

A backup has the same layout, so this module reads backups as well. Nothing is written: the database
is opened in a copy, since SQLite creates files beside a database that a node left in a crash.
"""

import contextlib
import fcntl
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from warrenmq.broker.definitions.metadata import Definitions, MetadataError, PutVhost
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.store.disk.files import LOST_AND_FOUND
from warrenmq.store.disk.format_version import NewerFormatError, refuse_newer_formats
from warrenmq.store.disk.local_file_system import LocalFileSystem

DATABASE_NAME: Final = "node.sqlite"
# The directory below which jobs read and write that are started over HTTP.
JOBS_NAME: Final = "jobs"
# The directory with the data of all nodes that share this one, but for the first.
WORKERS_NAME: Final = "workers"
LOCK_NAME: Final = "lock"
VHOSTS_PATH: Final = "msg_stores/vhosts"
# Stands for the name of a queue where a bucket of delayed messages is shown.
DELAYED: Final = b"delayed messages"

_VHOST_NAME: Final = re.compile(r"[1-9][0-9]{0,18}")


class ToolError(Exception):
    """Says in one line why a tool cannot do its work; nothing was changed."""


@dataclass
class VhostDirectory:
    """The directory of one vhost's store.

    `definition` is None when no definition names the directory, or none can be read.
    """

    id: int
    path: Path
    definition: PutVhost | None

    @property
    def name(self) -> str:
        """The vhost's name as text for people; `(id ID)` without a definition."""
        if self.definition is None:
            return f"(id {self.id})"
        return self.definition.name.decode("utf-8", "replace")


@dataclass
class DataDirectory:
    """A data directory: definitions and vhosts.

    `definitions` are empty when they cannot be read; `definitions_error` then says why.
    """

    path: Path
    definitions: Definitions = field(default_factory=Definitions)
    definitions_error: str = ""
    vhosts: list[VhostDirectory] = field(default_factory=list)
    # Defined vhosts without a directory.
    missing: list[PutVhost] = field(default_factory=list)
    # Names that are no part of a data directory.
    strange: list[str] = field(default_factory=list)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    """Open a data directory and keep nodes out of it. Raises ToolError, also when a node has it."""
    if not path.is_dir():
        raise ToolError(f"{path} is not a directory")
    if not (path / DATABASE_NAME).exists() and not (path / VHOSTS_PATH).is_dir():
        raise ToolError(
            f"{path} is not a data directory: it has neither {DATABASE_NAME} nor {VHOSTS_PATH}"
        )
    try:
        with locked(path):
            refuse_newer_formats(path / VHOSTS_PATH)
            yield read(path)
    except NewerFormatError as error:
        raise ToolError(str(error)) from None
    except OSError as error:
        raise ToolError(f"{path}: {error}") from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep nodes, not other tools, out of a data directory. Raises ToolError if a node has it."""
    try:
        # Do not create a missing lock file: without one no node ever ran here, and the medium may
        # be read-only.
        descriptor = os.open(path / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(
                f"{path} is in use by a running node; stop it, or look at a backup"
            ) from None
        yield
    finally:
        os.close(descriptor)


def read(path: Path) -> DataDirectory:
    """Read the definitions and vhosts of a data directory that nothing changes meanwhile."""
    directory = DataDirectory(path)
    _read_definitions(directory)
    by_id = {definition.id: definition for definition in directory.definitions.vhosts}
    found: set[int] = set()
    vhosts = path / VHOSTS_PATH
    names = sorted(os.listdir(vhosts)) if vhosts.is_dir() else []
    for name in names:
        if _VHOST_NAME.fullmatch(name) and (vhosts / name).is_dir():
            directory.vhosts.append(VhostDirectory(int(name), vhosts / name, by_id.get(int(name))))
            found.add(int(name))
        elif name != LOST_AND_FOUND:
            directory.strange.append(f"{VHOSTS_PATH}/{name}")
    directory.vhosts.sort(key=lambda vhost: vhost.id)
    directory.missing = [
        definition for vhost_id, definition in by_id.items() if vhost_id not in found
    ]
    return directory


@contextlib.contextmanager
def files_of(vhost: VhostDirectory) -> Iterator[LocalFileSystem]:
    """The vhost's directory as a file system."""
    files = LocalFileSystem(vhost.path)
    try:
        yield files
    finally:
        files.release()


def _read_definitions(directory: DataDirectory) -> None:
    database = directory.path / DATABASE_NAME
    if not database.exists():
        directory.definitions_error = f"{DATABASE_NAME} is missing"
        return
    with tempfile.TemporaryDirectory(prefix="warren-") as copy:
        for suffix in ("", "-wal"):
            part = directory.path / (DATABASE_NAME + suffix)
            if part.exists():
                shutil.copyfile(part, Path(copy) / part.name)
        try:
            metadata = SqliteMetadata(Path(copy) / DATABASE_NAME)
            try:
                directory.definitions = metadata.load()
            finally:
                metadata.close()
        except (MetadataError, sqlite3.Error) as error:
            directory.definitions_error = str(error).replace(str(Path(copy)), str(directory.path))
            return
    if not directory.definitions.vhosts:
        directory.definitions_error = f"{DATABASE_NAME} defines no vhost"


def level_names(definitions: Definitions, vhost: bytes) -> dict[int, bytes]:
    """The names of a vhost's queues by id.

    The levels of a priority queue have ids of their own, and the name of their queue.
    """
    names = {queue.id: queue.name for queue in definitions.queues if queue.vhost == vhost}
    levels = [part for part in definitions.queue_parts if part.vhost == vhost and part.owner]
    return names | {part.id: names[part.owner] for part in levels if part.owner in names}


def queue_names(definitions: Definitions, vhost: bytes) -> dict[int, bytes]:
    """As `level_names`, with names for the buckets of delayed messages and the stages of sinks."""
    names = level_names(definitions, vhost)
    for part in definitions.queue_parts:
        if part.vhost == vhost:
            names.setdefault(part.id, DELAYED)
    for stage in definitions.stages:
        if stage.vhost == vhost:
            names[stage.id] = b"staged for %s, batch %d" % (stage.sink, stage.batch)
    return names
