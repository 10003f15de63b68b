"""Opens a data directory: takes the lock, then reads the definitions and the journals.

Files that are foreign or damaged are moved aside and reported. A start never refuses because of
what a crash left behind (G9, G10). It refuses a directory that another process has open, that
cannot be written, or that a later version made, and one that has lost its definitions and holds a
store (`definitions_file.py`).
"""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from warrenmq.broker.broker import Broker
from warrenmq.broker.definitions.metadata import (
    Change,
    Definitions,
    Metadata,
    MetadataError,
    PutPermission,
    PutUser,
    PutVhost,
)
from warrenmq.broker.definitions.metadata_sqlite import SqliteMetadata
from warrenmq.broker.definitions.passwords import hash_password
from warrenmq.broker.definitions.usable import set_unusable_aside
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.server.config.settings import Config
from warrenmq.server.startup.definitions_file import (
    VHOSTS_PATH,
    DataDirectoryError,
    move_to_lost,
    open_definitions,
)
from warrenmq.server.startup.directory_lock import lock_directory
from warrenmq.server.startup.vhost import open_vhost
from warrenmq.store.disk.files import LOST_AND_FOUND, make_directories
from warrenmq.store.disk.flusher import BatchFlusher
from warrenmq.store.disk.format_version import NewerFormatError, refuse_newer_formats
from warrenmq.store.disk.local_file_system import LocalFileSystem
from warrenmq.store.disk.space_reserve import SpaceReserve
from warrenmq.store.settings import HOLD_BYTES, StoreSettings

logger = logging.getLogger("warren.startup")

# A vhost's directory is renamed to its id with this suffix before it is removed.
_DELETED_SUFFIX: Final = ".deleted"

# Enters a cluster with a data directory: see `ClusterStart.open`.
Enter = Callable[[Path, Definitions, list[Change]], tuple[Definitions, list[Change]]]


@dataclass
class OpenedData:
    """The files, database and lock that stay open while the node runs."""

    metadata: Metadata
    lock_descriptor: int
    # Directory of each vhost's store, by vhost id.
    directories: dict[int, Path]
    file_systems: dict[int, LocalFileSystem]
    flushers: dict[int, BatchFlusher]
    reserve: SpaceReserve
    root: LocalFileSystem
    definitions: Definitions
    # The data directory, and the settings of all its stores.
    directory: Path
    settings: StoreSettings

    def open_vhost(self, broker: Broker, definition: PutVhost, now_ms: int) -> Vhost:
        """Add a vhost that was defined just now to `broker`. Raises OSError."""
        path, files = _vhost_files(self.directory, definition)
        # A new vhost has no definitions, but its queue ids continue those of the node.
        definitions = Definitions()
        definitions.next_queue_id = broker.next_queue_id()
        try:
            vhost, _ = open_vhost(broker, definition, files, definitions, self.settings, now_ms)
        except OSError:
            files.release()
            raise
        self.directories[definition.id] = path.absolute()
        self.file_systems[definition.id] = files
        self.flushers[definition.id] = BatchFlusher(files, self.reserve)
        return vhost

    def remove_vhost(self, vhost_id: int) -> None:
        """Close the files of a deleted vhost and remove its directory."""
        self.flushers.pop(vhost_id).close()
        self.file_systems.pop(vhost_id).release()
        path = self.directories.pop(vhost_id)
        doomed = path.with_name(f"{vhost_id}{_DELETED_SUFFIX}")
        path.rename(doomed)
        _remove_tree(doomed)

    def apply_changes(self, changes: list[object]) -> None:
        """Commit `changes` of the metadata; called on the flusher's thread."""
        self.metadata.apply(cast(list[Change], changes))

    def copy_definitions(self, path: Path) -> None:
        """Copy the definitions to the new file `path`; called on the flusher's thread."""
        assert isinstance(self.metadata, SqliteMetadata)
        self.metadata.back_up(path)

    def close(self) -> None:
        """Release files, database and lock; called after the flusher's thread has ended."""
        for flusher in self.flushers.values():
            flusher.close()
        for files in self.file_systems.values():
            files.release()
        self.root.release()
        self.metadata.close()
        os.close(self.lock_descriptor)


