"""Backs up a data directory whose node is stopped, and restores any backup."""

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import warrenmq
from warrenmq.offline import backup_files
from warrenmq.offline.check import check_directory
from warrenmq.offline.data_directory import (
    DATABASE_NAME,
    VHOSTS_PATH,
    ToolError,
    VhostDirectory,
    files_of,
    opened,
)
from warrenmq.offline.problems import JOURNAL_GAP, CheckResult
from warrenmq.store.disk.files import make_directories, read_whole, sync_directory, sync_file
from warrenmq.store.disk.index_rebuild import CONTENT_NAME, SEGMENT_NAME
from warrenmq.store.disk.log_reader import LOG_NAME
from warrenmq.store.disk.snapshot import NoStore, find_store_id
from warrenmq.store.model.layout import PERSISTENT_NAME, QUEUES_NAME, TRANSIENT_NAME
from warrenmq.store.model.queue_index import SEGMENT_ENTRIES
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME, PREVIOUS_NAME, decode_checkpoint

_DATABASE_NAMES: Final = (DATABASE_NAME, f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm")


@contextlib.contextmanager
def _new_directory(target: Path, what: str) -> Iterator[Path]:
    """A directory to fill, which gets the name `target` at the end of the block.

    After an error nothing is left of it. An OSError becomes a ToolError.
    """
    path = backup_files.begin_new(target)
    try:
        yield path
        backup_files.put_in_place(path, target)
    except BaseException as error:
        backup_files.remove_unfinished(path)
        if isinstance(error, OSError):
            raise ToolError(f"the {what} failed: {error}") from error
        raise


def back_up(
    directory: Path, target: Path, on_piece: backup_files.OnPiece = lambda size: None
) -> backup_files.Manifest:
    """Back up a data directory that no node has open. A ToolError leaves nothing of the backup."""
    backup_files.must_be_outside(directory, target)
    with opened(directory) as data, _new_directory(target, "backup") as path:
        for vhost in data.vhosts:
            for file in _files_of(vhost):
                place = f"{VHOSTS_PATH}/{vhost.id}/{file.path}"
                backup_files.take_files(
                    directory,
                    path,
                    [backup_files.SourceFile(place, file.size, file.is_sealed)],
                    on_piece,
                    lambda size: None,
                )
            make_directories(path / VHOSTS_PATH / str(vhost.id))
        _copy_database(directory, path, data.definitions_error)
        manifest = backup_files.finish_backup(
            path, warrenmq.__version__, backup_files.now_text(), on_piece
        )
    return manifest


def restore(
    backup: Path,
    directory: Path,
    accept_problems: bool = False,
    on_piece: backup_files.OnPiece = lambda size: None,
) -> tuple[backup_files.Manifest, CheckResult]:
    """Make the new data directory `directory` from a backup; returns the manifest and the check.

    Raises ToolError before anything is made when the backup is damaged. With `accept_problems` it
    accepts problems that the store had when it was backed up.
    """
    if not backup.is_dir():
        raise ToolError(f"{backup} is not a directory")
    backup_files.must_be_outside(backup, directory)
    manifest = backup_files.read_manifest(backup)
    found = backup_files.differences(backup, manifest, on_piece)
    if found:
        more = f", and {len(found) - 5} more" if len(found) > 5 else ""
        raise ToolError(f"{backup} is damaged: {'; '.join(found[:5])}{more}")
    result = check_directory(backup, on_piece)
    # The manifest proves that no file is missing: a missing number of a journal file is one that
    # the node abandoned.
    problems = {kind: count for kind, count in result.problem_counts.items() if kind != JOURNAL_GAP}
    if problems and not accept_problems:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(problems.items()))
        raise ToolError(
            f"the store in {backup} has problems ({counts}): see warren store check; --accept-problems restores it as it is"
        )
    with _new_directory(directory, "restore") as path:
        for file in manifest.files:
            make_directories((path / file.path).parent)
            crc = backup_files.copy_file(backup / file.path, path / file.path, file.size, on_piece)
            if crc != file.crc:
                raise ToolError(f"{backup / file.path} has changed, or cannot be read reliably")
        for place, _, _ in os.walk(path):
            sync_directory(Path(place))
    return manifest, result


