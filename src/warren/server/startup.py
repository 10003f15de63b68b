"""Opening a data directory: lock, definitions, journals; what is not ours or is damaged is moved aside and reported.

Start-up never refuses because of what a crash left behind (G9, G10). It refuses a directory that another process has
open, that cannot be written, or that a later version made.
"""

import fcntl
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from warren.broker.broker import Broker
from warren.broker.metadata import (
    Change,
    Definitions,
    Metadata,
    MetadataDamaged,
    MetadataError,
    PutPermission,
    PutUser,
    PutVhost,
)
from warren.broker.metadata_sqlite import SqliteMetadata
from warren.broker.passwords import SHA256, hash_password
from warren.broker.vhost import Vhost
from warren.server.config import Config
from warren.store.disk.files import (
    JOURNAL_DIRECTORY,
    keep_orphans,
    load_store_id,
    make_directories,
    quarantine,
)
from warren.store.disk.flusher import BatchFlusher
from warren.store.disk.local_file_system import LocalFileSystem
from warren.store.disk.space_reserve import SpaceReserve
from warren.store.disk.store_reader import StoreReport, clear_queues, read_store
from warren.store.recovery import Damage
from warren.store.store_settings import StoreSettings
from warren.store.vhost_store import QUEUES_NAME
from warren.wire.errors import AmqpError

logger = logging.getLogger("warren.startup")


class DataDirectoryError(Exception):
    """The data directory cannot be used; one line that says why."""


@dataclass
class OpenedData:
    """What stays open while the node runs."""

    metadata: Metadata
    lock_descriptor: int
    # By vhost id: the directory of its store.
    directories: dict[int, Path]
    file_systems: dict[int, LocalFileSystem]
    flushers: dict[int, BatchFlusher]
    reserve: SpaceReserve
    root: LocalFileSystem
    definitions: Definitions

    def apply_changes(self, changes: list[object]) -> None:
        """Commit metadata changes; called on the flusher's thread."""
        self.metadata.apply(cast(list[Change], changes))

    def copy_definitions(self, path: Path) -> None:
        """Put a copy of the definitions in the new file `path`; called on the flusher's thread."""
        assert isinstance(self.metadata, SqliteMetadata)
        self.metadata.back_up(path)

    def close(self) -> None:
        """Release files, database and lock; the flusher's thread has ended."""
        for flusher in self.flushers.values():
            flusher.close()
        for files in self.file_systems.values():
            files.release()
        self.root.release()
        self.metadata.close()
        os.close(self.lock_descriptor)


def open_data_directory(config: Config, broker: Broker, now_ms: int) -> OpenedData:
    """Lock and read the data directory and fill `broker` with it. Raises DataDirectoryError."""
    directory = config.data_dir
    try:
        make_directories(directory)
        lock_descriptor = _lock(directory)
    except OSError as error:
        raise DataDirectoryError(f"data directory {directory}: {error.strerror}") from None
    try:
        metadata, definitions = _open_metadata(directory)
        if not definitions.users and not definitions.vhosts:
            definitions = _first_start(metadata, config)
        broker.load_users(definitions)
        directories: dict[int, Path] = {}
        file_systems: dict[int, LocalFileSystem] = {}
        for put_vhost in definitions.vhosts:
            path = directory / "msg_stores" / "vhosts" / str(put_vhost.id)
            make_directories(path)
            files = LocalFileSystem(path)
            directories[put_vhost.id] = path.absolute()
            file_systems[put_vhost.id] = files
            _open_vhost(broker, put_vhost, files, definitions, config, now_ms)
    except MetadataError as error:
        os.close(lock_descriptor)
        raise DataDirectoryError(str(error)) from None
    except OSError as error:
        os.close(lock_descriptor)
        raise DataDirectoryError(f"data directory {directory}: {error}") from None
    root = LocalFileSystem(directory)
    reserve = SpaceReserve(root)
    reserve.keep()
    flushers = {vhost_id: BatchFlusher(files, reserve) for vhost_id, files in file_systems.items()}
    return OpenedData(
        metadata, lock_descriptor, directories, file_systems, flushers, reserve, root, definitions
    )


def _lock(directory: Path) -> int:
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataDirectoryError(f"data directory {directory} is in use by another warren node") from None
    return descriptor


def _open_metadata(directory: Path) -> tuple[Metadata, Definitions]:
    path = directory / "node.sqlite"
    try:
        metadata = SqliteMetadata(path)
        return metadata, metadata.load()
    except MetadataDamaged as error:
        logger.error("definitions are damaged and moved to lost+found: %s", error)
        lost_and_found = directory / "lost+found"
        make_directories(lost_and_found)
        for suffix in ("", "-wal", "-shm"):
            damaged = directory / f"node.sqlite{suffix}"
            if damaged.exists():
                damaged.rename(lost_and_found / f"{time.time_ns()}-{damaged.name}")
        metadata = SqliteMetadata(path)
        return metadata, metadata.load()


def _first_start(metadata: Metadata, config: Config) -> Definitions:
    vhost = config.default_vhost.encode()
    user = config.default_user.encode()
    metadata.apply(
        [
            PutVhost(vhost, 1),
            PutUser(user, hash_password(config.default_pass.encode()), SHA256, ["administrator"]),
            PutPermission(vhost, user, ".*", ".*", ".*"),
        ]
    )
    return metadata.load()


