"""BackupHost of a running node: one at a time, while everything else continues.

1. Each vhost takes a checkpoint and from then on deletes nothing (store/upkeep/backup_pins.py).
2. When all vhosts have one, the end of the backup is fixed: the bytes of all sealed batches. The
   flusher copies the definitions between two batches, when exactly these batches are durable, so
   definitions and messages are of the same commit.
3. Files that are never written again are linked; of the others the bytes that count are copied.
   Then the vhosts delete files again.
4. The checksums are computed from the backup's own files, in portions so that compaction gets its
   turn, and written to the manifest. Last, the backup gets its name.

Steps 3 and 4 run on the thread of the long copies. A failed backup is removed.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

import warrenmq
from warrenmq.admin.node import BackupRefused
from warrenmq.admin.protocol.requests import BACKUP_DONE, BACKUP_FAILED, BackupStatus
from warrenmq.broker.vhost.vhost import Vhost
from warrenmq.offline import backup_files
from warrenmq.offline.data_directory import DATABASE_NAME, VHOSTS_PATH, ToolError
from warrenmq.store.disk.files import STORE_ID_NAME, make_directories, sync_file
from warrenmq.store.disk.flusher import FlusherCall
from warrenmq.store.jobs.job import COMPACT, StoreJob
from warrenmq.store.records.checkpoint import CHECKPOINT_NAME
from warrenmq.store.upkeep.backup_pins import BackupListener

logger = logging.getLogger("warren.backup")

# Fastest copy (bytes/s): the disk has others to serve.
BYTES_PER_S: Final = 134217728
# The copying thread rests after each piece of so many bytes.
_REST_BYTES: Final = 4194304
# Bytes to checksum in one job.
_PORTION_BYTES: Final = 67108864


class BackupPlace(Protocol):
    """The target of one backup: a local directory, or the simulator's disk.

    `take`, `list_files`, `add_checksums` and `finish` are called in this order on the thread of the
    long copies. They raise OSError, ToolError or ValueError when the backup cannot be finished.
    """

    # The path under which the finished backup appears.
    target: Path
    # The file for the copy of the definitions.
    database: Path

    def take(
        self,
        written: dict[str, bytes],
        files: list[backup_files.SourceFile],
        on_piece: backup_files.OnPiece,
        on_file: backup_files.OnPiece,
    ) -> None:
        """Sync the definitions, write `written` (content by path), link or copy `files`."""

    def list_files(self) -> int:
        """List the files taken so far; returns their size in bytes."""

    def add_checksums(self, on_piece: backup_files.OnPiece) -> bool:
        """Compute the checksums of the next portion of files; False when no file is left."""

    def finish(self) -> None:
        """Write the manifest and rename the backup to its target; durable on return."""

    def discard(self) -> None:
        """Abort the backup and remove its files."""


class LocalBackupPlace:
    """A backup in a new directory on the node's machine; see BackupPlace.

    The parent of `target` must exist. Raises ToolError.
    """

    def __init__(self, data_dir: Path, target: Path) -> None:
        backup_files.must_be_outside(data_dir, target)
        self.target = target
        self._data_dir = data_dir
        self._path = backup_files.begin_new(target)
        self.database = self._path / DATABASE_NAME
        self._builder: backup_files.ManifestBuilder | None = None

    def take(
        self,
        written: dict[str, bytes],
        files: list[backup_files.SourceFile],
        on_piece: backup_files.OnPiece,
        on_file: backup_files.OnPiece,
    ) -> None:
        """See BackupPlace."""
        sync_file(self.database)
        for name, content in written.items():
            path = self._path / name
            make_directories(path.parent)
            path.write_bytes(content)
            path.chmod(0o640)
            sync_file(path)
        backup_files.take_files(self._data_dir, self._path, files, on_piece, on_file)

    def list_files(self) -> int:
        """See BackupPlace."""
        self._builder = backup_files.ManifestBuilder(self._path)
        return self._builder.total_bytes

    def add_checksums(self, on_piece: backup_files.OnPiece) -> bool:
        """See BackupPlace."""
        assert self._builder is not None
        return self._builder.add(_PORTION_BYTES, on_piece)

    def finish(self) -> None:
        """See BackupPlace."""
        assert self._builder is not None
        self._builder.finish(warrenmq.__version__, backup_files.now_text())
        backup_files.put_in_place(self._path, self.target)

    def discard(self) -> None:
        """See BackupPlace."""
        backup_files.remove_unfinished(self._path)


class BackupServices:
    """The services of a node that a backup uses."""

    def __init__(
        self,
        call_soon_threadsafe: Callable[..., object],
        data_dir: Path,
        vhosts: Callable[[], Iterable[Vhost]],
        wake: Callable[[], None],
    ) -> None:
        # Calls a function with arguments on the loop, soon; callable from any thread.
        self.call_soon_threadsafe = call_soon_threadsafe
        self.data_dir = data_dir
        self.vhosts = vhosts
        # Ends a turn soon, in which the stores act on a request.
        self.wake = wake
        # The node sets the following four when it has started.
        # Copies the definitions to a file; called on the flusher's thread.
        self.copy_definitions: Callable[[Path], None] | None = None
        # Runs a call on the flusher's thread, between two batches.
        self.call_flusher: Callable[[FlusherCall], None] | None = None
        # Runs a job on the thread of its lane.
        self.submit: Callable[[StoreJob], None] | None = None
        # Rests on the calling thread for a time (s); raises Stopped when the node stops.
        self.pause: Callable[[float], None] | None = None


class NodeBackups:
    """Makes the backups of a node; see `BackupHost` in admin/node.py."""

    def __init__(self, surroundings: BackupServices) -> None:
        self._surroundings = surroundings
        self._last: Backup | None = None

    def start(self, target: str) -> None:
        """Begin a backup to the new directory `target`. Raises BackupRefused."""
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
        """The status of the last backup. Raises BackupRefused when there was none."""
        if self._last is None:
            raise BackupRefused("no backup was made since the node started")
        return self._last.status()

    def cancel(self) -> None:
        """See BackupHost."""
        if self._last is not None:
            self._last.fail("it was cancelled")

    def stop(self) -> None:
        """Abort the running backup, if any, because the node stops."""
        if self._last is not None and self._last.is_running:
            self._last.fail("the node stops")


class Backup:
    """One backup. Everything runs on the loop unless its comment names another thread."""

    def __init__(self, surroundings: BackupServices, place: BackupPlace) -> None:
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
        """The step and progress of this backup."""
        return BackupStatus(
            str(self.target), self._step, self._done_bytes, self._total_bytes, self._text
        )

    def is_over(self) -> bool:
        """Whether the backup has succeeded or failed."""
        return not self.is_running

    # -- 1: checkpoints ----------------------------------------------------------------------------

    def start(self) -> None:
        """Request a checkpoint of each vhost."""
        self._holds_store = True
        for vhost in self._vhosts:
            vhost.store.backup.begin(_CheckpointListener(self))
        self._surroundings.wake()

    def on_checkpoint(self, ok: bool) -> None:
        """Count one vhost's finished checkpoint; fail the backup if it could not be written."""
        if not self.is_running:
            return
        if not ok:
            self.fail("a checkpoint could not be written; the log says why")
            return
        self._waiting -= 1
        if self._waiting == 0:
            self._fix_end()

    # -- 2: definitions ----------------------------------------------------------------------------

    def _fix_end(self) -> None:
        self._step = "definitions"
        files: list[backup_files.SourceFile] = []
        for vhost in self._vhosts:
            for file in vhost.store.backup.files():
                place = f"{VHOSTS_PATH}/{vhost.id}/{file.path}"
                # Bytes of a sealed file behind `size_bytes` are what a crash left; readers skip
                # them.
                files.append(backup_files.SourceFile(place, file.size_bytes, file.is_sealed))
        self._total_bytes = sum(max(file.size, 0) for file in files)
        self._failed_commits = [vhost.journal.failed_count for vhost in self._vhosts]
        surroundings = self._surroundings
        copy_definitions = surroundings.copy_definitions
        assert copy_definitions is not None and surroundings.call_flusher is not None

        def copy() -> None:
            try:
                copy_definitions(self.place.database)
            finally:
                if self.is_over():
                    # The backup was cancelled meanwhile, and its removal may have missed this file.
                    self.place.discard()

        def done(error: Exception | None) -> None:
            surroundings.call_soon_threadsafe(self._on_definitions, files, error)

        surroundings.call_flusher(FlusherCall(copy, done))

    def _on_definitions(
        self, files: list[backup_files.SourceFile], error: Exception | None
    ) -> None:
        if not self.is_running:
            return
        failed_commits = [vhost.journal.failed_count for vhost in self._vhosts]
        if error is not None:
            self.fail(f"the definitions could not be copied: {error}")
        elif failed_commits != self._failed_commits:
            self.fail("a commit failed during the backup; try again")
        else:
            self._take(files)

    # -- 3: files ----------------------------------------------------------------------------------

    def _take(self, files: list[backup_files.SourceFile]) -> None:
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
        self._release_stores()
        self._step = "checksums"
        self._done_bytes = 0

        def work() -> None:
            self._listed_bytes = self.place.list_files()

        self._submit(_BackupJob(self, work, self._on_listed))

    # -- 4: manifest -------------------------------------------------------------------------------

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

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, text: str) -> None:
        """Fail the backup, log `text` as the reason, and remove its files."""
        if not self.is_running:
            return
        logger.error("the backup to %s failed in step '%s': %s", self.target, self._step, text)
        self.is_running = False
        self._step = BACKUP_FAILED
        self._text = text
        self._release_stores()
        self.place.discard()

    def _succeed(self) -> None:
        logger.info("the backup to %s is done: %d bytes", self.target, self._total_bytes)
        self.is_running = False
        self._step = BACKUP_DONE

    def _release_stores(self) -> None:
        if self._holds_store:
            self._holds_store = False
            for vhost in self._vhosts:
                vhost.store.backup.end()
            self._surroundings.wake()

    def _submit(self, job: "_BackupJob") -> None:
        assert self._surroundings.submit is not None
        self._surroundings.submit(job)

    def _count(self, size: int) -> None:
        # Runs on the copying thread; readers on the loop accept an old value.
        self._done_bytes += size

    def _rest(self, size: int) -> None:
        self.pause_bytes += size
        if self.pause_bytes >= _REST_BYTES and self._surroundings.pause is not None:
            self._surroundings.pause(self.pause_bytes / BYTES_PER_S)
            self.pause_bytes = 0