def _files_of(vhost: VhostDirectory) -> list[backup_files.SourceFile]:
    """All files in a vhost's directory, except those that a start wipes."""
    is_sealed = _sealed_segments(vhost)
    found: list[backup_files.SourceFile] = []
    for place, names, files in os.walk(vhost.path):
        relative = Path(place).relative_to(vhost.path).as_posix()
        if relative == ".":
            names[:] = [name for name in names if name != TRANSIENT_NAME]
        names.sort()
        for name in sorted(files):
            path = name if relative == "." else f"{relative}/{name}"
            if (Path(place) / name).is_symlink():
                raise ToolError(f"{Path(place) / name} is a symbolic link")
            found.append(backup_files.SourceFile(path, -1, is_sealed(path)))
    return found


def _sealed_segments(vhost: VhostDirectory) -> Callable[[str], bool]:
    """A function that says of a path whether the next node never appends to that file.

    The next node starts new journal and content files, and continues the last segment of each
    index, as of either checkpoint.
    """
    indexed: dict[str, int] = {}
    with files_of(vhost) as files:
        try:
            store_id = find_store_id(files)
        except NoStore:
            return lambda path: False
        names = [name for name in (CHECKPOINT_NAME, PREVIOUS_NAME) if files.is_file(name)]
        checkpoints = [decode_checkpoint(read_whole(files, name), store_id) for name in names]
    if len(checkpoints) == 2 and None not in checkpoints:
        for checkpoint in checkpoints:
            assert checkpoint is not None
            for row in checkpoint.queues:
                known = indexed.get(str(row.queue_id), row.indexed_upto)
                indexed[str(row.queue_id)] = min(known, row.indexed_upto)
        # A queue that one of the checkpoints does not know has no sealed segment.
        ids = [
            {str(row.queue_id) for row in checkpoint.queues}
            for checkpoint in checkpoints
            if checkpoint
        ]
        for queue_id in ids[0] ^ ids[1]:
            indexed.pop(queue_id, None)

    def is_sealed(path: str) -> bool:
        parts = path.split("/")
        if len(parts) == 3 and parts[0] == QUEUES_NAME:
            match = SEGMENT_NAME.fullmatch(parts[2])
            end = (int(match.group(1)) + 1) * SEGMENT_ENTRIES if match else 0
            return match is not None and end <= indexed.get(parts[1], 0)
        if len(parts) == 2 and parts[0] == PERSISTENT_NAME:
            names = (CONTENT_NAME, LOG_NAME)
            return any(name.fullmatch(parts[1]) for name in names)
        return len(parts) == 2 and parts[0] == "journal" and parts[1].endswith(".wal")

    return is_sealed


def _copy_database(directory: Path, target: Path, definitions_error: str) -> None:
    """Copy the database into one file, even if a node left it in two; a damaged one as it is."""
    names = [name for name in _DATABASE_NAMES if (directory / name).exists()]
    if definitions_error:
        for name in names:
            size = (directory / name).stat().st_size
            backup_files.copy_file(directory / name, target / name, size, lambda piece: None)
        return
    with tempfile.TemporaryDirectory(prefix="warren-") as copy:
        for name in names:
            if not name.endswith("-shm"):
                size = (directory / name).stat().st_size
                backup_files.copy_file(
                    directory / name, Path(copy) / name, size, lambda piece: None
                )
        source = sqlite3.connect(Path(copy) / DATABASE_NAME, isolation_level=None)
        whole = sqlite3.connect(target / DATABASE_NAME, isolation_level=None)
        try:
            source.backup(whole)
            whole.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.Error as error:
            raise ToolError(f"{directory / DATABASE_NAME} cannot be copied: {error}") from None
        finally:
            whole.close()
            source.close()
    sync_file(target / DATABASE_NAME)