def _open_vhost(
    broker: Broker,
    put_vhost: PutVhost,
    files: LocalFileSystem,
    definitions: Definitions,
    config: Config,
    now_ms: int,
) -> None:
    files.make_directories(JOURNAL_DIRECTORY)
    started = time.monotonic()
    settings = StoreSettings(
        config.journal_file_size_limit, config.msg_store_file_size_limit, config.queue_index_embed_msgs_below
    )
    store, replay, report = read_store(files, load_store_id(files), settings)
    vhost = Vhost(broker, put_vhost.name, put_vhost.id, store)
    broker.vhosts[put_vhost.name] = vhost
    unusable_ids = restore_definitions(vhost, definitions, now_ms)
    broker.reserve_queue_ids(max(replay.queues, default=0))
    orphans = vhost.restore_messages(replay, definitions.next_queue_id, unusable_ids, now_ms)
    for queue_id in unusable_ids:
        # Not deleted: its definition is damaged.
        if files.exists(f"{QUEUES_NAME}/{queue_id}"):
            report.quarantined.append(quarantine(files, f"{QUEUES_NAME}/{queue_id}"))
    clear_queues(files, store, definitions.next_queue_id, report)

    name = put_vhost.name.decode("utf-8", "replace")
    messages = sum(queue.ready_count + queue.unacked_count for queue in vhost.queues.values())
    logger.info(
        "vhost '%s': %d queues, %d messages; read %d bytes, %d journal files behind checkpoint %d, in %.2f s",
        name,
        len(vhost.queues),
        messages,
        report.bytes_read,
        report.journal_files,
        report.generation,
        time.monotonic() - started,
    )
    _log_report(name, report)
    vhost.losses.report_all()
    for orphan in orphans:
        file_name = keep_orphans(files, orphan, store.store_id)
        logger.error(
            "vhost '%s': %d messages of queue id %d, which no usable definition names, are in lost+found: %s",
            name,
            len(orphan.positions),
            orphan.log.queue_id,
            file_name,
        )


def _log_report(name: str, report: StoreReport) -> None:
    for line in report.quarantined:
        logger.warning("vhost '%s': not a usable file of this vhost, moved to lost+found: %s", name, line)
    for line in report.unfinished:
        logger.info("vhost '%s': a file that was never finished, moved to lost+found: %s", name, line)
    stretches: dict[tuple[int, str], list[Damage]] = {}
    for damage in report.damage:
        stretches.setdefault((damage.file_number, damage.reason), []).append(damage)
    for (number, reason), found in stretches.items():
        logger.error(
            "vhost '%s': journal file %d is damaged from byte %d to %d (%s, stretches: %d); copied to lost+found",
            name,
            number,
            min(damage.start for damage in found),
            max(damage.end for damage in found),
            reason,
            len(found),
        )
    for torn in report.torn:
        logger.info(
            "vhost '%s': journal file %d ends in %d bytes of an unfinished write; copied to lost+found unless all are zero",
            name,
            torn.file_number,
            torn.end - torn.start,
        )
    for path in report.damaged_headers:
        logger.error("vhost '%s': the header of %s is damaged; its records are used", name, path)
    for line in report.missing_journal:
        logger.error("vhost '%s': a journal file is missing: %s; what no index has of it is lost", name, line)
    if report.kept_references > 0:
        logger.warning(
            "vhost '%s': damage hides whether %d references to contents were given up; their contents are kept",
            name,
            report.kept_references,
        )
    for line in report.missing:
        logger.error("vhost '%s': missing: %s", name, line)
    if report.missing_contents > 0:
        logger.error("vhost '%s': %d messages have lost their content", name, report.missing_contents)
    if report.is_rebuilt:
        logger.error(
            "vhost '%s': no usable checkpoint; the indexes were read as a whole, %d damaged stretches in them. "
            "Messages acked since they were written may be delivered again",
            name,
            report.index_damage,
        )


def restore_definitions(vhost: Vhost, definitions: Definitions, now_ms: int) -> set[int]:
    """Declare what is defined; returns the ids of queues whose definition is damaged beyond use."""
    router = vhost.router
    unusable_ids: set[int] = set()
    for exchange in definitions.exchanges:
        if exchange.vhost == vhost.name:
            try:
                router.declare_exchange(
                    exchange.name,
                    exchange.type,
                    True,
                    exchange.auto_delete,
                    exchange.internal,
                    exchange.arguments,
                )
            except AmqpError as error:
                logger.error("the definition of exchange %r is left out: %s", exchange.name, error.text)
    for queue in definitions.queues:
        if queue.vhost == vhost.name:
            try:
                vhost.restore_queue(queue, now_ms)
            except AmqpError as error:
                unusable_ids.add(queue.id)
                logger.error("the definition of queue %r is left out: %s", queue.name, error.text)
    vhost.staging.restore(definitions, now_ms)
    for binding in definitions.bindings:
        if binding.vhost != vhost.name:
            continue
        source = router.exchanges.get(binding.source)
        names = router.queues if binding.destination_is_queue else router.exchanges
        destination = names.get(binding.destination)
        if source is None or destination is None:
            logger.warning("a binding of %r leads nowhere and is left out", binding.source)
            continue
        try:
            router.bind(source, destination, binding.key, binding.arguments)
        except AmqpError as error:
            logger.error("a binding of %r is left out: %s", binding.source, error.text)
    return unusable_ids