def open_data_directory(
    config: Config, broker: Broker, now_ms: int, enter: Enter | None = None
) -> OpenedData:
    """Lock and read the data directory and fill `broker` from it.

    A node of a cluster enters it by `enter`, and opens what the cluster has. Raises
    DataDirectoryError, or NotAdmitted if the node does not belong to its cluster.
    """
    directory = config.data_dir
    try:
        make_directories(directory)
        lock_descriptor = lock_directory(
            directory, f"data directory {directory} is in use by another warren node"
        )
        refuse_newer_formats(directory / VHOSTS_PATH)
    except NewerFormatError as error:
        os.close(lock_descriptor)
        raise DataDirectoryError(str(error)) from None
    except OSError as error:
        raise DataDirectoryError(f"data directory {directory}: {error.strerror}") from None
    settings = StoreSettings(
        config.journal_file_size_limit,
        config.broker.msg_store_file_size_limit,
        config.broker.queue_index_embed_msgs_below,
        hold_bytes=HOLD_BYTES,
    )
    root = LocalFileSystem(directory)
    reserve = SpaceReserve(root)
    try:
        for name in (LOST_AND_FOUND, "msg_stores", VHOSTS_PATH):
            _set_aside_strange(directory, name)
        make_directories(directory / VHOSTS_PATH)
        for doomed in (directory / VHOSTS_PATH).glob(f"*{_DELETED_SUFFIX}"):
            _remove_tree(doomed)
        reserve.keep()
        metadata, definitions = open_definitions(directory, config.accept_lost_definitions, reserve)
        for line in set_unusable_aside(definitions):
            logger.error("%s", line)
        definitions = _definitions_to_open(config, broker, metadata, definitions, enter, reserve)
        broker.load_users(definitions)
        _set_aside_deleted(directory, definitions)
        directories: dict[int, Path] = {}
        file_systems: dict[int, LocalFileSystem] = {}
        for put_vhost in definitions.vhosts:
            path, files = _vhost_files(directory, put_vhost)
            directories[put_vhost.id] = path.absolute()
            file_systems[put_vhost.id] = files
            open_vhost(broker, put_vhost, files, definitions, settings, now_ms)
    except (MetadataError, DataDirectoryError, OSError) as error:
        root.release()
        os.close(lock_descriptor)
        if isinstance(error, DataDirectoryError):
            raise
        text = f"data directory {directory}: {error}" if isinstance(error, OSError) else str(error)
        raise DataDirectoryError(text) from None
    flushers = {vhost_id: BatchFlusher(files, reserve) for vhost_id, files in file_systems.items()}
    return OpenedData(
        metadata,
        lock_descriptor,
        directories,
        file_systems,
        flushers,
        reserve,
        root,
        definitions,
        directory,
        settings,
    )


def _definitions_to_open(
    config: Config,
    broker: Broker,
    metadata: Metadata,
    stored: Definitions,
    enter: Enter | None,
    reserve: SpaceReserve,
) -> Definitions:
    """The definitions with which the node starts, given the `stored` ones of `metadata`.

    Releases the space reserve when what a start writes finds no space.
    Raises DataDirectoryError, and what `ClusterStart.open` raises.
    """
    is_empty = not stored.users and not stored.vhosts
    if enter is not None:
        first = first_definitions(config, 1)
        definitions, changes = reserve.helps(lambda: enter(config.data_dir, stored, first))
        reserve.helps(lambda: metadata.apply(changes))
        return definitions
    if not is_empty:
        return stored
    first = first_definitions(config, 1)
    refusal = broker.settings.credential_rules.refusal(config.default_pass.encode())
    if refusal and first:
        metadata.close()
        raise DataDirectoryError(f"default_pass: {refusal}")
    metadata.apply(first)
    return metadata.load()


def _vhost_files(directory: Path, definition: PutVhost) -> tuple[Path, LocalFileSystem]:
    """Make the directory of a vhost if it is missing; returns its path and its files."""
    _set_aside_strange(directory, f"{VHOSTS_PATH}/{definition.id}")
    path = directory / VHOSTS_PATH / str(definition.id)
    make_directories(path)
    return path, LocalFileSystem(path)


def _set_aside_deleted(directory: Path, definitions: Definitions) -> None:
    """Move the stores of deleted vhosts to lost+found: a crash came before their removal."""
    known = {vhost.id for vhost in definitions.vhosts}
    for path in (directory / VHOSTS_PATH).iterdir():
        name = path.name
        if not name.isdecimal() or int(name) in known or int(name) >= definitions.next_vhost_id:
            continue
        target = move_to_lost(directory, f"{VHOSTS_PATH}/{name}")
        logger.warning(
            "the store of deleted vhost id %s is moved to %s", name, target.relative_to(directory)
        )


def _remove_tree(path: Path) -> None:
    """Remove a directory; what cannot be removed stays and is logged."""

    def on_error(_function: object, name: str, info: tuple[Any, Any, Any]) -> None:
        logger.warning("%s cannot be removed: %s", name, info[1])

    shutil.rmtree(path, onerror=on_error)


def _set_aside_strange(directory: Path, name: str) -> None:
    """Move `name` to lost+found when it exists and is not a directory."""
    path = directory / name
    if os.path.lexists(path) and not path.is_dir():
        target = move_to_lost(directory, name)
        logger.error(
            "%s is not a directory and is moved to %s", name, target.relative_to(directory)
        )


def first_definitions(config: Config, vhost_id: int) -> list[Change]:
    """The definitions of an empty node: the default vhost, and the default user in it.

    As in RabbitMQ, a node that imports definitions has neither.
    """
    if config.load_definitions is not None:
        return []
    vhost = config.default_vhost.encode()
    user = config.default_user.encode()
    hashing = config.broker.password_hashing
    password_hash = hash_password(config.default_pass.encode(), hashing)
    return [
        PutVhost(vhost, vhost_id, "Default virtual host"),
        PutUser(user, password_hash, hashing, list(config.default_user_tags)),
        PutPermission(
            vhost, user, config.default_configure, config.default_write, config.default_read
        ),
    ]
