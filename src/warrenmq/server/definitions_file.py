"""Opening the definitions of a data directory, and what is done when they are lost.

Definitions that are missing, emptied or damaged beside a store with messages are not a first start: it would take all
queues for unknown ones, and a supervisor that starts nodes again and again would have done so before anybody has looked.
Such a directory is refused and left as it is, until somebody says that the loss is accepted. Then what is left of the
definitions is moved to `lost+found`, and so are the messages of queues that nobody knows (`startup.py`).
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
from warrenmq.store.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME
from warrenmq.store.disk.files import JOURNAL_DIRECTORY, LOST_AND_FOUND, make_directories
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.layout import PERSISTENT_NAME, QUEUES_NAME

logger = logging.getLogger("warren.startup")

DATABASE_NAME: Final = "node.sqlite"
VHOSTS_PATH: Final = "msg_stores/vhosts"


class DataDirectoryError(Exception):
    """The data directory cannot be used; one line that says why."""


class DefinitionsLostError(DataDirectoryError):
    """There are no definitions, and there is a store."""


def open_definitions(
    directory: Path, accepts_loss: bool, reserve: SpaceReserve
) -> tuple[Metadata, Definitions]:
    """The definitions of a data directory; empty ones at a first start, or where `accepts_loss` allows it.

    Raises DefinitionsLostError, which changes nothing, and MetadataError. The reserve is released when SQLite finds no space.
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
    """Move something of the data directory `directory` to its lost+found; where it is now."""
    path = directory / name
    lost_and_found = directory / LOST_AND_FOUND
    if name == LOST_AND_FOUND:
        path = path.rename(directory / f"{LOST_AND_FOUND}.strange")
    make_directories(lost_and_found)
    return path.rename(lost_and_found / f"{time.time_ns()}-{path.name}")


def _load(path: Path, reserve: SpaceReserve) -> tuple[Metadata, Definitions]:
    try:
        return _try_load(path)
    except MetadataError as error:
        if not error.may_be_full:
            raise
        # SQLite makes files beside the one that it opens.
        reserve.on_error(error)
        return _try_load(path)


def _try_load(path: Path) -> tuple[Metadata, Definitions]:
    metadata = SqliteMetadata(path)
    try:
        return metadata, metadata.load()
    except MetadataError:
        metadata.close()
        raise


def _why_unusable(path: Path) -> str:
    """Why the definitions at `path` cannot be opened, or "". Opens nothing: that would create a new file."""
    if not os.path.lexists(path):
        return f"{path.name} is missing"
    if not path.is_file():
        return f"{path.name} is not a file"
    wal = path.with_name(f"{path.name}-wal")
    if path.stat().st_size == 0 and not (wal.is_file() and wal.stat().st_size > 0):
        return f"{path.name} is empty"
    return ""


def _has_store(directory: Path) -> bool:
    """Is there a vhost's directory with anything in it that a running node has written?"""
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
