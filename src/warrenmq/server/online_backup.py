"""Backups of a running node: one at a time, beside everything else.

1. Each vhost takes a checkpoint and from then on deletes nothing (store/backup_pins.py).
2. When all have one, the end is fixed: the bytes of all batches that are sealed. The flusher copies the definitions
   between two batches, when just these are durable: definitions and messages are of the same commit.
3. Files that are never written to again are linked, of the others what counts is copied. Then deletions go on.
4. The checksums are taken of the backup's own files, in portions, so that compaction gets its turn, and written to the
   manifest. At last the backup gets its name.

3 and 4 run on the thread of the long copies. A backup that fails is removed.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import warrenmq
from warrenmq.admin.node import BackupRefused
from warrenmq.admin.protocol import BACKUP_DONE, BACKUP_FAILED, BackupStatus
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.offline.backup_files import (
    ManifestBuilder,
    OnPiece,
    SourceFile,
    begin_new,
    give_up,
    must_be_outside,
    now_text,
    put_in_place,
    take_files,
)
from warrenmq.offline.data_directory import DATABASE_NAME, VHOSTS_PATH, ToolError
from warrenmq.store.backup_pins import BackupListener
from warrenmq.store.checkpoint import CHECKPOINT_NAME
from warrenmq.store.disk.files import STORE_ID_NAME, make_directories, sync_file
from warrenmq.store.disk.flusher import FlusherCall
from warrenmq.store.jobs import COMPACT, StoreJob

logger = logging.getLogger("warren.backup")

# The disk has others to serve: no faster, with a rest after each of these pieces.
BYTES_PER_S: Final = 134217728
_REST_BYTES: Final = 4194304
# Checksums in one go.
_PORTION_BYTES: Final = 67108864


class Loop(Protocol):
    """The one call of an event loop that backups need; asyncio's loops have it."""

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Call `callback` with `args` on the loop, soon. May be called from any thread."""


class BackupPlace(Protocol):
    """Where one backup is written: a local directory, or the simulator's disk.

    `take`, `list_files`, `add_checksums` and `finish` are called in this order on the thread of the long copies, and
    raise OSError, ToolError or ValueError when the backup cannot be finished.
    """

    # The name under which the finished backup appears, and the file for the copy of the definitions.
    target: Path
    database: Path

    def take(
        self,
        written: dict[str, bytes],
        files: list[SourceFile],
        on_piece: OnPiece,
        on_file: OnPiece,
    ) -> None:
        """Sync the definitions, write the files of `written`, by path, and link or copy `files`."""

    def list_files(self) -> int:
        """Look up what was taken; returns its size in bytes."""

    def add_checksums(self, on_piece: OnPiece) -> bool:
        """Take the checksums of the next portion; False when no file is left."""

    def finish(self) -> None:
        """Write the manifest and give the backup its name: it is durable when this returns."""

    def give_up(self) -> None:
        """Remove what was written."""


class LocalBackupPlace:
    """A new directory on the node's machine; see BackupPlace. Its parent must exist. Raises ToolError."""

    def __init__(self, data_dir: Path, target: Path) -> None:
        must_be_outside(data_dir, target)
        self.target = target
        self._data_dir = data_dir
        self._path = begin_new(target)
        self.database = self._path / DATABASE_NAME
        self._builder: ManifestBuilder | None = None

    def take(
        self,
        written: dict[str, bytes],
        files: list[SourceFile],
        on_piece: OnPiece,
        on_file: OnPiece,
    ) -> None:
        """See BackupPlace."""
        sync_file(self.database)
        for name, content in written.items():
            path = self._path / name
            make_directories(path.parent)
            path.write_bytes(content)
            path.chmod(0o640)
            sync_file(path)
        take_files(self._data_dir, self._path, files, on_piece, on_file)

    def list_files(self) -> int:
        """See BackupPlace."""
        self._builder = ManifestBuilder(self._path)
        return self._builder.total_bytes

    def add_checksums(self, on_piece: OnPiece) -> bool:
        """See BackupPlace."""
        assert self._builder is not None
        return self._builder.add(_PORTION_BYTES, on_piece)

    def finish(self) -> None:
        """See BackupPlace."""
        assert self._builder is not None
        self._builder.finish(warrenmq.__version__, now_text())
        put_in_place(self._path, self.target)

    def give_up(self) -> None:
        """See BackupPlace."""
        give_up(self._path)