class _CheckpointListener(BackupListener):
    def __init__(self, backup: Backup) -> None:
        self._backup = backup

    def on_checkpoint(self, ok: bool) -> None:
        """See BackupListener."""
        self._backup.on_checkpoint(ok)


class _BackupJob(StoreJob):
    """One part of the backup: `work` runs on a thread, then `done` on the loop."""

    def __init__(self, backup: Backup, work: Callable[[], None], done: Callable[[], None]) -> None:
        super().__init__(COMPACT)
        self._backup = backup
        self._task = work
        self._done = done

    def run(self) -> None:
        """Run the part on the thread, unless the backup was aborted."""
        if self._backup.is_over():
            return
        is_done = False
        try:
            self._task()
            is_done = True
        finally:
            if not is_done or self._backup.is_over():
                # Remove the files here when this part failed: the removal of many large files takes
                # a while, and the loop must not wait for it. When the backup was aborted while this
                # part ran, nothing else removes the files made since.
                self._backup.place.discard()

    def finished(self) -> None:
        """See StoreJob."""
        if not self._backup.is_running:
            return
        if self.error is not None:
            self._backup.fail(str(self.error))
        else:
            self._done()


class BackupRunner:
    """Runs the jobs of backups; see Run in store/disk/workers.py."""

    def run(self, job: StoreJob) -> None:
        """Run the job; `job.error` says why it failed, or is None."""
        job.error = None
        assert isinstance(job, _BackupJob)
        try:
            job.run()
        except Exception as error:  # Any error ends the backup, never the node.
            job.error = error
