"""Opens the definitions of a data directory, and refuses a directory that has lost them.

Missing, emptied or damaged definitions beside a store with messages are no first start. A first
start would treat every queue as unknown, and a supervisor that restarts nodes would cause that
before an engineer has looked. Such a directory is refused and left unchanged until the operator
accepts the loss. Then the node moves the rest of the definitions to `lost+found`, and the messages
of queues that no definition names as well (`startup.py`).
"""

import logging
import os
import time
from pathlib import Path
from typing import Final

from warrenmq.broker.definitions.metadata import (
    Definitions,
    Metadata,
    MetadataDamaged,
    MetadataError,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.store.disk.files import JOURNAL_DIRECTORY, LOST_AND_FOUND, make_directories
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME

logger = logging.getLogger("warren.startup")

DATABASE_NAME: Final = "node.sqlite"
VHOSTS_PATH: Final = "msg_stores/vhosts"


class DataDirectoryError(Exception):
    """The data directory cannot be used; the text says why in one line."""


class DefinitionsLostError(DataDirectoryError):
    """The directory holds a store but no usable definitions."""


def open_definitions(
    directory: Path, accepts_loss: bool, reserve: SpaceReserve
) -> tuple[Metadata, Definitions]:
    """The definitions of a data directory; empty at a first start or when `accepts_loss` permits.

    Raises MetadataError, and DefinitionsLostError, which leaves the directory unchanged. Releases
    the space reserve when SQLite finds no space.
    """
    path = directory / DATABASE_NAME
    has_store = _has_store(directory)
    cause = _why_unusable(path)
    if not cause:
        try:
            metadata, definitions = _load(path, reserve)
        except MetadataDamaged as error:
            cause = str(error)
        else:
            if definitions.vhosts or definitions.users or not has_store:
                return metadata, definitions
            metadata.close()
            cause = f"{DATABASE_NAME} defines nothing"
    if has_store and not accepts_loss:
        raise DefinitionsLostError(
            f"data directory {directory} has lost its definitions and holds a store: {cause}. Put {DATABASE_NAME} back, or "
            "save the messages with 'warren store salvage', or start with --accept-lost-definitions to keep them in "
            "lost+found and begin anew"
        )
    for suffix in ("", "-wal", "-shm"):
        name = f"{DATABASE_NAME}{suffix}"
        if os.path.lexists(directory / name):
            target = move_to_lost(directory, name)
            logger.error("definitions are lost: %s; %s is moved to %s", cause, name, target.name)
    return _load(path, reserve)


def move_to_lost(directory: Path, name: str) -> Path:
    """Move `name` in the data directory `directory` to its lost+found; returns the new path."""
    path = directory / name
    lost_and_found = directory / LOST_AND_FOUND
    if name == LOST_AND_FOUND:
        path = path.rename(directory / f"{LOST_AND_FOUND}.strange")
    make_directories(lost_and_found)
    return path.rename(lost_and_found / f"{time.time_ns()}-{path.name}")


def _load(path: Path, reserve: SpaceReserve) -> tuple[Metadata, Definitions]:
    # SQLite creates files beside the database, so even opening it may need space.
    try:
        return reserve.helps(lambda: _try_load(path, False))
    except MetadataError as error:
        if not error.may_be_full:
            raise
    # The reserve is used up as well.
    return _try_load(path, True)


def _try_load(path: Path, is_exclusive: bool) -> tuple[Metadata, Definitions]:
    metadata = SqliteMetadata(path, is_exclusive)
    try:
        return metadata, metadata.load()
    except MetadataError:
        metadata.close()
        raise


def _why_unusable(path: Path) -> str:
    """Why the definitions at `path` cannot be opened, or "".

    Opens nothing, since opening would create the file.
    """
    if not os.path.lexists(path):
        return f"{path.name} is missing"
    if not path.is_file():
        return f"{path.name} is not a file"
    wal = path.with_name(f"{path.name}-wal")
    if path.stat().st_size == 0 and not (wal.is_file() and wal.stat().st_size > 0):
        return f"{path.name} is empty"
    return ""


def _has_store(directory: Path) -> bool:
    """True when a vhost's directory holds anything that a running node has written."""
    vhosts = directory / VHOSTS_PATH
    for vhost in os.listdir(vhosts):
        for name in (
            JOURNAL_DIRECTORY,
            QUEUES_NAME,
            PERSISTENT_NAME,
            CHECKPOINT_NAME,
            PREVIOUS_NAME,
        ):
            path = vhosts / vhost / name
            if path.is_file() or (path.is_dir() and any(path.iterdir())):
                return True
    return False