class Surroundings:
    """What a backup uses of its node."""

    def __init__(
        self,
        loop: Loop,
        data_dir: Path,
        vhosts: Callable[[], Iterable[Vhost]],
        wake: Callable[[], None],
    ) -> None:
        self.loop = loop
        self.data_dir = data_dir
        self.vhosts = vhosts
        # Something was asked of a store: look after it.
        self.wake = wake
        # Known when the node has started: put a copy of the definitions in a file, call on the flusher's thread, run a
        # job on the thread of its lane, rest on such a thread.
        self.copy_definitions: Callable[[Path], None] | None = None
        self.call_flusher: Callable[[FlusherCall], None] | None = None
        self.submit: Callable[[StoreJob], None] | None = None
        self.pause: Callable[[float], None] | None = None


class NodeBackups:
    """The backups of a node; see `Backups` in admin/node.py."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._last: Backup | None = None

    def start(self, target: str) -> None:
        """Begin a backup in the new directory `target`. Raises BackupRefused."""
        if self._last is not None and self._last.is_running:
            raise BackupRefused(f"a backup to {self._last.target} is being made")
        path = Path(target)
        if not path.is_absolute():
            raise BackupRefused(f"{target} is not an absolute path on the node's machine")
        try:
            place = LocalBackupPlace(self._surroundings.data_dir, path)
        except (ToolError, OSError, ValueError) as error:
            raise BackupRefused(str(error)) from None
        logger.info("a backup to %s begins", path)
        self._last = Backup(self._surroundings, place)
        self._last.start()

    def status(self) -> BackupStatus:
        """Of the last backup. Raises BackupRefused when there was none."""
        if self._last is None:
            raise BackupRefused("no backup was made since the node was started")
        return self._last.status()

    def stop(self) -> None:
        """The node stops: what is being made is given up."""
        if self._last is not None and self._last.is_running:
            self._last.fail("the node stops")


class Backup:
    """One backup. What is not said to be elsewhere happens on the loop."""

    def __init__(self, surroundings: Surroundings, place: BackupPlace) -> None:
        self.target = place.target
        self.place = place
        self.is_running = True
        self.pause_bytes = 0
        self._surroundings = surroundings
        self._step = "checkpoint"
        self._text = ""
        self._done_bytes = 0
        self._total_bytes = 0
        self._vhosts = list(surroundings.vhosts())
        self._waiting = len(self._vhosts)
        self._holds_store = False
        self._listed_bytes = 0
        self._failed_commits: list[int] = []

    def status(self) -> BackupStatus:
        """How far it is."""
        return BackupStatus(
            str(self.target), self._step, self._done_bytes, self._total_bytes, self._text
        )

    def is_over(self) -> bool:
        """Has it succeeded or failed?"""
        return not self.is_running

    # -- 1: checkpoints ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the checkpoints."""
        self._holds_store = True
        for vhost in self._vhosts:
            vhost.store.backup.begin(_Owner(self))
        self._surroundings.wake()

    def on_checkpoint(self, ok: bool) -> None:
        """A vhost has its checkpoint, or cannot have it."""
        if not self.is_running:
            return
        if not ok:
            self.fail("a checkpoint could not be written; the log says why")
            return
        self._waiting -= 1
        if self._waiting == 0:
            self._fix_end()

    # -- 2: definitions ----------------------------------------------------------------------------------------------

    def _fix_end(self) -> None:
        self._step = "definitions"
        files: list[SourceFile] = []
        for vhost in self._vhosts:
            for file in vhost.store.backup.files():
                place = f"{VHOSTS_PATH}/{vhost.id}/{file.path}"
                # What of a sealed file is behind the bytes that count is the rest of a crash, and stepped over.
                files.append(SourceFile(place, file.size_bytes, file.is_sealed))
        self._total_bytes = sum(max(file.size, 0) for file in files)
        self._failed_commits = [vhost.journal.failed_count for vhost in self._vhosts]
        surroundings = self._surroundings
        copy_definitions = surroundings.copy_definitions
        assert copy_definitions is not None and surroundings.call_flusher is not None

        def copy() -> None:
            copy_definitions(self.place.database)

        def done(error: Exception | None) -> None:
            surroundings.loop.call_soon_threadsafe(self._on_definitions, files, error)

        surroundings.call_flusher(FlusherCall(copy, done))

    def _on_definitions(self, files: list[SourceFile], error: Exception | None) -> None:
        if not self.is_running:
            return
        failed_commits = [vhost.journal.failed_count for vhost in self._vhosts]
        if error is not None:
            self.fail(f"the definitions could not be copied: {error}")
        elif failed_commits != self._failed_commits:
            self.fail("a commit failed meanwhile: try again")
        else:
            self._take(files)

    # -- 3: files ----------------------------------------------------------------------------------------------------

    def _take(self, files: list[SourceFile]) -> None:
        self._step = "files"
        written: dict[str, bytes] = {}
        for vhost in self._vhosts:
            directory = f"{VHOSTS_PATH}/{vhost.id}"
            written[f"{directory}/{CHECKPOINT_NAME}"] = vhost.store.backup.checkpoint
            written[f"{directory}/{STORE_ID_NAME}"] = (
                vhost.store.store_id.hex().encode("ascii") + b"\n"
            )

        def work() -> None:
            self.place.take(written, files, self._rest, self._count)

        self._submit(_BackupJob(self, work, self._on_taken))

    def _on_taken(self) -> None:
        self._let_go()
        self._step = "checksums"
        self._done_bytes = 0

        def work() -> None:
            self._listed_bytes = self.place.list_files()

        self._submit(_BackupJob(self, work, self._on_listed))

    # -- 4: manifest -------------------------------------------------------------------------------------------------

    def _on_listed(self) -> None:
        self._total_bytes = self._listed_bytes
        self._add_checksums()

    def _add_checksums(self) -> None:
        has_more = False

        def on_piece(size: int) -> None:
            self._count(size)
            self._rest(size)

        def work() -> None:
            nonlocal has_more
            has_more = self.place.add_checksums(on_piece)
            if not has_more:
                self.place.finish()

        def done() -> None:
            if has_more:
                self._add_checksums()
            else:
                self._succeed()

        self._submit(_BackupJob(self, work, done))

    # -- the end -----------------------------------------------------------------------------------------------------

    def fail(self, text: str) -> None:
        """It cannot be finished."""
        if not self.is_running:
            return
        logger.error(
            "the backup to %s failed while it was at its %s: %s", self.target, self._step, text
        )
        self.is_running = False
        self._step = BACKUP_FAILED
        self._text = text
        self._let_go()
        self.place.give_up()

    def _succeed(self) -> None:
        logger.info("the backup to %s is done: %d bytes", self.target, self._total_bytes)
        self.is_running = False
        self._step = BACKUP_DONE

    def _let_go(self) -> None:
        if self._holds_store:
            self._holds_store = False
            for vhost in self._vhosts:
                vhost.store.backup.end()
            self._surroundings.wake()

    def _submit(self, job: "_BackupJob") -> None:
        assert self._surroundings.submit is not None
        self._surroundings.submit(job)

    def _count(self, size: int) -> None:
        # On the copying thread; whoever reads it is content with an old value.
        self._done_bytes += size

    def _rest(self, size: int) -> None:
        self.pause_bytes += size
        if self.pause_bytes >= _REST_BYTES and self._surroundings.pause is not None:
            self._surroundings.pause(self.pause_bytes / BYTES_PER_S)
            self.pause_bytes = 0


class _Owner(BackupListener):
    def __init__(self, backup: Backup) -> None:
        self._backup = backup

    def on_checkpoint(self, ok: bool) -> None:
        """See BackupListener."""
        self._backup.on_checkpoint(ok)


class _BackupJob(StoreJob):
    """A part of the work, done by `run` below on a thread; then `done` on the loop."""

    def __init__(self, backup: Backup, work: Callable[[], None], done: Callable[[], None]) -> None:
        super().__init__(COMPACT)
        self._backup = backup
        self._task = work
        self._done = done

    def run(self) -> None:
        """Do it, unless the backup was given up."""
        if self._backup.is_over():
            return
        is_done = False
        try:
            self._task()
            is_done = True
        finally:
            if not is_done or self._backup.is_over():
                # It failed: to remove many large files takes a while, and the loop waits for nothing. Or it was given up
                # while this was at it: nobody else removes what was made since.
                self._backup.place.give_up()

    def finished(self) -> None:
        """See StoreJob."""
        if not self._backup.is_running:
            return
        if self.error is not None:
            self._backup.fail(str(self.error))
        else:
            self._done()


class BackupRunner:
    """Runs the jobs of backups (see Runner in store/disk/workers.py)."""

    def run(self, job: StoreJob) -> None:
        """Do the job; `job.error` says why not."""
        job.error = None
        assert isinstance(job, _BackupJob)
        try:
            job.run()
        except Exception as error:  # Whatever it was, the backup ends with it and the node goes on.
            job.error = error
